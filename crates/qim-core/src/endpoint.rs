use std::fmt::{self, Write as _};
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::str::FromStr;

const CQL_PORT: u16 = 9042;
const REDIS_PORT: u16 = 6379;
const REPLICATION_FACTOR_MAX: u8 = 9;
/// Longest keyspace name that Cassandra and `ScyllaDB` take.
const KEYSPACE_BYTES_MAX: usize = 48;
/// Query parameters that are known, and so known to be no secret.
const PUBLIC_PARAMETERS: [&str; 2] = ["protocol", "replication_factor"];

/// Where the archive tier is: `scylla://[USER:PASSWORD@]HOST[:PORT][,HOST…]/KEYSPACE[?replication_factor=N]`, the same
/// with `scyllas://` (TLS), or `sqlite:PATH`. Shown without its password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArchiveUrl {
    /// A cluster that speaks CQL: `ScyllaDB` or Cassandra.
    Scylla(ScyllaUrl),
    /// One file, for both daemons on one host.
    Sqlite(PathBuf),
}

/// A keyspace of a CQL cluster. Shown without its password.
#[derive(Clone, PartialEq, Eq)]
pub struct ScyllaUrl {
    /// Connections are over TLS.
    pub tls: bool,
    /// `host:port` of the nodes to ask first; the driver finds the others.
    pub nodes: Vec<String>,
    /// A letter, then letters, digits and `_`; at most 48.
    pub keyspace: String,
    /// 1..=9, used when the keyspace is created.
    pub replication_factor: u8,
    /// Given together with the password, or not at all.
    pub user: Option<String>,
    /// Percent-decoded.
    pub password: Option<String>,
}

/// Where the hot tier is: `redis://…`, `rediss://…` (TLS), or `redis-cluster://[USER:PASSWORD@]HOST[:PORT][,HOST…]`
/// and `rediss-cluster://…`. Shown without its password.
#[derive(Clone, PartialEq, Eq)]
pub enum RedisUrl {
    /// One server: a URL as the redis crate takes it.
    Single(String),
    /// Some nodes of a Redis Cluster: a URL for each, credentials repeated.
    Cluster(Vec<String>),
}

/// Why a text is not such a URL. Holds no secret: the text is redacted, and the problem never quotes it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{redacted:?} {problem}")]
pub struct InvalidUrl {
    redacted: String,
    problem: &'static str,
}

impl InvalidUrl {
    /// What is wrong and what is allowed, as the rest of a sentence that starts with the name of the value.
    pub const fn problem(&self) -> &'static str {
        self.problem
    }
}

impl FromStr for ArchiveUrl {
    type Err = InvalidUrl;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = match text.strip_prefix("sqlite:") {
            Some(path) => sqlite_path(path).map(Self::Sqlite),
            None => scylla(text).map(Self::Scylla),
        };
        parsed.map_err(|problem| InvalidUrl { redacted: redact(text), problem })
    }
}

impl ArchiveUrl {
    /// Whether connections are over TLS.
    pub fn is_tls(&self) -> bool {
        matches!(self, Self::Scylla(url) if url.tls)
    }
}

impl fmt::Display for ArchiveUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scylla(url) => url.fmt(f),
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
        }
    }
}

impl fmt::Display for ScyllaUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.tls { "scyllas://" } else { "scylla://" })?;
        if let Some(user) = &self.user {
            write!(f, "{user}:***@")?;
        }
        let (nodes, keyspace) = (self.nodes.join(","), &self.keyspace);
        write!(f, "{nodes}/{keyspace}?replication_factor={}", self.replication_factor)
    }
}

impl fmt::Debug for ScyllaUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for RedisUrl {
    type Err = InvalidUrl;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        redis(text).map_err(|problem| InvalidUrl { redacted: redact(text), problem })
    }
}

