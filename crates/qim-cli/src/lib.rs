//! The command `qim`: writes, reads, imports and verifies message histories over the API of `qim-writer`, and trains
//! dictionaries on the tiers themselves.
//!
//! [`run`] takes the parsed command line and the environment and does one command. What a command prints on standard
//! output is its result, for people or (`--json`) for programs; everything else goes to standard error.

mod cli;
mod client;
mod commands;
mod credentials;
mod demo;
mod dictionary;
mod environment;
mod failure;
mod grpc;
mod import;
mod link;
mod ndjson;
mod output;
mod patience;
mod progress;
mod record;
mod session;
mod time_args;
mod verify;

pub use cli::Cli;
pub use environment::Environment;
pub use failure::Failure;

use cli::Command;
use output::Output;
use session::Session;

/// Does what the command line says. An error carries the exit status.
pub async fn run(cli: Cli, environment: Environment) -> Result<(), Failure> {
    let mut output = Output::stdout(cli.global.json);
    let session = Session::new(cli.global, environment);
    let done = match &cli.command {
        Command::Append(args) => commands::append::run(&session, args, &mut output).await,
        Command::Pull(args) => commands::pull::run(&session, args, &mut output).await,
        Command::Tail(args) => commands::tail::run(&session, args, &mut output).await,
        Command::Describe(args) => commands::describe::run(&session, args, &mut output).await,
        Command::Import(args) => import::run(&session, args, &mut output).await,
        Command::Verify(args) => verify::run(&session, args, &mut output).await,
        Command::CheckManifests(args) => commands::check_manifests::run(args, &mut output),
        Command::Demo(args) => demo::run(args, &mut output),
        Command::Dictionary(command) => dictionary::run(&session, command, &mut output).await,
        Command::Token(command) => commands::token::run(command, &mut output),
        Command::Health(args) => commands::health::run(&session, args, &mut output),
    };
    // What was printed before something went wrong is still a result.
    done.and(output.flush())
}
