//! Several writers and archivers on one deployment: they do the same as one of each, share the work, and may go and come.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::join_all;
use qim_proto::v1;
use qim_testkit::{RedisServer, Signal, eventually};
use qim_tests::{DAY_MS, Fleet, FleetClient, PATIENCE, cql_keyspace, message, now_ms};

const WRITERS: usize = 3;
const ARCHIVERS: usize = 3;

/// Appends to one conversation until it is told to stop; answers how many.
async fn keep_appending(
    client: &mut FleetClient,
    name: usize,
    conversation: &str,
    go_on: &AtomicBool,
) -> u64 {
    let (mut count, mut last) = (0, 0);
    while go_on.load(Ordering::Relaxed) {
        let committed = client.append(conversation, message(&format!("{name}-{count}"))).await;
        assert!(committed.seq > last, "{} after {last}", committed.seq);
        (last, count) = (committed.seq, count + 1);
    }
    count
}

/// Every message of every sender is there once, in the order in which it was sent, without a gap.
fn assert_complete(records: &[v1::Record], sent: &[u64]) {
    let mut next = vec![0; sent.len()];
    let mut latest = 0;
    for (record, seq) in records.iter().zip(1..) {
        assert_eq!(record.seq, seq);
        assert!(record.created_at_ms >= latest, "{seq} is older than the one before it");
        latest = record.created_at_ms;
        let (name, count) = record.client_msg_id.split_once('-').expect("two numbers");
        let sender: usize = name.parse().expect("a number");
        assert_eq!(count.parse(), Ok(next[sender]), "of sender {sender}, at {seq}");
        next[sender] += 1;
    }
    assert_eq!(next, sent);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_conversation_through_three_writers_has_no_gap_and_keeps_the_order_of_each_sender() {
    let redis = RedisServer::start();
    let dir = tempfile::tempdir().unwrap();
    let archive = format!("sqlite:{}", dir.path().join("archive.db").display());
    let fleet = Fleet::start((WRITERS, 0), &redis.url(), &archive, &[]);
    let senders = (0..WRITERS).map(async |sender| {
        let mut client = fleet.client(sender);
        for count in 0..200 {
            client.append("c", message(&format!("{sender}-{count}"))).await;
        }
        assert_eq!(client.retries, 0);
    });
    join_all(senders).await;
    let mut first = None;
    for writer in 0..WRITERS {
        let records = fleet.client(writer).pull_all("c").await;
        assert_complete(&records, &[200; WRITERS]);
        assert!(first.get_or_insert_with(|| records.clone()) == &records, "all writers answer the same");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_restart_of_all_daemons_under_load_is_not_noticed_by_a_client_that_tries_again() {
    let redis = RedisServer::options().append_only().start();
    let fleet = Fleet::start((WRITERS, ARCHIVERS), &redis.url(), &cql_keyspace(), &[]);
    let go_on = Arc::new(AtomicBool::new(true));
    let load = (0..WRITERS).map(|writer| {
        let (mut client, go_on) = (fleet.client(writer), go_on.clone());
        tokio::spawn(async move { keep_appending(&mut client, writer, "c", &go_on).await })
    });
    let load: Vec<_> = load.collect();
    tokio::task::block_in_place(|| fleet.restart_one_by_one());
    go_on.store(false, Ordering::Relaxed);
    let sent: Vec<u64> =
        join_all(load).await.into_iter().map(|sent| sent.expect("every append was committed")).collect();
    assert!(sent.iter().all(|sent| *sent > 10), "{sent:?}");
    assert_complete(&fleet.client(0).pull_all("c").await, &sent);
    Fleet::await_archived(&redis);
    fleet.await_even_shares();
}

#[tokio::test(flavor = "multi_thread")]
async fn shards_are_shared_evenly_move_on_when_an_archiver_dies_and_one_that_was_paused_does_no_harm() {
    let redis = RedisServer::start();
    let fleet = Fleet::start((1, ARCHIVERS), &redis.url(), &cql_keyspace(), &[]);
    let mut client = fleet.client(0);
    fleet.await_even_shares();
    let mut append = async |from: u64| {
        for count in from..from + 20 {
            for conversation in 0..40 {
                client.append(&format!("c{conversation}"), message(&format!("0-{count}"))).await;
            }
        }
    };
    append(0).await;
    let [paused, killed, left] = &fleet.archivers[..] else { panic!("three archivers") };
    paused.signal(Signal::SIGSTOP);
    killed.kill9();
    append(20).await;
    eventually(PATIENCE, "the one that is left has all shards", || {
        left.metrics().get("qim_leases_held") == Some(256.0)
    });
    Fleet::await_archived(&redis);
    append(40).await;
    // It wakes up in the middle of what it did, with leases that are another's now.
    paused.signal(Signal::SIGCONT);
    append(60).await;
    killed.restart();
    fleet.await_even_shares();
    Fleet::await_archived(&redis);
    for conversation in 0..40 {
        assert_complete(&client.pull_all(&format!("c{conversation}")).await, &[80]);
    }
    for archiver in &fleet.archivers {
        assert_eq!(archiver.metrics().get("qim_conversations_set_aside_total"), Some(0.0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_share_gc_without_doing_it_twice_and_go_on_when_one_dies() {
    let redis = RedisServer::start();
    let dir = tempfile::tempdir().unwrap();
    let archive = format!("sqlite:{}", dir.path().join("archive.db").display());
    let fleet = Fleet::start((WRITERS, 0), &redis.url(), &archive, &[("QIM_GC_INTERVAL", "500ms")]);
    let metric = |name| -> Vec<f64> {
        fleet.writers.iter().map(|writer| writer.metrics().get(name).unwrap_or(0.0)).collect()
    };
    let mut client =
        v1::history_client::HistoryClient::connect(fleet.writers[0].grpc_url()).await.expect("it listens");
    // Answers how many were not too late: each expires two seconds after it was sent.
    let mut import = async |name: &str| {
        let mut committed = 0.0;
        for conversation in 0..50 {
            let created_at_ms = Some(now_ms() - DAY_MS + 2_000);
            let short = |i| v1::Message {
                retention_class: v1::RetentionClass::Ephemeral24h.into(),
                created_at_ms,
                ..message(&format!("{name}-{i}"))
            };
            let request = v1::ImportRequest {
                conversation: format!("{name}-{conversation}"),
                messages: (0..20).map(short).collect(),
                ..Default::default()
            };
            let results = client.import(request).await.unwrap().into_inner().results;
            let is_committed = |result: &&v1::Imported| result.outcome() == v1::imported::Outcome::Committed;
            committed += f64::from(u32::try_from(results.iter().filter(is_committed).count()).unwrap());
        }
        assert!(committed > 0.0);
        committed
    };
    let first = import("first").await;
    eventually(PATIENCE, "all are collected", || {
        metric("qim_gc_collected_total").iter().sum::<f64>() >= first
    });
    assert!(metric("qim_gc_stale_total").iter().sum::<f64>() < 1.0, "nothing was looked at twice");
    // Whoever had the claim; the last one is asked for what the others leave.
    fleet.writers[1].kill9();
    fleet.writers[2].kill9();
    let alone = &fleet.writers[0];
    let before = alone.metrics().get("qim_gc_collected_total").unwrap_or(0.0);
    let second = import("second").await;
    eventually(PATIENCE, "the one that is left collects", || {
        alone.metrics().get("qim_gc_collected_total").unwrap_or(0.0) >= before + second
    });
    assert_eq!(fleet.client(0).pull_all("second-0").await, []);
}