impl RedisUrl {
    /// Whether connections are over TLS.
    pub fn is_tls(&self) -> bool {
        let is_tls = |url: &String| url.starts_with("rediss:");
        match self {
            Self::Single(url) => is_tls(url),
            Self::Cluster(urls) => urls.iter().all(is_tls),
        }
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Single(url) => f.write_str(&redact(url)),
            Self::Cluster(urls) => {
                for (i, url) in urls.iter().enumerate() {
                    let shown = redact(url);
                    let (scheme, rest) = shown.split_once("://").unwrap_or(("redis", &shown));
                    match i {
                        0 => write!(f, "{scheme}-cluster://{rest}")?,
                        _ => write!(f, ",{}", rest.rsplit_once('@').map_or(rest, |(_, host)| host))?,
                    }
                }
                Ok(())
            }
        }
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

type Parsed<T> = Result<T, &'static str>;

fn sqlite_path(path: &str) -> Parsed<PathBuf> {
    if path.is_empty() {
        return Err("names no file; write sqlite:PATH, for example sqlite:/var/lib/qim/archive.db");
    }
    if path.starts_with("//") {
        return Err("has // before the path; write sqlite:PATH, for example sqlite:/var/lib/qim/archive.db");
    }
    // SQLite reads these as databases in memory, which end with the process.
    if path.starts_with(':') || path.starts_with("file:") {
        return Err("is not a path; write sqlite:PATH, for example sqlite:/var/lib/qim/archive.db");
    }
    if path.ends_with('/') || path.contains(char::is_control) {
        return Err("does not name a file; write sqlite:PATH, for example sqlite:/var/lib/qim/archive.db");
    }
    Ok(path.into())
}

fn scylla(text: &str) -> Parsed<ScyllaUrl> {
    const SCHEMES: &str = "has another scheme; allowed are scylla://HOST[:PORT][,HOST…]/KEYSPACE, scyllas:// (TLS) and \
                           sqlite:PATH (there is no object-storage tier)";
    let url = Parts::split(text).ok_or(SCHEMES)?;
    let tls = match url.scheme {
        "scylla" => false,
        "scyllas" => true,
        _ => return Err(SCHEMES),
    };
    url.check_characters()?;
    let (user, password) = url.credentials()?;
    if user.is_some() != password.is_some() {
        return Err("needs both a user and a password, or neither");
    }
    let keyspace = url.path.unwrap_or_default();
    if !is_keyspace(keyspace) {
        return Err(
            "needs a keyspace after the hosts, as in scylla://HOST/KEYSPACE: a letter, then letters, \
                    digits and _, at most 48",
        );
    }
    let replication_factor = match url.query {
        None => 1,
        Some(query) => replication_factor(query)
            .ok_or("has a query other than ?replication_factor=N with a whole number from 1 to 9")?,
    };
    if url.fragment.is_some() {
        return Err("has a # part; there is none in scylla://HOST[:PORT][,HOST…]/KEYSPACE");
    }
    let nodes = host_ports(url.hosts, CQL_PORT)?;
    Ok(ScyllaUrl { tls, nodes, keyspace: keyspace.to_owned(), replication_factor, user, password })
}

fn is_keyspace(name: &str) -> bool {
    name.len() <= KEYSPACE_BYTES_MAX
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn replication_factor(query: &str) -> Option<u8> {
    let factor = query.strip_prefix("replication_factor=")?;
    let digits = factor.bytes().all(|b| b.is_ascii_digit());
    factor.parse().ok().filter(|n| digits && matches!(n, 1..=REPLICATION_FACTOR_MAX))
}

fn redis(text: &str) -> Parsed<RedisUrl> {
    const SCHEMES: &str = "has another scheme; allowed are redis://, rediss:// (TLS), redis-cluster:// and \
                           rediss-cluster://, each with HOST[:PORT]";
    let url = Parts::split(text).ok_or(SCHEMES)?;
    match url.scheme {
        "redis" | "rediss" => redis_single(text, &url),
        "redis-cluster" => redis_cluster("redis", &url),
        "rediss-cluster" => redis_cluster("rediss", &url),
        _ => Err(SCHEMES),
    }
}

fn redis_single(text: &str, url: &Parts<'_>) -> Parsed<RedisUrl> {
    url.check_characters()?;
    url.credentials()?;
    if url.hosts.contains(',') {
        return Err("names several hosts; that is a cluster: redis-cluster://HOST[:PORT],HOST[:PORT]");
    }
    host_port(url.hosts, REDIS_PORT)?;
    let database = url.path.unwrap_or_default();
    if !database.is_empty() && !is_database_number(database) {
        return Err("has a path that is not the number of a database, as in redis://HOST/0");
    }
    if !matches!(url.query, None | Some("protocol=resp2" | "protocol=resp3")) {
        return Err("has a query other than ?protocol=resp2 or ?protocol=resp3");
    }
    match url.fragment {
        None => {}
        Some("insecure") if url.scheme == "rediss" => {}
        Some(_) => return Err("has a # part other than the #insecure of rediss://"),
    }
    Ok(RedisUrl::Single(text.to_owned()))
}

fn is_database_number(path: &str) -> bool {
    path.bytes().all(|b| b.is_ascii_digit()) && path.parse::<u16>().is_ok()
}

fn redis_cluster(scheme: &str, url: &Parts<'_>) -> Parsed<RedisUrl> {
    url.check_characters()?;
    url.credentials()?;
    if !matches!(url.path, None | Some("")) || url.query.is_some() || url.fragment.is_some() {
        return Err("has something after the hosts; a cluster has only database 0 and no options");
    }
    let credentials = url.userinfo.map(|userinfo| format!("{userinfo}@")).unwrap_or_default();
    let hosts = host_ports(url.hosts, REDIS_PORT)?;
    Ok(RedisUrl::Cluster(hosts.iter().map(|host| format!("{scheme}://{credentials}{host}")).collect()))
}

/// `scheme://userinfo@hosts/path?query#fragment`, cut but not yet checked.
struct Parts<'a> {
    scheme: &'a str,
    userinfo: Option<&'a str>,
    hosts: &'a str,
    path: Option<&'a str>,
    query: Option<&'a str>,
    fragment: Option<&'a str>,
}

impl<'a> Parts<'a> {
    fn split(text: &'a str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let (rest, fragment) = cut(rest, '#');
        let (rest, query) = cut(rest, '?');
        let (authority, path) = cut(rest, '/');
        let (userinfo, hosts) = match authority.rsplit_once('@') {
            Some((userinfo, hosts)) => (Some(userinfo), hosts),
            None => (None, authority),
        };
        Some(Self { scheme, userinfo, hosts, path, query, fragment })
    }

