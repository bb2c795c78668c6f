use std::ops::RangeInclusive;

use qim_core::{ConversationKey, PayloadEncoding, Record, UnixMillis};

use super::TieredMessageStore;
use super::earliest::EarliestAvailable;
use crate::archive::{ArchiveError, ArchivePage, DamagedRow, Direction, Gap, SeqRange, StoredRecord};
use crate::hot::{HotError, HotPage, HotValue, Marks, PageStart};

/// Most bytes of payload on one page (but at least one record): with what belongs to them, records stay below the 4 MiB
/// that a gRPC client takes by default.
const PAGE_BYTES_MAX: usize = 3 * 1024 * 1024;
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
    /// Whether payloads may come as zstd frames, where they are stored so in the hot tier: less work for both sides.
    pub accept_zstd: bool,
}

/// A page of a conversation (SPEC A13).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Readable records, ascending.
    pub records: Vec<Record>,
    /// The lowest seq a reader can still get; last + 1 when there is none.
    pub earliest_available: u64,
    /// The highest seq ever given; 0 when the conversation does not exist.
    pub last: u64,
    /// There is more in the direction of reading.
    pub has_more: bool,
    /// Where to go on: as [`Position::After`] or [`Position::Before`].
    pub next_seq: u64,
    /// The archive could not be asked for the earliest seq.
    pub archive_unavailable: bool,
    /// Records of the page that came from the archive.
    pub from_archive: usize,
    /// Among the seqs that were looked at: those whose records are lost, ascending.
    pub gaps: Vec<Gap>,
    bytes: usize,
    floor: u64,
    /// Seqs whose hot place says that its record is lost.
    lost: Vec<u64>,
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

impl TieredMessageStore {
    /// Reads a page: the hot tier first, then the archive below the floor which that same read saw, so that a trim in
    /// between hides nothing. Never answers a record that is expired at `now`.
    pub async fn pull(
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
        let (mut page, looked_at) = if let Some(before) = before {
            let page = self.backwards(conversation, before, request, now).await?;
            let looked_at = page.next_seq..=before.saturating_sub(1).min(page.last);
            (page, looked_at)
        } else {
            let page = self.forwards(conversation, after, request, now).await?;
            let looked_at = after + 1..=page.next_seq;
            (page, looked_at)
        };
        self.name_gaps(conversation, &mut page, looked_at).await?;
        Ok(page)
    }

    /// Names the gaps among the seqs that a page looked at. Nothing is asked where none of their records is missing.
    async fn name_gaps(
        &self,
        conversation: &ConversationKey,
        page: &mut Page,
        looked_at: RangeInclusive<u64>,
    ) -> Result<(), ArchiveError> {
        let archived = page.floor.min(looked_at.end() + 1).saturating_sub(*looked_at.start());
        if archived > page.from_archive as u64 || !page.lost.is_empty() {
            page.gaps = match self.gaps_within(conversation, looked_at, page.floor, &page.lost).await {
                // A page of the hot tier is served without the archive, and says that it could not be asked.
                Err(_) if page.archive_unavailable || page.from_archive == 0 => {
                    page.archive_unavailable = true;
                    Vec::new()
                }
                gaps => gaps?,
            };
        }
        Ok(())
    }

    async fn forwards(
        &self,
        conversation: &ConversationKey,
        after: u64,
        request: PullRequest,
        now: UnixMillis,
    ) -> Result<Page, PullError> {
        let start = (PageStart::After(after), request.limit);
        let hot = self.hot_page(conversation, start.0, start.1, now).await?;
        let hot = self.settled_page(conversation, hot, start, now).await?;
        let earliest = self.earliest_available(conversation, &hot, now).await?;
        // With the archive away it is not known what expired: below, that is said instead.
        let known = earliest.archive_error.is_none();
        let expired_between = request.fail_on_expired && known && after + 1 < earliest.seq;
        if after > hot.marks.last || expired_between {
            return Err(out_of_range(&earliest, hot.marks));
        }
        let floor = hot.marks.floor;
        let mut page = Page::start(&earliest, hot.marks, after);
        let from = (after + 1).max(earliest.seq);
        if after + 1 < floor {
            if let Some(error) = earliest.archive_error {
                return Err(error.into());
            }
            if from < floor {
                let range = SeqRange { from, below: floor };
                let archived =
                    self.read_archive(conversation, range, Direction::Forwards, request.limit, now).await?;
                page.from_archive = archived.records.len();
                archived.records.into_iter().for_each(|record| page.push(record));
                page.next_seq = archived.next.map_or(floor - 1, |next| next - 1);
                if archived.next.is_some() {
                    page.has_more = true;
                    return Ok(page);
                }
            } else {
                page.next_seq = floor - 1;
            }
        }
        self.append_hot(conversation, hot, &mut page, request, now).await?;
        Ok(page)
    }

