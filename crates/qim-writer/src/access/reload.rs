use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use qim_access::TokenFile;
use qim_daemon::{Condition, Outcome, PeriodicTask, Readiness, TaskError, TokensConfig};

use super::Access;
use super::tokens::Tokens;

/// Takes over what the file of tokens says now. Where that is bad, what it said before stays in effect; the loop fails
/// and the daemon is degraded until it is good again.
pub(crate) struct TokensTask {
    tokens: Arc<Tokens>,
    path: PathBuf,
    in_effect: TokenFile,
    readiness: Readiness,
}

impl TokensTask {
    /// `None` where there are no tokens.
    pub(crate) fn new(access: &Access, config: Option<&TokensConfig>, readiness: Readiness) -> Option<Self> {
        let (tokens, TokensConfig { path, file }) = (access.tokens.clone()?, config?);
        Some(Self { tokens, path: path.clone(), in_effect: file.clone(), readiness })
    }

    async fn reload(&mut self) -> anyhow::Result<()> {
        let path = self.path.display();
        let content = tokio::fs::read_to_string(&self.path).await;
        let content = content.with_context(|| format!("QIM_TOKENS_FILE: {path} cannot be read"))?;
        let file =
            TokenFile::parse(&content).map_err(|faults| anyhow!("QIM_TOKENS_FILE: {path} {faults}"))?;
        if file != self.in_effect {
            self.tokens.replace(&file);
            tracing::info!(tokens = file.grants().len(), "the tokens have changed");
            self.in_effect = file;
        }
        Ok(())
    }
}

impl PeriodicTask for TokensTask {
    fn name(&self) -> &'static str {
        "tokens"
    }

    async fn run_once(&mut self) -> Result<Outcome, TaskError> {
        let reloaded = self.reload().await;
        let shown = reloaded.as_ref().map_err(|error| format!("{error:#}"));
        self.readiness.observe("tokens", &shown, Condition::Degraded);
        reloaded?;
        Ok(Outcome::Idle)
    }
}
