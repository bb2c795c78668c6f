//! The hot tier on a Redis Cluster whose slots move and whose nodes die. What a client is told is that it may try again,
//! and trying again commits every message once.

mod support;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures::future::join_all;
use qim_core::RetentionClass::{Default as DefaultClass, Ephemeral24h};
use qim_core::{ConversationKey, ShardCount};
use qim_store::RedisMessageStore;
use qim_store::hot::{CommitError, Committed, Draft, HotError, PageStart};
use qim_testkit::{RedisCluster, RedisServer, Reply};
use support::*;

/// Longer than a fail-over takes on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);
const CALL_TIMEOUT: Duration = Duration::from_secs(2);

fn open(cluster: &RedisCluster, shards: u16) -> RedisMessageStore {
    let url = cluster.url().parse().unwrap();
    let store = RedisMessageStore::open(&url, ShardCount::new(shards).unwrap(), CALL_TIMEOUT).unwrap();
    store.with_retention(thirty_days())
}

/// A message of each kind: one that GC has to collect, and one that is kept in pieces.
fn batch(id: u64) -> Vec<Draft> {
    let large = Draft { payload: noise(u32::try_from(id).unwrap(), 20_000), ..plain(id, "large") };
    vec![plain(id, "plain"), draft(&format!("short-{id}"), Ephemeral24h, NOW), large]
}

fn plain(id: u64, name: &str) -> Draft {
    draft(&format!("{name}-{id}"), DefaultClass, NOW)
}

/// As a client does: again, with the same ids, until it is committed. Nothing but "unavailable, try again" may come.
async fn commit(store: &RedisMessageStore, conv: &ConversationKey, drafts: &[Draft]) -> Vec<Committed> {
    let began = std::time::Instant::now();
    loop {
        match store.commit(conv, drafts, NOW, None).await {
            Ok(committed) => return committed,
            Err(CommitError::Hot(error @ HotError::Unavailable(_))) => {
                assert!(error.retry_after().is_some());
                assert!(began.elapsed() < PATIENCE, "still {error}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// Each message is there once, in its place, whole.
async fn assert_whole(store: &RedisMessageStore, conv: &ConversationKey, batches: u64) {
    let last = batches * 3;
    let mut ids = BTreeSet::new();
    let mut after = 0;
    while after < last {
        let page = store.read_page(conv, PageStart::After(after), 100, NOW).await.unwrap();
        assert_eq!((page.marks.floor, page.marks.last), (1, last), "{conv}");
        for value in &page.values {
            after += 1;
            assert_eq!(value.seq(), after, "{conv}");
            let record = value.readable(NOW).unwrap_or_else(|| panic!("{conv}: {after} cannot be read"));
            assert!(ids.insert(record.client_msg_id().to_string()), "{conv}: {after} is twice");
        }
    }
    assert_eq!(ids.len() as u64, last, "{conv}");
}

async fn assert_nothing_set_aside(store: &RedisMessageStore) {
    for shard in store.shards().all() {
        assert_eq!(store.set_aside(shard).await.unwrap(), []);
    }
}

/// The key that `store` has for this conversation.
fn list_key(store: &RedisMessageStore, conv: &ConversationKey) -> String {
    format!("qim:{{{}}}:c:{}", store.shards().shard_of(conv), conv.storage_id())
}

/// A conversation that this node has.
fn on<'a>(
    cluster: &RedisCluster,
    store: &RedisMessageStore,
    conversations: &'a [ConversationKey],
    node: &RedisServer,
) -> &'a ConversationKey {
    let is_there = |conv: &&ConversationKey| cluster.primary_of(&list_key(store, conv)).addr() == node.addr();
    conversations.iter().find(is_there).expect("conversations are spread over the nodes")
}

fn other<'a>(cluster: &'a RedisCluster, than: &RedisServer) -> &'a RedisServer {
    cluster.nodes().iter().find(|node| node.addr() != than.addr()).expect("two nodes")
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_that_move_to_and_fro_while_messages_are_committed_and_collected_lose_and_tear_nothing() {
    let cluster = RedisCluster::start(2);
    let store = open(&cluster, 4);
    let conversations: Vec<_> = (0..8).map(|i| conversation(&format!("c{i}"))).collect();
    let (moving, batches) = (AtomicBool::new(true), AtomicU64::new(0));
    tokio::task::block_in_place(|| {
        let runtime = tokio::runtime::Handle::current();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                runtime.block_on(async {
                    let mut id = 0;
                    while moving.load(Ordering::Relaxed) {
                        let batch = batch(id);
                        join_all(conversations.iter().map(|conv| commit(&store, conv, &batch))).await;
                        id += 1;
                    }
                    batches.store(id, Ordering::Relaxed);
                });
            });
            for _ in 0..3 {
                for shard in 0..4 {
                    let tag = format!("{{{shard}}}");
                    let to = other(&cluster, cluster.primary_of(&tag));
                    let migration = cluster.migrate_slot_of(&tag, to);
                    for _ in 0..2 {
                        migration.move_some();
                        std::thread::sleep(Duration::from_millis(30));
                    }
                    migration.finish();
                }
            }
            moving.store(false, Ordering::Relaxed);
        });
    });
    let batches = batches.into_inner();
    assert!(batches > 3, "only {batches} batches");
    for conv in &conversations {
        assert_whole(&store, conv, batches).await;
        let again = commit(&store, conv, &batch(batches - 1)).await;
        assert!(again.iter().all(|committed| committed.duplicate));
    }
    let committed = batches * 3 * 8;
    let stats = store.stats(NOW + DAY).await.unwrap();
    assert_eq!((stats.records, stats.unarchived, stats.gc_due), (committed, committed, committed / 3));
    assert_eq!(collect_all(&store, NOW + DAY).await.collected, committed / 3);
    assert_nothing_set_aside(&store).await;
}

