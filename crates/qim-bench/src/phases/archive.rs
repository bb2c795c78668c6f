//! Rows copied to the archive per second, and what commits lose meanwhile.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;

use super::{Fill, full_load};
use crate::bench::Bench;
use crate::floors::cql::CqlTable;
use crate::floors::{self, sqlite};
use crate::load::{CommitWork, Load, as_f64, run};
use crate::progress::watch;
use crate::report::{Goal, Report};
use crate::servers::cql::Cql;
use crate::servers::process::CpuMeter;
use crate::subject::Unary;

/// Of each conversation of the backlog.
const MESSAGES: usize = 50;
/// Load while a backlog drains: messages of a request, and requests in flight.
const COMMITS: (usize, usize) = (10, 16);
const ARCHIVED: &str = "qim_archived_rows_total";

const SQLITE: &str = "copy to SQLite";
const SQLITE_FLOOR: &str = "multi-row insert, SQLite";
const CQL: &str = "copy to CQL";
const CQL_FLOOR: &str = "bare driver, CQL";
const ALONE: &str = "commits alone, 10 a call";
const DRAINING: &str = "commits while a backlog drains";
const MEANWHILE: &str = "rows copied meanwhile";
const QUARTER: &str = "commits at a quarter of that, a backlog drains";
const BESIDE_QUARTER: &str = "rows copied beside a quarter";

pub(super) async fn measure(bench: &Bench) -> Result<Report> {
    let mut report = Report::default();
    let cql = Cql::start(bench.cassandra())?;
    if cql.is_none() {
        bench.say("copying to CQL is left out: no server");
    }
    let rows = floors::rows(&bench.corpus, bench.scale.backlog / MESSAGES, MESSAGES);
    for run_index in 1..=bench.scale.runs {
        bench.say(&format!("archive, run {run_index} of {}", bench.scale.runs));
        let archive = bench.sqlite_url();
        measure_copy(bench, &archive, SQLITE, &mut report).await?;
        report.add("SQLite, on disk", "B/row", file_bytes(&archive)? / as_f64(rows.len()));

        let mut connection = sqlite::create(&bench.new_path("floor"))?;
        let start = Instant::now();
        tokio::task::block_in_place(|| sqlite::insert(&mut connection, &rows))?;
        report.add(SQLITE_FLOOR, "rows/s", as_f64(rows.len()) / start.elapsed().as_secs_f64());

        if let Some(server) = &cql {
            let archive = server.keyspace_url();
            measure_copy(bench, &archive, CQL, &mut report).await?;
            let keyspace = archive.rsplit('/').next().unwrap_or_default();
            if let Some(bytes) = server.disk_bytes(keyspace).await? {
                report.add("CQL, on disk", "B/row", bytes / as_f64(rows.len()));
            }
            let table = CqlTable::create(server).await?;
            let start = Instant::now();
            table.insert(&rows).await?;
            report.add(CQL_FLOOR, "rows/s", as_f64(rows.len()) / start.elapsed().as_secs_f64());
        }
        measure_commits(bench, &mut report).await?;
    }
    report.ratio(SQLITE, SQLITE_FLOOR, Goal::AtLeast(0.7));
    report.ratio(CQL, CQL_FLOOR, Goal::AtLeast(0.8));
    report.ratio(DRAINING, ALONE, Goal::AtLeast(0.95));
    report.ratio(MEANWHILE, DRAINING, Goal::None);
    report.ratio(BESIDE_QUARTER, QUARTER, Goal::AtLeast(1.0));
    Ok(report)
}

fn backlog(bench: &Bench) -> Fill<'static> {
    Fill::aged("page", bench.scale.backlog / MESSAGES, MESSAGES, 0)
}

/// A backlog is there before the archiver starts.
async fn measure_copy(bench: &Bench, archive: &str, name: &str, report: &mut Report) -> Result<()> {
    let redis = bench.redis()?;
    let writer = bench.writer(&redis, archive, &[])?;
    let backlog = backlog(bench);
    backlog.load(bench, &Unary::connect(&writer.url()).await?).await?;
    let archiver = bench.archiver(&redis, archive, &[("QIM_COPY_DELAY", "0s")])?;
    let meter = CpuMeter::start(&[("archiver", archiver.pid()), ("redis", redis.pid())]);
    let copied = watch(&archiver, ARCHIVED, backlog.total()).await?;
    report.add(name, "rows/s", copied.per_second);
    let of_qim = |used: &(&str, f64)| used.0 != "client";
    let used: Vec<_> = meter.used().into_iter().filter(of_qim).collect();
    report.add_cpu(name, &used, backlog.total());
    Ok(())
}

/// The file once both daemons have ended, and all of it is in its place.
#[expect(clippy::cast_precision_loss, reason = "files are far below 2^52 bytes")]
fn file_bytes(archive: &str) -> Result<f64> {
    let path = archive.trim_start_matches("sqlite:");
    sqlite::checkpoint(path.as_ref())?;
    Ok(std::fs::metadata(path)?.len() as f64)
}

/// The same load on the same Redis, before and after the archiver starts.
async fn measure_commits(bench: &Bench, report: &mut Report) -> Result<()> {
    let (redis, archive) = (bench.redis()?, bench.sqlite_url());
    let writer = bench.writer(&redis, &archive, &[])?;
    let client = Unary::connect(&writer.url()).await?;
    backlog(bench).load(bench, &client).await?;
    let (messages, in_flight) = COMMITS;
    let work = Arc::new(CommitWork { store: Arc::new(client), corpus: bench.corpus.clone(), messages });
    let load = full_load(bench, in_flight);
    let alone = run(work.clone(), load).await?.per_second();
    report.add(ALONE, "msg/s", alone);

    let archiver = bench.archiver(&redis, &archive, &[("QIM_COPY_DELAY", "0s")])?;
    watch(&archiver, ARCHIVED, 1.0).await?;
    // What commits leave of the machine at full load is not what they leave at an ordinary one.
    let quarter = Load { rate: Some(alone / as_f64(messages) / 4.0), ..load };
    for (load, commits, copies) in [(load, DRAINING, MEANWHILE), (quarter, QUARTER, BESIDE_QUARTER)] {
        let (before, start) = (archiver.metric(ARCHIVED)?, Instant::now());
        report.add(commits, "msg/s", run(work.clone(), load).await?.per_second());
        let copied = archiver.metric(ARCHIVED)? - before;
        report.add(copies, "rows/s", copied / start.elapsed().as_secs_f64());
    }
    Ok(())
}
