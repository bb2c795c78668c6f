use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use qim_core::UnixMillis;
use qim_testkit::FakeClock;

use super::*;

const INTERVAL: Duration = Duration::from_secs(5);

/// Does as it is told, run by run, then is idle; notes when it ran.
struct Script {
    results: VecDeque<Result<Outcome, TaskError>>,
    runs: Arc<Mutex<Vec<Instant>>>,
}

impl PeriodicTask for Script {
    fn name(&self) -> &'static str {
        "script"
    }

    async fn run_once(&mut self) -> Result<Outcome, TaskError> {
        self.runs.lock().unwrap().push(Instant::now());
        self.results.pop_front().unwrap_or(Ok(Outcome::Idle))
    }
}

struct Run {
    metrics: Metrics,
    /// From the start to the first run.
    first: Duration,
    /// From each run to the next.
    gaps: Vec<Duration>,
    result: anyhow::Result<()>,
}

async fn run(results: impl IntoIterator<Item = Result<Outcome, TaskError>>, time: Duration) -> Run {
    let metrics = Metrics::new();
    let clock = FakeClock::at(UnixMillis::new(1_700_000_000_000));
    let (runs, cancel) = (Arc::new(Mutex::new(Vec::new())), CancellationToken::new());
    let script = Script { results: results.into_iter().collect(), runs: runs.clone() };
    let start = Instant::now();
    let driver = LoopDriver::new(metrics.clone(), clock.shared());
    let running = tokio::spawn(driver.run(script, Schedule::every(INTERVAL), cancel.clone()));
    tokio::time::sleep(time).await;
    cancel.cancel();
    let result = running.await.unwrap();
    let runs = runs.lock().unwrap();
    let gaps = runs.windows(2).map(|pair| pair[1].duration_since(pair[0])).collect();
    Run { metrics, first: runs[0].duration_since(start), gaps, result }
}

fn retry() -> Result<Outcome, TaskError> {
    Err(std::io::Error::other("away").into())
}

#[tokio::test(start_paused = true)]
async fn an_idle_task_runs_once_in_each_interval_and_never_later() {
    let run = run([], Duration::from_secs(60)).await;
    let gaps = run.gaps;
    assert!((11..=13).contains(&gaps.len()), "{gaps:?}");
    assert!(run.first <= Duration::from_millis(501));
    assert!(gaps.iter().all(|gap| *gap <= INTERVAL + Duration::from_millis(1)), "{gaps:?}");
    assert!(gaps.iter().all(|gap| *gap >= INTERVAL.mul_f64(0.9)), "{gaps:?}");
}

#[tokio::test(start_paused = true)]
async fn more_work_is_done_at_once() {
    let run = run([Ok(Outcome::MoreWork), Ok(Outcome::MoreWork)], Duration::from_secs(1)).await;
    assert_eq!(run.gaps.len(), 2);
    assert!(run.gaps.iter().sum::<Duration>() < Duration::from_millis(5), "{:?}", run.gaps);
}

#[tokio::test(start_paused = true)]
async fn failures_are_retried_with_growing_pauses_up_to_the_interval_and_counted() {
    let failures = (0..12).map(|_| retry());
    let run = run(failures, Duration::from_secs(50)).await;
    let gaps = run.gaps;
    assert!(gaps[0] <= BACKOFF_MIN + Duration::from_millis(2), "{gaps:?}");
    assert!(gaps[4] > gaps[0], "{gaps:?}");
    assert!(gaps.iter().all(|gap| *gap <= INTERVAL + Duration::from_millis(1)), "{gaps:?}");
    assert!(gaps.len() >= 12, "{gaps:?}");
    let text = run.metrics.render();
    assert!(text.contains("qim_loop_failures_total{loop=\"script\"} 12\n"), "{text}");
    assert!(text.contains("qim_loop_last_success_timestamp_seconds{loop=\"script\"} 1700000000\n"), "{text}");
    assert!(run.result.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_fatal_error_ends_the_loop_and_is_passed_on() {
    let fatal = Err(TaskError::Fatal(anyhow::anyhow!("corrupt")));
    let run = run([fatal], Duration::from_secs(60)).await;
    assert!(run.gaps.is_empty(), "{:?}", run.gaps);
    assert_eq!(run.result.unwrap_err().to_string(), "corrupt");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_loop_ends_before_its_next_run_even_with_more_work() {
    struct Endless(CancellationToken, Arc<Mutex<u32>>);
    impl PeriodicTask for Endless {
        fn name(&self) -> &'static str {
            "endless"
        }
        async fn run_once(&mut self) -> Result<Outcome, TaskError> {
            *self.1.lock().unwrap() += 1;
            self.0.cancel();
            Ok(Outcome::MoreWork)
        }
    }
    let (cancel, runs) = (CancellationToken::new(), Arc::new(Mutex::new(0)));
    let driver = LoopDriver::new(Metrics::new(), FakeClock::at(UnixMillis::EPOCH).shared());
    driver.run(Endless(cancel.clone(), runs.clone()), Schedule::every(INTERVAL), cancel).await.unwrap();
    assert_eq!(*runs.lock().unwrap(), 1);
}

#[test]
fn the_longest_pause_follows_the_interval_within_reason() {
    let longest = |millis| Schedule::every(Duration::from_millis(millis)).backoff_max;
    assert_eq!(longest(100), Duration::from_secs(1));
    assert_eq!(longest(5_000), Duration::from_secs(5));
    assert_eq!(longest(3_600_000), Duration::from_secs(30));
    assert!((1..100).all(|failures| backoff(failures, INTERVAL) <= INTERVAL));
}