#[tokio::test]
async fn a_script_does_all_or_nothing_where_only_some_of_its_keys_have_moved() {
    let cluster = RedisCluster::start(2);
    let store = open(&cluster, 1);
    let conv = conversation("c");
    commit(&store, &conv, &batch(0)).await;
    let from = cluster.primary_of("{0}");
    let migration = cluster.migrate_slot_of("{0}", other(&cluster, from));
    // The list and one list of pieces stay; what a script finds by itself, beside what it is given, is gone.
    for key in ["unarchived", "trim", "stats", "msghistorygc"] {
        migration.move_key(&format!("qim:{{0}}:{key}"));
    }
    let list = list_key(&store, &conv);
    let before = from.command(&["LRANGE", &list, "0", "-1"]);
    let error = store.commit(&conv, &batch(1), NOW, None).await.unwrap_err();
    assert!(matches!(error, CommitError::Hot(HotError::Unavailable(_))), "{error}");
    let error = store.commit(&conversation("new"), &batch(1), NOW, None).await.unwrap_err();
    assert!(matches!(error, CommitError::Hot(HotError::Unavailable(_))), "{error}");
    let error = store.collect_expired(0, NOW + DAY).await.unwrap_err();
    assert!(matches!(error, HotError::Unavailable(_)), "{error}");
    assert_eq!(from.command(&["LRANGE", &list, "0", "-1"]), before, "nothing was changed");
    migration.finish();
    assert_eq!(seqs(&commit(&store, &conv, &batch(1)).await), [4, 5, 6]);
    assert_whole(&store, &conv, 2).await;
    assert_eq!(collect_all(&store, NOW + DAY).await.collected, 2);
    assert_nothing_set_aside(&store).await;
}

