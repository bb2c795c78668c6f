use std::borrow::Borrow;
use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use qim_core::{ConversationKey, Decompressor, Message, RetentionClass, StoredPayload, UnixMillis, codec};
use redis::Value;

use super::fingerprint::Fingerprint;
use super::group::{EncodedMessage, Job, push_spec};
use super::pieces::stub_for;
use super::{HotError, HotValue, Lineage, RedisMessageStore, SCRIPT_RECORDS_MAX, corrupt};

/// How often a commit is tried again when another writer changed the conversation between two tries.
const ATTEMPTS_MAX: usize = 32;
const DAY: Duration = Duration::from_hours(24);

/// A message to commit. Its expiry is not part of it: the store's policy decides that. Ids and content type must have
/// been validated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// Who sent it.
    pub sender: String,
    /// Identifies it for its sender within the conversation.
    pub client_msg_id: String,
    /// How long it is kept.
    pub class: RetentionClass,
    /// What the payload is.
    pub content_type: String,
    /// The body.
    pub payload: Bytes,
    /// When it was produced; its record is dated no earlier than the one before it.
    pub created_at: UnixMillis,
}

impl Draft {
    /// As [`Message::identity`].
    fn identity(&self) -> (&str, &str) {
        (&self.sender, &self.client_msg_id)
    }

    /// As [`Message::body`].
    fn body(&self) -> (RetentionClass, &str, &[u8]) {
        (self.class, &self.content_type, &self.payload)
    }
}

/// What became of a draft.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// Its place in the conversation.
    pub seq: u64,
    /// It had been committed before; nothing was written now.
    pub duplicate: bool,
    /// The dates of its record; `None` for a duplicate whose record has been collected since.
    pub dates: Option<Dates>,
}

/// When a record was created and when it expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dates {
    /// When it was produced.
    pub created_at: UnixMillis,
    /// When it expires; `None`: never by itself.
    pub expires_at: Option<UnixMillis>,
}

/// Why a batch was not committed. Nothing of it was.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CommitError {
    /// The client id of a draft was used before for a message that says something else.
    #[error("the client_msg_id was used before, for a message with another body (seq {seq})")]
    AlreadyExists {
        /// Which draft of the batch, from 0.
        index: usize,
        /// The message that has the id; 0 where it is an earlier one of the same batch.
        seq: u64,
    },
    /// The hot floor moved since the caller read it, so that what it asked the archive may be out of date.
    #[error("the hot floor moved to {floor}")]
    FloorMoved {
        /// Where it is now.
        floor: u64,
    },
    /// Redis may have lost data since the conversation was last settled: only who knows the archive can go on.
    #[error("the conversation was not settled since Redis may have lost data")]
    Doubted,
    /// The hot tier failed.
    #[error(transparent)]
    Hot(#[from] HotError),
}

/// A draft that has not been found committed yet.
struct Pending<'a> {
    index: usize,
    draft: &'a Draft,
    /// Made once, however often the commit is tried, unless its dictionary goes meanwhile.
    payload: StoredPayload,
    dates: Dates,
}

impl Pending<'_> {
    fn fields(&self) -> codec::Fields<'_> {
        let Self { draft, payload, dates, .. } = self;
        codec::Fields {
            sender: &draft.sender,
            client_msg_id: &draft.client_msg_id,
            class: draft.class,
            created_at: dates.created_at,
            expires_at: dates.expires_at,
            content_type: &draft.content_type,
            payload,
        }
    }
}

/// A draft that was committed before.
struct Known<V> {
    /// Among those pending.
    position: usize,
    seq: u64,
    /// What stands there; `None` where it was collected.
    value: Option<V>,
}

enum Reply {
    Committed(u64),
    Known(Vec<Known<Vec<u8>>>),
    OlderThan(UnixMillis),
}

