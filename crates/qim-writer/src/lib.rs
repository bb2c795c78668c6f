//! The writer: the gRPC service `qim.v1.History`, and the loops that collect expired records (SPEC A9), follow the
//! dictionaries, watch over Redis, and report.

mod access;
mod dictionaries;
mod gc;
mod lineage;
mod metrics;
mod report;
mod server;
mod service;
mod tls;
mod transport;

use std::sync::Arc;

use qim_daemon::{Daemon, Phase, PhaseSpec, Schedule, WriterConfig};
use qim_store::TieredMessageStore;
use qim_store::hot::LINEAGE_WATCH_INTERVAL;
use qim_tiers::Committing;
use tokio_util::sync::CancellationToken;

use crate::access::{Access, Refusals, TokensTask};
use crate::dictionaries::DictionaryTask;
use crate::gc::GcTask;
use crate::lineage::LineageTask;
use crate::metrics::WriterMetrics;
use crate::report::ReportTask;
use crate::server::Server;
use crate::service::History;
use crate::tls::CertificatesTask;
use crate::transport::Limits;

/// What other daemons know this one as.
const ROLE: &str = "writer";

/// What ends first when the daemon is asked to: requests, then loops.
pub const PHASES: [PhaseSpec; 2] =
    [PhaseSpec { name: "requests", share: 4 }, PhaseSpec { name: "loops", share: 1 }];

/// Starts all parts of the writer.
pub async fn start(daemon: Daemon<WriterConfig>, [requests, loops]: [Phase; 2]) -> anyhow::Result<()> {
    let store = open_tiers(&daemon).await?;
    let metrics = Arc::new(daemon.metrics.register(WriterMetrics::new));

    let refusals = Arc::new(Refusals::new(&daemon.metrics, daemon.clock.clone()));
    let tokens = daemon.config.tokens.as_ref();
    let access = Access::new(tokens.map(|tokens| &tokens.file), refusals.clone(), &daemon.metrics);
    let watch = Schedule::every(daemon.config.shared.reload_interval);
    if let Some(watching) = TokensTask::new(&access, tokens, daemon.readiness.clone()) {
        daemon.driver.start(&loops, watch, watching);
    }
    let token = requests.token().clone();
    let history = History::new(
        store.clone(),
        &daemon.config,
        daemon.clock.clone(),
        metrics.clone(),
        access,
        token.clone(),
    );
    let limits = Limits::new(&daemon);
    let server = Server::bind(&daemon.config, limits, history, daemon.readiness.clone(), refusals).await?;
    if let Some(tls) = server.tls() {
        daemon.driver.start(&loops, watch, CertificatesTask::new(tls, daemon.readiness.clone()));
    }
    requests.spawn("grpc", server.serve(token));

    let collect = GcTask::new(store.hot().clone(), &daemon, metrics.clone());
    daemon.driver.start(&loops, Schedule::every(daemon.config.gc_interval), collect);
    let schedule = Schedule::every(daemon.config.dictionary_refresh);
    daemon.driver.start(&loops, schedule, DictionaryTask::new(store.clone(), metrics.clone()));
    let lineage = LineageTask::new(store.clone(), daemon.clock.clone(), metrics.clone());
    daemon.driver.start(&loops, Schedule::every(LINEAGE_WATCH_INTERVAL), lineage);
    let report = ReportTask::new(store.clone(), &daemon, metrics);
    daemon.driver.start(&loops, Schedule::every(report::INTERVAL), report);

    qim_tiers::watch_certificates(&daemon, &loops, &store);
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
    if let Err(error) = store.introduce_writer().await {
        tracing::warn!(%error, "other writers may not know of this one yet");
    }
    // From the first message on, so that a restart makes no larger records. The loop tries again.
    if let Err(error) = store.refresh_dictionaries().await {
        tracing::warn!(%error, "the dictionaries cannot be read yet");
    }
    Ok(store)
}
