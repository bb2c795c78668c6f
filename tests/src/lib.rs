//! What the black-box tests share: a writer and an archiver as processes on a Redis and an archive of their own, driven
//! through gRPC and the command `qim` as users do.

mod fleet;
mod tokens;

use std::path::PathBuf;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use qim_proto::v1;
use qim_proto::v1::history_client::HistoryClient;
use qim_testkit::{Daemon, Ended, Launch, RedisServer, eventually};
use serde_json::Value;
use tonic::transport::Channel;

pub use fleet::{Fleet, FleetClient};
pub use tokens::{TokenFile, token, with_token};

/// Longer than anything takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// A day in milliseconds.
pub const DAY_MS: i64 = 86_400_000;

/// Both daemons on servers of their own. All of it ends with it.
pub struct Pair {
    /// `qim-archiver`; first, so that it ends before what it works on.
    pub archiver: Daemon,
    /// `qim-writer`.
    pub writer: Daemon,
    /// The hot tier.
    pub redis: RedisServer,
    /// Where the archive is.
    pub archive_url: String,
    /// Where the archive's file is.
    _dir: tempfile::TempDir,
}

/// How to start a [`Pair`].
pub struct PairOptions {
    archive_url: Option<String>,
    redis_url: fn(&RedisServer) -> String,
    environment: Vec<(&'static str, String)>,
    archiver_environment: Vec<(&'static str, String)>,
}

impl Pair {
    /// With SQLite as the archive and a quick copy.
    pub fn start() -> Self {
        Self::options().start()
    }

    /// To choose the archive and variables.
    pub fn options() -> PairOptions {
        PairOptions {
            archive_url: None,
            redis_url: RedisServer::url,
            environment: Vec::new(),
            archiver_environment: Vec::new(),
        }
    }

    /// A client of the writer.
    pub async fn client(&self) -> HistoryClient<Channel> {
        HistoryClient::connect(self.writer.grpc_url()).await.expect("the writer listens")
    }

    /// Runs `qim` against the writer, with `--json`.
    pub fn qim(&self, arguments: &[&str]) -> Ended {
        qim(&self.writer, arguments).run(PATIENCE * 2)
    }

    /// The last line that `qim` printed, as JSON; fails unless its status is 0.
    pub fn qim_json(&self, arguments: &[&str]) -> Value {
        let ended = self.qim(arguments);
        assert!(ended.status.success(), "{arguments:?}: {ended:?}");
        last_json(&ended)
    }

    /// Waits until the archive has everything and nothing that left the hot window is hot.
    pub fn await_settled(&self) {
        let archiver = |name: &str| self.archiver.metrics().get(name).unwrap_or(-1.0);
        eventually(PATIENCE, "the archiver has its shards", || archiver("qim_leases_held") > 0.0);
        await_settled(&self.redis);
    }

    /// Records in Redis, by its own count.
    pub fn hot_records(&self) -> i64 {
        counter(&self.redis, "committed") - counter(&self.redis, "removed")
    }
}

/// Waits until the archive has everything and nothing that left the hot window is hot.
pub fn await_settled(redis: &RedisServer) {
    eventually(PATIENCE, "everything is copied and trimmed", || {
        let (unarchived, oldest) = waiting(redis);
        unarchived == 0 && oldest.is_none_or(|created| created > now_ms() - 7 * DAY_MS)
    });
}

/// A call of `qim` against this writer, with `--json`.
pub fn qim(writer: &Daemon, arguments: &[&str]) -> Launch {
    let launch = Launch::program("qim").arg("--server").arg(writer.grpc_url()).arg("--json");
    arguments.iter().fold(launch, |launch, argument| launch.arg(*argument))
}

/// The last line of the output, as JSON.
pub fn last_json(ended: &Ended) -> Value {
    let line = ended.stdout.lines().last().unwrap_or_else(|| panic!("no output: {ended:?}"));
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

impl PairOptions {
    /// Another archive than a SQLite file.
    #[must_use]
    pub fn archive_url(mut self, url: impl Into<String>) -> Self {
        self.archive_url = Some(url.into());
        self
    }

    /// Another way into Redis, which may be prepared here.
    #[must_use]
    pub fn redis_url(mut self, url: fn(&RedisServer) -> String) -> Self {
        self.redis_url = url;
        self
    }

    /// A variable for both daemons.
    #[must_use]
    pub fn env(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.environment.push((name, value.into()));
        self
    }

    /// A variable for the archiver only.
    #[must_use]
    pub fn archiver_env(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.archiver_environment.push((name, value.into()));
        self
    }

    /// Starts Redis and both daemons, and waits until they are ready.
    pub fn start(self) -> Pair {
        let redis = RedisServer::options().append_only().start();
        let dir = tempfile::tempdir().expect("a temporary directory");
        let archive_url =
            self.archive_url.unwrap_or_else(|| format!("sqlite:{}", dir.path().join("archive.db").display()));
        let redis_url = (self.redis_url)(&redis);
        let launch = |launch: Launch| {
            let launch = launch.env("QIM_REDIS_URL", &redis_url).env("QIM_ARCHIVE_URL", &archive_url);
            self.environment.iter().fold(launch, |launch, (name, value)| launch.env(name, value))
        };
        let writer = launch(Launch::writer()).start();
        let archiver = launch(Launch::archiver()).env("QIM_COPY_DELAY", "0s");
        let archiver = self
            .archiver_environment
            .iter()
            .fold(archiver, |launch, (name, value)| launch.env(name, value))
            .start();
        Pair { archiver, writer, redis, archive_url, _dir: dir }
    }
}

/// A number that no other call in this process gets.
pub fn unique() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A keyspace of the test's own on the shared CQL server.
pub fn cql_keyspace() -> String {
    qim_testkit::cql_keyspace_url(&format!("qim_test_{}_{}", process::id(), unique()))
}

/// The time of day, as the daemons have it.
pub fn now_ms() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(since_epoch.as_millis()).expect("before the year 292 million")
}

/// A message with this id, for `Append`.
pub fn message(id: &str) -> v1::Message {
    v1::Message {
        sender: "alice".into(),
        client_msg_id: id.into(),
        payload: format!("body of {id}").into_bytes().into(),
        ..v1::Message::default()
    }
}

/// A page from the start of a conversation.
pub fn pull_all(conversation: &str) -> v1::PullRequest {
    v1::PullRequest { conversation: conversation.into(), limit: 500, ..v1::PullRequest::default() }
}

/// Chat as `qim demo` makes it, in a file that is removed with its owner's directory.
pub fn demo_file(daemon: &Daemon, messages: u32, seed: u32) -> PathBuf {
    let (messages, seed) = (messages.to_string(), seed.to_string());
    let ended = qim(daemon, &["demo", "--messages", &messages, "--seed", &seed]).run(PATIENCE);
    assert!(ended.status.success(), "{}", ended.stderr);
    let path = daemon.dir().join(format!("demo-{}.ndjson", unique()));
    std::fs::write(&path, ended.stdout).expect("a temporary directory can be written to");
    path
}

/// Over all shards: conversations that wait for their copy, and when the oldest hot record was created.
fn waiting(redis: &RedisServer) -> (usize, Option<i64>) {
    let mut unarchived = 0;
    let mut oldest: Option<i64> = None;
    for shard in 0..256 {
        let waiting = redis.command(&["ZCARD", &format!("qim:{{{shard}}}:unarchived")]);
        unarchived += usize::try_from(waiting.integer()).expect("a count");
        let front = redis.command(&["ZRANGE", &format!("qim:{{{shard}}}:trim"), "0", "0", "WITHSCORES"]);
        if let Some(score) = front.texts().get(1).and_then(|score| score.parse().ok()) {
            oldest = Some(oldest.map_or(score, |oldest: i64| oldest.min(score)));
        }
    }
    (unarchived, oldest)
}

fn counter(redis: &RedisServer, name: &str) -> i64 {
    let count = |shard: i32| {
        let count = redis.command(&["HGET", &format!("qim:{{{shard}}}:stats"), name]);
        count.texts().first().and_then(|count| count.parse::<i64>().ok()).unwrap_or(0)
    };
    (0..256).map(count).sum()
}
