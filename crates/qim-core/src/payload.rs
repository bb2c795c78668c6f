//! How a payload is stored: as it is, or compressed once and for all by the writer.
//!
//! A compressed payload is a zstd frame without its head, and a payload below 128 KiB, which is one block, without the
//! head of that block as well: all of it follows from the lengths, and 8 bytes are much of a chat message. What is left
//! stands behind the length of the payload, so that it is known what opening it will take before it is done.

use std::sync::{Mutex, PoisonError};
use std::{fmt, io};

use bytes::Bytes;
use zstd::bulk;

use crate::CodecError;

/// The longest payload that is compressed, which is the longest that can be configured (`QIM_PAYLOAD_BYTES_MAX`).
/// Nothing that announces more is ever decompressed.
pub const COMPRESSED_PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// Hardly any shorter text gets smaller: trying costs time and saves nothing.
const COMPRESSED_PAYLOAD_BYTES_MIN: usize = 32;
/// Level 9 makes chat 1 % smaller in twice the time, level 19 makes it 3 % smaller in nine times as much.
const LEVEL: i32 = 3;
const FRAME_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Magic, descriptor and size of a frame, and the head of its first block.
const FRAME_HEAD_BYTES_MAX: usize = 12;
/// A shorter payload is one block.
const BLOCK_BYTES: usize = 128 * 1024;

/// Whether a writer compresses payloads (`QIM_COMPRESSION`). All read both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Stored as they came.
    Off,
    /// Each by itself, where that makes it smaller.
    Zstd,
}

/// A payload as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPayload {
    encoding: Encoding,
    bytes: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Raw,
    Zstd {
        len: u32,
    },
    /// With a dictionary. Its place in the format is kept; there are none yet.
    ZstdDictionary {
        dictionary: u32,
        len: u32,
    },
}

impl StoredPayload {
    /// Stored as it is.
    pub const fn raw(payload: Bytes) -> Self {
        Self { encoding: Encoding::Raw, bytes: payload }
    }

    /// How long the payload is when it is read; at most 1 MiB where that is not what is stored.
    pub fn len(&self) -> usize {
        match self.encoding {
            Encoding::Raw => self.bytes.len(),
            Encoding::Zstd { len } | Encoding::ZstdDictionary { len, .. } => len as usize,
        }
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether reading it takes a [`Decompressor`].
    pub fn is_compressed(&self) -> bool {
        self.encoding != Encoding::Raw
    }

    /// The payload. Takes no more memory than its announced length, and fails where that is not what comes out.
    pub fn open(&self, decompressor: &Decompressor) -> Result<Bytes, CodecError> {
        match self.encoding {
            Encoding::Raw => Ok(self.bytes.clone()),
            Encoding::Zstd { .. } => decompressor.open(&self.bytes, self.len()),
            Encoding::ZstdDictionary { dictionary, .. } => Err(CodecError::UnknownDictionary(dictionary)),
        }
    }

    /// How many bytes it takes, but for the numbers in front.
    pub(crate) const fn stored_len(&self) -> usize {
        self.bytes.len()
    }

    /// Two bits that say how it is stored.
    pub(crate) const fn form(&self) -> u8 {
        match self.encoding {
            Encoding::Raw => 0,
            Encoding::Zstd { .. } => 1,
            Encoding::ZstdDictionary { .. } => 2,
        }
    }

    pub(crate) fn push_to(&self, out: &mut Vec<u8>) {
        if let Encoding::ZstdDictionary { dictionary, .. } = self.encoding {
            push_varint(out, dictionary);
        }
        if let Encoding::Zstd { len } | Encoding::ZstdDictionary { len, .. } = self.encoding {
            push_varint(out, len);
        }
        out.extend_from_slice(&self.bytes);
    }

    /// What [`Self::push_to`] wrote. Checks lengths, and decompresses nothing. The form is 0, 1 or 2.
    pub(crate) fn parse(form: u8, mut bytes: Bytes) -> Result<Self, CodecError> {
        let encoding = match form {
            0 => Encoding::Raw,
            1 => Encoding::Zstd { len: take_varint(&mut bytes)? },
            _ => Encoding::ZstdDictionary {
                dictionary: take_varint(&mut bytes)?,
                len: take_varint(&mut bytes)?,
            },
        };
        let payload = Self { encoding, bytes };
        let (len, stored) = (payload.len(), payload.bytes.len());
        if payload.is_compressed() && (len > COMPRESSED_PAYLOAD_BYTES_MAX || len <= stored) {
            return Err(CodecError::AnnouncedLength { announced: len, stored });
        }
        Ok(payload)
    }
}

/// Makes payloads smaller. Keeps its contexts, which cost more to make than to use; no more than it has users at a
/// time.
#[derive(Default)]
pub struct Compressor(Pool<bulk::Compressor<'static>>);

impl Compressor {
    /// The payload as it is to be stored: compressed where that makes it smaller.
    pub fn pack(&self, payload: &Bytes) -> StoredPayload {
        self.compress(payload).unwrap_or_else(|| StoredPayload::raw(payload.clone()))
    }

    fn compress(&self, payload: &Bytes) -> Option<StoredPayload> {
        if !(COMPRESSED_PAYLOAD_BYTES_MIN..=COMPRESSED_PAYLOAD_BYTES_MAX).contains(&payload.len()) {
            return None;
        }
        let len = u32::try_from(payload.len()).expect("at most 1 MiB");
        let mut frame = Vec::with_capacity(zstd::zstd_safe::compress_bound(payload.len()));
        let compress =
            |context: &mut bulk::Compressor<'_>| context.compress_to_buffer(&payload[..], &mut frame);
        // A failure is one of memory. A commit does not fail for it.
        self.0.with(|| bulk::Compressor::new(LEVEL), compress).ok()?;
        let head_len = frame_head_len(payload.len());
        let (head, content) = frame.split_at_checked(head_len)?;
        // Only what can be put back is left out. A block that did not shrink has another head.
        if head != frame_head(payload.len(), content.len()) {
            return None;
        }
        let stored = varint_len(len) + content.len();
        let encoding = Encoding::Zstd { len };
        (stored < payload.len())
            .then(|| StoredPayload { encoding, bytes: Bytes::from(frame).slice(head_len..) })
    }
}

/// Makes payloads what they were. Keeps its contexts, as [`Compressor`] does.
#[derive(Default)]
pub struct Decompressor(Pool<bulk::Decompressor<'static>>);

impl Decompressor {
    fn open(&self, content: &[u8], len: usize) -> Result<Bytes, CodecError> {
        let mut frame = frame_head(len, content.len());
        frame.extend_from_slice(content);
        // The bound of what may come out: zstd writes no further than this, whatever the frame says.
        let mut payload = Vec::with_capacity(len);
        let decompress =
            |context: &mut bulk::Decompressor<'_>| context.decompress_to_buffer(&frame, &mut payload);
        match self.0.with(bulk::Decompressor::new, decompress) {
            Ok(_) if payload.len() == len => Ok(payload.into()),
            Ok(_) | Err(_) => Err(CodecError::Frame { announced: len }),
        }
    }
}

impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compressor").finish_non_exhaustive()
    }
}

impl fmt::Debug for Decompressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decompressor").finish_non_exhaustive()
    }
}

