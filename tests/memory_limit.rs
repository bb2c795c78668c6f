//! Both daemons on a Redis that is full: what is refused, what goes on, and how it ends by itself (SPEC C5).

use std::time::Duration;

use qim_proto::v1;
use qim_testkit::{RedisServer, eventually};
use qim_tests::{DAY_MS, PATIENCE, Pair, message, now_ms, pull_all};
use tonic::Code;
use tonic_types::StatusExt;

fn append(id: &str) -> v1::AppendRequest {
    v1::AppendRequest { conversation: "young".into(), messages: vec![message(id)], ..Default::default() }
}

fn memory(redis: &RedisServer, field: &str) -> u64 {
    let info = redis.command(&["INFO", "memory"]).texts().concat();
    let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.expect("a field").trim().parse().expect("a number")
}

/// Eight days old, and two megabytes that do not compress.
async fn import_bulk(client: &mut v1::history_client::HistoryClient<tonic::transport::Channel>) {
    let mut state = 1_u64;
    let mut noise = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.to_be_bytes()[0]
    };
    for batch in 0..20 {
        let old = |i: i64| v1::Message {
            created_at_ms: Some(now_ms() - 8 * DAY_MS + batch * 100 + i),
            payload: (0..1000).map(|_| noise()).collect::<Vec<u8>>().into(),
            ..message(&format!("old-{batch}-{i}"))
        };
        let messages = (0..100).map(old).collect();
        let request = v1::ImportRequest { conversation: "old".into(), messages, ..Default::default() };
        client.import(request).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_limit_new_messages_are_refused_all_else_goes_on_and_a_trim_ends_it_without_a_restart() {
    let pair = Pair::start();
    let mut client = pair.client().await;
    pair.archiver.pause();
    import_bulk(&mut client).await;
    let short = v1::Message {
        retention_class: v1::RetentionClass::Ephemeral24h.into(),
        created_at_ms: Some(now_ms() - DAY_MS + 3_000),
        ..message("short")
    };
    let request =
        v1::ImportRequest { conversation: "short".into(), messages: vec![short], ..Default::default() };
    client.import(request).await.unwrap();
    client.append(append("before")).await.unwrap();
    let limit = memory(&pair.redis, "used_memory") - 256 * 1024;
    pair.redis.command(&["CONFIG", "SET", "maxmemory", &limit.to_string()]);

    let refused = client.append(append("new")).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    let after = refused.get_error_details().retry_info().and_then(|retry| retry.retry_delay);
    assert_eq!(after, Some(Duration::from_secs(5)));
    let again = client.append(append("before")).await.unwrap().into_inner();
    assert!(again.results[0].duplicate, "what is committed needs no room");
    assert_eq!(client.pull(pull_all("young")).await.unwrap().into_inner().records.len(), 1);
    let writer = |name: &str| pair.writer.metrics().get(name).unwrap_or(-1.0);
    assert!(pair.writer.metrics().sum("qim_commit_refusals_total", &[("reason", "memory")]) >= 1.0);
    eventually(PATIENCE, "the metrics say that it is full", || {
        writer("qim_redis_memory_used_bytes") > 0.9 * writer("qim_redis_memory_limit_bytes")
            && writer("qim_redis_memory_limit_bytes") > 0.0
    });
    eventually(PATIENCE, "GC goes on", || writer("qim_gc_collected_total") >= 1.0);
    assert_eq!(pair.writer.readyz().status, 200);

    pair.archiver.resume();
    pair.await_settled();
    assert!(memory(&pair.redis, "used_memory") < limit, "the trim made room");
    let new = client.append(append("new")).await.unwrap().into_inner();
    assert_eq!((new.results[0].seq, new.results[0].duplicate), (2, false));

    let (mut after, mut read) = (0, 0);
    loop {
        let position = Some(v1::pull_request::Position::AfterSeq(after));
        let page = client.pull(v1::PullRequest { position, ..pull_all("old") }).await.unwrap().into_inner();
        read += page.records.len();
        after = page.next_seq;
        if !page.has_more {
            break;
        }
    }
    assert_eq!(read, 2_000, "nothing stored was given up");
}
