//! How a payload is stored: as it is, or compressed once and for all by the writer.
//!
//! A compressed payload is a zstd frame without its head, and a payload below 128 KiB, which is one block, without the
//! head of that block as well: all of it follows from the lengths, and 8 bytes are much of a chat message. What is left
//! stands behind the length of the payload, so that it is known what opening it will take before it is done.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use bytes::Bytes;
use zstd::zstd_safe::{CCtx, CDict, DCtx, ErrorCode, compress_bound};

use crate::CodecError;
use crate::dictionary::{Dictionary, DictionaryError};
use crate::frame_head::{FrameHead, frame_head_len};

/// The longest payload that is compressed, which is the longest that can be configured (`QIM_PAYLOAD_BYTES_MAX`).
/// Nothing that announces more is ever decompressed.
pub const COMPRESSED_PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// More than half of all chat messages are shorter. To compress those from 64 bytes on, 26 % of all, took 26 % of the time
/// that all took, and saved 1.7 % of the bytes; of still shorter ones hardly any gets smaller.
const COMPRESSED_PAYLOAD_BYTES_MIN: usize = 128;
/// The same with a dictionary, which knows even short phrases.
const DICTIONARY_PAYLOAD_BYTES_MIN: usize = 8;
/// Level 3 makes chat no smaller and takes longer.
const SHORT_LEVEL: i32 = 1;
/// For what is longer than [`SHORT_BYTES_MAX`]. Level 9 makes it 1 % smaller in twice the time. With a dictionary for all:
/// level 1 makes chat 10 % larger in nearly the same time, level 12 makes it 6 % smaller in six times as much.
const LEVEL: i32 = 3;
const SHORT_BYTES_MAX: usize = 4096;

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

/// How a payload is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Raw,
    Zstd {
        len: u32,
    },
    /// With the dictionary of this number.
    ZstdDictionary {
        dictionary: u32,
        len: u32,
    },
}

impl Encoding {
    /// Takes what stands in front of a payload of this form, which is 0, 1 or 2. Checks lengths, and decompresses
    /// nothing.
    pub(crate) fn take(form: u8, bytes: &mut &[u8]) -> Result<Self, CodecError> {
        let encoding = match form {
            0 => return Ok(Self::Raw),
            1 => Self::Zstd { len: take_varint(bytes)? },
            _ => Self::ZstdDictionary { dictionary: take_varint(bytes)?, len: take_varint(bytes)? },
        };
        let (announced, stored) = (encoding.len(bytes.len()), bytes.len());
        if announced > COMPRESSED_PAYLOAD_BYTES_MAX || announced <= stored {
            return Err(CodecError::AnnouncedLength { announced, stored });
        }
        Ok(encoding)
    }

    /// How long the payload is when it is read, that is stored in so many bytes.
    pub(crate) const fn len(self, stored: usize) -> usize {
        match self {
            Self::Raw => stored,
            Self::Zstd { len } | Self::ZstdDictionary { len, .. } => len as usize,
        }
    }

    /// The dictionary without which it cannot be opened.
    pub(crate) const fn dictionary(self) -> Option<u32> {
        match self {
            Self::ZstdDictionary { dictionary, .. } => Some(dictionary),
            Self::Raw | Self::Zstd { .. } => None,
        }
    }
}

impl StoredPayload {
    pub(crate) const fn new(encoding: Encoding, bytes: Bytes) -> Self {
        Self { encoding, bytes }
    }

    /// Stored as it is.
    pub const fn raw(payload: Bytes) -> Self {
        Self { encoding: Encoding::Raw, bytes: payload }
    }

    /// How long the payload is when it is read; at most 1 MiB where that is not what is stored.
    pub fn len(&self) -> usize {
        self.encoding.len(self.bytes.len())
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
        if self.encoding == Encoding::Raw {
            return Ok(self.bytes.clone());
        }
        let mut payload = Vec::new();
        decompressor.open_into(&mut payload, self.encoding, &self.bytes)?;
        Ok(payload.into())
    }

    /// The dictionary without which it cannot be opened.
    pub const fn dictionary(&self) -> Option<u32> {
        self.encoding.dictionary()
    }

