use bytes::Bytes;
use qim_core::{Dictionary, UnixMillis};

/// A dictionary of these words, without a training: for tests of what becomes of it.
pub fn dictionary(id: u32, created_at: UnixMillis, words: &str) -> Dictionary {
    Dictionary::new(id, created_at, Bytes::copy_from_slice(words.as_bytes()))
        .expect("any text is a dictionary")
}
