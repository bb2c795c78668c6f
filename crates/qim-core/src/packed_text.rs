//! Ids that end in hex digits, or are UUIDs, in half the bytes. Most senders are one or the other.
//!
//! ```text
//! first byte
//!    0..128  that many bytes of text follow
//!       129  16 bytes of a UUID follow, which is written as 8-4-4-4-12 lower-case hex digits
//!  130..255  less 128: in the low 3 bits how many bytes of text follow, above them how many bytes less 1 follow those
//!            which are written as two lower-case hex digits each
//! ```
//!
//! Only what comes back as the very same text is packed. `text_bytes` in conversation.lua knows the lengths.

/// The longest text.
const TEXT_BYTES_MAX: usize = 128;
const PLAIN_MAX: u8 = 128;
const UUID: u8 = 129;
/// Less is not worth it, and its codes are taken by UUIDs.
const TAIL_BYTES_MIN: usize = 4;
const TAIL_BYTES_MAX: usize = 16;
const HEAD_BYTES_MAX: usize = 7;

/// Appends the packed text, which has at most 128 bytes.
pub(crate) fn push(out: &mut Vec<u8>, text: &str) {
    assert!(text.len() <= TEXT_BYTES_MAX, "validated: at most 128 bytes");
    if let Some(bytes) = unhex_uuid(text) {
        out.push(UUID);
        out.extend_from_slice(&bytes);
        return;
    }
    let (head, tail) = text.split_at(text.len() - hex_tail_len(text));
    if head.len() > HEAD_BYTES_MAX || tail.len() < 2 * TAIL_BYTES_MIN {
        out.push(low_byte(text.len()));
        out.extend_from_slice(text.as_bytes());
        return;
    }
    out.push(PLAIN_MAX + low_byte((tail.len() / 2 - 1) << 3 | head.len()));
    out.extend_from_slice(head.as_bytes());
    out.extend(tail.as_bytes().chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])));
}

/// How many bytes a text takes that begins with this one, this one included.
pub(crate) fn packed_len(first: u8) -> usize {
    match first {
        0..=PLAIN_MAX => 1 + usize::from(first),
        UUID => 17,
        _ => 1 + head_len(first) + tail_len(first),
    }
}

/// The text; `None` where it is not UTF-8. The bytes are as many as [`packed_len`] says.
pub(crate) fn unpack(packed: &[u8]) -> Option<String> {
    let (first, rest) = packed.split_first()?;
    match *first {
        0..=PLAIN_MAX => std::str::from_utf8(rest).ok().map(ToOwned::to_owned),
        UUID => Some(uuid(rest)),
        first => {
            let (head, tail) = rest.split_at_checked(head_len(first))?;
            let mut text = String::with_capacity(head.len() + 2 * tail.len());
            text.push_str(std::str::from_utf8(head).ok()?);
            push_hex(&mut text, tail);
            Some(text)
        }
    }
}

/// The text of bytes that were written as hex digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    push_hex(&mut text, bytes);
    text
}

/// The text of a UUID.
pub(crate) fn uuid(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(36);
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        push_hex(&mut text, &[*byte]);
    }
    text
}

/// The bytes of a UUID whose text is the usual one.
pub(crate) fn unhex_uuid(text: &str) -> Option<[u8; 16]> {
    if text.len() != 36 {
        return None;
    }
    let dashes_stand_right =
        text.bytes().enumerate().all(|(at, b)| (b == b'-') == matches!(at, 8 | 13 | 18 | 23));
    if dashes_stand_right { unhex(text.bytes().filter(|b| *b != b'-')) } else { None }
}

/// The bytes that 32 lower-case hex digits write.
pub(crate) fn unhex(digits: impl Iterator<Item = u8>) -> Option<[u8; 16]> {
    let mut bytes = [0; 16];
    let mut count = 0;
    for byte in digits {
        if count == 32 || !is_hex(byte) {
            return None;
        }
        bytes[count / 2] = bytes[count / 2] << 4 | digit(byte);
        count += 1;
    }
    (count == 32).then_some(bytes)
}

/// Writes two lower-case digits for each byte.
fn push_hex(text: &mut String, bytes: &[u8]) {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    for byte in bytes {
        text.push(DIGITS[usize::from(byte >> 4)]);
        text.push(DIGITS[usize::from(byte & 15)]);
    }
}

/// Of the hex digits at the end: an even number, and no more than are packed.
fn hex_tail_len(text: &str) -> usize {
    let digits = text.bytes().rev().take(2 * TAIL_BYTES_MAX).take_while(|byte| is_hex(*byte)).count();
    digits / 2 * 2
}

const fn head_len(first: u8) -> usize {
    ((first - PLAIN_MAX) & 7) as usize
}

const fn tail_len(first: u8) -> usize {
    ((first - PLAIN_MAX) >> 3) as usize + 1
}

const fn is_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

const fn digit(hex: u8) -> u8 {
    if hex <= b'9' { hex - b'0' } else { hex - b'a' + 10 }
}

fn low_byte(number: usize) -> u8 {
    u8::try_from(number).expect("at most 128")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packed(text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        push(&mut out, text);
        assert_eq!(packed_len(out[0]), out.len(), "{text}");
        assert_eq!(unpack(&out).as_deref(), Some(text));
        out
    }

    #[test]
    fn ids_that_end_in_hex_digits_take_half_of_them() {
        for (text, bytes) in [
            ("", 1),
            ("alice", 6),
            ("u-7fc8ee53", 7),
            ("u-7fc8ee5", 10),
            ("7fc8ee53", 5),
            ("user-17fc8ee53", 11),
            ("0123456789abcdef0123456789abcdef", 17),
            ("ab0123456789abcdef0123456789abcdef", 19),
            ("1234567-0123456789abcdef0123456789abcdef", 41),
            ("123456-0123456789abcdef0123456789abcdef", 24),
            ("00000000-1111-2222-3333-444444abcdef", 17),
            ("00000000-1111-2222-3333-444444ABCDEF", 37),
            ("U-7FC8EE53", 11),
            ("größe-7fc8ee53", 17),
        ] {
            assert_eq!(packed(text).len(), bytes, "{text}");
        }
        assert_eq!(packed(&"x".repeat(128)).len(), 129);
    }

    #[test]
    fn damaged_bytes_are_no_text() {
        assert_eq!(unpack(&[]), None);
        assert_eq!(unpack(&[2, 0xc3, 0x28]), None);
        assert_eq!(unpack(&[128 + 26, 0xc3, 0x28, 1, 2, 3, 4]), None);
    }

    proptest! {
        #[test]
        fn every_text_comes_back(text in "\\PC{0,32}", tail in "[0-9a-fA-F-]{0,40}") {
            let text = format!("{text}{tail}");
            if text.len() <= TEXT_BYTES_MAX {
                packed(&text);
            }
        }

        #[test]
        fn two_texts_never_pack_to_the_same(a in "[a-g0-2-]{0,12}", b in "[a-g0-2-]{0,12}") {
            prop_assert_eq!(packed(&a) == packed(&b), a == b);
        }
    }
}
