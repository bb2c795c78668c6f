use bytes::Bytes;

use crate::{CodecError, Decompressor};
use crate::{Compressor, RetentionClass, StoredPayload, UnixMillis};

/// The content type meant where none is given; stored in no bytes at all.
pub const DEFAULT_CONTENT_TYPE: &str = "text/plain; charset=utf-8";

/// All of a message but its place in the conversation; with its payload as people know it, or as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message<P = Bytes> {
    /// Who sent it: an opaque id.
    pub sender: String,
    /// Identifies it for its sender within the conversation: an opaque id.
    pub client_msg_id: String,
    /// How long it is kept.
    pub class: RetentionClass,
    /// When it was produced. Retention starts here, and never before the message ahead of it in the conversation.
    pub created_at: UnixMillis,
    /// From this millisecond on it cannot be read. `None`: never by itself. Computed once, at commit (SPEC A2).
    pub expires_at: Option<UnixMillis>,
    /// At most 128 bytes without control characters.
    pub content_type: String,
    /// The body.
    pub payload: P,
}

/// A message whose payload may be compressed.
pub type StoredMessage = Message<StoredPayload>;

impl<P> Message<P> {
    /// Whether it can no longer be read at `now` (SPEC A13).
    pub fn is_expired(&self, now: UnixMillis) -> bool {
        is_expired(self.expires_at, now)
    }

    /// Sender and id: what a retry has, too.
    pub fn identity(&self) -> (&str, &str) {
        (&self.sender, &self.client_msg_id)
    }

    fn with_payload<Q>(self, payload: Q) -> Message<Q> {
        let Self { sender, client_msg_id, class, created_at, expires_at, content_type, .. } = self;
        Message { sender, client_msg_id, class, created_at, expires_at, content_type, payload }
    }
}

impl Message {
    /// As it is to be stored by a writer that compresses.
    pub fn pack(self, compressor: &Compressor) -> StoredMessage {
        let payload = compressor.pack(&self.payload);
        self.with_payload(payload)
    }

    /// What it says: class, content type and payload. A retry says the same; its dates are later.
    pub fn body(&self) -> (RetentionClass, &str, &[u8]) {
        (self.class, &self.content_type, &self.payload)
    }
}

impl From<Message> for StoredMessage {
    /// As it is to be stored by a writer that does not compress.
    fn from(message: Message) -> Self {
        let payload = StoredPayload::raw(message.payload.clone());
        message.with_payload(payload)
    }
}

impl StoredMessage {
    /// The message as people know it. Fails where its payload is damaged: then the record is, and must not be served.
    pub fn open(self, decompressor: &Decompressor) -> Result<Message, CodecError> {
        let payload = self.payload.open(decompressor)?;
        Ok(self.with_payload(payload))
    }
}

/// Whether what expires then can no longer be read at `now`. The only predicate for it, in both tiers.
pub(crate) fn is_expired(expires_at: Option<UnixMillis>, now: UnixMillis) -> bool {
    expires_at.is_some_and(|expires_at| now >= expires_at)
}
