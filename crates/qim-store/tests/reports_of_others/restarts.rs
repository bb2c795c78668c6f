//! Redis and daemons that end and start again.

use std::time::Duration;

use qim_core::RetentionClass::{Default as DefaultClass, Ephemeral24h};
use qim_store::TieredMessageStore;
use qim_store::tiered::TieredDraft;
use qim_testkit::RedisServer;

use crate::support::*;

/// A Redis that loses nothing when it is killed.
fn lossless() -> RedisServer {
    RedisServer::options().append_only().arg("appendfsync", "always").start()
}

/// A writer that has just been started, on that Redis and this archive.
async fn open(redis: &RedisServer, archive: &str) -> TieredMessageStore {
    let store = TieredMessageStore::with_trim(connect(redis), open_archive(archive), WINDOW);
    store.hot().join_deployment().await.unwrap();
    store
}

#[tokio::test]
async fn after_everything_expired_and_a_crash_the_next_seq_is_the_last_one_plus_one() {
    let redis = lossless();
    let dir = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", dir.path().join("archive.db").display());
    let open = || open(&redis, &url);
    let (ephemeral, ordinary) = (conversation("ephemeral"), conversation("ordinary"));
    let store = open().await;
    commit(
        &store,
        &ephemeral,
        &(0..3).map(|i| draft(&format!("{i}"), Ephemeral24h, NOW)).collect::<Vec<_>>(),
        NOW,
    )
    .await;
    commit(&store, &ordinary, &drafts(0..3, NOW), NOW).await;
    for conv in [&ephemeral, &ordinary] {
        copy_all(&store, conv, NOW).await;
    }
    // Expired and not removed; collected; trimmed; gone from the archive as well.
    for (next, days) in (4..).zip([31, 31, 62, 93]) {
        let later = NOW + days * DAY;
        let store = open().await;
        if next > 4 {
            collect_all(store.hot(), later).await;
            for conv in [&ephemeral, &ordinary] {
                copy_all(&store, conv, later).await;
                trim_all(&store, conv, later).await;
            }
            while store.archive().maintain(later).await.unwrap().more {}
        }
        drop(store);
        redis.kill();
        redis.restart();
        let store = open().await;
        for conv in [&ephemeral, &ordinary] {
            let one = [draft(&format!("next-{next}"), DefaultClass, later)];
            assert_eq!(seqs(&commit(&store, conv, &one, later).await), [next]);
        }
    }
}

#[tokio::test]
async fn a_retry_is_recognised_after_the_restart_the_archive_and_the_trim() {
    let redis = lossless();
    let dir = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", dir.path().join("archive.db").display());
    let open = || open(&redis, &url);
    let conv = conversation("c");
    let batch = drafts(0..5, NOW);
    let first = commit(&open().await, &conv, &batch, NOW).await;
    for (now, trimmed) in [(NOW + DAY, 0), (NOW + 8 * DAY, 5), (NOW + 29 * DAY, 0)] {
        redis.kill();
        redis.restart();
        let store = open().await;
        copy_all(&store, &conv, now).await;
        assert_eq!(trim_all(&store, &conv, now).await, trimmed);
        // A client that repeats what it sent at first, dated by the writer of now.
        let retries: Vec<_> = batch
            .iter()
            .map(|draft| TieredDraft {
                draft: qim_store::hot::Draft { created_at: now, ..draft.clone() },
                first_sent_at: Some(draft.created_at),
            })
            .collect();
        let again = commit_again(&store, &conv, &retries, now).await;
        assert_eq!(seqs(&again), seqs(&first));
        assert!(again.iter().all(|committed| committed.duplicate
            && committed.dates == first[usize::try_from(committed.seq - 1).unwrap()].dates));
        assert_eq!(store.marks(&conv, now).await.unwrap().last, 5);
    }
}

/// A loop that waits for a Redis which hangs ends its wait, and carries on once that answers.
#[tokio::test]
async fn a_redis_that_hangs_ends_a_clean_up_with_an_error_and_the_next_one_finishes_it() {
    let (redis, _) = hot_store();
    let url = redis.url().parse().unwrap();
    let store = qim_store::hot::RedisMessageStore::open(
        &url,
        qim_core::ShardCount::new(4).unwrap(),
        Duration::from_millis(300),
    )
    .unwrap()
    .of_new_deployment();
    let batch: Vec<_> = (0..100).map(|id| draft(&format!("{id}"), Ephemeral24h, NOW)).collect();
    let conv = conversation("c");
    store.commit(&conv, &batch, NOW, None).await.unwrap();
    let shard = store.shards().shard_of(&conv);
    redis.pause();
    assert!(store.collect_expired(shard, NOW + DAY).await.is_err());
    redis.resume();
    qim_testkit::eventually_async(Duration::from_secs(30), "Redis is found again", async || {
        store.collect_expired(shard, NOW + DAY).await.is_ok()
    })
    .await;
    assert_eq!(collect_all(&store, NOW + DAY).await.set_aside, 0);
    assert!(registered(&redis).await.is_empty());
}
