//! Redis restarts, fails over, is emptied or replaced: nothing that was acknowledged is lost without a word, and no seq is
//! given twice. Each test ends with the same question: is every acknowledged record at its seq, or named in a gap?

mod another_server;
mod archivers;
mod forgotten;
mod indexes;
mod readers;
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use qim_core::RetentionClass::Default as DefaultClass;
use qim_store::TieredMessageStore;
use qim_store::hot::{CommitError, HotError};
use qim_store::tiered::{Position, PullError, PullRequest, TieredCommitError, TieredDraft};
use qim_testkit::{FaultMode, FaultProxy, RedisServer};
use support::*;

/// A writer, as its daemon would run it: the loop is the test's.
struct Writer {
    store: TieredMessageStore,
    acknowledged: Acknowledged,
}

/// By conversation and seq, the client's id.
#[derive(Default)]
struct Acknowledged(BTreeMap<(String, u64), String>);

impl Writer {
    fn of(store: TieredMessageStore) -> Self {
        Self { store, acknowledged: Acknowledged::default() }
    }

    /// A further one on the same tiers.
    fn beside(tiers: &Tiers) -> Self {
        let url = format!("sqlite:{}", tiers.dir.path().join("archive.db").display());
        let hot = connect_again(&tiers.redis);
        Self::of(TieredMessageStore::with_trim(hot, open_archive(&url), WINDOW))
    }

    async fn look(&self) {
        // Fails while Redis is away, and while something has to be waited for.
        let _ = self.store.watch_lineage(NOW, false).await;
    }

    async fn try_send(&mut self, id: &str, name: &str) -> Result<u64, TieredCommitError> {
        let draft = TieredDraft { draft: draft(name, DefaultClass, NOW), first_sent_at: Some(NOW) };
        let committed = self.store.commit(&conversation(id), &[draft], NOW).await?;
        let before = self.acknowledged.0.insert((id.into(), committed[0].seq), name.into());
        assert!(before.is_none_or(|before| before == name), "seq {} was given twice", committed[0].seq);
        Ok(committed[0].seq)
    }

    async fn send(&mut self, id: &str, names: std::ops::Range<u32>) -> Vec<u64> {
        let mut seqs = Vec::new();
        for name in names {
            seqs.push(self.try_send(id, &format!("id-{name}")).await.unwrap());
        }
        seqs
    }

