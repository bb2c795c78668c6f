//! A CQL server: the one that the environment names, or one that the script starts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Result, bail};
use scylla::client::session_builder::SessionBuilder;
use tempfile::TempDir;

/// The server of the tests; see scripts/test.
const URL_VARIABLE: &str = "QIM_TEST_CQL_URL";
/// How often a server of our own is started until it comes up: it takes its time on a machine that has just been busy.
const ATTEMPTS: usize = 2;

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
        for _ in 1..ATTEMPTS {
            match Started::start(script) {
                Ok(server) => return Ok(Some(server)),
                Err(error) => eprintln!("bench: {error:#}; trying once more"),
            }
        }
        Started::start(script).map(Some)
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
    /// The server of this script. Where it does not come up, its log stays, and the error says where.
    fn start(script: &Path) -> Result<Cql> {
        let dir = TempDir::with_prefix("qim-bench-cql-")?;
        let started = Self { script: script.to_owned(), dir };
        let output = started.command("start").stderr(Stdio::inherit()).output()?;
        if !output.status.success() {
            let kept =
                std::env::temp_dir().join(format!("qim-bench-cassandra-{:08x}.log", rand::random::<u32>()));
            let log = match fs::copy(started.node().join("cassandra.log"), &kept) {
                Ok(_) => format!("its log is {}", kept.display()),
                Err(error) => format!("it left no log: {error}"),
            };
            bail!("{} start: {}; {log}", script.display(), output.status);
        }
        let url = String::from_utf8(output.stdout)?.trim().to_owned();
        Ok(Cql { url, _started: Some(started) })
    }

    fn node(&self) -> PathBuf {
        self.dir.path().join("node")
    }

    fn command(&self, action: &str) -> Command {
        let mut command = Command::new(&self.script);
        command.arg(action).arg("--dir").arg(self.node());
        command
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.command("stop").status();
    }
}
