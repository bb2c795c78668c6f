//! Puts back what was acknowledged and Redis has not got any more, under the same seqs.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use futures::future::join_all;
use qim_core::{ConversationKey, EncodedRecord, UnixMillis};
use redis::{Cmd, Value};

use super::commit::{Dates, read};
use super::fingerprint::Fingerprint;
use super::group::{EncodedMessage, Job, add_batch};
use super::keys::{ConversationKeys, Lane};
use super::pieces::stub_for;
use super::{HotError, Lineage, RedisMessageStore, SCRIPT_RECORDS_MAX, corrupt};
use crate::archive::StoredRecord;

/// A call with more is split, so that commits are not held up.
const BYTES_MAX: usize = 1024 * 1024;

/// Places of a conversation that are missing before what is to be put back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hole {
    /// Which conversation.
    pub(crate) conversation: ConversationKey,
    /// The last seq in the hot tier.
    pub(crate) last: u64,
    /// What is to be put back begins here.
    pub(crate) seq: u64,
    /// No other writer waits for less.
    pub(crate) is_lowest: bool,
}

/// What became of an attempt to put everything back.
#[derive(Debug, Default)]
pub(crate) struct PutBack {
    /// How old the lineage is, by the server's clock.
    pub(crate) age: Duration,
    /// All other writers that live have put back what they can.
    pub(crate) others_have_tried: bool,
    /// Records that were missing, and are there again.
    pub(crate) restored: u64,
    /// Seqs that hold another record than the one that was acknowledged.
    pub(crate) conflicts: Vec<(ConversationKey, u64)>,
    /// What could not be put back yet.
    pub(crate) holes: Vec<Hole>,
}

/// What a place is to hold.
pub(crate) enum Filling {
    /// This record, that the archive has.
    Archived(Box<StoredRecord>),
    /// Nothing: its record has expired.
    Expired,
    /// Nothing: its record is lost.
    Lost,
}

/// What was acknowledged of one conversation, ascending.
struct Backlog {
    keys: ConversationKeys,
    runs: VecDeque<(u64, Job)>,
}

/// Consecutive places of a conversation, as many as go in one call.
struct Batch {
    first: u64,
    jobs: Vec<Job>,
}

impl Batch {
    fn messages(&self) -> impl Iterator<Item = &EncodedMessage> + Clone {
        self.jobs.iter().flat_map(|job| &job.messages)
    }
}

impl Backlog {
    /// The next places, no more than there is room for; at least one job where `must`.
    fn next(&mut self, room: &mut Room, must: bool) -> Option<Batch> {
        let (first, job) = self.runs.front()?;
        if !must && !room.has_for(job) {
            return None;
        }
        let mut batch = Batch { first: *first, jobs: Vec::new() };
        let mut next = *first;
        while let Some((seq, job)) = self.runs.front()
            && *seq == next
            && (batch.jobs.is_empty() || room.has_for(job))
        {
            room.take(job);
            next += job.messages.len() as u64;
            batch.jobs.extend(self.runs.pop_front().map(|(_, job)| job));
        }
        Some(batch)
    }
}

/// What a call has room for still.
struct Room {
    messages: usize,
    bytes: usize,
}

impl Room {
    fn has_for(&self, job: &Job) -> bool {
        job.messages.len() <= self.messages && bytes(job) <= self.bytes
    }

    fn take(&mut self, job: &Job) {
        self.messages = self.messages.saturating_sub(job.messages.len());
        self.bytes = self.bytes.saturating_sub(bytes(job));
    }
}

fn bytes(job: &Job) -> usize {
    job.messages.iter().map(|message| message.record.len()).sum()
}

