use std::ops::RangeInclusive;

use qim_core::{ConversationKey, PayloadForm, UnixMillis};

use super::earliest::EarliestAvailable;
use super::page::{FilledPage, Page, PageFill};
use super::{TierError, TieredMessageStore};
use crate::archive::{ArchiveError, ArchivePage, DamagedRow, Direction, SeqRange};
use crate::hot::{HotError, HotPage, HotValue, Marks, PageStart};

/// No conversation gets this far; what is beyond is out of range as well.
const SEQ_MAX: u64 = 1 << 48;
/// How many hot pages are read at most to fill one page, where many places are empty.
const HOT_PAGES_MAX: usize = 8;

/// Where a page starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// At the first record above this seq; 0 is the earliest available.
    After(u64),
    /// At the records just below this seq.
    Before(u64),
    /// At the first record created at or after this time.
    FromTime(UnixMillis),
}

/// What to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PullRequest {
    /// Where the page starts.
    pub position: Position,
    /// How many records at most, 1..=500.
    pub limit: usize,
    /// Whether it is an error when records between the position and the page have expired.
    pub fail_on_expired: bool,
    /// What the reader takes for payloads: frames are less work for both sides.
    pub form: PayloadForm,
}

/// Why a page could not be read.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PullError {
    /// The position lies beyond the last seq, or (where asked to fail) before the earliest available.
    #[error("the position is out of range: available are the seqs {earliest_available} to {last}")]
    OutOfRange {
        /// The lowest seq a reader can still get.
        earliest_available: u64,
        /// The highest seq ever given.
        last: u64,
    },
    /// The hot tier failed.
    #[error(transparent)]
    Hot(#[from] HotError),
    /// The page lies in the archive, which failed.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
}

impl From<TierError> for PullError {
    fn from(error: TierError) -> Self {
        match error {
            TierError::Hot(error) => Self::Hot(error),
            TierError::Archive(error) => Self::Archive(error),
        }
    }
}

impl TieredMessageStore {
    /// Reads a page: the hot tier first, then the archive below the floor which that same read saw, so that a trim in
    /// between hides nothing. Never answers a record that is expired at `now`, and, while Redis has lost data that is being
    /// put back, nothing.
    pub async fn pull(
        &self,
        conversation: &ConversationKey,
        request: PullRequest,
        now: UnixMillis,
    ) -> Result<Page, PullError> {
        match self.try_pull(conversation, request, now).await {
            Err(PullError::Hot(HotError::LineageEnded)) => {
                self.hot.renew_lineage(conversation).await?;
                self.try_pull(conversation, request, now).await
            }
            answer => answer,
        }
    }

    async fn try_pull(
        &self,
        conversation: &ConversationKey,
        request: PullRequest,
        now: UnixMillis,
    ) -> Result<Page, PullError> {
        let (after, before, request) = match request.position {
            Position::After(seq) => (seq.min(SEQ_MAX), None, request),
            Position::Before(seq) => (0, Some(seq), request),
            Position::FromTime(time) => {
                let seq = self.seek(conversation, time, now).await?;
                (seq - 1, None, PullRequest { fail_on_expired: false, ..request })
            }
        };
        let (filled, looked_at) = if let Some(before) = before {
            let filled = self.backwards(conversation, before, request, now).await?;
            // The last one speaks for all below, of which nothing is to be had.
            let lowest = if filled.page.has_more { filled.page.next_seq } else { 1 };
            let looked_at = lowest..=before.saturating_sub(1).min(filled.page.last);
            (filled, looked_at)
        } else {
            let filled = self.forwards(conversation, after, request, now).await?;
            let looked_at = after + 1..=filled.page.next_seq;
            (filled, looked_at)
        };
        Ok(self.name_gaps(conversation, filled, looked_at).await?)
    }

