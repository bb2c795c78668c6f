use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};

/// Below those that the system hands out by itself, so that no outgoing connection takes one in between.
const FIRST: u16 = 20_000;
const BLOCKS: u16 = 40;
/// More than the servers that the tests of one process have at a time.
const BLOCK_PORTS: u16 = 300;

/// Ports that no other process gets as long as this one lives: the port of a server that was killed stays free for it until
/// it is back, and no stranger's server stands there meanwhile.
struct Block {
    first: u16,
    next: AtomicU16,
    /// Nobody connects to it: who has the name has the block. The system takes it back when the process ends.
    _claim: UnixListener,
}

static BLOCK: LazyLock<Block> = LazyLock::new(|| {
    let start = rand::random_range(0..BLOCKS);
    let mut blocks = (0..BLOCKS).map(|i| FIRST + (start + i) % BLOCKS * BLOCK_PORTS);
    let claimed = blocks.find_map(|first| Some((first, claim(first).ok()?)));
    let (first, claim) = claimed.expect("no more than forty processes test at a time");
    Block { first, next: AtomicU16::new(0), _claim: claim }
});

fn claim(first: u16) -> io::Result<UnixListener> {
    UnixListener::bind_addr(&SocketAddr::from_abstract_name(format!("qim-test-ports-{first}"))?)
}

/// A TCP port that is free on the loopback now. No other process that asks here gets it as long as this one lives, and in
/// this one it comes round again after three hundred others.
pub fn free_port() -> u16 {
    let Block { first, next, .. } = &*BLOCK;
    let next = || first + next.fetch_add(1, Ordering::Relaxed) % BLOCK_PORTS;
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    let mut all = std::iter::repeat_with(next).take(BLOCK_PORTS.into());
    all.find(is_free).expect("a free port on the loopback")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_one_process_at_a_time() {
        let port = free_port();
        assert!((BLOCK.first..BLOCK.first + BLOCK_PORTS).contains(&port));
        assert_eq!(claim(BLOCK.first).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_ne!(free_port(), port);
    }
}
