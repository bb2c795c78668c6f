//! The tiers on a Redis Cluster whose slots move and whose nodes die. What a client is told is that it may try again, and
//! trying again commits every message once. Each move and each death begins a new lineage of the shards that it concerns.

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures::future::join_all;
use qim_core::RetentionClass::{Default as DefaultClass, Ephemeral24h};
use qim_core::{ConversationKey, ShardCount};
use qim_store::hot::{Committed, Draft, HotError, LINEAGE_WATCH_INTERVAL, PageStart};
use qim_store::tiered::{TieredCommitError, TieredDraft};
use qim_store::{RedisMessageStore, TieredMessageStore};
use qim_testkit::{RedisCluster, RedisServer, Reply, eventually};
use support::*;
use tokio::task::AbortHandle;

/// Longer than a fail-over takes on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);
const CALL_TIMEOUT: Duration = Duration::from_secs(2);

/// A writer, as its daemon runs it. It looks at its lineages until it is dropped.
struct Writer {
    store: TieredMessageStore,
    watch: AbortHandle,
    archive: Arc<tempfile::TempDir>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

fn open(cluster: &RedisCluster, shards: u16) -> Writer {
    open_beside(cluster, shards, Arc::new(tempfile::tempdir().unwrap()))
}

/// A further one on the same tiers.
fn open_beside(cluster: &RedisCluster, shards: u16, archive: Arc<tempfile::TempDir>) -> Writer {
    let url = cluster.url().parse().unwrap();
    let hot = RedisMessageStore::open(&url, ShardCount::new(shards).unwrap(), CALL_TIMEOUT).unwrap();
    let hot = hot.with_retention(thirty_days()).of_new_deployment();
    let archive_url = format!("sqlite:{}", archive.path().join("archive.db").display());
    let store = TieredMessageStore::with_trim(hot, open_archive(&archive_url), WINDOW);
    let watched = store.clone();
    let watch = tokio::spawn(async move {
        loop {
            // Fails while a node is away.
            let _ = watched.watch_lineage(NOW, true).await;
            tokio::time::sleep(LINEAGE_WATCH_INTERVAL).await;
        }
    });
    Writer { store, watch: watch.abort_handle(), archive }
}

impl Writer {
    fn hot(&self) -> &RedisMessageStore {
        self.store.hot()
    }

    /// Once. `Err` is what a client may meet: something that passes without anybody acting.
    async fn try_commit(&self, conv: &ConversationKey, drafts: &[Draft]) -> Result<Vec<Committed>, HotError> {
        let tiered = |draft: &Draft| TieredDraft { draft: draft.clone(), first_sent_at: Some(NOW) };
        let drafts: Vec<_> = drafts.iter().map(tiered).collect();
        self.store.commit(conv, &drafts, NOW).await.map_err(|error| match error {
            TieredCommitError::Hot(error) if error.retry_after().is_some() => error,
            error => panic!("{error:?}"),
        })
    }

