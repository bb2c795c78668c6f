use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;

use serde::Deserialize;

use super::Variable;

const PREFIX: &str = "QIM_";
/// Variables of the tests, which may be set wherever daemons are started by hand.
const TEST_PREFIX: &str = "QIM_TEST_";
/// Variables that name a file. It is read together with the environment, so that validation needs no I/O.
const FILE_VARIABLES: [&str; 12] = [
    "QIM_REDIS_URL_FILE",
    "QIM_REDIS_CA_FILE",
    "QIM_REDIS_CLIENT_CERT_FILE",
    "QIM_REDIS_CLIENT_KEY_FILE",
    "QIM_ARCHIVE_URL_FILE",
    "QIM_ARCHIVE_CA_FILE",
    "QIM_ARCHIVE_CLIENT_CERT_FILE",
    "QIM_ARCHIVE_CLIENT_KEY_FILE",
    "QIM_TLS_CERT_FILE",
    "QIM_TLS_KEY_FILE",
    "QIM_TLS_CLIENT_CA_FILE",
    "QIM_TOKENS_FILE",
];

/// What the process was given, taken once: the `QIM_…` variables, and the files that some of them name.
pub struct Environment {
    values: BTreeMap<String, String>,
    not_text: BTreeSet<String>,
    unknown: Vec<String>,
    files: BTreeMap<&'static str, Result<String, String>>,
    default_instance: String,
}

/// The variables as text, where they are set. envy fills it by the names of the fields.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Raw {
    pub(super) default_history_retention_days: Option<String>,
    pub(super) hot_window: Option<String>,
    pub(super) redis_url: Option<String>,
    pub(super) redis_url_file: Option<String>,
    pub(super) redis_ca_file: Option<String>,
    pub(super) redis_client_cert_file: Option<String>,
    pub(super) redis_client_key_file: Option<String>,
    pub(super) redis_timeout: Option<String>,
    pub(super) archive_url: Option<String>,
    pub(super) archive_url_file: Option<String>,
    pub(super) archive_ca_file: Option<String>,
    pub(super) archive_client_cert_file: Option<String>,
    pub(super) archive_client_key_file: Option<String>,
    pub(super) archive_timeout: Option<String>,
    pub(super) shards: Option<String>,
    pub(super) admin_addr: Option<String>,
    pub(super) shutdown_grace: Option<String>,
    pub(super) log: Option<String>,
    pub(super) log_format: Option<String>,
    pub(super) allow_plaintext: Option<String>,
    pub(super) instance: Option<String>,
    pub(super) listen_addr: Option<String>,
    pub(super) tls_cert_file: Option<String>,
    pub(super) tls_key_file: Option<String>,
    pub(super) tls_client_ca_file: Option<String>,
    pub(super) tokens_file: Option<String>,
    pub(super) reload_interval: Option<String>,
    pub(super) gc_interval: Option<String>,
    pub(super) payload_bytes_max: Option<String>,
    pub(super) connections_max: Option<String>,
    pub(super) connection_requests_max: Option<String>,
    pub(super) request_memory_max: Option<String>,
    pub(super) keepalive: Option<String>,
    pub(super) compression: Option<String>,
    pub(super) dictionary_refresh: Option<String>,
    pub(super) copy_delay: Option<String>,
}

impl Environment {
    /// The environment of this process.
    pub fn of_process() -> Self {
        Self::from_pairs(std::env::vars_os())
    }

    /// The same from any list of names and values.
    pub fn from_pairs<N: Into<OsString>, V: Into<OsString>>(pairs: impl IntoIterator<Item = (N, V)>) -> Self {
        let mut environment = Self {
            values: BTreeMap::new(),
            not_text: BTreeSet::new(),
            unknown: Vec::new(),
            files: BTreeMap::new(),
            default_instance: default_instance(),
        };
        for (name, value) in pairs {
            let name = name.into().to_string_lossy().into_owned();
            if name.starts_with(PREFIX) && !name.starts_with(TEST_PREFIX) {
                environment.add(name, value.into());
            }
        }
        environment.unknown.sort_unstable();
        environment
    }

    /// `QIM_…` variables that no daemon reads, sorted: most likely misspelt.
    pub fn unknown(&self) -> &[String] {
        &self.unknown
    }

    fn add(&mut self, name: String, value: OsString) {
        if Variable::named(&name).is_none() {
            self.unknown.push(name);
            return;
        }
        let Ok(value) = value.into_string() else {
            self.not_text.insert(name);
            return;
        };
        if let Some(variable) = FILE_VARIABLES.into_iter().find(|variable| *variable == name) {
            self.files.insert(variable, fs::read_to_string(&value).map_err(|error| error.to_string()));
        }
        self.values.insert(name, value);
    }

    pub(super) fn raw(&self) -> Raw {
        // Names are all known and differ, and any text fits an optional string.
        envy::prefixed(PREFIX).from_iter(self.values.clone()).expect("a flat struct of optional strings")
    }

    pub(super) fn is_not_text(&self, name: &str) -> bool {
        self.not_text.contains(name)
    }

    /// The content of the file that this variable names, or why it cannot be read.
    pub(super) fn file(&self, variable: &str) -> Result<&str, &str> {
        match self.files.get(variable) {
            Some(Ok(content)) => Ok(content),
            Some(Err(error)) => Err(error),
            None => Err("was not read"),
        }
    }

    pub(super) fn default_instance(&self) -> &str {
        &self.default_instance
    }
}

fn default_instance() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { "localhost" } else { host.trim() };
    format!("{host}-{}", std::process::id())
}
