//! Client ids, in chunks: see [`crate::archive::id_chunks`].

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use qim_core::{ClientIdHash, ConversationKey, UnixMillis};
use xxhash_rust::xxh3::xxh3_64;

use super::link::{Link, run_all};
use super::put::{high_water, micros};
use crate::archive::id_chunks::{self, Entry, Lookup};
use crate::archive::page::client_id_expires_at;
use crate::archive::row::{Row, signed};
use crate::archive::{ArchiveError, CommittedId};

/// Chunks in one slot, which is a partition: 10 MiB of ids. Part of the stored format.
const SLOT_CHUNKS: u64 = 4096;
/// Most rows in one batch.
const BATCH_ROWS_MAX: usize = 64;
/// Most chunks in one query: what `ScyllaDB` allows.
const QUERY_CHUNKS_MAX: usize = 100;

/// Remembers the client ids of these rows.
pub(super) async fn insert(
    link: &Link,
    conversation: &ConversationKey,
    rows: &[Row],
    now: UnixMillis,
) -> Result<(), ArchiveError> {
    let mut slots: BTreeMap<u64, Vec<(u64, Vec<Entry>)>> = BTreeMap::new();
    for (chunk, entries) in id_chunks::by_chunk(rows, now) {
        // What is remembered for longer than the others would keep them.
        let is_long = |entry: &Entry| {
            let Entry { committed, .. } = entry;
            entry.end() > client_id_expires_at(committed.created_at, Some(committed.created_at))
        };
        let (long, usual): (Vec<_>, Vec<_>) = entries.into_iter().partition(is_long);
        let parts = [long, usual].into_iter().filter(|part| !part.is_empty());
        slots.entry(chunk / SLOT_CHUNKS).or_default().extend(parts.map(|part| (chunk, part)));
    }
    let mut batches = Vec::new();
    for (slot, chunks) in &slots {
        for batch in chunks.chunks(BATCH_ROWS_MAX) {
            let writes = batch.iter().map(|(chunk, entries)| {
                let ids = id_chunks::pack(entries);
                let last =
                    |date: fn(&Entry) -> UnixMillis| entries.iter().map(date).max().expect("not empty");
                let values = (
                    conversation.tenant().as_str(),
                    conversation.conversation(),
                    signed(*slot),
                    signed(*chunk),
                    xxh3_64(&ids).cast_signed(),
                    ids,
                    link.ttl(last(Entry::end), now).secs.expect("a client id expires"),
                    micros(last(|entry| entry.committed.created_at)),
                );
                (&link.statements.insert_client_ids, values)
            });
            batches.push(link.write(writes.collect()));
        }
    }
    run_all(batches).await?;
    Ok(())
}

/// What was committed under these ids, in their order.
pub(super) async fn find(
    link: &Link,
    conversation: &ConversationKey,
    ids: &[ClientIdHash],
    now: UnixMillis,
) -> Result<Vec<Option<CommittedId>>, ArchiveError> {
    let high_water = high_water(link, conversation).await?;
    let chunks: BTreeSet<u64> = ids.iter().flat_map(|id| id_chunks::chunks_of(*id, high_water)).collect();
    let mut slots: BTreeMap<u64, Vec<i64>> = BTreeMap::new();
    for chunk in chunks {
        slots.entry(chunk / SLOT_CHUNKS).or_default().push(signed(chunk));
    }
    let mut queries = Vec::new();
    for (slot, chunks) in &slots {
        for some in chunks.chunks(QUERY_CHUNKS_MAX) {
            let names = (conversation.tenant().as_str(), conversation.conversation());
            let values = (names.0, names.1, signed(*slot), some.to_vec());
            queries.push(link.rows::<(Option<Bytes>,)>(&link.statements.client_ids, values));
        }
    }
    let mut lookup = Lookup::of(ids, now);
    for (packed,) in run_all(queries).await?.into_iter().flatten() {
        // A damaged one is not found.
        lookup.look_through(id_chunks::unpack(&packed.unwrap_or_default()));
    }
    Ok(lookup.found(ids))
}
