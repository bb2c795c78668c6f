use std::time::Duration;

use qim_daemon::{Outcome, PeriodicTask, TaskError};

use crate::shards::Worker;

/// Nothing waits for it: a dictionary that could go stays a minute longer.
pub(crate) const INTERVAL: Duration = Duration::from_mins(1);

/// Keeps the dictionaries in both tiers, and deletes those that no record needs any more. Every archiver does it: it is
/// harmless to do twice.
pub(crate) struct DictionaryTask {
    worker: Worker,
}

impl DictionaryTask {
    pub(crate) fn new(worker: Worker) -> Self {
        Self { worker }
    }
}

impl PeriodicTask for DictionaryTask {
    fn name(&self) -> &'static str {
        "dictionaries"
    }

    async fn run_once(&mut self) -> Result<Outcome, TaskError> {
        let Worker { store, clock, metrics, .. } = &self.worker;
        let report = store.maintain_dictionaries(clock.now()).await?;
        #[allow(clippy::cast_precision_loss, reason = "a gauge is a double")]
        metrics.dictionaries.set(report.kept as f64);
        metrics.dictionaries_deleted.increment(report.deleted);
        metrics.dictionaries_restored.increment(report.restored);
        Ok(Outcome::Idle)
    }
}
