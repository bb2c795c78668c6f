//! The archive goes away and comes back.

use std::time::Duration;

use qim_proto::v1;
use qim_testkit::{FaultMode, FaultProxy, eventually};
use qim_tests::{DAY_MS, PATIENCE, Pair, cql_keyspace, message, now_ms, pull_all, unique};

fn import(client_id: &str, class: v1::RetentionClass, age_ms: i64) -> v1::Message {
    v1::Message {
        retention_class: class.into(),
        created_at_ms: Some(now_ms() - age_ms),
        ..message(client_id)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a19_with_the_archive_away_nothing_is_trimmed_hot_work_goes_on_and_all_is_drained_when_it_is_back() {
    let url = cql_keyspace();
    let (server, keyspace) = url.strip_prefix("scylla://").unwrap().split_once('/').unwrap();
    let proxy = FaultProxy::start(server.parse().unwrap());
    let pair = Pair::options()
        .archive_url(format!("scylla://{}/{keyspace}", proxy.addr()))
        .env("QIM_ARCHIVE_TIMEOUT", "2s")
        .start();
    let mut client = pair.client().await;
    // Once at the start the archive is needed: to say that this is a new deployment.
    eventually(PATIENCE, "the deployment is founded", || {
        !pair.redis.command(&["KEYS", "qim:lineage"]).texts().is_empty()
    });
    for mode in [FaultMode::Refuse, FaultMode::BlackHole] {
        proxy.set(mode);
        let conversation = format!("c{}", unique());
        let request = v1::ImportRequest {
            conversation: conversation.clone(),
            messages: vec![
                import("old", v1::RetentionClass::Default, 8 * DAY_MS),
                import("short", v1::RetentionClass::Ephemeral24h, DAY_MS - 3_000),
                import("young", v1::RetentionClass::Default, 0),
            ],
            ..Default::default()
        };
        client.import(request).await.unwrap();
        let append = v1::AppendRequest {
            conversation: conversation.clone(),
            messages: vec![message("now")],
            ..Default::default()
        };
        assert_eq!(client.append(append).await.unwrap().into_inner().results[0].seq, 4, "{mode:?}");

        let archiver = |name: &str| pair.archiver.metrics().get(name).unwrap_or(-1.0);
        let before = pair.archiver.metrics().sum("qim_archive_errors_total", &[]);
        eventually(PATIENCE, "the lag grows", || archiver("qim_unarchived_age_seconds") > 6.0);
        assert!(pair.archiver.metrics().sum("qim_archive_errors_total", &[]) > before, "{mode:?}");
        assert!(archiver("qim_unarchived_records") >= 3.0);
        let page = client.pull(pull_all(&conversation)).await.unwrap().into_inner();
        let shown: Vec<&str> = page.records.iter().map(|record| record.client_msg_id.as_str()).collect();
        assert_eq!(
            shown,
            ["old", "young", "now"],
            "{mode:?}: nothing was trimmed, and what expired is not shown"
        );
        eventually(Duration::from_secs(15), "GC collects all the same", || {
            pair.writer.metrics().get("qim_gc_collected_total") >= Some(1.0)
        });
        assert!(pair.archiver.readyz().body.contains("archive"), "{mode:?}");
        assert_eq!(pair.writer.readyz().status, 200);

        proxy.set(FaultMode::Pass);
        pair.await_settled();
        // The writer's own connections to the archive may need a moment longer; it says so meanwhile.
        let page = loop {
            match client.pull(pull_all(&conversation)).await {
                Ok(page) => break page.into_inner(),
                Err(status) => assert_eq!(status.code(), tonic::Code::Unavailable, "{status}"),
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        };
        assert_eq!((page.records.len(), page.earliest_available_conversation_seq), (3, 1), "{mode:?}");
        eventually(PATIENCE, "the lag is 0 again", || archiver("qim_unarchived_age_seconds") == 0.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_that_is_lost_after_the_commit_is_answered_as_a_duplicate_when_it_is_sent_again() {
    let pair = Pair::start();
    let proxy = FaultProxy::start(pair.redis.addr());
    let writer = qim_testkit::Launch::writer()
        .env("QIM_REDIS_URL", format!("redis://{}", proxy.addr()))
        .env("QIM_REDIS_TIMEOUT", "500ms")
        .start();
    let mut client =
        v1::history_client::HistoryClient::connect(writer.grpc_url()).await.expect("the writer listens");
    for i in 0..20 {
        let request = v1::AppendRequest {
            conversation: "c".into(),
            messages: vec![message(&format!("id-{i}"))],
            ..Default::default()
        };
        proxy.set(FaultMode::DropOneReply);
        let seq = loop {
            match client.append(request.clone()).await {
                Ok(answer) => break answer.into_inner().results[0].seq,
                Err(status) => assert_eq!(status.code(), tonic::Code::Unavailable, "{status}"),
            }
        };
        assert_eq!(seq, i + 1);
    }
    assert!(proxy.dropped_replies() > 0);
    let page = client.pull(pull_all("c")).await.unwrap().into_inner();
    assert_eq!((page.records.len(), page.last_conversation_seq), (20, 20));
}
