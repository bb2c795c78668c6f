use qim_core::{ConversationKey, UnixMillis};
use redis::Value;

use super::commit::read;
use super::keys::ShardKeys;
use super::{Fence, HotError, RedisMessageStore, corrupt};

/// Where a conversation stands after its archived mark moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MarkOutcome {
    /// The mark.
    pub archived: u64,
    /// The highest seq.
    pub last: u64,
}

/// What to trim from the front of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrimRequest {
    /// Where the caller saw the floor; it must still stand.
    pub floor: u64,
    /// The highest seq whose archive copy the caller has just read back.
    pub upto: u64,
    /// Records created at or before this have left the hot window.
    pub cutoff: UnixMillis,
    /// When to look again, on the scale of `cutoff`, where the front is due and may not go yet.
    pub retry_at: UnixMillis,
}

/// What a trim did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrimOutcome {
    /// Records left the hot tier, maybe none.
    Trimmed {
        /// How many places.
        removed: u64,
        /// The floor now.
        floor: u64,
        /// The next record may be due too: call again.
        more: bool,
    },
    /// Another trim moved the floor: read again.
    FloorMoved,
}

impl RedisMessageStore {
    /// Conversations of a shard with records that the archive has not got, those that wait longest first; only those
    /// whose turn came at or before `due`.
    pub async fn unarchived(
        &self,
        shard: u16,
        due: UnixMillis,
        limit: usize,
    ) -> Result<Vec<ConversationKey>, HotError> {
        self.indexed(&ShardKeys(shard).unarchived(), upto(due), limit).await
    }

    /// Conversations of a shard that are entered as due later than `limit_at`, and not because they were set aside, or later
    /// than `aside_until`, for which nobody is set aside: by a daemon whose clock was ahead. Whoever waited for their time
    /// would leave them without a copy for as long as that clock was wrong. Twice `limit` of them at most.
    pub async fn unarchived_ahead(
        &self,
        shard: u16,
        limit_at: UnixMillis,
        aside_until: UnixMillis,
        limit: usize,
    ) -> Result<Vec<ConversationKey>, HotError> {
        let keys = ShardKeys(shard);
        let range = (format!("({limit_at}"), aside_until.to_string());
        let ahead = self.indexed(&keys.unarchived(), range, limit).await?;
        let beyond = (format!("({aside_until}"), "+inf".to_owned());
        let mut left = self.indexed(&keys.unarchived(), beyond, limit).await?;
        for conversation in ahead {
            let field = format!("{}\0", self.keys(&conversation).id);
            let mut is_aside = redis::cmd("HEXISTS");
            if !self.connection.command::<bool>(is_aside.arg(keys.set_aside()).arg(field)).await? {
                left.push(conversation);
            }
        }
        Ok(left)
    }

    /// Conversations of a shard whose first record was created at or before `cutoff`, the oldest first.
    pub async fn trim_candidates(
        &self,
        shard: u16,
        cutoff: UnixMillis,
        limit: usize,
    ) -> Result<Vec<ConversationKey>, HotError> {
        self.indexed(&ShardKeys(shard).trim(), upto(cutoff), limit).await
    }

    async fn indexed(
        &self,
        key: &str,
        (from, to): (String, String),
        limit: usize,
    ) -> Result<Vec<ConversationKey>, HotError> {
        let mut range = redis::cmd("ZRANGE");
        range.arg(key).arg(from).arg(to).arg("BYSCORE").arg("LIMIT").arg(0).arg(limit);
        let members: Vec<Vec<u8>> = self.connection.command(&range).await?;
        let mut conversations = Vec::with_capacity(members.len());
        for member in members {
            let id = std::str::from_utf8(&member).ok();
            if let Some(conversation) = id.and_then(|id| ConversationKey::from_storage_id(id).ok()) {
                conversations.push(conversation);
            } else {
                // It would stand in the way for ever, and there is no conversation behind it.
                tracing::error!(key, member = ?String::from_utf8_lossy(&member), "index entry names no conversation");
                self.connection.command::<()>(redis::cmd("ZREM").arg(key).arg(&member)).await?;
            }
        }
        Ok(conversations)
    }

