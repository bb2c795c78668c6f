use std::sync::Arc;
use std::time::Duration;

use metrics::{Counter, Gauge, Unit, counter, describe_counter, describe_gauge, gauge};
use qim_daemon::{Daemon, WriterConfig};

use super::memory::RequestMemory;

/// How long a client may take to begin: an honest one sends its first bytes with the connection.
pub(super) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client may take to answer a ping.
pub(crate) const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Unread bytes of one request or stream: about two thousand small messages.
pub(crate) const STREAM_WINDOW: u32 = 128 * 1024;

/// What clients may take, and what counts it.
pub(crate) struct Limits {
    pub(crate) connections_max: usize,
    /// On one connection.
    pub(crate) requests_max: u32,
    /// How long a silent client goes without a ping.
    pub(crate) keepalive: Duration,
    pub(super) memory: Arc<RequestMemory>,
    pub(super) open: Gauge,
    pub(super) refused: Counter,
}

impl Limits {
    pub(crate) fn new(daemon: &Daemon<WriterConfig>) -> Self {
        let config = &daemon.config;
        let (limits, used) = daemon.metrics.register(|| {
            describe();
            let memory =
                RequestMemory::new(config.request_memory_max, counter!("qim_requests_refused_total"));
            let limits = Self {
                connections_max: config.connections_max,
                requests_max: config.connection_requests_max,
                keepalive: config.keepalive,
                memory: Arc::new(memory),
                open: gauge!("qim_connections"),
                refused: counter!("qim_connections_refused_total"),
            };
            (limits, gauge!("qim_request_memory_bytes"))
        });
        let memory = limits.memory.clone();
        #[expect(clippy::cast_precision_loss, reason = "a gauge is a double")]
        daemon.metrics.at_scrape(move || used.set(memory.used() as f64));
        limits
    }
}

fn describe() {
    describe_gauge!("qim_connections", Unit::Count, "Connections of clients.");
    describe_counter!(
        "qim_connections_refused_total",
        Unit::Count,
        "Connections closed at once, since there were too many."
    );
    describe_counter!(
        "qim_requests_refused_total",
        Unit::Count,
        "Requests refused, since others took all the memory that there is for them."
    );
    describe_gauge!("qim_request_memory_bytes", Unit::Bytes, "Memory that requests under way take.");
}
