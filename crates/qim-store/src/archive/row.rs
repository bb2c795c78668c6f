//! What both implementations make of a record before they write it.

use bytes::Bytes;
use qim_core::{ClientIdHash, Decompressor, UnixMillis};

use super::dictionaries::{self, DictionaryStore};
use super::{ArchiveError, StoredRecord, record_digest};

/// What of a record goes into an archive, whichever it is.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) seq: u64,
    pub(super) created_at: UnixMillis,
    pub(super) expires_at: Option<UnixMillis>,
    pub(super) digest: u64,
    pub(super) encoded: Bytes,
    pub(super) client_id: ClientIdHash,
    pub(super) body_digest: u64,
}

impl Row {
    /// The rows of a batch. The digest of a body is over what it says, so that this is where payloads are opened.
    pub(super) fn all(
        records: &[StoredRecord],
        decompressor: &Decompressor,
    ) -> Result<Vec<Self>, ArchiveError> {
        records.iter().map(|record| Self::of(record, decompressor)).collect()
    }

    /// The same, with the dictionaries that the store has.
    pub(super) async fn all_with_dictionaries(
        store: &impl DictionaryStore,
        records: &[StoredRecord],
        decompressor: &Decompressor,
    ) -> Result<Vec<Self>, ArchiveError> {
        let mut rows = Self::all(records, decompressor);
        while let Some(id) = dictionaries::missing(&rows)
            && dictionaries::learn(store, decompressor, id).await?
        {
            rows = Self::all(records, decompressor);
        }
        rows
    }

    fn of(record: &StoredRecord, decompressor: &Decompressor) -> Result<Self, ArchiveError> {
        let StoredRecord { seq, encoded } = record;
        let body_digest = encoded
            .body_digest(decompressor)
            .map_err(|reason| ArchiveError::Damaged { seq: *seq, reason })?;
        Ok(Self {
            seq: *seq,
            created_at: encoded.created_at(),
            expires_at: encoded.expires_at(),
            digest: record_digest(encoded.bytes()),
            encoded: encoded.bytes().clone(),
            client_id: encoded.client_id_hash(),
            body_digest,
        })
    }

    pub(super) fn is_expired(&self, now: UnixMillis) -> bool {
        self.expires_at.is_some_and(|expires_at| now >= expires_at)
    }
}

/// A seq, or a bound of a range, as databases store it.
pub(super) fn signed(seq: u64) -> i64 {
    i64::try_from(seq).unwrap_or(i64::MAX)
}

/// A stored seq.
pub(super) fn unsigned(seq: i64) -> u64 {
    u64::try_from(seq).unwrap_or(0)
}
