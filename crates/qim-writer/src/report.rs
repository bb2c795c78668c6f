use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use qim_core::SharedClock;
use qim_daemon::{Condition, Daemon, Outcome, PeriodicTask, Readiness, TaskError, WriterConfig};
use qim_store::TieredMessageStore;
use qim_store::hot::HotError;

use crate::metrics::WriterMetrics;

/// Often enough for an alert, and a few hundred small commands each time.
pub(crate) const INTERVAL: Duration = Duration::from_secs(10);

/// Measures the hot tier and says whether both tiers answer.
pub(crate) struct ReportTask {
    store: TieredMessageStore,
    clock: SharedClock,
    readiness: Readiness,
    metrics: Arc<WriterMetrics>,
}

impl ReportTask {
    pub(crate) fn new(
        store: TieredMessageStore,
        daemon: &Daemon<WriterConfig>,
        metrics: Arc<WriterMetrics>,
    ) -> Self {
        let (refreshed, clock) = (metrics.clone(), daemon.clock.clone());
        daemon.metrics.at_scrape(move || refreshed.refresh(clock.now()));
        Self { store, clock: daemon.clock.clone(), readiness: daemon.readiness.clone(), metrics }
    }

    async fn measure(&self) -> Result<(), HotError> {
        let hot = self.store.hot();
        let stats = hot.stats(self.clock.now()).await?;
        let (used, limit) = hot.memory().await?;
        #[allow(clippy::cast_precision_loss, reason = "a gauge is a double")]
        let set = |gauge: &metrics::Gauge, value: u64| gauge.set(value as f64);
        set(&self.metrics.hot_records, stats.records);
        set(&self.metrics.gc_due, stats.gc_due);
        set(&self.metrics.set_aside, stats.set_aside);
        set(&self.metrics.redis_used, used);
        set(&self.metrics.redis_limit, limit.unwrap_or(0));
        let since = stats.gc_due_since.map_or(0, qim_core::UnixMillis::get);
        self.metrics.gc_due_since.store(since, Ordering::Relaxed);
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