    /// As a client does: until it is taken. The other writers go on looking.
    async fn send_until_taken(&mut self, others: &[&Writer], id: &str, name: &str) -> u64 {
        for _ in 0..400 {
            match self.try_send(id, name).await {
                Ok(seq) => return seq,
                Err(TieredCommitError::Hot(
                    HotError::Checking { .. } | HotError::LineageEnded | HotError::Unavailable(_),
                )) => {}
                Err(error) => panic!("{error}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            self.look().await;
            for other in others {
                other.look().await;
            }
        }
        panic!("{name} was never taken: {:?}", self.try_send(id, name).await);
    }
}

/// What the history says of a conversation, as soon as it can be read.
async fn history(store: &TieredMessageStore, id: &str) -> (BTreeMap<u64, String>, Vec<(u64, u64)>) {
    let (mut records, mut gaps, mut after) = (BTreeMap::new(), Vec::new(), 0);
    loop {
        let request = PullRequest {
            position: Position::After(after),
            limit: 100,
            fail_on_expired: false,
            form: qim_core::PayloadForm::Plain,
        };
        let page = patiently(store, async || store.pull(&conversation(id), request, NOW).await).await;
        for record in page.records {
            records.insert(record.seq, record.message().client_msg_id);
        }
        gaps.extend(page.gaps.iter().map(|gap| (gap.from, gap.to)));
        if !page.has_more {
            gaps.dedup();
            return (records, gaps);
        }
        after = page.next_seq;
    }
}

/// Reads once Redis is known to have all that there is.
async fn patiently<T>(store: &TieredMessageStore, read: impl AsyncFn() -> Result<T, PullError>) -> T {
    for _ in 0..400 {
        match read().await {
            Err(PullError::Hot(error)) if error.retry_after().is_some() => {}
            answer => return answer.unwrap(),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        let _ = store.watch_lineage(NOW, false).await;
    }
    panic!("readers wait for ever");
}

/// Every acknowledged record is there at its seq, or named in a gap, and no gap names one that is there.
async fn check(writers: &[&Writer]) {
    let mut all: BTreeMap<String, BTreeMap<u64, String>> = BTreeMap::new();
    for writer in writers {
        for ((conversation, seq), name) in &writer.acknowledged.0 {
            let before = all.entry(conversation.clone()).or_default().insert(*seq, name.clone());
            assert!(before.is_none_or(|before| before == *name), "seq {seq} was given twice");
        }
    }
    for (conversation, acknowledged) in all {
        let (records, gaps) = history(&writers[0].store, &conversation).await;
        let in_gap = |seq: &u64| gaps.iter().any(|(from, to)| (from..=to).contains(&seq));
        for (seq, name) in acknowledged {
            match records.get(&seq) {
                Some(found) => assert_eq!(found, &name, "{conversation} {seq}"),
                None => assert!(in_gap(&seq), "{conversation}: {name} at {seq} is gone; gaps {gaps:?}"),
            }
        }
        assert!(!records.keys().any(in_gap), "{conversation}: a gap over what is there: {gaps:?}");
    }
}

fn connect_again(redis: &RedisServer) -> qim_store::RedisMessageStore {
    let url = redis.url().parse().expect("a Redis URL");
    qim_store::RedisMessageStore::open(&url, qim_core::ShardCount::new(4).unwrap(), Duration::from_secs(5))
        .expect("a store")
        .with_retention(thirty_days())
}

fn until_it_follows(replica: &RedisServer) {
    qim_testkit::eventually(30 * SECOND, "the replica follows its master", || {
        replica.command(&["INFO", "replication"]).texts()[0].contains("master_link_status:up")
    });
}

async fn copy(writer: &Writer, id: &str) {
    copy_all(&writer.store, &conversation(id), NOW).await;
}

#[tokio::test]
async fn a_writer_that_outlives_its_redis_puts_back_what_the_file_had_not() {
    let tiers = tiers();
    let mut writer = Writer::of(tiers.store.clone());
    writer.send("c", 0..5).await;
    let kept = tiers.redis.append_only_file();
    writer.send("c", 5..8).await;
    writer.send("new", 8..10).await;
    tiers.redis.kill();
    tiers.redis.set_append_only_file(&kept);
    tiers.redis.restart();
    assert_eq!(
        writer.send_until_taken(&[], "c", "id-10").await,
        9,
        "no seq is left out, and none given again"
    );
    assert_eq!(writer.send_until_taken(&[], "new", "id-11").await, 3);
    check(&[&writer]).await;
    assert_eq!(history(&writer.store, "c").await.1, []);
    assert!(writer.store.hot().loss_report().restored >= 5, "the file may have been written later");
}

#[tokio::test]
async fn what_was_acknowledged_as_known_is_put_back_too() {
    let tiers = tiers();
    let link = FaultProxy::start(tiers.redis.addr());
    let hot = connect_to(&format!("redis://{}", link.addr()));
    let url = format!("sqlite:{}", tiers.dir.path().join("archive.db").display());
    let mut writer = Writer::of(TieredMessageStore::with_trim(hot, open_archive(&url), WINDOW));
    writer.send("c", 0..2).await;
    let kept = tiers.redis.append_only_file();
    // The record is there, and whoever committed it heard nothing of that: only the second try is acknowledged.
    link.set(FaultMode::DropOneReply);
    assert!(writer.try_send("c", "id-2").await.is_err());
    assert_eq!(writer.send_until_taken(&[], "c", "id-2").await, 3);
    tiers.redis.kill();
    tiers.redis.set_append_only_file(&kept);
    tiers.redis.restart();
    assert_eq!(writer.send_until_taken(&[], "c", "id-3").await, 4, "its seq is not given again");
    check(&[&writer]).await;
    assert_eq!(history(&writer.store, "c").await.1, []);
}

#[tokio::test]
async fn a_restart_that_loses_nothing_leaves_nothing_out() {
    let tiers = tiers();
    let mut writer = Writer::of(tiers.store.clone());
    writer.send("c", 0..5).await;
    tiers.redis.restart();
    assert_eq!(writer.send_until_taken(&[], "c", "id-5").await, 6);
    assert_eq!(writer.send_until_taken(&[], "never seen", "id-6").await, 1);
    check(&[&writer]).await;
    assert_eq!(writer.store.hot().loss_report().gaps, 0);
}

#[tokio::test]
async fn a_redis_that_is_emptied_under_a_living_writer_is_filled_again() {
    let tiers = tiers();
    let mut writer = Writer::of(tiers.store.clone());
    writer.send("archived", 0..5).await;
    copy(&writer, "archived").await;
    writer.send("archived", 5..7).await;
    writer.send("hot", 7..9).await;
    tiers.redis.command(&["FLUSHALL"]);
    assert_eq!(writer.send_until_taken(&[], "archived", "id-9").await, 8);
    assert_eq!(writer.send_until_taken(&[], "hot", "id-10").await, 3);
    check(&[&writer]).await;
}

#[tokio::test]
async fn another_empty_server_at_the_same_port_is_noticed() {
    let tiers = tiers();
    let mut writer = Writer::of(tiers.store.clone());
    writer.send("c", 0..5).await;
    copy(&writer, "c").await;
    writer.send("c", 5..7).await;
    tiers.redis.restart_empty();
    assert_eq!(writer.send_until_taken(&[], "c", "id-7").await, 8);
    check(&[&writer]).await;
}

#[tokio::test]
async fn after_a_total_loss_with_its_writer_no_seq_is_given_again_and_the_gap_is_named() {
    let tiers = tiers();
    let mut dead = Writer::of(tiers.store.clone());
    dead.send("c", 0..5).await;
    copy(&dead, "c").await;
    dead.send("c", 5..8).await;
    dead.send("never archived", 8..10).await;
    tiers.redis.restart_empty();
    let mut writer = Writer::beside(&tiers);
    let (records, _) = history(&writer.store, "c").await;
    assert_eq!(records.len(), 5, "what the archive has is readable before anything is committed");
    let first = writer.send_until_taken(&[], "c", "id-10").await;
    assert!(first > 8, "{first}");
    assert!(writer.send_until_taken(&[], "never archived", "id-11").await > 2);
    check(&[&writer, &dead]).await;
    assert_eq!(history(&writer.store, "c").await.1, [(6, first - 1)]);
    assert_eq!(writer.send_until_taken(&[], "c", "id-12").await, first + 1, "once is enough");
    assert_eq!(writer.store.hot().loss_report().gaps, 2);
}

#[tokio::test]
async fn a_writer_makes_itself_known_so_that_it_is_missed_when_it_is_lost_with_all_of_redis() {
    let tiers = tiers();
    let mut survivor = Writer::of(tiers.store.clone());
    survivor.send("other", 0..1).await;
    let mut newcomer = Writer::beside(&tiers);
    let introduced = newcomer.store.introduce_writer();
    let looks = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        survivor.look().await;
        tokio::time::Instant::now()
    };
    let introduction = async {
        introduced.await.unwrap();
        tokio::time::Instant::now()
    };
    let (introduced, looked) = futures::join!(introduction, looks);
    assert!(introduced >= looked, "it waits until the other one knows of it");
    newcomer.send("c", 0..5).await;
    tiers.redis.restart_empty();
    // It is not heard of again, and the other one has not looked since its commits.
    let first = survivor.send_until_taken(&[], "c", "id-9").await;
    assert!(first > 5, "{first}");
    check(&[&survivor, &newcomer]).await;
}

#[tokio::test]
async fn a_slower_writer_is_waited_for_and_fills_in_what_comes_before() {
    let tiers = tiers();
    let mut quick = Writer::of(tiers.store.clone());
    let mut slow = Writer::beside(&tiers);
    for round in 0..5 {
        quick.send("c", round * 4..round * 4 + 2).await;
        slow.send("c", round * 4 + 2..round * 4 + 4).await;
    }
    quick.look().await;
    tiers.redis.command(&["FLUSHALL"]);
    // The quick one may look as often as it likes: it does not go on before the slow one has come.
    for _ in 0..5 {
        quick.look().await;
        assert!(quick.try_send("c", "id-20").await.is_err());
    }
    assert_eq!(quick.send_until_taken(&[&slow], "c", "id-20").await, 21);
    check(&[&quick, &slow]).await;
    assert_eq!(quick.store.hot().loss_report().gaps + slow.store.hot().loss_report().gaps, 0);
}

#[tokio::test]
async fn what_nobody_remembers_is_a_gap_and_is_never_filled() {
    let tiers = tiers();
    let mut writer = Writer::of(tiers.store.clone());
    let url = format!("sqlite:{}", tiers.dir.path().join("archive.db").display());
    let hot = connect_again(&tiers.redis).with_recent_bytes_max(0);
    let mut forgetful = Writer::of(TieredMessageStore::with_trim(hot, open_archive(&url), WINDOW));
    writer.send("c", 100..101).await;
    forgetful.send("c", 0..3).await;
    copy(&forgetful, "c").await;
    forgetful.send("c", 3..5).await;
    writer.send("c", 5..8).await;
    tiers.redis.command(&["FLUSHALL"]);
    let next = writer.send_until_taken(&[&forgetful], "c", "id-8").await;
    assert_eq!(history(&writer.store, "c").await.1, [(5, 6)]);
    check(&[&writer, &forgetful]).await;
    assert_eq!(next, 10);
    let stats = writer.store.hot().loss_report().gaps + forgetful.store.hot().loss_report().gaps;
    assert_eq!(stats, 1);
}

#[tokio::test]
async fn an_older_copy_of_redis_catches_up_with_the_archive() {
    let tiers = tiers();
    let mut dead = Writer::of(tiers.store.clone());
    dead.send("c", 0..5).await;
    let old = tiers.redis.append_only_file();
    dead.send("c", 5..700).await;
    copy(&dead, "c").await;
    tiers.redis.kill();
    tiers.redis.set_append_only_file(&old);
    tiers.redis.restart();
    let mut writer = Writer::of(dead.store.clone());
    assert_eq!(writer.send_until_taken(&[], "c", "again").await, 701);
    check(&[&writer, &dead]).await;
    assert_eq!(history(&writer.store, "c").await.1, []);
}

#[tokio::test]
async fn a_promoted_replica_that_was_behind_is_noticed_and_so_is_the_old_master_promoted_back() {
    let tiers = tiers();
    let replica = RedisServer::options().append_only().start();
    let port = tiers.redis.addr().port().to_string();
    let mut writer = Writer::of(tiers.store.clone());
    writer.send("c", 0..3).await;
    replica.command(&["REPLICAOF", "127.0.0.1", &port]);
    until_it_follows(&replica);
    // Attaching the first replica may change the replication id: a doubt without a loss.
    assert_eq!(writer.send_until_taken(&[], "c", "id-3").await, 4);
    let length = format!("qim:{{{}}}:c:c", tiers.store.hot().shards().shard_of(&conversation("c")));
    qim_testkit::eventually(30 * SECOND, "the replica has it", || {
        replica.command(&["LLEN", &length]).integer() == 5
    });
    replica.command(&["REPLICAOF", "NO", "ONE"]);
    // Acknowledged by a master that has been replaced already, and nobody told it.
    writer.send("c", 4..6).await;
    // It is told, loses what it had alone, and is the master again, before anybody looked.
    let other = replica.addr().port().to_string();
    tiers.redis.command(&["REPLICAOF", "127.0.0.1", &other]);
    until_it_follows(&tiers.redis);
    tiers.redis.command(&["REPLICAOF", "NO", "ONE"]);
    let before = writer.store.hot().loss_report().restored;
    assert_eq!(writer.send_until_taken(&[], "c", "id-6").await, 7);
    assert_eq!(writer.store.hot().loss_report().restored - before, 2);
    check(&[&writer]).await;
}

#[tokio::test]
async fn a_conversation_whose_writers_are_gone_leaves_the_hot_tier_before_it_goes_on() {
    let tiers = tiers();
    let mut dead = Writer::of(tiers.store.clone());
    dead.send("c", 0..5).await;
    let old = tiers.redis.append_only_file();
    dead.send("c", 5..8).await;
    tiers.redis.kill();
    tiers.redis.set_append_only_file(&old);
    tiers.redis.restart();
    let mut writer = Writer::beside(&tiers);
    let refused = loop {
        match writer.try_send("c", "id-8").await.unwrap_err() {
            TieredCommitError::Hot(HotError::Checking { reason, .. }) if reason.contains("archive") => {
                break reason;
            }
            TieredCommitError::Hot(HotError::Checking { .. }) => writer.look().await,
            error => panic!("{error}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert!(refused.contains("has not got all"), "{refused}");
    copy(&writer, "c").await;
    let next = writer.send_until_taken(&[], "c", "id-8").await;
    check(&[&writer, &dead]).await;
    assert_eq!(history(&writer.store, "c").await.1, [(6, next - 1)]);
}

#[tokio::test]
async fn the_hot_tier_alone_does_not_go_on_after_a_restart() {
    let (redis, store) = hot_store();
    let batch = |name: &str| [draft(name, DefaultClass, NOW)];
    store.commit(&conversation("c"), &batch("1"), NOW, None).await.unwrap();
    redis.restart();
    let error = loop {
        match store.commit(&conversation("c"), &batch("2"), NOW, None).await.unwrap_err() {
            CommitError::Hot(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            error => break error,
        }
    };
    assert!(matches!(error, CommitError::Doubted), "{error}");
}
