//! The hot tier on a real Redis. Tests that ADR-0019 names carry its own name in their doc comment.

mod support;

use std::collections::BTreeSet;
use std::time::Duration;

use qim_core::RetentionClass::{ComplianceHold, Default as DefaultClass, Ephemeral24h, TenantCustom};
use qim_core::{ConversationKey, UnixMillis, codec};
use qim_store::hot::{
    CommitError, Committed, HotError, HotPage, HotValue, Marks, PageStart, RedisMessageStore, TrimOutcome,
    TrimRequest,
};
use support::*;

async fn page(store: &RedisMessageStore, conversation: &ConversationKey, start: PageStart) -> HotPage {
    store.read_page(conversation, start, 512, NOW).await.unwrap()
}

async fn marks(store: &RedisMessageStore, conversation: &ConversationKey) -> Marks {
    page(store, conversation, PageStart::After(0)).await.marks
}

fn readable(page: &HotPage, now: UnixMillis) -> Vec<u64> {
    page.values.iter().filter(|value| value.readable(now).is_some()).map(HotValue::seq).collect()
}

/// Trims all that is due, as the archiver would after reading the copies back.
async fn trim(store: &RedisMessageStore, conversation: &ConversationKey, now: UnixMillis) -> TrimOutcome {
    let fence = fence(store, conversation).await;
    let floor = marks(store, conversation).await.floor;
    let request = TrimRequest { floor, upto: u64::from(u32::MAX), cutoff: now - WINDOW, retry_at: now };
    let outcome = store.trim(conversation, &fence, request, now).await.unwrap();
    store.release_lease(&fence).await.unwrap();
    outcome
}

async fn mark(store: &RedisMessageStore, conversation: &ConversationKey, mark: u64) {
    let fence = fence(store, conversation).await;
    store.mark_archived(conversation, &fence, mark).await.unwrap();
    store.release_lease(&fence).await.unwrap();
}

/// `注入保留期后_default_历史按期到期_合规保留不删`
#[tokio::test]
async fn default_history_expires_on_time_once_a_retention_is_injected_and_holds_stay() {
    let (redis, store) = hot_store();
    let conv = conversation("c");
    let batch = [
        draft("1", DefaultClass, NOW),
        draft("2", ComplianceHold, NOW),
        draft("3", Ephemeral24h, NOW),
        draft("4", TenantCustom, NOW),
    ];
    store.commit(&conv, &batch, NOW, None).await.unwrap();
    let due = |seq: u64, at: UnixMillis| (format!("c\0{seq}"), at.get());
    assert_eq!(registered(&redis).await, [due(1, NOW + 30 * DAY), due(3, NOW + DAY)]);

    assert_eq!(collect_all(&store, NOW + DAY - MS).await.collected, 0);
    assert_eq!(collect_all(&store, NOW + DAY).await.collected, 1);
    assert_eq!(collect_all(&store, NOW + 30 * DAY - MS).await.collected, 0);
    assert_eq!(collect_all(&store, NOW + 30 * DAY).await.collected, 1);
    assert_eq!(collect_all(&store, NOW + 3650 * DAY).await.collected, 0);
    assert_eq!(readable(&page(&store, &conv, PageStart::After(0)).await, NOW + 3650 * DAY), [2, 4]);
    assert!(registered(&redis).await.is_empty());
}

/// `热窗口裁剪后到期清理不卡死_升级前遗留的索引条目按下界清掉`
#[tokio::test]
async fn gc_does_not_stick_after_a_trim_and_entries_left_by_older_versions_go_by_the_floor() {
    let (redis, store) = hot_store();
    let conv = conversation("c");
    store.commit(&conv, &drafts(0..3, NOW), NOW, None).await.unwrap();
    mark(&store, &conv, 3).await;
    trim(&store, &conv, NOW + 8 * DAY).await;
    assert!(registered(&redis).await.is_empty(), "A16: the trim took the entries along");

    let mut raw = raw(&redis).await;
    let gc = format!("qim:{{{}}}:msghistorygc", store.shards().shard_of(&conv));
    for seq in [1, 2] {
        let due = (NOW + 9 * DAY).get();
        redis::cmd("ZADD").arg(&gc).arg(due).arg(format!("c\0{seq}")).exec_async(&mut raw).await.unwrap();
    }
    let report = collect_all(&store, NOW + 31 * DAY).await;
    assert_eq!((report.stale, report.collected, report.set_aside), (2, 0, 0));
    assert!(registered(&redis).await.is_empty());
}

/// `分层写入方只为热窗口内到期的消息登记到期索引`
#[tokio::test]
async fn a18_a_tiered_writer_registers_only_what_expires_inside_the_hot_window() {
    let conv = conversation("c");
    let batch =
        [draft("1", DefaultClass, NOW), draft("2", Ephemeral24h, NOW), draft("3", ComplianceHold, NOW)];
    for (window, expected) in [(29 * DAY, vec!["c\u{0}2"]), (29 * DAY + MS, vec!["c\u{0}1", "c\u{0}2"])] {
        let (redis, store) = hot_store();
        let store = store.with_trim_window(window);
        store.commit(&conv, &batch, NOW, None).await.unwrap();
        let members: Vec<String> = registered(&redis).await.into_iter().map(|(member, _)| member).collect();
        assert_eq!(members, expected, "window of {window:?}");
    }
}

#[tokio::test]
async fn a8_the_expiry_is_registered_in_the_same_step_as_the_commit() {
    let (redis, store) = hot_store();
    let mut raw = raw(&redis).await;
    redis::cmd("MONITOR").exec_async(&mut raw).await.ok();
    let committed =
        store.commit(&conversation("c"), &[draft("1", Ephemeral24h, NOW)], NOW, None).await.unwrap();
    assert_eq!(committed[0].dates.unwrap().expires_at, Some(NOW + DAY));
    assert_eq!(registered(&redis).await, [("c\0".to_owned() + "1", (NOW + DAY).get())]);
    let calls: String =
        redis::cmd("INFO").arg("commandstats").query_async(&mut support::raw(&redis).await).await.unwrap();
    // One script did it, and it was called once (the first time by EVALSHA, then loaded and called again).
    assert!(calls.contains("cmdstat_zadd:calls=3"), "{calls}");
}

