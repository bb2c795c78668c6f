//! What copying and trimming have in common: a pass over the conversations of the shards this archiver holds.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt, stream};
use qim_core::{ConversationKey, SharedClock, UnixMillis};
use qim_daemon::{Outcome, TaskError};
use qim_store::TieredMessageStore;
use qim_store::archive::ArchiveError;
use qim_store::hot::{Fence, HotError};
use qim_store::tiered::MoveError;
use tokio_util::sync::CancellationToken;

use crate::lease::Held;
use crate::metrics::{ArchiverMetrics, Op};
use crate::pace::Pace;

/// Conversations worked on at once: enough for a transaction of SQLite, which takes 64 puts, and for a busy cluster. What
/// they have in memory is bounded by the store.
const CONCURRENCY: usize = 128;
/// Shards asked at once which conversations there are.
const LISTS: usize = 32;
/// Conversations taken from a shard in one pass, so that no shard waits for another's backlog.
pub(crate) const CONVERSATIONS_PER_SHARD: usize = 32;
/// A pass begins nothing new after this long, so that it notices the end of the daemon and of its leases.
const PASS_MAX: Duration = Duration::from_secs(2);
/// How long a conversation rests that cannot be carried on with. None rests longer.
pub(crate) const SET_ASIDE_FOR: Duration = Duration::from_mins(10);
/// How long it rests after the archive refused it: most refusals concern all, and end when somebody has acted.
const REFUSED_FOR: Duration = Duration::from_secs(30);

/// What the work needs. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Worker {
    pub(crate) store: TieredMessageStore,
    pub(crate) held: Held,
    pub(crate) clock: SharedClock,
    pub(crate) metrics: Arc<ArchiverMetrics>,
    pub(crate) stop: CancellationToken,
}

/// Whether a step left more to do in the same conversation.
pub(crate) type Step = Result<bool, MoveError>;

impl Worker {
    /// Takes a step for each conversation that `list` names in the shards held, and further steps while there is more
    /// and time left, each when `pace` lets it. A poisoned conversation is set aside and stops no other; a tier that fails ends the pass.
    pub(crate) async fn pass<L, S>(
        &self,
        op: Op,
        pace: &Pace,
        list: impl Fn(u16) -> L,
        step: impl Fn(ConversationKey, Fence, UnixMillis) -> S,
    ) -> Result<Outcome, TaskError>
    where
        L: Future<Output = Result<Vec<ConversationKey>, HotError>>,
        S: Future<Output = Step>,
    {
        let pass = Pass { worker: self, op, pace, started: Instant::now() };
        let (list, step) = (&list, &step);
        // A shard that cannot be listed stops no other: it may be the only one on its node.
        let mut unlisted = None;
        let listed: Vec<(Fence, Vec<ConversationKey>)> = stream::iter(self.held.all())
            .map(|fence| async move { (fence.clone(), list(fence.shard).await) })
            .buffer_unordered(LISTS)
            .filter_map(|(fence, listed)| {
                let conversations = listed.inspect_err(|error| unlisted = Some(error.clone())).ok();
                std::future::ready(conversations.map(|conversations| (fence, conversations)))
            })
            .collect()
            .await;
        let more = listed.iter().any(|(_, conversations)| conversations.len() >= CONVERSATIONS_PER_SHARD);
        let jobs = listed.into_iter().flat_map(|(fence, conversations)| {
            conversations.into_iter().map(move |conversation| (fence.clone(), conversation))
        });
        let left = stream::iter(jobs)
            .map(|(fence, conversation)| pass.conversation(fence, conversation, step))
            .buffer_unordered(CONCURRENCY)
            .try_fold(false, |any, left| std::future::ready(Ok(any || left)))
            .await?;
        if let Some(error) = unlisted {
            return Err(error.into());
        }
        Ok(if more || left { Outcome::MoreWork } else { Outcome::Idle })
    }
}

struct Pass<'a> {
    worker: &'a Worker,
    op: Op,
    pace: &'a Pace,
    started: Instant,
}

impl Pass<'_> {
    /// Whether the conversation was left before it was done.
    async fn conversation<S>(
        &self,
        fence: Fence,
        conversation: ConversationKey,
        step: impl Fn(ConversationKey, Fence, UnixMillis) -> S,
    ) -> Result<bool, TaskError>
    where
        S: Future<Output = Step>,
    {
        let calls = self.worker.metrics.calls(self.op);
        loop {
            if self.worker.stop.is_cancelled() || self.started.elapsed() > PASS_MAX {
                return Ok(true);
            }
            let _turn = self.pace.turn().await;
            let began = Instant::now();
            let result = step(conversation.clone(), fence.clone(), self.worker.clock.now()).await;
            calls.seconds.record(began.elapsed().as_secs_f64());
            match result {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(MoveError::Hot(HotError::Fenced)) => {
                    // Another archiver works on the shard now.
                    self.worker.held.lost(&fence);
                    return Ok(false);
                }
                Err(MoveError::Poisoned(reason)) => {
                    calls.errors.increment(1);
                    self.set_aside(&fence, &conversation, &reason, SET_ASIDE_FOR).await?;
                    return Ok(false);
                }
                Err(MoveError::Archive(error @ ArchiveError::Refused(_))) => {
                    calls.errors.increment(1);
                    self.set_aside(&fence, &conversation, &error.to_string(), REFUSED_FOR).await?;
                    return Ok(false);
                }
                Err(error @ MoveError::Hot(_)) => return Err(error.into()),
                Err(error @ MoveError::Archive(_)) => {
                    calls.errors.increment(1);
                    return Err(error.into());
                }
            }
        }
    }

    async fn set_aside(
        &self,
        fence: &Fence,
        conversation: &ConversationKey,
        reason: &str,
        rest: Duration,
    ) -> Result<(), TaskError> {
        tracing::error!(%conversation, reason, "conversation is set aside: nothing of it was deleted");
        self.worker.metrics.conversations_set_aside.increment(1);
        let now = self.worker.clock.now();
        match self.worker.store.set_aside(conversation, fence, reason, now, rest).await {
            Err(HotError::Fenced) => self.worker.held.lost(fence),
            other => other?,
        }
        Ok(())
    }
}
