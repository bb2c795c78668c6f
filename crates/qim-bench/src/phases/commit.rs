//! Messages committed per second, by client, writer and Redis together on this machine; and how long one waits.

use anyhow::Result;

use super::full_load;
use crate::bench::Bench;
use crate::load::Load;
use crate::report::{Goal, Report};
use crate::servers::postgres::Postgres;
use crate::targets::{Kind, Target};

/// Messages of a request, and requests in flight.
const CASES: [(usize, usize); 3] = [(1, 64), (10, 16), (50, 16)];
/// Workers that share a load below the highest.
const PACED: usize = 64;
/// Requests per second of a system that has nothing to do.
const IDLE_RATE: f64 = 50.0;
const IDLE_OVER_RAW: &str = "p50 idle, qim unary above raw Redis";

pub(super) async fn measure(bench: &Bench) -> Result<Report> {
    let mut report = Report::default();
    let postgres = Postgres::start()?;
    for run in 1..=bench.scale.runs {
        for (messages, in_flight) in CASES {
            bench.say(&format!("commit, run {run} of {}, {messages} a call", bench.scale.runs));
            let at_one = messages == 1;
            let kinds = Kind::ALL.into_iter().filter(|kind| !(at_one && kind.is_variant()));
            for kind in kinds.filter(|kind| bench.wants(&series(*kind, messages))) {
                let Some(target) = Target::start(bench, kind, postgres.as_ref()).await? else { continue };
                let load = full_load(bench, in_flight);
                target.measure(bench, (messages, load), (&mut report, &series(kind, messages))).await?;
            }
        }
        if bench.wants(IDLE_OVER_RAW) {
            measure_latency(bench, &mut report).await?;
        }
    }
    set_goals(&mut report);
    Ok(report)
}

fn series(kind: Kind, messages: usize) -> String {
    format!("{}, {messages} a call", kind.name())
}

/// At half of what qim gives at one message a call, and with nothing else to do.
async fn measure_latency(bench: &Bench, report: &mut Report) -> Result<()> {
    let half = report.median_of(&series(Kind::QimUnary, 1)).unwrap_or(1000.0) / 2.0;
    let full = full_load(bench, PACED);
    let mut idle_p50 = Vec::new();
    for kind in [Kind::QimUnary, Kind::RawRedis] {
        let Some(target) = Target::start(bench, kind, None).await? else { continue };
        let mut outcome = target.load(bench, 1, Load { rate: Some(half), ..full }).await?;
        report.add(latency("p50 at half load", kind), "ms", outcome.percentile_ms(50));
        report.add(latency("p99 at half load", kind), "ms", outcome.percentile_ms(99));
        let idle = Load { in_flight: 1, rate: Some(IDLE_RATE), ..full };
        let p50 = target.load(bench, 1, idle).await?.percentile_ms(50);
        report.add(latency("p50 idle", kind), "ms", p50);
        idle_p50.push(p50);
    }
    report.add(IDLE_OVER_RAW, "ms", idle_p50[0] - idle_p50[1]);
    Ok(())
}

fn latency(what: &str, kind: Kind) -> String {
    format!("{what}, {}", kind.name())
}

fn set_goals(report: &mut Report) {
    use Goal::{AtLeast, AtMost, None};
    for (messages, unary, stream) in [(1, 1.5, 2.0), (10, 1.0, 1.0), (50, 0.8, 0.8)] {
        let of = |kind| series(kind, messages);
        report.ratio(&of(Kind::QimUnary), &of(Kind::ThinUnary), AtLeast(unary));
        report.ratio(&of(Kind::QimStream), &of(Kind::ThinStream), AtLeast(stream));
        if messages > 1 {
            // Doing no more than the thin server does, qim is to be as fast.
            report.ratio(&of(Kind::QimUnaryUncompressed), &of(Kind::ThinUnary), AtLeast(1.0));
            report.ratio(&of(Kind::QimStreamUncompressed), &of(Kind::ThinStream), AtLeast(1.0));
            report.ratio(&of(Kind::QimStreamDictionary), &of(Kind::ThinStream), None);
        }
        // What qim is to pass at one message a call.
        let passes = if messages == 1 { AtLeast(1.0) } else { None };
        report.ratio(&of(Kind::QimStream), &of(Kind::Postgres), passes);
        report.ratio(&of(Kind::QimStream), &of(Kind::RawRedis), passes);
        report.ratio(&of(Kind::QimUnary), &of(Kind::Postgres), None);
        report.ratio(&of(Kind::QimUnary), &of(Kind::Adr), None);
    }
    let p99 = |kind| latency("p99 at half load", kind);
    report.ratio(&p99(Kind::QimUnary), &p99(Kind::RawRedis), AtMost(3.0));
    report.absolute(IDLE_OVER_RAW, AtMost(1.0));
    let rates = CASES.map(|(messages, _)| report.median_of(&series(Kind::QimUnary, messages)));
    for ((messages, _), rate) in CASES.iter().zip(rates) {
        report.summarise(&format!("unary_{messages}_a_call"), rate);
    }
}
