use std::collections::BTreeMap;
use std::time::Instant;

use qim_core::{ConversationKey, RowTtl, UnixMillis};
use scylla::errors::SerializationError;
use scylla::serialize::row::{RowSerializationContext, SerializeRow};
use scylla::serialize::writers::RowWriter;

use super::buckets::{self, bucket_of, part_of};
use super::client_ids;
use super::link::{Link, run_all};
use super::read::{self, FoundRow};
use crate::archive::row::{Row, signed};
use crate::archive::{ArchiveError, PutReport, SeqRange, record_digest};

/// Most rows in one batch: beyond, batches only get slower for others.
const BATCH_ROWS_MAX: usize = 64;
/// Most bytes in one batch, unless one row alone has more: `ScyllaDB` warns of batches from 128 KiB on.
const BATCH_BYTES_MAX: usize = 96 << 10;

/// Copies rows, which ascend by seq, and of which there is one.
///
/// The order makes every interruption harmless: the index and the high-water mark come first, so that no record stands
/// where nobody looks, and a seq with a record is never given to another one; a client id comes after its record, so
/// that nobody is told of a record that is not there.
pub(super) async fn put(
    link: &Link,
    conversation: &ConversationKey,
    rows: &[Row],
    now: UnixMillis,
) -> Result<PutReport, ArchiveError> {
    let began = Instant::now();
    let high_water = high_water(link, conversation).await?;
    let missing = if rows[0].seq > high_water {
        rows.iter().collect()
    } else {
        missing_rows(link, conversation, rows).await?
    };
    let last = rows[rows.len() - 1].seq;
    announce(link, conversation, &missing, (last > high_water).then_some(last), now).await?;
    // What the questions above took is no longer left of anybody's time.
    let now = now + began.elapsed();
    let clamped = insert_rows(link, conversation, &missing, now).await?;
    client_ids::insert(link, conversation, rows, now).await?;
    let written = missing.len() as u64;
    Ok(PutReport { written, unchanged: rows.len() as u64 - written, clamped })
}

/// The highest seq ever put.
pub(super) async fn high_water(link: &Link, conversation: &ConversationKey) -> Result<u64, ArchiveError> {
    let names = (conversation.tenant().as_str(), conversation.conversation());
    let rows: Vec<(Option<i64>,)> = link.rows(&link.statements.high_water, names).await?;
    Ok(rows.first().and_then(|(mark,)| *mark).map_or(0, crate::archive::row::unsigned))
}

/// Says that seqs up to this one were given.
pub(super) async fn raise_high_water(
    link: &Link,
    conversation: &ConversationKey,
    seq: u64,
) -> Result<(), ArchiveError> {
    let (mark, names) = (signed(seq), (conversation.tenant().as_str(), conversation.conversation()));
    link.write(vec![(&link.statements.raise_high_water, (mark, mark, names.0, names.1))]).await
}

/// Those of `rows` that are not there. Fails when another record stands under the seq of one.
async fn missing_rows<'a>(
    link: &Link,
    conversation: &ConversationKey,
    rows: &'a [Row],
) -> Result<Vec<&'a Row>, ArchiveError> {
    let whole = SeqRange { from: rows[0].seq, below: rows[rows.len() - 1].seq + 1 };
    // Expired rows count, too, as long as they are there.
    let buckets = buckets::all(link, conversation, whole, UnixMillis::EPOCH).await?;
    let is_touched = |number| rows.iter().any(|row| bucket_of(row.seq) == number);
    let parts: Vec<_> = buckets
        .into_iter()
        .filter(|bucket| is_touched(bucket.number))
        .map(|bucket| (bucket, part_of(bucket.number, whole)))
        .collect();
    let found = read::found_rows(link, conversation, &parts).await?;
    let mut missing = Vec::new();
    for row in rows {
        let first = found.partition_point(|found| found.seq < row.seq);
        let same_seq = found[first..].iter().take_while(|found| found.seq == row.seq);
        let is_this = |found: &FoundRow| {
            found.encoded.as_deref().map(record_digest) == Some(row.digest)
                && found.held == row.expires_at.is_none()
        };
        match same_seq.clone().count() {
            0 => missing.push(row),
            _ if same_seq.clone().all(is_this) => {}
            _ => return Err(ArchiveError::Conflict { seq: row.seq }),
        }
    }
    Ok(missing)
}

