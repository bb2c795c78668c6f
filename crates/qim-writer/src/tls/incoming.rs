use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::ServerTls;
use crate::access::Refusals;
use crate::transport::Connection;

/// Handshakes at once. Those who say nothing hold one place each until their time is up.
const HANDSHAKES_MAX: usize = 256;
/// The longest that a handshake takes.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Secures connections. One whose handshake fails is counted and gone; the others do not wait for it.
pub(crate) fn secured(
    connections: impl Stream<Item = io::Result<Connection>>,
    tls: Arc<ServerTls>,
    refusals: Arc<Refusals>,
) -> impl Stream<Item = io::Result<TlsStream<Connection>>> {
    let handshakes = connections.map(move |connection| handshake(connection, tls.clone(), refusals.clone()));
    handshakes.buffer_unordered(HANDSHAKES_MAX).filter_map(std::future::ready)
}

async fn handshake(
    connection: io::Result<Connection>,
    tls: Arc<ServerTls>,
    refusals: Arc<Refusals>,
) -> Option<io::Result<TlsStream<Connection>>> {
    let connection = match connection {
        Ok(connection) => connection,
        // The listener's trouble, which the server knows what to do about.
        Err(error) => return Some(Err(error)),
    };
    let peer = connection.peer_addr();
    let accepted = TlsAcceptor::from(tls.config()).accept(connection);
    let error = match tokio::time::timeout(HANDSHAKE_TIMEOUT, accepted).await {
        Ok(Ok(secured)) => return Some(Ok(secured)),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no handshake within {HANDSHAKE_TIMEOUT:?}"),
    };
    refusals.handshake(&error, peer);
    None
}