#[tokio::test]
async fn seqs_have_no_gap_and_dates_never_go_back_under_concurrent_commits() {
    let (_redis, store) = hot_store();
    let conv = conversation("c");
    let writers = (0..8_u64).map(|writer| {
        let (store, conv) = (store.clone(), conv.clone());
        tokio::spawn(async move {
            let mut given = Vec::new();
            for i in 0..25_u64 {
                // Clocks of writers are apart, some of them by a lot.
                let at = NOW + MS * u32::try_from((writer * 37) % 11 * 1000 + i).unwrap();
                let batch = [
                    draft(&format!("{writer}-{i}-a"), DefaultClass, at),
                    draft(&format!("{writer}-{i}-b"), DefaultClass, at),
                ];
                given.extend(seqs(&store.commit(&conv, &batch, at, None).await.unwrap()));
            }
            given
        })
    });
    let mut all = BTreeSet::new();
    for writer in writers {
        let given = writer.await.unwrap();
        assert!(given.chunks(2).all(|pair| pair[1] == pair[0] + 1), "a batch is not torn apart");
        assert!(given.is_sorted());
        all.extend(given);
    }
    assert!(all.into_iter().eq(1..=400));
    let values = page(&store, &conv, PageStart::After(0)).await.values;
    let dates: Vec<_> = values.iter().map(|value| value.readable(NOW).unwrap().created_at()).collect();
    assert!(dates.is_sorted());
    assert_eq!(values.len(), 400);
}

#[tokio::test]
async fn a_retry_gets_the_first_answer_marked_duplicate() {
    let (_redis, store) = hot_store();
    let conv = conversation("c");
    let first = store.commit(&conv, &[draft("1", DefaultClass, NOW)], NOW, None).await.unwrap();
    assert!(!first[0].duplicate);
    let batch = [draft("0", DefaultClass, NOW + SECOND), draft("1", DefaultClass, NOW + SECOND)];
    let again = store.commit(&conv, &batch, NOW + SECOND, None).await.unwrap();
    assert_eq!(again[1], Committed { duplicate: true, ..first[0].clone() });
    assert_eq!((again[0].seq, again[0].duplicate), (2, false));
    assert_eq!(marks(&store, &conv).await.last, 2);
    // Another sender may use the same id, and so may another conversation.
    let other = [qim_store::hot::Draft { sender: "bob".into(), ..draft("1", DefaultClass, NOW) }];
    assert_eq!(seqs(&store.commit(&conv, &other, NOW, None).await.unwrap()), [3]);
    assert_eq!(seqs(&store.commit(&conversation("d"), &batch, NOW, None).await.unwrap()), [1, 2]);
}

#[tokio::test]
async fn an_id_used_again_with_another_body_is_refused_and_with_it_the_whole_batch() {
    let (_redis, store) = hot_store();
    let conv = conversation("c");
    store.commit(&conv, &[draft("1", DefaultClass, NOW)], NOW, None).await.unwrap();
    let other_body =
        qim_store::hot::Draft { payload: "something else".into(), ..draft("1", DefaultClass, NOW) };
    let other_class = draft("1", Ephemeral24h, NOW);
    for bad in [other_body.clone(), other_class] {
        let batch = [draft("2", DefaultClass, NOW), bad];
        let error = store.commit(&conv, &batch, NOW, None).await.unwrap_err();
        assert!(matches!(error, CommitError::AlreadyExists { index: 1, seq: 1 }), "{error}");
    }
    let twice =
        [draft("3", DefaultClass, NOW), qim_store::hot::Draft { client_msg_id: "3".into(), ..other_body }];
    let error = store.commit(&conv, &twice, NOW, None).await.unwrap_err();
    assert!(matches!(error, CommitError::AlreadyExists { index: 1, seq: 0 }), "{error}");
    assert_eq!(marks(&store, &conv).await.last, 1);
}

#[tokio::test]
async fn a_message_twice_in_one_batch_is_committed_once() {
    let (_redis, store) = hot_store();
    let conv = conversation("c");
    let batch = [draft("1", DefaultClass, NOW), draft("2", DefaultClass, NOW), draft("1", DefaultClass, NOW)];
    let committed = store.commit(&conv, &batch, NOW, None).await.unwrap();
    assert_eq!(seqs(&committed), [1, 2, 1]);
    assert!(committed[2].duplicate && !committed[0].duplicate);
}

#[tokio::test]
async fn every_id_of_a_long_conversation_is_known_until_it_is_trimmed_and_takes_no_memory_after() {
    let (redis, store) = hot_store();
    let conv = conversation("c");
    for from in (0..5_000).step_by(500) {
        store.commit(&conv, &drafts(from..from + 500, NOW), NOW, None).await.unwrap();
    }
    let again = store.commit(&conv, &drafts(2_300..2_800, NOW), NOW, None).await.unwrap();
    assert_eq!(seqs(&again), (2_301..=2_800).collect::<Vec<_>>());
    assert!(again.iter().all(|committed| committed.duplicate));

    mark(&store, &conv, 5_000).await;
    let later = NOW + 8 * DAY;
    store.commit(&conv, &drafts(5_000..5_100, later), later, None).await.unwrap();
    while let TrimOutcome::Trimmed { more: true, .. } = trim(&store, &conv, later).await {}
    assert_eq!(marks(&store, &conv).await.floor, 5_001);
    let kept = store.commit(&conv, &drafts(5_000..5_100, later), later, None).await.unwrap();
    assert!(kept.iter().all(|committed| committed.duplicate));
    let forgotten = store.commit(&conv, &drafts(0..1, later), later, None).await.unwrap();
    assert!(!forgotten[0].duplicate, "the hot tier covers the hot window; the archive covers what is older");

    mark(&store, &conv, 5_101).await;
    while let TrimOutcome::Trimmed { more: true, .. } = trim(&store, &conv, later + 8 * DAY).await {}
    let keys: Vec<String> =
        redis::cmd("KEYS").arg("*:f:c").query_async(&mut raw(&redis).await).await.unwrap();
    assert!(keys.is_empty(), "{keys:?}");
    assert!(store.conversation_bytes(&conv).await.unwrap() < 300);
}

