use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

use crate::ports::free_port;

const CHUNK_BYTES: usize = 16 * 1024;
/// Replies under way in one delayed connection; then the server has to wait.
const DELAYED_CHUNKS_MAX: usize = 1024;
const LISTEN_TRIES: usize = 100;
const RESET_TIME: Duration = Duration::from_millis(50);
const LISTEN_RETRY: Duration = Duration::from_millis(20);

/// What happens to connections, old and new ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultMode {
    /// Nothing.
    Pass,
    /// Nobody listens, and existing connections are reset: a server that is down.
    Refuse,
    /// Bytes of both directions wait, and connections stay: a network that is cut. What waits goes on afterwards.
    BlackHole,
    /// Requests are forwarded; the first bytes of an answer are dropped and the connection is closed, as often as one
    /// comes: the work is done, and nobody knows.
    DropReplies,
    /// The same for one answer, then [`FaultMode::Pass`].
    DropOneReply,
    /// Answers come that much later.
    Delay(Duration),
    /// Connections are accepted, and then reset.
    Reset,
}

/// A TCP proxy on the loopback, before Redis or a CQL server. Ends when dropped.
#[derive(Debug)]
pub struct FaultProxy {
    addr: SocketAddr,
    upstream: Arc<Mutex<SocketAddr>>,
    mode: watch::Sender<FaultMode>,
    dropped_replies: Arc<AtomicU64>,
    stop: Option<watch::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What each connection needs to know.
#[derive(Clone)]
struct Link {
    upstream: Arc<Mutex<SocketAddr>>,
    mode: watch::Sender<FaultMode>,
    dropped_replies: Arc<AtomicU64>,
}

/// How the answers of a server end.
enum ReplyEnd {
    /// By the proxy: nobody is to get one.
    Dropped,
    /// By the server, or because nobody takes them.
    ServerClosed,
}

impl FaultProxy {
    /// Forwards to this server, for now without any fault.
    pub fn start(upstream: SocketAddr) -> Self {
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let (mode, _) = watch::channel(FaultMode::Pass);
        let (stop, stopped) = watch::channel(());
        let dropped_replies = Arc::new(AtomicU64::new(0));
        let upstream = Arc::new(Mutex::new(upstream));
        let link =
            Link { upstream: upstream.clone(), mode: mode.clone(), dropped_replies: dropped_replies.clone() };
        let (listening, is_listening) = std::sync::mpsc::channel();
        // A runtime of its own, so that it also runs while a test blocks.
        let thread = thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(accept(addr, link, stopped, listening));
        });
        is_listening.recv().expect("the proxy listens");
        Self { addr, upstream, mode, dropped_replies, stop: Some(stop), thread: Some(thread) }
    }

    /// Where clients connect.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What happens from now on.
    pub fn set(&self, mode: FaultMode) {
        self.mode.send_replace(mode);
    }

    /// From now on it forwards new connections to this server; those to the one before go on.
    pub fn lead_new_ones_to(&self, upstream: SocketAddr) {
        *self.upstream.lock().unwrap_or_else(PoisonError::into_inner) = upstream;
    }

    /// From now on it forwards to this server; connections to the one before are reset.
    pub fn lead_to(&self, upstream: SocketAddr) {
        let mode = self.mode.send_replace(FaultMode::Reset);
        self.lead_new_ones_to(upstream);
        // Each connection has to see it.
        thread::sleep(RESET_TIME);
        self.mode.send_replace(mode);
    }

    /// How many replies were dropped so far, each with its connection.
    pub fn dropped_replies(&self) -> u64 {
        self.dropped_replies.load(Ordering::SeqCst)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn accept(
    addr: SocketAddr,
    link: Link,
    mut stopped: watch::Receiver<()>,
    listening: std::sync::mpsc::Sender<()>,
) {
    let mut mode = link.mode.subscribe();
    let mut listener = Some(listen(addr).await);
    let _ = listening.send(());
    loop {
        tokio::select! {
            // Its sender is gone.
            _ = stopped.changed() => return,
            Ok(()) = mode.changed() => {
                let refuses = *mode.borrow_and_update() == FaultMode::Refuse;
                if refuses {
                    listener = None;
                } else if listener.is_none() {
                    listener = Some(listen(addr).await);
                }
            }
            Ok((client, _)) = accept_one(listener.as_ref()) => {
                tokio::spawn(forward(client, link.clone()));
            }
        }
    }
}

/// The port may still be taken for a moment by what was connected to it.
async fn listen(addr: SocketAddr) -> TcpListener {
    for _ in 0..LISTEN_TRIES {
        match TcpListener::bind(addr).await {
            Ok(listener) => return listener,
            Err(_) => sleep(LISTEN_RETRY).await,
        }
    }
    panic!("the proxy cannot listen on {addr}");
}

async fn accept_one(listener: Option<&TcpListener>) -> io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}

