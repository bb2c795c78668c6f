//! How a record is stored, the same in both tiers.
//!
//! ```text
//! offset  bytes
//!      0      1  format: 1
//!      1      1  flags: class (bits 0-1), content type given (bit 2), form of the id (bits 3-4), 0 (bits 5-7)
//!      2      6  created_at, ms, big-endian
//!      8      6  expires_at, ms, big-endian; 0 = never
//!     14      1  length of the sender, then the sender
//!             1  length of the id, then the id; for the binary forms 16 bytes and no length
//!             1  length of the content type, then the content type; absent unless bit 2 is set
//!                payload
//!             4  CRC-32 of the conversation's hash and everything above, big-endian
//! ```
//!
//! The dates stand at fixed places so that Lua scripts can read them. The seq is not in it: the place where a record
//! is stored says it. The conversation's hash is in the checksum, so that a record under another conversation's key is
//! found out.

use bytes::Bytes;

use crate::{ConversationKey, DEFAULT_CONTENT_TYPE, Message, RetentionClass, UnixMillis};

const FORMAT: u8 = 1;
const CLASS_MASK: u8 = 0b0000_0011;
const HAS_CONTENT_TYPE: u8 = 0b0000_0100;
const ID_FORM_SHIFT: u8 = 3;
const RESERVED_MASK: u8 = 0b1110_0000;
const HEADER_BYTES: usize = 14;
const CHECKSUM_BYTES: usize = 4;

/// Why stored bytes are not a record. The record is damaged and must not be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// Fewer bytes than any record has, or than its lengths announce.
    #[error("the record is cut short at {0} bytes")]
    Truncated(usize),
    /// A format that this version does not know.
    #[error("the record has format {0}; known is {FORMAT}")]
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
    /// A record that expires before it was created.
    #[error("the record expires before it was created")]
    Dates,
}

/// How the id is stored: most clients use 16 random bytes in hex or a UUID, which take 16 bytes instead of 32 or 36.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IdForm {
    Text = 0,
    Hex = 1,
    Uuid = 2,
}

/// Encodes a message of this conversation. Ids and content type must have been validated: none is longer than 128
/// bytes.
pub fn encode(conversation: &ConversationKey, message: &Message) -> Vec<u8> {
    let id = pack_id(&message.client_msg_id);
    let has_content_type = message.content_type != DEFAULT_CONTENT_TYPE;
    let mut out = Vec::with_capacity(
        HEADER_BYTES + CHECKSUM_BYTES + message.sender.len() + 130 + message.payload.len(),
    );
    out.push(FORMAT);
    out.push(
        message.class as u8
            | if has_content_type { HAS_CONTENT_TYPE } else { 0 }
            | ((id.form() as u8) << ID_FORM_SHIFT),
    );
    push_millis(&mut out, message.created_at);
    push_millis(&mut out, message.expires_at.unwrap_or(UnixMillis::EPOCH));
    push_text(&mut out, &message.sender);
    match &id {
        PackedId::Text(text) => push_text(&mut out, text),
        PackedId::Hex(bytes) | PackedId::Uuid(bytes) => out.extend_from_slice(bytes),
    }
    if has_content_type {
        push_text(&mut out, &message.content_type);
    }
    out.extend_from_slice(&message.payload);
    let checksum = checksum(conversation, &out);
    out.extend_from_slice(&checksum.to_be_bytes());
    out
}

/// Decodes what [`encode`] made; checks every byte of it.
pub fn decode(conversation: &ConversationKey, bytes: &Bytes) -> Result<Message, CodecError> {
    if bytes.len() < HEADER_BYTES + CHECKSUM_BYTES {
        return Err(CodecError::Truncated(bytes.len()));
    }
    if bytes[0] != FORMAT {
        return Err(CodecError::UnknownFormat(bytes[0]));
    }
    let body = bytes.slice(..bytes.len() - CHECKSUM_BYTES);
    let stored = u32::from_be_bytes(bytes[body.len()..].try_into().expect("four bytes"));
    let found = checksum(conversation, &body);
    if stored != found {
        return Err(CodecError::Checksum { stored, found });
    }
    let flags = body[1];
    if flags & RESERVED_MASK != 0 || flags >> ID_FORM_SHIFT > IdForm::Uuid as u8 {
        return Err(CodecError::UnknownFlags(flags));
    }
    let (created_at, expires_at) = (millis(&body[2..8]), millis(&body[8..14]));
    let expires_at = (expires_at != UnixMillis::EPOCH).then_some(expires_at);
    if expires_at.is_some_and(|expires_at| expires_at < created_at) {
        return Err(CodecError::Dates);
    }
    let mut rest = Reader { body: &body, at: HEADER_BYTES };
    Ok(Message {
        sender: rest.text("sender")?,
        client_msg_id: match flags >> ID_FORM_SHIFT {
            form if form == IdForm::Hex as u8 => hex(rest.take(16)?),
            form if form == IdForm::Uuid as u8 => uuid(rest.take(16)?),
            _ => rest.text("client_msg_id")?,
        },
        class: RetentionClass::from_number(flags & CLASS_MASK).expect("two bits name four classes"),
        created_at,
        expires_at,
        content_type: if flags & HAS_CONTENT_TYPE == 0 {
            DEFAULT_CONTENT_TYPE.to_owned()
        } else {
            rest.text("content type")?
        },
        payload: body.slice(rest.at..),
    })
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
    if id.len() == 32 {
        return unhex(id).map_or(PackedId::Text(id), PackedId::Hex);
    }
    let packed = if id.len() == 36 { unhex(&id.replace('-', "")) } else { None };
    packed.filter(|bytes| uuid(bytes) == id).map_or(PackedId::Text(id), PackedId::Uuid)
}

/// Lower-case only, so that the id comes back as it was given.
fn unhex(text: &str) -> Option<[u8; 16]> {
    if text.len() != 32 || !text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    u128::from_str_radix(text, 16).ok().map(u128::to_be_bytes)
}

fn hex(bytes: &[u8]) -> String {
    format!("{:032x}", u128::from_be_bytes(bytes.try_into().expect("sixteen bytes")))
}

fn uuid(bytes: &[u8]) -> String {
    let hex = hex(bytes);
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

fn push_millis(out: &mut Vec<u8>, millis: UnixMillis) {
    out.extend_from_slice(&millis.get().to_be_bytes()[2..]);
}

fn millis(bytes: &[u8]) -> UnixMillis {
    UnixMillis::new(bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

fn push_text(out: &mut Vec<u8>, text: &str) {
    out.push(u8::try_from(text.len()).expect("validated: at most 128 bytes"));
    out.extend_from_slice(text.as_bytes());
}

fn checksum(conversation: &ConversationKey, bytes: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&conversation.stable_hash().to_be_bytes());
    crc.update(bytes);
    crc.finalize()
}

/// Takes fields off the front of a record body.
struct Reader<'a> {
    body: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], CodecError> {
        let taken = self.body.get(self.at..self.at + len).ok_or(CodecError::Truncated(self.body.len()))?;
        self.at += len;
        Ok(taken)
    }

    fn text(&mut self, field: &'static str) -> Result<String, CodecError> {
        let len = usize::from(self.take(1)?[0]);
        let text = std::str::from_utf8(self.take(len)?).map_err(|_| CodecError::NotUtf8(field))?;
        Ok(text.to_owned())
    }
}

#[cfg(test)]
#[path = "codec_tests.rs"]
mod tests;
