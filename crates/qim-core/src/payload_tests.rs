use proptest::prelude::*;

use super::*;
use crate::UnixMillis;
use crate::frame_head::BLOCK_BYTES;

const SAYING: &str = "to be, or not to be, or to be, or not to be: that is the question, whether it is nobler to be, or \
    not to be, in the mind: that is the question";

fn packed(payload: impl Into<Bytes>) -> StoredPayload {
    Compressor::default().pack(&payload.into())
}

fn opened(payload: &StoredPayload) -> Result<Bytes, CodecError> {
    payload.open(&Decompressor::default())
}

/// As it stands in a record, behind other bytes.
fn stored(payload: &StoredPayload) -> Bytes {
    let mut out = Vec::new();
    payload.push_to(&mut out);
    out.into()
}

/// What [`StoredPayload::push_to`] wrote.
fn parse(form: u8, bytes: &[u8]) -> Result<StoredPayload, CodecError> {
    let mut content = bytes;
    let encoding = Encoding::take(form, &mut content)?;
    Ok(StoredPayload::new(encoding, Bytes::copy_from_slice(content)))
}

fn announcing(len: u32, content: &[u8]) -> Result<StoredPayload, CodecError> {
    let mut bytes = Vec::new();
    push_varint(&mut bytes, len);
    bytes.extend_from_slice(content);
    parse(1, &bytes)
}

#[test]
fn text_gets_smaller_and_comes_back() {
    let payload = packed(SAYING);
    assert!(payload.is_compressed());
    assert_eq!((payload.len(), stored(&payload).len()), (142, 84));
    assert_eq!(opened(&payload).unwrap(), SAYING);
}

#[test]
fn what_does_not_get_smaller_is_stored_as_it_is() {
    let noise: Vec<u8> =
        (0..2000_u64).map(|i| xxhash_rust::xxh3::xxh3_64(&i.to_le_bytes()).to_le_bytes()[0]).collect();
    for raw in [vec![], b"x".to_vec(), vec![b'x'; COMPRESSED_PAYLOAD_BYTES_MIN - 1], noise] {
        let payload = packed(raw.clone());
        assert!(!payload.is_compressed());
        assert_eq!(stored(&payload), raw);
    }
}

/// Around every length at which the head of a frame, or of a block, takes another form.
#[test]
fn every_form_of_the_head_is_put_back() {
    let edges = [255, 256, 16_384, 65_535, 65_791, 65_792, BLOCK_BYTES - 1, BLOCK_BYTES, 400_000];
    for len in edges.into_iter().chain([COMPRESSED_PAYLOAD_BYTES_MAX]) {
        let raw: Bytes = SAYING.bytes().cycle().take(len).collect();
        let payload = packed(raw.clone());
        assert!(payload.is_compressed(), "{len}");
        let payload = parse(payload.form(), &stored(&payload)).unwrap();
        assert_eq!(opened(&payload).unwrap(), raw, "{len}");
    }
    assert!(!packed(vec![b'x'; COMPRESSED_PAYLOAD_BYTES_MAX + 1]).is_compressed());
}

/// What the command `zstd` made of 144 000 bytes, which is two blocks, stays readable.
#[test]
fn a_payload_of_several_blocks_is_a_zstd_frame_without_its_head() {
    let content: Vec<u8> = [
        &[0xc4, 0, 0, 0x80][..],
        b"0123456789abcdef",
        &[1, 0, 0xda, 0xff, 0x27, 0x9f, 0x4b, 0x45, 0, 0, 8, 0x30, 1, 0, 0x7c, 0x92, 7, 0x42],
    ]
    .concat();
    let raw: Bytes = b"0123456789abcdef".repeat(9000).into();
    assert_eq!(opened(&announcing(144_000, &content).unwrap()), Ok(raw));
}

#[test]
fn a_payload_that_gives_more_or_less_than_it_announces_is_refused() {
    let raw = vec![b'x'; 100_000];
    let content = packed(raw).bytes;
    for announced in [200, 99_999, 100_001, 130_000, 1 << 20] {
        let payload = announcing(announced, &content).unwrap();
        assert_eq!(opened(&payload), Err(CodecError::Frame { announced: announced as usize }));
    }
    assert_eq!(opened(&announcing(100_000, &content).unwrap()).unwrap().len(), 100_000);
}

#[test]
fn no_more_than_a_mebibyte_and_no_less_than_what_is_stored_is_announced() {
    for (announced, stored) in [((1 << 20) + 1, 9), (u32::MAX, 9), (9, 9), (0, 0)] {
        let error = announcing(announced, &vec![0; stored]).unwrap_err();
        assert_eq!(error, CodecError::AnnouncedLength { announced: announced as usize, stored });
    }
    assert!(announcing(1 << 20, &[0; 9]).is_ok());
}

#[test]
fn a_dictionary_that_is_not_known_is_named() {
    let payload = parse(2, &[0xac, 2, 10, b'x', b'y', b'z']).unwrap();
    assert_eq!((payload.form(), payload.len()), (2, 10));
    assert_eq!(opened(&payload), Err(CodecError::UnknownDictionary(300)));
    assert_eq!(&stored(&payload)[..], &[0xac, 2, 10, b'x', b'y', b'z']);
}

/// Both with a dictionary of plain text.
fn with_dictionary(id: u32) -> (Compressor, Decompressor) {
    let text = Bytes::from_static(b"that is the question, or not to be, to be or");
    let dictionary = Dictionary::new(id, UnixMillis::EPOCH, text).unwrap();
    let (compressor, decompressor) = (Compressor::default(), Decompressor::default());
    compressor.use_dictionary(Some(&dictionary)).unwrap();
    decompressor.learn(dictionary.into());
    (compressor, decompressor)
}

