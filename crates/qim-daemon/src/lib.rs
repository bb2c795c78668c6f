//! The shell that both daemons share: configuration, telemetry, admin port, loop driver and ordered shutdown.
//!
//! A daemon's `main` is one call of [`run_daemon`] with the wiring of its parts; `examples/probe.rs` is the smallest
//! one. What a part may need of the process it gets as an argument from [`Daemon`]; there is no global state but the
//! log subscriber and the panic hook, which the process has only one of.

mod admin;
mod command_line;
pub mod config;
mod driver;
mod entry;
mod log;
mod metrics;
mod process_metrics;
mod readiness;
mod retention_watch;
mod shutdown;

pub use admin::{AdminServer, listen};
pub use config::{
    ArchiverConfig, ClientTlsFiles, ClientTlsPaths, LogFormat, SharedConfig, TlsPaths, TokensConfig,
    WriterConfig,
};
pub use driver::{LoopDriver, Outcome, PeriodicTask, Schedule, TaskError};
pub use entry::{Daemon, run_daemon};
pub use metrics::{METRICS_CONTENT_TYPE, Metrics};
pub use readiness::{Condition, Readiness, ReadinessReport};
pub use retention_watch::{RETENTION_WATCH_INTERVAL, RetentionWatch};
pub use shutdown::{Cause, Phase, PhaseOutcome, PhaseReport, PhaseSpec, Shutdown, Summary, TaskFailure};
