//! What all phases share: the corpus, the sizes, and how things are started.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::corpus::Corpus;
use crate::options::{MeasureArgs, Scale};
use crate::servers::daemon::Daemon;
use crate::servers::process::{Process, peak_rss_mib};
use crate::servers::redis::Redis;

/// Generated messages to train a dictionary on: enough that phrases are seen in many conversations.
const TRAINING_MESSAGES: &str = "20000";

/// Everything that phases need. What they start they own themselves.
pub(crate) struct Bench {
    pub(crate) scale: Scale,
    pub(crate) corpus: Arc<Corpus>,
    args: MeasureArgs,
    bin_dir: PathBuf,
    dir: TempDir,
}

/// What `qim import` said, and took.
#[derive(Debug)]
pub(crate) struct Imported {
    pub(crate) committed: f64,
    pub(crate) seconds: f64,
    pub(crate) peak_rss_mib: f64,
}

impl Bench {
    /// Reads or generates the corpus.
    pub(crate) fn prepare(mut args: MeasureArgs) -> Result<Self> {
        // Servers have working directories of their own.
        args.redis_conf = args.redis_conf.canonicalize().context("--redis-conf")?;
        let beside =
            || Ok::<_, anyhow::Error>(std::env::current_exe()?.parent().context("a directory")?.to_owned());
        let bin_dir = args.bin_dir.clone().map_or_else(beside, Ok)?.canonicalize()?;
        for program in ["qim", "qim-writer", "qim-archiver"] {
            ensure!(
                bin_dir.join(program).is_file(),
                "{} has no {program}: build it first",
                bin_dir.display()
            );
        }
        let scale = Scale::of(args.quick);
        let corpus = match &args.corpus {
            Some(path) => Corpus::read(path)?,
            None => Corpus::generate(&bin_dir.join("qim"), scale.corpus_messages)?,
        };
        let dir = TempDir::with_prefix("qim-bench-")?;
        Ok(Self { scale, corpus: Arc::new(corpus), args, bin_dir, dir })
    }

    /// Whether this series was asked for.
    pub(crate) fn wants(&self, series: &str) -> bool {
        self.args.only.as_ref().is_none_or(|only| series.contains(only.as_str()))
    }

    /// With an append-only file, as qim is to be run.
    pub(crate) fn redis(&self) -> Result<Redis> {
        Redis::start(&self.args.redis_conf, true)
    }

    /// For measuring memory.
    pub(crate) fn redis_without_file(&self) -> Result<Redis> {
        Redis::start(&self.args.redis_conf, false)
    }

    /// Default settings but for these variables.
    pub(crate) fn writer(&self, redis: &Redis, archive: &str, variables: &[(&str, &str)]) -> Result<Daemon> {
        Daemon::start("qim-writer", &self.bin_dir, redis, archive, variables)
    }

    /// Default settings but for these variables.
    pub(crate) fn archiver(
        &self,
        redis: &Redis,
        archive: &str,
        variables: &[(&str, &str)],
    ) -> Result<Daemon> {
        Daemon::start("qim-archiver", &self.bin_dir, redis, archive, variables)
    }

    /// A path where there is nothing yet.
    pub(crate) fn new_path(&self, name: &str) -> PathBuf {
        self.dir.path().join(format!("{name}-{:016x}", rand::random::<u64>()))
    }

    /// The URL of an SQLite archive that does not exist yet.
    pub(crate) fn sqlite_url(&self) -> String {
        format!("sqlite:{}", self.new_path("archive").display())
    }

    /// The script that starts a CQL server. A smoke test takes none of the minutes that one needs.
    pub(crate) fn cassandra(&self) -> Option<&Path> {
        self.args.cassandra.as_deref().filter(|_| !self.args.quick)
    }

    /// Runs `qim dictionary train` on the tiers.
    pub(crate) fn train(&self, redis: &Redis, archive: &str) -> Result<()> {
        let mut train = self.qim();
        train.args(["--json", "dictionary", "train", "--from"]).arg(self.training_file()?);
        train.env("QIM_REDIS_URL", redis.url()).env("QIM_ARCHIVE_URL", archive);
        let output = train.output().context("qim dictionary train")?;
        ensure!(output.status.success(), "qim dictionary train: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    fn training_file(&self) -> Result<PathBuf> {
        let beside = self.args.corpus.as_ref().map(|corpus| corpus.with_file_name("train.ndjson"));
        if let Some(file) = self.args.train.clone().or(beside.filter(|file| file.is_file())) {
            return Ok(file);
        }
        let output = self.qim().args(["demo", "--messages", TRAINING_MESSAGES, "--seed", "2"]).output()?;
        let file = self.new_path("train");
        std::fs::write(&file, output.stdout)?;
        Ok(file)
    }

    /// The command, without any variable of this process's own environment.
    fn qim(&self) -> Command {
        let mut command = Command::new(self.bin_dir.join("qim"));
        for (variable, _) in std::env::vars().filter(|(variable, _)| variable.starts_with("QIM_")) {
            command.env_remove(variable);
        }
        command
    }

    /// Runs `qim import`; every line has to be committed.
    pub(crate) async fn import(&self, server: &str, file: &Path, lines: usize) -> Result<Imported> {
        let dir = TempDir::with_prefix("qim-bench-import-")?;
        let mut command = Command::new(self.bin_dir.join("qim"));
        command.args(["--json", "--server", server, "import"]).arg(file);
        let mut process = Process::start("qim", dir.path(), &mut command)?;
        let mut peak = 0.0;
        while !process.has_ended()? {
            // Nothing once it has ended, so that what was seen last counts.
            peak = peak_rss_mib(process.pid()).unwrap_or(peak);
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        let log = std::fs::read_to_string(dir.path().join("qim.log"))?;
        let result =
            log.lines().rev().find(|line| line.starts_with('{')).context("no result of qim import")?;
        let result: Value = serde_json::from_str(result)?;
        let number = |name: &str| result[name].as_f64().with_context(|| format!("qim import says no {name}"));
        let imported =
            Imported { committed: number("committed")?, seconds: number("seconds")?, peak_rss_mib: peak };
        if imported.committed < crate::load::as_f64(lines) {
            bail!("qim import committed {} of {lines}: {log}", imported.committed);
        }
        Ok(imported)
    }

    /// Tells people how far it is; standard output is for results.
    #[expect(clippy::unused_self, reason = "phases have nothing else to say it to")]
    pub(crate) fn say(&self, what: &str) {
        eprintln!("bench: {what}");
    }
}
