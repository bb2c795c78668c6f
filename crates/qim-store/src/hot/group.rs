//! Group commit: while a script runs, commits that arrive go together in the next call. A call costs Redis more than
//! a message does, so the busier it is, the cheaper each commit gets; an idle one is called at once, without a timer.
//!
//! Invariants: every job is answered exactly once, whether or not whoever asked still waits; a call holds jobs in the
//! order in which they came; one call of a lane is under way at a time, with at most [`MESSAGES_MAX`] messages. (A second
//! one on the wire would keep Redis from waiting, but makes all calls smaller: 10 % fewer commits.)

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use qim_core::UnixMillis;
use redis::{Cmd, Value};
use tokio::sync::oneshot;

use super::connection::Connection;
use super::fingerprint::Fingerprint;
use super::keys::ConversationKeys;
use super::pieces::pieces;
use super::scripts::Scripts;
use super::{HotError, SCRIPT_RECORDS_MAX};

const MESSAGES_MAX: usize = SCRIPT_RECORDS_MAX;
/// A call with more is split, so that one does not hold up all others.
const BYTES_MAX: usize = 1024 * 1024;
/// What may wait in a lane: minutes of work for Redis. Whoever comes then is told at once, and not after all of it.
const WAITING_MAX: usize = 65_536;
const WAITING_BYTES_MAX: usize = 256 * 1024 * 1024;

/// What one conversation commits: the arguments of `commit_messages.lua` for it.
pub(super) struct Job {
    pub(super) keys: ConversationKeys,
    pub(super) now: UnixMillis,
    pub(super) floor: Option<u64>,
    pub(super) messages: Vec<EncodedMessage>,
}

/// A message as the script takes it.
pub(super) struct EncodedMessage {
    /// When GC has to collect the record; `None`: never, or trimming comes first.
    pub(super) collect_at: Option<UnixMillis>,
    pub(super) record: Vec<u8>,
    /// What is stored in the record's place, where it is kept in pieces.
    pub(super) stub: Option<Vec<u8>>,
    pub(super) fingerprint: Fingerprint,
}

impl EncodedMessage {
    pub(super) fn in_place(&self) -> &[u8] {
        self.stub.as_deref().unwrap_or(&self.record)
    }
}

impl Job {
    /// Of its records.
    fn bytes(&self) -> usize {
        self.messages.iter().map(|message| message.record.len()).sum()
    }

    /// Of all records that are kept so.
    fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let large = self.messages.iter().filter(|message| message.stub.is_some());
        large.flat_map(|message| pieces(&message.record))
    }

    /// Appends all but the records: `SPEC` in `commit_messages.lua`.
    pub(super) fn push_spec(&self, spec: &mut Vec<u8>) {
        let count = u16::try_from(self.messages.len()).expect("at most 512 messages");
        spec.extend_from_slice(&count.to_be_bytes());
        let pieces = u32::try_from(self.pieces().count()).expect("at most 512 messages");
        spec.extend_from_slice(&pieces.to_be_bytes()[1..]);
        push_u48(spec, self.floor.unwrap_or(0));
        for message in &self.messages {
            spec.extend_from_slice(message.fingerprint.hint());
        }
        for message in &self.messages {
            spec.extend_from_slice(message.fingerprint.as_bytes());
        }
        if self.messages.iter().any(|message| message.collect_at.is_some()) {
            for message in &self.messages {
                push_u48(spec, message.collect_at.map_or(0, UnixMillis::get));
            }
        }
    }
}

/// Floors and dates are below 2^48.
fn push_u48(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_be_bytes()[2..]);
}

type Reply = Result<Value, HotError>;

struct Waiting {
    job: Job,
    answer: oneshot::Sender<Reply>,
}

/// Jobs that may go together: on one server all of them, on a cluster those of one shard. It is there while a call is under way.
#[derive(Default)]
struct Lane {
    waiting: VecDeque<Waiting>,
    /// Of records that wait.
    bytes: usize,
}

impl Lane {
    fn push(&mut self, waiting: Waiting) {
        self.bytes += waiting.job.bytes();
        self.waiting.push_back(waiting);
    }

    fn pop(&mut self) -> Option<Waiting> {
        let waiting = self.waiting.pop_front()?;
        self.bytes -= waiting.job.bytes();
        Some(waiting)
    }

