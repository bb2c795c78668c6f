use std::sync::Arc;
use std::time::Duration;

use qim_core::RedisUrl;
use redis::aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{
    Client, Cmd, ErrorKind, FromRedisValue, IntoConnectionInfo, Pipeline, RedisFuture, Script,
    ScriptInvocation, ServerErrorKind, Value,
};
use tokio::sync::OnceCell;

use super::HotError;

/// One server or a cluster. Connects on the first call and again after it was lost; every call has a deadline.
#[derive(Clone)]
pub(super) struct Connection {
    target: Target,
    deadline: Duration,
}

#[derive(Clone)]
enum Target {
    Single(ConnectionManager),
    Cluster { client: Arc<ClusterClient>, connection: Arc<OnceCell<ClusterConnection>> },
}

impl Connection {
    pub(super) fn open(url: &RedisUrl, timeout: Duration) -> Result<Self, HotError> {
        let target = match url {
            RedisUrl::Single(url) => {
                let info = url.as_str().into_connection_info()?.set_tcp_settings(tcp_settings(timeout));
                let config = ConnectionManagerConfig::new()
                    .set_connection_timeout(Some(timeout))
                    .set_response_timeout(Some(timeout))
                    .set_min_delay(Duration::from_millis(20))
                    .set_max_delay(Duration::from_millis(500));
                Target::Single(ConnectionManager::new_lazy_with_config(Client::open(info)?, config)?)
            }
            RedisUrl::Cluster(nodes) => {
                let client = ClusterClient::builder(nodes.iter().map(String::as_str))
                    .connection_timeout(timeout)
                    .response_timeout(timeout)
                    .tcp_settings(tcp_settings(timeout))
                    .build()?;
                Target::Cluster { client: Arc::new(client), connection: Arc::new(OnceCell::new()) }
            }
        };
        Ok(Self { target, deadline: timeout })
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.target, Target::Cluster { .. })
    }

    pub(super) async fn script<T: FromRedisValue>(&self, call: &ScriptInvocation<'_>) -> Result<T, HotError> {
        self.with_deadline(async {
            let mut live = self.live().await?;
            Ok(call.invoke_async(&mut live).await?)
        })
        .await
    }

    /// A call of the script that was written as a command (`EVALSHA`, the hash, the number of keys, ...): for calls with
    /// many arguments, which [`ScriptInvocation`] would hold one by one.
    pub(super) async fn evalsha<T: FromRedisValue>(
        &self,
        script: &Script,
        call: &Cmd,
    ) -> Result<T, HotError> {
        self.with_deadline(async {
            let mut live = self.live().await?;
            match call.query_async(&mut live).await {
                Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                    script.load_async(&mut live).await?;
                    Ok(call.query_async(&mut live).await?)
                }
                result => Ok(result?),
            }
        })
        .await
    }

    /// The same, with another command right behind it on the same connection, whose reply is answered.
    pub(super) async fn evalsha_and<T: FromRedisValue>(
        &self,
        script: &Script,
        call: &Cmd,
        then: &Cmd,
    ) -> Result<T, HotError> {
        let mut both = redis::pipe();
        both.add_command(call.clone()).ignore().add_command(then.clone());
        self.with_deadline(async {
            let mut live = self.live().await?;
            let (reply,) = match both.query_async(&mut live).await {
                Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                    script.load_async(&mut live).await?;
                    both.query_async(&mut live).await?
                }
                result => result?,
            };
            Ok(reply)
        })
        .await
    }

    pub(super) async fn command<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, HotError> {
        self.with_deadline(async {
            let mut live = self.live().await?;
            Ok(command.query_async(&mut live).await?)
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

    async fn live(&self) -> Result<Live, HotError> {
        Ok(match &self.target {
            Target::Single(connection) => Live::Single(connection.clone()),
            Target::Cluster { client, connection } => {
                Live::Cluster(connection.get_or_try_init(|| client.get_async_connection()).await?.clone())
            }
        })
    }

    async fn with_deadline<T>(&self, call: impl Future<Output = Result<T, HotError>>) -> Result<T, HotError> {
        match tokio::time::timeout(self.deadline, call).await {
            Ok(result) => result,
            Err(_) => Err(HotError::Unavailable(format!("no answer within {:?}", self.deadline))),
        }
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
