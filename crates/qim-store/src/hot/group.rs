//! Group commit: while a script runs, commits that arrive go together in the next call. A call costs Redis more than
//! a message does, so the busier it is, the cheaper each commit gets; an idle one is called at once, without a timer.
//!
//! Invariants: every job is answered exactly once, whether or not whoever asked still waits; a call holds jobs in the
//! order in which they came, at most [`MESSAGES_MAX`] messages; one call of a lane is under way at a time, and a second one
//! only where [`SECOND_CALL_MIN`] messages wait, so that Redis need not wait for the next call. (With few it would only make
//! all calls smaller: 10 % fewer commits.)

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use qim_core::UnixMillis;
use redis::{Cmd, Value};
use tokio::sync::oneshot;

use super::fingerprint::Fingerprint;
use super::keys::{ConversationKeys, Lane};
use super::lineage::Lineage;
use super::pieces::pieces;
use super::{HotError, RedisMessageStore, SCRIPT_RECORDS_MAX};

const MESSAGES_MAX: usize = SCRIPT_RECORDS_MAX;
/// A call with more is split, so that one does not hold up all others.
const BYTES_MAX: usize = 1024 * 1024;
/// So many messages are a call of their own while another one is under way.
const SECOND_CALL_MIN: usize = 64;
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

/// Adds messages of one conversation to a call: a batch in `appending.lua`. `spec` is room for it.
pub(super) fn add_batch<'a>(
    call: &mut Cmd,
    spec: &mut Vec<u8>,
    floor: Option<u64>,
    messages: impl Iterator<Item = &'a EncodedMessage> + Clone,
) {
    spec.clear();
    push_spec(spec, floor, messages.clone());
    call.arg(&*spec);
    for message in messages.clone() {
        call.arg(message.in_place());
    }
    for piece in in_pieces(messages) {
        call.arg(piece);
    }
}

/// The pieces of all records that are kept so.
fn in_pieces<'a>(messages: impl Iterator<Item = &'a EncodedMessage>) -> impl Iterator<Item = &'a [u8]> {
    messages.filter(|message| message.stub.is_some()).flat_map(|message| pieces(&message.record))
}

