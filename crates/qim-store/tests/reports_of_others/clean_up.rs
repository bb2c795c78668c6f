//! What removes expired records: from all places, without stopping and without going round in circles.

use qim_core::RetentionClass::{Default as DefaultClass, Ephemeral24h};
use qim_core::ShardCount;
use qim_store::TieredMessageStore;
use qim_store::archive::{self, ArchiveOptions};
use qim_store::hot::{HotStats, RedisMessageStore};
use qim_store::tiered::Position;

use crate::support::*;

/// Commands that Redis has served.
async fn commands(tiers: &Tiers) -> u64 {
    let info: String =
        redis::cmd("INFO").arg("stats").query_async(&mut raw(&tiers.redis).await).await.unwrap();
    let count = info.lines().find_map(|line| line.strip_prefix("total_commands_processed:"));
    count.expect("a count").trim().parse().unwrap()
}

async fn stats(store: &RedisMessageStore) -> HotStats {
    store.stats(NOW + 40 * DAY).await.unwrap()
}

#[tokio::test]
async fn what_expired_leaves_redis_also_while_the_archive_is_away_and_does_not_come_back() {
    let Tiers { store: with_archive, redis: _redis, dir: _dir } = tiers();
    let nowhere = format!("scylla://127.0.0.1:{}/qim", qim_testkit::free_port());
    let archive =
        archive::open(&nowhere.parse().unwrap(), ArchiveOptions { timeout: SECOND, tls: None }).unwrap();
    let store = TieredMessageStore::with_trim(RedisMessageStore::clone(with_archive.hot()), archive, WINDOW);
    let conv = conversation("c");
    let batch =
        [draft("1", Ephemeral24h, NOW), draft("2", DefaultClass, NOW), draft("3", DefaultClass, NOW + DAY)];
    commit(&store, &conv, &batch, NOW).await;

    assert_eq!(collect_all(store.hot(), NOW + DAY).await.collected, 1, "GC needs no archive");
    let fence = fence(store.hot(), &conv).await;
    // By everybody's clock, since then its id is lost to late retries.
    let thirty = NOW + 30 * DAY + HOUR;
    assert_eq!(
        store.trim(&conv, &fence, thirty).await.unwrap().removed,
        2,
        "nor does the trim of what expired"
    );
    let marks = store.marks(&conv, thirty).await.unwrap();
    assert_eq!((marks.floor, marks.archived, marks.last), (3, 2, 3));
    store.hot().release_lease(&fence).await.unwrap();

    // The archive is back. A reader whose clock is behind finds nothing of them either.
    copy_all(&with_archive, &conv, thirty).await;
    assert_eq!(log(&with_archive, &conv, thirty).await, [3]);
    assert_eq!(log(&with_archive, &conv, NOW).await, [3]);
}

#[tokio::test]
async fn the_expiry_index_drains_to_nothing_and_a_pass_that_finds_nothing_asks_once_a_shard() {
    let tiers = tiers();
    let hot = tiers.store.hot();
    for i in 0..20 {
        let batch: Vec<_> = (0..50).map(|id| draft(&format!("{id}"), Ephemeral24h, NOW)).collect();
        commit(&tiers.store, &conversation(&format!("c{i}")), &batch, NOW).await;
    }
    assert_eq!(collect_all(hot, NOW + DAY).await.collected, 1_000);
    assert!(registered(&tiers.redis).await.is_empty());
    let before = commands(&tiers).await;
    for _ in 0..10 {
        assert_eq!(collect_all(hot, NOW + DAY).await, qim_store::hot::GcReport::default());
    }
    let asked = commands(&tiers).await - before;
    assert!((40..50).contains(&asked), "{asked} commands for 10 passes over 4 shards");
}

#[tokio::test]
async fn a_clear_up_that_finds_nothing_or_nothing_that_it_can_do_does_not_go_round_in_circles() {
    let tiers = tiers();
    let (store, hot) = (&tiers.store, tiers.store.hot());
    assert!(!store.archive().maintain(NOW).await.unwrap().more);
    let conv = conversation("c");
    let shard = hot.shards().shard_of(&conv);
    commit(store, &conv, &drafts(0..3, NOW - 8 * DAY), NOW).await;
    // The front is due and may not go: it is not asked about again until later.
    let fence = fence(hot, &conv).await;
    let report = store.trim(&conv, &fence, NOW).await.unwrap();
    assert_eq!((report.removed, report.more), (0, false));
    assert!(hot.trim_candidates(shard, NOW - WINDOW, 10).await.unwrap().is_empty());

    // Six hundred entries that mean nothing: each is named once, and then the index is empty.
    let mut raw = raw(&tiers.redis).await;
    let mut add = redis::cmd("ZADD");
    add.arg(format!("qim:{{{shard}}}:msghistorygc"));
    for i in 0..600 {
        add.arg(1).arg(format!("nobody-{i}\0{i}"));
    }
    add.exec_async(&mut raw).await.unwrap();
    let report = collect_all(hot, NOW).await;
    assert_eq!((report.set_aside, report.collected), (600, 0));
    let again = hot.collect_expired(shard, NOW).await.unwrap();
    assert_eq!((again.set_aside, again.more), (0, false));
}

