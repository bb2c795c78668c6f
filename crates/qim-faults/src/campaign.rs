//! Many runs, each in a process and a directory of its own, several at once.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, stream};
use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::process::Command;

use crate::fleet::{can_mount, faketime_library};
use crate::kind::{Archive, Kind, Redis};
use crate::options::{CampaignArgs, Kinds};
use crate::report::{RunResult, Summary};
use crate::run::directory;

/// Several times what a run takes that is stuck in everything.
const RUN_MAX: Duration = Duration::from_secs(180);

/// Runs all of them, and tells what came of it.
pub(crate) async fn run(args: &CampaignArgs) -> Result<Summary> {
    let began = Instant::now();
    fs::create_dir_all(&args.dir)?;
    let args = CampaignArgs { dir: args.dir.canonicalize()?, ..args.clone() };
    let Kinds(mut kinds) =
        Kinds::chosen(&args.kinds, args.archive, args.redis).map_err(anyhow::Error::msg)?;
    let skipped = skip_impossible(&mut kinds, &args)?;
    ensure!(!kinds.is_empty(), "none of these kinds of faults is possible here: {skipped:?}");
    let kinds = Kinds(kinds);
    // A node that is killed is killed for all.
    let parallel = if args.cassandra.is_some() { 1 } else { args.parallel.max(1) };
    let last_start = args.minutes.map(|minutes| began + Duration::from_secs(60 * minutes));
    let seeds = (args.seed..args.seed.saturating_add(args.runs))
        .take_while(|_| last_start.is_none_or(|last| Instant::now() < last));
    let mut results = stream::iter(seeds)
        .map(async |seed| (seed, one(&args, &kinds, seed).await))
        .buffer_unordered(parallel);
    let mut summary = Summary { first_seed: args.seed, skipped, ..Summary::default() };
    while let Some((seed, result)) = results.next().await {
        let result = result.inspect_err(|error| eprintln!("faults: seed {seed}: {error:#}")).ok();
        summary.add(seed, result);
        if summary.runs.is_multiple_of(20) {
            eprintln!("faults: {} runs, failed: {:?}", summary.runs, summary.failed_seeds);
        }
    }
    Ok(summary.taking(began.elapsed()))
}

/// Takes out what cannot be done here, and says why.
fn skip_impossible(kinds: &mut Vec<Kind>, args: &CampaignArgs) -> Result<BTreeMap<String, String>> {
    let no_clock = faketime_library().is_none().then_some("libfaketime is not installed");
    let probe = args.dir.join("probe");
    fs::create_dir_all(&probe)?;
    let no_disk = (!can_mount(&probe)).then_some("a small disk cannot be mounted here");
    fs::remove_dir(&probe)?;
    let no_node = (args.archive == Archive::Cql && args.cassandra.is_none())
        .then_some("the CQL server is not one that scripts/cassandra started");
    let mut skipped = BTreeMap::new();
    kinds.retain(|kind| {
        let reason = if kind.moves_a_clock() {
            no_clock
        } else if kind.fills_a_disk() {
            no_disk
        } else if kind.needs_the_node() {
            no_node
        } else {
            None
        };
        skipped.extend(reason.map(|reason| (kind.to_string(), reason.to_owned())));
        reason.is_none()
    });
    Ok(skipped)
}

/// One run in a process of its own, so that whatever happens to it ends with it.
async fn one(args: &CampaignArgs, kinds: &Kinds, seed: u64) -> Result<RunResult> {
    let dir = directory(&args.dir, seed);
    // Where it went wrong before, that is still there.
    if dir.exists() {
        fs::remove_dir_all(&dir)?;
    }
    fs::create_dir_all(&dir)?;
    let program = std::env::current_exe()?;
    let programs = program.parent().context("it is in a directory")?;
    let mut command = Command::new(&program);
    command.arg("run").arg("--seed").arg(seed.to_string()).arg("--kinds").arg(kinds.names());
    command.arg("--archive").arg(match args.archive {
        Archive::Sqlite => "sqlite",
        Archive::Cql => "cql",
    });
    command.arg("--redis").arg(match args.redis {
        Redis::Single => "single",
        Redis::Cluster => "cluster",
    });
    command.arg("--dir").arg(&dir);
    if let Some(url) = &args.cql_url {
        command.arg("--archive-url").arg(format!("{url}/qim_faults_{}", std::process::id()));
    }
    if let (Some(script), Some(node)) = (&args.cassandra, &args.cassandra_dir) {
        command.arg("--cassandra").arg(script).arg("--cassandra-dir").arg(node);
    }
    // Whatever a run makes is in its directory.
    command.env("TMPDIR", &dir).env("QIM_TEST_BIN_DIR", programs);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
    let child = command.spawn()?;
    let pid = Pid::from_raw(i32::try_from(child.id().context("it runs")?)?);
    let group = Group { pid, disk: dir.join("archive") };
    let ended = tokio::time::timeout(RUN_MAX, child.wait_with_output()).await;
    drop(group);
    let output = ended.context("it did not end")??;
    let line = String::from_utf8_lossy(&output.stdout).lines().last().unwrap_or_default().to_owned();
    let result: RunResult =
        serde_json::from_str(&line).with_context(|| format!("it told nothing: {}", output.status))?;
    if result.is_good() {
        remove(&dir)?;
    }
    Ok(result)
}

/// A run with all that it started, and the disk that it may have mounted. All of it ends when dropped: a run that has told
/// its result needs nothing any more.
struct Group {
    pid: Pid,
    disk: PathBuf,
}

impl Drop for Group {
    fn drop(&mut self) {
        // Errors: it has ended by itself, and had no disk.
        let _ = killpg(self.pid, Signal::SIGKILL);
        let _ = umount2(&self.disk, MntFlags::MNT_DETACH);
    }
}

fn remove(dir: &Path) -> Result<()> {
    fs::remove_dir_all(dir).with_context(|| format!("removing {}", dir.display()))
}
