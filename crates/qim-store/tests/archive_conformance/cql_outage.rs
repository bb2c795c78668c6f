//! A server that is not there, or does not answer: calls end in time, and work again once it is back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use qim_core::ScyllaUrl;
use qim_store::archive::{ArchiveError, ArchiveOptions, ArchiveStore, Direction, ScyllaArchive};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::backend::{Cluster, fresh_conversation, now, runtime, server_url};
use crate::cases::{ALL, seqs};
use crate::messages::records;

const TIMEOUT: Duration = Duration::from_secs(2);
/// What a loaded machine may be late.
const SLACK: Duration = Duration::from_secs(1);

fn open(nodes: Vec<String>, like: &ScyllaUrl) -> ScyllaArchive {
    let url = ScyllaUrl { nodes, ..like.clone() };
    ScyllaArchive::open(&url, ArchiveOptions { timeout: TIMEOUT, tls: None }).unwrap()
}

/// Every call ends in time and says that it may work later.
async fn assert_unavailable(store: &ScyllaArchive) {
    let conversation = fresh_conversation();
    let put = records(&conversation, [1], now());
    let begun = Instant::now();
    let (pinged, put, read, high_water) = tokio::join!(
        store.ping(),
        store.put(&conversation, &put, now()),
        store.read(&conversation, ALL, Direction::Forwards, 10, now()),
        store.high_water(&conversation),
    );
    let took = begun.elapsed();
    for error in [pinged.err(), put.err(), read.err(), high_water.err()] {
        let error = error.expect("there is no server");
        assert!(matches!(error, ArchiveError::Unavailable(_)), "{error}");
    }
    assert!(took < TIMEOUT + SLACK, "it took {took:?}");
}

async fn assert_works(store: &ScyllaArchive) {
    let conversation = fresh_conversation();
    store.put(&conversation, &records(&conversation, 1..=3, now()), now()).await.unwrap();
    let page = store.read(&conversation, ALL, Direction::Forwards, 10, now()).await.unwrap();
    assert_eq!(seqs(&page), [1, 2, 3]);
}

/// Asks again and again, as a daemon does.
async fn wait_until_it_answers(store: &ScyllaArchive) {
    let answers = async {
        while store.ping().await.is_err() {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(Duration::from_secs(10), answers).await.expect("it is used again within seconds");
}

#[test]
fn a_closed_port_is_unavailable() {
    runtime().block_on(async {
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let like = Cluster::shared().await.url.clone();
        let store = open(vec![free.to_string()], &like);
        let error = store.prepare().await.unwrap_err();
        assert!(matches!(error, ArchiveError::Unavailable(_)), "{error}");
        assert_unavailable(&store).await;
    });
}

#[test]
fn an_unknown_host_is_unavailable() {
    runtime().block_on(async {
        let like = Cluster::shared().await.url.clone();
        assert_unavailable(&open(vec!["no-such-host.invalid:9042".to_owned()], &like)).await;
    });
}

#[test]
fn a_server_that_never_answers_is_unavailable() {
    runtime().block_on(async {
        let proxy = Proxy::start(Mode::Silent).await;
        assert_unavailable(&open(vec![proxy.address.clone()], &proxy.url)).await;
    });
}

#[test]
fn a_server_that_wants_another_password_refuses() {
    runtime().block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(refuse_to_start(client));
            }
        });
        let store = open(vec![address], &server_url("qim"));
        for _ in 0..2 {
            let error = store.prepare().await.unwrap_err();
            assert!(
                matches!(&error, ArchiveError::Refused(why) if why.contains("wrong password")),
                "{error}"
            );
        }
    });
}

/// Speaks as much CQL as is needed to say no.
async fn refuse_to_start(mut client: TcpStream) -> std::io::Result<()> {
    const OPTIONS: u8 = 5;
    const BAD_CREDENTIALS: i32 = 0x0100;
    const WHY: &[u8] = b"wrong password";
    loop {
        let mut head = [0; 9];
        client.read_exact(&mut head).await?;
        let length = u32::from_be_bytes(head[5..].try_into().expect("four bytes"));
        let mut body = vec![0; length.try_into().expect("a short frame")];
        client.read_exact(&mut body).await?;
        let (opcode, body) = if head[4] == OPTIONS {
            (6, vec![0, 0]) // SUPPORTED: nothing
        } else {
            let length = u16::try_from(WHY.len()).expect("a short text").to_be_bytes();
            (0, [&BAD_CREDENTIALS.to_be_bytes()[..], &length, WHY].concat()) // ERROR
        };
        let length = u32::try_from(body.len()).expect("a short frame").to_be_bytes();
        let frame = [&[0x84, 0, head[2], head[3], opcode][..], &length, &body].concat();
        client.write_all(&frame).await?;
    }
}

#[test]
fn one_of_several_nodes_is_enough_to_begin_with() {
    runtime().block_on(async {
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let like = Cluster::shared().await.url.clone();
        let store = open(vec![free.to_string(), like.nodes[0].clone()], &like);
        wait_until_it_answers(&store).await;
        assert_works(&store).await;
    });
}

#[test]
fn a_server_that_comes_back_is_used_again() {
    runtime().block_on(async {
        let proxy = Proxy::start(Mode::Broken).await;
        let store = open(vec![proxy.address.clone()], &proxy.url);
        assert_unavailable(&store).await;
        for broken in [Mode::Broken, Mode::Silent, Mode::Broken] {
            proxy.set(Mode::Open);
            wait_until_it_answers(&store).await;
            assert_works(&store).await;
            proxy.set(broken);
            assert_unavailable(&store).await;
        }
    });
}

#[test]
fn many_calls_at_once_make_one_connection_attempt() {
    runtime().block_on(async {
        let proxy = Proxy::start(Mode::Open).await;
        let store = Arc::new(open(vec![proxy.address.clone()], &proxy.url));
        let pings: Vec<_> = (0..50)
            .map(|_| {
                let store = store.clone();
                tokio::spawn(async move { store.ping().await })
            })
            .collect();
        for ping in pings {
            ping.await.unwrap().unwrap();
        }
        // One to learn about the cluster, and one for requests.
        assert!(*proxy.accepted.borrow() <= 2, "{} connections", *proxy.accepted.borrow());
    });
}

/// What becomes of connections.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Forwarded to the server.
    Open,
    /// Cut, and new ones closed at once.
    Broken,
    /// Left open without an answer.
    Silent,
}

/// Stands between the archive and the server.
struct Proxy {
    url: ScyllaUrl,
    address: String,
    mode: watch::Sender<Mode>,
    accepted: watch::Receiver<usize>,
}

impl Proxy {
    async fn start(mode: Mode) -> Self {
        let url = Cluster::shared().await.url.clone();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (mode, modes) = watch::channel(mode);
        let (count, accepted) = watch::channel(0);
        let server = url.nodes[0].clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                count.send_modify(|count| *count += 1);
                tokio::spawn(serve(client, server.clone(), modes.clone()));
            }
        });
        Self { url, address, mode, accepted }
    }

    fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }
}

async fn serve(mut client: TcpStream, server: String, mut modes: watch::Receiver<Mode>) {
    let mut server = TcpStream::connect(server).await.unwrap();
    loop {
        let mode = *modes.borrow_and_update();
        match mode {
            Mode::Broken => return,
            Mode::Silent => {
                if modes.changed().await.is_err() {
                    return;
                }
            }
            Mode::Open => {
                tokio::select! {
                    _ = copy_bidirectional(&mut client, &mut server) => return,
                    changed = modes.changed() => if changed.is_err() { return },
                }
            }
        }
    }
}
