use qim_core::{ConversationKey, UnixMillis};

use super::{TierError, TieredMessageStore};
use crate::archive::Gap;
use crate::hot::{HotError, HotValue, Marks, PageStart};

/// What there is to say about a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// Where it stands; [`Marks::NEW`] when it does not exist.
    pub marks: Marks,
    /// The lowest seq a reader can still get; last + 1 when there is none.
    pub earliest_available: u64,
    /// Memory it takes in the hot tier.
    pub hot_bytes: u64,
    /// Unexpired records in the archive; `None` when the archive could not be asked.
    pub archived_records: Option<u64>,
    /// The shard it lives in.
    pub shard: u16,
    /// Seqs whose records are lost; `None` when the archive could not be asked.
    pub gaps: Option<Vec<Gap>>,
    /// Why it is set aside; `None` when it is not.
    pub set_aside: Option<String>,
}

impl TieredMessageStore {
    /// Marks, counts and tiers of a conversation. Counting in the archive takes time in proportion to the answer. The archive
    /// has to be there only where Redis may have lost all of the conversation.
    pub async fn describe(
        &self,
        conversation: &ConversationKey,
        now: UnixMillis,
    ) -> Result<Description, TierError> {
        match self.try_describe(conversation, now).await {
            Err(TierError::Hot(HotError::LineageEnded)) => {
                self.hot.renew_lineage(conversation).await?;
                self.try_describe(conversation, now).await
            }
            answer => answer,
        }
    }

    async fn try_describe(
        &self,
        conversation: &ConversationKey,
        now: UnixMillis,
    ) -> Result<Description, TierError> {
        let page = self.settled_page(conversation, PageStart::After(u64::MAX), 0, now).await?;
        let earliest = self.earliest_available(conversation, &page, now).await?;
        let lost: Vec<u64> = page.values.iter().map(HotValue::seq).collect();
        Ok(Description {
            marks: page.marks,
            earliest_available: earliest.seq,
            hot_bytes: self.hot.conversation_bytes(conversation).await?,
            archived_records: self.archive.count(conversation, now).await.ok(),
            shard: self.hot.shards().shard_of(conversation),
            gaps: match self.gap_of_unknown(conversation, &lost).await {
                Some(gap) => Some(vec![gap]),
                None => self.archive.gaps(conversation).await.ok(),
            },
            set_aside: self.hot.set_aside_reason(conversation).await?,
        })
    }
}
