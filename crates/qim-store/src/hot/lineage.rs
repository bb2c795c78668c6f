//! Which history of Redis this store works on (lua/lineage.lua, ADR 18), and who else does.

mod introduction;
mod look;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use qim_core::UnixMillis;

use super::HotError;
use super::keys::Lane;
use super::recent::{Recent, RecentLimit};
pub(crate) use look::Archived;

/// How often a writer has to look: well within the time for which `lineage.lua` takes no commits.
pub const LINEAGE_WATCH_INTERVAL: Duration = Duration::from_millis(500);
/// How long every living writer has to say that it is one: the same in `lineage.lua`. Until then there may be some of which
/// the list that Redis has says nothing any more.
const QUARANTINE_MS: u64 = 3_000;
/// A writer that was not heard of for this long, by the server's clock, puts nothing back any more.
const WRITER_DEAD_MS: u64 = 10_000;
/// Numbers above stand for a conversation that is topped, and not settled: `TOPPED` in `lineage.lua`.
const TOPPED: u16 = 32_768;
/// Entries of the list of writers that stand for what nobody can put back: `enter_lineage.lua`.
const TAIL: &str = "?tail";

/// What is stored of a lineage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lineage {
    pub(super) text: Arc<str>,
    number: u16,
    doubted_at: UnixMillis,
}

impl Lineage {
    fn parse(text: String) -> Result<Self, HotError> {
        let mut fields = text.split(' ');
        let number = fields.next().and_then(|field| field.parse().ok());
        let doubted_at = fields.next().and_then(|field| field.parse().ok()).map(UnixMillis::new);
        match (number, doubted_at) {
            (Some(number), Some(doubted_at)) => Ok(Self { text: text.into(), number, doubted_at }),
            _ => Err(HotError::Refused(format!("{text:?} is not a lineage"))),
        }
    }

    /// Since when data may have been lost; `None`: never.
    pub(crate) fn doubted_at(&self) -> Option<UnixMillis> {
        Some(self.doubted_at).filter(|date| *date != UnixMillis::EPOCH)
    }
}

/// What a conversation's header says of the lineage in which its last seq was known to be right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CheckedIn(pub(super) u16);

impl CheckedIn {
    /// As a script tells it.
    pub(super) fn of(number: u64) -> Self {
        Self(u16::try_from(number).unwrap_or(0))
    }

    /// Nothing that was acknowledged of it can be missing.
    pub(crate) fn is_settled_in(self, lineage: &Lineage) -> bool {
        lineage.doubted_at().is_none() || self.0 == lineage.number
    }

    /// A writer found what it had acknowledged last.
    pub(crate) fn is_topped_in(self, lineage: &Lineage) -> bool {
        self.0 == lineage.number + TOPPED
    }
}

/// Whether all that writers acknowledged has been put back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PutBackState {
    /// Some writers are about to, or may be.
    Underway,
    /// All did. What is older than their memory was not lost.
    Complete,
    /// All did. What is older than their memory may be lost, too.
    TailUnknown,
    /// Writers are gone that had acknowledged something.
    WritersGone,
}

/// A writer, as others see it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Writer {
    name: String,
    put_back_for: u16,
    seen_at: u64,
    /// It is gone, and on the list until the archive has what it acknowledged.
    is_ended: bool,
    /// What it has left to put back waits for what comes before.
    has_tried: bool,
}

/// What is known of a lane.
#[derive(Default)]
struct Known {
    lineage: Option<Lineage>,
    /// The server's time when it was last looked at.
    seen_at: u64,
    /// When that was.
    looked_at: Option<Instant>,
    writers: Vec<Writer>,
    /// The lineage in which all of `recent` is there.
    put_back_for: Option<Arc<str>>,
    /// The lineage in which all of it was tried, and some has to wait.
    tried_for: Option<Arc<str>>,
    recent: Recent,
}

impl Known {
    /// One that was heard of later than now was not heard of since the clock was put back.
    fn is_alive(&self, writer: &Writer) -> bool {
        writer.seen_at.abs_diff(self.seen_at) < WRITER_DEAD_MS
    }

    /// The server's time now.
    fn server_ms(&self) -> u64 {
        let since = self.looked_at.map_or(0, |looked_at| looked_at.elapsed().as_millis());
        self.seen_at + u64::try_from(since).unwrap_or(0)
    }
}

/// The lineages of all lanes.
pub(super) struct Lineages {
    /// What this writer is called where writers wait for one another; nobody else ever is.
    writer: String,
    founding: Mutex<Founding>,
    is_withdrawn: AtomicBool,
    /// Nothing is acknowledged before it is in the append-only file, on disk: a restart loses nothing of this writer's.
    is_on_disk: AtomicBool,
    pub(super) limit: RecentLimit,
    lanes: Mutex<HashMap<Lane, Known>>,
}