impl RedisMessageStore {
    /// Commits drafts of one conversation (at most 500), all or none, in their order: gives them seqs without a gap,
    /// dates and expiries, registers expiries for GC (SPEC A8, A18), and marks the conversation for the archiver, in
    /// one atomic step. A draft that was committed before is answered as it was then. `floor`, where given, must still
    /// be the hot floor.
    pub async fn commit(
        &self,
        conversation: &ConversationKey,
        drafts: &[impl Borrow<Draft>],
        now: UnixMillis,
        floor: Option<u64>,
    ) -> Result<Vec<Committed>, CommitError> {
        let drafts: Vec<&Draft> = drafts.iter().map(Borrow::borrow).collect();
        self.commit_drafts(conversation, &drafts, now, floor).await
    }

    async fn commit_drafts(
        &self,
        conversation: &ConversationKey,
        drafts: &[&Draft],
        now: UnixMillis,
        floor: Option<u64>,
    ) -> Result<Vec<Committed>, CommitError> {
        assert!(!drafts.is_empty() && drafts.len() <= SCRIPT_RECORDS_MAX, "1..=512 drafts");
        let (mut pending, repeats) = self.distinct(conversation, drafts)?;
        let mut answers: Vec<Option<Committed>> = vec![None; drafts.len()];
        let mut not_before = UnixMillis::EPOCH;
        for _ in 0..ATTEMPTS_MAX {
            if pending.is_empty() {
                break;
            }
            self.date(conversation, &mut pending, not_before);
            if !self.keep_dictionaries(pending.iter().map(Pending::fields)).await? {
                for Pending { draft, payload, .. } in &mut pending {
                    *payload = self.pack(conversation, draft);
                }
                continue;
            }
            // From before the call: if Redis is replaced meanwhile, all is put back once more.
            let lineage = self.lineage(conversation).await?;
            match self.call_commit(conversation, &pending, now, floor).await? {
                Reply::OlderThan(date) => not_before = date,
                Reply::Known(known) => {
                    let Some(known) = self.complete_known(conversation, known).await? else { continue };
                    self.learn_for(known.iter().filter_map(|known| known.value.as_ref())).await?;
                    self.acknowledge_known(conversation, &lineage, &known, now);
                    settle_known(conversation, known, &self.decompressor, &mut pending, &mut answers)?;
                }
                Reply::Committed(first) => {
                    for (Pending { index, dates, .. }, seq) in pending.drain(..).zip(first..) {
                        answers[index] = Some(Committed { seq, duplicate: false, dates: Some(dates) });
                    }
                }
            }
        }
        if !pending.is_empty() {
            return Err(HotError::Unavailable("the conversation is too busy".into()).into());
        }
        for (index, original) in repeats {
            answers[index] = answers[original].clone().map(|answer| Committed { duplicate: true, ..answer });
        }
        Ok(answers.into_iter().map(|answer| answer.expect("every draft is answered")).collect())
    }

    /// The drafts to commit, and for each that repeats an earlier one of the batch, which.
    #[allow(clippy::type_complexity, reason = "a pair of lists, named in the sentence above")]
    fn distinct<'a>(
        &self,
        conversation: &ConversationKey,
        drafts: &[&'a Draft],
    ) -> Result<(Vec<Pending<'a>>, Vec<(usize, usize)>), CommitError> {
        if let [draft] = drafts {
            return Ok((vec![self.pending(conversation, 0, draft)], Vec::new()));
        }
        let mut first: HashMap<(&str, &str), usize> = HashMap::with_capacity(drafts.len());
        let (mut pending, mut repeats) = (Vec::with_capacity(drafts.len()), Vec::new());
        for (index, draft) in drafts.iter().enumerate() {
            let original = *first.entry(draft.identity()).or_insert(index);
            if original == index {
                pending.push(self.pending(conversation, index, draft));
            } else if draft.body() == drafts[original].body() {
                repeats.push((index, original));
            } else {
                return Err(CommitError::AlreadyExists { index, seq: 0 });
            }
        }
        Ok((pending, repeats))
    }

