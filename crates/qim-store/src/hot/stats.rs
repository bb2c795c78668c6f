use futures::{StreamExt, TryStreamExt, stream};
use qim_core::{ConversationKey, UnixMillis};

use super::keys::ShardKeys;
use super::{HotError, RedisMessageStore};

/// Shards asked at once.
const CONCURRENCY: usize = 64;
/// Reasons told for one conversation.
const REASONS_MAX: usize = 10;

/// What the hot tier holds and what waits in it, over all shards.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HotStats {
    /// Records.
    pub records: u64,
    /// Records that the archive has not got.
    pub unarchived: u64,
    /// When the conversation that waits longest for its copy was due; `None`: none waits.
    pub unarchived_since: Option<UnixMillis>,
    /// Entries of the expiry index whose record has expired.
    pub gc_due: u64,
    /// The earliest expiry among them.
    pub gc_due_since: Option<UnixMillis>,
    /// When the first record of the conversation that waits longest for its trim was created.
    pub oldest_created_at: Option<UnixMillis>,
    /// Entries set aside.
    pub set_aside: u64,
}

/// Something damaged, named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    /// The conversation; `None` where not even that can be read.
    pub conversation: Option<ConversationKey>,
    /// The record; `None` where the whole conversation is meant.
    pub seq: Option<u64>,
    /// When, where and why.
    pub reason: String,
}

impl RedisMessageStore {
    /// Sums over all shards. One call a shard.
    pub async fn stats(&self, now: UnixMillis) -> Result<HotStats, HotError> {
        let shards = stream::iter(self.shards.all().map(|shard| self.shard_stats(ShardKeys(shard), now)));
        let (counters, stats) = shards
            .buffer_unordered(CONCURRENCY)
            .try_fold((Counters::default(), HotStats::default()), |(counters, stats), (c, s)| {
                std::future::ready(Ok((counters.plus(c), stats.plus(s))))
            })
            .await?;
        let less = |count: u64| counters.committed.saturating_sub(count);
        Ok(HotStats { records: less(counters.removed), unarchived: less(counters.archived), ..stats })
    }

    /// Records ever committed, by the counters of these shards. One command a shard. Of all shards the sum is right; of
    /// some it is their share at a guess, since a call with several conversations counts them all in one shard.
    pub async fn committed(&self, shards: impl Iterator<Item = u16>) -> Result<u64, HotError> {
        stream::iter(shards)
            .map(async |shard| {
                let count: Option<u64> = self
                    .connection
                    .command(redis::cmd("HGET").arg(ShardKeys(shard).stats()).arg("committed"))
                    .await?;
                Ok(count.unwrap_or(0))
            })
            .buffer_unordered(CONCURRENCY)
            .try_fold(0, |sum, count| std::future::ready(Ok(sum + count)))
            .await
    }

    /// Counters, and all that does not follow from them.
    async fn shard_stats(&self, shard: ShardKeys, now: UnixMillis) -> Result<(Counters, HotStats), HotError> {
        let mut call = self.scripts.shard_stats.call();
        call.key(shard.stats()).key(shard.gc()).key(shard.unarchived()).key(shard.trim());
        call.key(shard.set_aside()).arg(now.get());
        let (committed, removed, archived, gc_due, set_aside, gc, unarchived, trim): ShardReply =
            self.connection.script(&call).await?;
        let stats = HotStats {
            records: 0,
            unarchived: 0,
            unarchived_since: date(&unarchived).filter(|since| *since <= now),
            gc_due,
            gc_due_since: date(&gc).filter(|_| gc_due > 0),
            oldest_created_at: date(&trim),
            set_aside,
        };
        Ok((Counters { committed, removed, archived }, stats))
    }

    /// What was committed before this is in the archive, by the clock of whoever committed it; `now` where nothing waits
    /// for its copy. A command a shard.
    pub(crate) async fn archived_to(&self, now: UnixMillis) -> Result<UnixMillis, HotError> {
        stream::iter(self.shards.all())
            .map(|shard| self.lowest_unarchived(ShardKeys(shard)))
            .buffer_unordered(CONCURRENCY)
            .try_fold(now, |earliest, lowest| {
                std::future::ready(Ok(lowest.map_or(earliest, |lowest| earliest.min(lowest))))
            })
            .await
    }

