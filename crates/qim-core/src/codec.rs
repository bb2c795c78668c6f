//! How a record is stored, the same in both tiers.
//!
//! ```text
//! offset  bytes
//!      0      1  flags: class (bits 0-1), content type given (bit 2), form of the id (bits 3-4), form of the payload
//!                (bits 5-6: as it is, zstd, zstd with a dictionary; 3 is a stub, stub.rs), 1 (bit 7: this format)
//!      1      6  created_at, ms, big-endian
//!      7    1-7  expires_at: see below
//!               sender, packed (packed_text.rs)
//!               id: 16 bytes where it is 32 hex digits or a UUID (its form says so), else packed
//!             1  length of the content type, then the content type; absent unless bit 2 is set
//!           0-5  number of the dictionary, as a varint; only where there is one
//!           0-5  length of the payload, as a varint; only where it is compressed
//!                payload
//!             4  CRC-32 of the conversation's hash and everything above, big-endian
//! ```
//!
//! `expires_at` is told from `created_at`, since retentions are whole days. Its first byte says:
//!
//! ```text
//!        0  never
//!   1..239  that many days
//! 240..254  240 days and 256 more for each above 240, and as many as the byte behind it says: up to 4079
//!      255  the 6 bytes behind it are the date, ms, big-endian: not whole days, or more of them
//! ```
//!
//! A first byte below 128 is none of this format: 0 is a tombstone in Redis, 1 the header of a conversation there, and 2 to
//! 127 are left for formats to come.
//!
//! The dates stand in front so that Lua scripts can read them (`expires_at` in conversation.lua). The seq is not in it: the
//! place where a record is stored says it. The conversation's hash is in the checksum, so that a record under another conversation's key is
//! found out.

use bytes::Bytes;

use crate::packed_text;
use crate::{
    ConversationKey, DEFAULT_CONTENT_TYPE, Decoder, RetentionClass, StoredMessage, StoredPayload, UnixMillis,
};

pub(crate) const FORMAT: u8 = 0b1000_0000;
pub(crate) const CLASS_MASK: u8 = 0b0000_0011;
pub(crate) const HAS_CONTENT_TYPE: u8 = 0b0000_0100;
pub(crate) const ID_FORM_SHIFT: u8 = 3;
pub(crate) const PAYLOAD_FORM_SHIFT: u8 = 5;
pub(crate) const FORM_MASK: u8 = 0b11;
pub(crate) const PAYLOAD_FORM_MAX: u8 = 2;
pub(crate) const PAYLOAD_FORM_BITS: u8 = FORM_MASK << PAYLOAD_FORM_SHIFT;
/// Up to the first byte of `expires_at`.
pub(crate) const HEADER_BYTES: usize = 7;
/// With nothing in any field. `is_record` in conversation.lua goes by it, so that a date of 7 bytes fits.
pub(crate) const RECORD_BYTES_MIN: usize = HEADER_BYTES + 3 + CHECKSUM_BYTES;
pub(crate) const CHECKSUM_BYTES: usize = 4;
pub(crate) const DAY_MS: u64 = 86_400_000;
/// From here on a number of days takes two bytes, the first of which is not below it.
pub(crate) const LONG_DAYS: u64 = 240;
const LONG_DAYS_MAX: u64 = LONG_DAYS + 15 * 256 - 1;
pub(crate) const DATE_FOLLOWS: u8 = 255;

/// Why stored bytes are not a record. The record is damaged and must not be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// Fewer bytes than any record has, or than its lengths announce.
    #[error("the record is cut short at {0} bytes")]
    Truncated(usize),
    /// A format that this version does not know.
    #[error("the record has format {0}; known are 128 to 255")]
    UnknownFormat(u8),
    /// A flag bit that this version does not know.
    #[error("the record has unknown flags {0:#010b}")]
    UnknownFlags(u8),
    /// The bytes are not those that were written, or belong to another conversation.
    #[error("the checksum is {found:08x}, not {stored:08x}")]
    Checksum {
        /// What is stored.
        stored: u32,
        /// What the bytes give.
        found: u32,
    },
    /// The checksum is right and the text is not UTF-8: whatever wrote it was not qim.
    #[error("the {0} is not UTF-8")]
    NotUtf8(&'static str),
    /// A record that expires before it was created, or after all time that can be stored.
    #[error("the record expires before it was created, or never could")]
    Dates,
    /// A number in front of a compressed payload has no end.
    #[error("a number in front of the payload cannot be read")]
    Varint,
    /// A compressed payload is shorter than what it was made of, and that has at most 1 MiB.
    #[error("{stored} bytes of compressed payload announce {announced}, which none do")]
    AnnouncedLength {
        /// The length it shall have.
        announced: usize,
        /// What is stored of it.
        stored: usize,
    },
    /// The checksum is right and the payload does not decompress, or not to its length.
    #[error("the compressed payload does not give the {announced} bytes that it announces")]
    Frame {
        /// The length it shall have.
        announced: usize,
    },
    /// The payload was compressed with a dictionary that is not here.
    #[error("the payload needs dictionary {0}, which is not known")]
    UnknownDictionary(u32),
}

/// How the id is stored: most clients use 16 random bytes in hex or a UUID, which take 16 bytes instead of 32 or 36.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdForm {
    Text = 0,
    Hex = 1,
    Uuid = 2,
}

/// What a record is made of: a [`StoredMessage`], in parts that may belong to others.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a> {
    /// As in [`crate::Message`].
    pub sender: &'a str,
    /// As in [`crate::Message`].
    pub client_msg_id: &'a str,
    /// As in [`crate::Message`].
    pub class: RetentionClass,
    /// As in [`crate::Message`].
    pub created_at: UnixMillis,
    /// As in [`crate::Message`].
    pub expires_at: Option<UnixMillis>,
    /// As in [`crate::Message`].
    pub content_type: &'a str,
    /// The body.
    pub payload: &'a StoredPayload,
}