/// Contexts that nobody uses now.
struct Pool<T>(Mutex<Vec<T>>);

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Pool<T> {
    /// Acts with a context of its own. One that failed is not used again.
    fn with<R>(
        &self,
        make: impl FnOnce() -> io::Result<T>,
        act: impl FnOnce(&mut T) -> io::Result<R>,
    ) -> io::Result<R> {
        let idle = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut context = idle.map_or_else(make, Ok)?;
        let result = act(&mut context)?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(context);
        Ok(result)
    }
}

/// What stands before the content in a frame of one segment (RFC 8878, 3.1.1): magic, descriptor, size of the payload,
/// and where there is one block only its head.
fn frame_head(len: usize, content: usize) -> Vec<u8> {
    let mut head = Vec::with_capacity(FRAME_HEAD_BYTES_MAX + content);
    head.extend_from_slice(&FRAME_MAGIC);
    let little_endian = |number: usize| u32::try_from(number).expect("at most 1 MiB").to_le_bytes();
    match len {
        0..=255 => head.extend_from_slice(&[0x20, little_endian(len)[0]]),
        256..=65_791 => {
            head.push(0x60);
            head.extend_from_slice(&little_endian(len - 256)[..2]);
        }
        _ => {
            head.push(0xa0);
            head.extend_from_slice(&little_endian(len));
        }
    }
    if len < BLOCK_BYTES {
        // Size, type "compressed", and that it is the last one.
        head.extend_from_slice(&little_endian(content << 3 | 0b101)[..3]);
    }
    head
}

const fn frame_head_len(len: usize) -> usize {
    match len {
        0..=255 => 9,
        256..=65_791 => 10,
        65_792..BLOCK_BYTES => 12,
        _ => 9,
    }
}

fn push_varint(out: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

fn varint_len(number: u32) -> usize {
    (32 - (number | 1).leading_zeros()).div_ceil(7) as usize
}

/// Seven bits a byte, the lowest first.
fn take_varint(bytes: &mut Bytes) -> Result<u32, CodecError> {
    let mut number = 0_u64;
    for (at, byte) in bytes.iter().take(5).enumerate() {
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            let number = u32::try_from(number).map_err(|_| CodecError::Varint)?;
            let _ = bytes.split_to(at + 1);
            return Ok(number);
        }
    }
    Err(CodecError::Varint)
}

#[cfg(test)]
#[path = "payload_tests.rs"]
mod tests;
