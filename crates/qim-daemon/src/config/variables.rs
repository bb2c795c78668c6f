//! The one list of variables. `docs/configuration.md`, `--help` and the validation follow it.

/// Which daemon reads a variable; the other one ignores it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsedBy {
    /// qim-writer and qim-archiver.
    Both,
    /// qim-writer.
    Writer,
    /// qim-archiver.
    Archiver,
}

impl UsedBy {
    /// Whether a variable of `self` matters to the daemon `daemon`.
    pub fn includes(self, daemon: Self) -> bool {
        self == Self::Both || self == daemon
    }
}

/// What holds where a variable is not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultValue {
    /// As if it were set to this.
    Value(&'static str),
    /// As if it were set to this, by daemon.
    PerDaemon {
        /// In qim-writer.
        writer: &'static str,
        /// In qim-archiver.
        archiver: &'static str,
    },
    /// Not a value: what happens instead.
    Unset(&'static str),
}

/// A variable of the environment.
#[derive(Debug, Clone, Copy)]
pub struct Variable {
    /// Its name, `QIM_…`.
    pub name: &'static str,
    /// Who reads it.
    pub used_by: UsedBy,
    /// What holds where it is not set.
    pub default: DefaultValue,
    /// Why that is the default.
    pub reason: &'static str,
    /// What it says, and what is allowed.
    pub meaning: &'static str,
}

impl Variable {
    /// The value that holds in this daemon where the variable is not set; `None` where there is none.
    pub fn default_in(&self, daemon: UsedBy) -> Option<&'static str> {
        match self.default {
            DefaultValue::Value(value) => Some(value),
            DefaultValue::PerDaemon { archiver, .. } if daemon == UsedBy::Archiver => Some(archiver),
            DefaultValue::PerDaemon { writer, .. } => Some(writer),
            DefaultValue::Unset(_) => None,
        }
    }

    /// The variable of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        VARIABLES.iter().find(|variable| variable.name == name)
    }
}

use DefaultValue::{PerDaemon, Unset, Value};
use UsedBy::{Archiver, Both, Writer};

