//! What is remembered of conversations, of those that were asked about last.

use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};

use lru::LruCache;
use qim_core::ConversationKey;

/// How many conversations are remembered.
const ENTRIES_MAX: usize = 16_384;

/// Of at most 16 384 conversations one value each.
pub(crate) struct ConversationCache<V>(Mutex<LruCache<ConversationKey, V>>);

impl<V> Default for ConversationCache<V> {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(NonZeroUsize::new(ENTRIES_MAX).expect("not zero"))))
    }
}

impl<V: Clone> ConversationCache<V> {
    pub(crate) fn get(&self, conversation: &ConversationKey) -> Option<V> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(conversation).cloned()
    }

    pub(crate) fn put(&self, conversation: &ConversationKey, value: V) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).put(conversation.clone(), value);
    }
}
