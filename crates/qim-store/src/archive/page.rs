//! What makes a page of archived rows out of what a database gives: one judgement for every implementation.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use qim_core::{
    CodecError, ConversationKey, Decoder, Decompressor, EncodedRecord, PayloadForm, RecordsBuilder,
    UnixMillis,
};

use super::dictionaries::{self, DictionaryStore};
use super::{
    ArchiveError, ArchivePage, CLIENT_ID_RETENTION, DamagedRow, Direction, Earliest, PUT_RECORDS_MAX,
    READ_RECORDS_MAX, SeqRange, StoredRecord,
};

/// Most bytes of records in a page, as they are when read: below the 4 MiB that gRPC takes in one message.
const PAGE_BYTES_MAX: usize = 3 << 20;
/// Most rows that one read looks at, so that a run of expired rows does not make it endless.
const ROWS_SEEN_MAX: usize = 4096;

/// The `expires_at` column of a row, as it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DateColumn {
    /// The row is held.
    Never,
    At(UnixMillis),
    /// Nothing where there must be something, or no date.
    Damaged,
}

impl DateColumn {
    pub(super) fn is_past(self, now: UnixMillis) -> bool {
        matches!(self, Self::At(date) if now >= date)
    }

    pub(super) fn from_millis(millis: i64) -> Self {
        UnixMillis::checked(millis).map_or(Self::Damaged, Self::At)
    }
}

/// A row as it was found.
#[derive(Debug)]
pub(super) struct RawRow {
    pub(super) seq: u64,
    pub(super) date: DateColumn,
    pub(super) encoded: Option<Bytes>,
}

/// A finished page.
#[derive(Debug)]
#[expect(clippy::struct_field_names, reason = "it is the page that is answered, and what is known of it")]
pub(super) struct Page {
    pub(super) page: ArchivePage,
    /// When the first of its records expires, by its column or by itself; `None`: none ever does.
    pub(super) alive_until: Option<UnixMillis>,
    /// It is not finished after all: it takes this dictionary.
    pub(super) unknown_dictionary: Option<u32>,
}

/// What opens the payloads of a page.
#[derive(Debug, Clone)]
pub(super) struct Opener {
    decompressor: Arc<Decompressor>,
    form: PayloadForm,
    /// Dictionaries that the store does not have: what needs them is damaged.
    missing: Vec<u32>,
}

/// Takes rows in the order of the direction until the page is full.
#[derive(Debug)]
pub(super) struct PageBuilder {
    decoder: Decoder,
    direction: Direction,
    limit: usize,
    now: UnixMillis,
    /// What of the range was not looked at yet.
    rest: SeqRange,
    rows_seen: usize,
    bytes: usize,
    is_full: bool,
    records: RecordsBuilder,
    damaged: Vec<DamagedRow>,
    alive_until: Option<UnixMillis>,
    opener: Opener,
    unknown_dictionary: Option<u32>,
}

impl PageBuilder {
    pub(super) fn new(
        conversation: &ConversationKey,
        range: SeqRange,
        direction: Direction,
        (limit, now): (usize, UnixMillis),
        opener: Opener,
    ) -> Self {
        assert!((1..=READ_RECORDS_MAX).contains(&limit), "a page has 1 to {READ_RECORDS_MAX} records");
        Self {
            decoder: Decoder::of(conversation),
            direction,
            limit,
            now,
            rest: range,
            rows_seen: 0,
            bytes: 0,
            is_full: false,
            records: RecordsBuilder::default(),
            damaged: Vec::new(),
            alive_until: None,
            opener,
            unknown_dictionary: None,
        }
    }

    /// The part of the range that rows are still wanted from; empty when there is none.
    pub(super) fn rest(&self) -> SeqRange {
        if self.is_full { SeqRange { from: 1, below: 1 } } else { self.rest }
    }

