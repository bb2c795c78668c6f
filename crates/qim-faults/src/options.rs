use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Parser, Subcommand};

use crate::kind::{Archive, Kind, Redis};

/// Real daemons under random faults, and a client that checks what becomes of its messages. See docs/testing.md;
/// scripts/faults starts it.
#[derive(Debug, Parser)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Many runs, of consecutive seeds.
    Campaign(CampaignArgs),
    /// One run.
    #[command(hide = true)]
    Run(RunArgs),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct CampaignArgs {
    /// How many runs.
    #[arg(long, default_value_t = 10)]
    pub(crate) runs: u64,
    /// The seed of the first run; the others have the next ones.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Which archive.
    #[arg(long, value_enum, default_value_t = Archive::Sqlite)]
    pub(crate) archive: Archive,
    /// What the hot tier is.
    #[arg(long, value_enum, default_value_t = Redis::Single)]
    pub(crate) redis: Redis,
    /// Kinds of faults, separated by commas: their names, `all`, or `loss` (those in which Redis loses data).
    #[arg(long, default_value = "all")]
    pub(crate) kinds: String,
    /// Runs at once; with a CQL archive that can be killed, one.
    #[arg(long, default_value_t = 4)]
    pub(crate) parallel: usize,
    /// No run begins after so many minutes.
    #[arg(long)]
    pub(crate) minutes: Option<u64>,
    /// Where the directories of the runs are; those that went wrong stay there.
    #[arg(long)]
    pub(crate) dir: PathBuf,
    /// The CQL server, `scylla://HOST:PORT`.
    #[arg(long)]
    pub(crate) cql_url: Option<String>,
    /// `scripts/cassandra`, where it started the CQL server: then that is killed and paused, too.
    #[arg(long, requires = "cassandra_dir")]
    pub(crate) cassandra: Option<PathBuf>,
    /// The directory of that server.
    #[arg(long)]
    pub(crate) cassandra_dir: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct RunArgs {
    #[arg(long)]
    pub(crate) seed: u64,
    #[arg(long, value_enum)]
    pub(crate) archive: Archive,
    #[arg(long, value_enum)]
    pub(crate) redis: Redis,
    #[arg(long)]
    pub(crate) kinds: Kinds,
    #[arg(long)]
    pub(crate) dir: PathBuf,
    #[arg(long)]
    pub(crate) archive_url: Option<String>,
    #[arg(long)]
    pub(crate) cassandra: Option<PathBuf>,
    #[arg(long)]
    pub(crate) cassandra_dir: Option<PathBuf>,
}

/// A list of names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kinds(pub(crate) Vec<Kind>);

impl Kinds {
    /// What `--kinds` means for this archive and this Redis.
    pub(crate) fn chosen(text: &str, archive: Archive, redis: Redis) -> Result<Self, String> {
        let mut chosen = Vec::new();
        for name in text.split(',') {
            let possible = Kind::all(archive, redis).into_iter();
            match name {
                "all" => chosen.extend(possible),
                "loss" => chosen.extend(possible.filter(|kind| kind.loses_data(redis))),
                name => chosen.push(name.parse::<Kind>().map_err(|error| format!("{name}: {error}"))?),
            }
        }
        Ok(Self(chosen))
    }

    /// As [`FromStr`] takes it.
    pub(crate) fn names(&self) -> String {
        self.0.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }
}

impl FromStr for Kinds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.split(',').map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_chosen_by_name_and_in_groups() {
        let chosen = |text| Kinds::chosen(text, Archive::Sqlite, Redis::Single);
        let all = chosen("all").unwrap();
        assert_eq!(all.0, Kind::all(Archive::Sqlite, Redis::Single));
        assert_eq!(all.names().parse(), Ok(all));
        assert_eq!(chosen("kill-redis").unwrap().names(), "kill-redis");
        assert!(chosen("loss").unwrap().0.iter().all(|kind| kind.loses_data(Redis::Single)));
        assert!(chosen("kill-redis,nothing").unwrap_err().starts_with("nothing: no such kind"));
    }
}
