//! The configuration in effect, as text in the form in which it could be set.

use std::time::Duration;

use qim_core::Compression;

use super::{ArchiverConfig, LogFormat, SharedConfig, WriterConfig};

/// In the largest unit that it is a whole number of: `7d`, `90s`, `500ms`.
pub fn format_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    if millis == 0 {
        return "0s".to_owned();
    }
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")];
    let (unit_millis, unit) = units
        .into_iter()
        .find(|(unit_millis, _)| millis.is_multiple_of(*unit_millis))
        .expect("1 divides all");
    format!("{}{unit}", millis / unit_millis)
}

impl SharedConfig {
    pub(super) fn effective(&self) -> Vec<(&'static str, String)> {
        vec![
            ("QIM_DEFAULT_HISTORY_RETENTION_DAYS", self.default_history_retention.to_string()),
            ("QIM_HOT_WINDOW", format_duration(self.hot_window)),
            ("QIM_REDIS_URL", self.redis_url.to_string()),
            ("QIM_REDIS_TIMEOUT", format_duration(self.redis_timeout)),
            ("QIM_ARCHIVE_URL", self.archive_url.to_string()),
            ("QIM_ARCHIVE_TIMEOUT", format_duration(self.archive_timeout)),
            ("QIM_SHARDS", self.shards.get().to_string()),
            ("QIM_ADMIN_ADDR", self.admin_addr.to_string()),
            ("QIM_SHUTDOWN_GRACE", format_duration(self.shutdown_grace)),
            ("QIM_LOG", self.log_filter.clone()),
            ("QIM_LOG_FORMAT", self.log_format.name().to_owned()),
            ("QIM_ALLOW_PLAINTEXT", self.allow_plaintext.to_string()),
            ("QIM_RELOAD_INTERVAL", format_duration(self.reload_interval)),
            ("QIM_INSTANCE", self.instance.clone()),
        ]
    }
}

impl WriterConfig {
    pub(super) fn effective_own(&self) -> Vec<(&'static str, String)> {
        let mut own = vec![
            ("QIM_LISTEN_ADDR", self.listen_addr.to_string()),
            ("QIM_GC_INTERVAL", format_duration(self.gc_interval)),
            ("QIM_PAYLOAD_BYTES_MAX", self.payload_bytes_max.to_string()),
            ("QIM_CONNECTIONS_MAX", self.connections_max.to_string()),
            ("QIM_CONNECTION_REQUESTS_MAX", self.connection_requests_max.to_string()),
            ("QIM_REQUEST_MEMORY_MAX", self.request_memory_max.to_string()),
            ("QIM_KEEPALIVE", format_duration(self.keepalive)),
            ("QIM_COMPRESSION", compression_name(self.compression).to_owned()),
            ("QIM_DICTIONARY_REFRESH", format_duration(self.dictionary_refresh)),
            ("QIM_COMMIT_DURABILITY", self.commit_durability.to_string()),
            ("QIM_RECENT_BYTES_MAX", self.recent_bytes_max.to_string()),
        ];
        if let Some(tls) = &self.tls {
            own.push(("QIM_TLS_CERT_FILE", tls.cert_file.display().to_string()));
            own.push(("QIM_TLS_KEY_FILE", tls.key_file.display().to_string()));
            let client_ca = tls.client_ca_file.iter();
            own.extend(client_ca.map(|file| ("QIM_TLS_CLIENT_CA_FILE", file.display().to_string())));
        }
        let tokens = self.tokens.iter();
        own.extend(tokens.map(|tokens| ("QIM_TOKENS_FILE", tokens.path.display().to_string())));
        own
    }
}

impl ArchiverConfig {
    pub(super) fn effective_own(&self) -> Vec<(&'static str, String)> {
        vec![("QIM_COPY_DELAY", format_duration(self.copy_delay))]
    }
}

const fn compression_name(compression: Compression) -> &'static str {
    match compression {
        Compression::Off => "off",
        Compression::Zstd => "zstd",
    }
}

impl LogFormat {
    const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}
