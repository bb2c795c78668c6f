//! The writer: the gRPC service `qim.v1.History`, and the loops that collect expired records (SPEC A9), follow the
//! dictionaries, watch over Redis, and report.

mod dictionaries;
mod gc;
mod lineage;
mod metrics;
mod report;
mod server;
mod service;

use std::sync::Arc;

use qim_daemon::{Daemon, Phase, PhaseSpec, Schedule, WriterConfig};
use qim_store::TieredMessageStore;
use qim_store::hot::LINEAGE_WATCH_INTERVAL;
use qim_tiers::Committing;
use tokio_util::sync::CancellationToken;

use crate::dictionaries::DictionaryTask;
use crate::gc::GcTask;
use crate::lineage::LineageTask;
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
    let lineage = LineageTask::new(store.clone(), daemon.clock.clone(), metrics.clone());
    daemon.driver.start(&loops, Schedule::every(LINEAGE_WATCH_INTERVAL), lineage);
    let report = ReportTask::new(store.clone(), &daemon, metrics);
    daemon.driver.start(&loops, Schedule::every(report::INTERVAL), report);

    loops.spawn("withdraw writer", withdraw(store.clone(), loops.token().clone()));
    qim_tiers::watch_retention(&daemon, (&loops, &loops), store, ROLE);
    Ok(())
}

/// Others need not wait for this writer once it has ended.
async fn withdraw(store: TieredMessageStore, end: CancellationToken) -> anyhow::Result<()> {
    end.cancelled().await;
    store.hot().withdraw_writer().await?;
    Ok(())
}

async fn open_tiers(daemon: &Daemon<WriterConfig>) -> anyhow::Result<TieredMessageStore> {
    let committing = Committing {
        compression: daemon.config.compression,
        durability: daemon.config.commit_durability,
        recent_bytes_max: daemon.config.recent_bytes_max,
    };
    let store = qim_tiers::open(daemon, committing).await?;
    // From the first message on, so that a restart makes no larger records. The loop tries again.
    if let Err(error) = store.refresh_dictionaries().await {
        tracing::warn!(%error, "the dictionaries cannot be read yet");
    }
    Ok(store)
}
