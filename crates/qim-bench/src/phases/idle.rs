//! What both daemons and Redis do while nobody wants anything of them.

use anyhow::Result;

use super::{Fill, HOUR_MS};
use crate::bench::Bench;
use crate::progress::watch;
use crate::report::{Goal, Report};
use crate::servers::process::cpu_seconds;
use crate::subject::Unary;

const BOTH: &str = "CPU of both daemons";
/// Our own between the two looks: the second `INFO`, and what the connection says first.
const OWN_COMMANDS: f64 = 4.0;

pub(super) async fn measure(bench: &Bench) -> Result<Report> {
    let mut report = Report::default();
    let window = [("QIM_HOT_WINDOW", "1h"), ("QIM_COPY_DELAY", "0s")];
    let (redis, archive) = (bench.redis()?, bench.sqlite_url());
    let writer = bench.writer(&redis, &archive, &window)?;
    let archiver = bench.archiver(&redis, &archive, &window)?;
    let idle = Fill::aged("idle", bench.scale.idle_conversations, 1, 2 * HOUR_MS);
    bench.say("idle, loading");
    idle.load(bench, &Unary::connect(&writer.url()).await?).await?;
    watch(&archiver, "qim_trimmed_records_total", idle.total()).await?;
    tokio::time::sleep(bench.scale.idle_window / 2).await;

    let seconds = bench.scale.idle_window.as_secs_f64();
    for run in 1..=bench.scale.runs {
        bench.say(&format!("idle, run {run} of {}", bench.scale.runs));
        let processes = [writer.pid(), archiver.pid(), redis.pid()];
        let before = processes.map(cpu_seconds);
        let commands = redis.info("total_commands_processed").await?;
        tokio::time::sleep(bench.scale.idle_window).await;
        let after = processes.map(cpu_seconds);
        let commands = redis.info("total_commands_processed").await? - commands - OWN_COMMANDS;
        let percent = |index: usize| (after[index] - before[index]) * 100.0 / seconds;
        report.add("CPU of qim-writer", "% of a core", percent(0));
        report.add("CPU of qim-archiver", "% of a core", percent(1));
        report.add(BOTH, "% of a core", percent(0) + percent(1));
        report.add("CPU of Redis", "% of a core", percent(2));
        report.add("commands that Redis runs, with those of scripts", "1/s", commands / seconds);
    }
    report.absolute(BOTH, Goal::AtMost(1.0));
    Ok(report)
}
