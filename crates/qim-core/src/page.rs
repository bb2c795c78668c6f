//! Records on their way to a reader.

use std::ops::Range;

use bytes::Bytes;

use crate::payload::{Encoding, push_frame};
use crate::{CodecError, Decompressor, EncodedRecord, Message};

/// A committed message and its place, for a reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// 1, 2, 3, ... in its conversation.
    pub seq: u64,
    /// All of it, as it is stored.
    pub encoded: EncodedRecord,
    /// Its payload.
    pub payload: Bytes,
    /// What that is.
    pub encoding: PayloadEncoding,
}

impl Record {
    /// The message, in values of its own.
    pub fn message(&self) -> Message {
        self.encoded.message_with(self.payload.clone())
    }
}

/// What a payload is that is on its way to a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PayloadEncoding {
    /// As it was sent.
    Plain,
    /// That, in a zstd frame (RFC 8878) without a dictionary.
    Zstd,
}

/// What a reader takes for payloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PayloadForm {
    /// Each as it was sent.
    Plain,
    /// In a zstd frame, where it is stored as one and takes no dictionary, else as it was sent. A frame is not opened: a
    /// damaged one is found by whoever does.
    PlainOrZstd,
}

/// Makes records ready for a reader. Payloads that are not stored as they are sent come into one allocation.
#[derive(Debug, Default)]
pub struct RecordsBuilder {
    records: Vec<(u64, EncodedRecord, Place)>,
    payloads: Vec<u8>,
}

#[derive(Debug)]
enum Place {
    /// In the record.
    Stored,
    /// Among the payloads.
    Made(Range<usize>, PayloadEncoding),
}

impl RecordsBuilder {
    /// Takes a record. Fails where its payload is damaged: then it is, and must not be served.
    pub fn push(
        &mut self,
        seq: u64,
        record: EncodedRecord,
        form: PayloadForm,
        decompressor: &Decompressor,
    ) -> Result<(), CodecError> {
        let begin = self.payloads.len();
        let encoding = match record.stored_payload() {
            (Encoding::Raw, _) => {
                self.records.push((seq, record, Place::Stored));
                return Ok(());
            }
            (Encoding::Zstd { len }, content) if form == PayloadForm::PlainOrZstd => {
                push_frame(&mut self.payloads, len as usize, content);
                PayloadEncoding::Zstd
            }
            (encoding, content) => {
                decompressor.open_into(&mut self.payloads, encoding, content)?;
                PayloadEncoding::Plain
            }
        };
        self.records.push((seq, record, Place::Made(begin..self.payloads.len(), encoding)));
        Ok(())
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The records, in the order in which they came.
    pub fn finish(self) -> Vec<Record> {
        let payloads = Bytes::from(self.payloads);
        let finish = |(seq, encoded, place): (u64, EncodedRecord, Place)| match place {
            Place::Stored => {
                let payload = encoded.payload().into_stored();
                Record { seq, encoded, payload, encoding: PayloadEncoding::Plain }
            }
            Place::Made(place, encoding) => Record { seq, encoded, payload: payloads.slice(place), encoding },
        };
        self.records.into_iter().map(finish).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Compressor, ConversationKey, DEFAULT_CONTENT_TYPE, Decoder, RetentionClass, TenantId, UnixMillis,
        codec,
    };

    const SAYING: &str = "to be, or not to be, or to be, or not to be: that is the question, whether it is nobler to be, or \
        not to be, in the mind: that is the question";

    fn record(payload: &str) -> EncodedRecord {
        let conversation = ConversationKey::new(TenantId::default(), "c").unwrap();
        let message = Message {
            sender: "alice".to_owned(),
            client_msg_id: "id".to_owned(),
            class: RetentionClass::Default,
            created_at: UnixMillis::new(1_800_000_000_000),
            expires_at: None,
            content_type: DEFAULT_CONTENT_TYPE.to_owned(),
            payload: Bytes::copy_from_slice(payload.as_bytes()),
        };
        let stored = message.pack(&Compressor::default());
        Decoder::of(&conversation).check(codec::encode(&conversation, &stored).into()).unwrap()
    }

    #[test]
    fn records_come_out_in_order_each_with_its_own_payload() {
        let payloads =
            [SAYING.to_owned(), "short".to_owned(), SAYING.repeat(9), String::new(), SAYING.repeat(2)];
        for form in [PayloadForm::Plain, PayloadForm::PlainOrZstd] {
            let mut records = RecordsBuilder::default();
            for (seq, payload) in (1..).zip(&payloads) {
                records.push(seq, record(payload), form, &Decompressor::default()).unwrap();
            }
            assert_eq!(records.len(), payloads.len());
            for (record, (seq, payload)) in records.finish().into_iter().zip((1..).zip(&payloads)) {
                let is_frame = form == PayloadForm::PlainOrZstd && payload.len() >= SAYING.len();
                assert_eq!(record.encoding == PayloadEncoding::Zstd, is_frame);
                let plain = match record.encoding {
                    PayloadEncoding::Plain => record.payload.to_vec(),
                    PayloadEncoding::Zstd => zstd::decode_all(&record.payload[..]).unwrap(),
                };
                assert_eq!((record.seq, plain), (seq, payload.as_bytes().to_vec()));
            }
        }
    }
}
