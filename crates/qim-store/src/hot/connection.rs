use std::io;
use std::sync::Arc;
use std::time::Duration;

use qim_core::{ClientTls, RedisUrl};
use redis::aio::ConnectionManager;
use redis::{
    Cmd, ErrorKind, FromRedisValue, IntoConnectionInfo, Pipeline, RedisError, RedisResult, ServerErrorKind,
    Value, from_redis_value,
};
use tokio::time::{Instant, timeout_at};

use super::HotError;
use super::cluster::Cluster;
use super::dialer::Dialer;
use super::keys::ShardKeys;
use super::script::{Script, ScriptCall};
use super::single::Single;

/// One server or a cluster. Connects on the first call and again after it was lost; every call has a deadline.
#[derive(Clone)]
pub(super) struct Connection {
    target: Target,
    timeout: Duration,
}

#[derive(Clone)]
enum Target {
    Single(Arc<Single>),
    Cluster(Cluster),
}

impl Connection {
    pub(super) fn open(url: &RedisUrl, tls: &ClientTls, timeout: Duration) -> Result<Self, HotError> {
        let dialer = Dialer::new(url.is_tls().then_some(tls), timeout);
        let info = |url: &String| url.as_str().into_connection_info();
        let target = match url {
            RedisUrl::Single(url) => Target::Single(Arc::new(Single::new(dialer, info(url)?)?)),
            RedisUrl::Cluster(nodes) => {
                let infos = nodes.iter().map(info).collect::<RedisResult<Vec<_>>>()?;
                Target::Cluster(Cluster::new(dialer, &infos, timeout)?)
            }
        };
        Ok(Self { target, timeout })
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
        let deadline = self.deadline();
        let reply = match self.request(call, deadline).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                self.request(&script.eval(call), deadline).await
            }
            reply => reply,
        };
        read(reply)
    }

    /// The same on a single server, with another command right behind it on the same connection, whose reply is answered.
    pub(super) async fn evalsha_and<T: FromRedisValue>(
        &self,
        script: &Script,
        call: &Cmd,
        then: &Cmd,
    ) -> Result<T, HotError> {
        let Target::Single(server) = &self.target else {
            return Err(HotError::Refused("a cluster is not waited for".into()));
        };
        let both = |call: &Cmd| {
            let mut both = redis::pipe();
            both.add_command(call.clone()).ignore().add_command(then.clone());
            both
        };
        let replies = server.call(self.deadline(), async |mut connection| {
            match both(call).query_async(&mut connection).await {
                Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                    both(&script.eval(call)).query_async(&mut connection).await
                }
                replies => replies,
            }
        });
        let (reply,) = replies.await?;
        Ok(reply)
    }

    /// On a cluster, one for a single node: whose keys are all of one shard.
    pub(super) async fn command<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, HotError> {
        read(self.request(command, self.deadline()).await)
    }

    /// The replies to a command and to a script, in one round trip. Each may be an error of the server's.
    pub(super) async fn command_and_script(
        &self,
        command: Cmd,
        call: &ScriptCall<'_>,
    ) -> Result<(Value, Value), HotError> {
        let evalsha = call.evalsha();
        let Target::Single(server) = &self.target else {
            // Where their slot moves, each has to follow it for itself.
            return futures::try_join!(self.command(&command), self.evalsha(call.script, &evalsha));
        };
        let mut pipeline = Pipeline::with_capacity(2);
        pipeline.add_command(command).add_command(evalsha.clone()).ignore_errors();
        let replies = server.call(self.deadline(), async |mut connection| {
            let (first, second): (Value, Value) = pipeline.query_async(&mut connection).await?;
            if matches!(&second, Value::ServerError(error) if error.kind() == Some(ServerErrorKind::NoScript))
            {
                return Ok((first, call.script.eval(&evalsha).query_async(&mut connection).await?));
            }
            Ok((first, second))
        });
        Ok(replies.await?)
    }

    /// Where connections are over TLS: goes on with these certificates if one can be made with them, else as before.
    pub(super) async fn renew_tls(&self, tls: &ClientTls) -> Result<(), HotError> {
        match &self.target {
            Target::Single(server) => server.renew_tls(tls, self.deadline()).await?,
            Target::Cluster(cluster) => cluster.renew_tls(tls, self.deadline()).await?,
        }
        Ok(())
    }

    /// Whether it answers; of a cluster, whether all nodes do that have slots.
    pub(super) async fn ping(&self) -> Result<(), HotError> {
        self.request_each(&redis::cmd("PING")).await?;
        Ok(())
    }

    /// The text of an `INFO` section: of one server, or of all nodes of a cluster that have slots, one after the other.
    pub(super) async fn info(&self, section: &str) -> Result<String, HotError> {
        let replies = self.request_each(redis::cmd("INFO").arg(section)).await?;
        Ok(replies.into_iter().flat_map(texts).collect::<Vec<_>>().join("\n"))
    }

    /// Settings by name: of one server, or of all nodes of a cluster that have slots.
    pub(super) async fn settings(&self, names: &[&str]) -> Result<Vec<(String, String)>, HotError> {
        let replies = self.request_each(redis::cmd("CONFIG").arg("GET").arg(names)).await?;
        let texts: Vec<String> = replies.into_iter().flat_map(texts).collect();
        Ok(texts.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect())
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    async fn request(&self, command: &Cmd, deadline: Instant) -> RedisResult<Value> {
        match &self.target {
            Target::Single(server) => {
                let call = async |mut connection: ConnectionManager| {
                    connection.send_packed_command(command).await?.extract_error()
                };
                server.call(deadline, call).await
            }
            // Boxed: as large as it is, it would be part of every call's future.
            Target::Cluster(cluster) => Box::pin(cluster.request(command, deadline)).await,
        }
    }

    async fn request_each(&self, command: &Cmd) -> RedisResult<Vec<Value>> {
        match &self.target {
            Target::Single(_) => Ok(vec![self.request(command, self.deadline()).await?]),
            Target::Cluster(cluster) => cluster.request_each(command, self.deadline()).await,
        }
    }
}

/// Whether a server answers on this connection.
pub(super) async fn ping(mut connection: ConnectionManager) -> RedisResult<()> {
    connection.send_packed_command(&redis::cmd("PING")).await?.extract_error().map(drop)
}

/// The error of a call that has no reply when its time is over.
pub(super) async fn within<T>(
    deadline: Instant,
    call: impl Future<Output = RedisResult<T>>,
) -> RedisResult<T> {
    let too_late = || io::Error::new(io::ErrorKind::TimedOut, "no answer in time");
    timeout_at(deadline, call).await.unwrap_or_else(|_| Err(too_late().into()))
}

fn read<T: FromRedisValue>(reply: RedisResult<Value>) -> Result<T, HotError> {
    let value = from_redis_value(reply?).map_err(RedisError::from)?;
    Ok(value)
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
