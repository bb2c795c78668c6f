//! Reads in Rust what `lua/conversation.lua` writes.

use bytes::Bytes;
use qim_core::{Decoder, EncodedRecord, UnixMillis};

use crate::archive::StoredRecord;

/// Of the marks, which its header begins with.
const HEADER_BYTES: usize = 38;
/// What it begins with, and no record does.
const LAYOUT: u8 = 1;
const TOMBSTONE_BYTES: usize = 15;

/// Where a conversation stands. `floor - 1 <= archived <= last`, and none of the three ever goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Marks {
    /// The highest seq ever given; 0 before the first.
    pub last: u64,
    /// The lowest seq the hot tier still keeps; all below it were trimmed.
    pub floor: u64,
    /// The highest seq up to which every record is durable in the archive, or has expired.
    pub archived: u64,
    /// The date of the last record.
    pub last_created_at: UnixMillis,
    /// Places in the hot tier whose record was collected.
    pub tombstones: u64,
}

impl Marks {
    /// Of a conversation that does not exist.
    pub const NEW: Self =
        Self { last: 0, floor: 1, archived: 0, last_created_at: UnixMillis::EPOCH, tombstones: 0 };

    /// Of a conversation that has nothing hot.
    pub(super) const fn resting(last: u64, last_created_at: UnixMillis) -> Self {
        Self { last, floor: last + 1, archived: last, last_created_at, tombstones: 0 }
    }

    /// Records in the hot tier.
    pub fn hot_records(&self) -> u64 {
        (self.last + 1 - self.floor).saturating_sub(self.tombstones)
    }
}

/// The front of a header.
pub(super) struct Header {
    pub(super) marks: Marks,
    /// The lowest seq that may still be readable; all hot ones below were collected.
    pub(super) live: u64,
    /// When that record expires; `None`: never.
    pub(super) live_until: Option<UnixMillis>,
}

impl Header {
    /// `None` where it is not one, or its marks contradict each other.
    pub(super) fn parse(header: &[u8]) -> Option<Self> {
        if header.len() < HEADER_BYTES || header[0] != LAYOUT {
            return None;
        }
        let big_endian = |from: usize, len: usize| big_endian(&header[from..from + len]);
        let marks = Marks {
            last: big_endian(1, 5),
            floor: big_endian(6, 5),
            archived: big_endian(11, 5),
            last_created_at: UnixMillis::new(big_endian(21, 6)),
            tombstones: big_endian(27, 3),
        };
        let live = big_endian(16, 5);
        let live_until = Some(UnixMillis::new(big_endian(30, 6))).filter(|date| *date != UnixMillis::EPOCH);
        let consistent = marks.floor >= 1
            && marks.floor - 1 <= marks.archived
            && marks.archived <= marks.last
            && marks.floor <= live;
        consistent.then_some(Self { marks, live, live_until })
    }
}

/// What stands at one seq in the hot tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HotValue {
    /// A record. Its payload was not opened: where that fails, the record is damaged after all.
    Record(StoredRecord),
    /// Its record expired and was collected.
    Collected {
        /// The place.
        seq: u64,
        /// When it was produced.
        created_at: UnixMillis,
    },
    /// Not what was written there. It is never served.
    Damaged {
        /// The place.
        seq: u64,
        /// What is wrong.
        reason: String,
    },
}

impl HotValue {
    pub(super) fn parse(decoder: &Decoder, seq: u64, value: Vec<u8>) -> Self {
        if value.len() == TOMBSTONE_BYTES && value[0] == 0 {
            return Self::Collected { seq, created_at: UnixMillis::new(big_endian(&value[1..7])) };
        }
        match decoder.check(Bytes::from(value)) {
            Ok(encoded) => Self::Record(StoredRecord { seq, encoded }),
            Err(error) => Self::Damaged { seq, reason: error.to_string() },
        }
    }

    /// The place.
    pub fn seq(&self) -> u64 {
        match self {
            Self::Record(record) => record.seq,
            Self::Collected { seq, .. } | Self::Damaged { seq, .. } => *seq,
        }
    }

    /// The record, where it can be read at `now`.
    pub fn readable(&self, now: UnixMillis) -> Option<&EncodedRecord> {
        match self {
            Self::Record(record) => Some(&record.encoded).filter(|encoded| !encoded.is_expired(now)),
            Self::Collected { .. } | Self::Damaged { .. } => None,
        }
    }
}

fn big_endian(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}
