//! Records that leave Redis: all at the same moment because they expire, or because they are older than the hot window.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use qim_proto::v1::RetentionClass;

use super::{Fill, HOUR_MS, epoch_ms, full_load};
use crate::bench::Bench;
use crate::load::{CommitWork, Load, as_f64, run};
use crate::progress::watch;
use crate::report::{Goal, Report, median};
use crate::servers::daemon::Daemon;
use crate::subject::Unary;

/// Of each conversation.
const MESSAGES: usize = 50;
/// A part of the burst that is loaded first, to know how long all of it takes; so many conversations at least.
const PROBE_PART: usize = 20;
const PROBE_MIN: usize = 20;
/// Ahead of the moment there is so much more time than the probe says, for a machine that gets slower.
const SLACK: f64 = 2.0;
/// Commits beside the burst: of one message each, at this share of the highest rate.
const SHARE: f64 = 0.25;
const IN_FLIGHT: usize = 64;
/// How often it is looked whether anything is left. A percentile is taken of each such time.
const LOOK: Duration = Duration::from_millis(250);
/// A turn of the GC comes every 5 s.
const PATIENCE: Duration = Duration::from_secs(120);
const COLLECTED: &str = "qim_gc_collected_total";

const COMMIT: &str = "qim unary, 1 a call";
const RATE: &str = "expired records collected";
const SECONDS: &str = "until the burst is collected";
const BEFORE: &str = "commits' p99 before";
const MEANWHILE: &str = "commits' p99 meanwhile";
const TRIM: &str = "old records trimmed";

pub(super) async fn measure(bench: &Bench) -> Result<Report> {
    let mut report = Report::default();
    for run_index in 1..=bench.scale.runs {
        bench.say(&format!("gc, run {run_index} of {}", bench.scale.runs));
        measure_burst(bench, &mut report).await?;
        measure_trim(bench, &mut report).await?;
    }
    report.ratio(RATE, COMMIT, Goal::AtLeast(2.0));
    report.ratio(TRIM, COMMIT, Goal::AtLeast(2.0));
    // "Within seconds".
    report.absolute(SECONDS, Goal::AtMost(10.0));
    report.ratio(MEANWHILE, BEFORE, Goal::AtMost(2.0));
    Ok(report)
}

async fn measure_burst(bench: &Bench, report: &mut Report) -> Result<()> {
    let redis = bench.redis()?;
    let writer = bench.writer(&redis, &bench.sqlite_url(), &[])?;
    let client = Unary::connect(&writer.url()).await?;
    let corpus = bench.corpus.clone();
    let work = Arc::new(CommitWork { store: Arc::new(client.clone()), corpus, messages: 1 });
    let load = full_load(bench, IN_FLIGHT);
    let rate = run(work.clone(), load).await?.per_second();
    report.add(COMMIT, "msg/s", rate);

    let conversations = bench.scale.burst / MESSAGES;
    let probe = Fill::aged("probe", (conversations / PROBE_PART).max(PROBE_MIN), MESSAGES, 0);
    let start = Instant::now();
    probe.load(bench, &client).await?;
    let estimate = start.elapsed().mul_f64(as_f64(conversations) / as_f64(probe.conversations));
    let ahead = estimate.mul_f64(SLACK) + bench.scale.window + Duration::from_secs(1);
    let expires_at = Instant::now() + ahead;
    let created_at_ms = epoch_ms() + i64::try_from(ahead.as_millis())? - 24 * HOUR_MS;
    let class = RetentionClass::Ephemeral24h;
    let burst = Fill { prefix: "burst", conversations, messages: MESSAGES, created_at_ms, class };
    burst.load(bench, &client).await?;

    // Nothing of the load is lost to a warm-up here: every moment counts.
    let look = Load { warm_up: Duration::ZERO, window: LOOK, rate: Some(rate * SHARE), ..load };
    let (until, mut p99s) = (Instant::now() + bench.scale.window, Vec::new());
    while Instant::now() < until {
        p99s.push(run(work.clone(), look).await?.percentile_ms(99));
    }
    report.add(BEFORE, "ms", median(&p99s));
    tokio::time::sleep_until(expires_at.into()).await;
    let (collected, p99) =
        tokio::join!(watch(&writer, COLLECTED, burst.total()), meanwhile(&writer, work, look, burst.total()));
    let collected = collected?;
    report.add(RATE, "rec/s", collected.per_second);
    report.add(SECONDS, "s", collected.seconds);
    report.add(MEANWHILE, "ms", p99?);
    Ok(())
}

/// The median over the looks during which something was collected.
async fn meanwhile(writer: &Daemon, work: Arc<CommitWork>, look: Load, total: f64) -> Result<f64> {
    let (mut p99s, mut last, start) = (Vec::new(), 0.0, Instant::now());
    while last < total && start.elapsed() < PATIENCE {
        let mut outcome = run(work.clone(), look).await?;
        let collected = writer.metric(COLLECTED)?;
        if collected > last {
            p99s.push(outcome.percentile_ms(99));
        }
        last = collected;
    }
    Ok(median(&p99s))
}

/// Everything is in the archive, and older than the hot window of the archiver that starts then.
async fn measure_trim(bench: &Bench, report: &mut Report) -> Result<()> {
    let (redis, archive) = (bench.redis()?, bench.sqlite_url());
    let writer = bench.writer(&redis, &archive, &[])?;
    let old = Fill::aged("old", bench.scale.backlog / MESSAGES, MESSAGES, 2 * HOUR_MS);
    old.load(bench, &Unary::connect(&writer.url()).await?).await?;
    let copying = bench.archiver(&redis, &archive, &[("QIM_COPY_DELAY", "0s")])?;
    watch(&copying, "qim_archived_rows_total", old.total()).await?;
    drop(copying);
    let trimming = bench.archiver(&redis, &archive, &[("QIM_HOT_WINDOW", "1h")])?;
    let trimmed = watch(&trimming, "qim_trimmed_records_total", old.total()).await?;
    report.add(TRIM, "rec/s", trimmed.per_second);
    Ok(())
}