/// Beyond 512 places there is an index; it grows, is swept, shrinks, and gives way again.
#[tokio::test]
async fn no_id_is_forgotten_while_a_conversation_grows_and_shrinks() {
    let (_redis, store) = hot_store();
    let conv = conversation("c");
    let (mut floor, mut last, mut now) = (0, 0, NOW);
    // How many messages come each day, and stay seven days.
    for count in [300, 300, 1, 900, 2_500, 40, 3, 3, 3, 400, 60, 700, 2, 2, 2, 2, 2, 2, 2, 2, 513, 1] {
        for from in (last..last + count).step_by(500) {
            let batch = drafts(from..(last + count).min(from + 500), now);
            assert!(store.commit(&conv, &batch, now, None).await.unwrap().iter().all(|new| !new.duplicate));
        }
        last += count;
        mark(&store, &conv, last).await;
        while let TrimOutcome::Trimmed { more: true, .. } = trim(&store, &conv, now).await {}
        let trimmed_to = marks(&store, &conv).await.floor - 1;
        assert!(trimmed_to >= floor);
        floor = trimmed_to;
        for from in (floor..last).step_by(500) {
            let upto = last.min(from + 500);
            let again = store.commit(&conv, &drafts(from..upto, now), now, None).await.unwrap();
            assert_eq!(seqs(&again), (from + 1..=upto).collect::<Vec<_>>());
            assert!(again.iter().all(|known| known.duplicate), "{floor}..{last}");
        }
        now = now + DAY;
    }
}

#[tokio::test]
async fn a_commit_that_needs_an_unmoved_floor_is_refused_when_it_moved() {
    let (_redis, store) = hot_store();
    let conv = conversation("c");
    store.commit(&conv, &drafts(0..2, NOW), NOW, Some(1)).await.unwrap();
    mark(&store, &conv, 2).await;
    trim(&store, &conv, NOW + 8 * DAY).await;
    let error = store.commit(&conv, &drafts(2..3, NOW), NOW, Some(1)).await.unwrap_err();
    assert!(matches!(error, CommitError::FloorMoved { floor: 3 }), "{error}");
    assert_eq!(seqs(&store.commit(&conv, &drafts(2..3, NOW), NOW, Some(3)).await.unwrap()), [3]);
}

#[tokio::test]
async fn a15_shortening_the_retention_affects_later_writes_only() {
    let (_redis, store) = hot_store();
    let conv = conversation("c");
    store.commit(&conv, &[draft("1", DefaultClass, NOW)], NOW, None).await.unwrap();
    let short = store
        .clone()
        .with_retention(qim_store::RetentionPolicy::from_days(qim_core::RetentionDays::new(1).unwrap()));
    let again = short
        .commit(&conv, &[draft("1", DefaultClass, NOW), draft("2", DefaultClass, NOW)], NOW, None)
        .await
        .unwrap();
    assert_eq!(again[0].dates.unwrap().expires_at, Some(NOW + 30 * DAY));
    assert_eq!(again[1].dates.unwrap().expires_at, Some(NOW + DAY));
    collect_all(&short, NOW + 2 * DAY).await;
    assert_eq!(readable(&page(&short, &conv, PageStart::After(0)).await, NOW + 2 * DAY), [1]);
}

#[tokio::test]
async fn a9_gc_drains_in_batches_until_nothing_is_due() {
    let (redis, store) = hot_store();
    let conv = conversation("c");
    for from in (0..1_500).step_by(500) {
        let batch: Vec<_> = (from..from + 500).map(|i| draft(&i.to_string(), Ephemeral24h, NOW)).collect();
        store.commit(&conv, &batch, NOW, None).await.unwrap();
    }
    let shard = store.shards().shard_of(&conv);
    let first = store.collect_expired(shard, NOW + DAY).await.unwrap();
    assert_eq!((first.collected, first.more), (512, true));
    assert_eq!(collect_all(&store, NOW + DAY).await.collected, 1_500 - 512);
    assert!(registered(&redis).await.is_empty());
    let page = page(&store, &conv, PageStart::After(1_499)).await;
    assert_eq!((page.marks.last, page.marks.hot_records(), page.first_readable), (1_500, 0, None));
}

#[tokio::test]
async fn gc_is_claimed_by_one_at_a_time_also_at_the_memory_limit() {
    let (redis, store) = hot_store_on_one_server();
    let parts = store.gc_parts();
    assert_eq!(parts, [[0, 1, 2, 3]], "one server is one part");
    let claim = async |who: &str| store.claim_gc(&parts[0], who, Duration::from_mins(1)).await.unwrap();
    assert!(claim("a").await);
    assert!(!claim("b").await);
    assert!(claim("a").await, "it may go on");
    // The claim has run out.
    redis.command(&["DEL", "qim:{0}:collector"]);
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
    assert!(claim("b").await);
    assert!(!claim("a").await);
    assert!(redis.command(&["PTTL", "qim:{0}:collector"]).integer() > 0);
}

