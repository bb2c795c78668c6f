use proptest::prelude::*;

use super::*;
use crate::TenantId;

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

fn any_message() -> impl Strategy<Value = Message> {
    let id = "[^\\p{Cc}]{1,32}";
    let client_id =
        prop_oneof!["[^\\p{Cc}]{1,32}", "[0-9a-fA-F]{32}", "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"];
    let content_type = prop_oneof![Just(DEFAULT_CONTENT_TYPE.to_owned()), "[ -~]{1,128}"];
    let payload = proptest::collection::vec(any::<u8>(), 0..2000);
    (id, client_id, 0..4_u8, 0..(1_u64 << 47), proptest::option::of(1..(1_u64 << 47)), content_type, payload)
        .prop_map(|(sender, client_msg_id, class, created_at, lives, content_type, payload)| Message {
            sender,
            client_msg_id,
            class: RetentionClass::from_number(class).unwrap(),
            created_at: UnixMillis::new(created_at),
            expires_at: lives.map(|lives| UnixMillis::new(created_at + lives)),
            content_type,
            payload: payload.into(),
        })
}

/// These bytes are in stored data: when they change, the code is wrong, not the test.
#[test]
fn the_format_is_stable_for_ever() {
    let encoded = encode(&conversation(), &message());
    let text: String = encoded.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(text, "010101a3185c500001a3b2db180005616c6963650469642d3168656c6c6f48998904");
}

#[test]
fn ids_in_hex_and_uuids_take_16_bytes_and_come_back_as_they_were() {
    let plain = encode(&conversation(), &Message { client_msg_id: "x".into(), ..message() }).len() - 2;
    for (id, bytes) in [
        ("0123456789abcdef0123456789abcdef", 16),
        ("0123456789ABCDEF0123456789abcdef", 33),
        ("00000000-0000-4000-8000-00000000000a", 16),
        ("0000-00000000-4000-8000-00000000000a", 37),
    ] {
        let message = Message { client_msg_id: id.into(), ..message() };
        let encoded = encode(&conversation(), &message);
        assert_eq!(encoded.len(), plain + bytes, "{id}");
        assert_eq!(decode(&conversation(), &encoded.into()).unwrap().client_msg_id, id);
    }
}

#[test]
fn a_record_of_another_conversation_is_found_out() {
    let other = ConversationKey::new(TenantId::default(), "conv-2").unwrap();
    let encoded = encode(&other, &message()).into();
    assert!(matches!(decode(&conversation(), &encoded), Err(CodecError::Checksum { .. })));
}

#[test]
fn a_format_of_the_future_and_a_stump_are_named() {
    let mut encoded = encode(&conversation(), &message());
    encoded[0] = 2;
    assert_eq!(decode(&conversation(), &encoded.into()), Err(CodecError::UnknownFormat(2)));
    assert_eq!(decode(&conversation(), &Bytes::from_static(&[0])), Err(CodecError::Truncated(1)));
}

proptest! {
    #[test]
    fn every_message_comes_back_as_it_was(message in any_message()) {
        let encoded = encode(&conversation(), &message);
        prop_assert_eq!(decode(&conversation(), &encoded.into()), Ok(message));
    }

    #[test]
    fn a_flipped_bit_is_found(message in any_message(), place in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let mut encoded = encode(&conversation(), &message);
        let place = place.index(encoded.len());
        encoded[place] ^= 1 << bit;
        prop_assert!(decode(&conversation(), &encoded.into()).is_err());
    }

    #[test]
    fn a_cut_record_is_found(message in any_message(), keep in any::<prop::sample::Index>()) {
        let mut encoded = encode(&conversation(), &message);
        encoded.truncate(keep.index(encoded.len()));
        prop_assert!(decode(&conversation(), &encoded.into()).is_err());
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&conversation(), &bytes.into());
    }
}
