use proptest::prelude::*;

use super::*;
use crate::{Compressor, Decompressor, Message, TenantId};

fn conversation() -> ConversationKey {
    ConversationKey::new(TenantId::default(), "conv-1").unwrap()
}

fn message() -> Message {
    Message {
        sender: "alice".into(),
        client_msg_id: "id-1".into(),
        class: RetentionClass::Default,
        created_at: UnixMillis::new(1_800_000_000_000),
        expires_at: Some(UnixMillis::new(1_802_592_000_000)),
        content_type: DEFAULT_CONTENT_TYPE.into(),
        payload: Bytes::from_static(b"hello"),
    }
}

fn any_expiry(created_at: u64) -> impl Strategy<Value = Option<UnixMillis>> {
    let days = (0..5000_u64).prop_map(move |days| Some(UnixMillis::new(created_at + days * DAY_MS)));
    let date = (1..(1_u64 << 47)).prop_map(move |lives| Some(UnixMillis::new(created_at + lives)));
    prop_oneof![Just(None), days, date, Just(Some(UnixMillis::MAX))]
}

fn any_message() -> impl Strategy<Value = Message> {
    let id = "[^\\p{Cc}]{1,32}";
    let client_id =
        prop_oneof!["[^\\p{Cc}]{1,32}", "[0-9a-fA-F]{32}", "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"];
    let content_type = prop_oneof![Just(DEFAULT_CONTENT_TYPE.to_owned()), "[ -~]{1,128}"];
    let noise = proptest::collection::vec(any::<u8>(), 0..2000);
    let text = proptest::collection::vec("[a-f]{1,4} ", 0..400).prop_map(|words| words.concat().into_bytes());
    let created_at = prop_oneof![1..(1_u64 << 47), Just(UnixMillis::MAX.get() - DAY_MS / 2)];
    let dates = created_at.prop_flat_map(|created_at| (Just(created_at), any_expiry(created_at)));
    (id, client_id, 0..4_u8, dates, content_type, prop_oneof![noise, text]).prop_map(
        |(sender, client_msg_id, class, (created_at, expires_at), content_type, payload)| Message {
            sender,
            client_msg_id,
            class: RetentionClass::from_number(class).unwrap(),
            created_at: UnixMillis::new(created_at),
            expires_at,
            content_type,
            payload: payload.into(),
        },
    )
}

/// Compressed or not.
fn any_stored() -> impl Strategy<Value = StoredMessage> {
    (any_message(), any::<bool>()).prop_map(|(message, compress)| {
        if compress { message.pack(&Compressor::default()) } else { message.into() }
    })
}

fn stored(message: Message) -> StoredMessage {
    message.into()
}

