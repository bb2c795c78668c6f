//! What a writer may forget, whom others remember, and what a clock that was wrong, of a daemon or of Redis, does not change.

use std::time::Duration;

use qim_core::RetentionClass::Default as DefaultClass;
use qim_store::TieredMessageStore;
use qim_store::tiered::TieredDraft;
use qim_testkit::{FaultMode, FaultProxy, RedisServer};

use crate::support::*;
use crate::{Writer, check, connect_again, copy, history};

/// What is acknowledged is kept for 10 s in any case.
const OLD_ENOUGH: Duration = Duration::from_millis(10_200);

fn server_ms(redis: &RedisServer) -> u64 {
    let time = redis.command(&["TIME"]);
    time.texts()[0].parse::<u64>().unwrap() * 1_000
}

/// The entry of the only writer there is so far.
fn entry_of_writer(redis: &RedisServer) -> (String, String) {
    let reply = redis.command(&["HGETALL", "qim:writers"]);
    match reply.texts()[..] {
        [name, entry] => (name.to_owned(), entry.to_owned()),
        ref others => panic!("{others:?}"),
    }
}

#[tokio::test]
async fn a_lineage_that_was_deleted_by_hand_is_not_taken_for_one_that_headers_speak_of() {
    let tiers = tiers();
    let mut before = Writer::of(tiers.store.clone());
    before.send("c", 0..3).await;
    let old = tiers.redis.append_only_file();
    before.send("c", 3..5).await;
    copy(&before, "c").await;
    tiers.redis.kill();
    tiers.redis.set_append_only_file(&old);
    tiers.redis.restart();
    tiers.redis.command(&["DEL", "qim:lineage"]);
    let mut writer = Writer::beside(&tiers);
    copy(&writer, "c").await;
    assert!(writer.send_until_taken(&[], "c", "again").await > 5);
    check(&[&writer, &before]).await;
}

#[tokio::test]
async fn a_writer_that_looks_first_does_not_hide_that_another_one_has_forgotten() {
    let tiers = tiers();
    let mut writer = Writer::of(tiers.store.clone());
    let url = format!("sqlite:{}", tiers.dir.path().join("archive.db").display());
    let hot = connect_again(&tiers.redis).with_recent_bytes_max(0);
    let mut forgetful = Writer::of(TieredMessageStore::with_trim(hot, open_archive(&url), WINDOW));
    writer.send("other", 0..1).await;
    forgetful.send("c", 1..6).await;
    for writer in [&writer, &forgetful] {
        writer.look().await;
    }
    tiers.redis.command(&["FLUSHALL"]);
    writer.look().await;
    assert!(writer.send_until_taken(&[&forgetful], "c", "again").await > 5);
    check(&[&writer, &forgetful]).await;
}

#[tokio::test]
async fn a_clock_that_was_ahead_does_not_let_a_writer_forget_what_the_archive_has_not_got() {
    let tiers = tiers();
    let mut writer = Writer::of(tiers.store.clone());
    writer.send("other", 0..1).await;
    copy(&writer, "other").await;
    writer.store.watch_lineage(NOW + HOUR, true).await.unwrap();
    writer.send("c", 1..4).await;
    tokio::time::sleep(OLD_ENOUGH).await;
    writer.store.watch_lineage(NOW + 30 * SECOND, true).await.unwrap();
    tiers.redis.command(&["FLUSHALL"]);
    assert_eq!(writer.send_until_taken(&[], "c", "again").await, 4);
    check(&[&writer]).await;
    assert_eq!(history(&writer.store, "c").await.1, []);
}

