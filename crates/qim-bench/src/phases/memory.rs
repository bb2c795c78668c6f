//! Bytes in Redis, by `used_memory`: for a message, for a conversation of which nothing is left, for a large payload.

use std::sync::Arc;

use anyhow::Result;
use bytes::Bytes;

use super::{Fill, HOUR_MS, each_conversation};
use crate::bench::Bench;
use crate::corpus::{Batch, Message};
use crate::floors::redis::AdrLayout;
use crate::load::{Commits, as_f64};
use crate::progress::watch;
use crate::report::{Goal, Report};
use crate::servers::redis::Redis;
use crate::subject::Unary;

const LARGE_BYTES: usize = 64 * 1024;
const SMALL_NEIGHBOURS: usize = 5;
/// Conversations that come first, some for nearly each of the 256 shards.
const SHARDS_WARM_UP: usize = 1000;

const DEFAULT: &str = "qim, default settings";
const DICTIONARY: &str = "qim, with a dictionary";
const ADR: &str = "ADR layout";
const PER_MESSAGE: &str = "qim, bytes a message";
const IDLE: &str = "a trimmed, idle conversation";
const LARGE: &str = "a payload of 64 KiB";

pub(super) async fn measure(bench: &Bench) -> Result<Report> {
    let mut report = Report::default();
    let (messages, payload) = (as_f64(bench.corpus.entries.len()), as_f64(bench.corpus.payload_bytes()));
    for run in 1..=bench.scale.runs {
        bench.say(&format!("memory, run {run} of {}", bench.scale.runs));
        let bytes = qim_bytes(bench, Payloads::Default).await?;
        report.add(DEFAULT, "× payload", bytes / payload);
        report.add(PER_MESSAGE, "B", bytes / messages);
        let bytes = qim_bytes(bench, Payloads::WithDictionary).await?;
        report.add(DICTIONARY, "× payload", bytes / payload);
        let bytes = adr_bytes(bench).await?;
        report.add(ADR, "× payload", bytes / payload);
        report.add("ADR layout, bytes a message", "B", bytes / messages);
        report.add(IDLE, "B", idle_conversation_bytes(bench).await?);
        report.add(LARGE, "× itself", large_payload_ratio(bench).await?);
    }
    report.add("corpus, bytes of payload a message", "B", payload / messages);
    report.absolute(DEFAULT, Goal::AtMost(1.1));
    report.absolute(DICTIONARY, Goal::AtMost(0.85));
    report.ratio(DEFAULT, ADR, Goal::None);
    report.absolute(IDLE, Goal::AtMost(80.0));
    report.absolute(LARGE, Goal::AtMost(1.02));
    for (name, series) in [
        ("default_over_payload", DEFAULT),
        ("dictionary_over_payload", DICTIONARY),
        ("adr_over_payload", ADR),
        ("bytes_per_message", PER_MESSAGE),
        ("bytes_per_idle_conversation", IDLE),
    ] {
        let median = report.median_of(series);
        report.summarise(name, median);
    }
    Ok(report)
}

/// How the writer stores payloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Payloads {
    Default,
    /// Trained on another corpus. Its own bytes in Redis count.
    WithDictionary,
}

/// The corpus by `qim import`. Scripts and connections are there before, by one message more.
async fn qim_bytes(bench: &Bench, payloads: Payloads) -> Result<f64> {
    let (redis, archive) = (bench.redis_without_file()?, bench.sqlite_url());
    let mut writer = bench.writer(&redis, &archive, &[])?;
    Fill::aged("warm-up", 1, 1, 0).load(bench, &Unary::connect(&writer.url()).await?).await?;
    let file = bench.new_path("corpus");
    let lines = bench.corpus.entries.len();
    bench.corpus.write(&file, lines, |entry| entry.age_ms)?;
    let before = redis.used_memory().await?;
    if payloads == Payloads::WithDictionary {
        bench.train(&redis, &archive)?;
        // One that starts uses it from the first message on.
        writer = bench.writer(&redis, &archive, &[])?;
    }
    bench.import(&writer.url(), &file, lines).await?;
    Ok(redis.used_memory().await? - before)
}

async fn adr_bytes(bench: &Bench) -> Result<f64> {
    let redis = bench.redis_without_file()?;
    let store = AdrLayout::new(redis.connect().await?);
    store.commit(bench.corpus.batch("warm-up".into(), 0, 1)).await?;
    let before = redis.used_memory().await?;
    let entries = &bench.corpus.entries;
    each_conversation(entries.len(), |index| {
        store.commit(bench.corpus.batch(entries[index].conversation.clone(), index, 1))
    })
    .await?;
    Ok(redis.used_memory().await? - before)
}

/// All is older than the hot window; the archiver copies and trims it. What a shard costs once, however many
/// conversations it has, is there before.
async fn idle_conversation_bytes(bench: &Bench) -> Result<f64> {
    let window = [("QIM_HOT_WINDOW", "1h"), ("QIM_COPY_DELAY", "0s")];
    let (redis, archive) = (bench.redis_without_file()?, bench.sqlite_url());
    let writer = bench.writer(&redis, &archive, &window)?;
    let archiver = bench.archiver(&redis, &archive, &window)?;
    let client = Unary::connect(&writer.url()).await?;
    let warm_up = Fill::aged("warm-up", SHARDS_WARM_UP, 1, 2 * HOUR_MS);
    warm_up.load(bench, &client).await?;
    watch(&archiver, "qim_trimmed_records_total", warm_up.total()).await?;
    let before = settled_memory(&redis).await?;
    let (file, lines) = (bench.new_path("old"), bench.corpus.entries.len());
    bench.corpus.write(&file, lines, |_| 2 * HOUR_MS)?;
    bench.import(&writer.url(), &file, lines).await?;
    watch(&archiver, "qim_trimmed_records_total", warm_up.total() + as_f64(lines)).await?;
    let after = settled_memory(&redis).await?;
    Ok((after - before) / as_f64(bench.corpus.conversations()))
}

/// Redis gives hash tables back in its own time; the lowest of a second.
async fn settled_memory(redis: &Redis) -> Result<f64> {
    let mut lowest = f64::INFINITY;
    for _ in 0..5 {
        lowest = lowest.min(redis.used_memory().await?);
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    Ok(lowest)
}

/// Random bytes, each payload in a conversation with a few small messages. What those cost by themselves is taken off.
async fn large_payload_ratio(bench: &Bench) -> Result<f64> {
    let redis = bench.redis_without_file()?;
    let writer = bench.writer(&redis, &bench.sqlite_url(), &[])?;
    let client = Unary::connect(&writer.url()).await?;
    let count = bench.scale.large_payloads;
    let small = Fill::aged("large", count, SMALL_NEIGHBOURS, 0);
    Fill::aged("warm-up", 1, 1, 0).load(bench, &client).await?;
    small.load(bench, &client).await?;
    let before = redis.used_memory().await?;
    each_conversation(count, |index| client.commit(large_message(small.name(index)))).await?;
    drop(client);
    let bytes = settled_memory(&redis).await? - before;
    Ok(bytes / as_f64(count * LARGE_BYTES))
}

fn large_message(conversation: Arc<str>) -> Batch {
    let payload: Vec<u8> = std::iter::repeat_with(rand::random).take(LARGE_BYTES).collect();
    let message = Message { sender: "large".into(), id: rand::random(), payload: Bytes::from(payload) };
    Batch { conversation, messages: vec![message] }
}
