use qim_daemon::{Outcome, PeriodicTask, TaskError};
use qim_store::TieredMessageStore;

/// Finds out which dictionary is the current one, and learns what others packed with.
pub(crate) struct DictionaryTask {
    store: TieredMessageStore,
}

impl DictionaryTask {
    pub(crate) fn new(store: TieredMessageStore) -> Self {
        Self { store }
    }
}

impl PeriodicTask for DictionaryTask {
    fn name(&self) -> &'static str {
        "dictionaries"
    }

    async fn run_once(&mut self) -> Result<Outcome, TaskError> {
        self.store.refresh_dictionaries().await?;
        Ok(Outcome::Idle)
    }
}
