use std::time::Duration;

use qim_core::{ConversationKey, UnixMillis};

use super::TieredMessageStore;
use crate::archive::{ArchiveError, Earliest, SeqRange};
use crate::conversation_cache::ConversationCache;
use crate::hot::{HotError, HotPage, PageStart, SCRIPT_RECORDS_MAX};

/// How many further pages are looked through for the first readable hot record before a lower bound has to do.
const HOT_PAGES_MAX: usize = 64;

/// A clock that goes back by more was ahead.
const CLOCK_STEP: Duration = Duration::from_secs(1);

/// What the archive answered for a conversation. It stays true: the earliest record is the earliest until its own
/// date, and below a seq that was searched in vain nothing appears.
#[derive(Clone, Copy)]
pub(super) struct Remembered {
    searched_below: u64,
    found: Option<Earliest>,
    /// By a clock that may have been ahead: then it passed over what had not expired.
    searched_at: UnixMillis,
}

impl Remembered {
    /// Where a new search has to start, or what is known still.
    fn at(&self, floor: u64, now: UnixMillis) -> Result<Option<u64>, u64> {
        match self.found {
            _ if now + CLOCK_STEP < self.searched_at => Err(1),
            Some(found) if found.expires_at.is_none_or(|expires_at| now < expires_at) => Ok(Some(found.seq)),
            Some(found) => Err(found.seq + 1),
            None if self.searched_below >= floor => Ok(None),
            None => Err(self.searched_below),
        }
    }
}

/// The earliest archived seq of conversations: about 2 MiB.
pub(super) type EarliestCache = ConversationCache<Remembered>;

/// The lowest seq that can be read, as far as it could be found out.
pub(super) struct EarliestAvailable {
    pub(super) seq: u64,
    /// The archive could not be asked: `seq` speaks of the hot tier.
    pub(super) archive_error: Option<ArchiveError>,
}

impl TieredMessageStore {
    /// The earliest seq of both tiers, below the floor that `page` saw and from there on (SPEC A13).
    pub(super) async fn earliest_available(
        &self,
        conversation: &ConversationKey,
        page: &HotPage,
        now: UnixMillis,
    ) -> Result<EarliestAvailable, HotError> {
        match self.earliest_archived(conversation, page.marks.floor, now).await {
            Ok(Some(seq)) => Ok(EarliestAvailable { seq, archive_error: None }),
            Ok(None) => Ok(EarliestAvailable {
                seq: self.earliest_hot(conversation, page, now).await?,
                archive_error: None,
            }),
            Err(error) => {
                let seq = self.earliest_hot(conversation, page, now).await?;
                Ok(EarliestAvailable { seq, archive_error: Some(error) })
            }
        }
    }

    async fn earliest_archived(
        &self,
        conversation: &ConversationKey,
        floor: u64,
        now: UnixMillis,
    ) -> Result<Option<u64>, ArchiveError> {
        let known = self.earliest.get(conversation).map_or(Err(1), |remembered| remembered.at(floor, now));
        let from = match known {
            Ok(earliest) => return Ok(earliest),
            Err(from) if from >= floor => return Ok(None),
            Err(from) => from,
        };
        let found = self.archive.earliest(conversation, SeqRange { from, below: floor }, now).await?;
        self.earliest.put(conversation, Remembered { searched_below: floor, found, searched_at: now });
        Ok(found.map(|found| found.seq))
    }

    async fn earliest_hot(
        &self,
        conversation: &ConversationKey,
        page: &HotPage,
        now: UnixMillis,
    ) -> Result<u64, HotError> {
        if let Some(seq) = page.first_readable {
            return Ok(seq);
        }
        // Rare: hundreds of expired records that GC has not come to.
        let mut looked_to = page.looked_to;
        for _ in 0..HOT_PAGES_MAX {
            if looked_to >= page.marks.last {
                break;
            }
            let next =
                self.hot_page(conversation, PageStart::After(looked_to), SCRIPT_RECORDS_MAX, now).await?;
            if let Some(value) = next.values.iter().find(|value| value.readable(now).is_some()) {
                return Ok(value.seq());
            }
            looked_to = next.values.last().map_or(next.marks.last, crate::hot::HotValue::seq);
        }
        Ok(looked_to.min(page.marks.last) + 1)
    }
}
