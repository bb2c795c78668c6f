//! Commits that arrive together share calls, and nothing else: each is answered for itself.

mod support;

use futures::future::join_all;
use qim_core::RetentionClass::Default as DefaultClass;
use qim_store::hot::{CommitError, HotError, RedisMessageStore};
use qim_testkit::RedisServer;
use support::*;

/// How often scripts were called so far.
fn calls(redis: &RedisServer) -> u64 {
    let stats = redis.command(&["INFO", "commandstats"]);
    let line =
        stats.texts()[0].lines().find(|line| line.starts_with("cmdstat_evalsha:")).unwrap_or("").to_owned();
    line.split(['=', ',']).nth(1).and_then(|calls| calls.parse().ok()).unwrap_or(0)
}

async fn commit_one(store: &RedisMessageStore, conversation: &str, id: &str) -> Result<u64, CommitError> {
    let batch = [draft(id, DefaultClass, NOW)];
    Ok(store.commit(&support::conversation(conversation), &batch, NOW, None).await?[0].seq)
}

#[tokio::test]
async fn commits_that_arrive_together_share_calls() {
    let (redis, store) = hot_store_on_one_server();
    commit_one(&store, "warm", "up").await.unwrap();
    let before = calls(&redis);
    let ids: Vec<(String, String)> =
        (0..1_000).map(|i| (format!("c{}", i % 100), format!("id-{i}"))).collect();
    let committed = join_all(ids.iter().map(|(conversation, id)| commit_one(&store, conversation, id))).await;
    for chunk in committed.chunks(100).enumerate() {
        let (round, seqs) = chunk;
        assert!(seqs.iter().all(|seq| *seq.as_ref().unwrap() == round as u64 + 1), "in the order they came");
    }
    let used = calls(&redis) - before;
    assert!(used <= 20, "{used} calls for 1000 commits");
}

#[tokio::test]
async fn an_idle_store_calls_at_once() {
    let (redis, store) = hot_store();
    commit_one(&store, "warm", "up").await.unwrap();
    let before = calls(&redis);
    for i in 0..5 {
        assert_eq!(commit_one(&store, "c", &i.to_string()).await.unwrap(), i + 1);
    }
    assert_eq!(calls(&redis) - before, 5);
}

#[tokio::test]
async fn a_damaged_conversation_or_a_reused_id_fails_alone_in_its_group() {
    let (redis, store) = hot_store();
    commit_one(&store, "damaged", "1").await.unwrap();
    commit_one(&store, "reused", "id").await.unwrap();
    let shard = store.shards().shard_of(&conversation("damaged"));
    redis.command(&["LPUSH", &format!("qim:{{{shard}}}:c:damaged"), "extra"]);
    let shard = store.shards().shard_of(&conversation("foreign"));
    // A key that only a later write of the script meets.
    redis.command(&["SET", &format!("qim:{{{shard}}}:c:foreign"), "text"]);
    let reused = qim_store::hot::Draft { payload: "another".into(), ..draft("id", DefaultClass, NOW) };
    let good: Vec<String> = (0..50).map(|i| format!("good-{i}")).collect();
    let (reused_conversation, reused) = (conversation("reused"), [reused]);
    let (good, damaged, foreign, reused) = tokio::join!(
        join_all(good.iter().map(|conversation| commit_one(&store, conversation, "x"))),
        commit_one(&store, "damaged", "2"),
        commit_one(&store, "foreign", "1"),
        store.commit(&reused_conversation, &reused, NOW, None),
    );
    assert!(good.into_iter().all(|seq| seq.unwrap() == 1));
    assert!(matches!(damaged, Err(CommitError::Hot(HotError::Corrupt { .. }))), "{damaged:?}");
    assert!(matches!(foreign, Err(CommitError::Hot(HotError::Corrupt { .. }))), "{foreign:?}");
    assert!(matches!(reused, Err(CommitError::AlreadyExists { .. })), "{reused:?}");
}

#[tokio::test]
async fn a_commit_whose_caller_went_away_takes_no_other_with_it() {
    let (_redis, store) = hot_store();
    for round in 0..50 {
        let abandoned = commit_one(&store, "c", "abandoned");
        let kept = format!("kept-{round}");
        let kept = commit_one(&store, "c", &kept);
        tokio::select! {
            biased;
            _ = async { tokio::join!(abandoned, tokio::time::sleep(SECOND)).0 } => {}
            seq = kept => assert!(seq.unwrap() > 0),
        }
    }
    let marks = store
        .read_page(&conversation("c"), qim_store::hot::PageStart::After(0), 100, NOW)
        .await
        .unwrap()
        .marks;
    assert_eq!(marks.last, 51, "each once, the abandoned one too");
}
