//! `qim-writer`: commits messages to the hot tier, answers readers, and collects what has expired.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Requests first, so that what was accepted is finished; the loops go on until then.
    qim_daemon::run_daemon(qim_writer::PHASES, qim_writer::start)
}