async fn forward(client: TcpStream, link: Link) {
    let mut mode = link.mode.subscribe();
    if is_down(*mode.borrow()) {
        let _ = client.set_zero_linger();
        return;
    }
    let upstream = *link.upstream.lock().unwrap_or_else(PoisonError::into_inner);
    let Ok(server) = TcpStream::connect(upstream).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (client_read, mut client_write) = client.into_split();
    let (server_read, server_write) = server.into_split();
    tokio::select! {
        _ = forward_requests(client_read, server_write, link.mode.subscribe()) => {}
        () = forward_replies(server_read, &mut client_write, link) => {}
        _ = mode.wait_for(|mode| is_down(*mode)) => {
            let _ = client_write.as_ref().set_zero_linger();
        }
    }
}

fn is_down(mode: FaultMode) -> bool {
    matches!(mode, FaultMode::Reset | FaultMode::Refuse)
}

async fn until_passable(mode: &mut watch::Receiver<FaultMode>) {
    // An error means that the proxy ends, and this connection with it.
    let _ = mode.wait_for(|mode| *mode != FaultMode::BlackHole).await;
}

async fn forward_requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut mode: watch::Receiver<FaultMode>,
) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let length = from.read(&mut chunk).await?;
        if length == 0 {
            return Ok(());
        }
        until_passable(&mut mode).await;
        to.write_all(&chunk[..length]).await?;
    }
}

/// Reads and writes are apart, so that a delay does not hold up the answers behind it.
async fn forward_replies(from: OwnedReadHalf, to: &mut OwnedWriteHalf, link: Link) {
    let (sender, receiver) = mpsc::channel(DELAYED_CHUNKS_MAX);
    let mode = link.mode.subscribe();
    let reading = async {
        match read_replies(from, sender, link).await {
            ReplyEnd::Dropped => {}
            // What is still under way is written first.
            ReplyEnd::ServerClosed => std::future::pending().await,
        }
    };
    tokio::select! {
        () = reading => {}
        _ = write_replies(receiver, to, mode) => {}
    }
}

async fn read_replies(mut from: OwnedReadHalf, to: mpsc::Sender<(Instant, Vec<u8>)>, link: Link) -> ReplyEnd {
    loop {
        let mut chunk = vec![0; CHUNK_BYTES];
        let Ok(length @ 1..) = from.read(&mut chunk).await else { return ReplyEnd::ServerClosed };
        chunk.truncate(length);
        if link.drops_this_reply() {
            link.dropped_replies.fetch_add(1, Ordering::SeqCst);
            return ReplyEnd::Dropped;
        }
        let delay = match *link.mode.borrow() {
            FaultMode::Delay(delay) => delay,
            _ => Duration::ZERO,
        };
        if to.send((Instant::now() + delay, chunk)).await.is_err() {
            return ReplyEnd::ServerClosed;
        }
    }
}

async fn write_replies(
    mut from: mpsc::Receiver<(Instant, Vec<u8>)>,
    to: &mut OwnedWriteHalf,
    mut mode: watch::Receiver<FaultMode>,
) -> io::Result<()> {
    while let Some((when, chunk)) = from.recv().await {
        sleep_until(when).await;
        until_passable(&mut mode).await;
        to.write_all(&chunk).await?;
    }
    Ok(())
}