#[tokio::test]
async fn a17_one_bad_entry_is_set_aside_and_never_stops_the_rest_of_the_batch() {
    let (redis, store) = hot_store();
    let conv = conversation("c");
    let batch: Vec<_> = (1..=6).map(|i| draft(&i.to_string(), Ephemeral24h, NOW)).collect();
    store.commit(&conv, &batch, NOW, None).await.unwrap();
    let mut raw = raw(&redis).await;
    let shard = store.shards().shard_of(&conv);
    let (list, gc) = (format!("qim:{{{shard}}}:c:c"), format!("qim:{{{shard}}}:msghistorygc"));
    // 2: not a record. 4: its entry has another date than the record. 99 and the rest: no such record.
    redis::cmd("LSET").arg(&list).arg(1).arg("rubbish").exec_async(&mut raw).await.unwrap();
    for (member, date) in [("c\u{0}4", 5), ("c\u{0}99", 5), ("nowhere\u{0}1", 5), ("nonsense", 5)] {
        redis::cmd("ZADD").arg(&gc).arg(date).arg(member).exec_async(&mut raw).await.unwrap();
    }
    let report = collect_all(&store, NOW + DAY).await;
    assert_eq!((report.collected, report.set_aside, report.stale), (4, 5, 0));
    assert!(registered(&redis).await.is_empty());
    let aside = store.set_aside(shard).await.unwrap();
    let mut named: Vec<_> = aside.iter().map(|entry| entry.seq).collect();
    named.sort_unstable();
    assert_eq!(named, [None, Some(1), Some(2), Some(4), Some(99)]);
    assert!(aside.iter().any(|entry| entry.reason.contains("missing above the floor")), "{aside:?}");
    assert_eq!(store.stats(NOW).await.unwrap().set_aside, 5);
    // What failed closed is still there, and so is everything's place.
    let values = page(&store, &conv, PageStart::After(0)).await.values;
    assert!(matches!(values[1], HotValue::Damaged { seq: 2, .. }));
    assert!(matches!(&values[3], HotValue::Record(record) if record.seq == 4));
}

#[tokio::test]
async fn a17_an_entry_that_is_not_due_or_held_is_put_right_and_its_record_stays() {
    let (redis, store) = hot_store();
    let conv = conversation("c");
    let batch = [draft("1", ComplianceHold, NOW), draft("2", Ephemeral24h, NOW)];
    store.commit(&conv, &batch, NOW, None).await.unwrap();
    let gc = format!("qim:{{{}}}:msghistorygc", store.shards().shard_of(&conv));
    for seq in [1, 2] {
        redis::cmd("ZADD")
            .arg(&gc)
            .arg(5)
            .arg(format!("c\0{seq}"))
            .exec_async(&mut raw(&redis).await)
            .await
            .unwrap();
    }
    let report = collect_all(&store, NOW).await;
    assert_eq!((report.not_due, report.collected, report.set_aside), (2, 0, 0));
    assert_eq!(registered(&redis).await, [("c\u{0}2".to_owned(), (NOW + DAY).get())]);
    assert_eq!(readable(&page(&store, &conv, PageStart::After(0)).await, NOW), [1, 2]);
}

#[tokio::test]
async fn a16_a_trim_removes_the_expiry_entries_of_what_it_removes_and_no_others() {
    let (redis, store) = hot_store();
    let conv = conversation("c");
    let later = NOW + 5 * DAY;
    store.commit(&conv, &drafts(0..2, NOW), NOW, None).await.unwrap();
    store.commit(&conv, &drafts(2..4, later), later, None).await.unwrap();
    mark(&store, &conv, 4).await;
    assert_eq!(registered(&redis).await.len(), 4);
    let outcome = trim(&store, &conv, NOW + 8 * DAY).await;
    assert_eq!(outcome, TrimOutcome::Trimmed { removed: 2, floor: 3, more: false });
    let members: Vec<String> = registered(&redis).await.into_iter().map(|(member, _)| member).collect();
    assert_eq!(members, ["c\u{0}3", "c\u{0}4"]);
    assert_eq!(readable(&page(&store, &conv, PageStart::After(0)).await, later), [3, 4]);
}

#[tokio::test]
async fn a20_nothing_is_trimmed_before_its_archive_copy_is_durable_or_it_has_expired() {
    let (_redis, store) = hot_store();
    let conv = conversation("c");
    store.commit(&conv, &drafts(0..3, NOW), NOW, None).await.unwrap();
    let later = NOW + 8 * DAY;
    assert_eq!(trim(&store, &conv, later).await, TrimOutcome::Trimmed { removed: 0, floor: 1, more: false });
    mark(&store, &conv, 2).await;
    assert_eq!(trim(&store, &conv, later).await, TrimOutcome::Trimmed { removed: 2, floor: 3, more: false });
    assert_eq!(
        trim(&store, &conv, NOW + 30 * DAY - MS).await,
        TrimOutcome::Trimmed { removed: 0, floor: 3, more: false }
    );
    assert_eq!(
        trim(&store, &conv, NOW + 30 * DAY).await,
        TrimOutcome::Trimmed { removed: 1, floor: 4, more: false }
    );
    let marks = marks(&store, &conv).await;
    assert_eq!((marks.floor, marks.archived, marks.last), (4, 3, 3));
    assert_eq!(seqs(&store.commit(&conv, &drafts(3..4, later), later, None).await.unwrap()), [4]);
}

#[tokio::test]
async fn the_marks_never_go_back_and_never_pass_the_last_seq() {
    let (_redis, store) = hot_store();
    let conv = conversation("c");
    store.commit(&conv, &drafts(0..3, NOW), NOW, None).await.unwrap();
    mark(&store, &conv, 2).await;
    mark(&store, &conv, 1).await;
    assert_eq!(marks(&store, &conv).await.archived, 2);
    let fence = fence(&store, &conv).await;
    // Redis may have lost the fourth since it was copied.
    let outcome = store.mark_archived(&conv, &fence, 4).await.unwrap();
    assert_eq!((outcome.archived, outcome.last), (2, 3));
}

