//! After the faults: how long until everything works again, and what all conversations look like then.

use std::time::{Duration, Instant};

use qim_testkit::{Daemon, Samples};
use tonic::Status;

use crate::client::{Batch, Clients, now_ms};
use crate::fleet::Fleet;
use crate::ledger::Body;
use crate::load::{CONVERSATIONS, Class, Message};

/// Whoever needs longer is stuck.
const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(150);
/// The messages that show that commits work; no other has such a number.
const PROBES_FROM: u32 = 1_000_000;
/// Loops that run every few seconds, and so have to succeed soon.
const WRITER_LOOPS: [&str; 1] = ["gc"];
const ARCHIVER_LOOPS: [&str; 4] = ["copy", "trim", "lease", "maintain"];
const FINAL_LIMITS: (u32, u32) = (37, 500);

/// How it went.
#[derive(Debug, Default)]
pub(crate) struct Recovery {
    /// From the end of the last fault until all worked, in seconds.
    pub(crate) seconds: f64,
    /// What did not.
    pub(crate) stuck: Vec<String>,
}

/// Waits until all that was sent has an answer, every conversation can be written to, read and described, everything is
/// copied, and every loop of every daemon has succeeded since the last fault ended.
pub(crate) async fn await_all(fleet: &Fleet, clients: &Clients, lifted: Instant) -> Recovery {
    let since_ms = now_ms() - i64::try_from(lifted.elapsed().as_millis()).expect("seconds");
    let mut next_probe = PROBES_FROM;
    let mut committed = [false; CONVERSATIONS];
    loop {
        let asked = lifted.elapsed();
        let mut missing = Vec::new();
        for (name, daemon) in fleet.daemons() {
            missing.extend(ill(daemon, since_ms).map(|what| format!("{name}: {what}")));
        }
        match clients.settle_unknown(usize::try_from(next_probe).expect("an index") % clients.writers()).await
        {
            0 => {}
            left => missing.push(format!("{left} requests are not answered")),
        }
        for (conversation, is_committed) in committed.iter_mut().enumerate() {
            let writer = conversation % clients.writers();
            if !*is_committed {
                let message = Message { number: next_probe, class: Class::Default, bytes: 10 };
                let probe = Batch { conversation, imported_as: None, messages: vec![message] };
                next_probe += 1;
                *is_committed = clients.send(writer, &probe, Body::Own).await;
            }
            if !*is_committed {
                missing.push(format!("c{conversation} cannot be written to"));
            }
            missing.extend(behind(clients, writer, conversation).await);
        }
        if missing.is_empty() {
            return Recovery { seconds: lifted.elapsed().as_secs_f64(), stuck: Vec::new() };
        }
        // What was asked in time may be answered late.
        if asked > PATIENCE {
            return Recovery { seconds: lifted.elapsed().as_secs_f64(), stuck: missing };
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Reads everything by every writer and in both directions: what the checker judges losses by.
pub(crate) async fn read_all(clients: &Clients) -> Vec<String> {
    let deadline = Instant::now() + PATIENCE;
    let mut failed = Vec::new();
    for writer in 0..clients.writers() {
        for conversation in 0..CONVERSATIONS {
            while let Err(status) = read_both_ways(clients, writer, conversation).await {
                // Nothing is wrong any more but the load of the machine.
                if Instant::now() > deadline {
                    let (code, said) = (status.code(), status.message());
                    failed.push(format!("reading c{conversation}: {code:?}: {said}"));
                    break;
                }
                tokio::time::sleep(POLL).await;
            }
        }
    }
    failed
}

async fn read_both_ways(clients: &Clients, writer: usize, conversation: usize) -> Result<(), Status> {
    clients.read_forwards(writer, conversation, FINAL_LIMITS.0, true).await?;
    clients.read_backwards(writer, conversation, FINAL_LIMITS.1, true).await
}

/// What of a daemon does not work.
fn ill(daemon: &Daemon, since_ms: i64) -> Option<String> {
    if daemon.ended().is_some() {
        return Some("it does not run".to_owned());
    }
    match daemon.try_get("/readyz") {
        Ok(answer) if answer.status == 200 => {}
        Ok(answer) => return Some(answer.body),
        Err(error) => return Some(error.to_string()),
    }
    let metrics = daemon.try_get("/metrics").map(|answer| Samples::parse(&answer.body)).unwrap_or_default();
    let loops: &[&str] =
        if metrics.get("qim_leases_held").is_some() { &ARCHIVER_LOOPS } else { &WRITER_LOOPS };
    let stalled = loops.iter().find(|name| {
        let series = format!("qim_loop_last_success_timestamp_seconds{{loop=\"{name}\"}}");
        #[expect(
            clippy::cast_precision_loss,
            reason = "milliseconds since 1970 are exact until the year 287396"
        )]
        let since = since_ms as f64 / 1_000.0;
        metrics.get(&series).is_none_or(|at| at < since)
    });
    stalled.map(|name| format!("its loop {name} has not succeeded since"))
}

/// What of a conversation cannot be seen or is not copied.
async fn behind(clients: &Clients, writer: usize, conversation: usize) -> Option<String> {
    if let Err(status) = clients.read_forwards(writer, conversation, FINAL_LIMITS.1, false).await {
        return Some(format!("c{conversation} cannot be read: {:?}: {}", status.code(), status.message()));
    }
    match clients.describe(writer, conversation).await {
        Err(status) => Some(format!("c{conversation} cannot be described: {:?}", status.code())),
        Ok(described) if described.archived_seq < described.last_conversation_seq => Some(format!(
            "c{conversation} is copied to {} of {}",
            described.archived_seq, described.last_conversation_seq
        )),
        Ok(described) => {
            described.archive_unavailable.then(|| format!("c{conversation}: archive unavailable"))
        }
    }
}