    /// How many bytes of a record it takes.
    pub fn stored_bytes(&self) -> usize {
        let numbers = match self.encoding {
            Encoding::Raw => 0,
            Encoding::Zstd { len } => varint_len(len),
            Encoding::ZstdDictionary { dictionary, len } => varint_len(dictionary) + varint_len(len),
        };
        numbers + self.bytes.len()
    }

    /// What is stored, but for the numbers in front.
    pub(crate) fn into_stored(self) -> Bytes {
        self.bytes
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
}

/// Makes payloads smaller. Keeps its contexts, which cost more to make than to use; no more than it has users at a
/// time.
#[derive(Default)]
pub struct Compressor {
    contexts: Pool<Packing>,
    current: RwLock<Option<Arc<Prepared>>>,
}

/// A context, and the frame it makes, which may be longer than what is kept of it: room that is used again.
struct Packing {
    context: CCtx<'static>,
    frame: Vec<u8>,
}

impl Packing {
    fn try_create() -> Option<Self> {
        Some(Self { context: CCtx::try_create()?, frame: Vec::new() })
    }
}

/// A dictionary, made ready once for all payloads.
struct Prepared {
    id: u32,
    dictionary: CDict<'static>,
}

impl Compressor {
    /// Says which dictionary payloads that expire are packed with from now on; `None`: without any.
    pub fn use_dictionary(&self, dictionary: Option<&Dictionary>) -> Result<(), DictionaryError> {
        let prepare = |dictionary: &Dictionary| {
            let prepared = CDict::try_create(dictionary.bytes(), LEVEL).ok_or(DictionaryError::Unusable)?;
            Ok(Arc::new(Prepared { id: dictionary.id(), dictionary: prepared }))
        };
        let prepared = dictionary.map(prepare).transpose()?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = prepared;
        Ok(())
    }

    /// The dictionary in use.
    pub fn dictionary(&self) -> Option<u32> {
        self.current().map(|current| current.id)
    }

    /// The payload as it is to be stored by itself: compressed where that makes it smaller. This is how records are
    /// stored that never expire, so that every dictionary has an end.
    pub fn pack(&self, payload: &Bytes) -> StoredPayload {
        self.compress(payload, None).unwrap_or_else(|| StoredPayload::raw(payload.clone()))
    }

    /// The same with the dictionary in use, where there is one. For records that expire.
    pub fn pack_expiring(&self, payload: &Bytes) -> StoredPayload {
        let current = self.current();
        self.compress(payload, current.as_deref()).unwrap_or_else(|| StoredPayload::raw(payload.clone()))
    }

    fn current(&self) -> Option<Arc<Prepared>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn compress(&self, payload: &Bytes, prepared: Option<&Prepared>) -> Option<StoredPayload> {
        let shortest =
            if prepared.is_some() { DICTIONARY_PAYLOAD_BYTES_MIN } else { COMPRESSED_PAYLOAD_BYTES_MIN };
        if !(shortest..=COMPRESSED_PAYLOAD_BYTES_MAX).contains(&payload.len()) {
            return None;
        }
        let len = u32::try_from(payload.len()).expect("at most 1 MiB");
        let encoding = match prepared {
            Some(&Prepared { id, .. }) => Encoding::ZstdDictionary { dictionary: id, len },
            None => Encoding::Zstd { len },
        };
        // A failure is one of memory. A commit does not fail for it.
        self.contexts
            .with(Packing::try_create, |Packing { context, frame }| {
                frame.clear();
                frame.reserve(compress_bound(payload.len()));
                match prepared {
                    Some(Prepared { dictionary, .. }) => {
                        context.compress_using_cdict(frame, payload, dictionary)?
                    }
                    None => context.compress(frame, payload, level(payload.len()))?,
                };
                Ok(content_of(frame, payload.len()).map(Bytes::copy_from_slice))
            })?
            .map(|bytes| StoredPayload { encoding, bytes })
            .filter(|stored| stored.stored_bytes() < payload.len())
    }
}

/// Makes payloads what they were, with the dictionaries that it was given. Keeps its contexts, as [`Compressor`] does.
#[derive(Default)]
pub struct Decompressor {
    contexts: Pool<Opening>,
    dictionaries: RwLock<BTreeMap<u32, Arc<Dictionary>>>,
}

/// A context, and the frame that is put together for it: room that is used again.
struct Opening {
    context: DCtx<'static>,
    frame: Vec<u8>,
}

impl Opening {
    fn try_create() -> Option<Self> {
        Some(Self { context: DCtx::try_create()?, frame: Vec::new() })
    }
}

impl Decompressor {
    /// Opens what was packed with this dictionary, too, from now on.
    pub fn learn(&self, dictionary: Arc<Dictionary>) {
        let mut known = self.dictionaries.write().unwrap_or_else(PoisonError::into_inner);
        known.insert(dictionary.id(), dictionary);
    }

