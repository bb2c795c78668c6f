//! The archiver: per shard, under a lease, it copies what the archive has not got and trims what left the hot window.

mod copy;
mod dictionaries;
mod lease;
mod maintain;
mod metrics;
mod pace;
mod report;
mod shards;
mod trim;

use std::sync::Arc;

use qim_core::Compression;
use qim_daemon::{ArchiverConfig, Condition, Daemon, Phase, PhaseSpec, RetentionWatch, Schedule};
use qim_store::TieredMessageStore;
use qim_store::tiered::TierOptions;
use tokio_util::sync::CancellationToken;

use crate::metrics::ArchiverMetrics;
use crate::shards::Worker;

/// What other daemons know this one as.
const ROLE: &str = "archiver";

/// What ends first when the daemon is asked to: the work, then the leases.
pub const PHASES: [PhaseSpec; 2] =
    [PhaseSpec { name: "work", share: 4 }, PhaseSpec { name: "leases", share: 1 }];

/// Starts all parts of the archiver.
pub async fn start(daemon: Daemon<ArchiverConfig>, [work, leases]: [Phase; 2]) -> anyhow::Result<()> {
    let shared = &daemon.config.shared;
    let store = open_tiers(&daemon).await?;
    let metrics = Arc::new(daemon.metrics.register(ArchiverMetrics::new));
    let held = lease::Held::default();
    let worker = Worker {
        store: store.clone(),
        held: held.clone(),
        clock: daemon.clock.clone(),
        metrics: metrics.clone(),
        stop: work.token().clone(),
    };
    let driver = &daemon.driver;

    let leasing = lease::LeaseTask::new(store.hot().clone(), held, &daemon, metrics.clone());
    leases.spawn("release leases", leasing.release_at_end(leases.token().clone()));
    driver.start(&leases, Schedule::every(lease::RENEWAL), leasing);

    driver.start(
        &work,
        Schedule::every(copy::INTERVAL),
        copy::CopyTask::new(worker.clone(), daemon.config.copy_delay),
    );
    driver.start(&work, Schedule::every(trim::INTERVAL), trim::TrimTask::new(worker.clone()));
    driver.start(&work, Schedule::every(maintain::INTERVAL), maintain::MaintainTask::new(worker.clone()));
    driver.start(&work, Schedule::every(dictionaries::INTERVAL), dictionaries::DictionaryTask::new(worker));
    driver.start(
        &work,
        Schedule::every(report::INTERVAL),
        report::ReportTask::new(store.clone(), &daemon, metrics),
    );

    let watch =
        RetentionWatch::new(&daemon.metrics, daemon.readiness.clone(), shared.default_history_retention);
    let (clock, instance) = (daemon.clock.clone(), shared.instance.clone());
    let (hot, days) = (store.hot().clone(), shared.default_history_retention);
    let watching = watch.task(move || {
        let (hot, now, instance) = (hot.clone(), clock.now(), instance.clone());
        async move { Ok(hot.exchange_retention(ROLE, &instance, days, now).await?) }
    });
    driver.start(&work, Schedule::every(qim_daemon::RETENTION_WATCH_INTERVAL), watching);
    leases.spawn("withdraw", withdraw(store, shared.instance.clone(), leases.token().clone()));
    Ok(())
}

/// Tells the others at the end that this daemon's retention no longer counts.
async fn withdraw(store: TieredMessageStore, instance: String, end: CancellationToken) -> anyhow::Result<()> {
    end.cancelled().await;
    store.hot().withdraw_retention(ROLE, &instance).await?;
    Ok(())
}

async fn open_tiers(daemon: &Daemon<ArchiverConfig>) -> anyhow::Result<TieredMessageStore> {
    let shared = &daemon.config.shared;
    let opened = TieredMessageStore::open(TierOptions {
        redis_url: &shared.redis_url,
        redis_timeout: shared.redis_timeout,
        shards: shared.shards,
        archive_url: &shared.archive_url,
        archive_timeout: shared.archive_timeout,
        retention: shared.default_history_retention,
        hot_window: shared.hot_window,
        // It commits nothing, and copies what is stored as it is.
        compression: Compression::Off,
    })
    .await?;
    for warning in opened.warnings {
        tracing::warn!(warning, "hot tier");
    }
    if let Some(reason) = opened.archive_unavailable {
        daemon.readiness.set("archive", Condition::Degraded(reason));
    }
    Ok(opened.store)
}
