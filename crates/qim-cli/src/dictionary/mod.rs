//! `qim dictionary`: the only command that works on the tiers themselves, with the configuration of the daemons.

mod deployment;
mod gain;
mod list;
mod train;

use crate::cli::DictionaryCommand;
use crate::failure::Failure;
use crate::output::Output;
use crate::session::Session;

pub(crate) async fn run(
    session: &Session,
    command: &DictionaryCommand,
    output: &mut Output,
) -> Result<(), Failure> {
    match command {
        DictionaryCommand::Train(args) => train::run(session, args, output).await,
        DictionaryCommand::List => list::run(session, output).await,
    }
}