#[tokio::test]
async fn an_archiver_that_slept_through_its_lease_can_do_no_harm() {
    let (_redis, store) = hot_store();
    let conv = conversation("c");
    store.commit(&conv, &drafts(0..3, NOW), NOW, None).await.unwrap();
    let shard = store.shards().shard_of(&conv);
    let stale = store.acquire_lease(shard, None, Duration::from_millis(30)).await.unwrap().unwrap();
    assert_eq!(store.acquire_lease(shard, None, SECOND).await.unwrap(), None, "it is held");
    assert!(
        store.acquire_lease(shard, Some(&stale), Duration::from_millis(30)).await.unwrap().is_some(),
        "renewed"
    );
    tokio::time::sleep(Duration::from_millis(60)).await;
    let fresh = fence(&store, &conv).await;
    assert_ne!(fresh, stale);
    let request = TrimRequest { floor: 1, upto: 3, cutoff: NOW, retry_at: NOW };
    assert!(matches!(store.mark_archived(&conv, &stale, 3).await, Err(HotError::Fenced)));
    assert!(matches!(store.trim(&conv, &stale, request, NOW).await, Err(HotError::Fenced)));
    assert!(matches!(
        store.set_conversation_aside(&conv, &stale, "x", NOW, (NOW, NOW)).await,
        Err(HotError::Fenced)
    ));
    assert_eq!(store.acquire_lease(shard, Some(&stale), SECOND).await.unwrap(), None);
    store.release_lease(&stale).await.unwrap();
    assert!(store.mark_archived(&conv, &fresh, 3).await.is_ok(), "the stale one released nothing");
}

#[tokio::test]
async fn what_a_clock_that_is_ahead_entered_is_found_and_what_was_set_aside_is_left_in_peace() {
    let (redis, store) = hot_store();
    let conv = conversation("c1");
    let shard = store.shards().shard_of(&conv);
    let ahead = async |limit_at| store.unarchived_ahead(shard, limit_at, NOW + HOUR, 10).await.unwrap();
    store.commit(&conv, &[draft("a", DefaultClass, NOW)], NOW, None).await.unwrap();
    // That of Redis itself, before it was put back.
    let soon = NOW + HOUR / 2;
    let mut zadd = redis::cmd("ZADD");
    zadd.arg(format!("qim:{{{shard}}}:unarchived")).arg("XX").arg(soon.get()).arg("c1");
    zadd.exec_async(&mut raw(&redis).await).await.unwrap();
    assert!(store.unarchived(shard, NOW, 10).await.unwrap().is_empty(), "by its time it is not due");
    assert_eq!(ahead(NOW).await, std::slice::from_ref(&conv));
    assert!(ahead(soon).await.is_empty(), "within what clocks may differ by");

    let fence = fence(&store, &conv).await;
    let set_aside = async |until: UnixMillis| {
        store.set_conversation_aside(&conv, &fence, "as a test", NOW, (until, NOW)).await.unwrap();
    };
    set_aside(NOW + HOUR).await;
    assert!(ahead(NOW).await.is_empty(), "it rests");
    set_aside(NOW + HOUR + MS).await;
    assert_eq!(ahead(NOW).await, std::slice::from_ref(&conv), "nobody rests for so long");
    set_aside(NOW + HOUR).await;
    store.mark_archived(&conv, &fence, 0).await.unwrap();
    assert_eq!(ahead(NOW).await, std::slice::from_ref(&conv), "it was carried on with");
}

#[tokio::test]
async fn a_writer_whose_clock_is_ahead_enters_what_it_commits_as_of_now_by_the_clock_of_redis() {
    let (redis, store) = hot_store();
    let conv = conversation("c1");
    let shard = store.shards().shard_of(&conv);
    let far = NOW + 1_000 * DAY;
    store.commit(&conv, &drafts(0..3, far), far, None).await.unwrap();
    let entered = index(&redis, "unarchived").await[0].1;
    let time: (u64, u64) = redis::cmd("TIME").query_async(&mut raw(&redis).await).await.unwrap();
    assert!((time.0 * 1_000).abs_diff(entered) < 60_000, "{entered} at {time:?}");
    mark(&store, &conv, 2).await;
    assert_eq!(index(&redis, "unarchived").await[0].1, entered, "its date is still to come");
    assert_eq!(store.unarchived(shard, NOW, 10).await.unwrap(), [conv]);
}

#[tokio::test]
async fn an_unarchived_conversation_is_listed_until_all_of_it_is_archived() {
    let (_redis, store) = hot_store();
    let conv = conversation("c");
    let shard = store.shards().shard_of(&conv);
    // Not ahead of the clock of Redis.
    let now = NOW - 1_000 * DAY;
    store.commit(&conv, &drafts(0..3, now), now, None).await.unwrap();
    assert!(store.unarchived(shard, now - MS, 10).await.unwrap().is_empty(), "not before its time");
    assert_eq!(store.unarchived(shard, now, 10).await.unwrap(), std::slice::from_ref(&conv));
    mark(&store, &conv, 2).await;
    assert_eq!(store.unarchived(shard, now, 10).await.unwrap(), std::slice::from_ref(&conv));
    assert_eq!(store.stats(now).await.unwrap().unarchived, 1);
    mark(&store, &conv, 3).await;
    assert!(store.unarchived(shard, now, 10).await.unwrap().is_empty());
    let stats = store.stats(now).await.unwrap();
    assert_eq!((stats.unarchived, stats.unarchived_since, stats.records), (0, None, 3));
}

#[tokio::test]
async fn a_page_holds_what_was_there_at_one_moment_in_either_direction() {
    let (_redis, store) = hot_store();
    let conv = conversation("c");
    assert_eq!(page(&store, &conv, PageStart::After(0)).await, HotPage::EMPTY);
    store.commit(&conv, &drafts(0..200, NOW), NOW, None).await.unwrap();
    let seqs = |page: &HotPage| page.values.iter().map(HotValue::seq).collect::<Vec<_>>();
    let read = |start, limit| store.read_page(&conv, start, limit, NOW);
    assert_eq!(seqs(&read(PageStart::After(0), 3).await.unwrap()), [1, 2, 3]);
    assert_eq!(seqs(&read(PageStart::After(197), 100).await.unwrap()), [198, 199, 200]);
    assert_eq!(seqs(&read(PageStart::After(200), 100).await.unwrap()), [0; 0]);
    assert_eq!(seqs(&read(PageStart::After(u64::MAX), 100).await.unwrap()), [0; 0]);
    assert_eq!(seqs(&read(PageStart::Before(u64::MAX), 150).await.unwrap()), (51..=200).collect::<Vec<_>>());
    assert_eq!(seqs(&read(PageStart::Before(4), 150).await.unwrap()), [1, 2, 3]);
    assert_eq!(seqs(&read(PageStart::Before(1), 150).await.unwrap()), [0; 0]);
}

