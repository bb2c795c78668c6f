//! Daemons that sleep, and what the metrics say of what waits meanwhile.

use std::time::Duration;

use qim_proto::v1;
use qim_testkit::{Launch, eventually};
use qim_tests::{DAY_MS, PATIENCE, Pair, message, now_ms, pull_all};

/// Records that expire in two seconds.
fn expiring(count: usize) -> v1::ImportRequest {
    let created_at_ms = Some(now_ms() - DAY_MS + 2_000);
    let retention_class = v1::RetentionClass::Ephemeral24h.into();
    let one = |i: usize| v1::Message { retention_class, created_at_ms, ..message(&i.to_string()) };
    v1::ImportRequest {
        conversation: "c".into(),
        messages: (0..count).map(one).collect(),
        ..Default::default()
    }
}

/// The process is stopped and its leases end, as in a laptop that is closed; what was due meanwhile is done once.
#[tokio::test(flavor = "multi_thread")]
async fn daemons_that_slept_go_on_where_they_were_and_show_nothing_that_expired_meanwhile() {
    let pair = Pair::start();
    let mut client = pair.client().await;
    client.import(expiring(50)).await.unwrap();
    let kept = v1::AppendRequest {
        conversation: "c".into(),
        messages: (100..150).map(|i| message(&i.to_string())).collect(),
        ..Default::default()
    };
    for daemon in [&pair.writer, &pair.archiver] {
        daemon.pause();
    }
    // Sent while it sleeps.
    let (mut sender, late) = (client.clone(), kept.clone());
    let sent = tokio::spawn(async move {
        // A call to Redis that it slept through is too late when it wakes up: then it is sent again, as the answer says.
        while let Err(status) = sender.append(late.clone()).await {
            assert_eq!(status.code(), tonic::Code::Unavailable, "{status:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    for shard in 0..256 {
        pair.redis.command(&["DEL", &format!("qim:{{{shard}}}:lease")]);
    }
    let date = now_ms() + 2_500;
    eventually(PATIENCE, "the first ones have expired", || now_ms() > date);
    for daemon in [&pair.writer, &pair.archiver] {
        daemon.resume();
    }
    sent.await.unwrap();
    let page = client.pull(pull_all("c")).await.unwrap().into_inner();
    assert_eq!((page.records.len(), page.earliest_available_conversation_seq), (50, 51));
    assert!(client.append(kept).await.unwrap().into_inner().results.iter().all(|result| result.duplicate));
    eventually(PATIENCE, "what expired is collected", || {
        pair.writer.metrics().get("qim_gc_collected_total") == Some(50.0)
    });
    pair.await_settled();
    let page = client.pull(pull_all("c")).await.unwrap().into_inner();
    assert_eq!((page.records.len(), page.last_conversation_seq), (50, 100));
    assert_eq!(pair.writer.metrics().get("qim_set_aside{kind=\"all\"}"), Some(0.0));
}

/// With the GC at rest, expired records stay in Redis: nobody reads them, and the metrics tell how many and how long.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_hidden_and_stored_still_is_measured_and_is_none_when_idle() {
    let pair = Pair::start();
    let resting = Launch::writer()
        .env("QIM_REDIS_URL", pair.redis.url())
        .env("QIM_ARCHIVE_URL", &pair.archive_url)
        .env("QIM_GC_INTERVAL", "30s")
        .start();
    let gauge = |name: &str| resting.metrics().get(name);
    eventually(PATIENCE, "its GC has run, and rests now for most of half a minute", || {
        gauge("qim_loop_run_seconds_count{loop=\"gc\"}") >= Some(1.0)
    });
    assert_eq!((gauge("qim_gc_due"), gauge("qim_gc_lag_seconds")), (Some(0.0), Some(0.0)));
    pair.writer.kill9();
    let mut client = v1::history_client::HistoryClient::connect(resting.grpc_url()).await.unwrap();
    client.import(expiring(20)).await.unwrap();
    eventually(PATIENCE, "they are counted, and the lag grows", || {
        gauge("qim_gc_due") == Some(20.0) && gauge("qim_gc_lag_seconds") > Some(0.0)
    });
    let page = client.pull(pull_all("c")).await.unwrap().into_inner();
    assert_eq!((page.records.len(), page.earliest_available_conversation_seq), (0, 21));
    pair.writer.restart();
    eventually(PATIENCE, "another writer's GC has collected them", || {
        gauge("qim_gc_due") == Some(0.0) && gauge("qim_gc_lag_seconds") == Some(0.0)
    });
    let archiver = |name: &str| pair.archiver.metrics().get(name);
    eventually(PATIENCE, "nothing waits anywhere", || {
        archiver("qim_unarchived_records") == Some(0.0)
            && archiver("qim_unarchived_age_seconds") == Some(0.0)
            && archiver("qim_trim_lag_seconds") == Some(0.0)
    });
}
