//! `qim import` of a large file, beside plain commits of 50 messages each.

use anyhow::Result;

use super::full_load;
use crate::bench::Bench;
use crate::report::{Goal, Report};
use crate::targets::{Kind, Target};

const IMPORT: &str = "qim import";
const COMMITS: &str = "qim unary, 50 a call";
const RSS: &str = "peak RSS of qim import";
/// Messages of a request, and requests in flight.
const FLOOR: (usize, usize) = (50, 16);

pub(super) async fn measure(bench: &Bench) -> Result<Report> {
    let mut report = Report::default();
    let (file, lines) = (bench.new_path("import"), bench.scale.import_messages);
    bench.corpus.write(&file, lines, |entry| entry.age_ms)?;
    for run in 1..=bench.scale.runs {
        bench.say(&format!("import, run {run} of {}", bench.scale.runs));
        let redis = bench.redis()?;
        let writer = bench.writer(&redis, &bench.sqlite_url(), &[])?;
        let imported = bench.import(&writer.url(), &file, lines).await?;
        report.add(IMPORT, "msg/s", imported.committed / imported.seconds);
        report.add(RSS, "MiB", imported.peak_rss_mib);
        drop((writer, redis));
        if let Some(target) = Target::start(bench, Kind::QimUnary, None).await? {
            let load = full_load(bench, FLOOR.1);
            target.measure(bench, (FLOOR.0, load), (&mut report, COMMITS)).await?;
        }
    }
    report.ratio(IMPORT, COMMITS, Goal::AtLeast(0.8));
    report.absolute(RSS, Goal::AtMost(64.0));
    Ok(report)
}