#[tokio::test]
async fn a_page_is_cut_at_a_few_megabytes_but_never_empty() {
    let (_redis, store) = hot_store();
    let conv = conversation("c");
    for i in 0..100 {
        let big = qim_store::hot::Draft {
            payload: vec![b'x'; 65_536].into(),
            ..draft(&i.to_string(), DefaultClass, NOW)
        };
        store.commit(&conv, &[big], NOW, None).await.unwrap();
    }
    for start in [PageStart::After(0), PageStart::Before(101)] {
        let page = page(&store, &conv, start).await;
        assert!((1..70).contains(&page.values.len()), "{}", page.values.len());
        assert_eq!(page.values.first().unwrap().seq() == 1, start == PageStart::After(0));
        assert_eq!(page.values.last().unwrap().seq() == 100, start == PageStart::Before(101));
    }
}

#[tokio::test]
async fn a_damaged_record_is_found_and_never_served() {
    let (redis, store) = hot_store();
    let conv = conversation("c");
    store.commit(&conv, &drafts(0..3, NOW), NOW, None).await.unwrap();
    let list = format!("qim:{{{}}}:c:c", store.shards().shard_of(&conv));
    let mut raw = raw(&redis).await;
    let mut bytes: Vec<u8> = redis::cmd("LINDEX").arg(&list).arg(1).query_async(&mut raw).await.unwrap();
    let at = bytes.len() - 6;
    bytes[at] ^= 1;
    redis::cmd("LSET").arg(&list).arg(1).arg(bytes).exec_async(&mut raw).await.unwrap();
    let page = page(&store, &conv, PageStart::After(0)).await;
    assert_eq!(readable(&page, NOW), [1, 3]);
    assert!(matches!(&page.values[1], HotValue::Damaged { seq: 2, reason } if reason.contains("checksum")));
}

#[tokio::test]
async fn a_conversation_whose_list_is_damaged_fails_closed_alone() {
    let (redis, store) = hot_store();
    let (conv, other) = (conversation("c"), conversation("d"));
    for conv in [&conv, &other] {
        store.commit(conv, &drafts(0..3, NOW), NOW, None).await.unwrap();
    }
    let list = format!("qim:{{{}}}:c:c", store.shards().shard_of(&conv));
    redis::cmd("LPOP").arg(&list).exec_async(&mut raw(&redis).await).await.unwrap();
    let error = store.commit(&conv, &drafts(3..4, NOW), NOW, None).await.unwrap_err();
    assert!(matches!(error, CommitError::Hot(HotError::Corrupt { .. })), "{error}");
    assert!(matches!(
        store.read_page(&conv, PageStart::After(0), 10, NOW).await,
        Err(HotError::Corrupt { .. })
    ));
    assert!(store.commit(&other, &drafts(3..4, NOW), NOW, None).await.is_ok());
    redis::cmd("SET").arg(&list).arg("text").exec_async(&mut raw(&redis).await).await.unwrap();
    let error = store.commit(&conv, &drafts(3..4, NOW), NOW, None).await.unwrap_err();
    assert!(matches!(error, CommitError::Hot(HotError::Corrupt { .. })), "{error}");
    let entries = format!("qim:{{{}}}:msghistorygc", store.shards().shard_of(&conv));
    redis::cmd("ZADD").arg(&entries).arg(1).arg("c\u{0}1").exec_async(&mut raw(&redis).await).await.unwrap();
    assert_eq!(collect_all(&store, NOW).await.set_aside, 1, "GC names it and goes on");
}

#[tokio::test]
async fn at_the_memory_limit_a_batch_is_refused_whole_and_reads_go_on() {
    let (redis, store) = hot_store();
    let conv = conversation("c");
    store.commit(&conv, &drafts(0..3, NOW), NOW, None).await.unwrap();
    let mut raw = raw(&redis).await;
    redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg("1mb").exec_async(&mut raw).await.unwrap();
    let error = store.commit(&conv, &drafts(3..6, NOW), NOW, None).await.unwrap_err();
    assert!(matches!(error, CommitError::Hot(HotError::OutOfMemory)), "{error}");
    assert_eq!(readable(&page(&store, &conv, PageStart::After(0)).await, NOW), [1, 2, 3]);
    mark(&store, &conv, 3).await;
    assert_eq!(
        trim(&store, &conv, NOW + 8 * DAY).await,
        TrimOutcome::Trimmed { removed: 3, floor: 4, more: false }
    );
    redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg("0").exec_async(&mut raw).await.unwrap();
    assert_eq!(seqs(&store.commit(&conv, &drafts(3..6, NOW), NOW, None).await.unwrap()), [4, 5, 6]);
}

#[tokio::test]
async fn finding_by_date_lands_on_the_first_record_that_is_young_enough() {
    let (_redis, store) = hot_store();
    let conv = conversation("c");
    assert_eq!(store.seek_time(&conv, NOW).await.unwrap(), (Marks::NEW, 1));
    let batch: Vec<_> = [0, 10, 10, 20]
        .iter()
        .enumerate()
        .map(|(i, at)| draft(&i.to_string(), Ephemeral24h, NOW + MS * *at))
        .collect();
    store.commit(&conv, &batch, NOW, None).await.unwrap();
    for collected in [false, true] {
        for (at, seq) in [(0, 1), (1, 2), (10, 2), (11, 4), (20, 4), (21, 5)] {
            assert_eq!(
                store.seek_time(&conv, NOW + MS * at).await.unwrap().1,
                seq,
                "{at} ms, collected: {collected}"
            );
        }
        assert_eq!(store.seek_time(&conv, UnixMillis::EPOCH).await.unwrap().1, 1);
        collect_all(&store, NOW + DAY + MS * 15).await;
    }
}

