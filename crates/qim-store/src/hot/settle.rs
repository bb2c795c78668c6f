use qim_core::{ConversationKey, UnixMillis};
use redis::Value;

use super::commit::read;
use super::{HotError, Lineage, RedisMessageStore, corrupt};

/// From where a conversation goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Settle {
    /// The last seq as the caller saw it.
    pub(crate) seen: u64,
    /// The last seq from here on.
    pub(crate) last: u64,
    /// No later record is older.
    pub(crate) not_before: UnixMillis,
    /// Nothing that was acknowledged can be missing any more: commits may go on.
    pub(crate) is_final: bool,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settled {
    /// It goes on from there.
    Done,
    /// The last seq is another one by now: look again.
    Moved,
    /// Hot records stand before the seqs that would be left out.
    Behind,
}

impl RedisMessageStore {
    /// Says from where a conversation goes on in this lineage.
    pub(crate) async fn settle(
        &self,
        conversation: &ConversationKey,
        lineage: &Lineage,
        Settle { seen, last, not_before, is_final }: Settle,
    ) -> Result<Settled, HotError> {
        let keys = self.keys(conversation);
        let mut call = self.scripts.settle_conversation.call();
        call.key(self.lane(conversation).lineage()).key(keys.records());
        call.key(self.connection.guard(keys.shard));
        call.arg(&*lineage.text).arg(seen).arg(last).arg(not_before.get()).arg(u8::from(is_final));
        let reply: Vec<Value> = self.connection.script(&call).await?;
        let mut reply = reply.into_iter();
        let kind: String = reply.next().map_or(Ok(String::new()), read)?;
        match kind.as_str() {
            "ok" => Ok(Settled::Done),
            "moved" => Ok(Settled::Moved),
            "behind" => Ok(Settled::Behind),
            "corrupt" => Err(corrupt(conversation, reply.next().map_or(Ok(String::new()), read)?)),
            other => Err(HotError::Refused(format!("settle_conversation: unknown reply {other:?}"))),
        }
    }

    /// Takes archived places, up to this seq, off the front of a conversation. Answers how many are left.
    pub(crate) async fn vacate(
        &self,
        conversation: &ConversationKey,
        lineage: &Lineage,
        upto: u64,
        now: UnixMillis,
    ) -> Result<u64, HotError> {
        let mut call = self.scripts.vacate_conversation.call();
        let keys = self.keys(conversation);
        call.key(self.lane(conversation).lineage()).key(keys.records());
        call.key(self.connection.guard(keys.shard));
        call.arg(&*lineage.text).arg(now.get()).arg(upto);
        self.connection.script(&call).await
    }
}
