use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use qim_core::{SharedClock, UnixMillis};
use qim_daemon::{Daemon, Outcome, PeriodicTask, TaskError, WriterConfig};
use qim_store::RedisMessageStore;
use qim_store::hot::{GcReport, HotError};

use crate::metrics::WriterMetrics;

/// How much of the interval a claim lasts. Less than any pause between two runs, so that whoever comes first in the next
/// interval finds the shards unclaimed: also where the writer that had them is gone.
const CLAIMED_FOR: f64 = 0.8;
/// Shards looked at ahead of the one that is collected, so that those on a node that does not answer hold up the others
/// less.
const LOOKS: usize = 8;

/// Removes expired records from the hot tier, batch by batch until nothing is due (SPEC A9). What another writer has
/// looked at in this interval is left to it.
pub(crate) struct GcTask {
    hot: RedisMessageStore,
    clock: SharedClock,
    instance: String,
    claimed_for: Duration,
    metrics: Arc<WriterMetrics>,
}

/// What a run did, and why it could not do the rest.
#[derive(Default)]
struct Run {
    report: GcReport,
    failure: Option<HotError>,
}

impl GcTask {
    pub(crate) fn new(
        hot: RedisMessageStore,
        daemon: &Daemon<WriterConfig>,
        metrics: Arc<WriterMetrics>,
    ) -> Self {
        Self {
            hot,
            clock: daemon.clock.clone(),
            instance: daemon.config.shared.instance.clone(),
            claimed_for: daemon.config.gc_interval.mul_f64(CLAIMED_FOR),
            metrics,
        }
    }

    async fn claim(&self, part: &[u16]) -> Result<bool, HotError> {
        self.hot.claim_gc(part, &self.instance, self.claimed_for).await
    }

    /// One batch of each shard of a part. One shard at a time, so that a commit waits for one call of GC at most: with two
    /// the p99 of commits was half as high again. A shard that fails stops no other: it may be the only one on its node.
    async fn collect_part(&self, part: &[u16], now: UnixMillis, run: &mut Run) -> Result<(), HotError> {
        if !self.claim(part).await? {
            return Ok(());
        }
        let mut claimed = Instant::now();
        let mut looks =
            stream::iter(part.iter().copied()).map(|shard| self.hot.due(shard, now)).buffer_unordered(LOOKS);
        while let Some(due) = looks.next().await {
            if claimed.elapsed() > self.claimed_for / 2 {
                claimed = Instant::now();
                if !self.claim(part).await? {
                    return Ok(());
                }
            }
            let collected = match due {
                Ok(due) => self.hot.collect_due(due, now).await,
                Err(error) => Err(error),
            };
            match collected {
                Ok(report) => run.report = run.report.plus(report),
                Err(error) => run.failure = Some(error),
            }
        }
        Ok(())
    }
}

impl PeriodicTask for GcTask {
    fn name(&self) -> &'static str {
        "gc"
    }

    async fn run_once(&mut self) -> Result<Outcome, TaskError> {
        let now = self.clock.now();
        let mut run = Run::default();
        for part in self.hot.gc_parts() {
            if let Err(error) = self.collect_part(&part, now, &mut run).await {
                run.failure = Some(error);
            }
        }
        let Run { report, failure } = run;
        self.metrics.gc_collected.increment(report.collected);
        self.metrics.gc_stale.increment(report.stale);
        self.metrics.gc_set_aside.increment(report.set_aside);
        match failure {
            Some(error) => Err(error.into()),
            None if report.more => Ok(Outcome::MoreWork),
            None => Ok(Outcome::Idle),
        }
    }
}
