//! `qim-faults`: real daemons, a real Redis and a real archive under random faults from a seed, and clients that check
//! that nothing which was acknowledged is lost, and nothing which has expired comes back.

mod campaign;
mod checker;
mod client;
mod fleet;
mod kind;
mod ledger;
mod load;
mod options;
mod recovery;
mod report;
mod run;
mod schedule;

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

use options::{Cli, Command};

/// Something was lost, came back, or is stuck.
const FOUND: u8 = 1;

#[tokio::main]
async fn main() -> Result<ExitCode> {
    match Cli::parse().command {
        Command::Campaign(args) => {
            let summary = tokio::select! {
                summary = campaign::run(&args) => summary?,
                // Runs under way are killed with their owner.
                () = asked_to_end() => bail!("ended by a signal"),
            };
            println!("{}", serde_json::to_string(&summary)?);
            Ok(if summary.failed_seeds.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(FOUND) })
        }
        Command::Run(args) => {
            let result = run::run(&args).await?;
            println!("{}", serde_json::to_string(&result)?);
            // Everything has ended by now; without the destructors, so that all files stay where they are.
            std::process::exit(0)
        }
    }
}

/// SIGINT or SIGTERM.
async fn asked_to_end() {
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
