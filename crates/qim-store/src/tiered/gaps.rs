//! Gaps, for readers: seqs that were given and whose records are lost. Looked for only where records are missing.

use std::ops::RangeInclusive;
use std::sync::Arc;

use qim_core::{ConversationKey, UnixMillis};

use super::settle::UNKNOWN_SEQS;
use super::{TierError, TieredMessageStore};
use crate::archive::{ArchiveError, Gap};
use crate::conversation_cache::ConversationCache;
use crate::hot::{HotError, HotPage, HotValue, Marks, PageStart, PutBackState};

/// How many gaps are named on one page.
const GAPS_MAX: usize = 100;

/// The gaps of a conversation when its floor was there. Below a floor none is added.
#[derive(Clone)]
pub(super) struct Remembered {
    floor: u64,
    gaps: Arc<[Gap]>,
}

/// The gaps of conversations, most of which have none: about 1 MiB.
pub(super) type GapCache = ConversationCache<Remembered>;

impl TieredMessageStore {
    /// The gaps within these seqs, the lowest first, as far as a page has room for them. `lost` are seqs at which a place
    /// in the hot tier says that its record is lost.
    pub(super) async fn gaps_within(
        &self,
        conversation: &ConversationKey,
        seqs: RangeInclusive<u64>,
        floor: u64,
        lost: &[u64],
    ) -> Result<Vec<Gap>, ArchiveError> {
        let names = |gaps: &[Gap], seq: &u64| gaps.iter().any(|gap| (gap.from..=gap.to).contains(seq));
        let remembered = self.gaps.get(conversation).filter(|remembered| {
            remembered.floor >= floor && lost.iter().all(|seq| names(&remembered.gaps, seq))
        });
        let gaps = if let Some(gap) = self.gap_of_unknown(conversation, lost).await {
            [gap].into()
        } else if let Some(Remembered { gaps, .. }) = remembered {
            gaps
        } else {
            let gaps: Arc<[Gap]> = self.archive.gaps(conversation).await?.into();
            self.gaps.put(conversation, Remembered { floor, gaps: gaps.clone() });
            gaps
        };
        let overlaps = |gap: &&Gap| gap.from <= *seqs.end() && gap.to >= *seqs.start();
        Ok(gaps.iter().filter(overlaps).take(GAPS_MAX).copied().collect())
    }

    /// What will be noted of a conversation that nobody knows, once it goes on.
    pub(super) async fn gap_of_unknown(&self, conversation: &ConversationKey, lost: &[u64]) -> Option<Gap> {
        if lost != [UNKNOWN_SEQS] {
            return None;
        }
        let lineage = self.hot.lineage(conversation).await.ok()?;
        Some(Gap { from: 1, to: UNKNOWN_SEQS, noticed_at: lineage.doubted_at()? })
    }

    /// A page of the hot tier. Settles a conversation that was not since Redis may have lost data. Where that cannot be done
    /// now, what the archive has is shown at least where Redis knows nothing. An error while writers put back what they
    /// acknowledged, or the archive cannot say what there is beyond the end that Redis knows of: it may belong on the page.
    pub(super) async fn settled_page(
        &self,
        conversation: &ConversationKey,
        start: PageStart,
        limit: usize,
        now: UnixMillis,
    ) -> Result<HotPage, TierError> {
        let page = self.hot_page(conversation, start, limit, now).await?;
        let lineage = self.hot.lineage(conversation).await?;
        if page.checked_in.is_settled_in(&lineage) {
            return Ok(page);
        }
        let state = self.hot.put_back_state(conversation);
        if state == PutBackState::Underway {
            return Err(HotError::putting_back().into());
        }
        let mut high_water = 0;
        if page.marks.last == 0 {
            high_water = self.archive.high_water(conversation).await?;
            if high_water == 0 {
                // Either it never was, or all of it is lost.
                return Ok(if state == PutBackState::Complete { page } else { of_unknown(start) });
            }
        }
        match self.settle(conversation, now).await {
            Ok(()) => Ok(self.hot_page(conversation, start, limit, now).await?),
            // What is hot waits to be archived before the conversation can go on behind the gap.
            Err(TierError::Hot(error)) if page.marks.last > 0 => {
                let gaps = self.archive.gaps(conversation).await?;
                match gaps.last() {
                    Some(gap) if gap.from == page.marks.last + 1 => Ok(ending_with(page, *gap, start)),
                    _ => Err(error.into()),
                }
            }
            // Its end in the hot tier may not be its end: only the archive can say.
            Err(error) if page.marks.last > 0 => Err(error),
            Err(_) => Ok(HotPage::of_marks(Marks {
                last: high_water,
                floor: high_water + 1,
                archived: high_water,
                ..Marks::NEW
            })),
        }
    }
}

/// The page of a conversation that nobody knows, and of which there may have been something.
fn of_unknown(start: PageStart) -> HotPage {
    let gap = Gap { from: 1, to: UNKNOWN_SEQS, noticed_at: UnixMillis::EPOCH };
    HotPage { looked_to: gap.to, ..ending_with(HotPage::EMPTY, gap, start) }
}

/// The page of a conversation that ends with this gap, of which the hot tier does not know yet.
fn ending_with(mut page: HotPage, gap: Gap, start: PageStart) -> HotPage {
    let hot_end = page.marks.last;
    let is_last = match start {
        PageStart::Before(seq) => seq > gap.to,
        PageStart::After(seq) => page.values.last().map_or(seq, HotValue::seq) >= hot_end,
        PageStart::Unarchived => false,
    };
    if is_last {
        let created_at = page.marks.last_created_at;
        page.values.push(HotValue::Collected { seq: gap.to, created_at, is_lost: true });
    }
    page.marks.last = gap.to;
    page
}
