//! The head of a zstd frame, which is not stored: all of it follows from two lengths.

const FRAME_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Magic, descriptor and size of a frame, and the head of its first block.
const FRAME_HEAD_BYTES_MAX: usize = 12;
/// A shorter payload is one block.
pub(crate) const BLOCK_BYTES: usize = 128 * 1024;

/// What stands before the content in a frame of one segment (RFC 8878, 3.1.1): magic, descriptor, size of the payload,
/// and where there is one block only its head.
pub(crate) struct FrameHead {
    bytes: [u8; FRAME_HEAD_BYTES_MAX],
    len: usize,
}

impl FrameHead {
    /// Of a payload of `len` bytes, at most 1 MiB, with so many bytes of content.
    pub(crate) fn new(len: usize, content: usize) -> Self {
        let mut head = Self { bytes: [0; FRAME_HEAD_BYTES_MAX], len: 0 };
        head.push(&FRAME_MAGIC);
        let little_endian = |number: usize| u32::try_from(number).expect("at most 1 MiB").to_le_bytes();
        match len {
            0..=255 => head.push(&[0x20, little_endian(len)[0]]),
            256..=65_791 => {
                head.push(&[0x60]);
                head.push(&little_endian(len - 256)[..2]);
            }
            _ => {
                head.push(&[0xa0]);
                head.push(&little_endian(len));
            }
        }
        if len < BLOCK_BYTES {
            // Size, type "compressed", and that it is the last one.
            head.push(&little_endian(content << 3 | 0b101)[..3]);
        }
        head
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// How long the head is.
pub(crate) const fn frame_head_len(len: usize) -> usize {
    match len {
        0..=255 => 9,
        256..=65_791 => 10,
        65_792..BLOCK_BYTES => 12,
        _ => 9,
    }
}