    /// Fills the page from `hot`, and from further hot pages while places are empty.
    async fn append_hot(
        &self,
        conversation: &ConversationKey,
        mut hot: HotPage,
        page: &mut Page,
        PullRequest { limit, accept_zstd, .. }: PullRequest,
        now: UnixMillis,
    ) -> Result<(), HotError> {
        let mut full = false;
        for _ in 0..HOT_PAGES_MAX {
            for value in hot.values {
                full = !page.has_room_for(&value, limit);
                if full {
                    break;
                }
                page.next_seq = value.seq();
                page.note_lost(&value);
                self.readable(conversation, value, accept_zstd, now)
                    .await
                    .into_iter()
                    .for_each(|record| page.push(record));
            }
            if full || page.records.len() == limit || page.next_seq >= page.last {
                break;
            }
            hot = self.hot_page(conversation, PageStart::After(page.next_seq), limit, now).await?;
            if hot.marks.floor > page.next_seq + 1 || hot.values.is_empty() {
                // A trim took what comes next to the archive: the reader finds it there.
                break;
            }
        }
        page.has_more = page.next_seq < page.last;
        Ok(())
    }

    async fn backwards(
        &self,
        conversation: &ConversationKey,
        before: u64,
        request: PullRequest,
        now: UnixMillis,
    ) -> Result<Page, PullError> {
        let start = (PageStart::Before(before), request.limit);
        let hot = self.hot_page(conversation, start.0, start.1, now).await?;
        let mut hot = self.settled_page(conversation, hot, start, now).await?;
        let earliest = self.earliest_available(conversation, &hot, now).await?;
        let floor = hot.marks.floor;
        let mut page = Page::start(&earliest, hot.marks, before.min(hot.marks.last + 1));
        let mut full = false;
        for _ in 0..HOT_PAGES_MAX {
            for value in std::mem::take(&mut hot.values).into_iter().rev() {
                full = !page.has_room_for(&value, request.limit);
                if full {
                    break;
                }
                page.next_seq = value.seq();
                page.note_lost(&value);
                self.readable(conversation, value, request.accept_zstd, now)
                    .await
                    .into_iter()
                    .for_each(|record| page.push(record));
            }
            if full || page.records.len() == request.limit || page.next_seq <= floor.max(earliest.seq) {
                break;
            }
            hot = self.hot_page(conversation, PageStart::Before(page.next_seq), request.limit, now).await?;
            if hot.values.last().is_none_or(|value| value.seq() + 1 != page.next_seq) {
                break;
            }
        }
        page.records.reverse();
        let left = if full { 0 } else { request.limit - page.records.len() };
        if left > 0 && page.next_seq <= floor && floor > 1 {
            match earliest.archive_error {
                Some(error) if page.records.is_empty() => return Err(error.into()),
                Some(_) => page.has_more = page.next_seq > 1,
                None => self.prepend_archived(conversation, &mut page, left, now).await?,
            }
        } else {
            page.has_more = page.next_seq > page.earliest_available;
        }
        Ok(page)
    }