    fn check_characters(&self) -> Parsed<()> {
        let after_hosts = [self.path, self.query, self.fragment];
        if after_hosts.into_iter().flatten().any(|part| part.contains('@')) {
            return Err(
                "has an @ after the hosts; in a user or a password, / ? # and @ are written %2F %3F %23 \
                        and %40",
            );
        }
        let parts = [self.userinfo, Some(self.hosts)].into_iter().chain(after_hosts);
        if parts.flatten().any(|part| part.contains(|c: char| c.is_whitespace() || c.is_control())) {
            return Err("holds white space or a control character");
        }
        Ok(())
    }

    /// User and password, percent-decoded; an empty one is none.
    fn credentials(&self) -> Parsed<(Option<String>, Option<String>)> {
        let (user, password) = self.userinfo.map_or(("", None), |userinfo| cut(userinfo, ':'));
        let decode =
            |text| percent_decode(text).ok_or("has a % in its user or password that is not %25 or the like");
        let decoded = (decode(user)?, decode(password.unwrap_or_default())?);
        let given = |text: String| Some(text).filter(|text| !text.is_empty());
        Ok((given(decoded.0), given(decoded.1)))
    }
}

fn cut(text: &str, at: char) -> (&str, Option<&str>) {
    text.split_once(at).map_or((text, None), |(before, after)| (before, Some(after)))
}

/// `None` for a `%` without two hexadecimal digits, and for what is not text in the end.
fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || rest.next().and_then(|b| char::from(b).to_digit(16));
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok().filter(|text| !text.contains(char::is_control))
}

fn host_ports(hosts: &str, default_port: u16) -> Parsed<Vec<String>> {
    hosts.split(',').map(|host| host_port(host, default_port)).collect()
}

fn host_port(text: &str, default_port: u16) -> Parsed<String> {
    const HOST: &str =
        "has an empty or malformed host; allowed are names, IPv4 addresses and [IPv6 addresses]";
    let (host, port) = match text.strip_prefix('[').and_then(|v6| v6.split_once(']')) {
        Some((v6, "")) if v6.parse::<Ipv6Addr>().is_ok() => (&text[..v6.len() + 2], None),
        Some((v6, rest)) if v6.parse::<Ipv6Addr>().is_ok() => {
            (&text[..v6.len() + 2], Some(rest.strip_prefix(':').ok_or(HOST)?))
        }
        Some(_) => return Err(HOST),
        None => cut(text, ':'),
    };
    let is_name = |name: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_".contains(&b));
    if host.is_empty() || (!host.starts_with('[') && !is_name(host)) {
        return Err(HOST);
    }
    let port = match port {
        None => default_port,
        Some(port) if port.bytes().all(|b| b.is_ascii_digit()) => port.parse().unwrap_or(0),
        Some(_) => 0,
    };
    if port == 0 {
        return Err("has a port that is not a number from 1 to 65535");
    }
    Ok(format!("{host}:{port}"))
}

/// The text without what may be a secret, also where it is no URL at all: what stands before the last `@` (but for
/// a user ahead of a password), a port that is no number, and query parameters that are not known.
fn redact(text: &str) -> String {
    let (scheme, rest) = text.split_once("://").map_or((None, text), |(scheme, rest)| (Some(scheme), rest));
    let mut shown = scheme.map(|scheme| format!("{scheme}://")).unwrap_or_default();
    let rest = match rest.rsplit_once('@') {
        Some((userinfo, rest)) => {
            let user =
                userinfo.split_once(':').map(|(user, _)| user).filter(|user| !user.contains(['/', '?', '#']));
            let _ = write!(shown, "{}***@", user.map(|user| format!("{user}:")).unwrap_or_default());
            rest
        }
        None => rest,
    };
    let (rest, query) = cut(rest, '?');
    let (authority, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
    match authority.rsplit_once(':') {
        Some((host, port)) if scheme.is_some() && !port.bytes().all(|b| b.is_ascii_digit() || b == b']') => {
            let _ = write!(shown, "{host}:***");
        }
        _ => shown.push_str(authority),
    }
    shown.push_str(path);
    if let Some(query) = query {
        let public = PUBLIC_PARAMETERS.iter().any(|name| query.starts_with(&format!("{name}=")));
        let _ = write!(shown, "?{}", if public && !query.contains('&') { query } else { "***" });
    }
    shown
}

#[cfg(test)]
#[path = "endpoint_tests.rs"]
mod tests;
