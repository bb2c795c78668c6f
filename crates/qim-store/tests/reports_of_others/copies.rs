//! The way to the archive: late, failing, killed.

use qim_core::UnixMillis;
use qim_store::TieredMessageStore;
use qim_store::hot::HotError;
use qim_store::tiered::MoveError;
use rusqlite::Connection;

use crate::support::*;

/// Deletes the lease, as a death between copy and mark leaves it in the end: the copy is there, and nothing says so.
async fn copy_and_die_before_the_mark(
    tiers: &Tiers,
    conversation: &qim_core::ConversationKey,
    now: UnixMillis,
) {
    let fence = fence(tiers.store.hot(), conversation).await;
    let lease = format!("qim:{{{}}}:lease", fence.shard);
    redis::cmd("DEL").arg(lease).exec_async(&mut raw(&tiers.redis).await).await.unwrap();
    let died = tiers.store.copy(conversation, &fence, now).await;
    assert!(matches!(died, Err(MoveError::Hot(HotError::Fenced))), "{died:?}");
}

#[tokio::test]
async fn an_upload_that_lags_longer_than_the_hot_window_destroys_nothing() {
    let Tiers { store, redis: _redis, dir: _dir } = tiers();
    let conv = conversation("c");
    commit(&store, &conv, &drafts(0..10, NOW), NOW).await;
    copy_all(&store, &conv, NOW).await;
    commit(&store, &conv, &drafts(10..30, NOW + DAY), NOW + DAY).await;
    // The first ten leave; the others are twenty days old before anybody uploads them.
    let late = NOW + 21 * DAY;
    assert_eq!(trim_all(&store, &conv, late).await, 10);
    assert_eq!(log(&store, &conv, late).await, (1..=30).collect::<Vec<_>>());
    copy_all(&store, &conv, late).await;
    assert_eq!(trim_all(&store, &conv, late).await, 20);
    while store.archive().maintain(late).await.unwrap().more {}
    assert_eq!(log(&store, &conv, late).await, (1..=30).collect::<Vec<_>>());
    assert_eq!(
        log(&store, &conv, NOW + 30 * DAY).await,
        (11..=30).collect::<Vec<_>>(),
        "dates are as committed"
    );
}

#[tokio::test]
async fn copies_that_failed_never_count_as_copied() {
    let Tiers { store, redis: _redis, dir } = tiers();
    let conv = conversation("c");
    commit(&store, &conv, &drafts(0..10, NOW - 8 * DAY), NOW).await;
    let fence = fence(store.hot(), &conv).await;
    let file = Connection::open(dir.path().join("archive.db")).unwrap();
    store.archive().ping().await.unwrap();
    // Rows from the sixth on are lost between the put and its reading back; then nothing can be written at all.
    file.execute_batch(
        "CREATE TRIGGER lost AFTER INSERT ON records WHEN NEW.seq > 5
         BEGIN DELETE FROM records WHERE conv = NEW.conv AND seq = NEW.seq; END;",
    )
    .unwrap();
    for _ in 0..2 {
        assert!(matches!(store.copy(&conv, &fence, NOW).await, Err(MoveError::Archive(_))));
        assert_eq!(store.marks(&conv, NOW).await.unwrap().archived, 0);
        assert_eq!(store.hot().stats(NOW).await.unwrap().unarchived, 10);
        assert_eq!(store.trim(&conv, &fence, NOW).await.map_or(0, |report| report.removed), 0);
        file.execute_batch(
            "DROP TRIGGER IF EXISTS lost;
             CREATE TRIGGER IF NOT EXISTS full BEFORE INSERT ON records BEGIN SELECT RAISE(FAIL, 'disk I/O error'); END;",
        )
        .unwrap();
    }
    file.execute_batch("DROP TRIGGER full;").unwrap();
    store.copy(&conv, &fence, NOW).await.unwrap();
    assert_eq!(store.marks(&conv, NOW).await.unwrap().archived, 10);
    assert_eq!(log(&store, &conv, NOW).await, (1..=10).collect::<Vec<_>>());
}

#[tokio::test]
async fn deaths_between_copy_and_mark_leave_no_orphan_no_double_and_no_gap() {
    let tiers = tiers();
    let store: &TieredMessageStore = &tiers.store;
    let conv = conversation("c");
    for round in 0..100 {
        commit(store, &conv, &drafts(3 * round..3 * round + 3, NOW), NOW).await;
        copy_and_die_before_the_mark(&tiers, &conv, NOW).await;
        assert_eq!(
            store.marks(&conv, NOW).await.unwrap().archived,
            0,
            "round {round}: what was not marked is copied again"
        );
    }
    copy_all(store, &conv, NOW).await;
    let marks = store.marks(&conv, NOW).await.unwrap();
    assert_eq!((marks.archived, marks.last), (300, 300));
    assert_eq!(store.archive().count(&conv, NOW).await.unwrap(), 300);
    assert_eq!(trim_all(store, &conv, NOW + 8 * DAY).await, 300);
    assert_eq!(log(store, &conv, NOW + 8 * DAY).await, (1..=300).collect::<Vec<_>>());
    assert_eq!(store.archive().high_water(&conv).await.unwrap(), 300);
}

#[tokio::test]
async fn the_first_message_of_a_conversation_is_copied_trimmed_and_found_like_any_other() {
    let Tiers { store, redis: _redis, dir: _dir } = tiers();
    let conv = conversation("c");
    let shard = store.hot().shards().shard_of(&conv);
    commit(&store, &conv, &drafts(0..1, NOW), NOW).await;
    assert_eq!(store.hot().unarchived(shard, NOW, 10).await.unwrap(), std::slice::from_ref(&conv));
    copy_all(&store, &conv, NOW).await;
    assert_eq!(store.archive().count(&conv, NOW).await.unwrap(), 1);
    for (now, removed) in [(NOW, 0), (NOW + 7 * DAY, 1)] {
        assert_eq!(trim_all(&store, &conv, now).await, removed);
        assert_eq!(log(&store, &conv, now).await, [1]);
        assert_eq!(log_backwards(&store, &conv, now).await, [1]);
        let from_its_date = qim_store::tiered::Position::FromTime(NOW);
        assert_eq!(page_seqs(&pull(&store, &conv, from_its_date, 1, now).await), [1]);
        let again = commit(&store, &conv, &drafts(0..1, NOW), now).await;
        assert!(again[0].duplicate && again[0].seq == 1);
    }
}
