use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};

/// Below those that the system hands out by itself, so that no outgoing connection takes one in between.
const PORTS: Range<u16> = 20_000..32_000;
const TRIES: usize = 1_000;

/// Tests of one process never get the same port, and those of several start in different places.
static NEXT: LazyLock<AtomicU16> = LazyLock::new(|| AtomicU16::new(rand::random_range(PORTS)));

/// A TCP port that is free on the loopback now. Another process may take it first: who can should try another one
/// then.
pub fn free_port() -> u16 {
    let next = || PORTS.start + NEXT.fetch_add(1, Ordering::Relaxed) % (PORTS.end - PORTS.start);
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    std::iter::repeat_with(next).take(TRIES).find(is_free).expect("a free port on the loopback")
}
