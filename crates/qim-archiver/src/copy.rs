use std::time::{Duration, Instant};

use qim_daemon::{Outcome, PeriodicTask, TaskError};
use tokio::time::sleep;

use crate::metrics::Op;
use crate::pace::Pace;
use crate::shards::{CONVERSATIONS_PER_SHARD, SET_ASIDE_FOR, Worker};

/// How often to look for what was committed.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);
/// How often to look how busy commits are, while there is something to copy.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How often to look for what a daemon entered whose clock is ahead of ours, and by how much more than clocks differ by.
const LOOK_AHEAD_EVERY: Duration = Duration::from_secs(10);
const AHEAD: Duration = Duration::from_secs(10);
/// Shards that are looked at for it: commits are spread over all alike.
const SHARDS_LOOKED_AT: usize = 32;

/// Copies records to the archive soon after their commit, so that a lost Redis costs seconds, not days.
pub(crate) struct CopyTask {
    worker: Worker,
    delay: Duration,
    pace: Pace,
    looked_ahead: Instant,
}

impl CopyTask {
    pub(crate) fn new(worker: Worker, delay: Duration) -> Self {
        Self { worker, delay, pace: Pace::default(), looked_ahead: Instant::now() }
    }

    /// Tells the pace how busy commits are. Never ends. An idle pass is over before the first look.
    async fn watch_commits(&self) {
        let Worker { store, held, clock, metrics, .. } = &self.worker;
        loop {
            sleep(LOOK_EVERY).await;
            let shards = held.all();
            let step = shards.len().div_ceil(SHARDS_LOOKED_AT).max(1);
            let some: Vec<u16> = shards.iter().step_by(step).map(|fence| fence.shard).collect();
            // Where Redis does not answer, the pass learns it soon enough.
            if let Ok(committed) = store.hot().committed(some.into_iter()).await {
                let overdue = metrics.unarchived_age(clock.now()).saturating_sub(self.delay);
                self.pace.observe(committed * step as u64, overdue);
            }
        }
    }

    async fn copy_due(&self, looks_ahead: bool) -> Result<Outcome, TaskError> {
        let Worker { store, clock, metrics, .. } = &self.worker;
        let now = clock.now();
        let (hot, due, ahead) = (store.hot(), now - self.delay, now + AHEAD);
        self.worker
            .pass(
                Op::Copy,
                &self.pace,
                |shard| async move {
                    let mut listed = hot.unarchived(shard, due, CONVERSATIONS_PER_SHARD).await?;
                    if looks_ahead {
                        let aside_until = ahead + SET_ASIDE_FOR;
                        let ahead = hot.unarchived_ahead(shard, ahead, aside_until, CONVERSATIONS_PER_SHARD);
                        listed.extend(ahead.await?);
                    }
                    Ok(listed)
                },
                |conversation, fence, now| async move {
                    let report = store.copy(&conversation, &fence, now).await?;
                    metrics.archived.increment(report.put.written);
                    metrics.unchanged.increment(report.put.unchanged);
                    metrics.clamped.increment(report.put.clamped);
                    Ok(report.more)
                },
            )
            .await
    }
}

impl PeriodicTask for CopyTask {
    fn name(&self) -> &'static str {
        "copy"
    }

    async fn run_once(&mut self) -> Result<Outcome, TaskError> {
        let looks_ahead = self.looked_ahead.elapsed() >= LOOK_AHEAD_EVERY;
        let outcome = tokio::select! {
            outcome = self.copy_due(looks_ahead) => outcome,
            () = self.watch_commits() => unreachable!("it never ends"),
        };
        if looks_ahead && outcome.is_ok() {
            self.looked_ahead = Instant::now();
        }
        outcome
    }
}
