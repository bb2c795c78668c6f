//! The memory of both daemons, with a history and with one ten times as long.

use anyhow::{Context, Result};

use super::{Fill, HOUR_MS};
use crate::bench::Bench;
use crate::load::as_f64;
use crate::progress::watch;
use crate::report::{Goal, Report};
use crate::servers::daemon::Daemon;
use crate::servers::process::rss_mib;
use crate::subject::Unary;

/// Of each conversation.
const MESSAGES: usize = 50;
const TIMES: usize = 10;
const TRIMMED: &str = "qim_trimmed_records_total";

/// What is measured of a daemon: its name, and with the history and with the long one.
const WRITER: [&str; 2] = ["RSS of qim-writer", "RSS of qim-writer, ten times the history"];
const ARCHIVER: [&str; 2] = ["RSS of qim-archiver", "RSS of qim-archiver, ten times the history"];

pub(super) async fn measure(bench: &Bench) -> Result<Report> {
    let mut report = Report::default();
    for run in 1..=bench.scale.runs {
        bench.say(&format!("rss, run {run} of {}", bench.scale.runs));
        measure_once(bench, &mut report).await?;
    }
    for [short, long] in [WRITER, ARCHIVER] {
        report.ratio(long, short, Goal::AtMost(1.05));
    }
    Ok(report)
}

/// Everything goes all the way: committed, copied, trimmed.
async fn measure_once(bench: &Bench, report: &mut Report) -> Result<()> {
    let window = [("QIM_HOT_WINDOW", "1h"), ("QIM_COPY_DELAY", "0s")];
    let (redis, archive) = (bench.redis()?, bench.sqlite_url());
    let writer = bench.writer(&redis, &archive, &window)?;
    let archiver = bench.archiver(&redis, &archive, &window)?;
    let client = Unary::connect(&writer.url()).await?;
    let conversations = bench.scale.history / MESSAGES;
    let mut history = 0;
    for (index, prefix) in ["short", "long"].into_iter().enumerate() {
        let conversations = if index == 0 { conversations } else { conversations * (TIMES - 1) };
        Fill::aged(prefix, conversations, MESSAGES, 2 * HOUR_MS).load(bench, &client).await?;
        history += conversations * MESSAGES;
        watch(&archiver, TRIMMED, as_f64(history)).await?;
        tokio::time::sleep(bench.scale.window).await;
        report.add(WRITER[index], "MiB", rss(&writer)?);
        report.add(ARCHIVER[index], "MiB", rss(&archiver)?);
    }
    Ok(())
}

fn rss(daemon: &Daemon) -> Result<f64> {
    rss_mib(daemon.pid()).context("the daemon runs")
}
