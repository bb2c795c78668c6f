//! Looking at which lineage Redis has, and telling other writers that this one is alive.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures::future::join_all;
use qim_core::{ConversationKey, UnixMillis};

use super::super::commit::read;
use super::super::keys::{Lane, ShardKeys};
use super::super::{HotError, RedisMessageStore};
use super::{Founding, Lineage, PutBackState, Writer, new_token};

/// The archive has what was acknowledged until so long ago: nothing waits in it any more that was acknowledged before.
const CAUGHT_UP: Duration = Duration::from_secs(30);

/// What is known of how far the archive has come.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Archived {
    /// Nothing.
    NotAsked,
    /// It has, or had, what was committed before `date`, when Redis was last asked, at `now`.
    UpTo {
        /// See there.
        date: UnixMillis,
        /// By the clock of whoever asked.
        now: UnixMillis,
    },
}

impl RedisMessageStore {
    pub(in crate::hot) fn lane(&self, conversation: &ConversationKey) -> Lane {
        self.lane_of(ShardKeys(self.shards.shard_of(conversation)))
    }

    pub(in crate::hot) fn lane_of(&self, shard: ShardKeys) -> Lane {
        if self.connection.is_cluster() { Lane::Shard(shard.0) } else { Lane::Server }
    }

    /// The lanes of all shards.
    pub(in crate::hot) fn lanes(&self) -> Vec<Lane> {
        if self.connection.is_cluster() {
            self.shards.all().map(Lane::Shard).collect()
        } else {
            vec![Lane::Server]
        }
    }

