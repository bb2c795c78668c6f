//! Which history of Redis this store works on (lua/lineage.lua, ADR 18), and who else does.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::future::join_all;
use qim_core::{ConversationKey, UnixMillis};

use super::commit::read;
use super::keys::{Lane, ShardKeys};
use super::recent::{Recent, RecentLimit};
use super::{HotError, RedisMessageStore};

/// How often a writer has to look: well within the time for which `lineage.lua` takes no commits.
pub const LINEAGE_WATCH_INTERVAL: Duration = Duration::from_millis(500);
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
    /// Some writers are about to.
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
}

/// What is known of a lane.
#[derive(Default)]
struct Known {
    lineage: Option<Lineage>,
    /// The server's time when it was last looked at.
    seen_at: u64,
    writers: Vec<Writer>,
    /// The lineage in which all of `recent` is there.
    put_back_for: Option<Arc<str>>,
    recent: Recent,
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
    pub(super) fn acknowledge(&self, lane: Lane, lineage: &Lineage, first: u64, job: super::group::Job) {
        let mut lanes = self.lanes();
        let known = lanes.entry(lane).or_default();
        if known.put_back_for.as_ref() != Some(&lineage.text) {
            // It was acknowledged by a server that has been replaced meanwhile.
            known.put_back_for = None;
        }
        known.recent.push(first, job, &self.limit);
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

    fn state(&self, lane: Lane) -> PutBackState {
        let lanes = self.lanes();
        let Some((known, lineage)) =
            lanes.get(&lane).and_then(|known| Some((known, known.lineage.as_ref()?)))
        else {
            return PutBackState::Underway;
        };
        let missing = || known.writers.iter().filter(|writer| writer.put_back_for != lineage.number);
        let is_alive = |writer: &Writer| writer.seen_at + WRITER_DEAD_MS > known.seen_at;
        if missing().any(is_alive) {
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

impl RedisMessageStore {
    pub(super) fn lane(&self, conversation: &ConversationKey) -> Lane {
        self.lane_of(ShardKeys(self.shards.shard_of(conversation)))
    }

    pub(super) fn lane_of(&self, shard: ShardKeys) -> Lane {
        if self.connection.is_cluster() { Lane::Shard(shard.0) } else { Lane::Server }
    }

    /// The lanes of all shards.
    pub(super) fn lanes(&self) -> Vec<Lane> {
        if self.connection.is_cluster() {
            self.shards.all().map(Lane::Shard).collect()
        } else {
            vec![Lane::Server]
        }
    }

    /// Whether Redis, in all its parts, was never used.
    pub(crate) async fn has_no_lineage(&self) -> Result<bool, HotError> {
        for lane in self.lanes() {
            let stored: Option<String> =
                self.connection.command(redis::cmd("GET").arg(lane.lineage())).await?;
            if stored.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Says what it means that Redis has no lineage, which only holds until it has one.
    pub(crate) fn set_founding(&self, founding: Founding) {
        self.lineages.set_founding(founding);
    }

    /// What is assumed now.
    pub(crate) fn founding(&self) -> Founding {
        self.lineages.founding()
    }

    /// Begins the lineages of a new deployment, where there are none.
    pub(crate) async fn found(&self) -> Result<(), HotError> {
        self.set_founding(Founding::Yes);
        let found = async {
            for lane in self.lanes() {
                self.look(lane, "", None).await?;
            }
            Ok(())
        };
        let founded = found.await;
        // Not left at `Yes`: a lane that others use, and that is lost before this store sees it, would pass for a new one.
        self.set_founding(if founded.is_ok() { Founding::No } else { Founding::NotKnown });
        founded
    }

    /// The lineage that the conversation is in, as far as this store has seen.
    pub(crate) async fn lineage(&self, conversation: &ConversationKey) -> Result<Lineage, HotError> {
        self.current_lineage(self.lane(conversation)).await
    }

    /// Whether all that was acknowledged in the conversation's lane is there again.
    pub(crate) fn put_back_state(&self, conversation: &ConversationKey) -> PutBackState {
        self.lineages.state(self.lane(conversation))
    }

    pub(super) async fn current_lineage(&self, lane: Lane) -> Result<Lineage, HotError> {
        match self.lineages.current(lane) {
            Some(lineage) => Ok(lineage),
            None => self.enter_lineage(lane).await,
        }
    }

    /// The lanes that were used; the one of a single server always.
    pub(super) fn lanes_in_use(&self) -> Vec<Lane> {
        if self.connection.is_cluster() {
            self.lineages.lanes().keys().copied().collect()
        } else {
            vec![Lane::Server]
        }
    }

    /// Asks Redis for its lineage, and says that this writer is alive. Where it is another one than before, what was
    /// acknowledged lately has to be put back.
    pub(super) async fn enter_lineage(&self, lane: Lane) -> Result<Lineage, HotError> {
        if self.founding() == Founding::NotKnown {
            return Err(HotError::checking("the archive has to say whether this is a new deployment"));
        }
        let lineage = self.look(lane, &self.lineages.writer, None).await?;
        if self.is_put_back(lane, &lineage) {
            return Ok(lineage);
        }
        // Others need not wait for one that has nothing.
        if self.lineages.with_recent(lane, |recent| recent.is_empty()) {
            self.lineages.put_back(lane, &lineage);
            return self.look(lane, &self.lineages.writer, None).await;
        }
        Ok(lineage)
    }

    pub(super) fn is_put_back(&self, lane: Lane, lineage: &Lineage) -> bool {
        self.lineages
            .lanes()
            .get(&lane)
            .is_some_and(|known| known.put_back_for.as_ref() == Some(&lineage.text))
    }

    /// As far as was seen when the lane was last looked at.
    pub(super) fn is_all_there(&self, lane: Lane) -> bool {
        self.lineages.current(lane).is_some_and(|lineage| self.is_put_back(lane, &lineage))
    }

    /// [`Self::enter_lineage`] of every lane in use, at once: those of a node that is away must not keep the others from
    /// hearing that this writer is alive. Answers the first error. `archived_to`: what was committed before is in the
    /// archive, or was, when Redis was last asked before this call.
    pub(crate) async fn watch_lineages(&self, archived_to: Option<UnixMillis>) -> Result<(), HotError> {
        let look = |lane| self.look(lane, &self.lineages.writer, archived_to);
        join_all(self.lanes_in_use().into_iter().map(look))
            .await
            .into_iter()
            .try_for_each(|looked| looked.map(drop))
    }

    /// All of the lane's recent acknowledgements are there: tells the others.
    pub(super) async fn tell_put_back(&self, lane: Lane, lineage: &Lineage) -> Result<(), HotError> {
        self.lineages.put_back(lane, lineage);
        self.look(lane, &self.lineages.writer, None).await.map(drop)
    }

    /// What this writer is called where writers wait for one another.
    pub(super) fn writer_token(&self) -> &str {
        &self.lineages.writer
    }

    async fn look(
        &self,
        lane: Lane,
        writer: &str,
        archived_to: Option<UnixMillis>,
    ) -> Result<Lineage, HotError> {
        let mut call = self.scripts.enter_lineage.call();
        call.key(lane.lineage()).key(lane.writers());
        call.arg(new_token());
        {
            let mut lanes = self.lineages.lanes();
            let known = lanes.entry(lane).or_default();
            // What this store has seen before is not new.
            let writer = if self.lineages.is_withdrawn.load(Ordering::Relaxed) { "" } else { writer };
            let is_new = known.lineage.is_none() && self.founding() == Founding::Yes;
            call.arg(if is_new { "founding" } else { "" }).arg(writer);
            call.arg(known.put_back_for.as_deref().unwrap_or_default());
            call.arg(known.lineage.as_ref().map_or("", |lineage| &*lineage.text));
            call.arg(known.seen_at).arg(if known.recent.is_complete() { "complete" } else { "" });
            call.arg(if self.lineages.is_on_disk(lane) { "disk" } else { "" });
            let others = known.writers.iter().map(|writer| writer.name.as_str());
            others.filter(|name| *name != writer && !name.starts_with('?')).for_each(|name| {
                call.arg(name);
            });
        }
        let asked_at = Instant::now();
        let reply: Vec<redis::Value> = self.connection.script(&call).await?;
        let mut reply = reply.into_iter();
        let mut next = || reply.next().ok_or_else(|| HotError::Refused("enter_lineage: short reply".into()));
        let lineage = Lineage::parse(read(next()?)?)?;
        let seen_at = read(next()?)?;
        let mut writers = Vec::new();
        while let Ok(name) = next() {
            let entry: String = read(next()?)?;
            let mut fields = entry.split(' ').map(|field| field.parse::<u64>().unwrap_or(0));
            let put_back_for = fields.next().and_then(|number| u16::try_from(number).ok()).unwrap_or(0);
            writers.push(Writer { name: read(name)?, put_back_for, seen_at: fields.next().unwrap_or(0) });
        }
        let mut lanes = self.lineages.lanes();
        let known = lanes.entry(lane).or_default();
        if known.lineage.as_ref().is_some_and(|before| *before != lineage) {
            tracing::warn!(
                lineage = &*lineage.text,
                "Redis was restarted, replaced or emptied: what was acknowledged lately is put back"
            );
            self.kept.forget();
        } else if known.put_back_for.as_ref() == Some(&lineage.text) {
            known.recent.forget(asked_at, archived_to, &self.lineages.limit);
        }
        known.lineage = Some(lineage.clone());
        known.seen_at = seen_at;
        known.writers = writers;
        Ok(lineage)
    }

    /// Takes this writer off the lists for good, where all that it acknowledged is there.
    pub async fn withdraw_writer(&self) -> Result<(), HotError> {
        self.lineages.is_withdrawn.store(true, Ordering::Relaxed);
        for lane in self.lanes_in_use() {
            if let Some(lineage) = self.lineages.current(lane)
                && self.is_put_back(lane, &lineage)
            {
                let mut withdraw = redis::cmd("HDEL");
                withdraw.arg(lane.writers()).arg(&self.lineages.writer);
                self.connection.command::<()>(&withdraw).await?;
            }
        }
        Ok(())
    }
}
