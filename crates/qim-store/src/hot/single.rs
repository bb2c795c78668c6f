use std::sync::{Mutex, MutexGuard, PoisonError};

use redis::aio::ConnectionManager;
use redis::{ConnectionInfo, ErrorKind, RedisError, RedisResult};
use tokio::time::Instant;

use super::connection::within;
use super::dialer::Dialer;

/// How often it is tried again to connect, before the calls that wait for it hear so.
const RECONNECTS: usize = 6;

/// One server.
///
/// A connection of redis 1.8 is made anew after an I/O error only. One whose server did not let it in, since its password was
/// another one for a while, or it had too many clients, would be refused for ever: so it is given up, and another one made.
pub(super) struct Single {
    dialer: Dialer,
    info: ConnectionInfo,
    connection: Mutex<ConnectionManager>,
}

impl Single {
    /// Connects on the first call.
    pub(super) fn new(dialer: Dialer, info: ConnectionInfo) -> RedisResult<Self> {
        let connection = Mutex::new(dialer.dial(info.clone(), RECONNECTS)?);
        Ok(Self { dialer, info, connection })
    }

    fn connection(&self) -> MutexGuard<'_, ConnectionManager> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a call on the connection.
    pub(super) async fn call<T>(
        &self,
        deadline: Instant,
        call: impl AsyncFnOnce(ConnectionManager) -> RedisResult<T>,
    ) -> RedisResult<T> {
        let connection = self.connection().clone();
        let reply = within(deadline, call(connection)).await;
        if reply.as_ref().is_err_and(is_not_let_in) {
            *self.connection() = self.dialer.dial(self.info.clone(), RECONNECTS)?;
        }
        reply
    }
}

/// Neither lost on the way nor an answer to a command.
fn is_not_let_in(error: &RedisError) -> bool {
    !matches!(error.kind(), ErrorKind::Io | ErrorKind::Server(_))
}
