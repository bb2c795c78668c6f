//! `qim-archiver`: copies records to the archive tier and trims the hot one.

use std::process::ExitCode;

fn main() -> ExitCode {
    // The work first, then the leases that it needs.
    qim_daemon::run_daemon(qim_archiver::PHASES, qim_archiver::start)
}
