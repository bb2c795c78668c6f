//! Connections: too many, silent, idle, and without a file left for them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use qim_testkit::{Daemon, eventually};
use qim_tests::{PATIENCE, Pair};

use crate::{Other, count, metric, resident};

/// What a client begins with, and an empty frame of settings.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

fn connect(writer: &Daemon) -> TcpStream {
    let stream = TcpStream::connect(writer.grpc_url().trim_start_matches("http://")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// How many files this process may have open.
fn open_files_max() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("a line");
    line.split_whitespace().nth(3).and_then(|soft| soft.parse().ok()).unwrap_or(usize::MAX)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_connection_too_many_is_closed_at_once_and_a_silent_one_after_ten_seconds() {
    let pair = Pair::options().env("QIM_CONNECTIONS_MAX", "50").start();
    let mut other = Other::connect(&pair.writer).await;
    let mut silent: Vec<TcpStream> = (0..49).map(|_| connect(&pair.writer)).collect();
    eventually(PATIENCE, "all places are taken", || count(&pair.writer, "qim_connections") == 50);
    for _ in 0..100 {
        let read = connect(&pair.writer).read(&mut [0]);
        assert!(matches!(read, Ok(0)) || read.is_err(), "it is closed: {read:?}");
    }
    assert_eq!(count(&pair.writer, "qim_connections_refused_total"), 100);
    other.is_served().await;
    // Half of them say half of what they should.
    for stream in silent.iter_mut().skip(25) {
        stream.write_all(&PREFACE[..10]).unwrap();
    }
    eventually(PATIENCE, "those that say nothing are given up", || {
        count(&pair.writer, "qim_connections") <= 26
    });
    other.is_served().await;
    Other::connect(&pair.writer).await.is_served().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_vanished_without_a_word_is_noticed() {
    let pair = Pair::options().env("QIM_KEEPALIVE", "1s").start();
    let mut other = Other::connect(&pair.writer).await;
    let mut vanished = connect(&pair.writer);
    vanished.write_all(PREFACE).unwrap();
    eventually(PATIENCE, "both are there", || count(&pair.writer, "qim_connections") == 2);
    // It answers no ping; the other one does.
    eventually(PATIENCE, "one is gone", || count(&pair.writer, "qim_connections") == 1);
    other.is_served().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_idle_connections_take_little_memory_and_bother_nobody() {
    let connections = 10_000.min(open_files_max() - 500);
    let pair = Pair::options().env("QIM_CONNECTIONS_MAX", "20000").start();
    let mut other = Other::connect(&pair.writer).await;
    let before = resident(&pair.writer);
    let idle: Vec<TcpStream> = (0..connections)
        .map(|_| {
            let mut stream = connect(&pair.writer);
            stream.write_all(PREFACE).unwrap();
            stream
        })
        .collect();
    let all = i64::try_from(idle.len()).unwrap() + 1;
    eventually(PATIENCE, "all are there", || count(&pair.writer, "qim_connections") == all);
    other.is_served().await;
    let each = (resident(&pair.writer) - before) * 1024.0 / f64::from(i32::try_from(all).unwrap());
    println!("{connections} idle connections take {each:.1} KiB each");
    assert!(each < 64.0, "{each} KiB each");
    drop(idle);
    eventually(PATIENCE, "they are gone", || count(&pair.writer, "qim_connections") == 1);
    other.is_served().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_file_for_another_connection_the_writer_serves_those_it_has_and_does_not_spin() {
    let pair = Pair::start();
    let mut other = Other::connect(&pair.writer).await;
    other.is_served().await;
    let limit = |files: f64| {
        let (pid, files) = (pair.writer.pid().to_string(), format!("--nofile={files}:"));
        assert!(Command::new("prlimit").args(["--pid", &pid, &files]).status().unwrap().success());
    };
    // Two more, of which a scrape takes one.
    limit(metric(&pair.writer, "process_open_fds") + 2.0);
    let waiting: Vec<TcpStream> = (0..10).map(|_| connect(&pair.writer)).collect();
    eventually(PATIENCE, "the writer says so", || {
        pair.writer.stderr().contains("cannot accept a connection")
    });
    let stat = || std::fs::read_to_string(format!("/proc/{}/stat", pair.writer.pid())).unwrap();
    let ticks = |stat: String| -> u64 {
        let fields: Vec<u64> = stat
            .split(") ")
            .nth(1)
            .unwrap()
            .split(' ')
            .skip(11)
            .take(2)
            .map(|f| f.parse().unwrap())
            .collect();
        fields.iter().sum()
    };
    let before = ticks(stat());
    tokio::time::sleep(Duration::from_secs(2)).await;
    let used = ticks(stat()) - before;
    assert!(used < 100, "{used} of 200 hundredths of a second");
    other.is_served().await;
    drop(waiting);
    limit(1024.0);
    Other::connect(&pair.writer).await.is_served().await;
}
