//! The daemons of qim, as they are built.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::process::{Process, free_port};
use super::redis::Redis;

const HTTP_TIMEOUT: Duration = Duration::from_secs(10);

/// A running daemon on free ports.
#[derive(Debug)]
pub(crate) struct Daemon {
    process: Process,
    admin: u16,
    grpc: u16,
    _dir: TempDir,
}

impl Daemon {
    /// Starts it with default settings but for these variables, and waits until it is ready.
    pub(crate) fn start(
        name: &'static str,
        bin_dir: &Path,
        redis: &Redis,
        archive_url: &str,
        variables: &[(&str, &str)],
    ) -> Result<Self> {
        let dir = TempDir::with_prefix("qim-bench-")?;
        let (admin, grpc) = (free_port()?, free_port()?);
        let mut command = Command::new(bin_dir.join(name));
        for (variable, _) in std::env::vars().filter(|(variable, _)| variable.starts_with("QIM_")) {
            command.env_remove(variable);
        }
        command
            .env("QIM_REDIS_URL", redis.url())
            .env("QIM_ARCHIVE_URL", archive_url)
            .env("QIM_ADMIN_ADDR", format!("127.0.0.1:{admin}"))
            .env("QIM_LISTEN_ADDR", format!("127.0.0.1:{grpc}"))
            .env("QIM_LOG", "warn")
            .envs(variables.iter().copied())
            .current_dir(dir.path());
        let mut process = Process::start(name, dir.path(), &mut command)?;
        process.await_ready(|| http_get(admin, "/readyz").is_ok())?;
        Ok(Self { process, admin, grpc, _dir: dir })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.grpc)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// A metric, summed over its labels; 0 where it does not exist yet.
    pub(crate) fn metric(&self, name: &str) -> Result<f64> {
        let text = http_get(self.admin, "/metrics")?;
        let of_name = |line: &&str| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{') || rest.starts_with(' '))
        };
        let values =
            text.lines().filter(of_name).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        Ok(values.sum())
    }
}

/// In HTTP/1.0, so that the answer ends with the connection.
fn http_get(port: u16, path: &str) -> Result<String> {
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&addr, HTTP_TIMEOUT)?;
    stream.set_read_timeout(Some(HTTP_TIMEOUT))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {addr}\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
    if head.split(' ').nth(1) != Some("200") {
        bail!("{path}: {head}");
    }
    Ok(body.to_owned())
}
