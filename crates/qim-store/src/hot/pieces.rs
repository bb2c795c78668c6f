//! Large records: kept in pieces that fill their allocation, behind a stub (lua/pieces.lua, qim-core/src/stub.rs).
//!
//! Stub and pieces come and go in one script, but are read one after the other. So pieces that are missing mean that a
//! trim or GC took the record in between, or damage: the place itself, read once more, says which.

use futures::{StreamExt, TryStreamExt, stream};
use qim_core::{ConversationKey, Decoder, UnixMillis, stub};

use super::{HotError, HotValue, PageStart, RedisMessageStore};

/// Longer records are kept in pieces. That costs about 350 bytes, and each time the record is read another call; it saves
/// about 6 % of those that are twice as long, and next to nothing of those that are half as long (ADR 16).
const WHOLE_BYTES_MAX: usize = 16 * 1024;
/// Alone in a listpack this is 8192 bytes, which is both the limit of a node (`list-max-listpack-size -2`) and a size that
/// jemalloc has: 7 bytes around all entries, and 5 before and 2 behind an entry.
const PIECE_BYTES: usize = 8192 - 7 - 7;
/// Records that are read at once.
const CONCURRENCY: usize = 16;

/// The stub to store in place of the record, where it has to be in pieces.
pub(super) fn stub_for(conversation: &ConversationKey, record: &[u8]) -> Option<Vec<u8>> {
    (record.len() > WHOLE_BYTES_MAX).then(|| stub::encode(conversation, record))
}

/// The pieces of a record, in order.
pub(super) fn pieces(record: &[u8]) -> impl ExactSizeIterator<Item = &[u8]> {
    record.chunks(PIECE_BYTES)
}

impl RedisMessageStore {
    /// What these values are, that were read at the seqs from `first`; the pieces of stubs are read now. `None`: what
    /// stood there then does not any more; read again.
    pub(super) async fn complete(
        &self,
        conversation: &ConversationKey,
        first: u64,
        values: Vec<Vec<u8>>,
    ) -> Result<Option<Vec<HotValue>>, HotError> {
        let none_in_pieces = !values.iter().any(|value| stub::is_stub(value));
        let values = (first..).zip(values);
        if none_in_pieces {
            let decoder = Decoder::of(conversation);
            return Ok(Some(values.map(|(seq, value)| HotValue::parse(&decoder, seq, value)).collect()));
        }
        let values: Vec<_> = stream::iter(values)
            .map(|(seq, value)| self.complete_one(conversation, seq, value))
            .buffered(CONCURRENCY)
            .try_collect()
            .await?;
        Ok(values.into_iter().collect())
    }

    /// As [`Self::complete`], for one value.
    pub(super) async fn complete_one(
        &self,
        conversation: &ConversationKey,
        seq: u64,
        value: Vec<u8>,
    ) -> Result<Option<HotValue>, HotError> {
        if !stub::is_stub(&value) {
            return Ok(Some(HotValue::parse(&Decoder::of(conversation), seq, value)));
        }
        let damaged = |reason| Ok(Some(HotValue::Damaged { seq, reason }));
        let stub = match stub::decode(conversation, &value) {
            Ok(stub) => stub,
            Err(error) => return damaged(format!("the stub of a record in pieces: {error}")),
        };
        let record = match self.read_pieces(conversation, seq, stub.record_len()).await? {
            Ok(record) => record,
            Err(reason) => return damaged(reason),
        };
        if stub.stands_for(&record) {
            return Ok(Some(HotValue::parse(&Decoder::of(conversation), seq, record)));
        }
        if record.is_empty() && !self.still_stands(conversation, seq, &value).await? {
            return Ok(None);
        }
        damaged(format!("its pieces are {} bytes and not its {}", record.len(), stub.record_len()))
    }

    /// The pieces together; nothing where there are none. The inner error says why they cannot be read.
    async fn read_pieces(
        &self,
        conversation: &ConversationKey,
        seq: u64,
        len: usize,
    ) -> Result<Result<Vec<u8>, String>, HotError> {
        let mut range = redis::cmd("LRANGE");
        range.arg(self.keys(conversation).pieces(seq)).arg(0).arg(len.div_ceil(PIECE_BYTES));
        match self.connection.command::<Vec<Vec<u8>>>(&range).await {
            Ok(pieces) => Ok(Ok(pieces.concat())),
            Err(HotError::Refused(text)) if text.contains("WRONGTYPE") => {
                Ok(Err("its pieces are something else than a list".into()))
            }
            Err(error) => Err(error),
        }
    }

    /// Whether this value is at its place still. No other ever takes the place of a record but its tombstone.
    async fn still_stands(
        &self,
        conversation: &ConversationKey,
        seq: u64,
        value: &[u8],
    ) -> Result<bool, HotError> {
        let start = PageStart::After(seq - 1);
        let page = self.read_raw(None, conversation, start, 1, UnixMillis::EPOCH).await?;
        Ok(page.first == seq && page.values.first().is_some_and(|stands| stands == value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_record_and_a_whole_one_has_none() {
        let conversation = ConversationKey::new(qim_core::TenantId::default(), "c").unwrap();
        assert_eq!(stub_for(&conversation, &[0; WHOLE_BYTES_MAX]), None);
        for len in [WHOLE_BYTES_MAX + 1, 8 * PIECE_BYTES, 8 * PIECE_BYTES + 1] {
            let record: Vec<u8> = (0..=u8::MAX).cycle().take(len).collect();
            assert_eq!(pieces(&record).len(), len.div_ceil(PIECE_BYTES));
            assert_eq!(pieces(&record).collect::<Vec<_>>().concat(), record);
        }
    }
}
