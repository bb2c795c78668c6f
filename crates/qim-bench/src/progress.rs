//! How fast a daemon gets through what waits for it, by its own counters.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::servers::daemon::Daemon;

/// Nothing that is measured takes so long without any progress.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(25);

/// When a counter began to move, and when it had got there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Progress {
    pub(crate) per_second: f64,
    pub(crate) seconds: f64,
}

/// Waits until a counter has reached a value. The time runs from the last look at which it stood still, so that what
/// comes before the work (leases, intervals) does not count.
pub(crate) async fn watch(daemon: &Daemon, counter: &str, total: f64) -> Result<Progress> {
    let before = daemon.metric(counter)?;
    let (mut start, mut last, mut moved) = (Instant::now(), before, Instant::now());
    loop {
        let value = daemon.metric(counter)?;
        let now = Instant::now();
        if value > last {
            (last, moved) = (value, now);
        } else if last <= before {
            start = now;
        }
        if value >= total {
            let seconds = now.duration_since(start).as_secs_f64().max(POLL.as_secs_f64());
            return Ok(Progress { per_second: (value - before) / seconds, seconds });
        }
        if moved.elapsed() > PATIENCE {
            bail!("{counter} stands at {value} of {total}");
        }
        tokio::time::sleep(POLL).await;
    }
}
