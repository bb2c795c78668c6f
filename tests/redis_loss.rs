//! Redis loses its last second, everything, or its identity while clients send: what they were told stays true.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use qim_proto::v1;
use qim_testkit::{Daemon, eventually};
use qim_tests::{PATIENCE, Pair, cql_keyspace, message};
use tokio::task::JoinHandle;

const CONVERSATIONS: usize = 6;

/// What was acknowledged of a conversation: ids by seq.
type Acknowledged = BTreeMap<u64, String>;

/// Sends to one conversation until it is told to stop: each message again until it is taken.
fn sender(writer: &Daemon, conversation: String, stop: Arc<AtomicBool>) -> JoinHandle<Acknowledged> {
    let url = writer.grpc_url();
    tokio::spawn(async move {
        let mut client = v1::history_client::HistoryClient::connect(url).await.expect("the writer listens");
        let mut acknowledged = Acknowledged::new();
        for n in 0.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let id = format!("{conversation}-{n}");
            loop {
                let request = v1::AppendRequest {
                    conversation: conversation.clone(),
                    messages: vec![message(&id)],
                    ..Default::default()
                };
                match client.append(request).await {
                    Ok(answer) => {
                        let seq = answer.into_inner().results[0].seq;
                        let before = acknowledged.insert(seq, id);
                        assert_eq!(before, None, "{conversation}: seq {seq} was given twice");
                        break;
                    }
                    // Unknown, with no more to it: the writer was killed with the request.
                    Err(status)
                        if status.code() == tonic::Code::Unavailable
                            || status.message() == "transport error" =>
                    {
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                    Err(status) => panic!("{conversation}: {status:?}"),
                }
            }
        }
        acknowledged
    })
}

/// All records and gaps of a conversation.
async fn history(pair: &Pair, conversation: &str) -> (BTreeMap<u64, String>, Vec<v1::Gap>) {
    let (mut records, mut gaps, mut after) = (BTreeMap::new(), Vec::new(), 0);
    let mut client = pair.client().await;
    loop {
        let request = v1::PullRequest {
            conversation: conversation.into(),
            position: Some(v1::pull_request::Position::AfterSeq(after)),
            limit: 500,
            ..Default::default()
        };
        let page = client.pull(request).await.unwrap().into_inner();
        records.extend(page.records.into_iter().map(|record| (record.seq, record.client_msg_id)));
        gaps.extend(page.gaps);
        if !page.has_more {
            return (records, gaps);
        }
        after = page.next_seq;
    }
}

/// Sends to several conversations while `strike` is done to Redis, and answers how many seqs the gaps have.
async fn survives(pair: &Pair, strike: impl FnOnce()) -> u64 {
    let stop = Arc::new(AtomicBool::new(false));
    let names: Vec<String> = (0..CONVERSATIONS).map(|i| format!("c{i}")).collect();
    let senders: HashMap<_, _> =
        names.iter().map(|name| (name, sender(&pair.writer, name.clone(), stop.clone()))).collect();
    let committed = || pair.writer.metrics().sum("qim_commits_total", &[]);
    tokio::task::block_in_place(|| {
        eventually(PATIENCE, "messages are under way", || committed() > 200.0);
        strike();
        let before = committed();
        eventually(PATIENCE, "messages are taken again", || committed() > before + 200.0);
    });
    stop.store(true, Ordering::Relaxed);
    let mut missing = 0;
    for (name, sender) in senders {
        let acknowledged = sender.await.unwrap();
        let (records, gaps) = history(pair, name).await;
        let in_gap = |seq: u64| gaps.iter().any(|gap| (gap.from..=gap.to).contains(&seq));
        for (seq, id) in acknowledged {
            match records.get(&seq) {
                Some(found) => assert_eq!(found, &id, "{name} {seq}"),
                None => assert!(in_gap(seq), "{name}: {id} at {seq} is gone, and in no gap: {gaps:?}"),
            }
        }
        assert!(!records.keys().any(|seq| in_gap(*seq)), "{name}: a gap over what is there: {gaps:?}");
        missing += gaps.iter().map(|gap| gap.to - gap.from + 1).sum::<u64>();
    }
    missing
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_lost_the_end_of_its_file_gets_it_back_from_the_writer() {
    let pair = Pair::start();
    let lost = survives(&pair, || {
        let file = pair.redis.append_only_file();
        std::thread::sleep(Duration::from_millis(300));
        pair.redis.kill();
        pair.redis.set_append_only_file(&file);
        pair.redis.restart();
    })
    .await;
    assert_eq!(lost, 0);
    assert!(pair.writer.metrics().sum("qim_restored_messages_total", &[]) > 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emptied_redis_loses_nothing_of_a_living_writer_with_sqlite() {
    let pair = Pair::start();
    let strike = || {
        pair.redis.command(&["FLUSHALL"]);
    };
    assert_eq!(survives(&pair, strike).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_lost_its_disk_loses_nothing_of_a_living_writer_with_a_cql_server() {
    let pair = Pair::options().archive_url(cql_keyspace()).start();
    assert_eq!(survives(&pair, || pair.redis.restart_empty()).await, 0);
}

fn lose_redis_and_the_writer(pair: &Pair) {
    pair.writer.kill9();
    pair.redis.restart_empty();
    pair.writer.restart();
    pair.writer.await_ready(PATIENCE);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_that_loses_all_before_anything_is_archived_gives_no_seq_again() {
    for archive in ["sqlite", "cql"] {
        let options = Pair::options().archiver_env("QIM_COPY_DELAY", "1h");
        let pair = if archive == "cql" { options.archive_url(cql_keyspace()) } else { options }.start();
        let lost = survives(&pair, || lose_redis_and_the_writer(&pair)).await;
        assert_eq!(pair.archiver.metrics().get("qim_archived_rows_total"), Some(0.0));
        assert!(lost > 0, "{archive}: what nobody has any more is named");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_lost_together_with_its_writer_is_named_in_a_gap() {
    let pair = Pair::start();
    let lost = survives(&pair, || {
        eventually(PATIENCE, "the archive has something", || {
            pair.archiver.metrics().get("qim_archived_rows_total") > Some(0.0)
        });
        lose_redis_and_the_writer(&pair);
    })
    .await;
    assert!(lost > 0, "nobody can know that nothing is missing");
    // The loop that looks at Redis tells it, twice a second.
    eventually(PATIENCE, "the gaps are counted", || pair.writer.metrics().sum("qim_gaps_total", &[]) > 0.0);
    let described = pair.qim_json(&["describe", "c0"]);
    assert!(described["gaps"][0]["from"].as_u64() > Some(0), "{described}");
}
