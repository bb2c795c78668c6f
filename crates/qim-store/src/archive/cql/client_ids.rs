use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use qim_core::{ClientIdHash, ConversationKey, UnixMillis};

use super::link::{Link, run_all};
use super::put::{high_water, micros};
use crate::archive::page::client_id_expires_at;
use crate::archive::row::{Row, signed};
use crate::archive::{ArchiveError, CommittedId};

/// Ids in one slot, and so rows in one partition: about 20 MiB. Part of the stored format.
const SLOT_IDS: u64 = 1 << 18;
/// Most rows in one batch.
const BATCH_IDS_MAX: usize = 64;
/// Most ids in one query: what `ScyllaDB` allows.
const QUERY_IDS_MAX: usize = 100;

/// Remembers the client ids of these rows.
pub(super) async fn insert(
    link: &Link,
    conversation: &ConversationKey,
    rows: &[Row],
    now: UnixMillis,
) -> Result<(), ArchiveError> {
    let mut slots: BTreeMap<u64, Vec<&Row>> = BTreeMap::new();
    for row in rows.iter().filter(|row| now < client_id_expires_at(row.created_at, row.expires_at)) {
        slots.entry(slot_of(row.client_id, generation_of(row.seq))).or_default().push(row);
    }
    let mut batches = Vec::new();
    for (slot, rows) in &slots {
        for batch in rows.chunks(BATCH_IDS_MAX) {
            let writes = batch.iter().map(|row| {
                let ttl = link.ttl(client_id_expires_at(row.created_at, row.expires_at), now);
                let values = (
                    conversation.tenant().as_str(),
                    conversation.conversation(),
                    signed(*slot),
                    row.client_id.to_bytes(),
                    pack(row),
                    ttl.secs.expect("a client id expires"),
                    micros(row.created_at),
                );
                (&link.statements.insert_client_id, values)
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
    let newest = generation_of(high_water(link, conversation).await?);
    let mut slots: BTreeMap<u64, Vec<[u8; 16]>> = BTreeMap::new();
    for generation in 0..=newest {
        for id in ids {
            slots.entry(slot_of(*id, generation)).or_default().push(id.to_bytes());
        }
    }
    let mut queries = Vec::new();
    for (slot, ids) in &slots {
        for some in ids.chunks(QUERY_IDS_MAX) {
            let names = (conversation.tenant().as_str(), conversation.conversation());
            let values = (names.0, names.1, signed(*slot), some.to_vec());
            queries.push(link.rows::<IdRow>(&link.statements.client_ids, values));
        }
    }
    let mut found: HashMap<Bytes, CommittedId> = HashMap::new();
    for (id, committed) in run_all(queries).await?.into_iter().flatten() {
        // A damaged one is not found.
        let Some(committed) = committed.and_then(|packed| unpack(&packed)) else { continue };
        if now >= client_id_expires_at(committed.created_at, committed.expires_at) {
            continue;
        }
        let latest = found.entry(id).or_insert(committed);
        if committed.seq > latest.seq {
            *latest = committed;
        }
    }
    Ok(ids.iter().map(|id| found.get(&id.to_bytes()[..]).copied()).collect())
}

/// `id_hash`, `committed`.
type IdRow = (Bytes, Option<Bytes>);

/// The `committed` column.
fn pack(row: &Row) -> [u8; 32] {
    let expires_at = row.expires_at.unwrap_or_default();
    let numbers = [row.seq, row.body_digest, row.created_at.get(), expires_at.get()];
    let mut packed = [0; 32];
    for (place, number) in packed.chunks_exact_mut(8).zip(numbers) {
        place.copy_from_slice(&number.to_be_bytes());
    }
    packed
}

fn unpack(packed: &[u8]) -> Option<CommittedId> {
    let (numbers, []) = packed.as_chunks::<8>() else { return None };
    let &[seq, body_digest, created_at, expires_at] = numbers else { return None };
    let expires_at = UnixMillis::new(u64::from_be_bytes(expires_at));
    Some(CommittedId {
        seq: u64::from_be_bytes(seq),
        body_digest: u64::from_be_bytes(body_digest),
        created_at: UnixMillis::new(u64::from_be_bytes(created_at)),
        expires_at: (expires_at != UnixMillis::EPOCH).then_some(expires_at),
    })
}

/// Seqs below [`SLOT_IDS`] are generation 0, those below twice as many generation 1, and so on: each generation but
/// the first has as many seqs as all before it.
fn generation_of(seq: u64) -> u32 {
    u64::BITS - (seq / SLOT_IDS).leading_zeros()
}

/// Slot 0 for generation 0, 1 for generation 1, one of 2 and 3 for generation 2, one of 4 to 7 for generation 3, ...:
/// no slot ever gets many more than [`SLOT_IDS`] ids, and no two generations share one.
fn slot_of(id: ClientIdHash, generation: u32) -> u64 {
    let Some(exponent) = generation.checked_sub(1) else { return 0 };
    let slots = 1_u64 << exponent;
    let hash = u64::try_from(id.0 >> 64).expect("the upper half has 64 bits");
    slots + hash % slots
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_has_as_many_slots_as_it_has_full_slots_of_seqs() {
        let seqs =
            [1, SLOT_IDS - 1, SLOT_IDS, 2 * SLOT_IDS - 1, 2 * SLOT_IDS, 4 * SLOT_IDS - 1, 4 * SLOT_IDS];
        assert_eq!(seqs.map(generation_of), [0, 0, 1, 1, 2, 2, 3]);
        let slots = |generation| {
            let ids = (0..1000).map(|n: u32| ClientIdHash::of("alice", &n.to_string()));
            ids.map(|id| slot_of(id, generation)).collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!(slots(0), [0].into());
        assert_eq!(slots(1), [1].into());
        assert_eq!(slots(2), [2, 3].into());
        assert_eq!(slots(3), (4..8).collect());
        assert!(slot_of(ClientIdHash(u128::MAX), generation_of(i64::MAX.cast_unsigned())) < 1 << 46);
    }
}
