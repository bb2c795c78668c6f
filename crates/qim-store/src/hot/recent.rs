//! What was acknowledged lately, as it was stored: what a writer puts back where Redis lost it.

mod block;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use qim_core::UnixMillis;

use super::group::Job;
use block::Block;

/// How long what was acknowledged is kept at least, whether or not the archive has it: many times what an append-only file
/// (1 s, or 2) or a replica that keeps up can be behind.
const AGE_MIN: Duration = Duration::from_secs(10);
/// How far the clocks of writers may be apart.
const SKEW: Duration = Duration::from_secs(10);
/// `QIM_RECENT_BYTES_MAX` where nobody says otherwise.
const BYTES_MAX: usize = 64 * 1024 * 1024;

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

/// What one lane acknowledged, in that order: all that the archive may not have, as far as there is room.
#[derive(Default)]
pub(super) struct Recent {
    blocks: VecDeque<Block>,
    /// The archive has what was acknowledged before.
    archived_to: UnixMillis,
    /// When the last one was acknowledged that was let go for want of room.
    cut_at: Option<UnixMillis>,
}

impl Recent {
    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Whether all is there that the archive may not have.
    pub(super) fn is_complete(&self) -> bool {
        self.cut_at.is_none()
    }

    /// Keeps what has just been acknowledged, at `server_now` by the clock of Redis.
    pub(super) fn push(&mut self, first: u64, job: &Job, server_now: UnixMillis, limit: &RecentLimit) {
        if self.blocks.back().is_none_or(Block::is_full) {
            self.blocks.back_mut().into_iter().for_each(Block::close);
            self.blocks.push_back(Block::new());
        }
        let block = self.blocks.back_mut().expect("one was there or was added");
        let before = block.bytes();
        block.push(first, job);
        block.now = block.now.max(server_now);
        limit.bytes.fetch_add(block.bytes() - before, Ordering::Relaxed);
        while limit.is_exceeded()
            && let Some(oldest) = self.pop(limit)
        {
            self.cut_at = self.cut_at.max(Some(oldest.now));
            if oldest.at.elapsed() < AGE_MIN {
                limit.cut_short.fetch_add(oldest.messages(), Ordering::Relaxed);
            }
        }
    }

    /// Lets go what was old enough at `seen`, when Redis was seen to be as it was left, and is in the archive, which has all
    /// that was committed before `archived_to`, by the clock of Redis or that of the writer, whichever is later.
    pub(super) fn forget(&mut self, seen: Instant, archived_to: Option<UnixMillis>, limit: &RecentLimit) {
        // As it was told last: a clock that was ahead said too much.
        self.archived_to = archived_to.unwrap_or(self.archived_to);
        let is_archived = |at: UnixMillis| at + SKEW < self.archived_to;
        self.cut_at = self.cut_at.filter(|at| !is_archived(*at));
        let archived_to = self.archived_to;
        let is_old = |block: &Block| block.at + AGE_MIN < seen && block.now + SKEW < archived_to;
        while self.blocks.front().is_some_and(is_old) {
            self.pop(limit);
        }
    }

    fn pop(&mut self, limit: &RecentLimit) -> Option<Block> {
        let oldest = self.blocks.pop_front()?;
        limit.bytes.fetch_sub(oldest.bytes(), Ordering::Relaxed);
        Some(oldest)
    }

    /// All of it counts as acknowledged now.
    pub(super) fn renew(&mut self) {
        self.blocks.iter_mut().for_each(|block| block.at = Instant::now());
    }

    /// All of it, each job with the seq of its first message.
    pub(super) fn jobs(&self) -> impl Iterator<Item = (u64, Job)> {
        self.blocks.iter().flat_map(Block::jobs)
    }
}
