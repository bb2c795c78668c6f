//! The two tiers as a daemon's configuration describes them: what all who have both wire the same. The shell of the
//! daemons and the store know nothing of each other.

mod certificates;

use qim_core::{CommitDurability, Compression};
use qim_daemon::config::DaemonConfig;
use qim_daemon::{
    ClientTlsPaths, Condition, Daemon, Phase, RETENTION_WATCH_INTERVAL, Readiness, RetentionWatch, Schedule,
    SharedConfig,
};
use qim_store::hot::HotError;
use qim_store::tiered::TierOptions;
use qim_store::{RedisMessageStore, TieredMessageStore};
use tokio_util::sync::CancellationToken;

use crate::certificates::{CertificatesTask, Tier};

/// How messages are committed: of no concern to whoever commits none.
#[derive(Debug, Clone, Copy)]
pub struct Committing {
    /// How payloads are stored.
    pub compression: Compression,
    /// When a message is acknowledged.
    pub durability: CommitDurability,
    /// How many bytes of acknowledged messages are remembered.
    pub recent_bytes_max: usize,
}

impl Committing {
    /// For whoever commits nothing.
    pub const NOTHING: Self =
        Self { compression: Compression::Off, durability: CommitDurability::Memory, recent_bytes_max: 0 };
}

/// Where the tiers are, and what holds for both daemons.
pub fn options(shared: &SharedConfig, committing: Committing) -> TierOptions<'_> {
    let Committing { compression, durability, recent_bytes_max } = committing;
    TierOptions {
        redis_url: &shared.redis_url,
        redis_tls: &shared.redis_tls.content,
        redis_timeout: shared.redis_timeout,
        shards: shared.shards,
        archive_url: &shared.archive_url,
        archive_tls: &shared.archive_tls.content,
        archive_timeout: shared.archive_timeout,
        retention: shared.default_history_retention,
        hot_window: shared.hot_window,
        compression,
        durability,
        recent_bytes_max,
    }
}

/// Opens both tiers for a daemon, and says how they are. An archive that does not answer may come later.
pub async fn open<C: DaemonConfig>(
    daemon: &Daemon<C>,
    committing: Committing,
) -> anyhow::Result<TieredMessageStore> {
    let opened = TieredMessageStore::open(options(daemon.config.shared(), committing)).await?;
    for warning in opened.warnings {
        tracing::warn!(warning, "hot tier");
    }
    if let Some(reason) = opened.archive_unavailable {
        daemon.readiness.set("archive", Condition::Degraded(reason));
    }
    Ok(opened.store)
}

/// Says how the hot tier is, by how measuring it went. Where a cluster serves some shards and others not, requests are not
/// sent elsewhere: no other daemon would serve more.
pub async fn observe_hot(readiness: &Readiness, hot: &RedisMessageStore, measured: &Result<(), HotError>) {
    let is_partly_served = measured.is_err() && hot.serves_a_shard().await;
    let worse = if is_partly_served { Condition::Degraded } else { Condition::NotReady };
    readiness.observe("redis", measured, worse);
}

/// Takes over what the files of certificates say that were named for Redis and for the archive, as long as these loops run.
pub fn watch_certificates<C: DaemonConfig>(daemon: &Daemon<C>, loops: &Phase, store: &TieredMessageStore) {
    let shared = daemon.config.shared();
    for (tier, files) in [(Tier::Redis, &shared.redis_tls), (Tier::Archive, &shared.archive_tls)] {
        if files.paths != ClientTlsPaths::default() {
            let watching =
                CertificatesTask::new(tier, files.clone(), store.clone(), daemon.readiness.clone());
            daemon.driver.start(loops, Schedule::every(shared.reload_interval), watching);
        }
    }
}

/// Compares this daemon's retention with that of the others as long as its `loops` run (SPEC A12), and tells them when
/// the `last` phase ends that it no longer counts. `role` is what others know this daemon as.
pub fn watch_retention<C: DaemonConfig>(
    daemon: &Daemon<C>,
    (loops, last): (&Phase, &Phase),
    store: TieredMessageStore,
    role: &'static str,
) {
    let shared = daemon.config.shared();
    let days = shared.default_history_retention;
    let watch = RetentionWatch::new(&daemon.metrics, daemon.readiness.clone(), days);
    let (hot, instance) = (store.hot().clone(), shared.instance.clone());
    let watching = watch.task(move || {
        let (hot, instance) = (hot.clone(), instance.clone());
        async move { Ok(hot.exchange_retention(role, &instance, days).await?) }
    });
    daemon.driver.start(loops, Schedule::every(RETENTION_WATCH_INTERVAL), watching);
    last.spawn("withdraw", withdraw(store, role, shared.instance.clone(), last.token().clone()));
}

async fn withdraw(
    store: TieredMessageStore,
    role: &'static str,
    instance: String,
    end: CancellationToken,
) -> anyhow::Result<()> {
    end.cancelled().await;
    store.hot().withdraw_retention(role, &instance).await?;
    Ok(())
}