    /// Whether Redis, in all its parts, was never used. One part that was used is enough to know that it was, whether or
    /// not the others answer.
    pub(crate) async fn has_no_lineage(&self) -> Result<bool, HotError> {
        let stored = |lane: Lane| async move {
            self.connection.command::<Option<String>>(redis::cmd("GET").arg(lane.lineage())).await
        };
        let stored = join_all(self.lanes().into_iter().map(stored)).await;
        if stored.iter().any(|lineage| matches!(lineage, Ok(Some(_)))) {
            return Ok(false);
        }
        stored.into_iter().try_for_each(|lineage| lineage.map(drop)).map(|()| true)
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
                self.look(lane, "", Archived::NotAsked).await?;
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

    /// Asks Redis which lineage the conversation is in now.
    pub(crate) async fn renew_lineage(&self, conversation: &ConversationKey) -> Result<(), HotError> {
        self.enter_lineage(self.lane(conversation)).await.map(drop)
    }

    /// Whether all that was acknowledged in the conversation's lane is there again.
    pub(crate) fn put_back_state(&self, conversation: &ConversationKey) -> PutBackState {
        self.lineages.state(self.lane(conversation))
    }

    pub(in crate::hot) async fn current_lineage(&self, lane: Lane) -> Result<Lineage, HotError> {
        match self.lineages.current(lane) {
            Some(lineage) => Ok(lineage),
            None => self.enter_lineage(lane).await,
        }
    }

    /// The lanes that were used; the one of a single server always.
    pub(in crate::hot) fn lanes_in_use(&self) -> Vec<Lane> {
        if self.connection.is_cluster() {
            self.lineages.lanes().keys().copied().collect()
        } else {
            vec![Lane::Server]
        }
    }

    /// Asks Redis for its lineage, and says that this writer is alive. Where it is another one than before, what was
    /// acknowledged lately has to be put back.
    pub(in crate::hot) async fn enter_lineage(&self, lane: Lane) -> Result<Lineage, HotError> {
        if self.founding() == Founding::NotKnown {
            return Err(HotError::checking("the archive has to say whether this is a new deployment"));
        }
        let lineage = self.look(lane, &self.lineages.writer, Archived::NotAsked).await?;
        if self.is_put_back(lane, &lineage) {
            return Ok(lineage);
        }
        // Others need not wait for one that has nothing.
        if self.lineages.with_recent(lane, |recent| recent.is_empty()) {
            self.lineages.put_back(lane, &lineage);
            return self.look(lane, &self.lineages.writer, Archived::NotAsked).await;
        }
        Ok(lineage)
    }

    pub(in crate::hot) fn is_put_back(&self, lane: Lane, lineage: &Lineage) -> bool {
        self.lineages
            .lanes()
            .get(&lane)
            .is_some_and(|known| known.put_back_for.as_ref() == Some(&lineage.text))
    }

    /// As far as was seen when the lane was last looked at.
    pub(in crate::hot) fn is_all_there(&self, lane: Lane) -> bool {
        self.lineages.current(lane).is_some_and(|lineage| self.is_put_back(lane, &lineage))
    }

    /// Whether anything is kept, or was cut short, until the archive has it, or a writer is remembered until then.
    pub(crate) fn waits_for_archive(&self) -> bool {
        self.lineages.lanes().values().any(|known| {
            !known.recent.is_empty()
                || !known.recent.is_complete()
                || known.writers.iter().any(|writer| writer.is_ended)
        })
    }

    /// What the clock of Redis says now, as far as it was seen.
    pub(crate) fn server_now(&self, conversation: &ConversationKey) -> Option<UnixMillis> {
        self.lineages.server_now(self.lane(conversation))
    }

    /// [`Self::enter_lineage`] of every lane in use, at once: those of a node that is away must not keep the others from
    /// hearing that this writer is alive. Answers the first error.
    pub(crate) async fn watch_lineages(&self, archived: Archived) -> Result<(), HotError> {
        let look = |lane| self.look(lane, &self.lineages.writer, archived);
        join_all(self.lanes_in_use().into_iter().map(look))
            .await
            .into_iter()
            .try_for_each(|looked| looked.map(drop))
    }

    /// All of the lane's recent acknowledgements are there: tells the others.
    pub(in crate::hot) async fn tell_put_back(&self, lane: Lane, lineage: &Lineage) -> Result<(), HotError> {
        self.lineages.put_back(lane, lineage);
        self.look(lane, &self.lineages.writer, Archived::NotAsked).await.map(drop)
    }

    /// What is left of the lane's recent acknowledgements waits for what comes before: tells the others. Answers whether it is
    /// the same with all that live, or they are done.
    pub(in crate::hot) async fn tell_tried(&self, lane: Lane, lineage: &Lineage) -> Result<bool, HotError> {
        self.lineages.tried(lane, lineage);
        self.look(lane, &self.lineages.writer, Archived::NotAsked).await?;
        Ok(self.lineages.others_have_tried(lane, lineage))
    }

    /// What this writer is called where writers wait for one another.
    pub(in crate::hot) fn writer_token(&self) -> &str {
        &self.lineages.writer
    }

    async fn look(&self, lane: Lane, writer: &str, archived: Archived) -> Result<Lineage, HotError> {
        let (archived_to, is_caught_up) = match archived {
            Archived::NotAsked => (None, false),
            Archived::UpTo { date, now } => (Some(date), now.since(date) < CAUGHT_UP),
        };
        let mut call = self.scripts.enter_lineage.call();
        call.key(lane.lineage()).key(lane.writers()).key(lane.ancestors());
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
            call.arg(if is_caught_up { "archived" } else { "" });
            call.arg(known.tried_for.as_deref().unwrap_or_default());
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
            let (seen_at, is_ended) = (fields.next().unwrap_or(0), entry.ends_with(" ended"));
            let has_tried = entry.contains(" tried");
            writers.push(Writer { name: read(name)?, put_back_for, seen_at, is_ended, has_tried });
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
        known.looked_at = Some(asked_at);
        known.writers = writers;
        Ok(lineage)
    }

    /// Says that nobody has to wait for this writer any more, where all that it acknowledged is there. It stays on the lists
    /// until the archive has that.
    pub async fn withdraw_writer(&self) -> Result<(), HotError> {
        self.lineages.is_withdrawn.store(true, Ordering::Relaxed);
        for lane in self.lanes_in_use() {
            if let Some(lineage) = self.lineages.current(lane)
                && self.is_put_back(lane, &lineage)
            {
                let seen_at = self.lineages.server_now(lane).unwrap_or_default();
                let entry = format!("{} {seen_at} ended", lineage.number);
                self.note(&lane.writers(), &self.lineages.writer, &entry).await?;
            }
        }
        Ok(())
    }
}
