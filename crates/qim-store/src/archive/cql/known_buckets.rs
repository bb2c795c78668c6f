//! What reads below floors have learned of the index: nothing is put there any more, so that it stays true.

use qim_core::ConversationKey;

use super::buckets::IndexRow;
use crate::archive::SeqRange;
use crate::conversation_cache::ConversationCache;

/// A longer index is not remembered, so that the memory is bounded.
const ROWS_MAX: usize = 8;

/// The whole index of a range, ascending.
#[derive(Debug, Clone)]
struct Known {
    range: SeqRange,
    rows: Box<[IndexRow]>,
}

/// Remembers the index of conversations that were read: about 5 MiB.
#[derive(Default)]
pub(super) struct KnownBuckets(ConversationCache<Known>);

impl KnownBuckets {
    /// The index rows of a range and of what lies around it, ascending, where they are known.
    pub(super) fn get(&self, conversation: &ConversationKey, range: SeqRange) -> Option<Box<[IndexRow]>> {
        let known = self.0.get(conversation)?;
        (known.range.from <= range.from && range.below <= known.range.below).then_some(known.rows)
    }

    /// These are all index rows of a range into which nothing is put any more.
    pub(super) fn put(&self, conversation: &ConversationKey, range: SeqRange, rows: Vec<IndexRow>) {
        if rows.len() <= ROWS_MAX {
            let known = Known { range, rows: rows.into() };
            self.0.put(conversation, known);
        }
    }
}
