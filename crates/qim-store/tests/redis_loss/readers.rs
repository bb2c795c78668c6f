//! What readers see meanwhile: all that was acknowledged, or that they have to wait.

use std::time::Duration;

use qim_store::hot::HotError;
use qim_store::tiered::{Position, PullError, PullRequest, TierError};

use super::support::*;
use super::{Writer, check, copy, history};

/// All ways to read a conversation of which the seqs 1 to 8 were acknowledged: how many answered, each with all of it. The
/// others said to come again.
async fn readers_who_see_all(writer: &Writer, id: &str) -> usize {
    let mut answered = 0;
    let or_later = |error: HotError| assert!(error.retry_after().is_some(), "{id}: {error}");
    for (position, seqs) in [
        (Position::After(0), 1..=8),
        (Position::After(5), 6..=8),
        (Position::Before(u64::MAX), 1..=8),
        (Position::Before(4), 1..=3),
        (Position::FromTime(NOW), 1..=8),
        (Position::FromTime(NOW - DAY), 1..=8),
    ] {
        let request =
            PullRequest { position, limit: 100, fail_on_expired: true, form: qim_core::PayloadForm::Plain };
        match writer.store.pull(&conversation(id), request, NOW).await {
            Ok(page) => {
                let seen: Vec<u64> = page.records.iter().map(|record| record.seq).collect();
                assert_eq!((seen, page.last), (seqs.collect(), 8), "{id}: {position:?}");
                answered += 1;
            }
            Err(PullError::Hot(error)) => or_later(error),
            Err(error) => panic!("{id}: {position:?}: {error}"),
        }
    }
    match writer.store.describe(&conversation(id), NOW).await {
        Ok(described) => {
            assert_eq!((described.earliest_available, described.marks.last), (1, 8), "{id}");
            answered += 1;
        }
        Err(TierError::Hot(error)) => or_later(error),
        Err(error) => panic!("{id}: {error}"),
    }
    answered
}

#[tokio::test]
async fn nobody_reads_a_redis_that_lost_data_before_it_was_put_back() {
    let tiers = tiers();
    let mut writer = Writer::of(tiers.store.clone());
    writer.send("hot", 0..8).await;
    writer.send("archived", 0..6).await;
    copy(&writer, "archived").await;
    let kept = tiers.redis.append_only_file();
    writer.send("archived", 6..8).await;
    let cut_short = || {
        tiers.redis.kill();
        tiers.redis.set_append_only_file(&kept);
        tiers.redis.restart();
    };
    let flush = || drop(tiers.redis.command(&["FLUSHALL"]));
    for lose in [&flush as &dyn Fn(), &|| tiers.redis.restart_empty(), &cut_short, &|| tiers.redis.restart()]
    {
        lose();
        assert_eq!(readers_who_see_all(&writer, "hot").await, 0);
        assert_eq!(readers_who_see_all(&writer, "archived").await, 0);
        let mut answered = 0;
        for _ in 0..400 {
            writer.look().await;
            let (hot, archived) =
                (readers_who_see_all(&writer, "hot").await, readers_who_see_all(&writer, "archived").await);
            answered = hot + archived;
            if answered == 14 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(answered, 14, "readers wait no longer than it takes");
    }
    check(&[&writer]).await;
}

#[tokio::test]
async fn readers_wait_for_writers_of_which_an_emptied_redis_knows_nothing() {
    let tiers = tiers();
    let reader = Writer::of(tiers.store.clone());
    reader.look().await;
    let mut writer = Writer::beside(&tiers);
    writer.send("hot", 0..8).await;
    tiers.redis.command(&["FLUSHALL"]);
    // It has nothing to put back, and never heard of the other one.
    reader.look().await;
    assert_eq!(readers_who_see_all(&reader, "hot").await, 0);
    tokio::time::sleep(Duration::from_millis(500)).await;
    reader.look().await;
    assert_eq!(readers_who_see_all(&reader, "hot").await, 0);
    writer.look().await;
    let (records, gaps) = history(&reader.store, "hot").await;
    assert_eq!((records.len(), gaps.len()), (8, 0));
}

#[tokio::test]
async fn a_conversation_that_waits_for_the_archive_is_read_to_its_gap() {
    let tiers = tiers();
    let mut survivor = Writer::of(tiers.store.clone());
    let mut dead = Writer::beside(&tiers);
    survivor.send("c", 0..3).await;
    dead.send("other", 3..4).await;
    survivor.look().await;
    tiers.redis.command(&["FLUSHALL"]);
    // What the survivor puts back is hot and not archived; how far the conversation went nobody knows.
    let (records, gaps) = history(&survivor.store, "c").await;
    assert_eq!(records.into_keys().collect::<Vec<_>>(), [1, 2, 3]);
    let [(4, end)] = gaps[..] else { panic!("{gaps:?}") };
    let newest = PullRequest {
        position: Position::Before(u64::MAX),
        limit: 2,
        fail_on_expired: false,
        form: qim_core::PayloadForm::Plain,
    };
    let page = survivor.store.pull(&conversation("c"), newest, NOW).await.unwrap();
    assert_eq!(page.records.iter().map(|record| record.seq).collect::<Vec<_>>(), [2, 3]);
    assert_eq!((page.last, page.gaps.len(), page.has_more), (end, 1, true));
    assert_eq!(survivor.store.describe(&conversation("c"), NOW).await.unwrap().marks.last, end);
    copy(&survivor, "c").await;
    assert_eq!(survivor.send_until_taken(&[], "c", "id-9").await, end + 1);
    let (records, gaps) = history(&survivor.store, "c").await;
    assert_eq!(records.into_keys().collect::<Vec<_>>(), [1, 2, 3, end + 1]);
    assert_eq!(gaps, [(4, end)]);
}

#[tokio::test]
async fn a_conversation_that_may_have_been_lost_whole_is_said_to_be() {
    let tiers = tiers();
    let mut dead = Writer::of(tiers.store.clone());
    dead.send("c", 0..5).await;
    tiers.redis.restart_empty();
    let mut writer = Writer::beside(&tiers);
    let (records, gaps) = history(&writer.store, "c").await;
    let [(1, end)] = gaps[..] else { panic!("{gaps:?}") };
    assert!(records.is_empty() && end > 5);
    let described = writer.store.describe(&conversation("c"), NOW).await.unwrap();
    assert_eq!((described.marks.last, described.earliest_available), (end, end + 1));
    assert_eq!(described.gaps.unwrap().len(), 1);
    assert_eq!(writer.send_until_taken(&[], "c", "id-9").await, end + 1);
    let (records, gaps) = history(&writer.store, "c").await;
    assert_eq!((records.into_keys().collect::<Vec<_>>(), &gaps[..]), (vec![end + 1], &[(1, end)][..]));
}
