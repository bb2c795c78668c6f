//! What must not grow with the data: the memory of both daemons and the time they take to start, with a history and with
//! one a hundred times as long; and commits beside a conversation that is very long.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Result, ensure};
use async_trait::async_trait;
use qim_core::{ConversationKey, ShardCount, TenantId};
use qim_proto::v1::RetentionClass;

use super::history::{Deployment, Lengths, SETTINGS, grow, rss};
use super::{HOUR_MS, epoch_ms};
use crate::bench::Bench;
use crate::corpus::Corpus;
use crate::load::{Commits, Load, Work, as_f64, run};
use crate::progress::watch;
use crate::report::{Goal, Report};
use crate::servers::daemon::Daemon;
use crate::servers::redis::Redis;
use crate::subject::Unary;

/// Of each conversation, so that there are a hundred times as many conversations, too.
const MESSAGES: usize = 100;
/// Of the huge conversation, in one request.
const HUGE_BATCH: usize = 500;
const HUGE: &str = "huge";
/// What grows in another shard for the comparison.
const SMALL: &str = "small";
/// Conversations in the shard of each.
const NEIGHBOURS: usize = 200;
const ARCHIVED: &str = "qim_archived_rows_total";
/// Of each daemon.
const STARTS: usize = 9;
const IN_FLIGHT: usize = 16;
/// Beside the huge conversation and the other one, for each run of the bench: a p99 varies.
const TURNS: usize = 3;
/// Commits per second of them: what is measured is how long each waits, not how many go.
const RATE: f64 = 500.0;

/// What is measured with the history and with the long one.
const SERIES: [[&str; 2]; 4] = [
    ["RSS of qim-writer", "RSS of qim-writer, a hundred times the history"],
    ["RSS of qim-archiver", "RSS of qim-archiver, a hundred times the history"],
    ["start of qim-writer", "start of qim-writer, a hundred times the history"],
    ["start of qim-archiver", "start of qim-archiver, a hundred times the history"],
];
const BESIDE_SMALL: &str = "p99 of commits in a shard";
const BESIDE_HUGE: &str = "p99 of commits in a shard with a huge conversation";

/// Once: it takes long, and what it looks at hardly varies.
pub(super) async fn measure(bench: &Bench) -> Result<Report> {
    let mut report = Report::default();
    measure_history(bench, &mut report).await?;
    measure_huge(bench, &mut report).await?;
    for [short, long] in &SERIES[..2] {
        report.ratio(long, short, Goal::AtMost(1.05));
    }
    for [short, long] in &SERIES[2..] {
        report.ratio(long, short, Goal::AtMost(1.5));
    }
    report.ratio(BESIDE_HUGE, BESIDE_SMALL, Goal::AtMost(1.5));
    Ok(report)
}

async fn measure_history(bench: &Bench, report: &mut Report) -> Result<()> {
    let lengths = Lengths { messages: MESSAGES, times: bench.scale.growth };
    let begin = |messages| bench.say(&format!("growth: {messages} messages"));
    grow(bench, lengths, begin, |index, Deployment { redis, archive, writer, archiver }| {
        report.add(SERIES[0][index], "MiB", rss(writer)?);
        report.add(SERIES[1][index], "MiB", rss(archiver)?);
        report.add(SERIES[2][index], "ms", start_ms(|| bench.writer(redis, archive, &SETTINGS))?);
        report.add(SERIES[3][index], "ms", start_ms(|| bench.archiver(redis, archive, &SETTINGS))?);
        Ok(())
    })
    .await
}

/// Until it is ready; it ends again. The median of some: a new writer waits until the other one has looked that is there,
/// up to half a second.
fn start_ms(start: impl Fn() -> Result<Daemon>) -> Result<f64> {
    let mut starts = Vec::with_capacity(STARTS);
    for _ in 0..STARTS {
        let begun = Instant::now();
        let daemon = start()?;
        starts.push(begun.elapsed().as_secs_f64() * 1e3);
        drop(daemon);
    }
    starts.sort_by(f64::total_cmp);
    Ok(starts[STARTS / 2])
}

/// All of it stays in Redis, which is the worst for those beside it. What is compared is commits in its shard and in another
/// one, in turns, while a conversation in the same shard grows as fast as it can.
async fn measure_huge(bench: &Bench, report: &mut Report) -> Result<()> {
    let redis: Redis = bench.redis()?;
    let archive = bench.sqlite_url();
    let writer = bench.writer(&redis, &archive, &[])?;
    let archiver = bench.archiver(&redis, &archive, &[("QIM_COPY_DELAY", "0s")])?;
    let client = Unary::connect(&writer.url()).await?;
    bench.say(&format!("growth: a conversation of {} messages", bench.scale.huge));
    for from in (0..bench.scale.huge).step_by(HUGE_BATCH) {
        let batch = bench.corpus.batch(HUGE.into(), from, HUGE_BATCH);
        client.import(batch, epoch_ms() - HOUR_MS, RetentionClass::Default).await?;
    }
    // What copying takes is measured in another phase.
    watch(&archiver, ARCHIVED, as_f64(bench.scale.huge)).await?;
    let neighbours = |conversation| Neighbours::of(conversation, client.clone(), bench.corpus.clone());
    let (of_small, of_huge) = (Arc::new(neighbours(SMALL)?), Arc::new(neighbours(HUGE)?));
    ensure!(of_small.conversations != of_huge.conversations, "both are in one shard");
    let load = Load {
        in_flight: IN_FLIGHT,
        warm_up: bench.scale.warm_up,
        window: bench.scale.window,
        rate: Some(RATE),
    };
    for _ in 0..bench.scale.runs * TURNS {
        report.add(BESIDE_SMALL, "ms", p99_beside(bench, &of_small, SMALL, load).await?);
        report.add(BESIDE_HUGE, "ms", p99_beside(bench, &of_huge, HUGE, load).await?);
    }
    Ok(())
}

/// Of commits to the neighbours, while this conversation grows as fast as one client lets it.
async fn p99_beside(bench: &Bench, work: &Arc<Neighbours>, conversation: &str, load: Load) -> Result<f64> {
    let grow = async {
        loop {
            work.client.commit(bench.corpus.batch(conversation.into(), 0, 1)).await?;
        }
    };
    let outcome: Result<_> = tokio::select! {
        outcome = run(work.clone(), load) => outcome,
        ended = grow => ended,
    };
    Ok(outcome?.percentile_ms(99))
}

/// Commits to conversations of one shard.
struct Neighbours {
    client: Unary,
    corpus: Arc<Corpus>,
    conversations: Vec<Arc<str>>,
    next: AtomicUsize,
}

impl Neighbours {
    fn of(conversation: &str, client: Unary, corpus: Arc<Corpus>) -> Result<Self> {
        let shard = |id: &str| -> Result<u16> {
            Ok(ShardCount::DEFAULT.shard_of(&ConversationKey::new(TenantId::default(), id)?))
        };
        let (wanted, mut conversations) = (shard(conversation)?, Vec::with_capacity(NEIGHBOURS));
        for index in 0.. {
            let name = format!("neighbour-{index}");
            if shard(&name)? == wanted {
                conversations.push(name.into());
            }
            if conversations.len() == NEIGHBOURS {
                break;
            }
        }
        Ok(Self { client, corpus, conversations, next: AtomicUsize::new(0) })
    }
}

#[async_trait]
impl Work for Neighbours {
    async fn once(&self) -> Result<usize> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        let conversation = self.conversations[index % self.conversations.len()].clone();
        self.client.commit(self.corpus.batch(conversation, index, 1)).await?;
        Ok(1)
    }
}
