//! Dictionaries in the archive: where they outlive a lost Redis.

use async_trait::async_trait;
use bytes::Bytes;
use qim_core::{CodecError, Decompressor, Dictionary, UnixMillis};

use super::ArchiveError;

/// A dictionary that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DictionaryMark {
    /// Its number.
    pub id: u32,
    /// No record needs it from here on, as far as was noted; 1970 where nothing was.
    pub needed_until: UnixMillis,
}

/// The dictionaries of the archive. There are a handful; each has its number for ever.
#[async_trait]
pub trait DictionaryStore: Send + Sync + 'static {
    /// All of them, ascending by number.
    async fn dictionaries(&self) -> Result<Vec<DictionaryMark>, ArchiveError>;

    /// What was added under this number, as [`Dictionary::encode`] made it; `None` where nothing was, or it was deleted.
    async fn dictionary(&self, id: u32) -> Result<Option<Bytes>, ArchiveError>;

    /// Adds a dictionary. Repeating it changes nothing; one that is there is never replaced by another
    /// ([`ArchiveError::Refused`]). Durable before it says so.
    async fn add_dictionary(&self, dictionary: &Dictionary) -> Result<(), ArchiveError>;

    /// Notes that records need it until this date; an earlier date than before changes nothing. It should be there.
    async fn raise_dictionary(&self, id: u32, needed_until: UnixMillis) -> Result<(), ArchiveError>;

    /// Deletes it, where it is there.
    async fn delete_dictionary(&self, id: u32) -> Result<(), ArchiveError>;
}

/// Reads a dictionary that payloads need. Answers whether it is there and whole.
pub(super) async fn learn(
    store: &impl DictionaryStore,
    decompressor: &Decompressor,
    id: u32,
) -> Result<bool, ArchiveError> {
    let Some(stored) = store.dictionary(id).await? else { return Ok(false) };
    match Dictionary::decode(id, &stored) {
        Ok(dictionary) => {
            decompressor.learn(dictionary.into());
            Ok(true)
        }
        Err(error) => {
            tracing::error!(id, %error, "a dictionary in the archive is damaged");
            Ok(false)
        }
    }
}

/// The dictionary that a batch fails for.
pub(super) fn missing<T>(result: &Result<T, ArchiveError>) -> Option<u32> {
    match result {
        Err(ArchiveError::Damaged { reason: CodecError::UnknownDictionary(id), .. }) => Some(*id),
        _ => None,
    }
}

/// Why another dictionary is not added under a number that is taken.
pub(super) fn taken(id: u32) -> ArchiveError {
    ArchiveError::Refused(format!("it has another dictionary {id}"))
}
