use std::future::Future;
use std::time::Duration;

use ::metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge,
    histogram,
};
use qim_core::SharedClock;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::metrics::Metrics;
use crate::shutdown::Phase;

/// First pause after a failure: most are over by then.
const BACKOFF_MIN: Duration = Duration::from_millis(200);
/// Runs of several processes drift apart by up to this part of the interval. It only shortens, so that an interval is
/// also a promise.
const JITTER: f64 = 0.1;
/// A first run is not put off longer than this, whatever the interval.
const STAGGER_MAX: Duration = Duration::from_secs(1);

/// Work that is done again and again. It never sleeps by itself: the driver owns time, back-off and cancellation.
pub trait PeriodicTask: Send + 'static {
    /// The value of the label `loop` in metrics, and the name in logs.
    fn name(&self) -> &'static str;

    /// One bounded piece of the work. It is not interrupted: the driver looks for the end of the process in between.
    fn run_once(&mut self) -> impl Future<Output = Result<Outcome, TaskError>> + Send;
}

/// What one run left to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing: wait for the interval to pass.
    Idle,
    /// More: run again at once.
    MoreWork,
}

/// Why a run failed. `?` makes a [`TaskError::Retry`] of any error.
#[derive(Debug)]
pub enum TaskError {
    /// Try again, after a pause.
    Retry(anyhow::Error),
    /// Trying again cannot help: the daemon ends.
    Fatal(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for TaskError {
    fn from(error: E) -> Self {
        Self::Retry(error.into())
    }
}

/// When a task runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// From the start of a run to the start of the next, at most.
    pub interval: Duration,
    /// The longest pause after failures.
    pub backoff_max: Duration,
}

impl Schedule {
    /// With pauses after failures that grow up to the interval (but 1 s at least and 30 s at most), so that a loop is as
    /// soon back at work as it would have been without them.
    pub fn every(interval: Duration) -> Self {
        assert!(!interval.is_zero(), "a loop without a pause would never let others run");
        let backoff_max = interval.clamp(Duration::from_secs(1), Duration::from_secs(30));
        Self { interval, backoff_max }
    }
}

/// Runs periodic tasks, each in its own loop.
#[derive(Clone)]
pub struct LoopDriver {
    metrics: Metrics,
    clock: SharedClock,
}

struct LoopMetrics {
    last_success: Gauge,
    failures: Counter,
    run_seconds: Histogram,
}

impl LoopDriver {
    /// Reports on all its loops in `metrics`.
    pub fn new(metrics: Metrics, clock: SharedClock) -> Self {
        Self { metrics, clock }
    }

    /// Runs the task until its phase ends.
    pub fn start(&self, phase: &Phase, schedule: Schedule, task: impl PeriodicTask) {
        let (driver, cancel) = (self.clone(), phase.token().clone());
        phase.spawn(task.name(), async move { driver.run(task, schedule, cancel).await });
    }

    /// Runs the task until `cancel`, or until a [`TaskError::Fatal`], which it passes on.
    pub async fn run(
        self,
        mut task: impl PeriodicTask,
        schedule: Schedule,
        cancel: CancellationToken,
    ) -> anyhow::Result<()> {
        let name = task.name();
        let metrics = self.metrics.register(|| LoopMetrics::new(name));
        // From the start on, so that a loop that never succeeds is noticed like one that stopped to.
        self.mark_success(&metrics);
        let mut failures_in_a_row = 0;
        let mut next_run =
            Instant::now() + STAGGER_MAX.min(schedule.interval.mul_f64(JITTER)).mul_f64(rand::random());
        loop {
            tokio::select! {
                biased;
                () = cancel.cancelled() => return Ok(()),
                () = sleep_until(next_run) => {}
            }
            let started = Instant::now();
            let result = task.run_once().await;
            metrics.run_seconds.record(started.elapsed().as_secs_f64());
            next_run = match result {
                Ok(outcome) => {
                    self.mark_success(&metrics);
                    if failures_in_a_row > 0 {
                        info!(r#loop = name, failures_in_a_row, "recovered");
                    }
                    failures_in_a_row = 0;
                    match outcome {
                        Outcome::Idle => started + jittered(schedule.interval),
                        Outcome::MoreWork => {
                            tokio::task::yield_now().await;
                            started
                        }
                    }
                }
                Err(TaskError::Fatal(error)) => {
                    metrics.failures.increment(1);
                    return Err(error);
                }
                Err(TaskError::Retry(error)) => {
                    metrics.failures.increment(1);
                    failures_in_a_row += 1;
                    let pause = backoff(failures_in_a_row, schedule.backoff_max);
                    let (error, pause_ms) = (format!("{error:#}"), pause.as_millis());
                    warn!(r#loop = name, failures_in_a_row, error, pause_ms, "run failed");
                    Instant::now() + pause
                }
            };
        }
    }

    fn mark_success(&self, metrics: &LoopMetrics) {
        let since_epoch = self.clock.now().since(qim_core::UnixMillis::EPOCH);
        metrics.last_success.set(since_epoch.as_secs_f64());
    }
}

impl LoopMetrics {
    fn new(name: &'static str) -> Self {
        describe_gauge!(
            "qim_loop_last_success_timestamp_seconds",
            Unit::Seconds,
            "When a run of this loop last succeeded, or the loop was started, in seconds since 1970."
        );
        describe_counter!("qim_loop_failures_total", Unit::Count, "Runs of this loop that failed.");
        describe_histogram!("qim_loop_run_seconds", Unit::Seconds, "How long a run of this loop takes.");
        Self {
            last_success: gauge!("qim_loop_last_success_timestamp_seconds", "loop" => name),
            failures: counter!("qim_loop_failures_total", "loop" => name),
            run_seconds: histogram!("qim_loop_run_seconds", "loop" => name),
        }
    }
}

/// Between 90 % and all of it.
fn jittered(interval: Duration) -> Duration {
    interval.mul_f64(1.0 - JITTER * rand::random::<f64>())
}

/// Doubles with each failure up to the longest, of which a random half is waited, so that many do not return at once.
fn backoff(failures_in_a_row: u32, longest: Duration) -> Duration {
    let doublings = (failures_in_a_row - 1).min(16);
    let full = BACKOFF_MIN.saturating_mul(1 << doublings).min(longest);
    full.mul_f64(0.5 + 0.5 * rand::random::<f64>())
}

#[cfg(test)]
#[path = "driver_tests.rs"]
mod tests;
