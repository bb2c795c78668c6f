use std::collections::BTreeMap;

use bytes::Bytes;
use qim_core::{ConversationKey, UnixMillis};

use super::buckets::{self, Bucket, Buckets, bucket_of, part_of, seqs_of};
use super::known_buckets::KnownBuckets;
use super::link::{Link, run_all};
use crate::archive::page::{DateColumn, Page, PageBuilder, RawRow};
use crate::archive::row::{signed, unsigned};
use crate::archive::{ArchiveError, Direction, RowMark, SeqRange, StoredRecord, record_digest};

/// Takes rows of the range until the page is full, bucket by bucket.
pub(super) async fn page(
    link: &Link,
    mut page: PageBuilder,
    conversation: &ConversationKey,
    direction: Direction,
    now: UnixMillis,
    known: Option<&KnownBuckets>,
) -> Result<Page, ArchiveError> {
    let Buckets { buckets, looked_through } =
        buckets::some(link, conversation, page.rest(), direction, now, known).await?;
    let edge_of = |bucket| match direction {
        Direction::Forwards => *seqs_of(bucket).end(),
        Direction::Backwards => *seqs_of(bucket).start(),
    };
    for bucket in buckets {
        read_bucket(link, &mut page, conversation, bucket, direction).await?;
        if page.is_full() {
            return Ok(page.finish());
        }
        page.skip_past(edge_of(bucket.number));
    }
    match looked_through {
        Some(bucket) => page.skip_past(edge_of(bucket)),
        None => page.skip_rest(),
    }
    Ok(page.finish())
}

async fn read_bucket(
    link: &Link,
    page: &mut PageBuilder,
    conversation: &ConversationKey,
    bucket: Bucket,
    direction: Direction,
) -> Result<(), ArchiveError> {
    loop {
        let part = part_of(bucket.number, page.rest());
        if part.from >= part.below {
            return Ok(());
        }
        let wanted = page.rows_wanted();
        let tables = bucket
            .tables()
            .map(|held| rows(link, conversation, (bucket.number, held), part, direction, wanted));
        let tables = run_all(tables.collect()).await?;
        // Of a table that gave all it was asked for, rows behind its last one are not known yet: the first `wanted`
        // of all tables are before that.
        let is_all = tables.iter().all(|rows| rows.len() < wanted);
        // Held ones first: where a seq stands in both tables, that one counts.
        let mut found: Vec<RawRow> = tables.into_iter().rev().flatten().collect();
        found.sort_by_key(|row| row.seq);
        found.dedup_by_key(|row| row.seq);
        if direction == Direction::Backwards {
            found.reverse();
        }
        if !is_all {
            found.truncate(wanted);
        }
        for row in found {
            page.push(row);
        }
        if is_all {
            return Ok(());
        }
    }
}

/// Rows of one bucket and table.
async fn rows(
    link: &Link,
    conversation: &ConversationKey,
    (bucket, held): (u64, bool),
    part: SeqRange,
    direction: Direction,
    limit: usize,
) -> Result<Vec<RawRow>, ArchiveError> {
    let bounds = (
        conversation.tenant().as_str(),
        conversation.conversation(),
        signed(bucket),
        signed(part.from),
        signed(part.below),
        i32::try_from(limit).expect("a page is short"),
    );
    let statement = link.statements.table(held).rows(direction);
    let rows: Vec<(i64, Option<Bytes>, Option<i64>)> = link.rows(statement, bounds).await?;
    let row =
        |(seq, encoded, expires_at)| RawRow { seq: unsigned(seq), date: date(held, expires_at), encoded };
    Ok(rows.into_iter().map(row).collect())
}

/// What is found under a seq, expired or not, before it is read whole.
#[derive(Debug, Clone, Copy)]
pub(super) struct RawMark {
    pub(super) seq: u64,
    pub(super) held: bool,
    date: DateColumn,
    pub(super) digest: Option<u64>,
}

impl RawMark {
    /// `None` for a row that has expired, and for a damaged one: whoever looks for it does not find it, and looks
    /// closer.
    pub(super) fn unexpired(self, now: UnixMillis) -> Option<RowMark> {
        let expires_at = match self.date {
            DateColumn::Never => None,
            DateColumn::At(date) if now < date => Some(date),
            DateColumn::At(_) | DateColumn::Damaged => return None,
        };
        Some(RowMark { seq: self.seq, expires_at, digest: self.digest? })
    }
}