#[tokio::test]
async fn after_everything_expired_the_next_seq_is_the_last_one_plus_one() {
    let (_redis, store) = hot_store();
    let conv = conversation("c");
    let batch: Vec<_> = (1..=3).map(|i| draft(&i.to_string(), Ephemeral24h, NOW)).collect();
    store.commit(&conv, &batch, NOW, None).await.unwrap();
    collect_all(&store, NOW + DAY).await;
    trim(&store, &conv, NOW + 8 * DAY).await;
    let marks = marks(&store, &conv).await;
    assert_eq!((marks.last, marks.floor, marks.archived, marks.tombstones), (3, 4, 3, 0));
    assert_eq!(
        seqs(&store.commit(&conv, &drafts(10..11, NOW + 8 * DAY), NOW + 8 * DAY, None).await.unwrap()),
        [4]
    );
}

#[tokio::test]
async fn a_retry_of_a_collected_record_is_still_known_in_the_hot_window() {
    let (_redis, store) = hot_store();
    let conv = conversation("c");
    store.commit(&conv, &[draft("1", Ephemeral24h, NOW)], NOW, None).await.unwrap();
    collect_all(&store, NOW + DAY).await;
    let again =
        store.commit(&conv, &[draft("1", Ephemeral24h, NOW + 2 * DAY)], NOW + 2 * DAY, None).await.unwrap();
    assert_eq!(again, [Committed { seq: 1, duplicate: true, dates: None }]);
}

#[tokio::test]
async fn data_made_with_another_number_of_shards_is_refused() {
    let (redis, store) = hot_store();
    store.join_deployment().await.unwrap();
    store.join_deployment().await.unwrap();
    let url = redis.url().parse().unwrap();
    let other = RedisMessageStore::open(&url, qim_core::ShardCount::DEFAULT, SECOND).unwrap();
    let error = other.join_deployment().await.unwrap_err().to_string();
    assert!(error.contains("QIM_SHARDS") && error.contains("256") && error.contains('4'), "{error}");
}

#[tokio::test]
async fn a_redis_that_evicts_is_refused_and_one_without_a_log_is_warned_of() {
    let (redis, store) = hot_store();
    let mut raw = raw(&redis).await;
    redis::cmd("CONFIG").arg("SET").arg("appendonly").arg("no").exec_async(&mut raw).await.unwrap();
    let warnings = store.join_deployment().await.unwrap();
    assert!(warnings.iter().any(|warning| warning.contains("append-only")), "{warnings:?}");
    redis::cmd("CONFIG")
        .arg("SET")
        .arg("maxmemory-policy")
        .arg("allkeys-lru")
        .exec_async(&mut raw)
        .await
        .unwrap();
    let error = store.join_deployment().await.unwrap_err().to_string();
    assert!(error.contains("maxmemory-policy allkeys-lru") && error.contains("noeviction"), "{error}");
}

#[tokio::test]
async fn a12_daemons_tell_each_other_their_retention() {
    let (_redis, store) = hot_store();
    let days = |days| qim_core::RetentionDays::new(days).unwrap();
    assert!(store.exchange_retention("writer", "a", days(30)).await.unwrap().is_empty());
    let peers = store.exchange_retention("archiver", "b", days(31)).await.unwrap();
    assert_eq!((peers[0].peer.as_str(), peers[0].days.as_str()), ("writer:a", "30"));
    store.withdraw_retention("writer", "a").await.unwrap();
    assert!(store.exchange_retention("archiver", "b", days(31)).await.unwrap().is_empty(), "a is gone");
}

#[tokio::test]
async fn a_daemon_that_is_gone_does_not_count_whatever_time_it_last_said() {
    let (redis, store) = hot_store();
    let mut raw = raw(&redis).await;
    let server: u64 = {
        let time: (u64, u64) = redis::cmd("TIME").query_async(&mut raw).await.unwrap();
        time.0 * 1_000
    };
    let days = qim_core::RetentionDays::new(30).unwrap();
    let (second, hour) = (1_000, 3_600_000);
    // That of one whose clock was ahead would have counted for another hour.
    for (name, at) in [("before", server - hour), ("ahead", server + hour), ("alive", server - second)] {
        let mut hset = redis::cmd("HSET");
        hset.arg("qim:archivers").arg(name).arg(at).exec_async(&mut raw).await.unwrap();
        let mut hset = redis::cmd("HSET");
        hset.arg("qim:retention").arg(name).arg(format!("31:{at}")).exec_async(&mut raw).await.unwrap();
    }
    assert_eq!(store.announce_archiver("own", 12 * SECOND).await.unwrap(), 2);
    let peers = store.exchange_retention("writer", "own", days).await.unwrap();
    let told: Vec<_> = peers.iter().map(|peer| (peer.peer.as_str(), peer.days.as_str())).collect();
    assert_eq!(told, [("alive", "31")]);
    let listed: Vec<String> = redis::cmd("HKEYS").arg("qim:archivers").query_async(&mut raw).await.unwrap();
    assert_eq!(listed.len(), 2, "who is gone is taken off: {listed:?}");
}

