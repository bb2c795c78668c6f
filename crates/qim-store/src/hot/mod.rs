//! The hot tier: the last days of every conversation in Redis (>= 7.0), one server or a cluster.
//!
//! Every change is one Lua script, so that it happens whole or not at all; the layout is described at the top of
//! `lua/conversation.lua`.

mod archiving;
mod cluster;
mod commit;
mod connection;
mod deployment;
mod dialer;
mod dictionaries;
mod durability;
mod error;
mod fingerprint;
mod gc;
mod gc_claim;
mod group;
mod keys;
mod layout;
mod lease;
mod lineage;
mod losses;
mod page;
mod pieces;
mod presence;
mod recent;
mod restore;
mod sample;
mod script;
mod scripts;
mod settle;
mod single;
mod stats;

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use qim_core::{
    ClientTls, CommitDurability, Compression, Compressor, ConversationKey, Decompressor, RedisUrl,
    RetentionPolicy, ShardCount,
};

pub use archiving::{MarkOutcome, TrimOutcome, TrimRequest};
pub use commit::{CommitError, Committed, Dates, Draft};
pub use deployment::DeploymentError;
pub use dictionaries::HotDictionary;
pub use error::HotError;
pub use gc::{Due, GcReport};
pub use layout::{HotValue, Marks};
pub use lease::Fence;
pub use lineage::LINEAGE_WATCH_INTERVAL;
pub use losses::LossReport;
pub use page::{HotPage, PageStart};
pub use stats::{HotStats, SetAside};

use connection::Connection;
pub(crate) use lineage::{Archived, Founding, Lineage, PutBackState};
pub(crate) use restore::{Filling, Hole, PutBack};
pub(crate) use settle::{Settle, Settled};

use dictionaries::Kept;
use durability::Durability;
use group::GroupCommit;
use keys::{ConversationKeys, ShardKeys};
use lineage::Lineages;
use losses::Losses;
use scripts::Scripts;

/// The most records a script touches in one call, so that no script stalls Redis.
pub const SCRIPT_RECORDS_MAX: usize = 512;
/// Shards asked at once whether they are served: enough to have one of each node among them.
const SHARDS_ASKED: usize = 32;

/// The hot tier (ADR-0019: `RedisMessageStore`). Cheap to clone.
#[derive(Clone)]
pub struct RedisMessageStore {
    connection: Connection,
    scripts: Arc<Scripts>,
    group: GroupCommit,
    shards: ShardCount,
    retention: Arc<RetentionPolicy>,
    trim_window: Option<Duration>,
    compressor: Option<Arc<Compressor>>,
    decompressor: Arc<Decompressor>,
    kept: Arc<Kept>,
    lineages: Arc<Lineages>,
    losses: Arc<Losses>,
    durability: Arc<Durability>,
}

impl RedisMessageStore {
    /// A store that connects on its first call. `timeout` bounds each call.
    ///
    /// It expires nothing of class `default`, registers everything that expires for GC, and compresses nothing, until it
    /// is told otherwise by [`Self::with_retention`], [`Self::with_trim_window`] and [`Self::with_compression`].
    pub fn open(url: &RedisUrl, shards: ShardCount, timeout: Duration) -> Result<Self, HotError> {
        Self::open_with_tls(url, &ClientTls::default(), shards, timeout)
    }

    /// The same; says how connections are secured where the URL says that they are.
    pub fn open_with_tls(
        url: &RedisUrl,
        tls: &ClientTls,
        shards: ShardCount,
        timeout: Duration,
    ) -> Result<Self, HotError> {
        Ok(Self {
            connection: Connection::open(url, tls, timeout)?,
            scripts: Arc::new(Scripts::new()),
            group: GroupCommit::default(),
            shards,
            retention: Arc::default(),
            trim_window: None,
            compressor: None,
            decompressor: Arc::default(),
            kept: Arc::default(),
            lineages: Arc::new(Lineages::new()),
            losses: Arc::default(),
            durability: Arc::new(Durability::open(url, tls, timeout)?),
        })
    }

    /// Goes on with these certificates where a connection over TLS can be made with them; else nothing changes. Calls that are
    /// under way end on the connections that they began on.
    pub async fn renew_tls(&self, tls: &ClientTls) -> Result<(), HotError> {
        self.connection.renew_tls(tls).await?;
        self.durability.renew_tls(tls).await
    }

    /// Takes a Redis without a lineage for a new one, and not for one that lost everything. For who knows that it is.
    #[must_use]
    pub fn of_new_deployment(self) -> Self {
        self.set_founding(Founding::Yes);
        self
    }

    /// How many bytes of what was acknowledged lately are kept at most, to be put back where Redis loses it. 0: none. Holds
    /// for all clones.
    #[must_use]
    pub fn with_recent_bytes_max(self, bytes_max: usize) -> Self {
        self.lineages.limit.set(bytes_max);
        self
    }

    /// Says when commits are acknowledged: as soon as Redis has them, until it is told otherwise.
    /// [`Self::join_deployment`] finds out whether Redis can do that.
    #[must_use]
    pub fn with_durability(self, durability: CommitDurability) -> Self {
        Self { durability: Arc::new(self.durability.with_mode(durability)), ..self }
    }

    /// Commits date their records by this policy.
    #[must_use]
    pub fn with_retention(self, policy: RetentionPolicy) -> Self {
        Self { retention: Arc::new(policy), ..self }
    }

    /// Says that records leave this tier when they are older than `window`, so that those which would outlive it by a
    /// day or more are not registered in the expiry index: trimming comes first (SPEC A18).
    #[must_use]
    pub fn with_trim_window(self, window: Duration) -> Self {
        Self { trim_window: Some(window), ..self }
    }

    /// Says how commits store payloads. What is stored already stays as it is, and can be read.
    #[must_use]
    pub fn with_compression(self, compression: Compression) -> Self {
        let compressor = match compression {
            Compression::Off => None,
            Compression::Zstd => Some(Arc::default()),
        };
        Self { compressor, ..self }
    }

    /// Opens what was stored with any setting.
    pub(crate) fn decompressor(&self) -> &Decompressor {
        &self.decompressor
    }

    /// The policy that commits date their records by.
    pub fn retention(&self) -> &RetentionPolicy {
        &self.retention
    }

    /// How many virtual shards the keys are spread over.
    pub fn shards(&self) -> ShardCount {
        self.shards
    }

    /// Whether Redis answers now.
    pub async fn ping(&self) -> Result<(), HotError> {
        self.connection.ping().await
    }

    /// Whether any shard is served now. On a cluster some may be while others are not.
    pub async fn serves_a_shard(&self) -> bool {
        let asked = stream::iter(self.shards.all().map(async |shard| {
            let mut ask = redis::cmd("HLEN");
            self.connection.command::<u64>(ask.arg(ShardKeys(shard).stats())).await.is_ok()
        }));
        asked.buffer_unordered(SHARDS_ASKED).any(std::future::ready).await
    }

    /// Writes one field of a hash, also at the memory limit.
    async fn note(&self, key: &str, field: impl redis::ToRedisArgs, value: &str) -> Result<(), HotError> {
        self.connection.script(self.scripts.note.call().key(key).arg(field).arg(value)).await
    }

    fn keys(&self, conversation: &ConversationKey) -> ConversationKeys {
        ConversationKeys::new(self.shards, conversation)
    }
}

fn corrupt(conversation: &ConversationKey, reason: impl Into<String>) -> HotError {
    HotError::Corrupt { conversation: conversation.clone(), reason: reason.into() }
}
