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

use qim_daemon::{ArchiverConfig, Daemon, Phase, PhaseSpec, Schedule};
use qim_tiers::Committing;

use crate::metrics::ArchiverMetrics;
use crate::shards::Worker;

/// What other daemons know this one as.
const ROLE: &str = "archiver";

/// What ends first when the daemon is asked to: the work, then the leases.
pub const PHASES: [PhaseSpec; 2] =
    [PhaseSpec { name: "work", share: 4 }, PhaseSpec { name: "leases", share: 1 }];

/// Starts all parts of the archiver.
pub async fn start(daemon: Daemon<ArchiverConfig>, [work, leases]: [Phase; 2]) -> anyhow::Result<()> {
    // It commits nothing, and copies what is stored as it is.
    let store = qim_tiers::open(&daemon, Committing::NOTHING).await?;
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

    qim_tiers::watch_certificates(&daemon, &work, &store);
    qim_tiers::watch_retention(&daemon, (&work, &leases), store, ROLE);
    Ok(())
}
