//! Connects on the first call, and again after the server was lost.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use qim_core::{ClientTls, ScyllaUrl};
use rustls::ClientConfig;
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session_builder::SessionBuilder;
use scylla::statement::Consistency;
use tokio::time::{self, Instant};

use super::error;
use super::link::Link;
use super::schema;
use super::statements::Statements;
use super::tls;
use crate::archive::ArchiveError;

/// The pause after the first attempt that failed; each next one is twice as long.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// The longest pause: how long after its return a server may stay unused.
const BACKOFF_MAX: Duration = Duration::from_secs(2);
/// The longest that an attempt takes, with all tables still to be made. Callers stop waiting long before.
const ATTEMPT_MAX: Duration = Duration::from_secs(60);

/// Keeps the one link, and makes one at a time.
pub(super) struct Connector {
    url: ScyllaUrl,
    tls: Mutex<Option<Arc<ClientConfig>>>,
    timeout: Duration,
    state: Mutex<State>,
}

type Attempt = Shared<BoxFuture<'static, Result<Arc<Link>, ArchiveError>>>;

enum State {
    Idle,
    Connecting(Attempt),
    Connected {
        link: Arc<Link>,
        since: Instant,
    },
    /// Until `retry_at` every call fails the way the attempt did.
    Failed {
        error: ArchiveError,
        retry_at: Instant,
        backoff: Duration,
    },
}

impl Connector {
    pub(super) fn new(url: ScyllaUrl, tls: Option<Arc<ClientConfig>>, timeout: Duration) -> Self {
        Self { url, tls: Mutex::new(tls), timeout, state: Mutex::new(State::Idle) }
    }

    /// The link. Waits for the attempt that is under way, or begins one; it goes on when the caller stops waiting.
    pub(super) async fn link(self: &Arc<Self>) -> Result<Arc<Link>, ArchiveError> {
        let attempt = {
            let mut state = self.state();
            let now = Instant::now();
            match &*state {
                State::Connected { link, .. } if !link.is_lost() => return Ok(link.clone()),
                State::Connected { since, .. } if now < *since + BACKOFF_MAX => {
                    return Err(ArchiveError::Unavailable("no node can be reached".to_owned()));
                }
                State::Failed { error, retry_at, .. } if now < *retry_at => return Err(error.clone()),
                // One that has ended without settling the state has panicked.
                State::Connecting(attempt) if attempt.peek().is_none() => attempt.clone(),
                State::Failed { backoff, .. } => {
                    let attempt = self.clone().begin((*backoff * 2).min(BACKOFF_MAX));
                    *state = State::Connecting(attempt.clone());
                    attempt
                }
                _ => {
                    let attempt = self.clone().begin(BACKOFF_MIN);
                    *state = State::Connecting(attempt.clone());
                    attempt
                }
            }
        };
        attempt.await
    }

    /// See [`ArchiveStore::renew_tls`](crate::archive::ArchiveStore::renew_tls).
    pub(super) async fn renew(&self, tls: &ClientTls) -> Result<(), ArchiveError> {
        if !self.url.tls {
            return Ok(());
        }
        let tls = tls::config(tls)?;
        let link = self.connect_in_time(Some(tls.clone())).await?;
        *self.tls() = Some(tls);
        *self.state() = State::Connected { link, since: Instant::now() };
        Ok(())
    }

    fn begin(self: Arc<Self>, backoff: Duration) -> Attempt {
        let task = tokio::spawn(async move {
            let tls = self.tls().clone();
            let outcome = self.connect_in_time(tls).await;
            let mut state = self.state();
            // Else other certificates have come in between.
            if let State::Connecting(_) = &*state {
                *state = match &outcome {
                    Ok(link) => State::Connected { link: link.clone(), since: Instant::now() },
                    Err(error) => {
                        State::Failed { error: error.clone(), retry_at: Instant::now() + backoff, backoff }
                    }
                };
            }
            drop(state);
            outcome
        });
        task.map(|ended| ended.unwrap_or_else(|error| Err(ArchiveError::Unavailable(error.to_string()))))
            .boxed()
            .shared()
    }

    async fn connect_in_time(&self, tls: Option<Arc<ClientConfig>>) -> Result<Arc<Link>, ArchiveError> {
        time::timeout(ATTEMPT_MAX, self.connect(tls)).await.unwrap_or_else(|_| {
            Err(ArchiveError::Unavailable(format!("no connection within {ATTEMPT_MAX:?}")))
        })
    }

    async fn connect(&self, tls: Option<Arc<ClientConfig>>) -> Result<Arc<Link>, ArchiveError> {
        let ScyllaUrl { nodes, keyspace, replication_factor, user, password, .. } = &self.url;
        let profile = ExecutionProfile::builder()
            .consistency(Consistency::LocalQuorum)
            .request_timeout(Some(self.timeout))
            .build();
        let mut builder = SessionBuilder::new()
            .known_nodes(nodes)
            .tls_context(tls)
            .keyspaces_to_fetch([keyspace])
            .connection_timeout(self.timeout)
            .hostname_resolution_timeout(Some(self.timeout))
            .refresh_metadata_on_auto_schema_agreement(false)
            .schema_agreement_timeout(ATTEMPT_MAX)
            .default_execution_profile_handle(profile.into_handle());
        if let (Some(user), Some(password)) = (user, password) {
            builder = builder.user(user, password);
        }
        let session = builder.build().await.map_err(|error| error::from_new_session(&error))?;
        schema::ensure(&session, keyspace, *replication_factor).await?;
        let statements = Statements::prepare(&session, keyspace).await;
        let statements = statements.map_err(|error| error::from_prepare(&error))?;
        let latest_expiry = schema::latest_expiry(&session).await?;
        tracing::info!(archive = %self.url, ?latest_expiry, "connected to the archive");
        Ok(Arc::new(Link::new(session, statements, latest_expiry)))
    }

    fn tls(&self) -> MutexGuard<'_, Option<Arc<ClientConfig>>> {
        self.tls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
