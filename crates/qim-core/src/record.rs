use bytes::Bytes;

use crate::{RetentionClass, UnixMillis};

/// The content type meant where none is given; stored in no bytes at all.
pub const DEFAULT_CONTENT_TYPE: &str = "text/plain; charset=utf-8";

/// All of a message but its place in the conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
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
    pub payload: Bytes,
}

impl Message {
    /// Whether it can no longer be read at `now` (SPEC A13). The only predicate for it, in both tiers.
    pub fn is_expired(&self, now: UnixMillis) -> bool {
        self.expires_at.is_some_and(|expires_at| now >= expires_at)
    }

    /// Whether `other` is the same message sent again: the same id from the same sender.
    pub fn same_id(&self, other: &Self) -> bool {
        self.sender == other.sender && self.client_msg_id == other.client_msg_id
    }

    /// Whether `other` says the same: class, content type and payload. Dates are not compared, since a retry is later.
    pub fn same_body(&self, other: &Self) -> bool {
        self.class == other.class && self.content_type == other.content_type && self.payload == other.payload
    }
}

/// A committed message and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// 1, 2, 3, ... in its conversation.
    pub seq: u64,
    /// What was committed.
    pub message: Message,
}
