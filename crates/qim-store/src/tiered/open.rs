use std::time::Duration;

use qim_core::{
    ArchiveUrl, ClientTls, CommitDurability, Compression, RedisUrl, RetentionDays, RetentionPolicy,
    ShardCount,
};

use super::{TierError, TieredMessageStore};
use crate::archive::{self, ArchiveError, ArchiveOptions};
use crate::hot::{DeploymentError, Founding, RedisMessageStore};

/// What both daemons are told about the two tiers.
#[derive(Debug, Clone)]
pub struct TierOptions<'a> {
    /// Where the hot tier is.
    pub redis_url: &'a RedisUrl,
    /// How connections to it are secured, where its URL says that they are.
    pub redis_tls: &'a ClientTls,
    /// The longest that one call to Redis takes.
    pub redis_timeout: Duration,
    /// How many virtual shards the data has.
    pub shards: ShardCount,
    /// Where the archive is.
    pub archive_url: &'a ArchiveUrl,
    /// How connections to it are secured, where its URL says that they are.
    pub archive_tls: &'a ClientTls,
    /// The longest that one call to the archive takes.
    pub archive_timeout: Duration,
    /// How long class `default` is kept (SPEC A7: whoever assembles a service says so).
    pub retention: RetentionDays,
    /// How long the hot tier keeps a record.
    pub hot_window: Duration,
    /// How commits store payloads; of no concern to whoever commits nothing.
    pub compression: Compression,
    /// When commits are acknowledged; of no concern to whoever commits nothing.
    pub durability: CommitDurability,
    /// How many bytes of acknowledged messages are remembered; of no concern to whoever commits nothing.
    pub recent_bytes_max: usize,
}

/// Both tiers, and what is worth saying about them.
pub struct OpenedTiers {
    /// The tiers.
    pub store: TieredMessageStore,
    /// What does not keep data as safe as it could.
    pub warnings: Vec<String>,
    /// Why the archive does not answer; all else works without it.
    pub archive_unavailable: Option<String>,
}

/// Why the tiers cannot be worked with.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The hot tier is not there, or is not fit.
    #[error("hot tier at {url}")]
    Hot {
        /// Where, without its password.
        url: String,
        /// What is wrong.
        source: DeploymentError,
    },
    /// The archive is there, and cannot be used.
    #[error("archive at {url}")]
    Archive {
        /// Where, without its password.
        url: String,
        /// What is wrong.
        source: ArchiveError,
    },
}

impl TieredMessageStore {
    /// Opens both tiers. The hot one has to be there and fit; the archive may come later.
    pub async fn open(options: TierOptions<'_>) -> Result<OpenedTiers, OpenError> {
        let hot_error = |source| OpenError::Hot { url: options.redis_url.to_string(), source };
        let (url, tls) = (options.redis_url, options.redis_tls);
        let hot = RedisMessageStore::open_with_tls(url, tls, options.shards, options.redis_timeout)
            .map_err(|error| hot_error(error.into()))?
            .with_retention(RetentionPolicy::from_days(options.retention))
            .with_compression(options.compression)
            .with_durability(options.durability)
            .with_recent_bytes_max(options.recent_bytes_max);
        let warnings = hot.join_deployment().await.map_err(hot_error)?;

        let archive_error = |source| OpenError::Archive { url: options.archive_url.to_string(), source };
        let archive_options =
            ArchiveOptions { timeout: options.archive_timeout, tls: Some(options.archive_tls) };
        let archive = archive::open(options.archive_url, archive_options).map_err(archive_error)?;
        let archive_unavailable = match archive.prepare().await {
            Ok(()) => None,
            Err(ArchiveError::Unavailable(reason)) => Some(reason),
            Err(error) => return Err(archive_error(error)),
        };
        let store = Self::with_trim(hot, archive, options.hot_window);
        match store.find_out_founding().await {
            Ok(()) => {}
            // Commits wait until it can be asked.
            Err(TierError::Archive(_)) => store.hot.set_founding(Founding::NotKnown),
            Err(TierError::Hot(error)) => return Err(hot_error(error.into())),
        }
        Ok(OpenedTiers { store, warnings, archive_unavailable })
    }
}