impl RedisMessageStore {
    /// Puts back what this writer acknowledged lately in a lane, as far as it goes on from what is there.
    pub(super) async fn put_back(&self, lane: Lane, lineage: &Lineage) -> Result<PutBack, HotError> {
        let mut backlogs = self.backlogs(lane);
        let mut report = PutBack::default();
        while !backlogs.is_empty() {
            let mut room = Room { messages: SCRIPT_RECORDS_MAX, bytes: BYTES_MAX };
            let mut batches: Vec<(String, ConversationKeys, Batch)> = Vec::new();
            for (id, backlog) in &mut backlogs {
                if let Some(batch) = backlog.next(&mut room, batches.is_empty()) {
                    batches.push((id.clone(), backlog.keys.clone(), batch));
                }
            }
            let writer = self.writer_token();
            let calls = batches.iter().map(|(_, keys, batch)| (keys, batch.first, batch.messages()));
            let (age, replies) = self.call_restore(lane, lineage, writer, calls).await?;
            report.age = age;
            for ((id, _, batch), reply) in batches.into_iter().zip(replies) {
                if take_reply(&mut report, &id, reply)? {
                    // What follows would only meet the same hole.
                    backlogs.remove(&id);
                }
                backlogs.retain(|_, backlog| !backlog.runs.is_empty());
                drop(batch);
            }
        }
        Ok(report)
    }

    /// By storage id; what was acknowledged first comes first.
    fn backlogs(&self, lane: Lane) -> BTreeMap<String, Backlog> {
        let mut backlogs: BTreeMap<String, Backlog> = BTreeMap::new();
        for (first, job) in self.lineages.with_recent(lane, |recent| recent.jobs().collect::<Vec<_>>()) {
            let keys = job.keys.clone();
            let backlog =
                backlogs.entry(keys.id.clone()).or_insert_with(|| Backlog { keys, runs: VecDeque::new() });
            backlog.runs.push_back((first, job));
        }
        for backlog in backlogs.values_mut() {
            backlog.runs.make_contiguous().sort_by_key(|(first, _)| *first);
        }
        backlogs
    }

