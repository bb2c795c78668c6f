//! Pages of the 50 newest messages per second: from Redis, and from the archive once Redis has nothing left.

use std::sync::Arc;

use anyhow::{Result, ensure};
use async_trait::async_trait;

use super::{Fill, HOUR_MS, each_conversation, full_load};
use crate::bench::Bench;
use crate::floors::cql::CqlTable;
use crate::floors::postgres::PostgresTable;
use crate::floors::redis::RawRedis;
use crate::floors::{self, sqlite};
use crate::load::{Commits, Pages, Work, as_f64, run};
use crate::progress::watch;
use crate::report::{Goal, Report};
use crate::servers::cql::Cql;
use crate::servers::daemon::Daemon;
use crate::servers::postgres::Postgres;
use crate::servers::process::CpuMeter;
use crate::servers::redis::Redis;
use crate::subject::{Frames, Unary};

const IN_FLIGHT: usize = 16;
/// Of each conversation: a page, and a little more.
const MESSAGES: usize = 60;
const PAGE: usize = 50;
/// The machine's; a reader of SQLite takes one whole.
const SQLITE_READERS: usize = 2;

const HOT: &str = "qim, hot";
const FRAMES: &str = "qim, hot, zstd frames";
const RAW: &str = "raw Redis, LRANGE";
const POSTGRES: &str = "PostgreSQL, SELECT";

/// Reads a page of a random conversation.
struct PageWork {
    pages: Arc<dyn Pages>,
    conversations: usize,
}

#[async_trait]
impl Work for PageWork {
    async fn once(&self) -> Result<usize> {
        let index = rand::random_range(0..self.conversations);
        let read = self.pages.newest(name(index)).await?;
        ensure!(read == PAGE, "a page of {read}");
        Ok(1)
    }
}

/// Something to read pages from.
struct Reader {
    name: &'static str,
    pages: Arc<dyn Pages>,
    processes: Vec<(&'static str, u32)>,
}

pub(super) async fn measure(bench: &Bench) -> Result<Report> {
    let mut report = Report::default();
    measure_hot(bench, &mut report).await?;
    measure_sqlite(bench, &mut report).await?;
    match Cql::start(bench.cassandra())? {
        Some(server) => measure_cql(bench, &server, &mut report).await?,
        None => bench.say("pull from CQL is left out: no server"),
    }
    Ok(report)
}

fn name(index: usize) -> Arc<str> {
    format!("page-{index}").into()
}

fn fill(bench: &Bench, age_ms: i64) -> Fill<'static> {
    Fill::aged("page", bench.scale.page_conversations, MESSAGES, age_ms)
}

/// The readers take turns.
async fn take_turns(bench: &Bench, readers: &[Reader], report: &mut Report) -> Result<()> {
    for run_index in 1..=bench.scale.runs {
        for reader in readers {
            bench.say(&format!("pull, run {run_index} of {}, {}", bench.scale.runs, reader.name));
            let conversations = bench.scale.page_conversations;
            let work = PageWork { pages: reader.pages.clone(), conversations };
            let meter = CpuMeter::start(&reader.processes);
            let outcome = run(Arc::new(work), full_load(bench, IN_FLIGHT)).await?;
            report.add(reader.name, "pages/s", outcome.per_second());
            report.add_cpu(reader.name, &meter.used(), as_f64(outcome.total * PAGE));
        }
    }
    Ok(())
}

async fn measure_hot(bench: &Bench, report: &mut Report) -> Result<()> {
    let redis = bench.redis()?;
    let writer = bench.writer(&redis, &bench.sqlite_url(), &[])?;
    let client = Unary::connect(&writer.url()).await?;
    fill(bench, 0).load(bench, &client).await?;

    let raw_redis = bench.redis()?;
    let raw = Arc::new(RawRedis::new(raw_redis.connect().await?));
    commit_pages(bench, &*raw).await?;
    let processes = vec![("redis", redis.pid()), ("writer", writer.pid())];
    let mut readers = vec![
        Reader { name: HOT, pages: Arc::new(client.clone()), processes: processes.clone() },
        Reader { name: FRAMES, pages: Arc::new(Frames(client)), processes },
        Reader { name: RAW, pages: raw, processes: vec![("redis", raw_redis.pid())] },
    ];
    let postgres = Postgres::start()?;
    if let Some(server) = &postgres {
        let table = Arc::new(PostgresTable::create(server).await?);
        commit_pages(bench, &*table).await?;
        table.settle().await?;
        readers.push(Reader { name: POSTGRES, pages: table, processes: vec![("postgres", server.pid())] });
    }
    take_turns(bench, &readers, report).await?;
    report.ratio(HOT, POSTGRES, Goal::AtLeast(1.0));
    report.ratio(HOT, RAW, Goal::AtLeast(0.7));
    report.ratio(FRAMES, POSTGRES, Goal::None);
    Ok(())
}

