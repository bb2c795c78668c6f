use std::time::Duration;

use qim_daemon::{Outcome, PeriodicTask, TaskError};

use crate::metrics::Op;
use crate::pace::Pace;
use crate::shards::{CONVERSATIONS_PER_SHARD, Worker};

/// How often to look for what left the hot window.
pub(crate) const INTERVAL: Duration = Duration::from_secs(2);

/// Removes records from the hot tier once they have left its window and are durable in the archive.
pub(crate) struct TrimTask {
    worker: Worker,
    /// Never told of commits: trimming gives them their memory back, and does not wait for them.
    pace: Pace,
}

impl TrimTask {
    pub(crate) fn new(worker: Worker) -> Self {
        Self { worker, pace: Pace::default() }
    }
}

impl PeriodicTask for TrimTask {
    fn name(&self) -> &'static str {
        "trim"
    }

    async fn run_once(&mut self) -> Result<Outcome, TaskError> {
        let Worker { store, clock, metrics, .. } = &self.worker;
        let cutoff = clock.now() - store.window();
        self.worker
            .pass(
                Op::Trim,
                &self.pace,
                |shard| store.hot().trim_candidates(shard, cutoff, CONVERSATIONS_PER_SHARD),
                |conversation, fence, now| async move {
                    let report = store.trim(&conversation, &fence, now).await?;
                    metrics.trimmed.increment(report.removed);
                    metrics.recopied.increment(report.recopied);
                    Ok(report.more)
                },
            )
            .await
    }
}
