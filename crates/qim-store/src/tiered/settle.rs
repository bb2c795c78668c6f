//! From where a conversation goes on after Redis may have lost data (ADR 18).

use qim_core::{ConversationKey, Decoder, UnixMillis};

use super::{TierError, TieredMessageStore};
use crate::archive::{ArchiveError, Direction, Gap, SeqRange, StoredRecord, StoredRow};
use crate::hot::{
    Filling, HotError, HotPage, HotValue, Lineage, Marks, PageStart, PutBackState, SCRIPT_RECORDS_MAX,
    Settle, Settled,
};

/// How often a conversation is looked at again that changed meanwhile.
const ATTEMPTS_MAX: usize = 8;
/// How many seqs are left out where some may have been given that nobody knows of: more than one conversation gets before
/// the archive has them.
pub(super) const UNKNOWN_SEQS: u64 = 1 << 20;
/// Longer holes than this are not filled: what is hot before them leaves the hot tier first.
const FILLED_MAX: u64 = 64 * SCRIPT_RECORDS_MAX as u64;
/// Most bytes of records that are filled in by one call.
const FILL_BYTES_MAX: usize = 1024 * 1024;

impl TieredMessageStore {
    /// Compares the conversation's last seq with what the archive and all writers know, so that no seq is given again, and
    /// says from where it goes on. What lies between and nobody has is noted as a gap first.
    pub(super) async fn settle(
        &self,
        conversation: &ConversationKey,
        now: UnixMillis,
    ) -> Result<(), TierError> {
        for _ in 0..ATTEMPTS_MAX {
            let lineage = self.hot.lineage(conversation).await?;
            let page = self.hot.read_page(conversation, PageStart::After(u64::MAX), 0, now).await?;
            if page.checked_in.is_settled_in(&lineage) {
                return Ok(());
            }
            let state = self.hot.put_back_state(conversation);
            if state == PutBackState::Underway {
                return Err(HotError::putting_back().into());
            }
            let last = self.last_given(conversation, &page, &lineage, state).await?;
            let request = Settle {
                seen: page.marks.last,
                last,
                not_before: self.last_date(conversation, page.marks, now).await?,
                is_final: true,
            };
            match self.hot.settle(conversation, &lineage, request).await? {
                Settled::Done => return Ok(()),
                Settled::Moved => {}
                Settled::Behind => self.catch_up(conversation, &lineage, page.marks, last, now).await?,
            }
        }
        Err(HotError::Unavailable("the conversation changes too quickly to be settled".into()).into())
    }

    /// The last seq that may have been given. A gap is noted where that is a guess.
    async fn last_given(
        &self,
        conversation: &ConversationKey,
        page: &HotPage,
        lineage: &Lineage,
        state: PutBackState,
    ) -> Result<u64, ArchiveError> {
        let known = page.marks.last.max(self.archive.high_water(conversation).await?);
        let is_known = match state {
            PutBackState::Underway | PutBackState::Complete => true,
            PutBackState::TailUnknown => page.checked_in.is_topped_in(lineage),
            PutBackState::WritersGone => false,
        };
        let Some(noticed_at) = lineage.doubted_at().filter(|_| !is_known) else { return Ok(known) };
        let gaps = self.archive.gaps(conversation).await?;
        // It was noted before, and what comes next was not done.
        if gaps.last().is_some_and(|gap| gap.to == known && gap.noticed_at == noticed_at) {
            return Ok(known);
        }
        let gap = Gap { from: known + 1, to: known + UNKNOWN_SEQS, noticed_at };
        self.note_gap(conversation, gap).await?;
        Ok(gap.to)
    }

    /// Notes a gap in the archive, for ever.
    pub(super) async fn note_gap(
        &self,
        conversation: &ConversationKey,
        gap: Gap,
    ) -> Result<(), ArchiveError> {
        self.archive.note_gap(conversation, gap).await?;
        tracing::error!(%conversation, from = gap.from, to = gap.to, "records were lost, or may have been: a gap is noted");
        self.hot.losses().gap(gap.to - gap.from + 1);
        Ok(())
    }

