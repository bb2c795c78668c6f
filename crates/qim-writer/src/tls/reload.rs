use std::sync::Arc;

use qim_daemon::{Condition, Outcome, PeriodicTask, Readiness, TaskError};

use super::ServerTls;

/// Takes over certificates that have changed. Where they cannot be used, those before stay in effect; the loop fails and
/// the daemon is degraded until they are good again.
pub(crate) struct CertificatesTask {
    tls: Arc<ServerTls>,
    readiness: Readiness,
}

impl CertificatesTask {
    pub(crate) fn new(tls: Arc<ServerTls>, readiness: Readiness) -> Self {
        Self { tls, readiness }
    }
}

impl PeriodicTask for CertificatesTask {
    fn name(&self) -> &'static str {
        "certificates"
    }

    async fn run_once(&mut self) -> Result<Outcome, TaskError> {
        let reloaded = self.tls.reload().await;
        let shown = reloaded.as_ref().map_err(|error| format!("{error:#}"));
        self.readiness.observe("certificates", &shown, Condition::Degraded);
        if reloaded? {
            tracing::info!("the certificates have changed");
        }
        Ok(Outcome::Idle)
    }
}
