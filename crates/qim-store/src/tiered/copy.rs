use std::collections::HashMap;
use std::time::Instant;

use qim_core::{ConversationKey, UnixMillis};

use super::{MoveError, TieredMessageStore};
use crate::archive::{ArchiveError, PutReport, RowMark, SeqRange, StoredRecord, record_digest};
use crate::hot::{Fence, HotValue, PageStart, SCRIPT_RECORDS_MAX};

/// What a copy did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CopyReport {
    /// Rows.
    pub put: PutReport,
    /// There are records that were not copied yet: call again.
    pub more: bool,
}

impl TieredMessageStore {
    /// Copies one batch of a conversation's records that the archive has not got, reads them back, and moves the
    /// archived mark (SPEC A10, A20). Safe to repeat after a crash at any point.
    pub async fn copy(
        &self,
        conversation: &ConversationKey,
        fence: &Fence,
        now: UnixMillis,
    ) -> Result<CopyReport, MoveError> {
        let began = Instant::now();
        let page = self.hot.read_page(conversation, PageStart::Unarchived, SCRIPT_RECORDS_MAX, now);
        let (page, _room) = self.room.read(page).await?;
        let mut mark = page.marks.archived;
        let mut damaged = None;
        let mut records = Vec::with_capacity(page.values.len());
        for value in page.values {
            mark = value.seq();
            match value {
                HotValue::Record(record) => records.push(record),
                HotValue::Collected { .. } => {}
                HotValue::Damaged { seq, reason } => {
                    // Copy what comes before it; it must never be marked as archived.
                    damaged = Some(format!("the record at seq {seq} is damaged: {reason}"));
                    mark = seq - 1;
                    break;
                }
            }
        }
        // The time a row has left is counted from when it is written (SPEC A10).
        let mut put = self.put_and_verify(conversation, &records, now + began.elapsed()).await;
        if let Err(ArchiveError::Damaged { seq, .. }) = put {
            damaged = put.err().map(|error| error.to_string());
            mark = seq - 1;
            records.retain(|record| record.seq < seq);
            put = self.put_and_verify(conversation, &records, now + began.elapsed()).await;
        }
        let put = put?;
        if mark > page.marks.archived {
            self.note_given(conversation, &records, mark).await?;
        }
        let outcome = self.hot.mark_archived(conversation, fence, mark).await?;
        match damaged {
            Some(reason) => Err(MoveError::Poisoned(reason)),
            None => Ok(CopyReport { put, more: outcome.archived < outcome.last }),
        }
    }

    /// Tells the archive that seqs up to this one were given, where what was put does not say so: what expired before its
    /// copy leaves nothing else there, and if Redis is lost, its seq must not be given again.
    pub(super) async fn note_given(
        &self,
        conversation: &ConversationKey,
        put: &[StoredRecord],
        upto: u64,
    ) -> Result<(), ArchiveError> {
        if put.last().is_some_and(|record| record.seq >= upto) {
            return Ok(());
        }
        self.archive.raise_high_water(conversation, upto).await
    }

    /// Makes sure that the archive holds these records: `Ok` only after they were read back.
    pub(super) async fn put_and_verify(
        &self,
        conversation: &ConversationKey,
        records: &[StoredRecord],
        now: UnixMillis,
    ) -> Result<PutReport, ArchiveError> {
        if records.is_empty() {
            return Ok(PutReport::default());
        }
        let report = self.archive.put(conversation, records, now).await?;
        if records.iter().all(|record| record.encoded.is_expired(now)) {
            return Ok(report);
        }
        let marks = self.archive.marks_of(conversation, records, now).await?;
        match missing_of(records, marks, now).first() {
            None => Ok(report),
            Some(record) => Err(ArchiveError::Unavailable(format!(
                "seq {} was acknowledged and cannot be read back",
                record.seq
            ))),
        }
    }

    /// Those of these records that are still readable at `now` and that the archive does not hold, or not with the same
    /// bytes and date.
    pub(super) async fn missing(
        &self,
        conversation: &ConversationKey,
        records: &[StoredRecord],
        now: UnixMillis,
    ) -> Result<Vec<StoredRecord>, ArchiveError> {
        // Of what has expired no copy is needed, nor an archive that answers.
        let mut readable = records.iter().filter(|record| !record.encoded.is_expired(now));
        let Some(first) = readable.next() else { return Ok(Vec::new()) };
        let last = readable.next_back().unwrap_or(first);
        let range = SeqRange { from: first.seq, below: last.seq + 1 };
        let marks = self.archive.marks(conversation, range, now).await?;
        Ok(missing_of(records, marks, now).into_iter().cloned().collect())
    }
}

/// Those of these records that are still readable at `now` and have no mark, or not with the same bytes and date.
fn missing_of(records: &[StoredRecord], marks: Vec<RowMark>, now: UnixMillis) -> Vec<&StoredRecord> {
    let held: HashMap<u64, _> = marks.into_iter().map(|mark| (mark.seq, mark)).collect();
    let is_missing = |record: &&StoredRecord| {
        let StoredRecord { seq, encoded } = record;
        !encoded.is_expired(now)
            && held.get(seq).is_none_or(|mark| {
                mark.expires_at != encoded.expires_at() || mark.digest != record_digest(encoded.bytes())
            })
    };
    records.iter().filter(is_missing).collect()
}