    /// Names the gaps among the seqs that a page looked at. Nothing is asked where none of their records is missing.
    async fn name_gaps(
        &self,
        conversation: &ConversationKey,
        FilledPage { mut page, floor, lost }: FilledPage,
        looked_at: RangeInclusive<u64>,
    ) -> Result<Page, ArchiveError> {
        let archived = floor.min(looked_at.end() + 1).saturating_sub(*looked_at.start());
        if archived > page.from_archive as u64 || !lost.is_empty() {
            page.gaps = match self.gaps_within(conversation, looked_at, floor, &lost).await {
                // A page of the hot tier is served without the archive, and says that it could not be asked.
                Err(_) if page.archive_unavailable || page.from_archive == 0 => {
                    page.archive_unavailable = true;
                    Vec::new()
                }
                gaps => gaps?,
            };
        }
        Ok(page)
    }

    async fn forwards(
        &self,
        conversation: &ConversationKey,
        after: u64,
        request: PullRequest,
        now: UnixMillis,
    ) -> Result<FilledPage, PullError> {
        let hot = self.settled_page(conversation, PageStart::After(after), request.limit, now).await?;
        let earliest = self.earliest_available(conversation, &hot, now).await?;
        // With the archive away it is not known what expired: below, that is said instead.
        let known = earliest.archive_error.is_none();
        let expired_between = request.fail_on_expired && known && after + 1 < earliest.seq;
        if after > hot.marks.last || expired_between {
            return Err(out_of_range(&earliest, hot.marks));
        }
        let floor = hot.marks.floor;
        let mut fill = PageFill::start(&earliest, hot.marks, after);
        let from = (after + 1).max(earliest.seq);
        if after + 1 < floor {
            if let Some(error) = earliest.archive_error {
                return Err(error.into());
            }
            if from < floor {
                let range = SeqRange { from, below: floor };
                let size = (request.limit, request.form);
                let archived = self.read_archive(conversation, range, Direction::Forwards, size, now).await?;
                fill.begin_with(archived.records);
                fill.page.next_seq = archived.next.map_or(floor - 1, |next| next - 1);
                if archived.next.is_some() {
                    fill.page.has_more = true;
                    return Ok(fill.finish());
                }
            } else {
                fill.page.next_seq = floor - 1;
            }
        }
        self.append_hot(conversation, hot, &mut fill, request, now).await?;
        Ok(fill.finish())
    }

    /// Fills the page from `hot`, and from further hot pages while places are empty.
    async fn append_hot(
        &self,
        conversation: &ConversationKey,
        mut hot: HotPage,
        fill: &mut PageFill,
        PullRequest { limit, form, .. }: PullRequest,
        now: UnixMillis,
    ) -> Result<(), HotError> {
        let mut is_full = false;
        for _ in 0..HOT_PAGES_MAX {
            for value in hot.values {
                is_full = !fill.has_room_for(&value, limit);
                if is_full {
                    break;
                }
                self.take(conversation, value, fill, form, now).await;
            }
            let next_seq = fill.page.next_seq;
            if is_full || fill.len() == limit || next_seq >= fill.page.last {
                break;
            }
            hot = self.hot_page(conversation, PageStart::After(next_seq), limit, now).await?;
            if hot.marks.floor > next_seq + 1 || hot.values.is_empty() {
                // A trim took what comes next to the archive: the reader finds it there.
                break;
            }
        }
        fill.page.has_more = fill.page.next_seq < fill.page.last;
        Ok(())
    }

