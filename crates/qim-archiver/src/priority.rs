//! Copying gives way to commits: see docs/adr/0015-copying-yields.md.

/// The lowest that there is. A process of ordinary priority that wants the processor gets about 70 times as much of it.
const NICE: i32 = 19;

/// Lowers the priority of this thread, and of all that it starts from now on. Called before there are others.
pub fn give_way() {
    // Lowering is never refused; where a sandbox forbids the call itself, copying only competes as before.
    let _ = rustix::process::setpriority_process(None, NICE);
}