/// Appends all but the records: `SPEC` in `appending.lua`.
pub(super) fn push_spec<'a>(
    spec: &mut Vec<u8>,
    floor: Option<u64>,
    messages: impl Iterator<Item = &'a EncodedMessage> + Clone,
) {
    let count = messages.clone().count();
    spec.extend_from_slice(&u16::try_from(count).expect("at most 512 messages").to_be_bytes());
    let pieces = u32::try_from(in_pieces(messages.clone()).count()).expect("at most 512 messages");
    spec.extend_from_slice(&pieces.to_be_bytes()[1..]);
    push_u48(spec, floor.unwrap_or(0));
    for message in messages.clone() {
        spec.extend_from_slice(message.fingerprint.hint());
    }
    for message in messages.clone() {
        spec.extend_from_slice(message.fingerprint.as_bytes());
    }
    if messages.clone().any(|message| message.collect_at.is_some()) {
        for message in messages {
            push_u48(spec, message.collect_at.map_or(0, UnixMillis::get));
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
    /// Of its records.
    bytes: usize,
    answer: oneshot::Sender<Reply>,
}

/// Jobs that may go together. It is there while a call is under way.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    /// That wait.
    messages: usize,
    /// Of records that wait.
    bytes: usize,
    /// Tasks that make calls.
    workers: usize,
}

impl Queue {
    /// Whether one more task is to make calls.
    fn wants_worker(&self) -> bool {
        match self.workers {
            0 => true,
            1 => self.messages >= SECOND_CALL_MIN,
            _ => false,
        }
    }

    fn push(&mut self, waiting: Waiting) {
        self.messages += waiting.job.messages.len();
        self.bytes += waiting.bytes;
        self.waiting.push_back(waiting);
    }

    fn pop(&mut self) -> Option<Waiting> {
        let waiting = self.waiting.pop_front()?;
        self.messages -= waiting.job.messages.len();
        self.bytes -= waiting.bytes;
        Some(waiting)
    }

    fn is_full(&self) -> bool {
        self.waiting.len() >= WAITING_MAX || self.bytes >= WAITING_BYTES_MAX
    }
}

/// Collects jobs into calls. Clones share the queues.
#[derive(Clone, Default)]
pub(super) struct GroupCommit {
    queues: Arc<Mutex<HashMap<Lane, Queue>>>,
}

impl RedisMessageStore {
    /// Commits the job in one of the next calls, and answers what the script said of it.
    pub(super) async fn submit(&self, job: Job) -> Reply {
        let lane = self.lane_of(job.keys.shard);
        let (answer, answered) = oneshot::channel();
        let bytes = job.messages.iter().map(|message| message.record.len()).sum();
        let starts_a_call = {
            let mut queues = self.group.queues.lock().unwrap_or_else(PoisonError::into_inner);
            let queue = queues.entry(lane).or_default();
            if queue.is_full() {
                return Err(HotError::Unavailable("too many commits wait; nothing was done".into()));
            }
            queue.push(Waiting { job, bytes, answer });
            let starts_a_call = queue.wants_worker();
            queue.workers += usize::from(starts_a_call);
            starts_a_call
        };
        if starts_a_call {
            // A task of its own: whoever asked may go away, and the others of the call must not suffer for it.
            tokio::spawn(self.clone().work(lane));
        }
        answered.await.unwrap_or_else(|_| Err(HotError::Unavailable("the commit was abandoned".into())))
    }

    /// Calls until nothing waits in the lane, or too little where another task calls, too.
    async fn work(self, lane: Lane) {
        while let Some(group) = self.group.next(lane) {
            self.commit_group(lane, group).await;
        }
    }

    async fn commit_group(&self, lane: Lane, group: Vec<Waiting>) {
        match self.call_commit_messages(lane, &group).await {
            Ok((lineage, replies)) if self.acknowledges_at_once() => {
                self.answer_each(lane, &lineage, group, replies);
            }
            Ok((lineage, replies)) => {
                // Others do not wait for the disk or the replicas of these.
                let store = self.clone();
                tokio::spawn(async move {
                    match store.pass_barrier(&lineage).await {
                        Ok(()) => store.answer_each(lane, &lineage, group, replies),
                        Err(error) => answer_all(group, &error),
                    }
                });
            }
            Err(error) => answer_all(group, &error),
        }
    }

    /// The replies, and the lineage that they are of.
    async fn call_commit_messages(
        &self,
        lane: Lane,
        group: &[Waiting],
    ) -> Result<(Lineage, Vec<Value>), HotError> {
        let mut lineage = self.current_lineage(lane).await?;
        let replies = match self.try_commit_messages(lane, &lineage, group).await {
            // Once more: where this writer has nothing to put back, it may go on.
            Err(HotError::LineageEnded) => {
                lineage = self.enter_lineage(lane).await?;
                self.try_commit_messages(lane, &lineage, group).await?
            }
            replies => replies?,
        };
        if replies.len() != group.len() {
            return Err(HotError::Refused("commit_messages: short reply".into()));
        }
        Ok((lineage, replies))
    }

    async fn try_commit_messages(
        &self,
        lane: Lane,
        lineage: &Lineage,
        group: &[Waiting],
    ) -> Result<Vec<Value>, HotError> {
        let now = group.iter().map(|waiting| waiting.job.now).max().unwrap_or_default();
        let script = &self.scripts.commit_messages;
        let messages: usize = group.iter().map(|waiting| waiting.job.messages.len()).sum();
        let bytes: usize = group.iter().map(|waiting| waiting.bytes).sum();
        let mut call = Cmd::with_capacity(6 + 2 * group.len() + messages, bytes + 128 * (group.len() + 1));
        // On a cluster all are of one shard.
        let guard = self.connection.guard(group[0].job.keys.shard);
        let keys = 1 + group.len() + usize::from(guard.is_some());
        call.arg("EVALSHA").arg(script.hash()).arg(keys).arg(lane.lineage());
        for Waiting { job, .. } in group {
            call.arg(job.keys.records());
        }
        call.arg(guard);
        call.arg(now.get()).arg(&*lineage.text).arg(messages);
        let mut spec = Vec::new();
        for Waiting { job, .. } in group {
            add_batch(&mut call, &mut spec, job.floor, job.messages.iter());
        }
        self.connection.evalsha(script, &call).await
    }

    fn answer_each(&self, lane: Lane, lineage: &Lineage, group: Vec<Waiting>, replies: Vec<Value>) {
        for (Waiting { job, answer, .. }, reply) in group.into_iter().zip(replies) {
            if let Value::Int(first) = reply {
                // Before anybody is told.
                self.lineages.acknowledge(lane, lineage, first.unsigned_abs(), &job);
            }
            // Nobody may wait any longer: then there is nobody to tell.
            let _ = answer.send(Ok(reply));
        }
    }
}

impl GroupCommit {
    fn next(&self, lane: Lane) -> Option<Vec<Waiting>> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = queues.get_mut(&lane).expect("a queue is there while a call is");
        queue.workers -= 1;
        if !queue.wants_worker() {
            return None;
        }
        let mut group = Vec::new();
        let (mut messages, mut bytes) = (0, 0);
        while let Some(next) = queue.waiting.front() {
            messages += next.job.messages.len();
            bytes += next.bytes;
            if !group.is_empty() && (messages > MESSAGES_MAX || bytes > BYTES_MAX) {
                break;
            }
            group.extend(queue.pop());
        }
        if group.is_empty() {
            queues.remove(&lane);
            return None;
        }
        queue.workers += 1;
        Some(group)
    }
}

fn answer_all(group: Vec<Waiting>, error: &HotError) {
    for waiting in group {
        let _ = waiting.answer.send(Err(error.clone()));
    }
}
