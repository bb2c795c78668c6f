//! One run: a fleet, its load, its faults, its recovery, and what the checker says of it.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::checker::{Breach, Excuses, Violation, check};
use crate::client::Clients;
use crate::fleet::{ArchiveSite, Conductor, Fleet, Happened};
use crate::kind::{Archive, Kind};
use crate::options::RunArgs;
use crate::recovery::{self, Recovery};
use crate::report::{RunResult, tell};
use crate::schedule::{LOAD_MS, Schedule};

/// The step, and what requests took meanwhile.
const SKEW_MS: i64 = 3_600_000 + 10_000;

/// Runs the schedule of a seed in a directory, which is left as it is.
pub(crate) async fn run(args: &RunArgs) -> Result<RunResult> {
    let started = Instant::now();
    let schedule = Schedule::new(args.seed, &args.kinds.0, args.redis);
    let fleet = Arc::new(start(args, &schedule).await?);
    let clients = Clients::new(&fleet.writer_urls(), format!("seed-{}", args.seed))?;

    let mut conductor = Conductor::start(fleet.clone(), &schedule);
    let end = tokio::time::Instant::now() + Duration::from_millis(LOAD_MS);
    let work = schedule.load.iter().enumerate().map(|(i, requests)| clients.work(i, requests, end));
    futures::future::join_all(work).await;
    let recovery = recovery::await_all(&fleet, &clients, conductor.lifted().await).await;
    let unread = recovery::read_all(&clients).await;
    let set_aside = fleet.set_aside();
    let happened = conductor.stop();

    let skew_ms = if schedule.has(Kind::moves_a_clock) { SKEW_MS } else { 0 };
    let gaps = schedule.loses_data() && schedule.has(Kind::kills_a_writer);
    let mut violations =
        check(&clients.ledger(), &Excuses { skew_ms, gaps, losses_ms: happened.losses_ms.clone() });
    violations.extend(stuck(&recovery, unread, &set_aside, &happened));
    let result = RunResult::new(&schedule, &clients.ledger(), &violations, &recovery, &happened);
    fleet.end();
    if !violations.is_empty() {
        eprintln!("{}", tell(&schedule, &clients.ledger(), &violations, &happened, &args.dir));
        fs::write(args.dir.join("ledger.json"), serde_json::to_vec(&*clients.ledger())?)?;
        // Its directories are looked at; nothing runs in them any more.
        std::mem::forget(fleet);
    }
    Ok(result.taking(started.elapsed()))
}

async fn start(args: &RunArgs, schedule: &Schedule) -> Result<Fleet> {
    let archive = match (args.archive, &args.archive_url) {
        (Archive::Sqlite, _) => ArchiveSite::sqlite(&args.dir, schedule.has(Kind::fills_a_disk))?,
        (Archive::Cql, Some(url)) => ArchiveSite::cql(url, node(args))?,
        (Archive::Cql, None) => bail!("--archive-url is missing"),
    };
    let (dir, schedule) = (args.dir.clone(), schedule.clone());
    tokio::task::spawn_blocking(move || Fleet::start(&dir, &schedule, archive)).await?
}

fn node(args: &RunArgs) -> Option<(std::path::PathBuf, std::path::PathBuf)> {
    args.cassandra.clone().zip(args.cassandra_dir.clone())
}

/// What does not work, or was found damaged, as violations.
fn stuck(
    recovery: &Recovery,
    unread: Vec<String>,
    set_aside: &[String],
    happened: &Happened,
) -> Vec<Violation> {
    let damage = set_aside.chunks(2).map(|entry| format!("set aside: {}", entry.join(": ")));
    // What else does not work may only follow from what ended.
    let ended = happened.ended.iter().cloned();
    let all = ended.chain(recovery.stuck.iter().cloned()).chain(unread).chain(damage);
    let violation = |said| Violation { breach: Breach::Stuck, conversation: 0, seq: 0, number: None, said };
    all.map(violation).collect()
}

/// The directory of a run inside that of a campaign.
pub(crate) fn directory(root: &Path, seed: u64) -> std::path::PathBuf {
    root.join(format!("seed-{seed}"))
}
