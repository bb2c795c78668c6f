//! Wrong clocks, and machines that sleep.

use qim_core::RetentionClass::{Default as DefaultClass, Ephemeral24h};
use qim_store::hot::HotError;
use qim_store::tiered::{MoveError, Position};

use crate::support::*;

#[tokio::test]
async fn a_record_dated_in_the_future_by_a_wrong_clock_delays_its_conversation_and_nothing_else() {
    let Tiers { store, redis: _redis, dir: _dir } = tiers();
    let (conv, other) = (conversation("c"), conversation("other"));
    let ahead = NOW + 2 * DAY;
    commit(&store, &conv, &drafts(0..1, NOW), NOW).await;
    commit(&store, &conv, &[draft("ahead", Ephemeral24h, ahead)], ahead).await;
    let after = commit(&store, &conv, &[draft("right", DefaultClass, NOW + SECOND)], NOW + SECOND).await;
    assert_eq!((after[0].seq, after[0].dates.unwrap().created_at), (3, ahead), "dates never go back");
    let elsewhere = commit(&store, &other, &[draft("right", DefaultClass, NOW + SECOND)], NOW + SECOND).await;
    assert_eq!(elsewhere[0].dates.unwrap().created_at, NOW + SECOND);

    assert_eq!(log(&store, &conv, NOW + SECOND).await, [1, 2, 3], "readable at once");
    let page = pull(&store, &conv, Position::FromTime(NOW + SECOND), 5, NOW + SECOND).await;
    assert_eq!(page_seqs(&page), [2, 3]);
    copy_all(&store, &conv, NOW + SECOND).await;
    assert_eq!(store.archive().count(&conv, NOW + SECOND).await.unwrap(), 3, "copied without waiting");
    assert_eq!(trim_all(&store, &conv, NOW + 7 * DAY).await, 1, "what is dated right does not wait");
    assert_eq!(collect_all(store.hot(), ahead + DAY).await.collected, 1, "it goes by the date that it has");
    assert_eq!(trim_all(&store, &conv, NOW + 9 * DAY).await, 2);
    assert_eq!(log(&store, &conv, NOW + 9 * DAY).await, [1, 3]);
    assert_eq!(log(&store, &conv, ahead + 30 * DAY).await, [0; 0]);
}

#[tokio::test]
async fn a_machine_that_sleeps_for_two_days_goes_on_where_it_was() {
    let tiers = tiers();
    let store = &tiers.store;
    let conv = conversation("c");
    commit(store, &conv, &[draft("1", Ephemeral24h, NOW), draft("2", DefaultClass, NOW)], NOW).await;
    let asleep = fence(store.hot(), &conv).await;
    store.copy(&conv, &asleep, NOW).await.unwrap();
    commit(store, &conv, &drafts(10..12, NOW), NOW).await;

    // The lease ends meanwhile, and whoever wakes up with it is told so before it does anything.
    let lease = format!("qim:{{{}}}:lease", asleep.shard);
    redis::cmd("DEL").arg(lease).exec_async(&mut raw(&tiers.redis).await).await.unwrap();
    let awake = NOW + 2 * DAY;
    assert_eq!(log(store, &conv, awake).await, [2, 3, 4], "what expired in its sleep is not shown");
    assert!(matches!(store.copy(&conv, &asleep, awake).await, Err(MoveError::Hot(HotError::Fenced))));
    let since = store.hot().stats(awake).await.unwrap().unarchived_since;
    assert!(since.is_some_and(|since| since <= NOW), "the lag tells of the sleep: {since:?}");
    copy_all(store, &conv, awake).await;
    assert_eq!(collect_all(store.hot(), awake).await.collected, 1);
    assert_eq!(store.hot().stats(awake).await.unwrap().unarchived_since, None);
    // A request that it took before it fell asleep is dated as it came, behind what others wrote since.
    commit(store, &conv, &[draft("other", DefaultClass, awake)], awake).await;
    let late = commit(store, &conv, &[draft("taken before", DefaultClass, NOW)], NOW).await;
    assert_eq!((late[0].seq, late[0].dates.unwrap().created_at), (6, awake));
    assert_eq!(log(store, &conv, awake).await, (2..=6).collect::<Vec<_>>());
}
