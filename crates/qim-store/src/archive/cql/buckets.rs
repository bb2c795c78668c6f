//! Which parts of a conversation hold records, in which table.

use std::ops::RangeInclusive;

use qim_core::{ConversationKey, UnixMillis};

use super::known_buckets::KnownBuckets;
use super::link::Link;
use crate::archive::page::DateColumn;
use crate::archive::row::{signed, unsigned};
use crate::archive::{ArchiveError, Direction, SeqRange};

/// Seqs in one bucket, and so rows in one partition: at most 256 MiB of the largest records of the default size, and
/// 1.2 MiB of ordinary ones. Part of the stored format.
const BUCKET_SEQS: u64 = 4096;
/// Rows of the index that one query asks for. A bucket has one or two.
const INDEX_ROWS_MAX: i32 = 64;

/// The bucket that a seq is in.
pub(super) fn bucket_of(seq: u64) -> u64 {
    seq / BUCKET_SEQS
}

/// The seqs of a bucket.
pub(super) fn seqs_of(bucket: u64) -> RangeInclusive<u64> {
    let first = bucket.saturating_mul(BUCKET_SEQS);
    first..=first.saturating_add(BUCKET_SEQS - 1)
}

/// The part of a range that lies in a bucket.
pub(super) fn part_of(bucket: u64, range: SeqRange) -> SeqRange {
    let seqs = seqs_of(bucket);
    SeqRange { from: range.from.max(*seqs.start()), below: range.below.min(seqs.end().saturating_add(1)) }
}

/// A bucket that holds records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bucket {
    pub(super) number: u64,
    pub(super) has_expiring: bool,
    pub(super) has_held: bool,
}

impl Bucket {
    /// Which tables hold some: `false` for the one of expiring records, `true` for that of held ones.
    pub(super) fn tables(self) -> impl Iterator<Item = bool> {
        self.has_expiring.then_some(false).into_iter().chain(self.has_held.then_some(true))
    }
}

/// Some of the buckets of a range, from the end that a read starts from.
#[derive(Debug)]
pub(super) struct Buckets {
    pub(super) buckets: Vec<Bucket>,
    /// The last bucket that was looked at, where there may be more behind it.
    pub(super) looked_through: Option<u64>,
}

/// Buckets of the range with records that are unexpired at `now`. Where nothing is put into the range any more, what is
/// `known` of it need not be asked for again.
pub(super) async fn some(
    link: &Link,
    conversation: &ConversationKey,
    range: SeqRange,
    direction: Direction,
    now: UnixMillis,
    known: Option<&KnownBuckets>,
) -> Result<Buckets, ArchiveError> {
    if range.from >= range.below {
        return Ok(Buckets { buckets: Vec::new(), looked_through: None });
    }
    if let Some(rows) = known.and_then(|known| known.get(conversation, range)) {
        let inside = bucket_of(range.from)..=bucket_of(range.below - 1);
        let rows = rows.iter().copied().filter(|(bucket, ..)| inside.contains(&unsigned(*bucket)));
        let buckets = match direction {
            Direction::Forwards => alive(rows, now),
            Direction::Backwards => alive(rows.rev(), now),
        };
        return Ok(Buckets { buckets, looked_through: None });
    }
    let bounds = (
        conversation.tenant().as_str(),
        conversation.conversation(),
        signed(bucket_of(range.from)),
        signed(bucket_of(range.below - 1)),
        INDEX_ROWS_MAX,
    );
    let mut rows: Vec<IndexRow> = link.rows(link.statements.buckets(direction), bounds).await?;
    let mut looked_through = None;
    if rows.len() == usize::try_from(INDEX_ROWS_MAX).expect("a small number") {
        // The second row of the last bucket may be missing.
        let last = rows[rows.len() - 1].0;
        rows.retain(|(bucket, ..)| *bucket != last);
        looked_through = rows.last().map(|(bucket, ..)| unsigned(*bucket));
    }
    let buckets = alive(rows.iter().copied(), now);
    if let (Some(known), None) = (known, looked_through) {
        rows.sort_unstable();
        known.put(conversation, range, rows);
    }
    Ok(Buckets { buckets, looked_through })
}

/// Those with unexpired records, in the order of the rows.
fn alive(rows: impl Iterator<Item = IndexRow>, now: UnixMillis) -> Vec<Bucket> {
    let mut buckets: Vec<Bucket> = Vec::new();
    for (bucket, held, expires_at) in rows {
        if expires_at.map(DateColumn::from_millis).is_some_and(|date| date.is_past(now)) {
            continue;
        }
        let number = unsigned(bucket);
        if buckets.last().is_none_or(|last| last.number != number) {
            buckets.push(Bucket { number, has_expiring: false, has_held: false });
        }
        let bucket = buckets.last_mut().expect("just pushed");
        if held { bucket.has_held = true } else { bucket.has_expiring = true }
    }
    buckets
}

/// All buckets of the range with records that are unexpired at `now`, ascending.
pub(super) async fn all(
    link: &Link,
    conversation: &ConversationKey,
    range: SeqRange,
    now: UnixMillis,
) -> Result<Vec<Bucket>, ArchiveError> {
    let (mut all, mut rest) = (Vec::new(), range);
    loop {
        let Buckets { buckets, looked_through } =
            some(link, conversation, rest, Direction::Forwards, now, None).await?;
        all.extend(buckets);
        match looked_through {
            Some(bucket) => rest.from = seqs_of(bucket).end().saturating_add(1),
            None => return Ok(all),
        }
    }
}

/// `bucket`, `held`, `expires_at`.
pub(super) type IndexRow = (i64, bool, Option<i64>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_has_4096_seqs() {
        assert_eq!([1, 4095, 4096, 8191, 8192].map(bucket_of), [0, 0, 1, 1, 2]);
        assert_eq!(seqs_of(0), 0..=4095);
        assert_eq!(seqs_of(1), 4096..=8191);
        let range = SeqRange { from: 4000, below: 8193 };
        assert_eq!(part_of(0, range), SeqRange { from: 4000, below: 4096 });
        assert_eq!(part_of(1, range), SeqRange { from: 4096, below: 8192 });
        assert_eq!(part_of(2, range), SeqRange { from: 8192, below: 8193 });
        assert_eq!(seqs_of(bucket_of(u64::MAX)).end(), &u64::MAX);
    }
}