    /// As a client does: again, with the same ids, until it is committed.
    async fn commit(&self, conv: &ConversationKey, drafts: &[Draft]) -> Vec<Committed> {
        let began = std::time::Instant::now();
        loop {
            match self.try_commit(conv, drafts).await {
                Ok(committed) => return committed,
                Err(error) => assert!(began.elapsed() < PATIENCE, "still {error}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Nothing that was acknowledged was left out.
    fn assert_no_loss(&self) {
        let report = self.hot().loss_report();
        assert_eq!((report.gaps, report.conflicts), (0, 0));
    }
}

/// A message of each kind: one that GC has to collect, and one that is kept in pieces.
fn batch(id: u64) -> Vec<Draft> {
    let large = Draft { payload: noise(u32::try_from(id).unwrap(), 20_000), ..plain(id, "large") };
    vec![plain(id, "plain"), draft(&format!("short-{id}"), Ephemeral24h, NOW), large]
}

fn plain(id: u64, name: &str) -> Draft {
    draft(&format!("{name}-{id}"), DefaultClass, NOW)
}

/// Each message is there once, in its place, whole.
async fn assert_whole(writer: &Writer, conv: &ConversationKey, batches: u64) {
    let last = batches * 3;
    let mut ids = BTreeSet::new();
    let mut after = 0;
    while after < last {
        let page = writer.hot().read_page(conv, PageStart::After(after), 100, NOW).await.unwrap();
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

/// The only replica of this primary.
fn replica_of<'a>(cluster: &'a RedisCluster, primary: &RedisServer) -> &'a RedisServer {
    let place =
        cluster.nodes().iter().position(|node| node.addr() == primary.addr()).expect("one of its nodes");
    &cluster.nodes()[place + cluster.nodes().len() / 2]
}

/// From now on the replica of this primary gets nothing any more. It hangs: whoever wants it to take over resumes it.
fn cut_off_replica<'a>(cluster: &'a RedisCluster, primary: &RedisServer) -> &'a RedisServer {
    let replica = replica_of(cluster, primary);
    replica.pause();
    primary.command(&["CLIENT", "KILL", "TYPE", "replica"]);
    replica
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_that_move_to_and_fro_while_messages_are_committed_and_collected_lose_and_tear_nothing() {
    let cluster = RedisCluster::start(2);
    let writer = open(&cluster, 4);
    let conversations: Vec<_> = (0..8).map(|i| conversation(&format!("c{i}"))).collect();
    let moving = AtomicBool::new(true);
    // Of each conversation.
    let batches: Vec<_> = conversations.iter().map(|_| AtomicU64::new(0)).collect();
    let go_on = async |(conv, batches): (&ConversationKey, &AtomicU64)| {
        while moving.load(Ordering::Relaxed) {
            writer.commit(conv, &batch(batches.load(Ordering::Relaxed))).await;
            batches.fetch_add(1, Ordering::Relaxed);
        }
    };
    let fewest = || batches.iter().map(|batches| batches.load(Ordering::Relaxed)).min().unwrap();
    tokio::task::block_in_place(|| {
        let runtime = tokio::runtime::Handle::current();
        std::thread::scope(|scope| {
            scope.spawn(|| runtime.block_on(join_all(conversations.iter().zip(&batches).map(go_on))));
            for _ in 0..3 {
                let before = fewest();
                eventually(PATIENCE, "all conversations go on", || fewest() > before + 1);
                for shard in 0..4 {
                    let tag = format!("{{{shard}}}");
                    let to = other(&cluster, cluster.primary_of(&tag));
                    let migration = cluster.migrate_slot_of(&tag, to).unwrap();
                    for _ in 0..2 {
                        migration.move_some().unwrap();
                        std::thread::sleep(Duration::from_millis(30));
                    }
                    migration.finish().unwrap();
                }
            }
            moving.store(false, Ordering::Relaxed);
        });
    });
    for (conv, batches) in conversations.iter().zip(&batches) {
        let batches = batches.load(Ordering::Relaxed);
        assert_whole(&writer, conv, batches).await;
        let again = writer.commit(conv, &batch(batches - 1)).await;
        assert!(again.iter().all(|committed| committed.duplicate));
    }
    let committed = batches.into_iter().map(AtomicU64::into_inner).sum::<u64>() * 3;
    let stats = writer.hot().stats(NOW + DAY).await.unwrap();
    assert_eq!((stats.records, stats.unarchived, stats.gc_due), (committed, committed, committed / 3));
    assert_eq!(collect_all(writer.hot(), NOW + DAY).await.collected, committed / 3);
    assert_nothing_set_aside(writer.hot()).await;
    writer.assert_no_loss();
}

#[tokio::test]
async fn a_script_does_all_or_nothing_where_only_some_of_its_keys_have_moved() {
    let cluster = RedisCluster::start(2);
    let writer = open(&cluster, 1);
    let conv = conversation("c");
    writer.commit(&conv, &batch(0)).await;
    let from = cluster.primary_of("{0}");
    let migration = cluster.migrate_slot_of("{0}", other(&cluster, from)).unwrap();
    // The list and one list of pieces stay; what a script finds by itself, beside what it is given, is gone.
    for key in ["unarchived", "trim", "stats", "msghistorygc"] {
        migration.move_key(&format!("qim:{{0}}:{key}")).unwrap();
    }
    let list = list_key(writer.hot(), &conv);
    let before = from.command(&["LRANGE", &list, "0", "-1"]);
    for conv in [&conv, &conversation("new")] {
        let error = writer.try_commit(conv, &batch(1)).await.unwrap_err();
        assert!(matches!(error, HotError::Unavailable(_)), "{error}");
    }
    let error = writer.hot().collect_expired(0, NOW + DAY).await.unwrap_err();
    assert!(matches!(error, HotError::Unavailable(_)), "{error}");
    assert_eq!(from.command(&["LRANGE", &list, "0", "-1"]), before, "nothing was changed");
    migration.finish().unwrap();
    assert_eq!(seqs(&writer.commit(&conv, &batch(1)).await), [4, 5, 6]);
    assert_whole(&writer, &conv, 2).await;
    assert_eq!(collect_all(writer.hot(), NOW + DAY).await.collected, 2);
    assert_nothing_set_aside(writer.hot()).await;
    writer.assert_no_loss();
}

#[tokio::test]
async fn a_node_without_the_scripts_gets_them_while_another_node_hangs() {
    let cluster = RedisCluster::start(3);
    let writer = open(&cluster, 16);
    let conversations: Vec<_> = (0..8).map(|i| conversation(&format!("c{i}"))).collect();
    for conv in &conversations {
        writer.commit(conv, &batch(0)).await;
    }
    let [works, hangs, _] = cluster.nodes() else { panic!("three nodes") };
    let conv = on(&cluster, writer.hot(), &conversations, works);
    hangs.pause();
    // As a replica that has just taken over: it has the data, and not one script.
    assert_eq!(works.command(&["SCRIPT", "FLUSH"]), Reply::Text("OK".into()));
    assert_eq!(seqs(&writer.try_commit(conv, &batch(1)).await.unwrap()), [4, 5, 6]);
    assert_eq!(works.command(&["SCRIPT", "FLUSH"]), Reply::Text("OK".into()));
    let shard = writer.hot().shards().shard_of(conv);
    assert!(writer.hot().acquire_lease(shard, None, SECOND).await.unwrap().is_some());
}

/// Else other writers would take this one for dead on nodes that never were away, and leave seqs out for it.
#[tokio::test]
async fn while_a_node_hangs_the_shards_of_the_others_hear_that_the_writer_is_alive() {
    let cluster = RedisCluster::start(3);
    let writer = open(&cluster, 16);
    writer.watch.abort();
    for i in 0..40 {
        writer.commit(&conversation(&format!("c{i}")), &batch(0)).await;
    }
    let [hangs, ..] = cluster.nodes() else { panic!("three nodes") };
    let lists: Vec<_> = (0..16)
        .map(|shard| format!("qim:{{{shard}}}:writers"))
        .map(|list| (cluster.primary_of(&list), list))
        .filter(|(node, list)| node.addr() != hangs.addr() && node.command(&["HLEN", list]).integer() > 0)
        .collect();
    let signs = || -> Vec<_> { lists.iter().map(|(node, list)| node.command(&["HVALS", list])).collect() };
    assert!(lists.len() > 1, "the writer has been to two of three nodes");
    let before = signs();
    hangs.pause();
    writer.store.watch_lineage(NOW, true).await.unwrap_err();
    hangs.resume();
    for (i, (before, after)) in before.iter().zip(signs()).enumerate() {
        assert_ne!(before.texts(), after.texts(), "{}", lists[i].1);
    }
}

/// Whoever waited for a node that is away would miss the deadline of its own call.
async fn while_away(away: fn(&RedisServer), back: fn(&RedisServer)) {
    let cluster = RedisCluster::start(3);
    let writer = open(&cluster, 16);
    let conversations: Vec<_> = (0..12).map(|i| conversation(&format!("c{i}"))).collect();
    for conv in &conversations {
        writer.commit(conv, &batch(0)).await;
    }
    let [node, ..] = cluster.nodes() else { panic!("three nodes") };
    let is_there =
        |conv: &ConversationKey| cluster.primary_of(&list_key(writer.hot(), conv)).addr() == node.addr();
    let (down, up): (Vec<_>, Vec<_>) = conversations.iter().partition(|conv| is_there(conv));
    assert!(down.len() > 1 && up.len() > 1);
    away(node);
    for id in 1..20 {
        let refused = join_all(down.iter().map(async |conv| writer.try_commit(conv, &batch(id)).await));
        let served = join_all(up.iter().map(async |conv| {
            let committed = writer.try_commit(conv, &batch(id)).await.unwrap();
            let page = writer.hot().read_page(conv, PageStart::After(id * 3), 10, NOW).await.unwrap();
            (seqs(&committed)[0], page.marks.last)
        }));
        let (refused, served) = futures::join!(refused, served);
        assert!(refused.iter().all(|result| matches!(result, Err(HotError::Unavailable(_)))), "{refused:?}");
        assert!(served.iter().all(|seqs| *seqs == (id * 3 + 1, id * 3 + 3)), "{served:?}");
    }
    back(node);
    for conv in down {
        for id in 1..20 {
            writer.commit(conv, &batch(id)).await;
        }
    }
    for conv in &conversations {
        assert_whole(&writer, conv, 20).await;
    }
    writer.assert_no_loss();
}

#[tokio::test]
async fn while_a_node_is_dead_the_others_answer_each_call_in_time_and_it_is_used_again_when_it_is_back() {
    while_away(RedisServer::kill, RedisServer::restart).await;
}

#[tokio::test]
async fn while_a_node_hangs_the_others_answer_each_call_in_time_and_it_is_used_again_when_it_is_back() {
    while_away(RedisServer::pause, RedisServer::resume).await;
}

#[tokio::test]
async fn connections_that_broke_are_made_anew_and_no_call_fails_for_it() {
    let cluster = RedisCluster::start(3);
    let writer = open(&cluster, 4);
    let conversations: Vec<_> = (0..6).map(|i| conversation(&format!("c{i}"))).collect();
    for id in 0..5 {
        for conv in &conversations {
            assert_eq!(seqs(&writer.try_commit(conv, &batch(id)).await.unwrap())[0], id * 3 + 1);
        }
        for node in cluster.nodes() {
            node.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        }
    }
}

#[tokio::test]
async fn a_replica_takes_over_from_a_primary_that_hangs_and_that_one_does_no_harm_when_it_goes_on() {
    let cluster = RedisCluster::start_with_replicas(3);
    let writer = open(&cluster, 4);
    let conversations: Vec<_> = (0..4).map(|i| conversation(&format!("c{i}"))).collect();
    for conv in &conversations {
        writer.commit(conv, &batch(0)).await;
    }
    let hangs = cluster.primary_of(&list_key(writer.hot(), &conversations[0]));
    cluster.await_replicated(hangs);
    hangs.pause();
    for conv in &conversations {
        writer.commit(conv, &batch(1)).await;
    }
    hangs.resume();
    cluster.await_whole();
    for conv in &conversations {
        writer.commit(conv, &batch(2)).await;
        assert_whole(&writer, conv, 3).await;
    }
    writer.assert_no_loss();
}

/// The replica is behind: what it has not got is put back.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_takes_over_from_a_killed_primary_and_every_commit_is_there_once() {
    let cluster = RedisCluster::start_with_replicas(3);
    let writer = open(&cluster, 16);
    let conversations: Vec<_> = (0..12).map(|i| conversation(&format!("c{i}"))).collect();
    for id in 0..3 {
        join_all(conversations.iter().map(async |conv| writer.commit(conv, &batch(id)).await)).await;
    }
    let victim = cluster.primary_of(&list_key(writer.hot(), &conversations[0]));
    // What its replica has not got only the writer has.
    let replica = cut_off_replica(&cluster, victim);
    let behind: Vec<_> = conversations
        .iter()
        .filter(|conv| cluster.primary_of(&list_key(writer.hot(), conv)).addr() == victim.addr())
        .collect();
    join_all(behind.iter().map(async |conv| writer.commit(conv, &batch(3)).await)).await;
    victim.kill();
    replica.resume();
    assert!(writer.try_commit(&conversations[0], &batch(4)).await.is_err(), "the primary was dead");
    for id in 3..5 {
        join_all(conversations.iter().map(async |conv| writer.commit(conv, &batch(id)).await)).await;
    }
    assert_eq!(writer.hot().loss_report().restored, behind.len() as u64 * 3);
    victim.restart();
    cluster.await_whole();
    for id in 0..6 {
        // Everything again: what was committed is known, and what follows goes on without a gap.
        let answers =
            join_all(conversations.iter().map(async |conv| writer.commit(conv, &batch(id)).await)).await;
        for answer in answers {
            assert_eq!(seqs(&answer), [id * 3 + 1, id * 3 + 2, id * 3 + 3]);
            assert!(answer.iter().all(|committed| committed.duplicate == (id < 5)));
        }
    }
    for conv in &conversations {
        assert_whole(&writer, conv, 6).await;
    }
    assert_nothing_set_aside(writer.hot()).await;
    writer.assert_no_loss();
}

/// Nobody looks at a shard that nobody uses. So the server that it is found on may have taken over, and have been restarted
/// since, and then names no master before itself: what was acknowledged is not on its disk.
#[tokio::test]
async fn a_replica_that_took_over_and_was_restarted_before_anybody_looked_gives_no_seq_again() {
    let cluster = RedisCluster::start_with_replicas(3);
    let dead = open(&cluster, 1);
    dead.hot().join_deployment().await.unwrap();
    let conv = conversation("c");
    dead.commit(&conv, &batch(0)).await;
    dead.watch.abort();
    let victim = cluster.primary_of("{0}");
    cluster.await_replicated(victim);
    let replica = cut_off_replica(&cluster, victim);
    assert_eq!(seqs(&dead.try_commit(&conv, &batch(1)).await.unwrap()), [4, 5, 6]);
    victim.kill();
    replica.resume();
    eventually(PATIENCE, "it takes over", || cluster.primary_of("{0}").addr() == replica.addr());
    replica.restart();
    let writer = open_beside(&cluster, 1, dead.archive.clone());
    let list = list_key(writer.hot(), &conv);
    eventually(PATIENCE, "it serves", || matches!(replica.command(&["LLEN", &list]), Reply::Int(_)));
    copy_all(&writer.store, &conv, NOW).await;
    let first = seqs(&writer.commit(&conv, &batch(2)).await)[0];
    assert!(first > 6, "{first} was given before");
    assert_eq!(writer.hot().loss_report().gaps, 1);
}

#[tokio::test]
async fn a_cluster_that_is_down_says_when_to_try_again_and_goes_on_when_it_is_back() {
    let cluster = RedisCluster::start(3);
    let writer = open(&cluster, 16);
    let conversations: Vec<_> = (0..6).map(|i| conversation(&format!("c{i}"))).collect();
    for conv in &conversations {
        writer.commit(conv, &batch(0)).await;
    }
    let [one, two, three] = cluster.nodes() else { panic!("three nodes") };
    let [of_dead, of_alive] = [one, three].map(|node| on(&cluster, writer.hot(), &conversations, node));
    one.kill();
    two.kill();
    // Without a majority the third one stops, too.
    eventually(
        PATIENCE,
        "the cluster is down",
        || matches!(three.command(&["SET", "x", "1"]), Reply::Error(error) if error.starts_with("CLUSTERDOWN")),
    );
    for conv in [of_dead, of_alive] {
        let error = writer.try_commit(conv, &batch(1)).await.unwrap_err();
        assert!(matches!(error, HotError::Unavailable(_)), "{error:?}");
        let error = writer.hot().read_page(conv, PageStart::After(0), 10, NOW).await.unwrap_err();
        assert!(matches!(error, HotError::Unavailable(_)), "{error:?}");
    }
    one.restart();
    two.restart();
    for conv in &conversations {
        writer.commit(conv, &batch(1)).await;
        assert_whole(&writer, conv, 2).await;
    }
}
