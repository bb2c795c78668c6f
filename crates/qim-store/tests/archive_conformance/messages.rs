//! Messages for tests, told apart by their seq.

use std::time::Duration;

use bytes::Bytes;
use qim_core::{
    Compressor, ConversationKey, Decoder, Decompressor, Message, Record, RetentionClass, RetentionDays,
    RetentionPolicy, StoredMessage, UnixMillis, codec,
};
use qim_store::archive::StoredRecord;

pub(crate) const DAY: Duration = Duration::from_hours(24);
/// How long a record of class `default` is kept in these tests.
pub(crate) const RETENTION: Duration = Duration::from_hours(30 * 24);

/// What the writer would commit.
pub(crate) struct Draft {
    pub(crate) seq: u64,
    pub(crate) class: RetentionClass,
    pub(crate) created_at: UnixMillis,
    pub(crate) id: String,
    pub(crate) payload: Bytes,
    pub(crate) is_packed: bool,
}

impl Draft {
    pub(crate) fn new(seq: u64, created_at: UnixMillis) -> Self {
        Self {
            seq,
            class: RetentionClass::Default,
            created_at,
            id: format!("id-{seq}"),
            payload: format!("payload {seq}").into(),
            is_packed: false,
        }
    }

    pub(crate) fn class(self, class: RetentionClass) -> Self {
        Self { class, ..self }
    }

    pub(crate) fn id(self, id: &str) -> Self {
        Self { id: id.to_owned(), ..self }
    }

    pub(crate) fn payload(self, payload: impl Into<Bytes>) -> Self {
        Self { payload: payload.into(), ..self }
    }

    pub(crate) fn packed(self) -> Self {
        Self { is_packed: true, ..self }
    }

    pub(crate) fn commit(self, conversation: &ConversationKey) -> StoredRecord {
        let policy = RetentionPolicy::from_days(RetentionDays::new(30).unwrap());
        let message = Message {
            sender: "alice".to_owned(),
            client_msg_id: self.id,
            class: self.class,
            created_at: self.created_at,
            expires_at: policy.expires_at(self.class, conversation.tenant(), self.created_at),
            content_type: qim_core::DEFAULT_CONTENT_TYPE.to_owned(),
            payload: self.payload,
        };
        let message =
            if self.is_packed { message.pack(&Compressor::default()) } else { StoredMessage::from(message) };
        stored(conversation, self.seq, codec::encode(conversation, &message))
    }
}

/// As the hot tier gives it.
pub(crate) fn stored(conversation: &ConversationKey, seq: u64, record: impl Into<Bytes>) -> StoredRecord {
    let encoded = Decoder::of(conversation).check(record.into()).expect("an intact record");
    StoredRecord { seq, encoded }
}

/// What a reader is to get of it.
pub(crate) fn read(record: &StoredRecord) -> Record {
    let payload = record.encoded.payload().open(&Decompressor::default()).expect("an intact payload");
    let encoding = qim_core::PayloadEncoding::Plain;
    Record { seq: record.seq, encoded: record.encoded.clone(), payload, encoding }
}

/// The record with the end of its payload overwritten and a checksum that is right, so that only opening it shows that
/// it is damaged.
pub(crate) fn with_damaged_frame(conversation: &ConversationKey, record: &StoredRecord) -> Bytes {
    let mut bytes = record.encoded.bytes().to_vec();
    let end = bytes.len() - 4;
    bytes[end - 20..end].fill(0xff);
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(&conversation.stable_hash().to_be_bytes());
    checksum.update(&bytes[..end]);
    bytes[end..].copy_from_slice(&checksum.finalize().to_be_bytes());
    bytes.into()
}

/// Records of class `default` with these seqs.
pub(crate) fn records(
    conversation: &ConversationKey,
    seqs: impl IntoIterator<Item = u64>,
    created_at: UnixMillis,
) -> Vec<StoredRecord> {
    seqs.into_iter().map(|seq| Draft::new(seq, created_at).commit(conversation)).collect()
}

/// A sequence of numbers that is the same in every run.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}