/// Hex digits, so that scripts may take it for a pattern.
fn new_token() -> String {
    format!("{:016x}", rand::random::<u64>())
}

/// What it means that Redis has no lineage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Founding {
    /// Everything was lost.
    No,
    /// It is a new deployment.
    Yes,
    /// Only the archive can say.
    NotKnown,
}

impl Lineages {
    pub(super) fn new() -> Self {
        Self {
            writer: new_token(),
            founding: Mutex::new(Founding::No),
            is_withdrawn: AtomicBool::new(false),
            is_on_disk: AtomicBool::new(false),
            limit: RecentLimit::default(),
            lanes: Mutex::default(),
        }
    }

    pub(super) fn set_founding(&self, founding: Founding) {
        *self.founding.lock().unwrap_or_else(PoisonError::into_inner) = founding;
    }

    /// Whether what is acknowledged from now on is on disk before.
    pub(super) fn set_on_disk(&self, is_on_disk: bool) {
        self.is_on_disk.store(is_on_disk, Ordering::Relaxed);
    }

    /// Not for a shard of a cluster: nobody looks while nobody uses it, so that the server may have taken over, or the shard
    /// may have been moved, since its file was written, and a later restart hides that.
    fn is_on_disk(&self, lane: Lane) -> bool {
        lane == Lane::Server && self.is_on_disk.load(Ordering::Relaxed)
    }

    fn founding(&self) -> Founding {
        *self.founding.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lanes(&self) -> MutexGuard<'_, HashMap<Lane, Known>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn current(&self, lane: Lane) -> Option<Lineage> {
        self.lanes().get(&lane).and_then(|known| known.lineage.clone())
    }

    /// Keeps what was acknowledged in this lineage, until it is older than Redis can lose.
    pub(super) fn acknowledge(&self, lane: Lane, lineage: &Lineage, first: u64, job: &super::group::Job) {
        let mut lanes = self.lanes();
        let known = lanes.entry(lane).or_default();
        if known.put_back_for.as_ref() != Some(&lineage.text) {
            // It was acknowledged by a server that has been replaced meanwhile.
            known.put_back_for = None;
        }
        let server_now = UnixMillis::new(known.server_ms());
        known.recent.push(first, job, server_now, &self.limit);
    }

    /// With what this lane acknowledged lately.
    pub(super) fn with_recent<T>(&self, lane: Lane, act: impl FnOnce(&mut Recent) -> T) -> T {
        act(&mut self.lanes().entry(lane).or_default().recent)
    }

    /// All that this writer acknowledged lately is there in this lineage.
    fn put_back(&self, lane: Lane, lineage: &Lineage) {
        let mut lanes = self.lanes();
        let known = lanes.entry(lane).or_default();
        known.put_back_for = Some(lineage.text.clone());
        // It may be lost once more.
        known.recent.renew();
    }

    /// All was tried, and some has to wait for what comes before.
    fn tried(&self, lane: Lane, lineage: &Lineage) {
        self.lanes().entry(lane).or_default().tried_for = Some(lineage.text.clone());
    }

    /// Whether all other writers that live have put back what they can.
    fn others_have_tried(&self, lane: Lane, lineage: &Lineage) -> bool {
        self.lanes().get(&lane).is_some_and(|known| {
            let mut others = known.writers.iter().filter(|writer| writer.name != self.writer);
            others.all(|writer| {
                writer.put_back_for == lineage.number || writer.has_tried || !known.is_alive(writer)
            })
        })
    }

    /// What the server's clock says now, as far as was seen; `None` before the first look.
    pub(super) fn server_now(&self, lane: Lane) -> Option<UnixMillis> {
        let lanes = self.lanes();
        let known = lanes.get(&lane)?;
        known.looked_at.map(|_| UnixMillis::new(known.server_ms()))
    }

    fn state(&self, lane: Lane) -> PutBackState {
        let lanes = self.lanes();
        let Some((known, lineage)) =
            lanes.get(&lane).and_then(|known| Some((known, known.lineage.as_ref()?)))
        else {
            return PutBackState::Underway;
        };
        let missing = || known.writers.iter().filter(|writer| writer.put_back_for != lineage.number);
        let is_quarantined =
            lineage.doubted_at().is_some_and(|since| known.server_ms() < since.get() + QUARANTINE_MS);
        if is_quarantined || missing().any(|writer| known.is_alive(writer)) {
            PutBackState::Underway
        } else if missing().any(|writer| writer.name != TAIL) {
            PutBackState::WritersGone
        } else if missing().next().is_some() {
            PutBackState::TailUnknown
        } else {
            PutBackState::Complete
        }
    }
}