    async fn backwards(
        &self,
        conversation: &ConversationKey,
        before: u64,
        request: PullRequest,
        now: UnixMillis,
    ) -> Result<FilledPage, PullError> {
        let mut hot = self.settled_page(conversation, PageStart::Before(before), request.limit, now).await?;
        let earliest = self.earliest_available(conversation, &hot, now).await?;
        let floor = hot.marks.floor;
        let mut fill = PageFill::start(&earliest, hot.marks, before.min(hot.marks.last + 1));
        let mut is_full = false;
        for _ in 0..HOT_PAGES_MAX {
            for value in std::mem::take(&mut hot.values).into_iter().rev() {
                is_full = !fill.has_room_for(&value, request.limit);
                if is_full {
                    break;
                }
                self.take(conversation, value, &mut fill, request.form, now).await;
            }
            let next_seq = fill.page.next_seq;
            if is_full || fill.len() == request.limit || next_seq <= floor.max(earliest.seq) {
                break;
            }
            hot = self.hot_page(conversation, PageStart::Before(next_seq), request.limit, now).await?;
            if hot.values.last().is_none_or(|value| value.seq() + 1 != next_seq) {
                break;
            }
        }
        let left = if is_full { 0 } else { request.limit - fill.len() };
        if left > 0 && fill.page.next_seq <= floor && floor > 1 {
            match earliest.archive_error {
                Some(error) if fill.len() == 0 => return Err(error.into()),
                Some(_) => fill.page.has_more = fill.page.next_seq > 1,
                None => self.prepend_archived(conversation, &mut fill, (left, request.form), now).await?,
            }
        } else {
            // Nobody knows what the archive has while it is away: `earliest_available` speaks of the hot tier then.
            let earliest = if fill.page.archive_unavailable { 1 } else { fill.page.earliest_available };
            fill.page.has_more = fill.page.next_seq > earliest;
        }
        Ok(fill.finish_backwards())
    }

    async fn prepend_archived(
        &self,
        conversation: &ConversationKey,
        fill: &mut PageFill,
        size: (usize, PayloadForm),
        now: UnixMillis,
    ) -> Result<(), ArchiveError> {
        let range = SeqRange { from: fill.page.earliest_available, below: fill.page.next_seq };
        if range.from >= range.below {
            return Ok(());
        }
        let archived = self.read_archive(conversation, range, Direction::Backwards, size, now).await?;
        let left_out = fill.end_with(archived.records);
        fill.page.next_seq = left_out.map_or(archived.next.unwrap_or(range.from), |seq| seq + 1);
        fill.page.has_more = fill.page.next_seq > fill.page.earliest_available;
        Ok(())
    }

    /// Puts a value on the page, where it can be read, and goes past it.
    async fn take(
        &self,
        conversation: &ConversationKey,
        value: HotValue,
        fill: &mut PageFill,
        form: PayloadForm,
        now: UnixMillis,
    ) {
        let seq = value.seq();
        fill.page.next_seq = seq;
        let reason = match value {
            HotValue::Record(record) if record.encoded.is_expired(now) => return,
            HotValue::Record(record) => match fill.push(record, form, self.hot.decompressor()) {
                Ok(()) => return,
                Err(error) => error.to_string(),
            },
            HotValue::Collected { .. } => return fill.note_lost(&value),
            HotValue::Damaged { reason, .. } => reason,
        };
        self.note_damage(conversation, &DamagedRow { seq, reason }, "hot", now).await;
    }

    async fn read_archive(
        &self,
        conversation: &ConversationKey,
        range: SeqRange,
        direction: Direction,
        size: (usize, PayloadForm),
        now: UnixMillis,
    ) -> Result<ArchivePage, ArchiveError> {
        let page = self.archive.read_settled(conversation, range, direction, size, now).await?;
        for damaged in &page.damaged {
            self.note_damage(conversation, damaged, "archive", now).await;
        }
        debug_assert!(page.records.iter().all(|record| !record.encoded.is_expired(now)), "SPEC A13");
        Ok(page)
    }

    /// Names a damaged record. The page is served, whether or not that can be noted.
    pub(super) async fn note_damage(
        &self,
        conversation: &ConversationKey,
        row: &DamagedRow,
        tier: &str,
        now: UnixMillis,
    ) {
        tracing::error!(%conversation, seq = row.seq, tier, reason = row.reason, "record is damaged: set aside");
        let reason = format!("{tier}: {}", row.reason);
        if let Err(error) = self.hot.set_record_aside(conversation, row.seq, &reason, now).await {
            tracing::warn!(%error, "the damaged record could not be noted");
        }
    }
}

fn out_of_range(earliest: &EarliestAvailable, marks: Marks) -> PullError {
    PullError::OutOfRange { earliest_available: earliest.seq, last: marks.last }
}
