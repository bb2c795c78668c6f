use std::time::Duration;

use qim_daemon::{Outcome, PeriodicTask, TaskError};

use crate::metrics::Op;
use crate::shards::{CONVERSATIONS_PER_SHARD, Worker};

/// How often to look for what was committed.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);

/// Copies records to the archive soon after their commit, so that a lost Redis costs seconds, not days.
pub(crate) struct CopyTask {
    worker: Worker,
    delay: Duration,
}

impl CopyTask {
    pub(crate) fn new(worker: Worker, delay: Duration) -> Self {
        Self { worker, delay }
    }
}

impl PeriodicTask for CopyTask {
    fn name(&self) -> &'static str {
        "copy"
    }

    async fn run_once(&mut self) -> Result<Outcome, TaskError> {
        let Worker { store, clock, metrics, .. } = &self.worker;
        let due = clock.now() - self.delay;
        self.worker
            .pass(
                Op::Copy,
                |shard| store.hot().unarchived(shard, due, CONVERSATIONS_PER_SHARD),
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
