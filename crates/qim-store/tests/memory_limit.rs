//! A Redis that is at its memory limit: nothing new is taken, nothing stored is given up (SPEC C5).

mod support;

use bytes::Bytes;
use qim_core::RetentionClass::{Default as DefaultClass, Ephemeral24h};
use qim_store::hot::{CommitError, Draft, HotError, RedisMessageStore};
use support::*;

/// Leaves no room for anything, or any amount of it.
async fn set_room(redis: &qim_testkit::RedisServer, is_full: bool) {
    let limit = if is_full { "1mb" } else { "0" };
    let mut set = redis::cmd("CONFIG");
    set.arg("SET").arg("maxmemory").arg(limit).exec_async(&mut raw(redis).await).await.unwrap();
}

async fn refused(store: &RedisMessageStore, conversation: &qim_core::ConversationKey, drafts: &[Draft]) {
    let error = store.commit(conversation, drafts, NOW, None).await.unwrap_err();
    assert!(matches!(error, CommitError::Hot(HotError::OutOfMemory)), "{error}");
}

#[tokio::test]
async fn at_the_limit_a_retry_of_what_is_committed_gets_its_answer_and_anything_new_is_refused() {
    let (redis, store) = hot_store();
    // A few places, and so many that there is an index.
    let (short, long) = (conversation("short"), conversation("long"));
    let large = Draft { payload: noise(1, 60_000), ..draft("large", DefaultClass, NOW) };
    let first = store.commit(&short, &drafts(0..3, NOW), NOW, None).await.unwrap();
    let first_large = store.commit(&short, std::slice::from_ref(&large), NOW, None).await.unwrap();
    for from in [0, 400] {
        store.commit(&long, &drafts(from..from + 400, NOW), NOW, None).await.unwrap();
    }
    let collected = [draft("collected", Ephemeral24h, NOW - DAY)];
    store.commit(&conversation("other"), &collected, NOW, None).await.unwrap();
    collect_all(&store, NOW).await;

    set_room(&redis, true).await;
    let again = store.commit(&short, &drafts(0..3, NOW), NOW, None).await.unwrap();
    assert!(again.iter().all(|known| known.duplicate) && seqs(&again) == seqs(&first));
    assert_eq!(again[1].dates, first[1].dates);
    let again = store.commit(&short, std::slice::from_ref(&large), NOW, None).await.unwrap();
    assert_eq!((again[0].duplicate, again[0].seq), (true, first_large[0].seq));
    let again = store.commit(&long, &drafts(300..700, NOW), NOW, None).await.unwrap();
    assert!(again.iter().all(|known| known.duplicate));
    let again = store.commit(&conversation("other"), &collected, NOW, None).await.unwrap();
    assert_eq!((again[0].duplicate, again[0].dates), (true, None));

    refused(&store, &short, &drafts(2..4, NOW)).await;
    refused(&store, &long, &drafts(900..901, NOW)).await;
    refused(&store, &conversation("new"), &drafts(0..1, NOW)).await;
    let reused = Draft { payload: Bytes::from_static(b"another"), ..draft("id-1", DefaultClass, NOW) };
    let error = store.commit(&short, &[reused], NOW, None).await.unwrap_err();
    assert!(matches!(error, CommitError::AlreadyExists { index: 0, seq: 2 }), "{error}");

    set_room(&redis, false).await;
    assert_eq!(seqs(&store.commit(&short, &drafts(2..4, NOW), NOW, None).await.unwrap()), [3, 5]);
    assert_eq!(seqs(&store.commit(&conversation("new"), &drafts(0..1, NOW), NOW, None).await.unwrap()), [1]);
}

#[tokio::test]
async fn at_the_limit_copying_clean_up_and_trim_go_on_and_everything_stays_readable() {
    let Tiers { store, redis, dir: _dir } = tiers();
    let conv = conversation("c");
    commit(&store, &conv, &drafts(0..50, NOW - 8 * DAY), NOW).await;
    let short: Vec<_> = (100..150).map(|i| draft(&format!("id-{i}"), Ephemeral24h, NOW - DAY)).collect();
    commit(&store, &conv, &short, NOW - DAY).await;
    commit(&store, &conv, &drafts(200..250, NOW), NOW).await;
    set_room(&redis, true).await;
    let expected: Vec<u64> = (1..=50).chain(101..=150).collect();
    assert_eq!(log(&store, &conv, NOW).await, expected);
    assert_eq!(collect_all(store.hot(), NOW).await.collected, 50);
    copy_all(&store, &conv, NOW).await;
    assert_eq!(trim_all(&store, &conv, NOW).await, 50);
    assert_eq!(log(&store, &conv, NOW).await, expected);
    assert!(store.hot().set_record_aside(&conv, 1, "as a test", NOW).await.is_ok());
    let (used, limit) = store.hot().memory().await.unwrap();
    assert!(limit.is_some_and(|limit| used > limit), "what the alerts go by: {used} of {limit:?}");
}
