//! From text to typed values. Goes on after a bad one, so that all are reported.

use std::str::FromStr;
use std::time::Duration;

use qim_access::TokenDigest;
use qim_core::{InvalidUrl, ShardCount};

use super::environment::Raw;
use super::value::{self, Parsed};
use super::{
    ArchiverConfig, ConfigFaults, DaemonConfig, Environment, Fault, SharedConfig, UsedBy, VARIABLES,
    Variable, WriterConfig,
};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const PAYLOAD_BYTES_MAX_LIMIT: u32 = 1_048_576;
const SHARDS_LIMIT: u32 = 4096;
const CONNECTIONS_LIMIT: u32 = 1_000_000;
const CONNECTION_REQUESTS_LIMIT: u32 = 65_536;
/// A quarter of it, the share of a connection, holds the largest request and the largest page.
const REQUEST_MEMORY_MIN: u32 = 64 * 1024 * 1024;

impl DaemonConfig for WriterConfig {
    const PROGRAM: &'static str = "qim-writer";
    const ABOUT: &'static str =
        "Commits messages to the hot tier, serves their history, and collects what expired.";
    const USED_BY: UsedBy = UsedBy::Writer;

    fn from_environment(environment: &Environment) -> Result<Self, ConfigFaults> {
        let (raw, mut check) = Check::start(environment, Self::USED_BY);
        let shared = check.shared(&raw);
        let tls = check.tls(&raw);
        let config = Self {
            listen_addr: check.listen_addr(&raw, shared.allow_plaintext),
            gc_interval: check.duration(
                "QIM_GC_INTERVAL",
                raw.gc_interval.as_deref(),
                (Duration::from_millis(100), MINUTE),
            ),
            payload_bytes_max: check.value(
                "QIM_PAYLOAD_BYTES_MAX",
                raw.payload_bytes_max.as_deref(),
                |text| value::whole_number(text, 1..=PAYLOAD_BYTES_MAX_LIMIT).map(|bytes| bytes as usize),
            ),
            connections_max: check.value("QIM_CONNECTIONS_MAX", raw.connections_max.as_deref(), |text| {
                value::whole_number(text, 1..=CONNECTIONS_LIMIT).map(|count| count as usize)
            }),
            connection_requests_max: check.value(
                "QIM_CONNECTION_REQUESTS_MAX",
                raw.connection_requests_max.as_deref(),
                |text| value::whole_number(text, 1..=CONNECTION_REQUESTS_LIMIT),
            ),
            request_memory_max: check.value(
                "QIM_REQUEST_MEMORY_MAX",
                raw.request_memory_max.as_deref(),
                |text| value::whole_number(text, REQUEST_MEMORY_MIN..=u32::MAX).map(|bytes| bytes as usize),
            ),
            keepalive: check.duration(
                "QIM_KEEPALIVE",
                raw.keepalive.as_deref(),
                (Duration::from_secs(1), 10 * MINUTE),
            ),
            compression: check.value("QIM_COMPRESSION", raw.compression.as_deref(), value::compression),
            dictionary_refresh: check.duration(
                "QIM_DICTIONARY_REFRESH",
                raw.dictionary_refresh.as_deref(),
                (Duration::from_secs(1), HOUR),
            ),
            commit_durability: check.value(
                "QIM_COMMIT_DURABILITY",
                raw.commit_durability.as_deref(),
                value::commit_durability,
            ),
            recent_bytes_max: check.value("QIM_RECENT_BYTES_MAX", raw.recent_bytes_max.as_deref(), |text| {
                value::whole_number(text, 0..=u32::MAX).map(|bytes| bytes as usize)
            }),
            tls,
            tokens: check.tokens(&raw),
            shared,
        };
        check.finish(config)
    }

    fn shared(&self) -> &SharedConfig {
        &self.shared
    }

    fn effective(&self) -> Vec<(&'static str, String)> {
        [self.shared.effective(), self.effective_own()].concat()
    }
}

impl DaemonConfig for ArchiverConfig {
    const PROGRAM: &'static str = "qim-archiver";
    const ABOUT: &'static str = "Copies messages to the archive tier, and trims the hot tier to its window.";
    const USED_BY: UsedBy = UsedBy::Archiver;

    fn from_environment(environment: &Environment) -> Result<Self, ConfigFaults> {
        let (raw, mut check) = Check::start(environment, Self::USED_BY);
        let config = Self {
            shared: check.shared(&raw),
            copy_delay: check.duration("QIM_COPY_DELAY", raw.copy_delay.as_deref(), (Duration::ZERO, HOUR)),
        };
        check.finish(config)
    }

    fn shared(&self) -> &SharedConfig {
        &self.shared
    }

    fn effective(&self) -> Vec<(&'static str, String)> {
        [self.shared.effective(), self.effective_own()].concat()
    }
}

/// Collects faults. Where a value is bad, its default stands in until [`Check::finish`] refuses the whole.
pub(super) struct Check<'a> {
    pub(super) environment: &'a Environment,
    daemon: UsedBy,
    faults: Vec<Fault>,
}

impl<'a> Check<'a> {
    fn start(environment: &'a Environment, daemon: UsedBy) -> (Raw, Self) {
        let not_text = VARIABLES
            .iter()
            .filter(|variable| variable.used_by.includes(daemon) && environment.is_not_text(variable.name))
            .map(|variable| Fault {
                variable: variable.name,
                problem: "its value is not UTF-8 text".to_owned(),
            });
        (environment.raw(), Self { environment, daemon, faults: not_text.collect() })
    }

