use std::time::Duration;

use qim_core::{ClientTls, RedisUrl};
use redis::aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{
    Client, ClientTlsConfig, Cmd, ErrorKind, FromRedisValue, IntoConnectionInfo, Pipeline, RedisFuture,
    RedisResult, ServerErrorKind, TlsCertificates, Value,
};

use super::HotError;
use super::cluster::{Cluster, is_silence};
use super::keys::ShardKeys;
use super::script::{Script, ScriptCall};

/// How often the client of a cluster tries again what ends by itself: a slot that moves, a connection that broke. No more:
/// each try on a node that is dead reads the map of slots anew, and the calls on all other nodes wait for that.
const CLUSTER_RETRIES: u32 = 3;
/// The least and the most that it waits in between. With its own 1.3 s most calls would reach their deadline.
const CLUSTER_RETRY_MS: (u64, u64) = (50, 300);

/// How many deadlines of a call a cluster may be silent before it is connected to anew.
const SILENCE_DEADLINES: u32 = 2;

/// One server or a cluster. Connects on the first call and again after it was lost; every call has a deadline.
#[derive(Clone)]
pub(super) struct Connection {
    target: Target,
    deadline: Duration,
}

#[derive(Clone)]
enum Target {
    Single(ConnectionManager),
    Cluster(Cluster),
}

impl Connection {
    pub(super) fn open(url: &RedisUrl, tls: &ClientTls, timeout: Duration) -> Result<Self, HotError> {
        let certificates = || url.is_tls().then(|| certificates(tls));
        let target = match url {
            RedisUrl::Single(url) => {
                let info = url.as_str().into_connection_info()?.set_tcp_settings(tcp_settings(timeout));
                // The name of the library is of no use to anybody, and to say it takes one more right.
                let settings = info.redis_settings().clone().set_skip_set_lib_name();
                let info = info.set_redis_settings(settings);
                let config = ConnectionManagerConfig::new()
                    .set_connection_timeout(Some(timeout))
                    .set_response_timeout(Some(timeout))
                    .set_min_delay(Duration::from_millis(20))
                    .set_max_delay(Duration::from_millis(500));
                let client = match certificates() {
                    Some(certificates) => Client::build_with_tls(info, certificates)?,
                    None => Client::open(info)?,
                };
                Target::Single(ConnectionManager::new_lazy_with_config(client, config)?)
            }
            RedisUrl::Cluster(nodes) => {
                let mut builder = ClusterClient::builder(nodes.iter().map(String::as_str))
                    .connection_timeout(timeout)
                    .response_timeout(timeout)
                    .retries(CLUSTER_RETRIES)
                    .min_retry_wait(CLUSTER_RETRY_MS.0)
                    .max_retry_wait(CLUSTER_RETRY_MS.1)
                    .tcp_settings(tcp_settings(timeout));
                if let Some(certificates) = certificates() {
                    builder = builder.certs(certificates);
                }
                Target::Cluster(Cluster::new(builder.build()?, timeout * SILENCE_DEADLINES))
            }
        };
        Ok(Self { target, deadline: timeout })
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.target, Target::Cluster(_))
    }

    /// The key that a call on a cluster has to have behind its others where the script takes keys that it was not given,
    /// so that it runs whole or not at all while its slot moves (`lua/slot_guard.lua`).
    pub(super) fn guard(&self, shard: ShardKeys) -> Option<String> {
        self.is_cluster().then(|| shard.guard())
    }

    pub(super) async fn script<T: FromRedisValue>(&self, call: &ScriptCall<'_>) -> Result<T, HotError> {
        self.evalsha(call.script, &call.evalsha()).await
    }

    /// A call of the script that was written as a command (`EVALSHA`, the hash, the number of keys, ...): for calls with
    /// many arguments, which [`ScriptCall`] would hold one by one.
    pub(super) async fn evalsha<T: FromRedisValue>(
        &self,
        script: &Script,
        call: &Cmd,
    ) -> Result<T, HotError> {
        self.with_deadline(async |mut live| match call.query_async(&mut live).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                script.eval(call).query_async(&mut live).await
            }
            result => result,
        })
        .await
    }

    pub(super) async fn command<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, HotError> {
        self.with_deadline(async |mut live| command.query_async(&mut live).await).await
    }

    /// The replies to a command and to a script, in one round trip. Each may be an error of the server's.
    pub(super) async fn command_and_script(
        &self,
        command: Cmd,
        call: &ScriptCall<'_>,
    ) -> Result<(Value, Value), HotError> {
        let evalsha = call.evalsha();
        if self.is_cluster() {
            // Its pipelines do not follow a slot that moves, as single calls do.
            return futures::try_join!(self.command(&command), self.evalsha(call.script, &evalsha));
        }
        let mut pipeline = Pipeline::with_capacity(2);
        pipeline.add_command(command).add_command(evalsha.clone()).ignore_errors();
        self.with_deadline(async |mut live| {
            let (first, second): (Value, Value) = pipeline.query_async(&mut live).await?;
            if matches!(&second, Value::ServerError(error) if error.kind() == Some(ServerErrorKind::NoScript))
            {
                return Ok((first, call.script.eval(&evalsha).query_async(&mut live).await?));
            }
            Ok((first, second))
        })
        .await
    }

    /// The text of an `INFO` section: of one server, or of all nodes of a cluster one after the other.
    pub(super) async fn info(&self, section: &str) -> Result<String, HotError> {
        let reply: Value = self.command(redis::cmd("INFO").arg(section)).await?;
        Ok(texts(reply).join("\n"))
    }

    /// Settings by name: of one server, or of all nodes of a cluster, which answers them by address.
    pub(super) async fn settings(&self, names: &[&str]) -> Result<Vec<(String, String)>, HotError> {
        let reply: Value = self.command(redis::cmd("CONFIG").arg("GET").arg(names)).await?;
        let is_address = |text: &String| text.contains(':');
        let texts: Vec<String> = texts(reply).into_iter().filter(|text| !is_address(text)).collect();
        Ok(texts.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect())
    }

    async fn with_deadline<T>(&self, call: impl AsyncFnOnce(Live) -> RedisResult<T>) -> Result<T, HotError> {
        match &self.target {
            Target::Single(connection) => {
                let call = call(Live::Single(connection.clone()));
                match tokio::time::timeout(self.deadline, call).await {
                    Ok(result) => Ok(result?),
                    Err(_) => Err(self.too_late()),
                }
            }
            Target::Cluster(cluster) => {
                let attachment = cluster.attachment();
                let call = async { call(Live::Cluster(cluster.connection(&attachment).await?)).await };
                let result = tokio::time::timeout(self.deadline, call).await;
                match &result {
                    Err(_) => cluster.heard_nothing(&attachment),
                    Ok(Err(error)) if is_silence(error) => cluster.heard_nothing(&attachment),
                    Ok(_) => Cluster::heard(&attachment),
                }
                result.map_or_else(|_| Err(self.too_late()), |result| Ok(result?))
            }
        }
    }

    fn too_late(&self) -> HotError {
        HotError::Unavailable(format!("no answer within {:?}", self.deadline))
    }
}

