use std::collections::BTreeMap;

use qim_core::{ConversationKey, UnixMillis};

use super::keys::{ConversationKeys, ShardKeys, parse_member};
use super::{HotError, RedisMessageStore, SCRIPT_RECORDS_MAX};

/// Entries looked up at once.
const BATCH: usize = SCRIPT_RECORDS_MAX;
/// Records that one call collects: it takes Redis about as long as a call that commits, so that a commit which comes
/// meanwhile hardly waits.
const CALL_RECORDS_MAX: usize = 28;

/// What a call collects: seqs by conversation.
type Group = Vec<(ConversationKeys, Vec<u64>)>;

/// What a GC pass over one shard did (SPEC A9, A17).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GcReport {
    /// Expired records removed: result 1.
    pub collected: u64,
    /// Entries whose record is held or not due; put right: result 0.
    pub not_due: u64,
    /// Entries without a record, cleared: result 2.
    pub stale: u64,
    /// Entries set aside as corrupt; nothing of theirs was deleted.
    pub set_aside: u64,
    /// The batch was full: more may be due.
    pub more: bool,
}

impl GcReport {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            collected: self.collected + other.collected,
            not_due: self.not_due + other.not_due,
            stale: self.stale + other.stale,
            set_aside: self.set_aside + other.set_aside,
            more: self.more || other.more,
        }
    }
}

/// Expired records of one shard: at most a batch.
#[derive(Debug)]
pub struct Due {
    shard: ShardKeys,
    members: Vec<Vec<u8>>,
}

impl RedisMessageStore {
    /// Collects one batch of a shard's records that are due at `now`. One bad entry never stops the rest (SPEC A17).
    pub async fn collect_expired(&self, shard: u16, now: UnixMillis) -> Result<GcReport, HotError> {
        self.collect_due(self.due(shard, now).await?, now).await
    }

    /// Which of a shard's records are due at `now`: one small command where none is.
    pub async fn due(&self, shard: u16, now: UnixMillis) -> Result<Due, HotError> {
        let shard = ShardKeys(shard);
        let mut due = redis::cmd("ZRANGE");
        due.arg(shard.gc()).arg("-inf").arg(now.get()).arg("BYSCORE").arg("LIMIT").arg(0).arg(BATCH);
        Ok(Due { shard, members: self.connection.command(&due).await? })
    }

    /// Collects what [`Self::due`] found at `now`, or may have been collected by another since.
    pub async fn collect_due(&self, due: Due, now: UnixMillis) -> Result<GcReport, HotError> {
        let Due { shard, members } = due;
        let more = members.len() == BATCH;
        let mut report = GcReport { more, ..GcReport::default() };
        let mut conversations: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for member in members {
            match std::str::from_utf8(&member).ok().and_then(parse_member) {
                Some((id, seq)) => conversations.entry(id.to_owned()).or_default().push(seq),
                None => report.set_aside += self.set_entry_aside(shard, member, now).await?,
            }
        }
        for group in groups(shard, conversations) {
            report = report.plus(self.collect(shard, group, now).await?);
        }
        Ok(report)
    }

    async fn collect(&self, shard: ShardKeys, group: Group, now: UnixMillis) -> Result<GcReport, HotError> {
        let mut call = self.scripts.gc_history_record.call();
        call.key(shard.gc()).key(shard.set_aside()).key(shard.stats()).key(shard.idle());
        call.arg(now.get());
        for (keys, seqs) in &group {
            call.key(keys.records()).arg(&keys.id).arg(seqs.len()).arg(seqs);
        }
        call.key(self.connection.guard(shard));
        let results: Vec<i64> = self.connection.script(&call).await?;
        let mut report = GcReport::default();
        let entries = group.iter().flat_map(|(keys, seqs)| seqs.iter().map(move |seq| (keys, seq)));
        for (result, (keys, seq)) in results.into_iter().zip(entries) {
            match result {
                1 => report.collected += 1,
                0 => report.not_due += 1,
                2 => report.stale += 1,
                _ => {
                    report.set_aside += 1;
                    let conversation = ConversationKey::from_storage_id(&keys.id).ok();
                    tracing::error!(
                        ?conversation,
                        seq,
                        "GC entry is corrupt: set aside, its record was not deleted"
                    );
                }
            }
        }
        Ok(report)
    }

    /// For an entry that names no record at all.
    async fn set_entry_aside(
        &self,
        shard: ShardKeys,
        member: Vec<u8>,
        now: UnixMillis,
    ) -> Result<u64, HotError> {
        tracing::error!(member = ?String::from_utf8_lossy(&member), "GC entry names no record: set aside");
        self.note(&shard.set_aside(), &member, &format!("{now} gc the entry names no record")).await?;
        self.connection.command::<()>(redis::cmd("ZREM").arg(shard.gc()).arg(&member)).await?;
        Ok(1)
    }
}

/// At most [`CALL_RECORDS_MAX`] in each. An entry in the index of another shard than its conversation's names no record
/// there.
fn groups(shard: ShardKeys, conversations: BTreeMap<String, Vec<u64>>) -> Vec<Group> {
    let (mut groups, mut room) = (Vec::<Group>::new(), 0);
    for (id, seqs) in conversations {
        let mut seqs = &seqs[..];
        while !seqs.is_empty() {
            if room == 0 {
                groups.push(Group::new());
                room = CALL_RECORDS_MAX;
            }
            let (now, later) = seqs.split_at(room.min(seqs.len()));
            let group = groups.last_mut().expect("one was added");
            group.push((ConversationKeys { shard, id: id.clone() }, now.to_vec()));
            (seqs, room) = (later, room - now.len());
        }
    }
    groups
}
