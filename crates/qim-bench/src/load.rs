//! Putting load on something, and looking at what it does.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use async_trait::async_trait;
use tokio::task::JoinSet;

use crate::corpus::{Batch, Corpus};

/// Something that commits messages.
#[async_trait]
pub(crate) trait Commits: Send + Sync {
    /// All or none; has to be durable where the store says so when this returns.
    async fn commit(&self, batch: Batch) -> Result<()>;
}

/// Something that has pages.
#[async_trait]
pub(crate) trait Pages: Send + Sync {
    /// Reads the 50 newest messages of a conversation; answers how many there were.
    async fn newest(&self, conversation: Arc<str>) -> Result<usize>;
}

/// One kind of request, made by many at once.
#[async_trait]
pub(crate) trait Work: Send + Sync + 'static {
    /// Makes one request; answers how much was done.
    async fn once(&self) -> Result<usize>;
}

/// Commits of so many messages each.
pub(crate) struct CommitWork {
    pub(crate) store: Arc<dyn Commits>,
    pub(crate) corpus: Arc<Corpus>,
    pub(crate) messages: usize,
}

#[async_trait]
impl Work for CommitWork {
    async fn once(&self) -> Result<usize> {
        self.store.commit(self.corpus.draw(self.messages)).await?;
        Ok(self.messages)
    }
}

/// How the load is put on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) in_flight: usize,
    /// Not counted.
    pub(crate) warm_up: Duration,
    pub(crate) window: Duration,
    /// Requests per second of all; as many as go where there is none.
    pub(crate) rate: Option<f64>,
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Messages, or pages: what the work counts.
    pub(crate) done: usize,
    pub(crate) seconds: f64,
    /// The same with the warm-up: what the CPU time of the whole load went into.
    pub(crate) total: usize,
    latencies: Vec<Duration>,
}

impl Outcome {
    pub(crate) fn per_second(&self) -> f64 {
        as_f64(self.done) / self.seconds
    }

    /// In milliseconds. NaN where nothing was done.
    pub(crate) fn percentile_ms(&mut self, percent: usize) -> f64 {
        self.latencies.sort_unstable();
        let index = (self.latencies.len() * percent / 100).min(self.latencies.len().saturating_sub(1));
        self.latencies.get(index).map_or(f64::NAN, |latency| latency.as_secs_f64() * 1e3)
    }
}

/// Requests by so many workers; each makes its next one when it has the answer to the last, or when its turn comes.
/// Only what ends inside the window counts. The first error ends it.
pub(crate) async fn run(work: Arc<dyn Work>, load: Load) -> Result<Outcome> {
    let start = Instant::now();
    let mut workers = JoinSet::new();
    for index in 0..load.in_flight {
        workers.spawn(worker(work.clone(), load, start, index));
    }
    let mut sum = Outcome { seconds: load.window.as_secs_f64(), ..Outcome::default() };
    while let Some(outcome) = workers.join_next().await {
        let mut outcome = outcome??;
        sum.done += outcome.done;
        sum.total += outcome.total;
        sum.latencies.append(&mut outcome.latencies);
    }
    Ok(sum)
}

async fn worker(work: Arc<dyn Work>, load: Load, start: Instant, index: usize) -> Result<Outcome> {
    let (from, until) = (start + load.warm_up, start + load.warm_up + load.window);
    let interval = load.rate.map(|rate| Duration::from_secs_f64(as_f64(load.in_flight) / rate));
    let stagger =
        interval.map_or(Duration::ZERO, |interval| interval.mul_f64(as_f64(index) / as_f64(load.in_flight)));
    let mut turn = start + stagger;
    let mut outcome = Outcome::default();
    loop {
        if let Some(interval) = interval {
            tokio::time::sleep_until(turn.into()).await;
            // One that is late does not catch up: the rate is what was asked for, or less.
            turn = (turn + interval).max(Instant::now());
        }
        let asked = Instant::now();
        if asked >= until {
            return Ok(outcome);
        }
        let done = work.once().await?;
        let answered = Instant::now();
        outcome.total += done;
        if answered >= from && answered < until {
            outcome.done += done;
            outcome.latencies.push(answered - asked);
        }
    }
}

/// Counts are far below 2^52.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(crate) fn as_f64(count: usize) -> f64 {
    count as f64
}
