//! `qim`: the message history of conversations, for people and scripts.

use std::process::ExitCode;

use clap::Parser;
use qim_cli::{Cli, Environment, run};

fn main() -> ExitCode {
    // One thread for the network; a file is read and parsed on another. The server is what takes the time.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(run(Cli::parse(), Environment::from_process())),
        Err(error) => {
            eprintln!("qim: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.is_quiet() {
                eprintln!("qim: {failure}");
            }
            ExitCode::from(failure.exit_status())
        }
    }
}
