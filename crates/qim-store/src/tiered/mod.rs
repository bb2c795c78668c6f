//! Both tiers as one: a conversation is read as one log wherever its records are, and moves from the hot tier to the
//! archive without a moment in which a reader could miss it.

mod commit;
mod copy;
mod describe;
mod dictionaries;
mod earliest;
mod gaps;
mod lineage;
mod open;
mod page;
mod pull;
mod room;
mod seek;
mod settle;
mod stand_in;
mod trim;

use std::sync::Arc;
use std::time::Duration;

use qim_core::{ConversationKey, UnixMillis};

use crate::archive::ArchiveStore;
use crate::hot::{Fence, HotError, Marks, PageStart, RedisMessageStore};

pub use commit::{TieredCommitError, TieredDraft};
pub use copy::CopyReport;
pub use describe::Description;
pub use dictionaries::{AddDictionaryError, DICTIONARY_MARGIN, DictionaryReport};
pub use lineage::LineageReport;
pub use open::{OpenError, OpenedTiers, TierOptions};
pub use page::Page;
pub use pull::{Position, PullError, PullRequest};
pub use trim::TrimReport;

use earliest::EarliestCache;
use gaps::GapCache;
use room::Room;

/// A tier failed that has to be asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TierError {
    /// The hot tier failed, or is being checked.
    #[error(transparent)]
    Hot(#[from] HotError),
    /// The archive failed.
    #[error(transparent)]
    Archive(#[from] crate::archive::ArchiveError),
}

/// Why a conversation was not copied or trimmed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum MoveError {
    /// This conversation cannot be carried on with: set it aside. The others are not affected.
    #[error("{0}")]
    Poisoned(String),
    /// The hot tier failed.
    #[error(transparent)]
    Hot(HotError),
    /// The archive failed.
    #[error(transparent)]
    Archive(crate::archive::ArchiveError),
}

impl From<HotError> for MoveError {
    fn from(error: HotError) -> Self {
        match error {
            HotError::Corrupt { reason, .. } => Self::Poisoned(reason),
            other => Self::Hot(other),
        }
    }
}

impl From<crate::archive::ArchiveError> for MoveError {
    fn from(error: crate::archive::ArchiveError) -> Self {
        match error {
            crate::archive::ArchiveError::Conflict { .. } | crate::archive::ArchiveError::Damaged { .. } => {
                Self::Poisoned(error.to_string())
            }
            other => Self::Archive(other),
        }
    }
}

/// The two tiers (ADR-0019: `TieredMessageStore`). Cheap to clone.
#[derive(Clone)]
pub struct TieredMessageStore {
    hot: RedisMessageStore,
    archive: Arc<dyn ArchiveStore>,
    window: Duration,
    earliest: Arc<EarliestCache>,
    gaps: Arc<GapCache>,
    room: Arc<Room>,
}

impl TieredMessageStore {
    /// Both tiers, of which the hot one is trimmed to `window`; so its commits do not register what would outlive that
    /// by a day or more for GC (SPEC A18).
    pub fn with_trim(hot: RedisMessageStore, archive: Arc<dyn ArchiveStore>, window: Duration) -> Self {
        Self {
            hot: hot.with_trim_window(window),
            archive,
            window,
            earliest: Arc::default(),
            gaps: Arc::default(),
            room: Arc::default(),
        }
    }

    /// The hot tier.
    pub fn hot(&self) -> &RedisMessageStore {
        &self.hot
    }

    /// The archive tier.
    pub fn archive(&self) -> &dyn ArchiveStore {
        &*self.archive
    }

    /// How long the hot tier keeps a record.
    pub fn window(&self) -> Duration {
        self.window
    }

    /// Names a conversation that cannot be carried on with, and lets it rest for a while, so that it stops no other.
    pub async fn set_aside(
        &self,
        conversation: &ConversationKey,
        fence: &Fence,
        reason: &str,
        now: UnixMillis,
        rest: Duration,
    ) -> Result<(), HotError> {
        let retries = (now + rest, now - self.window + rest);
        self.hot.set_conversation_aside(conversation, fence, reason, now, retries).await
    }

    /// Where a conversation stands.
    pub async fn marks(&self, conversation: &ConversationKey, now: UnixMillis) -> Result<Marks, HotError> {
        Ok(self.hot.read_page(conversation, PageStart::After(u64::MAX), 0, now).await?.marks)
    }
}