#[test]
fn every_form_of_the_head_is_put_back_with_a_dictionary_too() {
    let edges = [8, 31, 255, 256, 16_384, 65_535, 65_791, 65_792, BLOCK_BYTES - 1, BLOCK_BYTES, 400_000];
    for id in [1, 127, 128, u32::MAX] {
        let (compressor, decompressor) = with_dictionary(id);
        for len in edges.into_iter().chain([COMPRESSED_PAYLOAD_BYTES_MAX]) {
            let raw: Bytes = SAYING.bytes().cycle().skip(7).take(len).collect();
            let payload = compressor.pack_expiring(&raw);
            assert_eq!(payload.dictionary(), (len > 8).then_some(id), "{len}");
            let payload = parse(payload.form(), &stored(&payload)).unwrap();
            assert_eq!(payload.open(&decompressor).unwrap(), raw, "{len}");
        }
    }
}

#[test]
fn what_a_dictionary_opens_gives_what_it_announces_or_nothing() {
    let (compressor, decompressor) = with_dictionary(3);
    let packed = compressor.pack_expiring(&vec![b'x'; 100_000].into());
    for announced in [200, 99_999, 100_001, 130_000, 1 << 20] {
        let encoding = Encoding::ZstdDictionary { dictionary: 3, len: announced };
        let payload = StoredPayload { encoding, ..packed.clone() };
        assert_eq!(payload.open(&decompressor), Err(CodecError::Frame { announced: announced as usize }));
    }
    assert_eq!(packed.open(&Decompressor::default()), Err(CodecError::UnknownDictionary(3)));
    decompressor.forget_all_but(&[1, 2]);
    assert_eq!(packed.open(&decompressor), Err(CodecError::UnknownDictionary(3)));
}

#[test]
fn numbers_end_within_five_bytes() {
    for number in [0, 1, 127, 128, 16_383, 16_384, (1 << 21) - 1, 1 << 21, (1 << 28) - 1, 1 << 28, u32::MAX] {
        let mut bytes = Vec::new();
        push_varint(&mut bytes, number);
        assert_eq!(bytes.len(), varint_len(number), "{number}");
        let mut bytes = &bytes[..];
        assert_eq!((take_varint(&mut bytes), bytes.len()), (Ok(number), 0));
    }
    for mut bad in [&[][..], &[0x80], &[0xff; 5], &[0xff, 0xff, 0xff, 0xff, 0x1f], &[0x80; 9]] {
        assert_eq!(take_varint(&mut bad), Err(CodecError::Varint), "{bad:?}");
    }
}

#[test]
fn contexts_are_kept_and_one_that_failed_does_no_harm() {
    let (compressor, decompressor) = (Compressor::default(), Decompressor::default());
    let damaged = announcing(100, &[0; 20]).unwrap();
    for _ in 0..3 {
        let payload = compressor.pack(&Bytes::from_static(SAYING.as_bytes()));
        assert_eq!(payload.open(&decompressor).unwrap(), SAYING);
        let idle =
            (compressor.contexts.0.lock().unwrap().len(), decompressor.contexts.0.lock().unwrap().len());
        assert_eq!(idle, (1, 1));
        damaged.open(&decompressor).unwrap_err();
    }
}

proptest! {
    #[test]
    fn any_content_opens_to_its_length_or_not_at_all(
        content in proptest::collection::vec(any::<u8>(), 0..300),
        len in 0..200_000_u32,
    ) {
        if let Ok(raw) = announcing(len, &content).and_then(|payload| opened(&payload)) {
            prop_assert_eq!(raw.len(), len as usize);
        }
    }

    #[test]
    fn any_content_opens_to_its_length_or_not_at_all_with_a_dictionary(
        content in proptest::collection::vec(any::<u8>(), 0..300),
        words in proptest::collection::vec("(be|or|not|question|[a-f]{3}) ", 10..200),
        place in any::<prop::sample::Index>(),
        len in 301..200_000_u32,
    ) {
        let (compressor, decompressor) = with_dictionary(1);
        let encoding = Encoding::ZstdDictionary { dictionary: 1, len };
        let payload = StoredPayload { encoding, bytes: content.into() };
        if let Ok(raw) = payload.open(&decompressor) {
            prop_assert_eq!(raw.len(), len as usize);
        }
        let raw = Bytes::from(words.concat());
        let packed = compressor.pack_expiring(&raw);
        prop_assert_eq!(packed.open(&decompressor), Ok(raw));
        let mut content = packed.bytes.to_vec();
        let place = place.index(content.len());
        content[place] ^= 0x10;
        let damaged = StoredPayload { bytes: content.into(), ..packed };
        if let Ok(raw) = damaged.open(&decompressor) {
            prop_assert_eq!(raw.len(), damaged.len());
        }
    }

    #[test]
    fn a_damaged_frame_opens_to_its_length_or_not_at_all(
        words in proptest::collection::vec("[a-f]{1,5} ", 10..2000),
        place in any::<prop::sample::Index>(),
        bit in 0..8_u8,
    ) {
        let raw = Bytes::from(words.concat());
        let payload = packed(raw.clone());
        prop_assert_eq!(opened(&payload), Ok(raw));
        let mut content = payload.bytes.to_vec();
        let place = place.index(content.len());
        content[place] ^= 1 << bit;
        let damaged = StoredPayload { bytes: content.into(), ..payload };
        if let Ok(raw) = opened(&damaged) {
            prop_assert_eq!(raw.len(), damaged.len());
        }
    }
}
