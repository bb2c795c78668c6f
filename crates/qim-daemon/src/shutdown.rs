use std::fmt;
use std::future::Future;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, info, warn};

/// Failures beyond these are of no interest: the first one ends the process.
const FAILURES_KEPT_MAX: usize = 16;

/// A step of the shutdown. Steps end one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PhaseSpec {
    /// What is logged.
    pub name: &'static str,
    /// Its part of the grace time, relative to the phases after it: with shares 3 and 1, the first phase has three
    /// quarters, and the second all that is left after that.
    pub share: u32,
}

/// The tasks that end together in one step of the shutdown. Clones are the same phase.
#[derive(Debug, Clone)]
pub struct Phase {
    spec: PhaseSpec,
    token: CancellationToken,
    tracker: TaskTracker,
    failures: mpsc::Sender<TaskFailure>,
}

/// Ends everything in order, within the grace time.
#[derive(Debug)]
pub struct Shutdown {
    grace: Duration,
    phases: Vec<Phase>,
    failures: mpsc::Receiver<TaskFailure>,
}

/// A task that ended with an error.
#[derive(Debug)]
pub struct TaskFailure {
    /// The task.
    pub task: &'static str,
    /// Its error.
    pub error: anyhow::Error,
}

/// Why the daemon ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// Somebody asked for it, with a signal of this name.
    Signal(&'static str),
    /// It could not start, or a task failed that it cannot do without.
    Failure(String),
}

/// How the shutdown went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Why it was.
    pub cause: Cause,
    /// All phases, in their order.
    pub phases: Vec<PhaseReport>,
    /// Tasks that ended with an error while draining.
    pub failures: usize,
    /// How long it took.
    pub elapsed: Duration,
}

/// How one phase ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhaseReport {
    /// Its name.
    pub name: &'static str,
    /// Whether its tasks ended.
    pub outcome: PhaseOutcome,
    /// How long it took.
    pub elapsed: Duration,
}

/// How one phase ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PhaseOutcome {
    /// All its tasks ended.
    Drained,
    /// Its time was up, and these tasks were left behind.
    OutOfTime {
        /// How many.
        tasks_left: usize,
    },
}

impl Phase {
    /// Cancelled when the phase is to end: then stop taking work, finish what was taken, and return.
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// Runs a task until it returns, which it should soon after [`Phase::token`] is cancelled. An error ends the
    /// daemon. (So does a panic, and at once, under [`crate::run_daemon`].)
    pub fn spawn(
        &self,
        task: &'static str,
        future: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) {
        let failures = self.failures.clone();
        self.tracker.spawn(async move {
            if let Err(error) = future.await {
                // Full: the daemon ends already, for another failure.
                let _ = failures.try_send(TaskFailure { task, error });
            }
        });
    }

    async fn end(&self, budget: Duration) -> PhaseReport {
        let start = Instant::now();
        self.token.cancel();
        self.tracker.close();
        let outcome = match timeout(budget, self.tracker.wait()).await {
            Ok(()) => PhaseOutcome::Drained,
            Err(_) => PhaseOutcome::OutOfTime { tasks_left: self.tracker.len() },
        };
        PhaseReport { name: self.spec.name, outcome, elapsed: start.elapsed() }
    }
}

impl Shutdown {
    /// With the phases in the order in which they end.
    pub fn new<const N: usize>(grace: Duration, specs: [PhaseSpec; N]) -> (Self, [Phase; N]) {
        assert!(
            specs.iter().all(|spec| spec.share > 0),
            "a phase needs a share of the grace time: {specs:?}"
        );
        let (sender, failures) = mpsc::channel(FAILURES_KEPT_MAX);
        let phases = specs.map(|spec| Phase {
            spec,
            token: CancellationToken::new(),
            tracker: TaskTracker::new(),
            failures: sender.clone(),
        });
        (Self { grace, phases: phases.to_vec(), failures }, phases)
    }

    /// The next task that ends with an error. Waits for ever where none does.
    pub async fn failure(&mut self) -> TaskFailure {
        match self.failures.recv().await {
            Some(failure) => failure,
            None => std::future::pending().await,
        }
    }

