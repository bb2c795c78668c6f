//! The smallest daemon: it counts. `tests/process.rs` runs it to see how a daemon starts and ends, and has it
//! misbehave by `PROBE_FAULT`.

use std::process::ExitCode;
use std::time::Duration;

use metrics::{Counter, Unit, counter, describe_counter};
use qim_daemon::{ArchiverConfig, Daemon, Outcome, PeriodicTask, PhaseSpec, Schedule, TaskError, run_daemon};

const PHASES: [PhaseSpec; 1] = [PhaseSpec { name: "counting", share: 1 }];

fn main() -> ExitCode {
    run_daemon(PHASES, async |daemon: Daemon<ArchiverConfig>, [counting]| {
        let fault = std::env::var("PROBE_FAULT").unwrap_or_default();
        match fault.as_str() {
            "cannot start" => anyhow::bail!("no database"),
            "starts for ever" => std::future::pending().await,
            _ => {}
        }
        let counted = daemon.metrics.register(counted);
        daemon.driver.start(&counting, Schedule::every(Duration::from_millis(100)), Count { counted, fault });
        Ok(())
    })
}

fn counted() -> Counter {
    describe_counter!("probe_counted_total", Unit::Count, "What was counted.");
    counter!("probe_counted_total")
}

struct Count {
    counted: Counter,
    fault: String,
}

impl PeriodicTask for Count {
    fn name(&self) -> &'static str {
        "count"
    }

    async fn run_once(&mut self) -> Result<Outcome, TaskError> {
        match self.fault.as_str() {
            "fails" => return Err(TaskError::Fatal(anyhow::anyhow!("the counter is corrupt"))),
            "panics" => panic!("one and one is three"),
            // Nobody waits for these, and the loop itself would go on.
            "panics in a task" => drop(tokio::spawn(async { panic!("one and one is three") })),
            "panics in a thread" => drop(tokio::task::spawn_blocking(|| panic!("one and one is three"))),
            "hangs" => std::future::pending().await,
            _ => self.counted.increment(1),
        }
        Ok(Outcome::Idle)
    }
}