impl<'a> From<&'a StoredMessage> for Fields<'a> {
    fn from(message: &'a StoredMessage) -> Self {
        Self {
            sender: &message.sender,
            client_msg_id: &message.client_msg_id,
            class: message.class,
            created_at: message.created_at,
            expires_at: message.expires_at,
            content_type: &message.content_type,
            payload: &message.payload,
        }
    }
}

/// Encodes a message of this conversation. Ids and content type must have been validated: none is longer than 128
/// bytes.
pub fn encode<'a>(conversation: &ConversationKey, message: impl Into<Fields<'a>>) -> Vec<u8> {
    let message = message.into();
    let id = pack_id(message.client_msg_id);
    let has_content_type = message.content_type != DEFAULT_CONTENT_TYPE;
    let mut out =
        Vec::with_capacity(RECORD_BYTES_MIN + 6 + message.sender.len() + 130 + message.payload.stored_len());
    out.push(
        FORMAT
            | message.class as u8
            | if has_content_type { HAS_CONTENT_TYPE } else { 0 }
            | ((id.form() as u8) << ID_FORM_SHIFT)
            | (message.payload.form() << PAYLOAD_FORM_SHIFT),
    );
    push_millis(&mut out, message.created_at);
    push_expiry(&mut out, message.created_at, message.expires_at);
    packed_text::push(&mut out, message.sender);
    match &id {
        PackedId::Text(text) => packed_text::push(&mut out, text),
        PackedId::Hex(bytes) | PackedId::Uuid(bytes) => out.extend_from_slice(bytes),
    }
    if has_content_type {
        push_text(&mut out, message.content_type);
    }
    message.payload.push_to(&mut out);
    let checksum = checksum(conversation, &out);
    out.extend_from_slice(&checksum.to_be_bytes());
    out
}

/// Decodes what [`encode`] made; checks every byte of it. A compressed payload stays as it is, so that a record can be
/// copied, compared and dated without opening it. [`Decoder`] does the same without taking the record apart.
pub fn decode(conversation: &ConversationKey, bytes: &Bytes) -> Result<StoredMessage, CodecError> {
    Ok(Decoder::of(conversation).check(bytes.clone())?.message())
}

/// What tells one message of a conversation from another, as its record holds it: the form of the id, and sender and id.
/// Of a record that [`encode`] made. The same in `identity_of` in conversation.lua.
pub fn identity(record: &[u8]) -> (u8, &[u8]) {
    (id_form(record), &record[sender_at(record)..front_len(record)])
}

/// Bytes up to and including the id, of a record that [`encode`] made.
pub(crate) fn front_len(record: &[u8]) -> usize {
    let from = sender_at(record);
    let id = from + packed_text::packed_len(record[from]);
    let is_text = id_form(record) == IdForm::Text as u8;
    id + if is_text { packed_text::packed_len(record[id]) } else { 16 }
}

pub(crate) fn id_form(record: &[u8]) -> u8 {
    record[0] >> ID_FORM_SHIFT & FORM_MASK
}

fn sender_at(record: &[u8]) -> usize {
    HEADER_BYTES
        + match record[HEADER_BYTES] {
            DATE_FOLLOWS => 7,
            days if u64::from(days) >= LONG_DAYS => 2,
            _ => 1,
        }
}

enum PackedId<'a> {
    Text(&'a str),
    Hex([u8; 16]),
    Uuid([u8; 16]),
}

impl PackedId<'_> {
    fn form(&self) -> IdForm {
        match self {
            Self::Text(_) => IdForm::Text,
            Self::Hex(_) => IdForm::Hex,
            Self::Uuid(_) => IdForm::Uuid,
        }
    }
}

/// Packs only what unpacks to the very same text.
fn pack_id(id: &str) -> PackedId<'_> {
    if let Some(bytes) = packed_text::unhex(id.bytes()) {
        return PackedId::Hex(bytes);
    }
    packed_text::unhex_uuid(id).map_or(PackedId::Text(id), PackedId::Uuid)
}

fn push_expiry(out: &mut Vec<u8>, created_at: UnixMillis, expires_at: Option<UnixMillis>) {
    let Some(expires_at) = expires_at else { return out.push(0) };
    let byte = |number: u64| u8::try_from(number).expect("below 256");
    match whole_days(created_at, expires_at) {
        Some(days @ 1..LONG_DAYS) => out.push(byte(days)),
        Some(days @ LONG_DAYS..=LONG_DAYS_MAX) => {
            let more = days - LONG_DAYS;
            out.extend_from_slice(&[byte(LONG_DAYS + more / 256), byte(more % 256)]);
        }
        _ => {
            out.push(DATE_FOLLOWS);
            push_millis(out, expires_at);
        }
    }
}

fn whole_days(from: UnixMillis, to: UnixMillis) -> Option<u64> {
    let millis = to.get().checked_sub(from.get())?;
    millis.is_multiple_of(DAY_MS).then_some(millis / DAY_MS)
}

fn push_millis(out: &mut Vec<u8>, millis: UnixMillis) {
    out.extend_from_slice(&millis.get().to_be_bytes()[2..]);
}

fn push_text(out: &mut Vec<u8>, text: &str) {
    out.push(u8::try_from(text.len()).expect("validated: at most 128 bytes"));
    out.extend_from_slice(text.as_bytes());
}

pub(crate) fn checksum(conversation: &ConversationKey, bytes: &[u8]) -> u32 {
    Decoder::of(conversation).checksum(bytes)
}

#[cfg(test)]
#[path = "codec_tests.rs"]
mod tests;
