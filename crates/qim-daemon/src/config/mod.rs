//! Configuration: the environment, read once and validated as a whole.
//!
//! [`Environment`] takes what the process was given; [`DaemonConfig::from_environment`] is a pure function of it and
//! reports every bad value at once. [`VARIABLES`] lists all variables with their defaults and meanings.

mod access;
mod environment;
mod show;
mod validate;
mod value;
mod variables;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use qim_access::TokenFile;
use qim_core::{ArchiveUrl, ClientTls, CommitDurability, Compression, RedisUrl, RetentionDays, ShardCount};

pub use environment::Environment;
pub use show::format_duration;
pub use variables::{DefaultValue, UsedBy, VARIABLES, Variable};

/// A daemon's configuration: the two there are, [`WriterConfig`] and [`ArchiverConfig`].
pub trait DaemonConfig: Sized {
    /// The name of the program.
    const PROGRAM: &'static str;
    /// One line for `--help`.
    const ABOUT: &'static str;
    /// Which variables it reads.
    const USED_BY: UsedBy;

    /// Validates everything; the faults name all bad values.
    fn from_environment(environment: &Environment) -> Result<Self, ConfigFaults>;

    /// What both daemons have.
    fn shared(&self) -> &SharedConfig;

    /// All values in effect, by variable, without secrets.
    fn effective(&self) -> Vec<(&'static str, String)>;
}

/// What both daemons read.
#[derive(Debug, Clone)]
pub struct SharedConfig {
    /// How long class `default` is kept (SPEC A1).
    pub default_history_retention: RetentionDays,
    /// How long the hot tier keeps a record.
    pub hot_window: Duration,
    /// Where the hot tier is.
    pub redis_url: RedisUrl,
    /// How a connection to it over TLS is checked.
    pub redis_tls: ClientTlsFiles,
    /// The longest that one call to Redis may take.
    pub redis_timeout: Duration,
    /// Where the archive tier is.
    pub archive_url: ArchiveUrl,
    /// How a connection to it over TLS is checked.
    pub archive_tls: ClientTlsFiles,
    /// The longest that one call to the archive may take.
    pub archive_timeout: Duration,
    /// How many virtual shards there are.
    pub shards: ShardCount,
    /// Where `/metrics`, `/healthz` and `/readyz` are served.
    pub admin_addr: SocketAddr,
    /// The longest that an orderly end may take.
    pub shutdown_grace: Duration,
    /// A filter as `tracing_subscriber::EnvFilter` takes it.
    pub log_filter: String,
    /// How log lines look.
    pub log_format: LogFormat,
    /// Listeners without TLS may be reachable from other hosts.
    pub allow_plaintext: bool,
    /// How often the files of tokens and certificates are looked at for changes.
    pub reload_interval: Duration,
    /// What this process is called where others see it: leases, published values.
    pub instance: String,
}

/// What qim-writer reads.
#[derive(Debug, Clone)]
pub struct WriterConfig {
    /// What both daemons read.
    pub shared: SharedConfig,
    /// Where gRPC is served.
    pub listen_addr: SocketAddr,
    /// How often the expiry GC runs (SPEC A9).
    pub gc_interval: Duration,
    /// The largest payload of one message.
    pub payload_bytes_max: usize,
    /// How many connections of clients there may be.
    pub connections_max: usize,
    /// How many requests may be under way on one connection.
    pub connection_requests_max: u32,
    /// How many bytes requests under way may take.
    pub request_memory_max: usize,
    /// After how long without a word a client is asked whether it is there.
    pub keepalive: Duration,
    /// How payloads are stored.
    pub compression: Compression,
    /// How often the writer looks for a new dictionary.
    pub dictionary_refresh: Duration,
    /// When a message is acknowledged.
    pub commit_durability: CommitDurability,
    /// How many bytes of acknowledged messages are remembered.
    pub recent_bytes_max: usize,
    /// gRPC is served over TLS with these.
    pub tls: Option<TlsPaths>,
    /// Which tokens there are; where there are none, every client may do everything.
    pub tokens: Option<TokensConfig>,
}

/// What qim-archiver reads.
#[derive(Debug, Clone)]
pub struct ArchiverConfig {
    /// What both daemons read.
    pub shared: SharedConfig,
    /// How soon after its commit a record is copied.
    pub copy_delay: Duration,
}

/// PEM files of the connections to a tier.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientTlsPaths {
    /// The only authorities to trust; `None`: those of the system.
    pub ca_file: Option<PathBuf>,
    /// The certificate to show and its private key; `None`: none is shown.
    pub identity_files: Option<(PathBuf, PathBuf)>,
}

/// The certificates of the connections to a tier.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientTlsFiles {
    /// Where they are.
    pub paths: ClientTlsPaths,
    /// What they say at the start.
    pub content: ClientTls,
}

/// PEM files of the gRPC listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsPaths {
    /// The certificate, and those between it and the root.
    pub cert_file: PathBuf,
    /// Its private key.
    pub key_file: PathBuf,
    /// The authorities that clients need a certificate of; `None`: they need none.
    pub client_ca_file: Option<PathBuf>,
}

/// The tokens of clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokensConfig {
    /// Where they are listed.
    pub path: PathBuf,
    /// What it says at the start.
    pub file: TokenFile,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// All that is wrong with the configuration. Holds no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFaults(Vec<Fault>);

/// One variable that cannot be used, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The variable.
    pub variable: &'static str,
    /// The value and what is allowed, as the rest of a sentence.
    pub problem: String,
}

impl ConfigFaults {
    /// One for each bad variable.
    pub fn faults(&self) -> &[Fault] {
        &self.0
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.variable, self.problem)
    }
}

impl fmt::Display for ConfigFaults {
    /// One line for each.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for ConfigFaults {}

#[cfg(test)]
mod tests;
