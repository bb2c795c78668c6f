//! What was acknowledged lately, as it was stored: what a writer puts back where Redis lost it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use qim_core::UnixMillis;

use super::group::Job;

/// How long what was acknowledged is kept at least, whether or not the archive has it: many times what an append-only file
/// (1 s, or 2) or a replica that keeps up can be behind.
const AGE_MIN: Duration = Duration::from_secs(10);
/// How far the clocks of writers may be apart.
const SKEW: Duration = Duration::from_secs(10);
/// `QIM_RECENT_BYTES_MAX` where nobody says otherwise.
const BYTES_MAX: usize = 64 * 1024 * 1024;
/// What a message takes besides its record.
const MESSAGE_BYTES: usize = 128;

/// How much all lanes together keep.
pub(super) struct RecentLimit {
    bytes_max: AtomicUsize,
    bytes: AtomicUsize,
    cut_short: AtomicU64,
}

impl Default for RecentLimit {
    fn default() -> Self {
        Self { bytes_max: BYTES_MAX.into(), bytes: AtomicUsize::new(0), cut_short: AtomicU64::new(0) }
    }
}

impl RecentLimit {
    pub(super) fn set(&self, bytes_max: usize) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    /// Bytes kept.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed) as u64
    }

    /// Messages that were let go before their time, for want of room.
    pub(super) fn cut_short(&self) -> u64 {
        self.cut_short.load(Ordering::Relaxed)
    }

    fn is_exceeded(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > self.bytes_max.load(Ordering::Relaxed)
    }
}

/// Messages of one conversation that were acknowledged together.
#[derive(Clone)]
pub(super) struct Acknowledged {
    at: Instant,
    bytes: usize,
    /// The seq of the first of them.
    pub(super) first: u64,
    pub(super) job: Arc<Job>,
}

/// Those of one lane, in the order of their acknowledgement: all that the archive may not have, as far as there is room.
#[derive(Default)]
pub(super) struct Recent {
    acknowledged: VecDeque<Acknowledged>,
    /// The archive has what was acknowledged before.
    archived_to: UnixMillis,
    /// When the last one was acknowledged that was let go for want of room.
    cut_at: Option<UnixMillis>,
}

impl Recent {
    pub(super) fn is_empty(&self) -> bool {
        self.acknowledged.is_empty()
    }

    /// Whether all is there that the archive may not have.
    pub(super) fn is_complete(&self) -> bool {
        self.cut_at.is_none()
    }

    /// Keeps what has just been acknowledged.
    pub(super) fn push(&mut self, first: u64, job: Job, limit: &RecentLimit) {
        let bytes = job.messages.iter().map(|message| message.record.len() + MESSAGE_BYTES).sum();
        limit.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.acknowledged.push_back(Acknowledged { at: Instant::now(), bytes, first, job: Arc::new(job) });
        while limit.is_exceeded()
            && let Some(oldest) = self.pop(limit)
        {
            self.cut_at = self.cut_at.max(Some(oldest.job.now));
            if oldest.at.elapsed() < AGE_MIN {
                limit.cut_short.fetch_add(oldest.job.messages.len() as u64, Ordering::Relaxed);
            }
        }
    }

    /// Lets go, to whoever asks, what was old enough at `seen`, when Redis was seen to be as it was left, and is in the
    /// archive, which has all that was committed before `archived_to`.
    pub(super) fn forget(
        &mut self,
        seen: Instant,
        archived_to: Option<UnixMillis>,
        limit: &RecentLimit,
    ) -> Vec<Acknowledged> {
        self.archived_to = self.archived_to.max(archived_to.unwrap_or_default());
        let is_archived = |at: UnixMillis| at + SKEW < self.archived_to;
        self.cut_at = self.cut_at.filter(|at| !is_archived(*at));
        let archived_to = self.archived_to;
        let is_old = |one: &Acknowledged| one.at + AGE_MIN < seen && one.job.now + SKEW < archived_to;
        let mut forgotten = Vec::new();
        while self.acknowledged.front().is_some_and(is_old) {
            forgotten.extend(self.pop(limit));
        }
        forgotten
    }

    fn pop(&mut self, limit: &RecentLimit) -> Option<Acknowledged> {
        let oldest = self.acknowledged.pop_front()?;
        limit.bytes.fetch_sub(oldest.bytes, Ordering::Relaxed);
        Some(oldest)
    }

    /// All of it counts as acknowledged now.
    pub(super) fn renew(&mut self) {
        self.acknowledged.iter_mut().for_each(|acknowledged| acknowledged.at = Instant::now());
    }

    /// All of it; the messages are shared.
    pub(super) fn to_vec(&self) -> Vec<Acknowledged> {
        self.acknowledged.iter().cloned().collect()
    }
}
