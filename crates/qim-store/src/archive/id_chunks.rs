//! Client ids as archives store them: many in one value. A row for each would take more room and time than the record
//! that it belongs to.
//!
//! The ids of a conversation are spread over chunks by their hash. A conversation of fewer than 64 records has one; each
//! 16 times as many records make a generation that has 16 times as many chunks, so that a chunk holds about 60 ids,
//! finding one reads one chunk of each generation, and there are few generations. Part of the stored format.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use qim_core::{ClientIdHash, UnixMillis};

use super::CommittedId;
use super::page::client_id_expires_at;
use super::row::Row;

/// Seqs below it are generation 0, those below 16 times as many generation 1, and so on.
const FIRST_GENERATION: u64 = 64;
/// Binary digits of the factor between two generations.
const GROWTH_BITS: u32 = 4;
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// What was committed under an id, in a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) id: ClientIdHash,
    pub(super) committed: CommittedId,
}

impl Entry {
    pub(super) fn of(row: &Row) -> Self {
        let &Row { seq, body_digest, created_at, expires_at, .. } = row;
        Self { id: row.client_id, committed: CommittedId { seq, body_digest, created_at, expires_at } }
    }

    /// Until when it is remembered.
    pub(super) fn end(&self) -> UnixMillis {
        client_id_expires_at(self.committed.created_at, self.committed.expires_at)
    }

    /// Of two with the same id the later commit counts.
    pub(super) fn order(&self) -> (UnixMillis, u64) {
        (self.committed.created_at, self.committed.seq)
    }
}

/// Entries one after the other: hash 16, digest of the body 8, and as varints the seq, how much later than the entry
/// before it was created (zigzag, ms), and its time to live: 0 where it never expires, else one more than twice the days, or
/// twice the milliseconds where it is not whole days.
pub(super) fn pack<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Vec<u8> {
    let (mut packed, mut before) = (Vec::new(), 0);
    for Entry { id, committed } in entries {
        let created_at = committed.created_at.as_i64();
        packed.extend_from_slice(&id.to_bytes());
        packed.extend_from_slice(&committed.body_digest.to_be_bytes());
        push_varint(&mut packed, committed.seq);
        let delta = created_at - before;
        push_varint(&mut packed, (delta << 1 ^ delta >> 63).cast_unsigned());
        let lifetime = committed.expires_at.map_or(0, |expires_at| {
            // A date before the creation is not made by anything, and would read as never.
            let millis = expires_at.get().saturating_sub(committed.created_at.get()).max(1);
            if millis.is_multiple_of(DAY_MS) { millis / DAY_MS * 2 + 1 } else { millis * 2 }
        });
        push_varint(&mut packed, lifetime);
        before = created_at;
    }
    packed
}

/// What [`pack`] wrote. Where it is damaged it ends.
pub(super) fn unpack(mut packed: &[u8]) -> impl Iterator<Item = Entry> {
    let mut before = 0;
    std::iter::from_fn(move || {
        let id = u128::from_be_bytes(*packed.split_off(..16)?.as_array()?);
        let body_digest = u64::from_be_bytes(*packed.split_off(..8)?.as_array()?);
        let seq = take_varint(&mut packed)?;
        let delta = take_varint(&mut packed)?;
        let created_at = before + ((delta >> 1).cast_signed() ^ -((delta & 1).cast_signed()));
        let created_at = UnixMillis::checked(created_at)?;
        let lifetime = take_varint(&mut packed)?;
        let expires_at = match (lifetime / 2, lifetime % 2) {
            (0, 0) => None,
            (millis, 0) => Some(millis),
            (days, _) => Some(days.checked_mul(DAY_MS)?),
        };
        let expires_at = expires_at.map(|millis| created_at + Duration::from_millis(millis));
        before = created_at.as_i64();
        Some(Entry {
            id: ClientIdHash(id),
            committed: CommittedId { seq, body_digest, created_at, expires_at },
        })
    })
}

fn push_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let byte = *bytes.split_off_first()?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// The entries that are remembered at `now`, by the chunk that each belongs to.
pub(super) fn by_chunk(rows: &[Row], now: UnixMillis) -> BTreeMap<u64, Vec<Entry>> {
    let mut chunks: BTreeMap<u64, Vec<Entry>> = BTreeMap::new();
    for entry in rows.iter().map(Entry::of).filter(|entry| now < entry.end()) {
        chunks.entry(chunk_of(entry.id, generation_of(entry.committed.seq))).or_default().push(entry);
    }
    chunks
}