/// All of them, in the order in which people are told.
pub const VARIABLES: &[Variable] = &[
    Variable {
        name: "QIM_DEFAULT_HISTORY_RETENTION_DAYS",
        used_by: Both,
        default: Value("30"),
        reason: "the product's promise where nobody chose otherwise (ADR-0019)",
        meaning: "how long messages of class `default` are kept: whole days, 1 to 3650; the same in both daemons",
    },
    Variable {
        name: "QIM_HOT_WINDOW",
        used_by: Both,
        default: Value("7d"),
        reason: "nearly all reads of history ask for the last week",
        meaning: "how long Redis keeps a message that the archive has: 1h to 90d",
    },
    Variable {
        name: "QIM_REDIS_URL",
        used_by: Both,
        default: Value("redis://127.0.0.1:6379"),
        reason: "where Redis listens when nobody changed it",
        meaning: "the hot tier: redis://[USER:PASSWORD@]HOST[:PORT][/DB], rediss:// for TLS, or \
                  redis-cluster://HOST[:PORT],HOST[:PORT]",
    },
    Variable {
        name: "QIM_REDIS_URL_FILE",
        used_by: Both,
        default: Unset("QIM_REDIS_URL counts"),
        reason: "only needed where the URL holds a password",
        meaning: "a file that holds the value of QIM_REDIS_URL, such as a mounted secret",
    },
    Variable {
        name: "QIM_REDIS_CA_FILE",
        used_by: Both,
        default: Unset("the authorities of the system"),
        reason: "what the system trusts is right for a public name",
        meaning: "the only authorities to trust for rediss://, PEM",
    },
    Variable {
        name: "QIM_REDIS_CLIENT_CERT_FILE",
        used_by: Both,
        default: Unset("no certificate is shown"),
        reason: "a password is enough for most servers",
        meaning: "the certificate chain that rediss:// shows, PEM; together with QIM_REDIS_CLIENT_KEY_FILE",
    },
    Variable {
        name: "QIM_REDIS_CLIENT_KEY_FILE",
        used_by: Both,
        default: Unset("no certificate is shown"),
        reason: "a password is enough for most servers",
        meaning: "the private key of that certificate, PEM; together with QIM_REDIS_CLIENT_CERT_FILE",
    },
    Variable {
        name: "QIM_REDIS_TIMEOUT",
        used_by: Both,
        default: Value("2s"),
        reason: "a hundred times a slow answer, and below the patience of a sender",
        meaning: "the longest that one call to Redis may take: 50ms to 1m",
    },
    Variable {
        name: "QIM_ARCHIVE_URL",
        used_by: Both,
        default: Value("sqlite:qim-archive.db"),
        reason: "one machine needs no database server",
        meaning: "the archive tier: sqlite:PATH, or \
                  scylla://[USER:PASSWORD@]HOST[:PORT][,HOST…]/KEYSPACE[?replication_factor=N], scyllas:// for TLS",
    },
    Variable {
        name: "QIM_ARCHIVE_URL_FILE",
        used_by: Both,
        default: Unset("QIM_ARCHIVE_URL counts"),
        reason: "only needed where the URL holds a password",
        meaning: "a file that holds the value of QIM_ARCHIVE_URL, such as a mounted secret",
    },
    Variable {
        name: "QIM_ARCHIVE_CA_FILE",
        used_by: Both,
        default: Unset("the authorities of the system"),
        reason: "what the system trusts is right for a public name",
        meaning: "the only authorities to trust for scyllas://, PEM",
    },
    Variable {
        name: "QIM_ARCHIVE_CLIENT_CERT_FILE",
        used_by: Both,
        default: Unset("no certificate is shown"),
        reason: "a password is enough for most servers",
        meaning: "the certificate chain that scyllas:// shows, PEM; together with QIM_ARCHIVE_CLIENT_KEY_FILE",
    },
    Variable {
        name: "QIM_ARCHIVE_CLIENT_KEY_FILE",
        used_by: Both,
        default: Unset("no certificate is shown"),
        reason: "a password is enough for most servers",
        meaning: "the private key of that certificate, PEM; together with QIM_ARCHIVE_CLIENT_CERT_FILE",
    },
    Variable {
        name: "QIM_ARCHIVE_TIMEOUT",
        used_by: Both,
        default: Value("5s"),
        reason: "above the 2 s after which a CQL node itself gives up",
        meaning: "the longest that one call to the archive may take: 100ms to 1m",
    },
    Variable {
        name: "QIM_SHARDS",
        used_by: Both,
        default: Value("256"),
        reason: "spreads over any cluster of a sensible size, at some bytes of index each",
        meaning: "how many virtual shards there are: 1 to 4096; stored with the data and never changed after that",
    },
    Variable {
        name: "QIM_ADMIN_ADDR",
        used_by: Both,
        default: PerDaemon { writer: "127.0.0.1:7401", archiver: "127.0.0.1:7402" },
        reason: "nobody else should see the metrics unasked",
        meaning: "where /metrics, /healthz and /readyz are served: IP:PORT",
    },
    Variable {
        name: "QIM_SHUTDOWN_GRACE",
        used_by: Both,
        default: Value("20s"),
        reason: "below the 30 s after which Kubernetes kills",
        meaning: "the longest that an orderly end may take: 1s to 10m",
    },
    Variable {
        name: "QIM_LOG",
        used_by: Both,
        default: Value("info"),
        reason: "what an operator has to know, and no line for each message",
        meaning: "what is logged: off, error, warn, info, debug or trace, or by target, as in info,qim_store=debug",
    },
    Variable {
        name: "QIM_LOG_FORMAT",
        used_by: Both,
        default: Value("text"),
        reason: "people read it first",
        meaning: "how log lines look: text or json",
    },
    Variable {
        name: "QIM_ALLOW_PLAINTEXT",
        used_by: Both,
        default: Value("false"),
        reason: "messages in clear text on a network must be somebody's decision",
        meaning: "true or false: whether listeners without TLS may have an address other than loopback",
    },
    Variable {
        name: "QIM_RELOAD_INTERVAL",
        used_by: Both,
        default: Value("10s"),
        reason: "how long a token that was taken back still works, at the price of reading small files",
        meaning: "how often QIM_TOKENS_FILE and all files of certificates are looked at for changes: 1s to 1m",
    },
    Variable {
        name: "QIM_INSTANCE",
        used_by: Both,
        default: Unset("host name and process number"),
        reason: "differs for each process without anybody's care",
        meaning: "what this process is called where others see it: 1 to 128 bytes",
    },
    Variable {
        name: "QIM_LISTEN_ADDR",
        used_by: Writer,
        default: Value("127.0.0.1:7400"),
        reason: "reachable from elsewhere only when somebody says so",
        meaning: "where gRPC is served: IP:PORT",
    },
    Variable {
        name: "QIM_TLS_CERT_FILE",
        used_by: Writer,
        default: Unset("no TLS"),
        reason: "there is no certificate to start with",
        meaning: "the certificate chain of the gRPC listener, PEM; together with QIM_TLS_KEY_FILE",
    },
    Variable {
        name: "QIM_TLS_KEY_FILE",
        used_by: Writer,
        default: Unset("no TLS"),
        reason: "there is no certificate to start with",
        meaning: "the private key of the gRPC listener, PEM; together with QIM_TLS_CERT_FILE",
    },
    Variable {
        name: "QIM_TLS_CLIENT_CA_FILE",
        used_by: Writer,
        default: Unset("clients need no certificate"),
        reason: "tokens say who a client is",
        meaning: "clients of gRPC need a certificate of one of these authorities, PEM; together with QIM_TLS_CERT_FILE",
    },
    Variable {
        name: "QIM_TOKENS_FILE",
        used_by: Writer,
        default: Unset("no tokens: every client may do everything"),
        reason: "on the loopback of one machine there is nobody to tell apart",
        meaning: "the file that lists the tokens of clients, a JSON object a line: see docs/security.md",
    },
    Variable {
        name: "QIM_GC_INTERVAL",
        used_by: Writer,
        default: Value("5s"),
        reason: "how late an expired message may physically go (ADR-0019)",
        meaning: "how often the expiry GC runs: 100ms to 1m",
    },
    Variable {
        name: "QIM_PAYLOAD_BYTES_MAX",
        used_by: Writer,
        default: Value("65536"),
        reason: "far above any text; files belong elsewhere",
        meaning: "the largest payload of one message: 1 to 1048576",
    },
    Variable {
        name: "QIM_CONNECTIONS_MAX",
        used_by: Writer,
        default: Value("1000"),
        reason: "many times the gateways of a large system, and below the 1024 open files that a process has by default",
        meaning: "how many connections of clients there may be; one more is closed at once: 1 to 1000000",
    },
    Variable {
        name: "QIM_CONNECTION_REQUESTS_MAX",
        used_by: Writer,
        default: Value("1024"),
        reason: "as much as one connection gets through anyway",
        meaning: "how many requests may be under way on one connection; a client waits with more: 1 to 65536",
    },
    Variable {
        name: "QIM_REQUEST_MEMORY_MAX",
        used_by: Writer,
        default: Value("268435456"),
        reason: "a quarter of it, which one connection may have, takes eight of the largest requests at once",
        meaning: "how many bytes requests under way may take, and answers that nobody takes, a quarter of it on one \
                  connection; more is refused: 67108864 to 4294967295",
    },
    Variable {
        name: "QIM_KEEPALIVE",
        used_by: Writer,
        default: Value("30s"),
        reason: "a client that vanished without a word is noticed within a minute",
        meaning: "after how long without a word a client is asked whether it is there, for 20 s: 1s to 10m",
    },
    Variable {
        name: "QIM_COMPRESSION",
        used_by: Writer,
        default: Value("zstd"),
        reason: "memory is what a hot tier costs, and chat takes a third less of it",
        meaning: "how payloads are stored from now on, in both tiers: zstd, each by itself where that makes it smaller, with \
                  the dictionary in use where one was trained; or off",
    },
    Variable {
        name: "QIM_DICTIONARY_REFRESH",
        used_by: Writer,
        default: Value("1m"),
        reason: "a new dictionary is in use soon after its training, at a small read a minute",
        meaning: "how often the writer looks for a new dictionary: 1s to 1h",
    },
    Variable {
        name: "QIM_COMMIT_DURABILITY",
        used_by: Writer,
        default: Value("memory"),
        reason: "what Redis loses of the last second a living writer puts back",
        meaning: "when a message is acknowledged: memory, when Redis has it; fsync, when it is on the disk of Redis; or \
                  replicated:N, when N replicas (1 to 5) have it, too",
    },
    Variable {
        name: "QIM_RECENT_BYTES_MAX",
        used_by: Writer,
        default: Value("67108864"),
        reason: "minutes of a busy writer's messages, and a small part of its machine",
        meaning: "how many bytes of acknowledged messages that the archive may not have are remembered, to be put back \
                  where Redis loses them: 0 to 4294967295; 0 remembers none",
    },
    Variable {
        name: "QIM_COPY_DELAY",
        used_by: Archiver,
        default: Value("2s"),
        reason: "lets a burst be copied as one batch, and is all that a lost Redis can cost",
        meaning: "how soon after its commit a message is copied to the archive: 0s to 1h",
    },
];
