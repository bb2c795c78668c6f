use std::time::{Duration, Instant};

use qim_core::{ConversationKey, UnixMillis};

use super::{MoveError, TieredMessageStore};
use crate::archive::{ArchiveError, StoredRecord};
use crate::hot::{Fence, HotPage, HotValue, Marks, PageStart, SCRIPT_RECORDS_MAX, TrimOutcome, TrimRequest};

/// How long a conversation rests whose front is due and may not go yet. A copy ends the wait at once.
const RETRY_AFTER: Duration = Duration::from_secs(30);

/// Of all daemons, at most.
const CLOCKS_DIFFER_BY: Duration = Duration::from_hours(1);

/// What a trim did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TrimReport {
    /// Places that left the hot tier.
    pub removed: u64,
    /// Rows that the archive had lost since they were copied, and has again.
    pub recopied: u64,
    /// More may be due: call again.
    pub more: bool,
}

impl TieredMessageStore {
    /// Removes one batch of records that have left the hot window from the front of a conversation. Before anything
    /// goes, its archive copy is read back, since an archive can lose what it acknowledged days ago, and copied again
    /// where it is missing (SPEC A20).
    pub async fn trim(
        &self,
        conversation: &ConversationKey,
        fence: &Fence,
        now: UnixMillis,
    ) -> Result<TrimReport, MoveError> {
        let began = Instant::now();
        let page = self.hot.read_page(conversation, PageStart::After(0), SCRIPT_RECORDS_MAX, now);
        let (page, _room) = self.room.read(page).await?;
        // What waiting for room took is no longer left of anybody's time (SPEC A10).
        let now = now + began.elapsed();
        let cutoff = now - self.window;
        let floor = page.marks.floor;
        let (mut upto, damaged) = due(&page, cutoff, now);
        let copied: Vec<_> = page
            .values
            .into_iter()
            .filter_map(|value| match value {
                HotValue::Record(record) if record.seq <= upto => Some(record),
                _ => None,
            })
            .collect();
        let Marks { archived, last, .. } = page.marks;
        let uncopied: Vec<_> = copied.iter().filter(|record| record.seq > archived).cloned().collect();
        if upto > archived
            && let Err(error) = self.leave_word(conversation, &uncopied, upto, now).await
        {
            upto = may_go_unheard(error, &uncopied, upto.min(last - 1), now)?;
        }
        let missing = self.missing(conversation, &copied, now).await?;
        let recopied = self.put_and_verify(conversation, &missing, now).await?.written;
        let request = TrimRequest { floor, upto, cutoff, retry_at: cutoff + RETRY_AFTER };
        match (self.hot.trim(conversation, fence, request, now).await?, damaged) {
            (_, Some(reason)) => Err(MoveError::Poisoned(reason)),
            (TrimOutcome::FloorMoved, None) => Ok(TrimReport { removed: 0, recopied, more: true }),
            (TrimOutcome::Trimmed { removed, more, .. }, None) => Ok(TrimReport { removed, recopied, more }),
        }
    }
}

impl TieredMessageStore {
    /// What expired before its copy leaves no row in the archive, but its seq and its client id go there: the one is not given
    /// again, and the other is known when it is sent again.
    async fn leave_word(
        &self,
        conversation: &ConversationKey,
        uncopied: &[StoredRecord],
        upto: u64,
        now: UnixMillis,
    ) -> Result<(), ArchiveError> {
        if !uncopied.is_empty() {
            self.archive.put(conversation, uncopied, now).await?;
        }
        self.note_given(conversation, uncopied, upto).await
    }
}

/// With the archive away what has expired by everybody's clock goes without, so that Redis does not fill with what nobody
/// can read. The answer is the highest seq of that. The last place of a conversation is never among them: it keeps the
/// conversation among those that wait for their copy, and the archive hears of all its seqs then.
fn may_go_unheard(
    error: ArchiveError,
    uncopied: &[StoredRecord],
    upto: u64,
    now: UnixMillis,
) -> Result<u64, ArchiveError> {
    let ArchiveError::Unavailable(_) = error else { return Err(error) };
    let fresh = uncopied.iter().find(|record| !record.encoded.is_expired(now - CLOCKS_DIFFER_BY));
    Ok(fresh.map_or(upto, |record| upto.min(record.seq - 1)))
}

/// The highest seq that may go, and what stands in the way where that is damage.
fn due(page: &HotPage, cutoff: UnixMillis, now: UnixMillis) -> (u64, Option<String>) {
    let mut upto = page.marks.floor - 1;
    for value in &page.values {
        let may_go = match value {
            HotValue::Collected { created_at, .. } => *created_at <= cutoff,
            HotValue::Record(record) => {
                record.encoded.created_at() <= cutoff
                    && (record.seq <= page.marks.archived || record.encoded.is_expired(now))
            }
            HotValue::Damaged { seq, reason } => {
                return (upto, Some(format!("the record at seq {seq} is damaged: {reason}")));
            }
        };
        if !may_go {
            break;
        }
        upto = value.seq();
    }
    (upto, None)
}
