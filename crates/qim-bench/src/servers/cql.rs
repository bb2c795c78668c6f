//! A CQL server: the one that the environment names, or one that the script starts.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, bail};
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
