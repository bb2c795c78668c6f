//! Records as they are stored, checked once and read where they lie: a page of them takes no memory for their fields.

use std::ops::Range;

use bytes::Bytes;

use crate::codec::{
    CHECKSUM_BYTES, CLASS_MASK, DATE_FOLLOWS, DAY_MS, FORM_MASK, FORMAT, HAS_CONTENT_TYPE, HEADER_BYTES,
    IdForm, LONG_DAYS, PAYLOAD_FORM_MAX, PAYLOAD_FORM_SHIFT, RECORD_BYTES_MIN, id_form,
};
use crate::packed_text::{self, PackedText};
use crate::payload::Encoding;
use crate::{
    CodecError, ConversationKey, DEFAULT_CONTENT_TYPE, Message, RetentionClass, StoredMessage, StoredPayload,
    UnixMillis,
};

/// Checks records of one conversation, whose hash is in their checksums.
#[derive(Debug, Clone)]
pub struct Decoder {
    /// Of the hash.
    checksum: crc32fast::Hasher,
}

impl Decoder {
    /// For records of this conversation.
    pub fn of(conversation: &ConversationKey) -> Self {
        let mut checksum = crc32fast::Hasher::new();
        checksum.update(&conversation.stable_hash().to_be_bytes());
        Self { checksum }
    }

    pub(crate) fn checksum(&self, bytes: &[u8]) -> u32 {
        let mut checksum = self.checksum.clone();
        checksum.update(bytes);
        checksum.finalize()
    }

    /// Checks every byte of what [`crate::codec::encode`] made. A compressed payload is not opened.
    pub fn check(&self, bytes: Bytes) -> Result<EncodedRecord, CodecError> {
        if bytes.len() < RECORD_BYTES_MIN {
            return Err(CodecError::Truncated(bytes.len()));
        }
        if bytes[0] & FORMAT == 0 {
            return Err(CodecError::UnknownFormat(bytes[0]));
        }
        let (body, stored) = bytes.split_at(bytes.len() - CHECKSUM_BYTES);
        let stored = u32::from_be_bytes(stored.try_into().expect("four bytes"));
        let found = self.checksum(body);
        if stored != found {
            return Err(CodecError::Checksum { stored, found });
        }
        let flags = body[0];
        let payload_form = flags >> PAYLOAD_FORM_SHIFT & FORM_MASK;
        if id_form(body) > IdForm::Uuid as u8 || payload_form > PAYLOAD_FORM_MAX {
            return Err(CodecError::UnknownFlags(flags));
        }
        let created_at = millis(&body[1..HEADER_BYTES]);
        let mut rest = Reader { body, at: HEADER_BYTES };
        let expires_at = rest.expiry(created_at)?;
        let sender = rest.packed_text("sender")?;
        let id = if id_form(body) == IdForm::Text as u8 {
            rest.packed_text("client_msg_id")?
        } else {
            rest.take(ID_BYTES)?
        };
        let content_type = if flags & HAS_CONTENT_TYPE == 0 { 0..0 } else { rest.text("content type")? };
        let mut content = &body[rest.at..];
        let encoding = Encoding::take(payload_form, &mut content)?;
        let payload = body.len() - content.len()..body.len();
        Ok(EncodedRecord { bytes, created_at, expires_at, sender, id, content_type, encoding, payload })
    }
}

/// Bytes of an id that is not stored as text.
const ID_BYTES: usize = 16;

/// A record that a [`Decoder`] has checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedRecord {
    bytes: Bytes,
    created_at: UnixMillis,
    expires_at: Option<UnixMillis>,
    sender: Range<usize>,
    id: Range<usize>,
    /// Empty: the usual one.
    content_type: Range<usize>,
    encoding: Encoding,
    payload: Range<usize>,
}

impl EncodedRecord {
    /// What is stored.
    pub const fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// As in [`Message`].
    pub fn class(&self) -> RetentionClass {
        RetentionClass::from_number(self.bytes[0] & CLASS_MASK).expect("two bits name four classes")
    }

    /// As in [`Message`].
    pub const fn created_at(&self) -> UnixMillis {
        self.created_at
    }

    /// As in [`Message`].
    pub const fn expires_at(&self) -> Option<UnixMillis> {
        self.expires_at
    }

    /// [`Message::is_expired`].
    pub fn is_expired(&self, now: UnixMillis) -> bool {
        crate::record::is_expired(self.expires_at, now)
    }