#[tokio::test]
async fn a_redis_that_is_down_is_reported_in_time_and_found_again_when_it_is_back() {
    let (redis, store) = hot_store();
    let conv = conversation("c");
    store.commit(&conv, &drafts(0..1, NOW), NOW, None).await.unwrap();
    redis.stop();
    let started = std::time::Instant::now();
    let error = store.commit(&conv, &drafts(1..2, NOW), NOW, None).await.unwrap_err();
    assert!(matches!(error, CommitError::Hot(HotError::Unavailable(_))), "{error}");
    assert!(started.elapsed() < Duration::from_secs(8));
    redis.restart();
    let mut tries = 0;
    // Only who knows the archive can say whether nothing was lost.
    while !matches!(store.commit(&conv, &drafts(1..2, NOW), NOW, None).await, Err(CommitError::Doubted)) {
        tries += 1;
        assert!(tries < 1000);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(marks(&store, &conv).await.last, 1);
}

/// The scripts read dates and identity of a record by themselves.
#[tokio::test]
async fn scripts_and_codec_read_the_same_dates_and_identities() {
    let redis = qim_testkit::RedisServer::options().start();
    let script = redis::Script::new(concat!(
        include_str!("../lua/linear_hashing.lua"),
        include_str!("../lua/idle.lua"),
        include_str!("../lua/conversation.lua"),
        "return { is_record(ARGV[1]) and 1 or 0, created_at(ARGV[1]), expires_at(ARGV[1]), identity_of(ARGV[1]) }"
    ));
    let mut raw = raw(&redis).await;
    let days = [1, 30, 239, 240, 241, 495, 496, 3650, 4079, 4080].map(|days| NOW + days * DAY);
    let dates = [NOW, NOW + MS, NOW + DAY + MS, UnixMillis::MAX];
    for expires_at in days.into_iter().chain(dates).map(Some).chain([None]) {
        let message = qim_core::StoredMessage {
            sender: "s".into(),
            client_msg_id: "i".into(),
            class: DefaultClass,
            created_at: NOW,
            expires_at,
            content_type: qim_core::DEFAULT_CONTENT_TYPE.into(),
            payload: qim_core::StoredPayload::raw("".into()),
        };
        let record = codec::encode(&conversation("c"), &message);
        let (is_record, created_at, expiry, identity): (u64, u64, u64, Vec<u8>) =
            script.arg(record).invoke_async(&mut raw).await.unwrap();
        assert_eq!((is_record, created_at, expiry), (1, NOW.get(), expires_at.map_or(0, UnixMillis::get)));
        assert_eq!(identity, b"\0\x01s\x01i", "{expires_at:?}");
    }
}

#[tokio::test]
async fn the_same_code_runs_on_a_redis_cluster() {
    let cluster = qim_testkit::RedisCluster::start(3);
    let url = cluster.url().parse().unwrap();
    let store = RedisMessageStore::open(&url, qim_core::ShardCount::new(16).unwrap(), Duration::from_secs(5))
        .unwrap()
        .with_retention(thirty_days())
        .of_new_deployment();
    store.join_deployment().await.unwrap();
    let conversations: Vec<_> = (0..40).map(|i| conversation(&format!("c{i}"))).collect();
    for conv in &conversations {
        let batch = [drafts(0..3, NOW), vec![draft("short", Ephemeral24h, NOW)]].concat();
        assert_eq!(seqs(&store.commit(conv, &batch, NOW, None).await.unwrap()), [1, 2, 3, 4]);
        assert!(
            store.commit(conv, &batch, NOW, None).await.unwrap().iter().all(|committed| committed.duplicate)
        );
    }
    let shards_used: BTreeSet<u16> = conversations.iter().map(|conv| store.shards().shard_of(conv)).collect();
    assert!(shards_used.len() > 8);
    assert_eq!(collect_all(&store, NOW + DAY).await.collected, 40);
    let stats = store.stats(NOW + DAY).await.unwrap();
    assert_eq!((stats.records, stats.unarchived, stats.gc_due), (120, 160, 0));
    for conv in &conversations {
        mark(&store, conv, 4).await;
        assert_eq!(
            trim(&store, conv, NOW + 8 * DAY).await,
            TrimOutcome::Trimmed { removed: 4, floor: 5, more: false }
        );
    }
    assert!(store.memory().await.unwrap().0 > 0);
    assert_eq!(store.stats(NOW).await.unwrap().records, 0);
}

#[tokio::test]
async fn conversations_with_nothing_hot_rest_in_a_few_bytes_and_go_on_where_they_were() {
    let (redis, store) = hot_store();
    let conversations: Vec<_> = (0..2_000).map(|i| conversation(&format!("conv-{i:016}"))).collect();
    for conv in &conversations {
        store.commit(conv, &drafts(0..2, NOW), NOW, None).await.unwrap();
    }
    let later = NOW + 8 * DAY;
    for conv in &conversations {
        mark(&store, conv, 2).await;
        assert_eq!(
            trim(&store, conv, later).await,
            TrimOutcome::Trimmed { removed: 2, floor: 3, more: false }
        );
    }
    let mut raw = raw(&redis).await;
    let lists: Vec<String> = redis::cmd("KEYS").arg("*:c:*").query_async(&mut raw).await.unwrap();
    assert!(lists.is_empty());
    let mut bytes = 0_u64;
    for shard in 0..4 {
        let mut usage = redis::cmd("MEMORY");
        usage.arg("USAGE").arg(format!("qim:{{{shard}}}:idle")).arg("SAMPLES").arg(0);
        bytes += usage.query_async::<u64>(&mut raw).await.unwrap();
    }
    assert!(bytes / 2_000 <= 60, "{} B for each", bytes / 2_000);
    for (i, conv) in conversations.iter().enumerate() {
        let marks = marks(&store, conv).await;
        assert_eq!((marks.last, marks.floor, marks.archived), (2, 3, 2));
        assert_eq!(store.seek_time(conv, NOW).await.unwrap(), (marks, 3));
        if i % 3 == 0 {
            assert_eq!(seqs(&store.commit(conv, &drafts(2..3, later), later, Some(3)).await.unwrap()), [3]);
            let page = page(&store, conv, PageStart::After(0)).await;
            assert_eq!((readable(&page, later), page.marks.floor, page.marks.last), (vec![3], 3, 3));
        }
    }
    // An entry that an older version left is cleared by the floor of a conversation at rest, too.
    let gc = format!("qim:{{{}}}:msghistorygc", store.shards().shard_of(&conversations[1]));
    let member = format!("{}\0{}", conversations[1].storage_id(), 1);
    redis::cmd("ZADD").arg(&gc).arg(5).arg(member).exec_async(&mut raw).await.unwrap();
    assert_eq!(collect_all(&store, later).await.stale, 1);
}
