//! Pages as they are sent: `qim.v1.PullResponse`, written from stored records field by field.

use prost::encoding::encode_varint;
use qim_core::{PackedText, PayloadEncoding, Record};
use qim_proto::{EncodedPullResponse, v1};
use qim_store::tiered::Page;

use super::convert::class_number;

/// Wire types of protobuf.
const VARINT: u8 = 0;
const LENGTH_DELIMITED: u8 = 2;
/// Of most records, beside the payload.
const FIELDS_BYTES: usize = 128;

/// Fields of `qim.v1.PullResponse`.
mod page_field {
    pub(super) const RECORDS: u8 = 1;
    pub(super) const EARLIEST_AVAILABLE: u8 = 2;
    pub(super) const LAST: u8 = 3;
    pub(super) const HAS_MORE: u8 = 4;
    pub(super) const NEXT_SEQ: u8 = 5;
    pub(super) const ARCHIVE_UNAVAILABLE: u8 = 6;
}

/// Fields of `qim.v1.Record`.
mod record_field {
    pub(super) const SEQ: u8 = 1;
    pub(super) const SENDER: u8 = 2;
    pub(super) const CLIENT_MSG_ID: u8 = 3;
    pub(super) const RETENTION_CLASS: u8 = 4;
    pub(super) const CONTENT_TYPE: u8 = 5;
    pub(super) const PAYLOAD: u8 = 6;
    pub(super) const CREATED_AT_MS: u8 = 7;
    pub(super) const EXPIRES_AT_MS: u8 = 8;
    pub(super) const PAYLOAD_ENCODING: u8 = 9;
}

pub(super) fn encode(page: &Page) -> EncodedPullResponse {
    let bytes: usize = page.records.iter().map(|record| record.payload.len() + FIELDS_BYTES).sum();
    let mut out = Vec::with_capacity(bytes + FIELDS_BYTES);
    // A record stands behind its length.
    let mut fields = Vec::with_capacity(2 * FIELDS_BYTES);
    for record in &page.records {
        fields.clear();
        push_record(&mut fields, record);
        push_bytes(&mut out, page_field::RECORDS, &fields);
    }
    push_number(&mut out, page_field::EARLIEST_AVAILABLE, page.earliest_available);
    push_number(&mut out, page_field::LAST, page.last);
    push_number(&mut out, page_field::HAS_MORE, page.has_more.into());
    push_number(&mut out, page_field::NEXT_SEQ, page.next_seq);
    push_number(&mut out, page_field::ARCHIVE_UNAVAILABLE, page.archive_unavailable.into());
    EncodedPullResponse(out.into())
}

fn push_record(out: &mut Vec<u8>, Record { seq, encoded, payload, encoding }: &Record) {
    push_number(out, record_field::SEQ, *seq);
    push_text(out, record_field::SENDER, encoded.sender());
    push_text(out, record_field::CLIENT_MSG_ID, encoded.client_msg_id());
    push_number(out, record_field::RETENTION_CLASS, enumerated(class_number(encoded.class())));
    push_bytes(out, record_field::CONTENT_TYPE, encoded.content_type().as_bytes());
    push_bytes(out, record_field::PAYLOAD, payload);
    push_number(out, record_field::CREATED_AT_MS, encoded.created_at().get());
    if let Some(expires_at) = encoded.expires_at() {
        // Its absence means something, so that it is there even where it is 0.
        push_key(out, record_field::EXPIRES_AT_MS, VARINT);
        encode_varint(expires_at.get(), out);
    }
    let encoding = match encoding {
        PayloadEncoding::Plain => v1::PayloadEncoding::Unspecified,
        PayloadEncoding::Zstd => v1::PayloadEncoding::Zstd,
    };
    push_number(out, record_field::PAYLOAD_ENCODING, enumerated(encoding.into()));
}

fn enumerated(number: i32) -> u64 {
    u64::try_from(number).expect("no number of an enum is negative")
}

fn push_key(out: &mut Vec<u8>, field: u8, wire_type: u8) {
    out.push(field << 3 | wire_type);
}

/// A field that is 0 is not sent, as always in proto3.
fn push_number(out: &mut Vec<u8>, field: u8, number: u64) {
    if number != 0 {
        push_key(out, field, VARINT);
        encode_varint(number, out);
    }
}

