//! Certificates of the connections to the tiers, which change while the daemon runs.

use std::path::Path;

use anyhow::Context as _;
use qim_core::{ClientIdentity, ClientTls};
use qim_daemon::{ClientTlsFiles, ClientTlsPaths, Condition, Outcome, PeriodicTask, Readiness, TaskError};
use qim_store::TieredMessageStore;

/// Whose they are.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Tier {
    Redis,
    Archive,
}

/// Goes on with certificates that have changed. Where no connection can be made with them, those before stay in effect; the
/// loop fails and the daemon is degraded until one can.
pub(crate) struct CertificatesTask {
    tier: Tier,
    paths: ClientTlsPaths,
    in_effect: ClientTls,
    store: TieredMessageStore,
    readiness: Readiness,
}

impl CertificatesTask {
    pub(crate) fn new(
        tier: Tier,
        files: ClientTlsFiles,
        store: TieredMessageStore,
        readiness: Readiness,
    ) -> Self {
        Self { tier, paths: files.paths, in_effect: files.content, store, readiness }
    }

    /// Whether others are in effect than before.
    async fn reload(&mut self) -> anyhow::Result<bool> {
        let tls = read_all(&self.paths).await?;
        if tls == self.in_effect {
            return Ok(false);
        }
        match self.tier {
            Tier::Redis => self.store.hot().renew_tls(&tls).await?,
            Tier::Archive => self.store.archive().renew_tls(&tls).await?,
        }
        self.in_effect = tls;
        Ok(true)
    }
}

impl PeriodicTask for CertificatesTask {
    fn name(&self) -> &'static str {
        match self.tier {
            Tier::Redis => "redis_certificates",
            Tier::Archive => "archive_certificates",
        }
    }

    async fn run_once(&mut self) -> Result<Outcome, TaskError> {
        let reloaded = self.reload().await;
        let shown = reloaded.as_ref().map_err(|error| format!("{error:#}"));
        self.readiness.observe(self.name(), &shown, Condition::Degraded);
        if reloaded? {
            tracing::info!(tier = ?self.tier, "the certificates have changed");
        }
        Ok(Outcome::Idle)
    }
}

async fn read_all(paths: &ClientTlsPaths) -> anyhow::Result<ClientTls> {
    let ca = match &paths.ca_file {
        Some(path) => Some(read(path).await?),
        None => None,
    };
    let identity = match &paths.identity_files {
        Some((cert, key)) => Some(ClientIdentity { cert: read(cert).await?, key: read(key).await? }),
        None => None,
    };
    Ok(ClientTls { ca, identity })
}

async fn read(path: &Path) -> anyhow::Result<String> {
    tokio::fs::read_to_string(path).await.with_context(|| format!("cannot read {}", path.display()))
}
