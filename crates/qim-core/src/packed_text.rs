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

use std::fmt;

/// The longest text.
const TEXT_BYTES_MAX: usize = 128;
const PLAIN_MAX: u8 = 128;
const UUID: u8 = 129;
const UUID_DASHES: usize = 4;
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

/// A text as it is stored: reading one takes no memory of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackedText<'a>(Form<'a>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form<'a> {
    /// Text, and bytes that are written as two digits each.
    Tail(&'a str, &'a [u8]),
    /// The bytes of a UUID.
    Uuid(&'a [u8]),
}

impl<'a> PackedText<'a> {
    /// `None` where it is not UTF-8. The bytes are as many as [`packed_len`] says.
    pub(crate) fn parse(packed: &'a [u8]) -> Option<Self> {
        let (first, rest) = packed.split_first()?;
        Some(match *first {
            0..=PLAIN_MAX => Self(Form::Tail(std::str::from_utf8(rest).ok()?, &[])),
            UUID => Self::uuid(rest),
            first => {
                let (head, tail) = rest.split_at_checked(head_len(first))?;
                Self(Form::Tail(std::str::from_utf8(head).ok()?, tail))
            }
        })
    }

    /// The text of bytes that were written as hex digits.
    pub(crate) const fn hex(bytes: &'a [u8]) -> Self {
        Self(Form::Tail("", bytes))
    }

    /// The text of a UUID.
    pub(crate) const fn uuid(bytes: &'a [u8]) -> Self {
        Self(Form::Uuid(bytes))
    }

    /// Bytes of the text.
    pub const fn len(self) -> usize {
        match self.0 {
            Form::Tail(head, tail) => head.len() + 2 * tail.len(),
            Form::Uuid(bytes) => 2 * bytes.len() + UUID_DASHES,
        }
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Appends the text.
    pub fn push_to(self, out: &mut Vec<u8>) {
        match self.0 {
            Form::Tail(head, tail) => {
                out.extend_from_slice(head.as_bytes());
                push_hex(out, tail);
            }
            Form::Uuid(bytes) => {
                for (at, byte) in bytes.iter().enumerate() {
                    if matches!(at, 4 | 6 | 8 | 10) {
                        out.push(b'-');
                    }
                    push_hex(out, &[*byte]);
                }
            }
        }
    }
}

impl fmt::Display for PackedText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::with_capacity(self.len());
        self.push_to(&mut text);
        f.write_str(std::str::from_utf8(&text).expect("text and digits"))
    }
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
fn push_hex(text: &mut Vec<u8>, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    text.extend(
        bytes.iter().flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]),
    );
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
        let unpacked = PackedText::parse(&out).unwrap();
        assert_eq!((unpacked.to_string().as_str(), unpacked.len()), (text, text.len()));
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
        assert_eq!(PackedText::parse(&[]), None);
        assert_eq!(PackedText::parse(&[2, 0xc3, 0x28]), None);
        assert_eq!(PackedText::parse(&[128 + 26, 0xc3, 0x28, 1, 2, 3, 4]), None);
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