    async fn call_restore<'a, M: Iterator<Item = &'a EncodedMessage> + Clone>(
        &self,
        lane: Lane,
        lineage: &Lineage,
        writer: &str,
        batches: impl Iterator<Item = (&'a ConversationKeys, u64, M)> + Clone,
    ) -> Result<(Duration, Vec<Value>), HotError> {
        let script = &self.scripts.restore_messages;
        let mut call = Cmd::new();
        call.arg("EVALSHA").arg(script.hash());
        let shard = batches.clone().next().map(|(keys, ..)| keys.shard);
        let guard = shard.and_then(|shard| self.connection.guard(shard));
        call.arg(2 + batches.clone().count() + usize::from(guard.is_some()));
        call.arg(lane.lineage()).arg(lane.pending());
        for (keys, ..) in batches.clone() {
            call.arg(keys.records());
        }
        call.arg(guard).arg(&*lineage.text).arg(writer);
        let mut spec = Vec::new();
        for (_, first, messages) in batches {
            call.arg(first);
            add_batch(&mut call, &mut spec, None, messages);
        }
        let mut replies: Vec<Value> = self.connection.evalsha(script, &call).await?;
        if replies.is_empty() {
            return Err(HotError::Refused("restore_messages: short reply".into()));
        }
        Ok((Duration::from_millis(read(replies.remove(0))?), replies))
    }

    /// Fills the places from `first` on, which must be the next one of the conversation, up to 512 of them. `not_before`
    /// dates those that stay empty.
    pub(crate) async fn fill(
        &self,
        conversation: &ConversationKey,
        lineage: &Lineage,
        first: u64,
        fillings: Vec<Filling>,
        not_before: UnixMillis,
    ) -> Result<(), HotError> {
        let keys = self.keys(conversation);
        let mut date = not_before;
        let messages: Vec<EncodedMessage> = fillings
            .into_iter()
            .map(|filling| match filling {
                Filling::Archived(record) => {
                    date = record.encoded.created_at();
                    self.as_stored(conversation, &record.encoded)
                }
                Filling::Expired => EncodedMessage::empty(date, Fingerprint::EXPIRED),
                Filling::Lost => EncodedMessage::empty(date, Fingerprint::LOST),
            })
            .collect();
        let batch = std::iter::once((&keys, first, messages.iter()));
        let (_, replies) = self.call_restore(self.lane(conversation), lineage, "", batch).await?;
        let mut report = PutBack::default();
        for reply in replies {
            take_reply(&mut report, &keys.id, reply)?;
        }
        if report.holes.is_empty() && report.conflicts.is_empty() {
            return Ok(());
        }
        Err(HotError::checking("the conversation changed while its places were filled"))
    }

    /// A record that was stored before, as it was then.
    pub(super) fn as_stored(
        &self,
        conversation: &ConversationKey,
        encoded: &EncodedRecord,
    ) -> EncodedMessage {
        let dates = Dates { created_at: encoded.created_at(), expires_at: encoded.expires_at() };
        let record = encoded.bytes().to_vec();
        EncodedMessage {
            collect_at: self.gc_date(dates),
            stub: stub_for(conversation, &record),
            fingerprint: Fingerprint::of(&record),
            record,
        }
    }

    /// Tries to put back what every lane has lost, and tells the others where all is there. Answers for each lane that
    /// has something left to do what that is. A lane that fails does not hold up the others.
    pub(crate) async fn put_back_all(&self) -> Vec<Result<(Lineage, PutBack), HotError>> {
        let lanes = self.lanes_in_use().into_iter().filter(|lane| !self.is_all_there(*lane));
        let results = join_all(lanes.map(|lane| self.put_back_lane(lane))).await;
        results.into_iter().filter_map(Result::transpose).collect()
    }

    async fn put_back_lane(&self, lane: Lane) -> Result<Option<(Lineage, PutBack)>, HotError> {
        let lineage = self.enter_lineage(lane).await?;
        if self.is_put_back(lane, &lineage) {
            return Ok(None);
        }
        let mut report = self.put_back(lane, &lineage).await?;
        if report.holes.is_empty() {
            self.pass_barrier(&lineage).await?;
            self.tell_put_back(lane, &lineage).await?;
        } else {
            report.others_have_tried = self.tell_tried(lane, &lineage).await?;
        }
        Ok(Some((lineage, report)))
    }
}

/// Adds what a conversation's reply says to the report. Whether there was a hole.
fn take_reply(report: &mut PutBack, id: &str, reply: Value) -> Result<bool, HotError> {
    let conversation = ConversationKey::from_storage_id(id)
        .map_err(|_| HotError::Refused(format!("{id:?} names no conversation")))?;
    let mut reply = read::<Vec<Value>>(reply)?.into_iter();
    let mut next = || reply.next().ok_or_else(|| HotError::Refused("restore_messages: short reply".into()));
    let kind: String = read(next()?)?;
    let is_hole = match kind.as_str() {
        "ok" => {
            report.restored += read::<u64>(next()?)?;
            false
        }
        "hole" => {
            report.restored += read::<u64>(next()?)?;
            let (seq, last): (u64, u64) = (read(next()?)?, read(next()?)?);
            let lowest: u64 = read(next()?)?;
            let conversation = conversation.clone();
            report.holes.push(Hole { conversation, last, seq, is_lowest: lowest == seq });
            true
        }
        // Somebody has to look; no other conversation waits for it.
        "corrupt" | "error" => {
            let error = corrupt(&conversation, read::<String>(next()?)?);
            tracing::error!(%error, "what was acknowledged cannot be put back");
            true
        }
        other => return Err(HotError::Refused(format!("restore_messages: unknown reply {other:?}"))),
    };
    while let Ok(seq) = next() {
        report.conflicts.push((conversation.clone(), read(seq)?));
    }
    Ok(is_hole)
}

impl EncodedMessage {
    /// A place without a record: a tombstone.
    fn empty(created_at: UnixMillis, fingerprint: Fingerprint) -> Self {
        let mut record = vec![0];
        record.extend_from_slice(&created_at.get().to_be_bytes()[2..]);
        record.extend_from_slice(fingerprint.as_bytes());
        Self { collect_at: None, record, stub: None, fingerprint }
    }
}