#[tokio::test]
async fn what_rests_since_its_copy_failed_is_not_forgotten() {
    let tiers = tiers();
    let mut writer = Writer::of(tiers.store.clone());
    writer.send("c", 1..4).await;
    let fence = fence(tiers.store.hot(), &conversation("c")).await;
    writer.store.set_aside(&conversation("c"), &fence, "as a test", NOW, 2 * HOUR).await.unwrap();
    tokio::time::sleep(OLD_ENOUGH).await;
    writer.store.watch_lineage(NOW + HOUR, true).await.unwrap();
    tiers.redis.command(&["FLUSHALL"]);
    assert_eq!(writer.send_until_taken(&[], "c", "again").await, 4);
    check(&[&writer]).await;
    assert_eq!(history(&writer.store, "c").await.1, []);
}

async fn is_remembered_until_it_is_archived(end: impl AsyncFn(&Tiers, &Writer)) {
    for is_archived in [false, true] {
        let tiers = tiers();
        let mut ended = Writer::of(tiers.store.clone());
        ended.send("c", 0..3).await;
        end(&tiers, &ended).await;
        let (name, _) = entry_of_writer(&tiers.redis);
        let mut writer = Writer::beside(&tiers);
        writer.look().await;
        if is_archived {
            copy(&writer, "c").await;
        }
        writer.store.watch_lineage(NOW, true).await.unwrap();
        writer.store.watch_lineage(NOW, true).await.unwrap();
        let listed = tiers.redis.command(&["HEXISTS", "qim:writers", &name]).integer() == 1;
        assert_eq!(listed, !is_archived);
        tiers.redis.command(&["FLUSHALL"]);
        let next = writer.send_until_taken(&[], "c", "again").await;
        assert_eq!(next == 4, is_archived, "{next}");
        check(&[&writer, &ended]).await;
    }
}

#[tokio::test]
async fn a_writer_that_was_killed_is_remembered_until_the_archive_has_what_it_acknowledged() {
    is_remembered_until_it_is_archived(async |tiers, _| {
        let (name, entry) = entry_of_writer(&tiers.redis);
        let number = entry.split(' ').next().unwrap();
        let entry = format!("{number} {}", server_ms(&tiers.redis) - 61_000);
        tiers.redis.command(&["HSET", "qim:writers", &name, &entry]);
    })
    .await;
}

#[tokio::test]
async fn a_writer_that_ended_in_order_is_remembered_until_the_archive_has_what_it_acknowledged() {
    is_remembered_until_it_is_archived(async |tiers, ended| {
        ended.store.hot().withdraw_writer().await.unwrap();
        let (name, entry) = entry_of_writer(&tiers.redis);
        assert!(entry.ends_with(" ended"), "{entry}");
        // A minute later.
        let number = entry.split(' ').next().unwrap();
        let entry = format!("{number} {} ended", server_ms(&tiers.redis) - 61_000);
        tiers.redis.command(&["HSET", "qim:writers", &name, &entry]);
    })
    .await;
}

#[tokio::test]
async fn a_writer_that_ended_in_order_is_not_missed_where_redis_lost_nothing() {
    let tiers = tiers();
    let mut ended = Writer::of(tiers.store.clone());
    ended.send("c", 0..3).await;
    ended.store.hot().withdraw_writer().await.unwrap();
    tiers.redis.restart();
    let mut writer = Writer::beside(&tiers);
    assert_eq!(writer.send_until_taken(&[], "c", "again").await, 4);
    check(&[&writer, &ended]).await;
}

#[tokio::test]
async fn what_the_archive_lost_is_copied_again_before_it_makes_room_for_a_jump() {
    let tiers = tiers();
    let mut dead = Writer::of(tiers.store.clone());
    dead.send("c", 0..3).await;
    copy(&dead, "c").await;
    let file = rusqlite::Connection::open(tiers.dir.path().join("archive.db")).unwrap();
    file.execute("DELETE FROM records", []).unwrap();
    tiers.redis.kill();
    tiers.redis.restart();
    let mut writer = Writer::beside(&tiers);
    assert!(writer.send_until_taken(&[], "c", "again").await > 1 << 20);
    let (records, _) = history(&writer.store, "c").await;
    assert_eq!(records.keys().copied().take(3).collect::<Vec<_>>(), [1, 2, 3]);
    check(&[&writer, &dead]).await;
}

