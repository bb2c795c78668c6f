use std::sync::Arc;

use qim_daemon::{Outcome, PeriodicTask, TaskError};
use qim_store::TieredMessageStore;

use crate::metrics::WriterMetrics;

/// Finds out which dictionary is the current one, and learns what others packed with.
pub(crate) struct DictionaryTask {
    store: TieredMessageStore,
    metrics: Arc<WriterMetrics>,
}

impl DictionaryTask {
    pub(crate) fn new(store: TieredMessageStore, metrics: Arc<WriterMetrics>) -> Self {
        Self { store, metrics }
    }
}

impl PeriodicTask for DictionaryTask {
    fn name(&self) -> &'static str {
        "dictionaries"
    }

    async fn run_once(&mut self) -> Result<Outcome, TaskError> {
        let current = self.store.refresh_dictionaries().await?;
        self.metrics.dictionary.set(current.unwrap_or(0));
        Ok(Outcome::Idle)
    }
}