    /// Ends the phases one after the other. Time that a phase does not need is left to those after it.
    pub async fn drain(mut self, cause: Cause) -> Summary {
        let start = Instant::now();
        let mut shares_left: u32 = self.phases.iter().map(|phase| phase.spec.share).sum();
        let mut reports = Vec::with_capacity(self.phases.len());
        for phase in &self.phases {
            let time_left = self.grace.saturating_sub(start.elapsed());
            let report = phase.end(time_left * phase.spec.share / shares_left).await;
            shares_left -= phase.spec.share;
            report.log();
            reports.push(report);
        }
        let mut failures = 0;
        while let Ok(failure) = self.failures.try_recv() {
            failures += 1;
            error!(failure = %failure, "task failed while draining");
        }
        Summary { cause, phases: reports, failures, elapsed: start.elapsed() }
    }
}

impl fmt::Display for TaskFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:#}", self.task, self.error)
    }
}

impl PhaseReport {
    fn log(&self) {
        let elapsed_ms = u64::try_from(self.elapsed.as_millis()).unwrap_or(u64::MAX);
        match self.outcome {
            PhaseOutcome::Drained => info!(phase = self.name, elapsed_ms, "drained"),
            PhaseOutcome::OutOfTime { tasks_left } => {
                warn!(phase = self.name, elapsed_ms, tasks_left, "not drained in time");
            }
        }
    }
}

impl Summary {
    /// Somebody asked for the end, and nothing that was accepted was left behind.
    pub fn is_clean(&self) -> bool {
        matches!(self.cause, Cause::Signal(_))
            && self.failures == 0
            && self.phases.iter().all(|phase| phase.outcome == PhaseOutcome::Drained)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    const TWO_PHASES: [PhaseSpec; 2] =
        [PhaseSpec { name: "serve", share: 3 }, PhaseSpec { name: "flush", share: 1 }];
    const GRACE: Duration = Duration::from_secs(20);

    fn asked() -> Cause {
        Cause::Signal("SIGTERM")
    }

    async fn sleep_secs(secs: u64) -> anyhow::Result<()> {
        tokio::time::sleep(Duration::from_secs(secs)).await;
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn phases_end_one_after_the_other() {
        let (shutdown, [serve, flush]) = Shutdown::new(GRACE, TWO_PHASES);
        let ended = Arc::new(Mutex::new(Vec::new()));
        for (phase, secs) in [(&flush, 1), (&serve, 5)] {
            let (token, name, ended) = (phase.token().clone(), phase.spec.name, ended.clone());
            phase.spawn("task", async move {
                token.cancelled().await;
                sleep_secs(secs).await?;
                ended.lock().unwrap().push(name);
                Ok(())
            });
        }
        let summary = shutdown.drain(asked()).await;
        assert_eq!(*ended.lock().unwrap(), ["serve", "flush"]);
        assert!(summary.is_clean(), "{summary:?}");
        assert_eq!(summary.elapsed.as_secs(), 6);
    }

    #[tokio::test(start_paused = true)]
    async fn a_phase_that_overruns_is_left_behind_within_the_grace_and_named() {
        let (shutdown, [serve, flush]) = Shutdown::new(GRACE, TWO_PHASES);
        serve.spawn("stuck", sleep_secs(1_000));
        flush.spawn("stuck too", sleep_secs(1_000));
        let summary = shutdown.drain(asked()).await;
        let left_behind = PhaseOutcome::OutOfTime { tasks_left: 1 };
        assert_eq!(summary.phases.iter().map(|phase| phase.outcome).collect::<Vec<_>>(), [left_behind; 2]);
        assert_eq!(summary.phases[0].elapsed.as_secs(), 15);
        assert_eq!(summary.phases[1].elapsed.as_secs(), 5);
        assert!(!summary.is_clean() && summary.elapsed <= GRACE + Duration::from_millis(10), "{summary:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn unused_time_is_left_to_later_phases() {
        let (shutdown, [_, flush]) = Shutdown::new(GRACE, TWO_PHASES);
        flush.spawn("long", sleep_secs(19));
        assert!(shutdown.drain(asked()).await.is_clean());
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_task_is_reported_before_and_while_draining() {
        let (mut shutdown, [serve, _]) = Shutdown::new(GRACE, TWO_PHASES);
        serve.spawn("copy", async { anyhow::bail!("corrupt") });
        let failure = shutdown.failure().await;
        assert_eq!((failure.task, failure.error.to_string().as_str()), ("copy", "corrupt"));

        let token = serve.token().clone();
        serve.spawn("late", async move {
            token.cancelled().await;
            anyhow::bail!("could not flush")
        });
        let summary = shutdown.drain(asked()).await;
        assert_eq!(summary.failures, 1);
        assert!(!summary.is_clean());
    }
}