#[tokio::test]
async fn where_the_clock_of_redis_is_put_back_commits_and_shards_are_not_held_up_until_it_was_that_late_again()
 {
    let tiers = tiers();
    let mut writer = Writer::of(tiers.store.clone());
    writer.send("c", 0..3).await;
    tiers.redis.command(&["FLUSHALL"]);
    assert_eq!(writer.send_until_taken(&[], "c", "id-3").await, 4);
    let lineage = tiers.redis.command(&["GET", "qim:lineage"]).texts()[0].to_owned();
    let mut fields: Vec<&str> = lineage.split(' ').collect();
    let ahead = (server_ms(&tiers.redis) + 3_600_000).to_string();
    fields[1] = &ahead;
    tiers.redis.command(&["SET", "qim:lineage", &fields.join(" ")]);
    assert_eq!(writer.send_until_taken(&[], "c", "id-4").await, 5);

    let shard = tiers.store.hot().shards().shard_of(&conversation("c"));
    let lease = format!("qim:{{{shard}}}:lease");
    tiers.redis.command(&["SET", &lease, "of one who is gone", "PX", "3600000"]);
    assert_eq!(tiers.store.hot().acquire_lease(shard, None, 12 * SECOND).await.unwrap(), None);
    assert!(tiers.redis.command(&["PTTL", &lease]).integer() <= 12_000);
    check(&[&writer]).await;
}

#[tokio::test]
async fn a_retry_after_a_loss_is_looked_up_also_where_the_clock_of_the_writer_is_ahead() {
    let tiers = tiers();
    let gone = Writer::of(tiers.store.clone());
    let draft = TieredDraft { draft: draft("a", DefaultClass, NOW), first_sent_at: None };
    let conv = conversation("c");
    let first = tiers.store.commit(&conv, std::slice::from_ref(&draft), NOW).await.unwrap();
    copy(&gone, "c").await;
    let writer = Writer::beside(&tiers);
    writer.look().await;
    tiers.redis.command(&["FLUSHALL"]);
    // By the clock of Redis it is sent again at once, by that of the writer weeks later.
    let mut again = None;
    while again.is_none() {
        tokio::time::sleep(Duration::from_millis(200)).await;
        writer.look().await;
        again = writer.store.commit(&conv, std::slice::from_ref(&draft), NOW).await.ok();
    }
    let again = again.unwrap();
    assert_eq!((again[0].seq, again[0].duplicate), (first[0].seq, true));
}

/// Its answers are lost for longer than the others wait for who comes before.
#[tokio::test]
async fn a_living_writer_that_could_not_put_back_anything_yet_is_waited_for() {
    let tiers = tiers();
    let link = FaultProxy::start(tiers.redis.addr());
    let url = format!("sqlite:{}", tiers.dir.path().join("archive.db").display());
    let hot = connect_to(&tiers.redis.url_by(link.addr()));
    let mut slow = Writer::of(TieredMessageStore::with_trim(hot, open_archive(&url), WINDOW));
    let mut quick = Writer::of(tiers.store.clone());
    slow.send("c", 0..3).await;
    quick.send("c", 3..5).await;
    for writer in [&slow, &quick] {
        writer.look().await;
    }
    tiers.redis.command(&["FLUSHALL"]);
    link.set(FaultMode::DropReplies);
    let end = tokio::time::Instant::now() + 5 * SECOND;
    let look_on = async |writer: &Writer| {
        while tokio::time::Instant::now() < end {
            writer.look().await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::join!(look_on(&slow), look_on(&quick));
    link.set(FaultMode::Pass);
    assert_eq!(quick.send_until_taken(&[&slow], "c", "again").await, 6);
    check(&[&quick, &slow]).await;
    assert_eq!(history(&quick.store, "c").await.1, []);
}
