//! What is measured, and how much of it.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

/// Measures qim beside its floors, phase by phase.
#[derive(Debug, Clone, Args)]
pub(crate) struct MeasureArgs {
    /// What to measure
    #[arg(value_enum, default_value = "all")]
    pub(crate) phase: PhaseName,
    /// Ends with one JSON object on a line of its own
    #[arg(long)]
    pub(crate) json: bool,
    /// Messages to measure with, as `qim import` reads them [default: generated chat]
    #[arg(long, value_name = "FILE")]
    pub(crate) corpus: Option<PathBuf>,
    /// Messages to train a dictionary on, as `qim import` reads them [default: train.ndjson beside the corpus, else
    /// generated chat of another seed]
    #[arg(long, value_name = "FILE")]
    pub(crate) train: Option<PathBuf>,
    /// Small and short: shows that everything works, not how fast
    #[arg(long)]
    pub(crate) quick: bool,
    /// Of commits, only the series whose name contains this, such as "qim stream, 1 a call"
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Option<String>,
    /// Where the programs of qim are [default: beside this one]
    #[arg(long, value_name = "DIR")]
    pub(crate) bin_dir: Option<PathBuf>,
    /// The settings of every Redis that is started
    #[arg(long, value_name = "FILE")]
    pub(crate) redis_conf: PathBuf,
    /// The script that starts a CQL server where `QIM_TEST_CQL_URL` names none; without either, CQL is left out
    #[arg(long, value_name = "SCRIPT")]
    pub(crate) cassandra: Option<PathBuf>,
    /// Writes a plot of the goals as SVG
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}

/// A phase, or all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PhaseName {
    /// Bytes in Redis
    Memory,
    /// Messages committed per second
    Commit,
    /// Pages read per second
    Pull,
    /// Rows copied to the archive per second
    Archive,
    /// Expired and old records removed from Redis
    Gc,
    /// What nothing to do costs
    Idle,
    /// `qim import` of a large file
    Import,
    /// Memory of the daemons at ten times the history
    Rss,
    /// What must not grow with ten million messages, or beside a huge conversation; takes long, and is not one of all
    Growth,
    /// All of the others
    All,
}

impl PhaseName {
    /// The phases that this one stands for, in the order in which they run.
    pub(crate) fn phases(self) -> Vec<Self> {
        match self {
            Self::All => vec![
                Self::Memory,
                Self::Commit,
                Self::Pull,
                Self::Archive,
                Self::Gc,
                Self::Idle,
                Self::Import,
                Self::Rss,
            ],
            one => vec![one],
        }
    }

    /// As on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Commit => "commit",
            Self::Pull => "pull",
            Self::Archive => "archive",
            Self::Gc => "gc",
            Self::Idle => "idle",
            Self::Import => "import",
            Self::Rss => "rss",
            Self::Growth => "growth",
            Self::All => "all",
        }
    }
}

/// How large and how long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale {
    /// Each phase runs so often.
    pub(crate) runs: usize,
    /// Generated messages of one week.
    pub(crate) corpus_messages: usize,
    /// One measurement of a rate.
    pub(crate) window: Duration,
    /// Before it, not counted.
    pub(crate) warm_up: Duration,
    /// Conversations of 60 messages that pages are read from.
    pub(crate) page_conversations: usize,
    /// Records to be copied to the archive.
    pub(crate) backlog: usize,
    /// Records that expire at the same moment.
    pub(crate) burst: usize,
    /// Conversations without anything in Redis.
    pub(crate) idle_conversations: usize,
    /// How long the idle daemons are watched.
    pub(crate) idle_window: Duration,
    /// Messages of the imported file.
    pub(crate) import_messages: usize,
    /// Messages committed, copied and trimmed before memory of the daemons is first looked at.
    pub(crate) history: usize,
    /// How many times as many it is then, where growth is measured.
    pub(crate) growth: usize,
    /// Messages of the huge conversation.
    pub(crate) huge: usize,
    /// Payloads of 64 KiB.
    pub(crate) large_payloads: usize,
}

impl Scale {
    pub(crate) fn of(quick: bool) -> Self {
        if quick { Self::quick() } else { Self::full() }
    }

    fn full() -> Self {
        Self {
            runs: 3,
            corpus_messages: 30_000,
            window: Duration::from_secs(2),
            warm_up: Duration::from_millis(300),
            page_conversations: 2_000,
            backlog: 150_000,
            burst: 1_000_000,
            idle_conversations: 100_000,
            idle_window: Duration::from_secs(20),
            import_messages: 1_000_000,
            history: 100_000,
            growth: 100,
            huge: 1_000_000,
            large_payloads: 1000,
        }
    }

    fn quick() -> Self {
        Self {
            runs: 1,
            corpus_messages: 400,
            window: Duration::from_millis(150),
            warm_up: Duration::from_millis(20),
            page_conversations: 10,
            backlog: 1_000,
            burst: 2_000,
            idle_conversations: 200,
            idle_window: Duration::from_millis(500),
            import_messages: 2_000,
            history: 500,
            growth: 4,
            huge: 2_000,
            // With fewer, what else Redis takes and gives back meanwhile is more than they are.
            large_payloads: 200,
        }
    }
}