/// The marks of the unexpired rows of a range.
pub(super) async fn marks(
    link: &Link,
    conversation: &ConversationKey,
    range: SeqRange,
    now: UnixMillis,
) -> Result<Vec<RowMark>, ArchiveError> {
    let buckets = buckets::all(link, conversation, range, now).await?;
    let parts: Vec<_> = buckets.into_iter().map(|bucket| (bucket, part_of(bucket.number, range))).collect();
    Ok(unexpired(raw_marks(link, conversation, &parts).await?, now))
}

/// The marks of the unexpired rows of these records, in the tables and buckets that they belong to.
pub(super) async fn marks_of(
    link: &Link,
    conversation: &ConversationKey,
    records: &[StoredRecord],
    now: UnixMillis,
) -> Result<Vec<RowMark>, ArchiveError> {
    let mut parts: BTreeMap<(u64, bool), SeqRange> = BTreeMap::new();
    for StoredRecord { seq, encoded } in records {
        let table = (bucket_of(*seq), encoded.expires_at().is_none());
        let part = parts.entry(table).or_insert(SeqRange { from: *seq, below: *seq });
        part.below = seq + 1;
    }
    let queries = parts.into_iter().map(|(table, part)| marks_of_table(link, conversation, table, part));
    Ok(unexpired(ascending(run_all(queries.collect()).await?), now))
}

/// One for each seq: the held one, where there are two.
fn unexpired(marks: Vec<RawMark>, now: UnixMillis) -> Vec<RowMark> {
    let mut marks: Vec<_> = marks.into_iter().rev().filter_map(|mark| mark.unexpired(now)).collect();
    marks.dedup_by_key(|mark| mark.seq);
    marks.reverse();
    marks
}

fn ascending(marks: Vec<Vec<RawMark>>) -> Vec<RawMark> {
    let mut marks: Vec<RawMark> = marks.into_iter().flatten().collect();
    marks.sort_by_key(|mark| (mark.seq, mark.held));
    marks
}

/// The marks of the parts of these buckets, ascending by seq, and the held one last where a seq has two.
pub(super) async fn raw_marks(
    link: &Link,
    conversation: &ConversationKey,
    parts: &[(Bucket, SeqRange)],
) -> Result<Vec<RawMark>, ArchiveError> {
    let queries = parts.iter().flat_map(|(bucket, part)| {
        bucket.tables().map(|held| marks_of_table(link, conversation, (bucket.number, held), *part))
    });
    Ok(ascending(run_all(queries.collect()).await?))
}

async fn marks_of_table(
    link: &Link,
    conversation: &ConversationKey,
    (bucket, held): (u64, bool),
    part: SeqRange,
) -> Result<Vec<RawMark>, ArchiveError> {
    let bounds = (
        conversation.tenant().as_str(),
        conversation.conversation(),
        signed(bucket),
        signed(part.from),
        signed(part.below),
    );
    let rows: Vec<(i64, Option<i64>, Option<Bytes>)> =
        link.rows(&link.statements.table(held).marks, bounds).await?;
    let mark = |(seq, expires_at, record): (i64, Option<i64>, Option<Bytes>)| RawMark {
        seq: unsigned(seq),
        held,
        date: date(held, expires_at),
        digest: record.map(|record| record_digest(&record)),
    };
    Ok(rows.into_iter().map(mark).collect())
}

/// How many unexpired records a conversation has.
pub(super) async fn count(
    link: &Link,
    conversation: &ConversationKey,
    now: UnixMillis,
) -> Result<u64, ArchiveError> {
    let whole = SeqRange { from: 1, below: u64::MAX };
    let buckets = buckets::all(link, conversation, whole, now).await?;
    let (tenant, conversation) = (conversation.tenant().as_str(), conversation.conversation());
    let queries = buckets.iter().flat_map(|bucket| {
        bucket.tables().map(async |held| {
            let statement = &link.statements.table(held).count;
            let bucket = signed(bucket.number);
            let counts: Vec<(i64,)> = if held {
                link.rows(statement, (tenant, conversation, bucket)).await?
            } else {
                link.rows(statement, (tenant, conversation, bucket, now.as_i64())).await?
            };
            Ok(counts.iter().map(|(count,)| unsigned(*count)).sum::<u64>())
        })
    });
    Ok(run_all(queries.collect()).await?.into_iter().sum())
}

fn date(held: bool, expires_at: Option<i64>) -> DateColumn {
    match expires_at {
        Some(millis) => DateColumn::from_millis(millis),
        None if held => DateColumn::Never,
        None => DateColumn::Damaged,
    }
}