#[tokio::test]
async fn a_node_without_the_scripts_gets_them_while_another_node_hangs() {
    let cluster = RedisCluster::start(3);
    let store = open(&cluster, 16);
    let conversations: Vec<_> = (0..8).map(|i| conversation(&format!("c{i}"))).collect();
    for conv in &conversations {
        commit(&store, conv, &batch(0)).await;
    }
    let [works, hangs, _] = cluster.nodes() else { panic!("three nodes") };
    let conv = on(&cluster, &store, &conversations, works);
    hangs.pause();
    // As a replica that has just taken over: it has the data, and not one script.
    assert_eq!(works.command(&["SCRIPT", "FLUSH"]), Reply::Text("OK".into()));
    assert_eq!(seqs(&store.commit(conv, &batch(1), NOW, None).await.unwrap()), [4, 5, 6]);
    assert_eq!(works.command(&["SCRIPT", "FLUSH"]), Reply::Text("OK".into()));
    let shard = store.shards().shard_of(conv);
    assert!(store.acquire_lease(shard, None, SECOND).await.unwrap().is_some());
}

/// What a primary acknowledged and its replica has not got yet is lost with it; so everything is replicated before.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_takes_over_from_a_killed_primary_and_every_commit_is_there_once() {
    let cluster = RedisCluster::start_with_replicas(3);
    let store = open(&cluster, 16);
    let conversations: Vec<_> = (0..12).map(|i| conversation(&format!("c{i}"))).collect();
    for id in 0..3 {
        join_all(conversations.iter().map(async |conv| commit(&store, conv, &batch(id)).await)).await;
    }
    let victim = cluster.primary_of(&list_key(&store, &conversations[0]));
    cluster.await_replicated(victim);
    victim.kill();
    let mut refused = 0;
    let mut first_error = None;
    while let Err(error) = store.commit(&conversations[0], &batch(3), NOW, None).await {
        let CommitError::Hot(HotError::Unavailable(reason)) = error else { panic!("{error:?}") };
        first_error.get_or_insert(reason);
        refused += 1;
        assert!(refused < 1_000, "{first_error:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(first_error.is_some(), "the primary was dead");
    join_all(conversations.iter().map(async |conv| commit(&store, conv, &batch(3)).await)).await;
    victim.restart();
    cluster.await_whole();
    for id in 0..5 {
        // Everything again: what was committed is known, and what follows goes on without a gap.
        let answers =
            join_all(conversations.iter().map(async |conv| commit(&store, conv, &batch(id)).await)).await;
        for answer in answers {
            assert_eq!(seqs(&answer), [id * 3 + 1, id * 3 + 2, id * 3 + 3]);
            assert!(answer.iter().all(|committed| committed.duplicate == (id < 4)));
        }
    }
    for conv in &conversations {
        assert_whole(&store, conv, 5).await;
    }
    assert_nothing_set_aside(&store).await;
}

#[tokio::test]
async fn a_cluster_that_is_down_says_when_to_try_again_and_goes_on_when_it_is_back() {
    let cluster = RedisCluster::start(3);
    let store = open(&cluster, 16);
    let conversations: Vec<_> = (0..6).map(|i| conversation(&format!("c{i}"))).collect();
    for conv in &conversations {
        commit(&store, conv, &batch(0)).await;
    }
    let [one, two, three] = cluster.nodes() else { panic!("three nodes") };
    let [of_dead, of_alive] = [one, three].map(|node| on(&cluster, &store, &conversations, node));
    one.kill();
    two.kill();
    // Without a majority the third one stops, too.
    qim_testkit::eventually(
        PATIENCE,
        "the cluster is down",
        || matches!(three.command(&["SET", "x", "1"]), Reply::Error(error) if error.starts_with("CLUSTERDOWN")),
    );
    for conv in [of_dead, of_alive] {
        let error = store.commit(conv, &batch(1), NOW, None).await.unwrap_err();
        let CommitError::Hot(error @ HotError::Unavailable(_)) = error else { panic!("{error:?}") };
        assert!(error.retry_after().is_some());
        let error = store.read_page(conv, PageStart::After(0), 10, NOW).await.unwrap_err();
        assert!(matches!(error, HotError::Unavailable(_)), "{error:?}");
    }
    one.restart();
    two.restart();
    for conv in &conversations {
        commit(&store, conv, &batch(1)).await;
        assert_whole(&store, conv, 2).await;
    }
}