/// All texts in a reply, in their order.
fn texts(reply: Value) -> Vec<String> {
    match reply {
        Value::BulkString(bytes) => vec![String::from_utf8_lossy(&bytes).into_owned()],
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => vec![text],
        Value::Array(items) | Value::Set(items) => items.into_iter().flat_map(texts).collect(),
        Value::Map(pairs) => {
            pairs.into_iter().flat_map(|(key, value)| [texts(key), texts(value)].concat()).collect()
        }
        _ => Vec::new(),
    }
}

fn certificates(tls: &ClientTls) -> TlsCertificates {
    let bytes = |pem: &String| pem.clone().into_bytes();
    let identity = tls.identity.as_ref();
    TlsCertificates {
        client_tls: identity
            .map(|own| ClientTlsConfig { client_cert: bytes(&own.cert), client_key: bytes(&own.key) }),
        root_cert: tls.ca.as_ref().map(bytes),
    }
}

/// A peer that vanished without a word is noticed: by keepalive when idle, by unacknowledged data when not.
fn tcp_settings(timeout: Duration) -> TcpSettings {
    let keepalive =
        TcpKeepalive::new().with_time(Duration::from_secs(15)).with_interval(Duration::from_secs(5));
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(timeout.max(Duration::from_secs(1)) * 2);
    settings
}

enum Live {
    Single(ConnectionManager),
    Cluster(ClusterConnection),
}

impl ConnectionLike for Live {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::Single(connection) => connection.req_packed_command(cmd),
            Self::Cluster(connection) => connection.req_packed_command(cmd),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Self::Single(connection) => connection.req_packed_commands(pipeline, offset, count),
            Self::Cluster(connection) => connection.req_packed_commands(pipeline, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Self::Single(connection) => connection.get_db(),
            Self::Cluster(connection) => connection.get_db(),
        }
    }
}
