use std::sync::Arc;

use qim_core::SharedClock;
use qim_daemon::{Outcome, PeriodicTask, TaskError};
use qim_store::TieredMessageStore;

use crate::metrics::WriterMetrics;

/// Every so many runs also ask what the archive has by now, which takes a command a shard where anything is kept.
const ASK_ARCHIVED_EACH: u64 = 4;

/// Finds out whether Redis is as it was left, and puts back what it has lost (ADR 18).
pub(crate) struct LineageTask {
    store: TieredMessageStore,
    clock: SharedClock,
    metrics: Arc<WriterMetrics>,
    runs: u64,
}

impl LineageTask {
    pub(crate) fn new(store: TieredMessageStore, clock: SharedClock, metrics: Arc<WriterMetrics>) -> Self {
        Self { store, clock, metrics, runs: 0 }
    }
}

impl PeriodicTask for LineageTask {
    fn name(&self) -> &'static str {
        "lineage"
    }

    async fn run_once(&mut self) -> Result<Outcome, TaskError> {
        let ask_archived = self.runs.is_multiple_of(ASK_ARCHIVED_EACH);
        self.runs += 1;
        let looked = self.store.watch_lineage(self.clock.now(), ask_archived).await;
        self.metrics.losses(self.store.hot().loss_report());
        looked?;
        Ok(Outcome::Idle)
    }
}