    /// How many rows the next query should ask for: no more than fit by what was seen so far, and at least one.
    pub(super) fn rows_wanted(&self) -> usize {
        /// Of the largest records of the default size these make 8 MiB.
        const FIRST_ROWS_MAX: usize = 128;
        let missing = self.limit - self.records.len() - self.damaged.len();
        match self.bytes.checked_div(self.records.len()) {
            None if self.rows_seen == 0 => missing.min(FIRST_ROWS_MAX),
            // The rows so far have expired, and more of those may follow.
            None => FIRST_ROWS_MAX,
            Some(mean) => missing.min((PAGE_BYTES_MAX - self.bytes) / mean.max(1) + 1),
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// The next row of the range. Does nothing once the page is full.
    pub(super) fn push(&mut self, row: RawRow) {
        if self.is_full {
            return;
        }
        assert!((self.rest.from..self.rest.below).contains(&row.seq), "rows come in order");
        let (seq, stored) = (row.seq, row.encoded.as_ref().map_or(0, Bytes::len));
        match judge(&self.decoder, row, self.now) {
            Verdict::Expired => {}
            Verdict::Damaged(reason) => self.damaged.push(DamagedRow { seq, reason }),
            Verdict::Alive { record, until } => {
                // Known before the payload is opened, so that a page of them stays small while it is made.
                let bytes = stored.max(record.payload_len());
                if !self.records.is_empty() && self.bytes + bytes > PAGE_BYTES_MAX {
                    self.is_full = true; // and the row begins the next page
                    return;
                }
                match self.records.push(seq, record, self.opener.form, &self.opener.decompressor) {
                    Ok(()) => {
                        self.bytes += bytes;
                        self.alive_until = earlier(self.alive_until, until);
                    }
                    Err(CodecError::UnknownDictionary(id)) if !self.opener.missing.contains(&id) => {
                        self.unknown_dictionary = Some(id);
                        self.is_full = true;
                        return;
                    }
                    Err(error) => self.damaged.push(DamagedRow { seq, reason: error.to_string() }),
                }
            }
        }
        self.rows_seen += 1;
        self.skip_past(seq);
        self.is_full =
            self.records.len() + self.damaged.len() == self.limit || self.rows_seen == ROWS_SEEN_MAX;
    }

    /// There is no further row up to and including `seq`, in the direction of the read.
    pub(super) fn skip_past(&mut self, seq: u64) {
        match self.direction {
            Direction::Forwards => self.rest.from = self.rest.from.max(seq.saturating_add(1)),
            Direction::Backwards => self.rest.below = self.rest.below.min(seq),
        }
    }

    /// There is no further row in the range.
    pub(super) fn skip_rest(&mut self) {
        if !self.is_full {
            self.rest.from = self.rest.below;
        }
    }

    pub(super) fn finish(self) -> Page {
        let Self { direction, rest, records, mut damaged, alive_until, unknown_dictionary, .. } = self;
        let mut records = records.finish();
        if direction == Direction::Backwards {
            records.reverse();
            damaged.reverse();
        }
        let next = (rest.from < rest.below).then_some(match direction {
            Direction::Forwards => rest.from,
            Direction::Backwards => rest.below,
        });
        Page { page: ArchivePage { records, damaged, next }, alive_until, unknown_dictionary }
    }
}

/// Reads a page, and again with each dictionary that it turns out to take.
pub(super) async fn with_dictionaries<Reading>(
    store: &impl DictionaryStore,
    decompressor: &Arc<Decompressor>,
    form: PayloadForm,
    mut read: impl FnMut(Opener) -> Reading,
) -> Result<Page, ArchiveError>
where
    Reading: Future<Output = Result<Page, ArchiveError>>,
{
    let mut opener = Opener { decompressor: decompressor.clone(), form, missing: Vec::new() };
    loop {
        let page = read(opener.clone()).await?;
        let Some(id) = page.unknown_dictionary else { return Ok(page) };
        if !dictionaries::learn(store, decompressor, id).await? {
            opener.missing.push(id);
        }
    }
}

/// The lowest unexpired record of the range, by reads of one record each.
pub(super) async fn earliest<Read, Reading>(
    range: SeqRange,
    mut read: Read,
) -> Result<Option<Earliest>, ArchiveError>
where
    Read: FnMut(SeqRange) -> Reading,
    Reading: Future<Output = Result<Page, ArchiveError>>,
{
    let mut rest = range;
    loop {
        let Page { page, alive_until, .. } = read(rest).await?;
        if let Some(record) = page.records.first() {
            return Ok(Some(Earliest { seq: record.seq, expires_at: alive_until }));
        }
        match page.next {
            Some(next) => rest.from = next,
            None => return Ok(None),
        }
    }
}

/// Panics unless a batch is what [`super::ArchiveStore::put`] takes.
pub(super) fn assert_batch(records: &[StoredRecord]) {
    assert!(records.len() <= PUT_RECORDS_MAX, "a batch has at most {PUT_RECORDS_MAX} records");
    assert!(records.iter().all(|record| record.seq > 0), "the first seq is 1");
    assert!(records.is_sorted_by(|a, b| a.seq < b.seq), "a batch ascends by seq");
}

/// Until when the client id of a record with these dates is remembered: long enough for any retry, and as long as the
/// record can be read, so that sending it again never makes a second one.
pub(super) fn client_id_expires_at(created_at: UnixMillis, expires_at: Option<UnixMillis>) -> UnixMillis {
    expires_at.unwrap_or(UnixMillis::MAX).max(created_at + CLIENT_ID_RETENTION)
}

enum Verdict {
    Expired,
    Damaged(String),
    Alive { record: EncodedRecord, until: Option<UnixMillis> },
}

/// Alive is only what both dates say is alive: the column's, which the database goes by, and the record's own, which
/// its checksum covers.
fn judge(decoder: &Decoder, row: RawRow, now: UnixMillis) -> Verdict {
    if row.date.is_past(now) {
        return Verdict::Expired;
    }
    let Some(encoded) = row.encoded else { return Verdict::Damaged("it has no record".to_owned()) };
    let record = match decoder.check(encoded) {
        Ok(record) => record,
        Err(error) => return Verdict::Damaged(error.to_string()),
    };
    if record.is_expired(now) {
        return Verdict::Expired;
    }
    let until = match row.date {
        DateColumn::Never => record.expires_at(),
        DateColumn::At(date) => earlier(Some(date), record.expires_at()),
        DateColumn::Damaged => return Verdict::Damaged("its row has no expiry date".to_owned()),
    };
    Verdict::Alive { record, until }
}

fn earlier(a: Option<UnixMillis>, b: Option<UnixMillis>) -> Option<UnixMillis> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
