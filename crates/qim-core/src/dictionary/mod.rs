//! Dictionaries: phrases that many people use in many conversations, with which short payloads get small.
//!
//! A dictionary is a zstd dictionary with a number, made once and never changed. Its bytes are of zstd's own format,
//! with 0 where that has a number: the record says which dictionary it needs (codec.rs), so that frames need not.

mod phrases;
mod train;

use std::fmt;

use bytes::Bytes;
use zstd::zstd_safe::DDict;

pub use phrases::{PHRASE_CONVERSATIONS_MIN, PHRASE_SENDERS_MIN};
pub use train::{CORPUS_BYTES_MAX, Corpus, TooLittleText, Trained, train};

use crate::UnixMillis;

/// The longest dictionary that is stored or loaded. Larger ones compress this kind of text no better.
pub const DICTIONARY_BYTES_MAX: usize = 112 * 1024;
const FORMAT: u8 = 1;
/// Format, number, date.
const HEADER_BYTES: usize = 1 + 4 + 6;
const CHECKSUM_BYTES: usize = 4;

/// A dictionary, ready to open payloads with.
pub struct Dictionary {
    id: u32,
    created_at: UnixMillis,
    bytes: Bytes,
    for_opening: DDict<'static>,
}

/// Why bytes are not a dictionary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DictionaryError {
    /// Fewer bytes than any has, more than one may have, or a format that this version does not know.
    #[error("the dictionary has {0} bytes, or a format that is not known")]
    Format(usize),
    /// The bytes are not those that were written.
    #[error("the checksum of the dictionary is {found:08x}, not {stored:08x}")]
    Checksum {
        /// What is stored.
        stored: u32,
        /// What the bytes give.
        found: u32,
    },
    /// It was stored under another number.
    #[error("the dictionary has number {found}, not {wanted}")]
    Number {
        /// What was asked for.
        wanted: u32,
        /// What it says.
        found: u32,
    },
    /// Zstd does not take it.
    #[error("zstd cannot use the dictionary")]
    Unusable,
}

impl Dictionary {
    /// The dictionary with this number, from 1.
    pub fn new(id: u32, created_at: UnixMillis, bytes: Bytes) -> Result<Self, DictionaryError> {
        if bytes.is_empty() || bytes.len() > DICTIONARY_BYTES_MAX {
            return Err(DictionaryError::Format(bytes.len()));
        }
        let for_opening = DDict::try_create(&bytes).ok_or(DictionaryError::Unusable)?;
        Ok(Self { id, created_at, bytes, for_opening })
    }

    /// Its number. Numbers count up, and none is given twice.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// When it was trained.
    pub fn created_at(&self) -> UnixMillis {
        self.created_at
    }

    /// As zstd takes it.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// As it is stored, the same in both tiers: format, number, date, the bytes, and a CRC-32 of all that, big-endian.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(HEADER_BYTES + self.bytes.len() + CHECKSUM_BYTES);
        out.push(FORMAT);
        out.extend_from_slice(&self.id.to_be_bytes());
        out.extend_from_slice(&self.created_at.get().to_be_bytes()[2..]);
        out.extend_from_slice(&self.bytes);
        let checksum = crc32fast::hash(&out);
        out.extend_from_slice(&checksum.to_be_bytes());
        out.into()
    }

    /// What [`Self::encode`] made of the dictionary with this number; checks every byte of it.
    pub fn decode(id: u32, stored: &Bytes) -> Result<Self, DictionaryError> {
        let len = stored.len();
        let sizes = HEADER_BYTES + CHECKSUM_BYTES + 1..=HEADER_BYTES + CHECKSUM_BYTES + DICTIONARY_BYTES_MAX;
        if !sizes.contains(&len) || stored[0] != FORMAT {
            return Err(DictionaryError::Format(len));
        }
        let big_endian =
            |from: usize, to: usize| stored[from..to].iter().fold(0, |n, byte| n << 8 | u64::from(*byte));
        let word = |from: usize| u32::try_from(big_endian(from, from + 4)).expect("four bytes");
        let body = stored.slice(..len - CHECKSUM_BYTES);
        let (checksum, found) = (word(body.len()), crc32fast::hash(&body));
        if checksum != found {
            return Err(DictionaryError::Checksum { stored: checksum, found });
        }
        if word(1) != id {
            return Err(DictionaryError::Number { wanted: id, found: word(1) });
        }
        Self::new(id, UnixMillis::new(big_endian(5, HEADER_BYTES)), body.slice(HEADER_BYTES..))
    }

    pub(crate) fn for_opening(&self) -> &DDict<'static> {
        &self.for_opening
    }
}

impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dictionary")
            .field("id", &self.id)
            .field("created_at", &self.created_at)
            .field("bytes", &self.bytes.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "dictionary_tests.rs"]
mod tests;
