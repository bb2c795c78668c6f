//! The writer: the gRPC service `qim.v1.History`, and the loops that collect expired records (SPEC A9), follow the
//! dictionaries, and report.

mod dictionaries;
mod gc;
mod metrics;
mod report;
mod server;
mod service;

use std::sync::Arc;

use qim_daemon::{Condition, Daemon, Phase, PhaseSpec, RetentionWatch, Schedule, WriterConfig};
use qim_store::TieredMessageStore;
use qim_store::tiered::TierOptions;
use tokio_util::sync::CancellationToken;

use crate::dictionaries::DictionaryTask;
use crate::gc::GcTask;
use crate::metrics::WriterMetrics;
use crate::report::ReportTask;
use crate::server::Server;
use crate::service::History;

/// What other daemons know this one as.
const ROLE: &str = "writer";

/// What ends first when the daemon is asked to: requests, then loops.
pub const PHASES: [PhaseSpec; 2] =
    [PhaseSpec { name: "requests", share: 4 }, PhaseSpec { name: "loops", share: 1 }];

/// Starts all parts of the writer.
pub async fn start(daemon: Daemon<WriterConfig>, [requests, loops]: [Phase; 2]) -> anyhow::Result<()> {
    let shared = &daemon.config.shared;
    let store = open_tiers(&daemon).await?;
    let metrics = Arc::new(daemon.metrics.register(WriterMetrics::new));

    let token = requests.token().clone();
    let history =
        History::new(store.clone(), &daemon.config, daemon.clock.clone(), metrics.clone(), token.clone());
    let server = Server::bind(&daemon.config, history, daemon.readiness.clone()).await?;
    requests.spawn("grpc", server.serve(token));

    let collect = GcTask::new(store.hot().clone(), daemon.clock.clone(), metrics.clone());
    daemon.driver.start(&loops, Schedule::every(daemon.config.gc_interval), collect);
    let schedule = Schedule::every(daemon.config.dictionary_refresh);
    daemon.driver.start(&loops, schedule, DictionaryTask::new(store.clone(), metrics.clone()));
    let report = ReportTask::new(store.clone(), &daemon, metrics);
    daemon.driver.start(&loops, Schedule::every(report::INTERVAL), report);

    let watch =
        RetentionWatch::new(&daemon.metrics, daemon.readiness.clone(), shared.default_history_retention);
    let (hot, clock, instance) = (store.hot().clone(), daemon.clock.clone(), shared.instance.clone());
    let days = shared.default_history_retention;
    let watching = watch.task(move || {
        let (hot, now, instance) = (hot.clone(), clock.now(), instance.clone());
        async move { Ok(hot.exchange_retention(ROLE, &instance, days, now).await?) }
    });
    daemon.driver.start(&loops, Schedule::every(qim_daemon::RETENTION_WATCH_INTERVAL), watching);
    loops.spawn("withdraw", withdraw(store, shared.instance.clone(), loops.token().clone()));
    Ok(())
}

/// Tells the others at the end that this daemon's retention no longer counts.
async fn withdraw(store: TieredMessageStore, instance: String, end: CancellationToken) -> anyhow::Result<()> {
    end.cancelled().await;
    store.hot().withdraw_retention(ROLE, &instance).await?;
    Ok(())
}

async fn open_tiers(daemon: &Daemon<WriterConfig>) -> anyhow::Result<TieredMessageStore> {
    let shared = &daemon.config.shared;
    let opened = TieredMessageStore::open(TierOptions {
        redis_url: &shared.redis_url,
        redis_timeout: shared.redis_timeout,
        shards: shared.shards,
        archive_url: &shared.archive_url,
        archive_timeout: shared.archive_timeout,
        retention: shared.default_history_retention,
        hot_window: shared.hot_window,
        compression: daemon.config.compression,
    })
    .await?;
    for warning in opened.warnings {
        tracing::warn!(warning, "hot tier");
    }
    if let Some(reason) = opened.archive_unavailable {
        daemon.readiness.set("archive", Condition::Degraded(reason));
    }
    // From the first message on, so that a restart makes no larger records. The loop tries again.
    if let Err(error) = opened.store.refresh_dictionaries().await {
        tracing::warn!(%error, "the dictionaries cannot be read yet");
    }
    Ok(opened.store)
}
