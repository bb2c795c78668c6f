//! A CQL server: the one that the environment names, or one that the script starts.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Result, bail};
use scylla::client::session_builder::SessionBuilder;
use tempfile::TempDir;

/// The server of the tests; see scripts/test.
const URL_VARIABLE: &str = "QIM_TEST_CQL_URL";

/// A running server. One that we started ends with this.
#[derive(Debug)]
pub(crate) struct Cql {
    /// `scylla://HOST:PORT`
    url: String,
    _started: Option<Started>,
}

#[derive(Debug)]
struct Started {
    script: PathBuf,
    dir: TempDir,
}

impl Cql {
    /// `None` where there is neither.
    pub(crate) fn start(script: Option<&Path>) -> Result<Option<Self>> {
        if let Ok(url) = std::env::var(URL_VARIABLE) {
            return Ok(Some(Self { url, _started: None }));
        }
        let Some(script) = script else { return Ok(None) };
        let dir = TempDir::with_prefix("qim-bench-cql-")?;
        let started = Started { script: script.to_owned(), dir };
        let output = started.command("start").stderr(Stdio::inherit()).output()?;
        if !output.status.success() {
            bail!("{} start: {}", script.display(), output.status);
        }
        let url = String::from_utf8(output.stdout)?.trim().to_owned();
        Ok(Some(Self { url, _started: Some(started) }))
    }

    /// `HOST:PORT`
    pub(crate) fn address(&self) -> &str {
        self.url.trim_start_matches("scylla://")
    }

    /// The archive URL of a keyspace of its own.
    pub(crate) fn keyspace_url(&self) -> String {
        format!("{}/bench_{:016x}", self.url, rand::random::<u64>())
    }

    /// What the tables of a keyspace take on disk once all is written there, to the MiB for each of them; `None` where
    /// the server does not tell, as anything but Cassandra.
    pub(crate) async fn disk_bytes(&self, keyspace: &str) -> Result<Option<f64>> {
        /// A memtable that is flushed this often is on disk when so much time and a little more has passed.
        const FLUSH: Duration = Duration::from_secs(2);
        let session = SessionBuilder::new().known_node(self.address()).build().await?;
        let tables = ["records", "held_records", "client_ids", "conversations"];
        for table in tables {
            let period = FLUSH.as_millis();
            let flush = format!("ALTER TABLE {keyspace}.{table} WITH memtable_flush_period_in_ms = {period}");
            session.query_unpaged(flush, ()).await?;
        }
        tokio::time::sleep(FLUSH * 2).await;
        let usage = "SELECT table_name, mebibytes FROM system_views.disk_usage WHERE keyspace_name = ?";
        let Ok(usage) = session.query_unpaged(usage, (keyspace,)).await else { return Ok(None) };
        let usage = usage.into_rows_result()?;
        let rows: Vec<(String, i64)> = usage.rows()?.collect::<Result<_, _>>()?;
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let mebibytes = rows.iter().map(|(_, mebibytes)| *mebibytes).sum::<i64>() as f64;
        Ok(Some(mebibytes * f64::from(1 << 20)))
    }
}

impl Started {
    fn command(&self, action: &str) -> Command {
        let mut command = Command::new(&self.script);
        command.arg(action).arg("--dir").arg(self.dir.path().join("node"));
        command
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.command("stop").status();
    }
}