    /// The dictionary of this number, where it was learnt.
    pub fn dictionary(&self, id: u32) -> Option<Arc<Dictionary>> {
        self.dictionaries.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    /// Gives the memory of all other dictionaries back.
    pub fn forget_all_but(&self, kept: &[u32]) {
        let mut known = self.dictionaries.write().unwrap_or_else(PoisonError::into_inner);
        known.retain(|id, _| kept.contains(id));
    }

    /// Appends the payload of this content to `out`; nothing where it fails.
    pub(crate) fn open_into(
        &self,
        out: &mut Vec<u8>,
        encoding: Encoding,
        content: &[u8],
    ) -> Result<(), CodecError> {
        let known = match encoding {
            Encoding::Raw => {
                out.extend_from_slice(content);
                return Ok(());
            }
            Encoding::Zstd { .. } => None,
            Encoding::ZstdDictionary { dictionary: id, .. } => {
                Some(self.dictionary(id).ok_or(CodecError::UnknownDictionary(id))?)
            }
        };
        let (begin, len) = (out.len(), encoding.len(content.len()));
        // The bound of what may come out: zstd writes no further than this, whatever the frame says.
        out.resize(begin + len, 0);
        let opened = self.contexts.with(Opening::try_create, |Opening { context, frame }| {
            frame.clear();
            push_frame(frame, len, content);
            match &known {
                Some(known) => context.decompress_using_ddict(&mut out[begin..], frame, known.for_opening()),
                None => context.decompress(&mut out[begin..], frame),
            }
        });
        if opened == Some(len) {
            return Ok(());
        }
        out.truncate(begin);
        Err(CodecError::Frame { announced: len })
    }
}

/// Appends the content with its head: a zstd frame (RFC 8878) of `len` bytes of payload.
pub(crate) fn push_frame(out: &mut Vec<u8>, len: usize, content: &[u8]) {
    out.extend_from_slice(FrameHead::new(len, content.len()).as_bytes());
    out.extend_from_slice(content);
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
        make: impl FnOnce() -> Option<T>,
        act: impl FnOnce(&mut T) -> Result<R, ErrorCode>,
    ) -> Option<R> {
        let idle = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut context = idle.or_else(make)?;
        let done = act(&mut context).ok()?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(context);
        Some(done)
    }
}

/// What is kept of the frame of a payload; `None` where it did not get smaller.
fn content_of(frame: &[u8], payload_len: usize) -> Option<&[u8]> {
    let (head, content) = frame.split_at_checked(frame_head_len(payload_len))?;
    // Only what can be put back is left out. A block that did not shrink has another head.
    (head == FrameHead::new(payload_len, content.len()).as_bytes()).then_some(content)
}

const fn level(payload_len: usize) -> i32 {
    if payload_len <= SHORT_BYTES_MAX { SHORT_LEVEL } else { LEVEL }
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
fn take_varint(bytes: &mut &[u8]) -> Result<u32, CodecError> {
    let mut number = 0_u64;
    for (at, byte) in bytes.iter().take(5).enumerate() {
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            let number = u32::try_from(number).map_err(|_| CodecError::Varint)?;
            *bytes = &bytes[at + 1..];
            return Ok(number);
        }
    }
    Err(CodecError::Varint)
}

#[cfg(test)]
#[path = "payload_tests.rs"]
mod tests;
