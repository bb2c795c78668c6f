use std::time::{Duration, Instant};

use qim_daemon::{Outcome, PeriodicTask, TaskError};

use crate::metrics::Op;
use crate::shards::Worker;

/// Expired rows are gone from the disk 5 s after their date at the latest, where the archive leaves that to us.
pub(crate) const INTERVAL: Duration = Duration::from_secs(2);

/// The archive's own upkeep.
pub(crate) struct MaintainTask {
    worker: Worker,
}

impl MaintainTask {
    pub(crate) fn new(worker: Worker) -> Self {
        Self { worker }
    }
}

impl PeriodicTask for MaintainTask {
    fn name(&self) -> &'static str {
        "maintain"
    }

    async fn run_once(&mut self) -> Result<Outcome, TaskError> {
        let Worker { store, clock, metrics, .. } = &self.worker;
        let began = Instant::now();
        let result = store.archive().maintain(clock.now()).await;
        metrics.calls(Op::Maintain).seconds.record(began.elapsed().as_secs_f64());
        let report = result.inspect_err(|_| metrics.calls(Op::Maintain).errors.increment(1))?;
        metrics.rows_deleted.increment(report.rows_deleted);
        metrics.bytes_freed.increment(report.bytes_freed);
        Ok(if report.more { Outcome::MoreWork } else { Outcome::Idle })
    }
}
