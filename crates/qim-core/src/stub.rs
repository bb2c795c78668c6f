//! What stands in a conversation for a large record, which Redis keeps in pieces beside it. The archive has the whole
//! record and no stub.
//!
//! ```text
//! bytes
//!        the front of the record, up to and including the id, with 3 as the form of the payload
//!     4  length of the record, big-endian
//!     4  the record's own checksum: these pieces and no others
//!     4  CRC-32 of the conversation's hash and everything above, big-endian
//! ```
//!
//! So scripts find dates, sender and id of a stub where any record has them; `is_stub` in pieces.lua knows it by its first
//! byte.

use crate::codec::{self, CHECKSUM_BYTES, PAYLOAD_FORM_BITS};
use crate::{CodecError, ConversationKey};

const LENGTH_BYTES: usize = 4;
const TAIL_BYTES: usize = LENGTH_BYTES + 2 * CHECKSUM_BYTES;
/// The first byte of a stub is not below it: the format's bit and both of the payload's form.
const STUB: u8 = 0b1110_0000;

/// What a stub says of its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stub<'a> {
    /// Of the record, and 3 as the form of its payload.
    front: &'a [u8],
    record_len: usize,
    record_checksum: [u8; CHECKSUM_BYTES],
}

/// The stub of a record that [`codec::encode`] made for this conversation.
pub fn encode(conversation: &ConversationKey, record: &[u8]) -> Vec<u8> {
    let front = &record[..codec::front_len(record)];
    let len = u32::try_from(record.len()).expect("a record is far below 4 GiB");
    let mut out = Vec::with_capacity(front.len() + TAIL_BYTES);
    out.extend_from_slice(front);
    out[0] |= PAYLOAD_FORM_BITS;
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(&record[record.len() - CHECKSUM_BYTES..]);
    let checksum = codec::checksum(conversation, &out);
    out.extend_from_slice(&checksum.to_be_bytes());
    out
}

/// Whether a stored value is a stub, by its shape.
pub fn is_stub(value: &[u8]) -> bool {
    value.len() >= codec::RECORD_BYTES_MIN + TAIL_BYTES - CHECKSUM_BYTES && value[0] >= STUB
}

/// How many bytes of record a stored value stands for, by its shape: those of a stub are elsewhere.
pub fn announced_len(value: &[u8]) -> usize {
    if is_stub(value) { record_len(&value[value.len() - TAIL_BYTES..]) } else { value.len() }
}

/// Reads a value that [`is_stub`]; checks every byte of it.
pub fn decode<'a>(conversation: &ConversationKey, value: &'a [u8]) -> Result<Stub<'a>, CodecError> {
    let (body, stored) = value.split_at(value.len().saturating_sub(CHECKSUM_BYTES));
    if !is_stub(value) {
        return Err(CodecError::Truncated(value.len()));
    }
    let stored = u32::from_be_bytes(stored.try_into().expect("four bytes"));
    let found = codec::checksum(conversation, body);
    if stored != found {
        return Err(CodecError::Checksum { stored, found });
    }
    let (front, tail) = body.split_at(value.len() - TAIL_BYTES);
    let record_checksum = tail[LENGTH_BYTES..].try_into().expect("four bytes");
    Ok(Stub { front, record_len: record_len(tail), record_checksum })
}

/// What stands in front of the tail's checksums.
fn record_len(tail: &[u8]) -> usize {
    u32::from_be_bytes(tail[..LENGTH_BYTES].try_into().expect("four bytes")) as usize
}

impl Stub<'_> {
    /// Bytes of its record.
    pub fn record_len(&self) -> usize {
        self.record_len
    }

    /// Whether this is its record, as far as the stub knows it: [`codec::decode`] checks the rest.
    pub fn stands_for(&self, record: &[u8]) -> bool {
        record.len() == self.record_len
            && record.ends_with(&self.record_checksum)
            && record.get(1..self.front.len()) == Some(&self.front[1..])
            && record[0] | PAYLOAD_FORM_BITS == self.front[0]
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::{RetentionClass, StoredMessage, StoredPayload, TenantId, UnixMillis};

    fn key(id: &str) -> ConversationKey {
        ConversationKey::new(TenantId::default(), id).unwrap()
    }

    fn record(conversation: &ConversationKey, sender: &str, id: &str, payload: &[u8]) -> Vec<u8> {
        let message = StoredMessage {
            sender: sender.into(),
            client_msg_id: id.into(),
            class: RetentionClass::Default,
            created_at: UnixMillis::new(1_800_000_000_000),
            expires_at: None,
            content_type: "text/plain".into(),
            payload: StoredPayload::raw(Bytes::copy_from_slice(payload)),
        };
        codec::encode(conversation, &message)
    }

    proptest! {
        #[test]
        fn a_stub_has_the_identity_and_length_of_its_record_and_stands_for_no_other(
            sender in "[a-f0-9-]{1,40}", id in "[a-f0-9-]{1,40}", payload in prop::collection::vec(any::<u8>(), 0..99)
        ) {
            let conversation = key("c");
            let whole = record(&conversation, &sender, &id, &payload);
            let stub = encode(&conversation, &whole);
            prop_assert!(is_stub(&stub) && !is_stub(&whole));
            prop_assert_eq!(codec::identity(&stub), codec::identity(&whole));
            prop_assert_eq!((announced_len(&stub), announced_len(&whole)), (whole.len(), whole.len()));
            let stub = decode(&conversation, &stub).unwrap();
            prop_assert!(stub.stands_for(&whole));
            prop_assert!(!stub.stands_for(&whole[1..]) && !stub.stands_for(b""));
            let other = record(&conversation, &sender, &id, &[&payload[..], b"!"].concat());
            prop_assert!(!stub.stands_for(&other));
        }
    }

    #[test]
    fn every_flipped_bit_of_a_stub_is_found_and_so_is_another_conversation() {
        let stub = encode(&key("c"), &record(&key("c"), "s", "i", b"text"));
        assert!(decode(&key("d"), &stub).is_err());
        for bit in 0..stub.len() * 8 {
            let mut flipped = stub.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&key("c"), &flipped).is_err(), "bit {bit}");
        }
        for len in 0..stub.len() {
            assert!(decode(&key("c"), &stub[..len]).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn a_stub_is_no_record() {
        let stub = encode(&key("c"), &record(&key("c"), "s", "i", b"text"));
        assert!(matches!(codec::decode(&key("c"), &stub.into()), Err(CodecError::UnknownFlags(_))));
    }
}
