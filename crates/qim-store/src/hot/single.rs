use std::sync::{Mutex, MutexGuard, PoisonError};

use qim_core::ClientTls;
use redis::aio::ConnectionManager;
use redis::{ConnectionInfo, ErrorKind, RedisError, RedisResult, ServerErrorKind};
use tokio::time::Instant;

use super::connection::{ping, within};
use super::dialer::Dialer;

/// How often it is tried again to connect, before the calls that wait for it hear so.
const RECONNECTS: usize = 6;

/// One server.
///
/// A connection of redis 1.8 is made anew after an I/O error only. One whose server did not let it in, since its password was
/// another one for a while, or it had too many clients, would be refused for ever, and so would one to a master that lives on
/// as a replica while the address leads to another one by now: so it is given up, and another one made.
pub(super) struct Single {
    info: ConnectionInfo,
    link: Mutex<Link>,
}

struct Link {
    dialer: Dialer,
    connection: ConnectionManager,
}

impl Single {
    /// Connects on the first call.
    pub(super) fn new(dialer: Dialer, info: ConnectionInfo) -> RedisResult<Self> {
        let link = Mutex::new(Link::new(dialer, &info)?);
        Ok(Self { info, link })
    }

    fn link(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes on with these certificates where a connection can be made with them, else as before.
    pub(super) async fn renew_tls(&self, tls: &ClientTls, deadline: Instant) -> RedisResult<()> {
        let dialer = self.link().dialer.with_tls(tls);
        let link = Link::new(dialer, &self.info)?;
        within(deadline, ping(link.connection.clone())).await?;
        *self.link() = link;
        Ok(())
    }

    /// Makes a call on the connection.
    pub(super) async fn call<T>(
        &self,
        deadline: Instant,
        call: impl AsyncFnOnce(ConnectionManager) -> RedisResult<T>,
    ) -> RedisResult<T> {
        let connection = self.link().connection.clone();
        let reply = within(deadline, call(connection)).await;
        if reply.as_ref().is_err_and(is_of_no_use) {
            let mut link = self.link();
            *link = Link::new(link.dialer.clone(), &self.info)?;
        }
        reply
    }
}

impl Link {
    fn new(dialer: Dialer, info: &ConnectionInfo) -> RedisResult<Self> {
        let connection = dialer.dial(info.clone(), RECONNECTS)?;
        Ok(Self { dialer, connection })
    }
}

/// Neither lost on the way nor an answer to a command, or the answer of a replica.
fn is_of_no_use(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::Io => false,
        ErrorKind::Server(kind) => kind == ServerErrorKind::ReadOnly,
        _ => true,
    }
}