/// The chunks that an id can be in, in a conversation with seqs up to `high_water`.
pub(super) fn chunks_of(id: ClientIdHash, high_water: u64) -> impl Iterator<Item = u64> {
    (0..=generation_of(high_water)).map(move |generation| chunk_of(id, generation))
}

/// Collects what is known of some ids.
#[derive(Debug)]
pub(super) struct Lookup {
    now: UnixMillis,
    found: HashMap<ClientIdHash, Option<Entry>>,
}

impl Lookup {
    pub(super) fn of(ids: &[ClientIdHash], now: UnixMillis) -> Self {
        Self { now, found: ids.iter().map(|id| (*id, None)).collect() }
    }

    /// Of several commits under one id the latest counts.
    pub(super) fn look_through(&mut self, entries: impl IntoIterator<Item = Entry>) {
        for entry in entries {
            let Some(found) = self.found.get_mut(&entry.id) else { continue };
            if self.now < entry.end() && found.is_none_or(|known| known.order() < entry.order()) {
                *found = Some(entry);
            }
        }
    }

    /// In the order of these ids.
    pub(super) fn found(&self, ids: &[ClientIdHash]) -> Vec<Option<CommittedId>> {
        ids.iter().map(|id| self.found.get(id).copied().flatten().map(|entry| entry.committed)).collect()
    }
}

fn generation_of(seq: u64) -> u32 {
    (u64::BITS - (seq / FIRST_GENERATION).leading_zeros()).div_ceil(GROWTH_BITS)
}

/// Generation 0 has chunk 0, generation 1 the 16 from 1 on, generation 2 the 256 behind them, ...
fn chunk_of(id: ClientIdHash, generation: u32) -> u64 {
    let chunks = 1_u64 << (generation * GROWTH_BITS);
    let before = (chunks - 1) / ((1 << GROWTH_BITS) - 1);
    let hash = u64::try_from(id.0 >> 64).expect("the upper half has 64 bits");
    before + hash % chunks
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_generation_has_sixteen_times_as_many_seqs_and_chunks() {
        let seqs = [1, 63, 64, 1023, 1024, 16_383, 16_384, u64::MAX];
        assert_eq!(seqs.map(generation_of), [0, 0, 1, 1, 2, 2, 3, 15]);
        let chunks = |generation| {
            let ids = (0..5000).map(|n: u32| ClientIdHash::of("alice", &n.to_string()));
            ids.map(|id| chunk_of(id, generation)).collect::<BTreeSet<_>>()
        };
        assert_eq!(chunks(0), [0].into());
        assert_eq!(chunks(1), (1..17).collect());
        assert_eq!(chunks(2), (17..273).collect());
        let last = chunk_of(ClientIdHash(u128::MAX), generation_of(i64::MAX.cast_unsigned()));
        assert!(last < i64::MAX.cast_unsigned());
    }

    #[test]
    fn an_id_is_found_in_the_chunks_of_every_generation_up_to_its_own() {
        let id = ClientIdHash::of("alice", "id");
        for seq in [1, 63, 64, 5000, 1 << 40] {
            let own = chunk_of(id, generation_of(seq));
            assert!(chunks_of(id, seq).any(|chunk| chunk == own), "{seq}");
            assert!(chunks_of(id, seq * 1000).any(|chunk| chunk == own), "{seq}");
        }
    }

    #[test]
    fn what_was_packed_is_unpacked() {
        let entry = |seq, created_at, expires_at: Option<u64>| Entry {
            id: ClientIdHash(u128::MAX / 3 + u128::from(seq)),
            committed: CommittedId {
                seq,
                body_digest: u64::MAX - seq,
                created_at: UnixMillis::new(created_at),
                expires_at: expires_at.map(UnixMillis::new),
            },
        };
        let date = 1_800_000_000_000;
        let entries = [
            entry(1, date, None),
            entry(u64::MAX, date + 5, Some(UnixMillis::MAX.get())),
            entry(7, date - 3, Some(date - 3 + 30 * DAY_MS)),
            entry(8, 0, Some(1)),
        ];
        let packed = pack(&entries);
        assert_eq!(unpack(&packed).collect::<Vec<_>>(), entries);
        assert_eq!(unpack(&packed[..packed.len() - 1]).count(), 3);
        // An ordinary one: created seconds after the last, to live for some days.
        let ordinary =
            pack(&[entry(2, date, None), entry(3, date + 5000, Some(date + 5000 + 30 * DAY_MS))]).len();
        assert_eq!(ordinary - pack(&[entry(2, date, None)]).len(), 28);
    }
}
