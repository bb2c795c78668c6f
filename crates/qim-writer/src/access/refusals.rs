use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use metrics::{Counter, counter, describe_counter};
use qim_access::Right;
use qim_core::SharedClock;
use qim_daemon::Metrics;
use tonic::Status;

/// One line a second for each reason: whoever tries tokens does not fill the disk.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// Why something was refused: the values of the label `reason`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// No TLS connection came about, for want of a certificate as well.
    Handshake,
    /// There is no token.
    MissingToken,
    /// There is no such token.
    UnknownToken,
    /// The token lacks the right to call the method.
    Right,
    /// The token does not see the tenant.
    Tenant,
    /// The token lacks the right to holds.
    Compliance,
}

impl Reason {
    const ALL: [Self; 6] = [
        Self::Handshake,
        Self::MissingToken,
        Self::UnknownToken,
        Self::Right,
        Self::Tenant,
        Self::Compliance,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Handshake => "handshake",
            Self::MissingToken => "missing_token",
            Self::UnknownToken => "unknown_token",
            Self::Right => "right",
            Self::Tenant => "tenant",
            Self::Compliance => "compliance",
        }
    }
}

/// One refusal, without the token itself.
pub(super) struct Refused<'a> {
    reason: Reason,
    told: String,
    token_id: Option<&'a str>,
    peer: Option<SocketAddr>,
}

/// Counts and logs refusals.
pub(crate) struct Refusals {
    counters: [Counter; Reason::ALL.len()],
    /// By reason: when it was last logged, ms.
    logged_at: [AtomicU64; Reason::ALL.len()],
    clock: SharedClock,
}

impl Refusals {
    pub(crate) fn new(metrics: &Metrics, clock: SharedClock) -> Self {
        let counters = metrics.register(|| {
            describe_counter!(
                "qim_access_refusals_total",
                "Connections and requests refused for want of a certificate, token, right or tenant, by reason."
            );
            Reason::ALL.map(|reason| counter!("qim_access_refusals_total", "reason" => reason.name()))
        });
        Self { counters, logged_at: Default::default(), clock }
    }

    /// Counts a connection that never came about.
    pub(crate) fn handshake(&self, error: &str, peer: Option<SocketAddr>) {
        let refused = Refused { reason: Reason::Handshake, told: error.to_owned(), token_id: None, peer };
        self.count(refused);
    }

    /// Counts a refusal, and gives the answer to it.
    pub(super) fn refuse(&self, refused: Refused<'_>) -> Status {
        let told = refused.told.clone();
        let status = match refused.reason {
            Reason::Handshake | Reason::MissingToken | Reason::UnknownToken => Status::unauthenticated(told),
            Reason::Right | Reason::Tenant | Reason::Compliance => Status::permission_denied(told),
        };
        self.count(refused);
        status
    }

    pub(super) fn count(&self, Refused { reason, told, token_id, peer }: Refused<'_>) {
        self.counters[reason as usize].increment(1);
        if self.may_log(reason) {
            let peer = peer.map(tracing::field::display);
            tracing::warn!(reason = reason.name(), token = token_id, peer, told, "refused");
        }
    }

    fn may_log(&self, reason: Reason) -> bool {
        let (now, last) = (self.clock.now().get(), &self.logged_at[reason as usize]);
        let before = last.load(Ordering::Relaxed);
        // A clock that was set back must not silence it for long.
        let is_due = now.abs_diff(before) >= u64::try_from(LOG_INTERVAL.as_millis()).unwrap_or(u64::MAX);
        is_due && last.compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

impl<'a> Refused<'a> {
    fn new(reason: Reason, told: impl Into<String>, token_id: Option<&'a str>) -> Self {
        Self { reason, told: told.into(), token_id, peer: None }
    }

    pub(super) fn without_token() -> Self {
        Self::new(Reason::MissingToken, "a token is needed: authorization: Bearer TOKEN", None)
    }

    pub(super) fn with_unknown_token() -> Self {
        Self::new(Reason::UnknownToken, "the token is not known", None)
    }

    pub(super) fn without_right(token_id: &'a str, right: Right) -> Self {
        Self::new(Reason::Right, format!("the token lacks the right {right}"), Some(token_id))
    }

    pub(super) fn outside_tenants(token_id: &'a str) -> Self {
        Self::new(Reason::Tenant, "the token is not for this tenant", Some(token_id))
    }

    pub(super) fn hold_at(token_id: &'a str, index: usize) -> Self {
        let told = format!(
            "messages[{index}].retention_class: compliance_hold, which the token lacks the right {} for",
            Right::Compliance
        );
        Self::new(Reason::Compliance, told, Some(token_id))
    }

    pub(super) fn from(self, peer: Option<SocketAddr>) -> Self {
        Self { peer, ..self }
    }
}
