use std::sync::atomic::{AtomicU64, Ordering};

use super::RedisMessageStore;

/// What was lost and put back since this process began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LossReport {
    /// Records that were put back.
    pub restored: u64,
    /// Records that could not be put back, since another one has their seq.
    pub conflicts: u64,
    /// Gaps that were noted.
    pub gaps: u64,
    /// Seqs in them: records that are lost, or, where nobody knows how many there were, may be.
    pub lost: u64,
    /// Bytes of what was acknowledged lately.
    pub recent_bytes: u64,
    /// Messages that were acknowledged lately and not kept, for want of room (`QIM_RECENT_BYTES_MAX`).
    pub cut_short: u64,
}

/// Counts them.
#[derive(Default)]
pub(crate) struct Losses {
    restored: AtomicU64,
    conflicts: AtomicU64,
    gaps: AtomicU64,
    lost: AtomicU64,
}

impl Losses {
    pub(crate) fn restored(&self, records: u64) {
        self.restored.fetch_add(records, Ordering::Relaxed);
    }

    pub(crate) fn conflicts(&self, records: u64) {
        self.conflicts.fetch_add(records, Ordering::Relaxed);
    }

    pub(crate) fn gap(&self, seqs: u64) {
        self.gaps.fetch_add(1, Ordering::Relaxed);
        self.lost.fetch_add(seqs, Ordering::Relaxed);
    }
}

impl RedisMessageStore {
    pub(crate) fn losses(&self) -> &Losses {
        &self.losses
    }

    /// What was lost and put back since this process began.
    pub fn loss_report(&self) -> LossReport {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LossReport {
            restored: count(&self.losses.restored),
            conflicts: count(&self.losses.conflicts),
            gaps: count(&self.losses.gaps),
            lost: count(&self.losses.lost),
            recent_bytes: self.lineages.limit.bytes(),
            cut_short: self.lineages.limit.cut_short(),
        }
    }
}
