//! `QIM_COMMIT_DURABILITY`: what is acknowledged is where the mode says, or the sender is told to try again.

mod support;

use std::time::Duration;

use qim_core::CommitDurability;
use qim_core::RetentionClass::Default as DefaultClass;
use qim_store::RedisMessageStore;
use qim_store::hot::{CommitError, Committed, HotError};
use qim_testkit::{RedisServer, eventually, eventually_async};
use support::*;

fn store_with(redis: &RedisServer, durability: &str) -> RedisMessageStore {
    let url = redis.url().parse().expect("a Redis URL");
    RedisMessageStore::open(&url, qim_core::ShardCount::new(4).unwrap(), Duration::from_secs(1))
        .expect("a store")
        .with_retention(thirty_days())
        .with_durability(durability.parse::<CommitDurability>().unwrap())
        .of_new_deployment()
}

/// A replica that has all that its master has.
fn replica_of(master: &RedisServer) -> RedisServer {
    let replica = RedisServer::options().start();
    replica.command(&["REPLICAOF", "127.0.0.1", &master.addr().port().to_string()]);
    eventually(30 * SECOND, "the replica follows its master", || {
        replica.command(&["INFO", "replication"]).texts()[0].contains("master_link_status:up")
    });
    replica
}

async fn commit_one(store: &RedisMessageStore, id: &str) -> Result<Committed, CommitError> {
    let batch = [draft(id, DefaultClass, NOW)];
    Ok(store.commit(&conversation("c"), &batch, NOW, None).await?.remove(0))
}

fn places(redis: &RedisServer, store: &RedisMessageStore) -> i64 {
    let shard = store.shards().shard_of(&conversation("c"));
    redis.command(&["LLEN", &format!("qim:{{{shard}}}:c:c")]).integer()
}

#[tokio::test]
async fn replicated_acknowledges_what_the_replicas_have_and_nothing_while_one_stands_still() {
    let master = RedisServer::options().append_only().start();
    let replicas = [replica_of(&master), replica_of(&master)];
    let store = store_with(&master, "replicated:2");
    let warnings = store.join_deployment().await.unwrap();
    assert!(!warnings.iter().any(|warning| warning.contains("QIM_COMMIT_DURABILITY")), "{warnings:?}");
    for i in 1..=20 {
        assert_eq!(commit_one(&store, &i.to_string()).await.unwrap().seq, i);
        for replica in &replicas {
            // A record for each, and the header.
            assert_eq!(places(replica, &store), i64::try_from(i).unwrap() + 1);
        }
    }
    replicas[1].pause();
    let error = commit_one(&store, "21").await.unwrap_err();
    let CommitError::Hot(HotError::Unavailable(reason)) = error else { panic!("{error}") };
    assert!(reason.contains("1 of 2 replicas"), "{reason}");
    replicas[1].resume();
    // The retry is recognised, and acknowledged only now.
    eventually_async(30 * SECOND, "the retry is taken", async || commit_one(&store, "21").await.is_ok())
        .await;
    assert_eq!(commit_one(&store, "21").await.unwrap().seq, 21);
    assert_eq!(places(&replicas[1], &store), 22);
}

#[tokio::test]
async fn those_who_wait_for_a_replica_hold_up_no_reader() {
    let master = RedisServer::options().append_only().start();
    let replica = replica_of(&master);
    let store = store_with(&master, "replicated:1");
    commit_one(&store, "1").await.unwrap();
    replica.pause();
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { commit_one(&store, "2").await }
    });
    // It is there before it is acknowledged.
    eventually_async(30 * SECOND, "the record is there", async || places(&master, &store) == 3).await;
    store.ping().await.unwrap();
    assert!(!waiting.is_finished());
    replica.resume();
    // Whether it was in time is the machine's affair.
    let _ = waiting.await.unwrap();
}

#[tokio::test]
async fn replicated_warns_at_start_of_missing_replicas() {
    let master = RedisServer::options().append_only().start();
    let warnings = store_with(&master, "replicated:1").join_deployment().await.unwrap();
    let told = warnings.iter().any(|warning| {
        warning.contains("QIM_COMMIT_DURABILITY: \"replicated:1\"") && warning.contains("0 replicas")
    });
    assert!(told, "{warnings:?}");
}

#[tokio::test]
async fn fsync_needs_a_redis_that_can_and_says_what_to_set() {
    for (options, wanted) in [
        (RedisServer::options(), "CONFIG SET appendonly yes"),
        (
            RedisServer::options().append_only().arg("appendfsync", "everysec"),
            "CONFIG SET appendfsync always",
        ),
    ] {
        let redis = options.start();
        let version = redis.command(&["INFO", "server"]).texts()[0].to_owned();
        let can_wait = ["redis_version:7.0", "redis_version:6"].iter().all(|old| !version.contains(old));
        if can_wait && wanted.contains("appendfsync") {
            store_with(&redis, "fsync").join_deployment().await.unwrap();
            continue;
        }
        let error = store_with(&redis, "fsync").join_deployment().await.unwrap_err().to_string();
        assert!(error.contains("QIM_COMMIT_DURABILITY: \"fsync\"") && error.contains(wanted), "{error}");
    }
}

#[tokio::test]
async fn fsync_acknowledges_what_is_on_disk() {
    let redis = RedisServer::options().append_only().arg("appendfsync", "always").start();
    let store = store_with(&redis, "fsync");
    store.join_deployment().await.unwrap();
    for i in 1..=5 {
        commit_one(&store, &i.to_string()).await.unwrap();
        let file = redis.append_only_file();
        assert!(file.contains(format!("body of {i}").as_bytes()), "{i} is acknowledged and not in the file");
    }
}

#[tokio::test]
async fn memory_warns_of_a_redis_that_leaves_writing_to_chance() {
    let redis = RedisServer::options().append_only().arg("appendfsync", "no").start();
    let warnings = store_with(&redis, "memory").join_deployment().await.unwrap();
    assert!(warnings.iter().any(|warning| warning.contains("appendfsync everysec")), "{warnings:?}");
}
