//! The run-time half of SPEC A12: daemons that keep the same messages must keep them for the same time.

use std::future::Future;
use std::time::Duration;

use ::metrics::{Gauge, Unit, describe_gauge, gauge};
use qim_core::{PeerRetention, RetentionDays};

use crate::driver::{Outcome, PeriodicTask, TaskError};
use crate::metrics::Metrics;
use crate::readiness::{Condition, Readiness};

/// How often daemons tell each other their retention.
pub const RETENTION_WATCH_INTERVAL: Duration = Duration::from_secs(10);

/// Compares this daemon's retention with that of the others: a difference is a metric, a log line and a degraded
/// (still 200) readiness. It changes nothing: the date of a record is computed once, at its commit.
pub struct RetentionWatch {
    own: RetentionDays,
    readiness: Readiness,
    mismatch: Gauge,
}

impl RetentionWatch {
    /// Publishes `own` as a metric.
    pub fn new(metrics: &Metrics, readiness: Readiness, own: RetentionDays) -> Self {
        let mismatch = metrics.register(|| {
            describe_gauge!(
                "qim_retention_days",
                Unit::Count,
                "QIM_DEFAULT_HISTORY_RETENTION_DAYS of this daemon."
            );
            describe_gauge!(
                "qim_retention_mismatch",
                Unit::Count,
                "1 while another daemon has another retention."
            );
            gauge!("qim_retention_days").set(f64::from(own.get()));
            gauge!("qim_retention_mismatch")
        });
        mismatch.set(0.0);
        Self { own, readiness, mismatch }
    }

    /// A loop that tells the others and compares; `exchange` does the telling and answers what they told.
    pub fn task<E, F>(self, exchange: E) -> impl PeriodicTask
    where
        E: FnMut() -> F + Send + 'static,
        F: Future<Output = anyhow::Result<Vec<PeerRetention>>> + Send,
    {
        WatchTask { watch: self, exchange }
    }

    fn compare(&self, peers: &[PeerRetention]) {
        let own = self.own.to_string();
        let others: Vec<String> = peers
            .iter()
            .filter(|peer| peer.days != own)
            .map(|peer| format!("{} has {} days", peer.peer, peer.days))
            .collect();
        self.mismatch.set(if others.is_empty() { 0.0 } else { 1.0 });
        let condition = if others.is_empty() {
            Condition::Ready
        } else {
            let others = others.join(", ");
            Condition::Degraded(format!("QIM_DEFAULT_HISTORY_RETENTION_DAYS is {own} here, but {others}"))
        };
        self.readiness.set("retention", condition);
    }
}

struct WatchTask<E> {
    watch: RetentionWatch,
    exchange: E,
}

impl<E, F> PeriodicTask for WatchTask<E>
where
    E: FnMut() -> F + Send + 'static,
    F: Future<Output = anyhow::Result<Vec<PeerRetention>>> + Send,
{
    fn name(&self) -> &'static str {
        "retention_watch"
    }

    async fn run_once(&mut self) -> Result<Outcome, TaskError> {
        let peers = (self.exchange)().await?;
        self.watch.compare(&peers);
        Ok(Outcome::Idle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a12_a_difference_degrades_readiness_and_its_end_restores_it() {
        let (metrics, readiness) = (Metrics::new(), Readiness::default());
        let watch = RetentionWatch::new(&metrics, readiness.clone(), RetentionDays::new(30).unwrap());
        let peer = |days: &str| vec![PeerRetention { peer: "archiver:b".into(), days: days.into() }];
        let shown = |value: &str| metrics.render().contains(&format!("qim_retention_mismatch {value}"));

        watch.compare(&peer("30"));
        assert_eq!((readiness.report().to_string().as_str(), shown("0")), ("ready", true));
        watch.compare(&peer("31"));
        let report = readiness.report();
        assert!(report.ready && shown("1"));
        assert_eq!(
            report.to_string(),
            "degraded: retention: QIM_DEFAULT_HISTORY_RETENTION_DAYS is 30 here, but archiver:b has 31 days"
        );
        watch.compare(&[]);
        assert_eq!((readiness.report().to_string().as_str(), shown("0")), ("ready", true));
        assert!(metrics.render().contains("qim_retention_days 30"));
    }
}