async fn commit_pages(bench: &Bench, store: &dyn Commits) -> Result<()> {
    each_conversation(bench.scale.page_conversations, |index| {
        store.commit(bench.corpus.batch(name(index), index * MESSAGES, MESSAGES))
    })
    .await
}

/// qim with everything trimmed from Redis.
struct Cold {
    redis: Redis,
    writer: Daemon,
    client: Unary,
}

impl Cold {
    async fn start(bench: &Bench, archive: &str) -> Result<Self> {
        let window = [("QIM_HOT_WINDOW", "1h"), ("QIM_COPY_DELAY", "0s")];
        let redis = bench.redis()?;
        let writer = bench.writer(&redis, archive, &window)?;
        let client = Unary::connect(&writer.url()).await?;
        let old = fill(bench, 2 * HOUR_MS);
        old.load(bench, &client).await?;
        let archiver = bench.archiver(&redis, archive, &window)?;
        watch(&archiver, "qim_trimmed_records_total", old.total()).await?;
        Ok(Self { redis, writer, client })
    }

    /// Of payloads as they were sent, and of zstd frames.
    fn readers(&self, [plain, frames]: [&'static str; 2]) -> [Reader; 2] {
        let reader = |name, pages| {
            let processes = vec![("redis", self.redis.pid()), ("writer", self.writer.pid())];
            Reader { name, pages, processes }
        };
        [
            reader(plain, Arc::new(self.client.clone()) as Arc<dyn Pages>),
            reader(frames, Arc::new(Frames(self.client.clone()))),
        ]
    }
}

async fn measure_sqlite(bench: &Bench, report: &mut Report) -> Result<()> {
    let (subjects, floor) = (["qim, from SQLite", "qim, from SQLite, zstd frames"], "raw SELECT, SQLite");
    let cold = Cold::start(bench, &bench.sqlite_url()).await?;
    let path = bench.new_path("pages");
    let mut connection = sqlite::create(&path)?;
    sqlite::insert(&mut connection, &floors::rows(&bench.corpus, bench.scale.page_conversations, MESSAGES))?;
    let pages = Arc::new(sqlite::SqlitePages::open(&path, SQLITE_READERS)?);
    compare(bench, &cold, subjects, (floor, pages), Goal::AtLeast(0.5), report).await
}

async fn compare(
    bench: &Bench,
    cold: &Cold,
    subjects: [&'static str; 2],
    (floor, pages): (&'static str, Arc<dyn Pages>),
    goal: Goal,
    report: &mut Report,
) -> Result<()> {
    let [plain, frames] = cold.readers(subjects);
    let readers = [plain, frames, Reader { name: floor, pages, processes: Vec::new() }];
    take_turns(bench, &readers, report).await?;
    let [plain, frames] = subjects;
    report.ratio(plain, floor, goal);
    report.ratio(frames, floor, Goal::None);
    Ok(())
}

async fn measure_cql(bench: &Bench, server: &Cql, report: &mut Report) -> Result<()> {
    let (subjects, floor) = (["qim, from CQL", "qim, from CQL, zstd frames"], "raw SELECT, CQL");
    let cold = Cold::start(bench, &server.keyspace_url()).await?;
    let table = Arc::new(CqlTable::create(server).await?);
    table.insert(&floors::rows(&bench.corpus, bench.scale.page_conversations, MESSAGES)).await?;
    compare(bench, &cold, subjects, (floor, table), Goal::AtLeast(0.8), report).await
}
