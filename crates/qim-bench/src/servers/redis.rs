//! A Redis of our own.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use redis::aio::MultiplexedConnection;
use tempfile::TempDir;

use super::process::{Process, answers, free_port};

/// Started empty; gone when dropped.
#[derive(Debug)]
pub(crate) struct Redis {
    process: Process,
    port: u16,
    _dir: TempDir,
}

impl Redis {
    /// With these settings. Its append-only file is never rewritten, so that no fork comes into a measurement;
    /// `append_only` is off where memory is measured, to which its buffers do not belong.
    pub(crate) fn start(conf: &Path, append_only: bool) -> Result<Self> {
        let dir = TempDir::with_prefix("qim-bench-redis-")?;
        let port = free_port()?;
        let mut command = Command::new("redis-server");
        command.arg(conf).args(["--port", &port.to_string(), "--auto-aof-rewrite-percentage", "0"]);
        command.args(["--appendonly", if append_only { "yes" } else { "no" }]);
        command.arg("--dir").arg(dir.path()).current_dir(dir.path());
        let mut process = Process::start("redis-server", dir.path(), &mut command)?;
        process.await_ready(|| answers(port))?;
        Ok(Self { process, port, _dir: dir })
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub(crate) async fn connect(&self) -> Result<MultiplexedConnection> {
        connect(&self.url()).await
    }

    /// A number of `INFO`.
    pub(crate) async fn info(&self, field: &str) -> Result<f64> {
        let mut connection = self.connect().await?;
        let info: String = redis::cmd("INFO").arg("everything").query_async(&mut connection).await?;
        let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        Ok(value.with_context(|| format!("INFO has no {field}"))?.trim().parse()?)
    }

    /// What it has allocated, without the buffers of its connections, which come and go.
    pub(crate) async fn used_memory(&self) -> Result<f64> {
        Ok(self.info("used_memory").await? - self.info("mem_clients_normal").await?)
    }
}

/// One connection that many use at once.
pub(crate) async fn connect(url: &str) -> Result<MultiplexedConnection> {
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    Ok(redis::Client::open(url)?.get_multiplexed_async_connection_with_config(&config).await?)
}