    /// Says that every record up to `mark` is durable in the archive, or has expired. Nothing changes where Redis has lost
    /// some of these since they were read.
    pub async fn mark_archived(
        &self,
        conversation: &ConversationKey,
        fence: &Fence,
        mark: u64,
    ) -> Result<MarkOutcome, HotError> {
        let keys = self.keys(conversation);
        let shard = keys.shard;
        let mut call = self.scripts.mark_archived.call();
        call.key(keys.records()).key(shard.unarchived()).key(shard.stats());
        call.key(shard.lease()).key(shard.trim()).key(shard.set_aside()).key(shard.idle()).key(shard.aside());
        call.arg(&keys.id).arg(&fence.token).arg(mark);
        let reply = self.connection.script(&call).await?;
        match accepted(conversation, reply)?.as_slice() {
            [archived, last] => Ok(MarkOutcome { archived: *archived, last: *last }),
            other => Err(HotError::Refused(format!("mark_archived: unexpected reply {other:?}"))),
        }
    }

    /// Removes what left the hot window from the front of a conversation (SPEC A16, A20).
    pub async fn trim(
        &self,
        conversation: &ConversationKey,
        fence: &Fence,
        request: TrimRequest,
        now: UnixMillis,
    ) -> Result<TrimOutcome, HotError> {
        let keys = self.keys(conversation);
        let shard = keys.shard;
        let mut call = self.scripts.trim_hot_history.call();
        call.key(keys.records()).key(keys.fingerprints()).key(shard.gc()).key(shard.unarchived());
        call.key(shard.trim()).key(shard.stats()).key(shard.lease()).key(shard.idle());
        call.key(self.connection.guard(shard));
        call.arg(&keys.id).arg(&fence.token).arg(now.get()).arg(request.cutoff.get());
        call.arg(request.upto).arg(request.floor).arg(request.retry_at.get());
        let reply = self.connection.script(&call).await?;
        match accepted(conversation, reply)?.as_slice() {
            [removed, floor, _last, more] => {
                Ok(TrimOutcome::Trimmed { removed: *removed, floor: *floor, more: *more == 1 })
            }
            [_floor] => Ok(TrimOutcome::FloorMoved),
            other => Err(HotError::Refused(format!("trim_hot_history: unexpected reply {other:?}"))),
        }
    }

    /// Names a conversation that cannot be carried on with, and puts it off: its next copy until `copy_at`, its next
    /// trim until `trim_at`, which is on the scale of [`TrimRequest::cutoff`].
    pub async fn set_conversation_aside(
        &self,
        conversation: &ConversationKey,
        fence: &Fence,
        reason: &str,
        now: UnixMillis,
        (copy_at, trim_at): (UnixMillis, UnixMillis),
    ) -> Result<(), HotError> {
        let keys = self.keys(conversation);
        let shard = keys.shard;
        let mut call = self.scripts.set_aside_conversation.call();
        call.key(shard.set_aside())
            .key(shard.unarchived())
            .key(shard.trim())
            .key(shard.lease())
            .key(shard.aside());
        call.arg(&keys.id).arg(&fence.token).arg(now.get()).arg(copy_at.get()).arg(reason).arg(trim_at.get());
        match self.connection.script::<u64>(&call).await? {
            0 => Err(HotError::Fenced),
            _ => Ok(()),
        }
    }

    /// Names a record that was found damaged when it was read, so that it is counted and shown.
    pub async fn set_record_aside(
        &self,
        conversation: &ConversationKey,
        seq: u64,
        reason: &str,
        now: UnixMillis,
    ) -> Result<(), HotError> {
        let keys = self.keys(conversation);
        let field = format!("{}\0{seq}", keys.id);
        self.note(&keys.shard.set_aside(), field, &format!("{now} read {reason}")).await
    }
}

/// All scores up to this one.
fn upto(time: UnixMillis) -> (String, String) {
    ("-inf".to_owned(), time.to_string())
}

/// The numbers behind `ok` or `floor`.
fn accepted(conversation: &ConversationKey, reply: Vec<Value>) -> Result<Vec<u64>, HotError> {
    let mut reply = reply.into_iter();
    let kind: String = reply.next().map_or(Ok(String::new()), read)?;
    match kind.as_str() {
        "ok" | "floor" => reply.map(read).collect(),
        "fenced" => Err(HotError::Fenced),
        "corrupt" => Err(corrupt(conversation, reply.next().map_or(Ok(String::new()), read)?)),
        other => Err(HotError::Refused(format!("unknown reply {other:?}"))),
    }
}
