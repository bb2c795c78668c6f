//! The memory of both daemons, with a history and with one ten times as long.

use anyhow::Result;

use super::history::{Lengths, grow, rss};
use crate::bench::Bench;
use crate::report::{Goal, Report};

/// Of each conversation.
const MESSAGES: usize = 50;
const TIMES: usize = 10;

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

async fn measure_once(bench: &Bench, report: &mut Report) -> Result<()> {
    let lengths = Lengths { messages: MESSAGES, times: TIMES };
    let nothing = |_| ();
    grow(bench, lengths, nothing, |index, deployment| {
        report.add(WRITER[index], "MiB", rss(&deployment.writer)?);
        report.add(ARCHIVER[index], "MiB", rss(&deployment.archiver)?);
        Ok(())
    })
    .await
}
