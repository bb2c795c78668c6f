//! Processes: their signals and their end.

use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Sends a signal to a child that was not waited for yet, so that its number is still its own.
pub(crate) fn send_signal(child: &Child, signal: Signal) {
    let pid = i32::try_from(child.id()).expect("a process number");
    kill(Pid::from_raw(pid), signal).unwrap_or_else(|error| panic!("{signal} to process {pid}: {error}"));
}

/// Its status, where it has ended.
pub(crate) fn exit_status(child: &mut Child) -> Option<ExitStatus> {
    child.try_wait().expect("it is a child of ours")
}

/// Its status, where it ends in time; else it is killed, and the test fails.
pub(crate) fn await_exit(child: &mut Child, timeout: Duration, program: &str) -> ExitStatus {
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(status) = exit_status(child) {
            return status;
        }
        if Instant::now() > deadline {
            end(child);
            panic!("{program} did not end within {timeout:?}");
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// SIGKILL.
pub(crate) fn end(child: &mut Child) {
    child.kill().expect("it is a child of ours");
    child.wait().expect("it is a child of ours");
}