fn hex_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes_of(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// With a checksum that is right.
fn sealed(mut body: Vec<u8>) -> Bytes {
    let checksum = checksum(&conversation(), &body);
    body.extend_from_slice(&checksum.to_be_bytes());
    body.into()
}

/// These bytes are in stored data, and were computed by another program: when they change, the code is wrong, not the
/// test.
#[test]
fn the_format_is_stable_for_ever() {
    let created_at = message().created_at;
    for (class, expires_at, text) in [
        (1, message().expires_at, "8101a3185c50001e05616c6963650469642d3168656c6c6f26de49c6"),
        (2, None, "8201a3185c50000005616c6963650469642d3168656c6c6f28b58105"),
        (
            1,
            Some(UnixMillis::new(created_at.get() + 3650 * DAY_MS)),
            "8101a3185c5000fd5205616c6963650469642d3168656c6c6fa3a6c88a",
        ),
        (
            1,
            Some(UnixMillis::new(created_at.get() + 1)),
            "8101a3185c5000ff01a3185c500105616c6963650469642d3168656c6c6f5c46c549",
        ),
    ] {
        let class = RetentionClass::from_number(class).unwrap();
        let message = stored(Message { class, expires_at, ..message() });
        assert_eq!(hex_of(&encode(&conversation(), &message)), text);
        assert_eq!(decode(&conversation(), &bytes_of(text).into()), Ok(message));
    }
}

#[test]
fn senders_that_end_in_hex_digits_are_packed_the_same_for_ever() {
    for (sender, text) in [
        ("u-7fc8ee53", "8101a3185c50001e9a752d7fc8ee530469642d3168656c6c6fbbd4faba"),
        (
            "01234567-89ab-cdef-0123-456789abcdef",
            "8101a3185c50001e810123456789abcdef0123456789abcdef0469642d3168656c6c6fc69dc09b",
        ),
    ] {
        let message = stored(Message { sender: sender.into(), ..message() });
        assert_eq!(hex_of(&encode(&conversation(), &message)), text);
        assert_eq!(decode(&conversation(), &bytes_of(text).into()), Ok(message));
    }
}

/// Made with the command `zstd` and another program, so that what one version of the library compressed is read by all.
#[test]
fn a_compressed_record_is_readable_for_ever() {
    let text = "a901a3185c50001e05616c6963650123456789abcdef0123456789abcdef414402746f2062652c206f72206e6f74203a207468617420697320746865207175657374696f6e03003b0bb46c20b6a9045353e2af";
    let record = bytes_of(text);
    let decoded = decode(&conversation(), &record.clone().into()).unwrap();
    assert!(decoded.payload.is_compressed());
    assert_eq!(encode(&conversation(), &decoded), record);
    let opened = decoded.open(&Decompressor::default()).unwrap();
    let said = "to be, or not to be, or to be, or not to be: that is the question";
    let expected = Message {
        client_msg_id: "0123456789abcdef0123456789abcdef".into(),
        payload: said.into(),
        ..message()
    };
    assert_eq!(opened, expected);
}

#[test]
fn a_record_that_needs_a_dictionary_can_be_kept_and_not_opened() {
    let record = bytes_of("c101a3185c50001e05616c6963650469642d31ac020a78797a134fb4c1");
    let decoded = decode(&conversation(), &record.clone().into()).unwrap();
    assert_eq!(encode(&conversation(), &decoded), record);
    assert_eq!(decoded.open(&Decompressor::default()), Err(CodecError::UnknownDictionary(300)));
}

#[test]
fn an_expiry_takes_one_byte_or_two_for_whole_days_and_seven_for_any_other_date() {
    let message = message();
    let at = |created_at: UnixMillis, expires_at| {
        let stored = stored(Message { created_at, expires_at, ..message.clone() });
        let encoded = encode(&conversation(), &stored);
        assert_eq!(decode(&conversation(), &encoded.clone().into()), Ok(stored));
        encoded.len() - encode(&conversation(), &Message { expires_at: None, ..message.clone() }.into()).len()
            + 1
    };
    let after = |millis: u64| Some(UnixMillis::new(message.created_at.get() + millis));
    for (expires_at, bytes) in [
        (None, 1),
        (after(DAY_MS), 1),
        (after(239 * DAY_MS), 1),
        (after(240 * DAY_MS), 2),
        (after(3650 * DAY_MS), 2),
        (after(4079 * DAY_MS), 2),
        (after(4080 * DAY_MS), 7),
        (after(0), 7),
        (after(DAY_MS + 1), 7),
        (Some(UnixMillis::MAX), 7),
    ] {
        assert_eq!(at(message.created_at, expires_at), bytes, "{expires_at:?}");
    }
    assert_eq!(at(UnixMillis::MAX, Some(UnixMillis::MAX)), 7, "saturated");
    let day_before = UnixMillis::new(UnixMillis::MAX.get() - DAY_MS);
    assert_eq!(at(day_before, Some(UnixMillis::MAX)), 1);
}

#[test]
fn a_date_that_cannot_be_is_refused() {
    let record = encode(&conversation(), &stored(message()));
    let with = |created_at: u64, expiry: &[u8]| {
        let created_at = &created_at.to_be_bytes()[2..];
        let rest = &record[8..record.len() - CHECKSUM_BYTES];
        decode(&conversation(), &sealed([&record[..1], created_at, expiry, rest].concat()))
    };
    assert!(with(5, &[255, 0, 0, 0, 0, 0, 5]).is_ok());
    assert_eq!(with(5, &[255, 0, 0, 0, 0, 0, 4]), Err(CodecError::Dates));
    assert_eq!(with(0, &[255, 0, 0, 0, 0, 0, 0]), Err(CodecError::Dates));
    assert_eq!(with(UnixMillis::MAX.get(), &[1]), Err(CodecError::Dates));
    assert_eq!(with(UnixMillis::MAX.get(), &[240, 1]), Err(CodecError::Dates));
}

#[test]
fn flags_of_the_future_are_refused() {
    let record = encode(&conversation(), &stored(message()));
    for flag in [0b0110_0000, 0b0001_1000] {
        let mut body = record[..record.len() - CHECKSUM_BYTES].to_vec();
        body[0] |= flag;
        assert_eq!(decode(&conversation(), &sealed(body)), Err(CodecError::UnknownFlags(0b1000_0001 | flag)));
    }
}

#[test]
fn a_bomb_is_refused_before_it_is_opened_and_a_damaged_frame_when_it_is() {
    let record = encode(&conversation(), &stored(message()));
    let head = &record[..record.len() - CHECKSUM_BYTES - message().payload.len()];
    let with = |payload: &[u8]| {
        let mut body = [head, payload].concat();
        body[0] |= 1 << PAYLOAD_FORM_SHIFT;
        Decoder::of(&conversation()).check(sealed(body))
    };
    let announced = (1 << 20) + 1;
    assert_eq!(with(&[0x81, 0x80, 0x40, 9, 9]), Err(CodecError::AnnouncedLength { announced, stored: 2 }));
    assert_eq!(with(&[0x81, 0x80, 0x80, 0x80, 0x80]), Err(CodecError::Varint));
    let damaged = with(&[100, 9, 9, 9, 9]).unwrap();
    assert_eq!(damaged.body_digest(&Decompressor::default()), Err(CodecError::Frame { announced: 100 }));
    let error = damaged.message().open(&Decompressor::default()).unwrap_err();
    assert_eq!(error.to_string(), "the compressed payload does not give the 100 bytes that it announces");
}

#[test]
fn ids_in_hex_and_uuids_take_16_bytes_and_come_back_as_they_were() {
    let with = |id: &str| stored(Message { client_msg_id: id.into(), ..message() });
    let plain = encode(&conversation(), &with("x")).len() - 2;
    for (id, bytes) in [
        ("0123456789abcdef0123456789abcdef", 16),
        ("0123456789ABCDEF0123456789abcdef", 33),
        ("00000000-0000-4000-8000-00000000000a", 16),
        ("0000-00000000-4000-8000-00000000000a", 37),
    ] {
        let encoded = encode(&conversation(), &with(id));
        assert_eq!(encoded.len(), plain + bytes, "{id}");
        assert_eq!(decode(&conversation(), &encoded.into()).unwrap().client_msg_id, id);
    }
}

#[test]
fn a_record_of_another_conversation_is_found_out() {
    let other = ConversationKey::new(TenantId::default(), "conv-2").unwrap();
    let encoded = encode(&other, &stored(message())).into();
    assert!(matches!(decode(&conversation(), &encoded), Err(CodecError::Checksum { .. })));
}

#[test]
fn a_format_of_the_future_and_a_stump_are_named() {
    let mut encoded = encode(&conversation(), &stored(message()));
    encoded[0] = 2;
    assert_eq!(decode(&conversation(), &encoded.into()), Err(CodecError::UnknownFormat(2)));
    assert_eq!(decode(&conversation(), &Bytes::from_static(&[0])), Err(CodecError::Truncated(1)));
}

proptest! {
    #[test]
    fn every_message_comes_back_as_it_was(message in any_message(), compress in any::<bool>()) {
        let said = crate::body_digest(&message);
        let stored: StoredMessage =
            if compress { message.clone().pack(&Compressor::default()) } else { message.clone().into() };
        let encoded = encode(&conversation(), &stored);
        let encoded = Bytes::from(encoded);
        prop_assert_eq!(decode(&conversation(), &encoded), Ok(stored.clone()));
        let record = Decoder::of(&conversation()).check(encoded).unwrap();
        let decompressor = Decompressor::default();
        prop_assert_eq!(record.body_digest(&decompressor), Ok(said));
        let id = crate::ClientIdHash::of(&message.sender, &message.client_msg_id);
        prop_assert_eq!(record.client_id_hash(), id);
        prop_assert_eq!((record.payload_len(), record.payload()), (message.payload.len(), stored.payload));
        prop_assert_eq!(record.message().open(&decompressor), Ok(message));
    }

    #[test]
    fn compression_never_makes_a_record_longer(message in any_message()) {
        let packed = encode(&conversation(), &message.clone().pack(&Compressor::default()));
        prop_assert!(packed.len() <= encode(&conversation(), &stored(message)).len());
    }

    #[test]
    fn a_flipped_bit_is_found(message in any_stored(), place in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let mut encoded = encode(&conversation(), &message);
        let place = place.index(encoded.len());
        encoded[place] ^= 1 << bit;
        prop_assert!(decode(&conversation(), &encoded.into()).is_err());
    }

    #[test]
    fn a_cut_record_is_found(message in any_stored(), keep in any::<prop::sample::Index>()) {
        let mut encoded = encode(&conversation(), &message);
        encoded.truncate(keep.index(encoded.len()));
        prop_assert!(decode(&conversation(), &encoded.into()).is_err());
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&conversation(), &bytes.into());
    }

    /// Bytes that get past the checksum, and mostly past format and flags too.
    #[test]
    fn no_bytes_with_a_checksum_make_it_panic(
        flags in any::<u8>(),
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        if let Ok(message) = decode(&conversation(), &sealed([&[FORMAT, flags], &bytes[..]].concat())) {
            let _ = message.open(&Decompressor::default());
        }
    }
}