impl Link {
    fn drops_this_reply(&self) -> bool {
        let was_one = self.mode.send_if_modified(|mode| {
            let is_one = *mode == FaultMode::DropOneReply;
            if is_one {
                *mode = FaultMode::Pass;
            }
            is_one
        });
        was_one || *self.mode.borrow() == FaultMode::DropReplies
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::time::Instant;

    use super::*;
    use crate::eventually::eventually;
    use crate::redis_server::RedisServer;
    use crate::resp::{self, Reply};

    const SHORT: Duration = Duration::from_millis(300);

    fn proxied_redis() -> (RedisServer, FaultProxy) {
        let redis = RedisServer::start();
        let proxy = FaultProxy::start(redis.addr());
        (redis, proxy)
    }

    /// A connection that is known to work.
    fn connected(proxy: &FaultProxy) -> TcpStream {
        let mut stream = TcpStream::connect(proxy.addr()).unwrap();
        stream.set_read_timeout(Some(SHORT)).unwrap();
        assert_eq!(ping(&mut stream).unwrap(), "+PONG\r\n");
        stream
    }

    fn ping(stream: &mut TcpStream) -> io::Result<String> {
        stream.write_all(b"PING\r\n")?;
        read(stream)
    }

    fn read(stream: &mut TcpStream) -> io::Result<String> {
        let mut bytes = [0; 64];
        let length = stream.read(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
    }

    #[test]
    fn without_a_fault_it_passes_everything_in_order() {
        let (redis, proxy) = proxied_redis();
        let big = "x".repeat(1_000_000);
        assert_eq!(resp::command(proxy.addr(), &["SET", "k", &big]).unwrap(), Reply::Text("OK".to_owned()));
        assert_eq!(resp::command(proxy.addr(), &["GET", "k"]).unwrap(), Reply::Text(big));
        assert_eq!(redis.command(&["DBSIZE"]), Reply::Int(1));
    }

    #[test]
    fn a_refusing_proxy_resets_old_connections_and_takes_no_new_ones_until_it_passes_again() {
        let (_redis, proxy) = proxied_redis();
        let mut old = connected(&proxy);
        proxy.set(FaultMode::Refuse);
        eventually(SHORT * 10, "connections are refused", || {
            TcpStream::connect(proxy.addr())
                .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        });
        eventually(SHORT * 10, "old connections are reset", || ping(&mut old).is_err());
        proxy.set(FaultMode::Pass);
        eventually(SHORT * 10, "connections are taken", || TcpStream::connect(proxy.addr()).is_ok());
        connected(&proxy);
    }

    #[test]
    fn a_black_hole_answers_nothing_and_what_waits_goes_on_after_it() {
        let (redis, proxy) = proxied_redis();
        let mut stream = connected(&proxy);
        proxy.set(FaultMode::BlackHole);
        stream.write_all(b"SET k 1\r\n").unwrap();
        assert_eq!(read(&mut stream).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(redis.command(&["DBSIZE"]), Reply::Int(0));
        let mut new = TcpStream::connect(proxy.addr()).unwrap();
        new.set_read_timeout(Some(SHORT)).unwrap();
        assert_eq!(ping(&mut new).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        proxy.set(FaultMode::Pass);
        assert_eq!(read(&mut stream).unwrap(), "+OK\r\n");
        assert_eq!(read(&mut new).unwrap(), "+PONG\r\n");
    }

    #[test]
    fn a_dropped_reply_is_of_work_that_was_done() {
        let (redis, proxy) = proxied_redis();
        let mut stream = connected(&proxy);
        proxy.set(FaultMode::DropOneReply);
        stream.write_all(b"INCR k\r\n").unwrap();
        assert!(read(&mut stream).map_or(true, |reply| reply.is_empty()));
        assert_eq!(redis.command(&["GET", "k"]), Reply::Text("1".to_owned()));
        assert_eq!(resp::command(proxy.addr(), &["INCR", "k"]).unwrap(), Reply::Int(2));

        proxy.set(FaultMode::DropReplies);
        assert!(resp::command(proxy.addr(), &["INCR", "k"]).is_err());
        assert!(resp::command(proxy.addr(), &["INCR", "k"]).is_err());
        assert_eq!(redis.command(&["GET", "k"]), Reply::Text("4".to_owned()));
        assert_eq!(proxy.dropped_replies(), 3);
    }

    #[test]
    fn a_delay_is_added_to_each_answer_but_not_summed_over_them() {
        let (_redis, proxy) = proxied_redis();
        let mut stream = connected(&proxy);
        stream.set_read_timeout(Some(SHORT * 20)).unwrap();
        proxy.set(FaultMode::Delay(SHORT));
        let start = Instant::now();
        let mut answers = String::new();
        for _ in 0..4 {
            stream.write_all(b"PING\r\n").unwrap();
            std::thread::sleep(Duration::from_millis(10));
        }
        while answers.len() < "+PONG\r\n".len() * 4 {
            answers += &read(&mut stream).unwrap();
        }
        assert!((SHORT..SHORT * 3).contains(&start.elapsed()), "{:?}", start.elapsed());
    }

    #[test]
    fn a_reset_reaches_old_and_new_connections() {
        let (_redis, proxy) = proxied_redis();
        let mut old = connected(&proxy);
        proxy.set(FaultMode::Reset);
        eventually(SHORT * 10, "the old connection is reset", || ping(&mut old).is_err());
        let mut new = TcpStream::connect(proxy.addr()).unwrap();
        new.set_read_timeout(Some(SHORT * 10)).unwrap();
        assert!(ping(&mut new).map_or(true, |reply| reply.is_empty()));
        proxy.set(FaultMode::Pass);
        connected(&proxy);
    }
}
