//! Which shards this archiver works on. Each archiver takes its fair share, so that many share the work and none is
//! needed twice; a lease that is not renewed runs out, and another takes the shard.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use futures::{StreamExt, stream};
use qim_daemon::{ArchiverConfig, Daemon, Outcome, PeriodicTask, TaskError};
use qim_store::RedisMessageStore;
use qim_store::hot::{Fence, HotError};
use tokio_util::sync::CancellationToken;

use crate::metrics::ArchiverMetrics;

/// A shard of an archiver that vanished is another's within 15 s: this, and [`RENEWAL`], after which the others look.
const LEASE: Duration = Duration::from_secs(12);
/// Three chances to renew before a lease runs out.
pub(crate) const RENEWAL: Duration = Duration::from_secs(3);
/// Leases taken or renewed at once.
const CONCURRENCY: usize = 32;

/// The leases held. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Held(Arc<Mutex<BTreeMap<u16, Fence>>>);

impl Held {
    pub(crate) fn all(&self) -> Vec<Fence> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// This lease was found to be another's now.
    pub(crate) fn lost(&self, fence: &Fence) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if held.get(&fence.shard) == Some(fence) {
            held.remove(&fence.shard);
        }
    }

    fn took(&self, fence: Fence) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(fence.shard, fence);
    }
}

/// Takes, renews and gives back leases.
pub(crate) struct LeaseTask {
    hot: RedisMessageStore,
    held: Held,
    instance: String,
    metrics: Arc<ArchiverMetrics>,
}

impl LeaseTask {
    pub(crate) fn new(
        hot: RedisMessageStore,
        held: Held,
        daemon: &Daemon<ArchiverConfig>,
        metrics: Arc<ArchiverMetrics>,
    ) -> Self {
        Self { hot, held, instance: daemon.config.shared.instance.clone(), metrics }
    }

    /// Gives everything back when `token` says so, so that another archiver need not wait.
    pub(crate) fn release_at_end(
        &self,
        token: CancellationToken,
    ) -> impl Future<Output = anyhow::Result<()>> + Send + 'static {
        let (hot, held, instance) = (self.hot.clone(), self.held.clone(), self.instance.clone());
        async move {
            token.cancelled().await;
            let released = release(&hot, &held, held.all()).await;
            hot.withdraw_archiver(&instance).await?;
            Ok(released?)
        }
    }

    /// Renews what is held; what cannot be renewed is lost. Where one fails the others are renewed all the same: it may be
    /// the only one on its node.
    async fn renew(&self) -> Result<(), HotError> {
        let renewals = stream::iter(self.held.all()).map(|fence| async move {
            if self.hot.acquire_lease(fence.shard, Some(&fence), LEASE).await?.as_ref() != Some(&fence) {
                tracing::warn!(shard = fence.shard, "lease lost");
                self.held.lost(&fence);
            }
            Ok(())
        });
        renewals.buffer_unordered(CONCURRENCY).fold(Ok(()), last_failure).await
    }

    /// Takes shards that nobody holds, up to `wanted` more. Each archiver starts elsewhere, so that they do not all ask
    /// for the same ones.
    async fn take(&self, wanted: usize) -> Result<(), HotError> {
        let held: Vec<u16> = self.held.all().iter().map(|fence| fence.shard).collect();
        let shards = self.hot.shards().get();
        let offset = u16::try_from(
            self.instance.bytes().fold(7_u32, |hash, byte| (hash * 31 + u32::from(byte)) % 65_521),
        )
        .expect("below 65536");
        let free: Vec<u16> = (0..shards)
            .map(|i| (i + offset % shards) % shards)
            .filter(|shard| !held.contains(shard))
            .collect();
        let (mut free, wanted) = (free.as_slice(), held.len() + wanted);
        let mut result = Ok(());
        while !free.is_empty() {
            // However many of those before were another's: all are asked for until there are enough.
            let left = wanted.saturating_sub(self.held.all().len());
            let (now, later) = free.split_at(left.min(CONCURRENCY).min(free.len()));
            if now.is_empty() {
                break;
            }
            let asked = now.iter().map(|shard| self.hot.acquire_lease(*shard, None, LEASE));
            // None that was taken is forgotten, and none not asked for, because another could not be.
            for answer in join_all(asked).await {
                match answer {
                    Ok(fence) => fence.into_iter().for_each(|fence| self.held.took(fence)),
                    Err(error) => result = Err(error),
                }
            }
            free = later;
        }
        result
    }

    /// Takes or gives back what makes this one's share equal to that of the others.
    async fn share(&self) -> Result<(), HotError> {
        let alive = self.hot.announce_archiver(&self.instance, LEASE).await?;
        let share = usize::from(self.hot.shards().get()).div_ceil(alive);
        let held = self.held.all();
        match held.get(share..) {
            Some(beyond) if !beyond.is_empty() => release(&self.hot, &self.held, beyond.to_vec()).await,
            _ => self.take(share - held.len()).await,
        }
    }
}

async fn release(hot: &RedisMessageStore, held: &Held, fences: Vec<Fence>) -> Result<(), HotError> {
    let releases = stream::iter(fences).map(|fence| async move {
        held.lost(&fence);
        hot.release_lease(&fence).await
    });
    releases.buffer_unordered(CONCURRENCY).fold(Ok(()), last_failure).await
}

async fn last_failure(so_far: Result<(), HotError>, next: Result<(), HotError>) -> Result<(), HotError> {
    next.and(so_far)
}

impl PeriodicTask for LeaseTask {
    fn name(&self) -> &'static str {
        "lease"
    }

    async fn run_once(&mut self) -> Result<Outcome, TaskError> {
        let renewed = self.renew().await;
        let shared = self.share().await;
        #[allow(clippy::cast_precision_loss, reason = "at most 4096")]
        self.metrics.leases.set(self.held.all().len() as f64);
        renewed.and(shared)?;
        Ok(Outcome::Idle)
    }
}
