//! What reads below floors have learned of the index: nothing is put there any more, so that it stays true.

use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};

use lru::LruCache;
use qim_core::ConversationKey;

use super::buckets::IndexRow;
use crate::archive::SeqRange;

/// Conversations that are remembered: about 5 MiB.
const CONVERSATIONS_MAX: usize = 16_384;
/// A longer index is not remembered, so that the memory is bounded.
const ROWS_MAX: usize = 8;

/// The whole index of a range, ascending.
#[derive(Debug, Clone)]
struct Known {
    range: SeqRange,
    rows: Box<[IndexRow]>,
}

/// Remembers the index of conversations that were read.
pub(super) struct KnownBuckets(Mutex<LruCache<ConversationKey, Known>>);

impl Default for KnownBuckets {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(NonZeroUsize::new(CONVERSATIONS_MAX).expect("not zero"))))
    }
}

impl KnownBuckets {
    /// The index rows of a range and of what lies around it, ascending, where they are known.
    pub(super) fn get(&self, conversation: &ConversationKey, range: SeqRange) -> Option<Box<[IndexRow]>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.get(conversation)?;
        (known.range.from <= range.from && range.below <= known.range.below).then(|| known.rows.clone())
    }

    /// These are all index rows of a range into which nothing is put any more.
    pub(super) fn put(&self, conversation: &ConversationKey, range: SeqRange, rows: Vec<IndexRow>) {
        if rows.len() <= ROWS_MAX {
            let known = Known { range, rows: rows.into() };
            self.0.lock().unwrap_or_else(PoisonError::into_inner).put(conversation.clone(), known);
        }
    }
}
