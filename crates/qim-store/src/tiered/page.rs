use qim_core::{CodecError, Decompressor, PayloadForm, Record, RecordsBuilder};

use super::earliest::EarliestAvailable;
use crate::archive::StoredRecord;
use crate::hot::{HotValue, Marks};

/// Most bytes of payload on one page (but at least one record): with what belongs to them, records stay below the 4 MiB
/// that a gRPC client takes by default.
const PAGE_BYTES_MAX: usize = 3 * 1024 * 1024;

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
    /// Where to go on: as [`super::Position::After`] or [`super::Position::Before`].
    pub next_seq: u64,
    /// The archive could not be asked for the earliest seq.
    pub archive_unavailable: bool,
    /// Records of the page that came from the archive.
    pub from_archive: usize,
}

/// A page while it is made.
pub(super) struct PageFill {
    pub(super) page: Page,
    hot: RecordsBuilder,
    bytes: usize,
}

impl PageFill {
    pub(super) fn start(earliest: &EarliestAvailable, marks: Marks, next_seq: u64) -> Self {
        let page = Page {
            records: Vec::new(),
            earliest_available: earliest.seq,
            last: marks.last,
            has_more: false,
            next_seq,
            archive_unavailable: earliest.archive_error.is_some(),
            from_archive: 0,
        };
        Self { page, hot: RecordsBuilder::default(), bytes: 0 }
    }

    /// Records so far.
    pub(super) fn len(&self) -> usize {
        self.page.records.len() + self.hot.len()
    }

    /// Whether this value may still go on the page.
    pub(super) fn has_room_for(&self, value: &HotValue, limit: usize) -> bool {
        let bytes = match value {
            HotValue::Record(record) => record.encoded.bytes().len().max(record.encoded.payload_len()),
            HotValue::Collected { .. } | HotValue::Damaged { .. } => 0,
        };
        self.len() == 0 || (self.len() < limit && self.bytes + bytes <= PAGE_BYTES_MAX)
    }

    /// Takes a record of the hot tier. Fails where its payload is damaged.
    pub(super) fn push(
        &mut self,
        StoredRecord { seq, encoded }: StoredRecord,
        form: PayloadForm,
        decompressor: &Decompressor,
    ) -> Result<(), CodecError> {
        let bytes = encoded.payload_len();
        self.hot.push(seq, encoded, form, decompressor)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Puts what the archive has first.
    pub(super) fn begin_with(&mut self, archived: Vec<Record>) {
        self.bytes += payload_bytes(&archived);
        self.page.from_archive = archived.len();
        self.page.records = archived;
    }

    /// Puts what the archive has before what the hot tier has, which came in descending order: as much of its end as
    /// there is room for, but at least one record on the page. Answers the highest seq that was left out.
    pub(super) fn end_with(&mut self, mut archived: Vec<Record>) -> Option<u64> {
        let (mut bytes, mut left_out) = (payload_bytes(&archived), 0);
        let must_stay = usize::from(self.len() == 0);
        while self.bytes + bytes > PAGE_BYTES_MAX && archived.len() - left_out > must_stay {
            bytes -= archived[left_out].encoded.payload_len();
            left_out += 1;
        }
        let highest = left_out.checked_sub(1).map(|at| archived[at].seq);
        self.page.records = archived.split_off(left_out);
        self.page.from_archive = self.page.records.len();
        highest
    }

    /// The page, whose hot records came in ascending order.
    pub(super) fn finish(mut self) -> Page {
        self.page.records.extend(self.hot.finish());
        self.page
    }

    /// The page, whose hot records came in descending order.
    pub(super) fn finish_backwards(mut self) -> Page {
        self.page.records.extend(self.hot.finish().into_iter().rev());
        self.page
    }
}

fn payload_bytes(records: &[Record]) -> usize {
    records.iter().map(|record| record.encoded.payload_len()).sum()
}