fn push_bytes(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    if !bytes.is_empty() {
        push_key(out, field, LENGTH_DELIMITED);
        encode_varint(bytes.len() as u64, out);
        out.extend_from_slice(bytes);
    }
}

fn push_text(out: &mut Vec<u8>, field: u8, text: PackedText<'_>) {
    if !text.is_empty() {
        push_key(out, field, LENGTH_DELIMITED);
        encode_varint(text.len() as u64, out);
        text.push_to(out);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use prost::Message as _;
    use qim_core::{
        Compressor, ConversationKey, Decoder, Decompressor, Message, PayloadForm, RecordsBuilder,
        RetentionClass, StoredMessage, TenantId, UnixMillis, codec,
    };

    use super::*;

    const SAYING: &str = "to be, or not to be, or to be, or not to be: that is the question, whether it is nobler to be, or \
        not to be, in the mind: that is the question";

    fn message(class: RetentionClass, expires_at: Option<u64>, payload: &str) -> Message {
        Message {
            sender: "u-7fc8ee53".to_owned(),
            client_msg_id: "0123456789abcdef0123456789abcdef".to_owned(),
            class,
            created_at: UnixMillis::new(1_800_000_000_000),
            expires_at: expires_at.map(UnixMillis::new),
            content_type: "text/x".to_owned(),
            payload: Bytes::copy_from_slice(payload.as_bytes()),
        }
    }

    fn sent(message: &Message, seq: u64, encoding: v1::PayloadEncoding, payload: Bytes) -> v1::Record {
        v1::Record {
            seq,
            sender: message.sender.clone(),
            client_msg_id: message.client_msg_id.clone(),
            retention_class: class_number(message.class),
            content_type: message.content_type.clone(),
            payload,
            created_at_ms: message.created_at.as_i64(),
            expires_at_ms: message.expires_at.map(UnixMillis::as_i64),
            payload_encoding: encoding.into(),
        }
    }

    fn page(records: Vec<Record>) -> Page {
        Page {
            records,
            earliest_available: 1,
            last: 1 << 40,
            has_more: true,
            next_seq: 300,
            archive_unavailable: true,
            from_archive: 0,
        }
    }

    #[test]
    fn what_is_written_is_what_the_generated_code_reads_and_writes() {
        let conversation = ConversationKey::new(TenantId::default(), "c").unwrap();
        let messages = [
            message(RetentionClass::Default, Some(1_802_592_000_000), SAYING),
            message(RetentionClass::Ephemeral24h, Some(1_800_000_000_001), ""),
            message(RetentionClass::ComplianceHold, None, "short"),
        ];
        for form in [PayloadForm::Plain, PayloadForm::PlainOrZstd] {
            let mut records = RecordsBuilder::default();
            let stored =
                messages.clone().map(|message| -> StoredMessage { message.pack(&Compressor::default()) });
            for (seq, stored) in (200..).zip(&stored) {
                let record = codec::encode(&conversation, stored).into();
                let record = Decoder::of(&conversation).check(record).unwrap();
                records.push(seq, record, form, &Decompressor::default()).unwrap();
            }
            let page = page(records.finish());
            let expected = v1::PullResponse {
                records: (200..)
                    .zip(messages.iter().zip(&page.records))
                    .map(|(seq, (message, record))| {
                        let is_frame = form == PayloadForm::PlainOrZstd && message.payload == SAYING;
                        let encoding = if is_frame {
                            v1::PayloadEncoding::Zstd
                        } else {
                            v1::PayloadEncoding::Unspecified
                        };
                        let payload = if is_frame { record.payload.clone() } else { message.payload.clone() };
                        sent(message, seq, encoding, payload)
                    })
                    .collect(),
                earliest_available_conversation_seq: 1,
                last_conversation_seq: 1 << 40,
                has_more: true,
                next_seq: 300,
                archive_unavailable: true,
            };
            let EncodedPullResponse(encoded) = encode(&page);
            assert_eq!(v1::PullResponse::decode(encoded.clone()).unwrap(), expected);
            assert_eq!(encoded, expected.encode_to_vec());
        }
    }

    #[test]
    fn an_empty_page_is_written_as_the_generated_code_does() {
        let page =
            Page { last: 0, next_seq: 0, has_more: false, archive_unavailable: false, ..page(Vec::new()) };
        let expected = v1::PullResponse { earliest_available_conversation_seq: 1, ..Default::default() };
        assert_eq!(encode(&page).0, expected.encode_to_vec());
    }
}