    fn pending<'a>(&self, conversation: &ConversationKey, index: usize, draft: &'a Draft) -> Pending<'a> {
        let dates = Dates { created_at: draft.created_at, expires_at: None };
        Pending { index, draft, payload: self.pack(conversation, draft), dates }
    }

    /// Dates the messages: none is older than `not_before` or the one ahead of it.
    fn date(&self, conversation: &ConversationKey, pending: &mut [Pending<'_>], not_before: UnixMillis) {
        let mut latest = not_before;
        for Pending { draft, dates, .. } in pending {
            latest = latest.max(draft.created_at);
            let expires_at = self.retention.expires_at(draft.class, conversation.tenant(), latest);
            *dates = Dates { created_at: latest, expires_at };
        }
    }

    async fn call_commit(
        &self,
        conversation: &ConversationKey,
        pending: &[Pending<'_>],
        now: UnixMillis,
        floor: Option<u64>,
    ) -> Result<Reply, CommitError> {
        let reply = self.submit(self.job(conversation, pending, now, floor)).await;
        match reply.map_err(CommitError::from).and_then(|reply| parse_reply(conversation, reply)) {
            Err(CommitError::Hot(HotError::OutOfMemory)) => {
                self.find_committed(conversation, self.job(conversation, pending, now, floor)).await
            }
            reply => reply,
        }
    }

    fn job(
        &self,
        conversation: &ConversationKey,
        pending: &[Pending<'_>],
        now: UnixMillis,
        floor: Option<u64>,
    ) -> Job {
        let encoded = pending.iter().map(|pending| {
            let record = codec::encode(conversation, pending.fields());
            EncodedMessage {
                collect_at: self.gc_date(pending.dates),
                stub: stub_for(conversation, &record),
                fingerprint: Fingerprint::of(&record),
                record,
            }
        });
        Job { keys: self.keys(conversation), now, floor, messages: encoded.collect() }
    }

    /// At the memory limit: a job whose messages were all committed before is answered, and changes nothing; any other is
    /// refused.
    async fn find_committed(&self, conversation: &ConversationKey, job: Job) -> Result<Reply, CommitError> {
        let lineage = self.current_lineage(self.lane_of(job.keys.shard)).await?;
        let mut call = self.scripts.find_committed.call();
        call.key(job.keys.records()).key(job.keys.shard.idle());
        let mut spec = Vec::new();
        push_spec(&mut spec, None, job.messages.iter());
        call.arg(&job.keys.id).arg(spec);
        for message in &job.messages {
            call.arg(message.in_place());
        }
        let reply = self.connection.script(&call).await?;
        self.pass_barrier(&lineage).await?;
        match parse_reply(conversation, reply)? {
            Reply::Known(known) if known.len() == job.messages.len() => Ok(Reply::Known(known)),
            _ => Err(HotError::OutOfMemory.into()),
        }
    }

    /// With what is in pieces; `None` where that was removed meanwhile: then the script has another answer.
    async fn complete_known(
        &self,
        conversation: &ConversationKey,
        known: Vec<Known<Vec<u8>>>,
    ) -> Result<Option<Vec<Known<HotValue>>>, HotError> {
        let mut completed = Vec::with_capacity(known.len());
        for Known { position, seq, value } in known {
            let value = match value {
                None => None,
                Some(value) => match self.complete_one(conversation, seq, value).await? {
                    None => return Ok(None),
                    value => value,
                },
            };
            completed.push(Known { position, seq, value });
        }
        Ok(Some(completed))
    }

    /// What was committed before is about to be acknowledged by this writer as well: the answer of whoever committed it may
    /// have been lost on its way, and then nobody else would put it back.
    fn acknowledge_known(
        &self,
        conversation: &ConversationKey,
        lineage: &Lineage,
        known: &[Known<HotValue>],
        now: UnixMillis,
    ) {
        for Known { seq, value, .. } in known {
            if let Some(HotValue::Record(record)) = value {
                let messages = vec![self.as_stored(conversation, &record.encoded)];
                let job = Job { keys: self.keys(conversation), now, floor: None, messages };
                self.lineages.acknowledge(self.lane(conversation), lineage, *seq, &job);
            }
        }
    }

    /// When GC has to collect the record; `None` where it never expires, or where trimming comes first (SPEC A18).
    pub(super) fn gc_date(&self, dates: Dates) -> Option<UnixMillis> {
        let expires_at = dates.expires_at?;
        let retention = expires_at.since(dates.created_at);
        let trimmed_first = self.trim_window.is_some_and(|window| retention >= window + DAY);
        (!trimmed_first).then_some(expires_at)
    }
}

fn dates<P>(message: &Message<P>) -> Dates {
    Dates { created_at: message.created_at, expires_at: message.expires_at }
}

/// Answers the drafts that the script found committed, and takes them off the list.
fn settle_known(
    conversation: &ConversationKey,
    known: Vec<Known<HotValue>>,
    decompressor: &Decompressor,
    pending: &mut Vec<Pending<'_>>,
    answers: &mut [Option<Committed>],
) -> Result<(), CommitError> {
    for Known { position, seq, value } in known {
        let (index, draft) = (pending[position].index, pending[position].draft);
        let Some(value) = value else {
            answers[index] = Some(Committed { seq, duplicate: true, dates: None });
            continue;
        };
        let found = match value {
            HotValue::Record(found) => found.encoded.message().open(decompressor).ok(),
            HotValue::Collected { .. } | HotValue::Damaged { .. } => None,
        };
        let Some(found) = found else {
            return Err(corrupt(conversation, format!("the record at seq {seq} cannot be read")).into());
        };
        // Not `assert_eq`, which would print ids.
        assert!(draft.identity() == found.identity(), "the script compares identities");
        if draft.body() == found.body() {
            answers[index] = Some(Committed { seq, duplicate: true, dates: Some(dates(&found)) });
        } else {
            return Err(CommitError::AlreadyExists { index, seq });
        }
    }
    pending.retain(|pending| answers[pending.index].is_none());
    Ok(())
}

fn parse_reply(conversation: &ConversationKey, reply: Value) -> Result<Reply, CommitError> {
    if let Value::Int(_) = reply {
        return Ok(Reply::Committed(read(reply)?));
    }
    let mut reply = read::<Vec<Value>>(reply)?.into_iter();
    let mut next = || reply.next().ok_or_else(|| HotError::Refused("commit_messages: short reply".into()));
    let kind: String = read(next()?)?;
    match kind.as_str() {
        "date" => Ok(Reply::OlderThan(UnixMillis::new(read(next()?)?))),
        "floor" => Err(CommitError::FloorMoved { floor: read(next()?)? }),
        "doubt" => Err(CommitError::Doubted),
        "corrupt" => Err(corrupt(conversation, read::<String>(next()?)?).into()),
        "error" => Err(HotError::from_text(read(next()?)?).into()),
        "known" => {
            let mut known = Vec::new();
            while let Ok(position) = next() {
                let position: usize = read(position)?;
                let (seq, value) = (read(next()?)?, read::<Vec<u8>>(next()?)?);
                let value = Some(value).filter(|value| !value.is_empty());
                known.push(Known { position: position - 1, seq, value });
            }
            Ok(Reply::Known(known))
        }
        other => Err(HotError::Refused(format!("commit_messages: unknown reply {other:?}")).into()),
    }
}

pub(super) fn read<T: redis::FromRedisValue>(value: Value) -> Result<T, HotError> {
    T::from_redis_value(value).map_err(|error| HotError::Refused(format!("unexpected reply: {error}")))
}