/// Notes which buckets the rows are in, and how high the conversation goes.
async fn announce(
    link: &Link,
    conversation: &ConversationKey,
    rows: &[&Row],
    high_water: Option<u64>,
    now: UnixMillis,
) -> Result<(), ArchiveError> {
    let (tenant, conversation) = (conversation.tenant().as_str(), conversation.conversation());
    let mut expiring: BTreeMap<u64, UnixMillis> = BTreeMap::new();
    let mut held: BTreeMap<u64, UnixMillis> = BTreeMap::new();
    for row in rows {
        let (buckets, date) = match row.expires_at {
            Some(expires_at) => (&mut expiring, expires_at),
            None => (&mut held, row.created_at),
        };
        let latest = buckets.entry(bucket_of(row.seq)).or_insert(date);
        *latest = date.max(*latest);
    }
    let mut writes = Vec::new();
    if let Some(mark) = high_water.map(signed) {
        writes
            .push((&link.statements.raise_high_water, IndexWrite::Mark((mark, mark, tenant, conversation))));
    }
    for (bucket, expires_at) in expiring {
        let RowTtl { secs, .. } = link.ttl(expires_at, now);
        let (date, ttl) = (expires_at.as_i64(), secs.expect("a row that expires has a TTL"));
        let write = IndexWrite::Expiring((tenant, conversation, signed(bucket), date, ttl, date));
        writes.push((&link.statements.insert_bucket, write));
    }
    for (bucket, created_at) in held {
        let write = IndexWrite::Held((tenant, conversation, signed(bucket), micros(created_at)));
        writes.push((&link.statements.insert_held_bucket, write));
    }
    // All in one partition: one write.
    link.write(writes).await
}

/// Writes the rows, in batches of one partition each; answers how many have a shorter TTL than their date.
async fn insert_rows(
    link: &Link,
    conversation: &ConversationKey,
    rows: &[&Row],
    now: UnixMillis,
) -> Result<u64, ArchiveError> {
    let (tenant, conversation) = (conversation.tenant().as_str(), conversation.conversation());
    let mut clamped = 0;
    let mut batches = Vec::new();
    for batch in batches_of(rows) {
        let mut writes = Vec::with_capacity(batch.len());
        for row in batch {
            let (bucket, seq) = (signed(bucket_of(row.seq)), signed(row.seq));
            let (record, timestamp) = (&row.encoded[..], micros(row.created_at));
            writes.push(if let Some(expires_at) = row.expires_at {
                let ttl = link.ttl(expires_at, now);
                clamped += u64::from(ttl.clamped);
                let (date, secs) = (expires_at.as_i64(), ttl.secs.expect("a row that expires has a TTL"));
                let write = (tenant, conversation, bucket, seq, record, date, secs, timestamp);
                (&link.statements.insert_record, RowWrite::Expiring(write))
            } else {
                let write = (tenant, conversation, bucket, seq, record, timestamp);
                (&link.statements.insert_held_record, RowWrite::Held(write))
            });
        }
        batches.push(link.write(writes));
    }
    run_all(batches).await?;
    Ok(clamped)
}

/// Cuts rows into batches of one partition and table each.
fn batches_of<'a>(rows: &[&'a Row]) -> Vec<Vec<&'a Row>> {
    let mut partitions: BTreeMap<(u64, bool), Vec<Vec<&Row>>> = BTreeMap::new();
    for row in rows {
        let batches = partitions.entry((bucket_of(row.seq), row.expires_at.is_none())).or_default();
        let has_room = |batch: &Vec<&Row>| {
            let bytes: usize = batch.iter().map(|row| row.encoded.len()).sum();
            batch.len() < BATCH_ROWS_MAX && bytes + row.encoded.len() <= BATCH_BYTES_MAX
        };
        match batches.last_mut() {
            Some(batch) if has_room(batch) => batch.push(row),
            _ => batches.push(vec![row]),
        }
    }
    partitions.into_values().flatten().collect()
}

/// The write timestamp of what belongs to a record: whatever changes it later has a greater one.
pub(super) fn micros(created_at: UnixMillis) -> i64 {
    created_at.as_i64() * 1000
}

/// What is bound to a write of the index.
enum IndexWrite<'a> {
    Mark((i64, i64, &'a str, &'a str)),
    Expiring((&'a str, &'a str, i64, i64, i32, i64)),
    Held((&'a str, &'a str, i64, i64)),
}

/// What is bound to a write of a record.
enum RowWrite<'a> {
    Expiring((&'a str, &'a str, i64, i64, &'a [u8], i64, i32, i64)),
    Held((&'a str, &'a str, i64, i64, &'a [u8], i64)),
}

impl SerializeRow for IndexWrite<'_> {
    fn serialize(
        &self,
        context: &RowSerializationContext<'_>,
        writer: &mut RowWriter<'_>,
    ) -> Result<(), SerializationError> {
        match self {
            Self::Mark(values) => values.serialize(context, writer),
            Self::Expiring(values) => values.serialize(context, writer),
            Self::Held(values) => values.serialize(context, writer),
        }
    }

    fn is_empty(&self) -> bool {
        false
    }
}

impl SerializeRow for RowWrite<'_> {
    fn serialize(
        &self,
        context: &RowSerializationContext<'_>,
        writer: &mut RowWriter<'_>,
    ) -> Result<(), SerializationError> {
        match self {
            Self::Expiring(values) => values.serialize(context, writer),
            Self::Held(values) => values.serialize(context, writer),
        }
    }

    fn is_empty(&self) -> bool {
        false
    }
}
