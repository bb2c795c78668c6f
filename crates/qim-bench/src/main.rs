//! `qim-bench`: measures qim beside its floors, in the same run. See docs/performance.md; scripts/bench starts it.

mod bench;
mod corpus;
mod floors;
mod load;
mod machine;
mod options;
mod phases;
mod plot;
mod progress;
mod report;
mod servers;
mod subject;
mod targets;

use anyhow::{Result, bail, ensure};
use clap::{Parser, Subcommand};
use serde_json::{Map, Value};
use tokio::signal::unix::{SignalKind, signal};

use bench::Bench;
use floors::thin_server::{self, ThinServerArgs};
use options::{MeasureArgs, PhaseName};
use report::{Report, Verdict};

/// Measures qim beside what could be used instead of it.
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Measure(MeasureArgs),
    #[command(hide = true)]
    ThinServer(ThinServerArgs),
}

#[tokio::main]
async fn main() -> Result<()> {
    match Cli::parse().command {
        Command::Measure(args) => tokio::select! {
            result = measure(args) => result,
            // What was started ends with its owner, which ends here.
            signal = asked_to_end() => bail!("ended by {}", signal?),
        },
        Command::ThinServer(args) => thin_server::serve(args).await,
    }
}

/// SIGINT or SIGTERM.
async fn asked_to_end() -> Result<&'static str> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => Ok("SIGINT"),
        _ = terminate.recv() => Ok("SIGTERM"),
    }
}

async fn measure(args: MeasureArgs) -> Result<()> {
    let bench = Bench::prepare(args.clone())?;
    let machine = machine::describe();
    println!("machine: {machine}");
    let (mut reports, mut failed) = (Vec::new(), Vec::new());
    for phase in args.phase.phases() {
        match phases::measure(&bench, phase).await {
            Ok(report) => {
                println!("{}", report.table(phase.name()));
                reports.push((phase, report));
            }
            // The other phases may tell something all the same.
            Err(error) => {
                eprintln!("bench: {} failed: {error:#}", phase.name());
                failed.push(phase.name());
            }
        }
    }
    if let Some(path) = &args.svg {
        let verdicts: Vec<&Verdict> = reports.iter().flat_map(|(_, report)| report.verdicts()).collect();
        std::fs::write(path, plot::svg(&verdicts))?;
    }
    if args.json {
        println!("{}", as_json(args.phase, machine, &reports));
    }
    ensure!(failed.is_empty(), "not measured: {}", failed.join(", "));
    Ok(())
}

/// One phase is an object of its own; all of them are one object under their names.
fn as_json(asked: PhaseName, machine: Value, reports: &[(PhaseName, Report)]) -> Value {
    if let ([(phase, report)], true) = (reports, asked != PhaseName::All) {
        let mut object = report.json();
        object["phase"] = phase.name().into();
        object["machine"] = machine;
        return object;
    }
    let mut object = Map::new();
    object.insert("machine".to_owned(), machine);
    object.extend(reports.iter().map(|(phase, report)| (phase.name().to_owned(), report.json())));
    Value::Object(object)
}
