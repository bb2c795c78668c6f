use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::{Stream, stream};
use metrics::Gauge;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};
use tonic::transport::server::{Connected, TcpConnectInfo};

use super::limits::{HANDSHAKE_TIMEOUT, Limits, PING_TIMEOUT};
use super::memory::Account;

/// After an `accept` that failed, for want of file descriptors as a rule: trying again at once would only take the processor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A client. Reading from it fails once nothing has come for longer than pings allow.
pub(crate) struct Connection {
    io: TcpStream,
    account: Arc<Account>,
    /// Until when something has to come.
    deadline: Instant,
    timer: Pin<Box<Sleep>>,
    silence_max: Duration,
    _open: Open,
}

/// What requests are told of the connection that they come on.
#[derive(Clone)]
pub(crate) struct ClientInfo {
    pub(super) tcp: TcpConnectInfo,
    pub(super) account: Arc<Account>,
}

/// Counts for as long as it lives.
struct Open {
    gauge: Gauge,
    _permit: OwnedSemaphorePermit,
}

/// Accepts connections, and closes those that are too many at once, so that their clients try elsewhere.
pub(crate) fn incoming(listener: TcpListener, limits: Limits) -> impl Stream<Item = io::Result<Connection>> {
    let free = Arc::new(Semaphore::new(limits.connections_max));
    stream::unfold((listener, limits, free), async |(listener, limits, free)| {
        let connection = loop {
            match listener.accept().await {
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
                Ok((io, _)) => match free.clone().try_acquire_owned() {
                    Ok(permit) => break Connection::new(io, &limits, permit),
                    Err(_) => limits.refused.increment(1),
                },
            }
        };
        Some((Ok(connection), (listener, limits, free)))
    })
}

impl Connection {
    fn new(io: TcpStream, limits: &Limits, permit: OwnedSemaphorePermit) -> Self {
        // Without it a small answer may wait 40 ms for the acknowledgement of the one before. Where it cannot be set the
        // client is gone, and reading will say so.
        let _ = io.set_nodelay(true);
        limits.open.increment(1);
        Self {
            io,
            account: limits.memory.account(),
            deadline: Instant::now() + HANDSHAKE_TIMEOUT,
            timer: Box::pin(tokio::time::sleep(HANDSHAKE_TIMEOUT)),
            silence_max: limits.keepalive + PING_TIMEOUT + HANDSHAKE_TIMEOUT,
            _open: Open { gauge: limits.open.clone(), _permit: permit },
        }
    }

    /// Whose it is; `None` where they are gone.
    pub(crate) fn peer_addr(&self) -> Option<SocketAddr> {
        self.io.peer_addr().ok()
    }

    /// An error once the deadline has passed. The timer is moved only when it rings, which is rarer than reading.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.timer.as_mut().poll(cx).is_ready() {
            if Instant::now() >= self.deadline {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            self.timer.as_mut().reset(self.deadline);
        }
        Poll::Pending
    }
}

impl Connected for Connection {
    type ConnectInfo = ClientInfo;

    fn connect_info(&self) -> ClientInfo {
        ClientInfo { tcp: self.io.connect_info(), account: self.account.clone() }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.io).poll_read(cx, buffer);
        if read.is_pending() {
            return self.poll_silence(cx);
        }
        self.deadline = Instant::now() + self.silence_max;
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.gauge.decrement(1);
    }
}