#[tokio::test]
async fn a_quiet_conversation_is_purged_without_another_message() {
    let Tiers { store, redis: _redis, dir } = tiers();
    let quiet = conversation("quiet");
    let shard = store.hot().shards().shard_of(&quiet);
    commit(&store, &quiet, &drafts(0..5, NOW), NOW).await;
    copy_all(&store, &quiet, NOW).await;
    // Nobody writes or reads it: the indexes alone lead to it.
    let due = store.hot().trim_candidates(shard, NOW + 8 * DAY - WINDOW, 10).await.unwrap();
    assert_eq!(due, std::slice::from_ref(&quiet));
    assert_eq!(trim_all(&store, &due[0], NOW + 8 * DAY).await, 5);
    assert_eq!(stats(store.hot()).await.records, 0);
    let mut deleted = 0;
    loop {
        let report = store.archive().maintain(NOW + 30 * DAY).await.unwrap();
        deleted += report.rows_deleted;
        if !report.more {
            break;
        }
    }
    assert_eq!(deleted, 5);
    let file = rusqlite::Connection::open(dir.path().join("archive.db")).unwrap();
    let rows: i64 = file.query_row("SELECT count(*) FROM records", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 0);
}

#[tokio::test]
async fn the_age_of_a_conversation_never_takes_its_newer_records_along() {
    let Tiers { store, redis: _redis, dir: _dir } = tiers();
    let conv = conversation("c");
    commit(&store, &conv, &drafts(0..5, NOW - 100 * DAY), NOW - 100 * DAY).await;
    copy_all(&store, &conv, NOW - 100 * DAY).await;
    for (from, age) in [(5, 20), (10, 3), (15, 0)] {
        let at = NOW - age * DAY;
        commit(&store, &conv, &drafts(from..from + 5, at), at).await;
    }
    copy_all(&store, &conv, NOW).await;
    collect_all(store.hot(), NOW).await;
    trim_all(&store, &conv, NOW).await;
    while store.archive().maintain(NOW).await.unwrap().more {}
    assert_eq!(log(&store, &conv, NOW).await, (6..=20).collect::<Vec<_>>());
    let marks = store.marks(&conv, NOW).await.unwrap();
    assert_eq!((marks.floor, marks.last), (11, 20));
}

#[tokio::test]
async fn an_index_that_outlived_its_records_does_not_stop_a_reader() {
    let Tiers { store, redis, dir } = tiers();
    let conv = conversation("c");
    ten_and_ten(&store, &conv).await;
    // The archive's table of conversations says that there are ten; half of them, then all, are gone.
    let file = rusqlite::Connection::open(dir.path().join("archive.db")).unwrap();
    for (gone, left) in [("seq BETWEEN 2 AND 6", vec![1, 7, 8, 9, 10]), ("seq <= 10", vec![])] {
        file.execute(&format!("DELETE FROM records WHERE {gone}"), []).unwrap();
        let expected: Vec<u64> = left.into_iter().chain(11..=20).collect();
        assert_eq!(log(&store, &conv, NOW).await, expected);
        assert_eq!(log_backwards(&store, &conv, NOW).await, expected);
        let page = pull(&store, &conv, Position::FromTime(NOW - 8 * DAY), 50, NOW).await;
        assert!(page_seqs(&page).ends_with(&[20]), "{:?}", page_seqs(&page));
    }
    // In Redis the indexes say that there is a conversation, and there is none.
    let other = conversation("gone");
    commit(&store, &other, &drafts(0..3, NOW - 8 * DAY), NOW).await;
    let shard = store.hot().shards().shard_of(&other);
    redis::cmd("DEL")
        .arg(format!("qim:{{{shard}}}:c:gone"))
        .exec_async(&mut raw(&redis).await)
        .await
        .unwrap();
    assert!(pull(&store, &other, Position::After(0), 10, NOW).await.records.is_empty());
    assert_eq!(trim_all(&store, &other, NOW).await, 0);
    assert!(store.hot().trim_candidates(shard, NOW, 10).await.unwrap().iter().all(|conv| *conv != other));
}

#[tokio::test]
async fn a_burst_that_expires_at_once_is_drained_through_a_restart_and_each_record_is_collected_once() {
    let redis = qim_testkit::RedisServer::options().append_only().arg("appendfsync", "always").start();
    let store = connect(&redis);
    store.join_deployment().await.unwrap();
    let conversations: Vec<_> = (0..20).map(|i| conversation(&format!("c{i}"))).collect();
    for conv in &conversations {
        let batch: Vec<_> = (0..250).map(|id| draft(&format!("{id}"), Ephemeral24h, NOW)).collect();
        store.commit(conv, &batch, NOW, None).await.unwrap();
    }
    let first = store.collect_expired(0, NOW + DAY).await.unwrap();
    assert!(first.collected > 0 && first.more, "{first:?}");
    // Writer and Redis die in the middle.
    drop(store);
    redis.kill();
    redis.restart();
    let store = connect(&redis);
    let rest = collect_all(&store, NOW + DAY).await;
    assert_eq!(first.collected + rest.collected, 5_000);
    assert_eq!((rest.stale, rest.set_aside), (0, 0));
    assert!(registered(&redis).await.is_empty());
    assert_eq!(store.shards(), ShardCount::new(4).unwrap());
    assert_eq!(store.stats(NOW + DAY).await.unwrap(), HotStats { records: 0, ..stats(&store).await });
    let dir = tempfile::tempdir().unwrap();
    let archive = open_archive(&format!("sqlite:{}", dir.path().join("archive.db").display()));
    let store = TieredMessageStore::with_trim(store, archive, WINDOW);
    for conv in &conversations {
        assert_eq!(seqs(&commit(&store, conv, &drafts(900..901, NOW + DAY), NOW + DAY).await), [251]);
    }
}
