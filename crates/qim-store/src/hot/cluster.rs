use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::{RedisError, RedisResult};
use tokio::sync::OnceCell;

/// The connections to a cluster. Made on the first call; made anew where the client hears nothing any more.
///
/// The client repairs its connections and its map of slots by itself. But while it does, all calls wait, and redis 1.8 may
/// wait for ever: a call that is to have its lock next is not polled meanwhile, and the repair waits for the lock. So it is
/// not trusted to come back.
#[derive(Clone)]
pub(super) struct Cluster {
    client: Arc<ClusterClient>,
    silence_max: Duration,
    current: Arc<Mutex<Arc<Attachment>>>,
}

/// One client's connections, and since when all their calls have been in vain.
#[derive(Default)]
pub(super) struct Attachment {
    connection: OnceCell<ClusterConnection>,
    silent_since: Mutex<Option<Instant>>,
}

impl Cluster {
    /// A client is given up when calls have been in vain for `silence_max`, and none was answered in between.
    pub(super) fn new(client: ClusterClient, silence_max: Duration) -> Self {
        Self { client: Arc::new(client), silence_max, current: Arc::default() }
    }

    /// For one call; whoever makes it tells how it went.
    pub(super) fn attachment(&self) -> Arc<Attachment> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) async fn connection(&self, attachment: &Attachment) -> RedisResult<ClusterConnection> {
        attachment.connection.get_or_try_init(|| self.client.get_async_connection()).await.cloned()
    }

    /// A node answered, whatever it said.
    pub(super) fn heard(attachment: &Attachment) {
        *attachment.silent_since.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// A call got no answer in time.
    pub(super) fn heard_nothing(&self, attachment: &Arc<Attachment>) {
        let mut silent_since = attachment.silent_since.lock().unwrap_or_else(PoisonError::into_inner);
        if silent_since.get_or_insert_with(Instant::now).elapsed() < self.silence_max {
            return;
        }
        drop(silent_since);
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if Arc::ptr_eq(&current, attachment) {
            tracing::warn!(silence = ?self.silence_max, "no node of the Redis Cluster answers: connecting anew");
            *current = Arc::default();
        }
    }
}

/// Whether the error says that no node answered.
pub(super) fn is_silence(error: &RedisError) -> bool {
    error.is_timeout() || error.is_connection_refusal() || error.is_connection_dropped()
}
