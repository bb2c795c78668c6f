use std::sync::Arc;
use std::time::Duration;

use qim_core::SharedClock;
use qim_daemon::{ArchiverConfig, Condition, Daemon, Outcome, PeriodicTask, Readiness, TaskError};
use qim_store::TieredMessageStore;
use qim_store::hot::HotError;

use crate::metrics::ArchiverMetrics;

/// Often enough for an alert, and a few hundred small commands each time.
pub(crate) const INTERVAL: Duration = Duration::from_secs(5);

/// Measures what waits for the archiver, over all shards, and says whether both tiers answer.
pub(crate) struct ReportTask {
    store: TieredMessageStore,
    clock: SharedClock,
    readiness: Readiness,
    metrics: Arc<ArchiverMetrics>,
}

impl ReportTask {
    pub(crate) fn new(
        store: TieredMessageStore,
        daemon: &Daemon<ArchiverConfig>,
        metrics: Arc<ArchiverMetrics>,
    ) -> Self {
        let (refreshed, clock) = (metrics.clone(), daemon.clock.clone());
        daemon.metrics.at_scrape(move || refreshed.refresh(clock.now()));
        Self { store, clock: daemon.clock.clone(), readiness: daemon.readiness.clone(), metrics }
    }

    async fn measure(&self) -> Result<(), HotError> {
        let hot = self.store.hot();
        let now = self.clock.now();
        let stats = hot.stats(now).await?;
        #[allow(clippy::cast_precision_loss, reason = "a gauge is a double")]
        let set = |gauge: &metrics::Gauge, value: u64| gauge.set(value as f64);
        set(&self.metrics.unarchived, stats.unarchived);
        set(&self.metrics.set_aside, stats.set_aside);
        let left_window = stats.oldest_created_at.map(|created_at| created_at + self.store.window());
        self.metrics.waiting_since(stats.unarchived_since, left_window.filter(|left| *left <= now));
        Ok(())
    }
}

impl PeriodicTask for ReportTask {
    fn name(&self) -> &'static str {
        "report"
    }

    async fn run_once(&mut self) -> Result<Outcome, TaskError> {
        let answers = self.store.archive().ping().await;
        self.readiness.observe("archive", &answers, Condition::Degraded);
        let measured = self.measure().await;
        qim_tiers::observe_hot(&self.readiness, self.store.hot(), &measured).await;
        Ok(measured.map(|()| Outcome::Idle)?)
    }
}