    fn is_full(&self) -> bool {
        self.waiting.len() >= WAITING_MAX || self.bytes >= WAITING_BYTES_MAX
    }
}

/// Collects jobs into calls. Clones share the lanes.
#[derive(Clone)]
pub(super) struct GroupCommit {
    connection: Connection,
    scripts: Arc<Scripts>,
    lanes: Arc<Mutex<HashMap<u16, Lane>>>,
}

impl GroupCommit {
    pub(super) fn new(connection: Connection, scripts: Arc<Scripts>) -> Self {
        Self { connection, scripts, lanes: Arc::default() }
    }

    /// Commits the job in one of the next calls, and answers what the script said of it.
    pub(super) async fn submit(&self, job: Job) -> Reply {
        let lane = if self.connection.is_cluster() { job.keys.shard.0 } else { 0 };
        let (answer, answered) = oneshot::channel();
        let starts_a_call = {
            let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
            let starts_a_call = !lanes.contains_key(&lane);
            let lane = lanes.entry(lane).or_default();
            if lane.is_full() {
                return Err(HotError::Unavailable("too many commits wait; nothing was done".into()));
            }
            lane.push(Waiting { job, answer });
            starts_a_call
        };
        if starts_a_call {
            // A task of its own: whoever asked may go away, and the others of the call must not suffer for it.
            tokio::spawn(self.clone().work(lane));
        }
        answered.await.unwrap_or_else(|_| Err(HotError::Unavailable("the commit was abandoned".into())))
    }

    /// Calls until nothing waits in the lane.
    async fn work(self, lane: u16) {
        while let Some(group) = self.next_group(lane) {
            self.call(group).await;
        }
    }

    fn next_group(&self, lane: u16) -> Option<Vec<Waiting>> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let state = lanes.get_mut(&lane).expect("a lane is there while a call is");
        let mut group = Vec::new();
        let (mut messages, mut bytes) = (0, 0);
        while let Some(next) = state.waiting.front() {
            let (more_messages, more_bytes) = size(std::iter::once(&next.job));
            messages += more_messages;
            bytes += more_bytes;
            if !group.is_empty() && (messages > MESSAGES_MAX || bytes > BYTES_MAX) {
                break;
            }
            group.extend(state.pop());
        }
        if group.is_empty() {
            lanes.remove(&lane);
            return None;
        }
        Some(group)
    }

    async fn call(&self, group: Vec<Waiting>) {
        let now = group.iter().map(|waiting| waiting.job.now).max().unwrap_or_default();
        let script = &self.scripts.commit_messages;
        let (messages, bytes) = size(group.iter().map(|waiting| &waiting.job));
        let mut call = Cmd::with_capacity(4 + 2 * group.len() + messages, bytes + 128 * group.len());
        // On a cluster all are of one shard.
        let guard = self.connection.guard(group[0].job.keys.shard);
        call.arg("EVALSHA").arg(script.hash()).arg(group.len() + usize::from(guard.is_some()));
        for Waiting { job, .. } in &group {
            call.arg(job.keys.records());
        }
        call.arg(guard);
        call.arg(now.get());
        let mut spec = Vec::new();
        for Waiting { job, .. } in &group {
            spec.clear();
            job.push_spec(&mut spec);
            call.arg(&spec);
            for message in &job.messages {
                call.arg(message.in_place());
            }
            for piece in job.pieces() {
                call.arg(piece);
            }
        }
        let replies = self.connection.evalsha(script, &call).await;
        answer_each(group, replies);
    }
}

/// Messages, and bytes of records.
fn size<'a>(jobs: impl Iterator<Item = &'a Job>) -> (usize, usize) {
    jobs.fold((0, 0), |(messages, bytes), job| (messages + job.messages.len(), bytes + job.bytes()))
}

fn answer_each(group: Vec<Waiting>, replies: Result<Vec<Value>, HotError>) {
    let replies = replies.and_then(|replies| {
        let complete = replies.len() == group.len();
        complete.then_some(replies).ok_or_else(|| HotError::Refused("commit_messages: short reply".into()))
    });
    // Nobody may wait any longer: then there is nobody to tell.
    match replies {
        Ok(replies) => {
            for (waiting, reply) in group.into_iter().zip(replies) {
                let _ = waiting.answer.send(Ok(reply));
            }
        }
        Err(error) => {
            for waiting in group {
                let _ = waiting.answer.send(Err(error.clone()));
            }
        }
    }
}