    /// As in [`Message`].
    pub fn sender(&self) -> PackedText<'_> {
        self.packed(&self.sender)
    }

    /// As in [`Message`].
    pub fn client_msg_id(&self) -> PackedText<'_> {
        match id_form(&self.bytes) {
            form if form == IdForm::Hex as u8 => PackedText::hex(&self.bytes[self.id.clone()]),
            form if form == IdForm::Uuid as u8 => PackedText::uuid(&self.bytes[self.id.clone()]),
            _ => self.packed(&self.id),
        }
    }

    /// As in [`Message`].
    pub fn content_type(&self) -> &str {
        if self.bytes[0] & HAS_CONTENT_TYPE == 0 {
            return DEFAULT_CONTENT_TYPE;
        }
        std::str::from_utf8(&self.bytes[self.content_type.clone()]).expect("was checked")
    }

    /// The body as it is stored.
    pub fn payload(&self) -> StoredPayload {
        StoredPayload::new(self.encoding, self.bytes.slice(self.payload.clone()))
    }

    /// How long the payload is when it is read.
    pub fn payload_len(&self) -> usize {
        self.encoding.len(self.payload.len())
    }

    /// The dictionary without which the payload cannot be opened.
    pub const fn dictionary(&self) -> Option<u32> {
        self.encoding.dictionary()
    }

    /// How the payload is stored, and as what.
    pub(crate) fn stored_payload(&self) -> (Encoding, &[u8]) {
        (self.encoding, &self.bytes[self.payload.clone()])
    }

    /// All of it in values of its own.
    pub fn message(&self) -> StoredMessage {
        self.message_with(self.payload())
    }

    /// The message, with this for its payload.
    pub(crate) fn message_with<P>(&self, payload: P) -> Message<P> {
        Message {
            sender: self.sender().to_string(),
            client_msg_id: self.client_msg_id().to_string(),
            class: self.class(),
            created_at: self.created_at,
            expires_at: self.expires_at,
            content_type: self.content_type().to_owned(),
            payload,
        }
    }

    fn packed(&self, place: &Range<usize>) -> PackedText<'_> {
        PackedText::parse(&self.bytes[place.clone()]).expect("was checked")
    }
}

fn millis(bytes: &[u8]) -> UnixMillis {
    UnixMillis::new(bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

/// Takes fields off the front of a record body.
struct Reader<'a> {
    body: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn take(&mut self, len: usize) -> Result<Range<usize>, CodecError> {
        let taken = self.at..self.at + len;
        if taken.end > self.body.len() {
            return Err(CodecError::Truncated(self.body.len()));
        }
        self.at = taken.end;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, CodecError> {
        Ok(self.body[self.take(1)?.start])
    }

    fn expiry(&mut self, created_at: UnixMillis) -> Result<Option<UnixMillis>, CodecError> {
        let days = match self.byte()? {
            0 => return Ok(None),
            DATE_FOLLOWS => {
                let date = millis(&self.body[self.take(6)?]);
                // Lua takes the date 0 for never, so that nobody may take it for anything else.
                let is_date = date >= created_at && date != UnixMillis::EPOCH;
                return if is_date { Ok(Some(date)) } else { Err(CodecError::Dates) };
            }
            first if u64::from(first) < LONG_DAYS => u64::from(first),
            first => LONG_DAYS + (u64::from(first) - LONG_DAYS) * 256 + u64::from(self.byte()?),
        };
        let date = created_at.get() + days * DAY_MS;
        if date <= UnixMillis::MAX.get() { Ok(Some(UnixMillis::new(date))) } else { Err(CodecError::Dates) }
    }

    fn packed_text(&mut self, field: &'static str) -> Result<Range<usize>, CodecError> {
        let first = *self.body.get(self.at).ok_or(CodecError::Truncated(self.body.len()))?;
        let packed = self.take(packed_text::packed_len(first))?;
        PackedText::parse(&self.body[packed.clone()]).ok_or(CodecError::NotUtf8(field))?;
        Ok(packed)
    }

    fn text(&mut self, field: &'static str) -> Result<Range<usize>, CodecError> {
        let len = usize::from(self.byte()?);
        let text = self.take(len)?;
        std::str::from_utf8(&self.body[text.clone()]).map_err(|_| CodecError::NotUtf8(field))?;
        Ok(text)
    }
}