    fn finish<T>(self, config: T) -> Result<T, ConfigFaults> {
        if self.faults.is_empty() { Ok(config) } else { Err(ConfigFaults(self.faults)) }
    }

    pub(super) fn fault(&mut self, variable: &'static str, problem: impl Into<String>) {
        self.faults.push(Fault { variable, problem: problem.into() });
    }

    pub(super) fn value<T>(
        &mut self,
        name: &'static str,
        raw: Option<&str>,
        parse: impl Fn(&str) -> Parsed<T>,
    ) -> T {
        match raw.map(&parse) {
            Some(Ok(value)) => return value,
            Some(Err(problem)) => self.fault(name, problem),
            None => {}
        }
        let default = Variable::named(name).and_then(|variable| variable.default_in(self.daemon));
        parse(default.expect("has a default")).expect("a default is valid")
    }

    fn duration(
        &mut self,
        name: &'static str,
        raw: Option<&str>,
        (min, max): (Duration, Duration),
    ) -> Duration {
        self.value(name, raw, |text| value::duration(text, min..=max))
    }

    fn shared(&mut self, raw: &Raw) -> SharedConfig {
        let millis = Duration::from_millis;
        let allow_plaintext =
            self.value("QIM_ALLOW_PLAINTEXT", raw.allow_plaintext.as_deref(), value::boolean);
        let redis_url = self.url(
            ["QIM_REDIS_URL", "QIM_REDIS_URL_FILE"],
            [raw.redis_url.as_deref(), raw.redis_url_file.as_deref()],
        );
        let archive_url = self.url(
            ["QIM_ARCHIVE_URL", "QIM_ARCHIVE_URL_FILE"],
            [raw.archive_url.as_deref(), raw.archive_url_file.as_deref()],
        );
        SharedConfig {
            default_history_retention: self.value(
                "QIM_DEFAULT_HISTORY_RETENTION_DAYS",
                raw.default_history_retention_days.as_deref(),
                value::retention_days,
            ),
            hot_window: self.duration("QIM_HOT_WINDOW", raw.hot_window.as_deref(), (HOUR, 90 * DAY)),
            redis_tls: self.redis_tls(raw, &redis_url),
            redis_url,
            redis_timeout: self.duration(
                "QIM_REDIS_TIMEOUT",
                raw.redis_timeout.as_deref(),
                (millis(50), MINUTE),
            ),
            archive_tls: self.archive_tls(raw, &archive_url),
            archive_url,
            archive_timeout: self.duration(
                "QIM_ARCHIVE_TIMEOUT",
                raw.archive_timeout.as_deref(),
                (millis(100), MINUTE),
            ),
            shards: self.value("QIM_SHARDS", raw.shards.as_deref(), shards),
            admin_addr: self.admin_addr(raw, allow_plaintext),
            shutdown_grace: self.duration(
                "QIM_SHUTDOWN_GRACE",
                raw.shutdown_grace.as_deref(),
                (Duration::from_secs(1), 10 * MINUTE),
            ),
            log_filter: self.value("QIM_LOG", raw.log.as_deref(), value::log_filter),
            log_format: self.value("QIM_LOG_FORMAT", raw.log_format.as_deref(), value::log_format),
            allow_plaintext,
            reload_interval: self.duration(
                "QIM_RELOAD_INTERVAL",
                raw.reload_interval.as_deref(),
                (Duration::from_secs(1), MINUTE),
            ),
            instance: self.instance(raw),
        }
    }

    /// From the variable itself, or from the file that the other one names; the content of a file is never shown.
    fn url<T: FromStr<Err = InvalidUrl>>(&mut self, names: [&'static str; 2], raw: [Option<&str>; 2]) -> T {
        let [name, file_name] = names;
        let parse = |text: &str| text.parse::<T>().map_err(|error| error.to_string());
        let [direct, path] = raw;
        let Some(path) = path else { return self.value(name, direct, parse) };
        if direct.is_some() {
            self.fault(name, format!("is set together with {file_name}; set only one of them"));
            return self.value(name, None, parse);
        }
        let problem = match self.environment.file(file_name) {
            Err(error) => format!("{} cannot be read: {error}", shown_path(path)),
            Ok(content) => match content.trim().parse::<T>() {
                Ok(url) => return url,
                Err(error) => format!("the content of {path:?} {}", error.problem()),
            },
        };
        self.fault(file_name, problem);
        self.value(name, None, parse)
    }

    fn instance(&mut self, raw: &Raw) -> String {
        match raw.instance.as_deref().map(value::instance) {
            Some(Ok(instance)) => instance,
            Some(Err(problem)) => {
                self.fault("QIM_INSTANCE", problem);
                String::new()
            }
            None => self.environment.default_instance().to_owned(),
        }
    }
}

fn shards(text: &str) -> Parsed<ShardCount> {
    let count = value::whole_number(text, 1..=SHARDS_LIMIT)?;
    Ok(u16::try_from(count).ok().and_then(ShardCount::new).expect("1..=4096 are shard counts"))
}

/// A path, quoted; but not what looks like the secret itself in the place of the path to it.
pub(super) fn shown_path(path: &str) -> String {
    let looks_like_content = path.contains("://")
        || path.contains('@')
        || path.contains(char::is_control)
        || TokenDigest::of_text(path).is_some();
    if looks_like_content { "the value, which is no path,".to_owned() } else { format!("{path:?}") }
}
