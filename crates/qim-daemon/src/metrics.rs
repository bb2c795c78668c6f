use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use ::metrics::{describe_gauge, gauge, with_local_recorder};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

use crate::process_metrics::ProcessMetrics;

/// The content type of [`Metrics::render`].
pub const METRICS_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Buckets of `…_seconds`: from a fast Redis call to the longest that anybody waits.
const SECONDS_BUCKETS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Buckets of `…_bytes`: from a short text to the largest batch.
const BYTES_BUCKETS: [f64; 9] =
    [64.0, 256.0, 1_024.0, 4_096.0, 16_384.0, 65_536.0, 262_144.0, 1_048_576.0, 4_194_304.0];
/// Buckets of everything else, which is counts of things in a batch.
const COUNT_BUCKETS: [f64; 10] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];
/// Samples of a histogram are kept one by one until upkeep adds them to their buckets.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// The metrics of one process, handed to whoever counts something. There is no global recorder.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    process: ProcessMetrics,
    at_scrape: RwLock<Vec<Box<dyn Fn() + Send + Sync>>>,
}

impl Metrics {
    /// With `qim_build_info` and the metrics of the process, and nothing else yet.
    pub fn new() -> Self {
        let suffix = |suffix: &str| Matcher::Suffix(suffix.to_owned());
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(suffix("_seconds"), &SECONDS_BUCKETS)
            .and_then(|builder| builder.set_buckets_for_metric(suffix("_bytes"), &BYTES_BUCKETS))
            .and_then(|builder| builder.set_buckets(&COUNT_BUCKETS))
            .expect("the buckets are not empty")
            .build_recorder();
        let handle = recorder.handle();
        let process = ProcessMetrics::new();
        let metrics = Self(Arc::new(Inner { recorder, handle, process, at_scrape: RwLock::default() }));
        metrics.register(|| {
            describe_gauge!("qim_build_info", "1, labelled with the version that runs.");
            gauge!("qim_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
        });
        metrics
    }

    /// Runs `make` with the macros of the `metrics` crate (`describe_counter!`, `counter!`, …) bound to this recorder,
    /// and passes on what it answers: a struct of named handles, which count without looking anything up.
    pub fn register<T>(&self, make: impl FnOnce() -> T) -> T {
        with_local_recorder(&self.0.recorder, make)
    }

    /// Calls `refresh` before each scrape, for a gauge that has to grow by itself, such as an age. It should be quick
    /// and must not call [`Metrics`].
    pub fn at_scrape(&self, refresh: impl Fn() + Send + Sync + 'static) {
        self.0.at_scrape.write().unwrap_or_else(PoisonError::into_inner).push(Box::new(refresh));
    }

    /// Everything in the Prometheus text format, sorted by name.
    pub fn render(&self) -> String {
        for refresh in self.0.at_scrape.read().unwrap_or_else(PoisonError::into_inner).iter() {
            refresh();
        }
        let text = self.0.handle.render();
        let mut blocks: Vec<&str> = text.split("\n\n").filter(|block| !block.is_empty()).collect();
        blocks.sort_unstable();
        format!("{}\n\n{}", blocks.join("\n\n"), self.0.process.render())
    }

    /// Keeps memory from growing with the samples of histograms. Never ends.
    pub(crate) async fn upkeep(self) {
        let mut ticks = tokio::time::interval(UPKEEP_INTERVAL);
        loop {
            ticks.tick().await;
            self.0.handle.run_upkeep();
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use ::metrics::{Unit, counter, describe_counter, histogram};

    use super::*;

    #[test]
    fn what_is_registered_is_rendered_from_the_start_with_its_help() {
        let metrics = Metrics::new();
        let commits = metrics.register(|| {
            describe_counter!("qim_commits_total", Unit::Count, "Messages committed.");
            counter!("qim_commits_total", "class" => "default")
        });
        let before = metrics.render();
        assert!(
            before
                .contains("# HELP qim_commits_total Messages committed.\n# TYPE qim_commits_total counter\n")
        );
        assert!(before.contains("qim_commits_total{class=\"default\"} 0\n"), "{before}");
        commits.increment(2);
        assert!(metrics.render().contains("qim_commits_total{class=\"default\"} 2\n"));
        assert!(before.contains(concat!("qim_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1\n")));
    }

    #[test]
    fn two_processes_worth_of_metrics_do_not_mix() {
        let (one, other) = (Metrics::new(), Metrics::new());
        one.register(|| counter!("qim_only_here_total")).increment(1);
        assert!(one.render().contains("qim_only_here_total 1"));
        assert!(!other.render().contains("qim_only_here_total"));
    }

    #[test]
    fn a_histogram_has_the_buckets_of_its_unit() {
        let metrics = Metrics::new();
        metrics.register(|| histogram!("qim_commit_seconds")).record(0.0004);
        metrics.register(|| histogram!("qim_batch_records")).record(3.0);
        let text = metrics.render();
        for line in [
            "qim_commit_seconds_bucket{le=\"0.0005\"} 1",
            "qim_commit_seconds_bucket{le=\"10\"} 1",
            "qim_batch_records_bucket{le=\"2\"} 0",
            "qim_batch_records_bucket{le=\"4\"} 1",
            "qim_batch_records_count 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
        }
    }

    #[test]
    fn an_age_is_refreshed_for_each_scrape() {
        let metrics = Metrics::new();
        let age = metrics.register(|| gauge!("qim_age_seconds"));
        let seconds = AtomicU32::new(0);
        metrics.at_scrape(move || age.set(f64::from(seconds.fetch_add(1, Ordering::Relaxed))));
        assert!(metrics.render().contains("qim_age_seconds 0\n"));
        assert!(metrics.render().contains("qim_age_seconds 1\n"));
    }
}