    /// The date of the last record in either tier: dates never go back.
    pub(super) async fn last_date(
        &self,
        conversation: &ConversationKey,
        marks: Marks,
        now: UnixMillis,
    ) -> Result<UnixMillis, ArchiveError> {
        let above = SeqRange { from: marks.last + 1, below: u64::MAX >> 16 };
        let newest = self.archive.read(conversation, above, Direction::Backwards, 1, now).await?;
        let archived = newest.records.last().map(|record| record.encoded.created_at());
        Ok(archived.unwrap_or_default().max(marks.last_created_at))
    }

    /// Brings what is hot up to `last`: with what the archive has, or by making room for a far jump.
    pub(super) async fn catch_up(
        &self,
        conversation: &ConversationKey,
        lineage: &Lineage,
        marks: Marks,
        last: u64,
        now: UnixMillis,
    ) -> Result<(), TierError> {
        if last - marks.last > FILLED_MAX {
            // As large as it is, it would be part of every commit's future.
            return Box::pin(self.vacate(conversation, lineage, now)).await;
        }
        let gaps = self.archive.gaps(conversation).await?;
        let (mut first, mut date) = (marks.last + 1, marks.last_created_at);
        while first <= last {
            let below = (first + SCRIPT_RECORDS_MAX as u64).min(last + 1);
            let rows = self.archive.rows(conversation, SeqRange { from: first, below }, now).await?;
            let fillings = fillings(conversation, &rows, &gaps, first..below);
            let (count, from) = (fillings.len() as u64, date);
            for filling in &fillings {
                if let Filling::Archived(record) = filling {
                    date = record.encoded.created_at();
                }
            }
            self.hot.fill(conversation, lineage, first, fillings, from).await?;
            first += count;
        }
        Ok(())
    }

    /// Takes everything hot off the conversation, once the archive has it: what the archive has lost since it was copied is
    /// copied again first, as before a trim (SPEC A20).
    async fn vacate(
        &self,
        conversation: &ConversationKey,
        lineage: &Lineage,
        now: UnixMillis,
    ) -> Result<(), TierError> {
        let mut left = u64::MAX;
        while left > 0 {
            let page = self.hot.read_page(conversation, PageStart::After(0), SCRIPT_RECORDS_MAX, now);
            let (page, _room) = self.room.read(page).await?;
            let Some(upto) = page.values.last().map(HotValue::seq) else { return Ok(()) };
            let archived = page.marks.archived;
            let copied = page.values.into_iter().filter_map(|value| match value {
                HotValue::Record(record) if record.seq <= archived => Some(record),
                _ => None,
            });
            let missing = self.missing(conversation, &copied.collect::<Vec<_>>(), now).await?;
            self.put_and_verify(conversation, &missing, now).await?;
            let vacated = self.hot.vacate(conversation, lineage, upto, now).await?;
            if std::mem::replace(&mut left, vacated) == left {
                return Err(HotError::checking("the archive has not got all of the conversation yet").into());
            }
        }
        Ok(())
    }
}

/// What belongs into these places, no more than a call takes.
fn fillings(
    conversation: &ConversationKey,
    rows: &[StoredRow],
    gaps: &[Gap],
    places: std::ops::Range<u64>,
) -> Vec<Filling> {
    let mut bytes = 0;
    let mut rows = rows.iter().peekable();
    let mut fillings = Vec::new();
    for seq in places {
        let filling = match rows.next_if(|row| row.seq == seq) {
            Some(row) => {
                bytes += row.encoded.len();
                if bytes > FILL_BYTES_MAX && !fillings.is_empty() {
                    break;
                }
                archived(conversation, row).unwrap_or(Filling::Expired)
            }
            None if gaps.iter().any(|gap| (gap.from..=gap.to).contains(&seq)) => Filling::Lost,
            None => Filling::Expired,
        };
        fillings.push(filling);
    }
    fillings
}

/// `None` for a damaged one, which nobody can read in the archive either.
fn archived(conversation: &ConversationKey, row: &StoredRow) -> Option<Filling> {
    let encoded = Decoder::of(conversation).check(row.encoded.clone()).ok()?;
    let record = StoredRecord { seq: row.seq, encoded };
    Some(Filling::Archived(Box::new(record)))
}