    async fn lowest_unarchived(&self, shard: ShardKeys) -> Result<Option<UnixMillis>, HotError> {
        let mut call = self.scripts.waiting_since.call();
        call.key(shard.unarchived()).key(shard.aside());
        let since: String = self.connection.script(&call).await?;
        Ok(date(&since))
    }

    /// Memory used by Redis and its limit, in bytes; no limit is `None`. On a cluster: of the node that is fullest.
    pub async fn memory(&self) -> Result<(u64, Option<u64>), HotError> {
        let info = self.connection.info("memory").await?;
        let field = |name: &str| -> Vec<u64> {
            let values = info.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            values.filter_map(|value| value.trim().parse().ok()).collect()
        };
        let nodes = field("used_memory").into_iter().zip(field("maxmemory"));
        let fullest =
            nodes.max_by_key(|(used, limit)| used.saturating_mul(1000) / (*limit).max(1)).unwrap_or((0, 0));
        Ok((fullest.0, Some(fullest.1).filter(|limit| *limit > 0)))
    }

    /// Memory that one conversation takes, with all that belongs to it but its index entries and the pieces of
    /// large records (to find those takes a look at every record), in bytes.
    pub async fn conversation_bytes(&self, conversation: &ConversationKey) -> Result<u64, HotError> {
        let keys = self.keys(conversation);
        let mut bytes = 0;
        for key in [keys.records(), keys.fingerprints()] {
            let mut usage = redis::cmd("MEMORY");
            usage.arg("USAGE").arg(key).arg("SAMPLES").arg(5);
            bytes += self.connection.command::<Option<u64>>(&usage).await?.unwrap_or(0);
        }
        Ok(bytes)
    }

    /// What is set aside in this shard.
    pub async fn set_aside(&self, shard: u16) -> Result<Vec<SetAside>, HotError> {
        let entries: Vec<(Vec<u8>, String)> =
            self.connection.command(redis::cmd("HGETALL").arg(ShardKeys(shard).set_aside())).await?;
        let named = entries.into_iter().map(|(name, reason)| {
            let name = String::from_utf8_lossy(&name).into_owned();
            let (id, seq) = name.rsplit_once('\0').unwrap_or((&name, ""));
            let seq = seq.parse().ok();
            SetAside { conversation: ConversationKey::from_storage_id(id).ok(), seq, reason }
        });
        Ok(named.collect())
    }

    /// What of this conversation is set aside and why; `None` when nothing is.
    pub async fn set_aside_reason(&self, conversation: &ConversationKey) -> Result<Option<String>, HotError> {
        let shard = self.shards.shard_of(conversation);
        let entries = self.set_aside(shard).await?;
        let own = entries.into_iter().filter(|entry| entry.conversation.as_ref() == Some(conversation));
        let told: Vec<String> = own
            .take(REASONS_MAX)
            .map(|entry| entry.seq.map_or(entry.reason.clone(), |seq| format!("seq {seq}: {}", entry.reason)))
            .collect();
        Ok((!told.is_empty()).then(|| told.join("; ")))
    }
}

/// What `shard_stats.lua` returns.
type ShardReply = (u64, u64, u64, u64, u64, String, String, String);

/// A score, which is milliseconds; nothing for none.
fn date(score: &str) -> Option<UnixMillis> {
    let score: f64 = score.parse().ok()?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "scores are milliseconds")]
    Some(UnixMillis::new(score.max(0.0) as u64))
}

/// What only grows. A call that commits to many shards counts for one of them, so only the sum over all shards means
/// something.
#[derive(Clone, Copy, Default)]
struct Counters {
    committed: u64,
    removed: u64,
    archived: u64,
}

impl Counters {
    fn plus(self, other: Self) -> Self {
        Self {
            committed: self.committed + other.committed,
            removed: self.removed + other.removed,
            archived: self.archived + other.archived,
        }
    }
}

impl HotStats {
    fn plus(self, other: Self) -> Self {
        let earlier = |a: Option<UnixMillis>, b: Option<UnixMillis>| a.into_iter().chain(b).min();
        Self {
            records: self.records + other.records,
            unarchived: self.unarchived + other.unarchived,
            unarchived_since: earlier(self.unarchived_since, other.unarchived_since),
            gc_due: self.gc_due + other.gc_due,
            gc_due_since: earlier(self.gc_due_since, other.gc_due_since),
            oldest_created_at: earlier(self.oldest_created_at, other.oldest_created_at),
            set_aside: self.set_aside + other.set_aside,
        }
    }
}