    async fn prepend_archived(
        &self,
        conversation: &ConversationKey,
        page: &mut Page,
        limit: usize,
        now: UnixMillis,
    ) -> Result<(), ArchiveError> {
        let range = SeqRange { from: page.earliest_available, below: page.next_seq };
        if range.from >= range.below {
            return Ok(());
        }
        let archived = self.read_archive(conversation, range, Direction::Backwards, limit, now).await?;
        page.next_seq = archived.next.unwrap_or(range.from);
        let mut fitting = archived.records;
        while page.bytes + payload_bytes(&fitting) > PAGE_BYTES_MAX
            && !(page.records.is_empty() && fitting.len() == 1)
        {
            page.next_seq = fitting.remove(0).seq + 1;
        }
        page.from_archive = fitting.len();
        page.records.splice(0..0, fitting);
        page.has_more = page.next_seq > page.earliest_available;
        Ok(())
    }

    async fn readable(
        &self,
        conversation: &ConversationKey,
        value: HotValue,
        accept_zstd: bool,
        now: UnixMillis,
    ) -> Option<Record> {
        let damaged = match value {
            HotValue::Record(record) if record.message.is_expired(now) => return None,
            HotValue::Record(StoredRecord { seq, message, .. }) => {
                let decompressor = self.hot.decompressor();
                let opened = if accept_zstd {
                    message.open_or_frame(decompressor)
                } else {
                    message.open(decompressor).map(|message| (message, PayloadEncoding::Plain))
                };
                match opened {
                    Ok((message, encoding)) => return Some(Record { seq, message, encoding }),
                    Err(error) => DamagedRow { seq, reason: error.to_string() },
                }
            }
            HotValue::Collected { .. } => return None,
            HotValue::Damaged { seq, reason } => DamagedRow { seq, reason },
        };
        self.note_damage(conversation, &damaged, "hot", now).await;
        None
    }

    async fn read_archive(
        &self,
        conversation: &ConversationKey,
        range: SeqRange,
        direction: Direction,
        limit: usize,
        now: UnixMillis,
    ) -> Result<ArchivePage, ArchiveError> {
        let page = self.archive.read_settled(conversation, range, direction, limit, now).await?;
        for damaged in &page.damaged {
            self.note_damage(conversation, damaged, "archive", now).await;
        }
        debug_assert!(page.records.iter().all(|record| !record.message.is_expired(now)), "SPEC A13");
        Ok(page)
    }

    /// Names a damaged record. The page is served without it, whether or not that can be noted.
    async fn note_damage(
        &self,
        conversation: &ConversationKey,
        row: &DamagedRow,
        tier: &str,
        now: UnixMillis,
    ) {
        tracing::error!(%conversation, seq = row.seq, tier, reason = row.reason, "record is damaged: set aside, not served");
        let reason = format!("{tier}: {}", row.reason);
        if let Err(error) = self.hot.set_record_aside(conversation, row.seq, &reason, now).await {
            tracing::warn!(%error, "the damaged record could not be noted");
        }
    }
}

impl Page {
    fn start(earliest: &EarliestAvailable, marks: Marks, next_seq: u64) -> Self {
        Self {
            records: Vec::new(),
            earliest_available: earliest.seq,
            last: marks.last,
            has_more: false,
            next_seq,
            archive_unavailable: earliest.archive_error.is_some(),
            from_archive: 0,
            gaps: Vec::new(),
            bytes: 0,
            floor: marks.floor,
            lost: Vec::new(),
        }
    }

    /// Whether this value may still go on the page.
    fn has_room_for(&self, value: &HotValue, limit: usize) -> bool {
        let bytes = match value {
            HotValue::Record(record) => record.encoded.len().max(record.message.payload.len()),
            HotValue::Collected { .. } | HotValue::Damaged { .. } => 0,
        };
        self.records.is_empty() || (self.records.len() < limit && self.bytes + bytes <= PAGE_BYTES_MAX)
    }

    fn note_lost(&mut self, value: &HotValue) {
        if let HotValue::Collected { seq, is_lost: true, .. } = value {
            self.lost.push(*seq);
        }
    }

    fn push(&mut self, record: Record) {
        self.bytes += record.message.payload.len();
        self.records.push(record);
    }
}

fn payload_bytes(records: &[Record]) -> usize {
    records.iter().map(|record| record.message.payload.len()).sum()
}

fn out_of_range(earliest: &EarliestAvailable, marks: Marks) -> PullError {
    PullError::OutOfRange { earliest_available: earliest.seq, last: marks.last }
}
