//! Both tiers as one, on a real Redis with SQLite (and a CQL server where TTLs are looked at). Tests that ADR-0019
//! names carry its own name in their doc comment.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use qim_core::RetentionClass::{ComplianceHold, Default as DefaultClass, Ephemeral24h, TenantCustom};
use qim_core::{PayloadForm, UnixMillis};
use qim_store::TieredMessageStore;
use qim_store::hot::{Draft, RedisMessageStore};
use qim_store::tiered::{MoveError, Position, PullError, PullRequest, TieredCommitError, TieredDraft};
use support::*;

/// `归档按保留策略写逐行_ttl_合规保留不设_ttl`
#[tokio::test]
async fn the_archive_gets_the_time_left_as_ttl_row_by_row_and_holds_get_none() {
    let keyspace = format!("qim_tiered_{}", std::process::id());
    let archive = open_archive(&qim_testkit::cql_keyspace_url(&keyspace));
    archive.prepare().await.unwrap();
    let (_redis, hot) = hot_store();
    let store = TieredMessageStore::with_trim(hot, archive, WINDOW);
    let conv = conversation("c");
    let clock = qim_core::SystemClock;
    let now = qim_core::Clock::now(&clock);
    let batch = [
        draft("1", DefaultClass, now - 10 * DAY),
        draft("2", ComplianceHold, now - 10 * DAY),
        draft("3", Ephemeral24h, now - 23 * HOUR),
        draft("4", TenantCustom, now),
    ];
    commit(&store, &conv, &batch, now).await;
    copy_all(&store, &conv, now).await;

    let url = qim_testkit::cql_url();
    let node = url.strip_prefix("scylla://").unwrap();
    let session =
        scylla::client::session_builder::SessionBuilder::new().known_node(node).build().await.unwrap();
    let ttls = |table: &str| {
        let statement = format!("SELECT seq, ttl(record) FROM {keyspace}.{table}");
        let session = &session;
        async move {
            let rows = session.query_unpaged(statement, &[]).await.unwrap().into_rows_result().unwrap();
            let mut ttls: Vec<(i64, Option<i32>)> =
                rows.rows::<(i64, Option<i32>)>().unwrap().map(Result::unwrap).collect();
            ttls.sort_unstable();
            ttls
        }
    };
    let expiring = ttls("records").await;
    assert_eq!(expiring.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), [1, 3]);
    for ((_, ttl), expected) in expiring.into_iter().zip([20 * 86_400, 3_600]) {
        let ttl = ttl.expect("an expiring row has a TTL");
        assert!((expected - 2..=expected + 2).contains(&ttl), "{ttl} for {expected}");
    }
    assert_eq!(ttls("held_records").await, [(2, None), (4, None)]);
    session.query_unpaged(format!("DROP KEYSPACE {keyspace}"), &[]).await.unwrap();
}

#[tokio::test]
async fn a_conversation_is_one_log_whichever_tier_its_records_are_in() {
    let Tiers { store, redis: _redis, dir: _dir } = tiers();
    let conv = conversation("c");
    ten_and_ten(&store, &conv).await;
    let all: Vec<u64> = (1..=20).collect();
    assert_eq!(log(&store, &conv, NOW).await, all);
    assert_eq!(log_backwards(&store, &conv, NOW).await, all);
    let across = pull(&store, &conv, Position::After(7), 6, NOW).await;
    assert_eq!((page_seqs(&across), across.from_archive), ((8..=13).collect(), 3));
    assert_eq!((across.earliest_available, across.last, across.has_more, across.next_seq), (1, 20, true, 13));
    let across = pull(&store, &conv, Position::Before(14), 6, NOW).await;
    assert_eq!((page_seqs(&across), across.from_archive), ((8..=13).collect(), 3));
    assert_eq!((across.has_more, across.next_seq), (true, 8));
    assert_eq!(across.records[0].payload, "body of id-7");
}

#[tokio::test]
async fn a13_no_record_is_served_from_the_millisecond_it_expires_from_either_tier() {
    let Tiers { store, redis: _redis, dir: _dir } = tiers();
    let conv = conversation("c");
    ten_and_ten(&store, &conv).await;
    let first = NOW - 8 * DAY - MS * 9 + 30 * DAY;
    let page = pull(&store, &conv, Position::After(0), 50, first - MS).await;
    assert_eq!((page_seqs(&page).len(), page.earliest_available), (20, 1));
    for gone in 1..=10_u64 {
        let now = first + MS * u32::try_from(gone - 1).unwrap();
        let page = pull(&store, &conv, Position::After(0), 50, now).await;
        assert_eq!(page_seqs(&page), (gone + 1..=20).collect::<Vec<_>>());
        assert_eq!(page.earliest_available, gone + 1);
    }
    let hot = NOW - MS * 9 + 30 * DAY;
    let page = pull(&store, &conv, Position::Before(100), 50, hot + MS * 4).await;
    assert_eq!((page_seqs(&page), page.earliest_available), ((16..=20).collect(), 16));
    let page = pull(&store, &conv, Position::After(0), 50, hot + DAY).await;
    assert_eq!((page.records.len(), page.earliest_available, page.last, page.has_more), (0, 21, 20, false));
}

#[tokio::test]
async fn a13_the_earliest_seq_is_right_across_both_tiers_with_mixed_classes() {
    let Tiers { store, redis: _redis, dir: _dir } = tiers();
    let conv = conversation("c");
    let old = NOW - 20 * HOUR;
    let batch = [
        draft("1", ComplianceHold, old),
        draft("2", Ephemeral24h, old),
        draft("3", DefaultClass, old),
        draft("4", Ephemeral24h, old),
        draft("5", DefaultClass, old),
    ];
    commit(&store, &conv, &batch, NOW).await;
    copy_all(&store, &conv, NOW).await;
    let steps = [
        // Nothing expired; the ephemeral ones did, in the middle; trimmed to the archive; only the hold is left.
        (NOW, vec![1, 2, 3, 4, 5], 1),
        (NOW + 5 * HOUR, vec![1, 3, 5], 1),
        (NOW + 8 * DAY, vec![1, 3, 5], 1),
        (NOW + 31 * DAY, vec![1], 1),
    ];
    for (now, expected, earliest) in steps {
        collect_all(store.hot(), now).await;
        trim_all(&store, &conv, now).await;
        assert_eq!(log(&store, &conv, now).await, expected);
        assert_eq!(log_backwards(&store, &conv, now).await, expected);
        assert_eq!(pull(&store, &conv, Position::After(3), 5, now).await.earliest_available, earliest);
    }
}

#[tokio::test]
async fn a13_the_earliest_seq_moves_over_expired_records_and_never_goes_back() {
    let Tiers { store, redis: _redis, dir: _dir } = tiers();
    let conv = conversation("c");
    let mut batch: Vec<_> = (0..700).map(|i| draft(&i.to_string(), Ephemeral24h, NOW)).collect();
    batch.push(draft("held", ComplianceHold, NOW));
    for part in batch.chunks(500) {
        commit(&store, &conv, part, NOW).await;
    }
    let mut latest = 0;
    for (now, collect) in
        [(NOW, false), (NOW + DAY, false), (NOW + DAY, true), (NOW + 9 * DAY, true), (NOW, true)]
    {
        if collect {
            collect_all(store.hot(), now).await;
            copy_all(&store, &conv, now).await;
            trim_all(&store, &conv, now).await;
        }
        let page = pull(&store, &conv, Position::After(0), 10, now).await;
        assert!(page.earliest_available >= latest, "{page:?}");
        latest = page.earliest_available;
    }
    assert_eq!(latest, 701);
}

#[tokio::test]
async fn reading_across_the_trim_sees_no_gap_and_no_false_out_of_range() {
    let Tiers { store, redis: _redis, dir: _dir } = tiers();
    let conv = conversation("c");
    let total = 600_u64;
    for from in (0..total).step_by(100) {
        commit(&store, &conv, &drafts(from..from + 100, NOW - 8 * DAY), NOW).await;
    }
    let done = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..4_u64)
        .map(|reader| {
            let (store, conv, done) = (store.clone(), conv.clone(), done.clone());
            tokio::spawn(async move {
                let mut rounds = 0;
                while !done.load(Ordering::Relaxed) || rounds < 3 {
                    rounds += 1;
                    for after in (0..total).step_by(37).skip(usize::try_from(reader).unwrap()) {
                        let request = PullRequest {
                            position: Position::After(after),
                            limit: 50,
                            fail_on_expired: true,
                            form: PayloadForm::Plain,
                        };
                        let page = store.pull(&conv, request, NOW).await.unwrap();
                        let expected: Vec<u64> = (after + 1..=total.min(after + 50)).collect();
                        let found = page_seqs(&page);
                        assert!(expected.starts_with(&found), "after {after}: {found:?}");
                        assert!(found.len() == expected.len() || page.has_more, "after {after}: {found:?}");
                        assert_eq!((page.earliest_available, page.last), (1, total));
                        let request = PullRequest {
                            position: Position::Before(after + 51),
                            limit: 50,
                            fail_on_expired: true,
                            form: PayloadForm::Plain,
                        };
                        let found = page_seqs(&store.pull(&conv, request, NOW).await.unwrap());
                        assert!(found.windows(2).all(|pair| pair[1] == pair[0] + 1), "{found:?}");
                    }
                }
                rounds
            })
        })
        .collect();
    let fence = fence(store.hot(), &conv).await;
    while store.copy(&conv, &fence, NOW).await.unwrap().more {}
    let mut removed = 0;
    while removed < total {
        removed += store.trim(&conv, &fence, NOW).await.unwrap().removed;
        tokio::task::yield_now().await;
    }
    done.store(true, Ordering::Relaxed);
    for reader in readers {
        assert!(reader.await.unwrap() >= 3);
    }
}

#[tokio::test]
async fn seeking_by_time_lands_right_in_both_tiers() {
    let Tiers { store, redis: _redis, dir: _dir } = tiers();
    let conv = conversation("c");
    assert!(pull(&store, &conv, Position::FromTime(NOW), 5, NOW).await.records.is_empty());
    ten_and_ten(&store, &conv).await;
    let first_after = async |time: UnixMillis, now: UnixMillis| {
        let page = pull(&store, &conv, Position::FromTime(time), 5, now).await;
        page_seqs(&page).first().copied().unwrap_or(page.last + 1)
    };
    let (old, young) = (NOW - 8 * DAY, NOW);
    let cases = [
        (UnixMillis::EPOCH, 1),
        (old - MS * 9, 1),
        (old - MS * 8, 2),
        (old, 10),
        (old + MS, 11),
        (young - MS * 9, 11),
        (young, 20),
        (young + MS, 21),
        (UnixMillis::MAX, 21),
    ];
    for (time, seq) in cases {
        assert_eq!(first_after(time, NOW).await, seq, "{time}");
    }
    // Between the logical expiry and any clean-up, and with everything expired.
    let half = NOW - 8 * DAY + 30 * DAY - MS * 5;
    assert_eq!(first_after(UnixMillis::EPOCH, half).await, 6);
    assert_eq!(first_after(old - MS * 9, half).await, 6);
    assert_eq!(first_after(old, half).await, 10);
    let all_gone = pull(&store, &conv, Position::FromTime(UnixMillis::EPOCH), 5, NOW + 31 * DAY).await;
    assert_eq!((all_gone.records.len(), all_gone.next_seq, all_gone.has_more), (0, 20, false));
}

#[tokio::test]
async fn a_position_out_of_range_is_an_error_only_where_it_is_one() {
    let Tiers { store, redis: _redis, dir: _dir } = tiers();
    let conv = conversation("c");
    ten_and_ten(&store, &conv).await;
    let later = NOW - 8 * DAY + 30 * DAY;
    let ask = |after, fail_on_expired| {
        let request = PullRequest {
            position: Position::After(after),
            limit: 5,
            fail_on_expired,
            form: PayloadForm::Plain,
        };
        let (store, conv) = (store.clone(), conv.clone());
        async move { store.pull(&conv, request, later).await }
    };
    let out_of_range = |error: PullError| match error {
        PullError::OutOfRange { earliest_available, last } => (earliest_available, last),
        other => panic!("{other}"),
    };
    assert_eq!(out_of_range(ask(21, false).await.unwrap_err()), (11, 20));
    assert_eq!(out_of_range(ask(3, true).await.unwrap_err()), (11, 20));
    assert_eq!(page_seqs(&ask(3, false).await.unwrap()), [11, 12, 13, 14, 15]);
    assert_eq!(page_seqs(&ask(10, true).await.unwrap()), [11, 12, 13, 14, 15]);
    assert_eq!(page_seqs(&ask(20, true).await.unwrap()), [0; 0]);
}

#[tokio::test]
async fn an_old_message_sent_again_is_recognised_after_the_trim() {
    let Tiers { store, redis: _redis, dir: _dir } = tiers();
    let conv = conversation("c");
    let old = drafts(0..10, NOW - 8 * DAY);
    let first = commit(&store, &conv, &old, NOW).await;
    copy_all(&store, &conv, NOW).await;
    trim_all(&store, &conv, NOW).await;
    let again = commit(&store, &conv, &old, NOW).await;
    assert_eq!(seqs(&again), seqs(&first));
    assert!(again.iter().all(|committed| committed.duplicate));
    assert_eq!(again[0].dates, first[0].dates);

    // A retry of an append says when it was first sent.
    let retry = TieredDraft { first_sent_at: Some(NOW - 8 * DAY), draft: draft("id-3", DefaultClass, NOW) };
    assert_eq!(seqs(&store.commit(&conv, &[retry], NOW).await.unwrap()), [4]);
    let mixed = [drafts(0..12, NOW - 8 * DAY), drafts(12..14, NOW)].concat();
    let mixed = commit(&store, &conv, &mixed, NOW).await;
    assert_eq!(seqs(&mixed), (1..=14).collect::<Vec<_>>());
    let reused = Draft { payload: "something else".into(), ..draft("id-5", DefaultClass, NOW - 8 * DAY) };
    let error = store
        .commit(&conv, &[from_now(draft("new", DefaultClass, NOW)), from_now(reused)], NOW)
        .await
        .unwrap_err();
    assert!(matches!(error, TieredCommitError::AlreadyExists { index: 1, seq: 6 }), "{error}");
    assert_eq!(store.marks(&conv, NOW).await.unwrap().last, 14);
}

#[tokio::test]
async fn a_message_that_expired_before_its_copy_is_still_known_after_its_trim() {
    let Tiers { store, redis: _redis, dir: _dir } = tiers();
    let conv = conversation("c");
    commit(&store, &conv, &[draft("1", DefaultClass, NOW)], NOW).await;
    let late = NOW + 31 * DAY;
    assert_eq!(trim_all(&store, &conv, late).await, 1, "nothing of it was copied");
    let retry = |body: &str| TieredDraft {
        first_sent_at: Some(NOW),
        draft: Draft { payload: body.to_owned().into(), ..draft("1", DefaultClass, late) },
    };
    let answer = store.commit(&conv, &[retry("body of 1")], late).await.unwrap().remove(0);
    assert_eq!((answer.seq, answer.duplicate), (1, true));
    let other = store.commit(&conv, &[retry("another body")], late).await;
    assert!(matches!(other, Err(TieredCommitError::AlreadyExists { index: 0, seq: 1 })), "{other:?}");
    assert_eq!(log(&store, &conv, late).await, [0; 0], "and still not readable");
}

#[tokio::test]
async fn one_old_message_sent_by_many_at_once_while_it_is_trimmed_is_committed_once() {
    let Tiers { store, redis: _redis, dir: _dir } = tiers();
    let conv = conversation("c");
    let old = drafts(0..40, NOW - 8 * DAY);
    // The archiver finds nothing before.
    commit(&store, &conv, &old[..1], NOW).await;
    let senders: Vec<_> = (0..6)
        .map(|_| {
            let (store, conv, old) = (store.clone(), conv.clone(), old.clone());
            tokio::spawn(async move {
                let mut given = Vec::new();
                for _ in 0..3 {
                    for part in old.chunks(5) {
                        given.push(seqs(&commit(&store, &conv, part, NOW).await));
                    }
                }
                given.chunks(8).map(<[Vec<u64>]>::concat).collect::<Vec<_>>()
            })
        })
        .collect();
    for _ in 0..30 {
        copy_all(&store, &conv, NOW).await;
        trim_all(&store, &conv, NOW).await;
        tokio::time::sleep(MS * 5).await;
    }
    let mut answers: Vec<Vec<u64>> = Vec::new();
    for sender in senders {
        answers.extend(sender.await.unwrap());
    }
    assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "everybody is told the same");
    assert_eq!(store.marks(&conv, NOW).await.unwrap().last, 40);
}

#[tokio::test]
async fn copying_twice_changes_nothing_and_a_crash_before_the_mark_is_harmless() {
    let Tiers { store, redis: _redis, dir: _dir } = tiers();
    let conv = conversation("c");
    commit(&store, &conv, &drafts(0..10, NOW), NOW).await;
    let records = store.hot().read_page(&conv, qim_store::hot::PageStart::After(0), 100, NOW).await.unwrap();
    let records: Vec<_> = records
        .values
        .into_iter()
        .map(|value| match value {
            qim_store::hot::HotValue::Record(record) => record,
            other => panic!("{other:?}"),
        })
        .collect();
    // The archiver died after it had written half of the batch, or all of it, and before it said so.
    for part in [&records[..5], &records[..]] {
        store.archive().put(&conv, part, NOW).await.unwrap();
        assert_eq!(store.marks(&conv, NOW).await.unwrap().archived, 0);
    }
    let fence = fence(store.hot(), &conv).await;
    let report = store.copy(&conv, &fence, NOW).await.unwrap();
    assert_eq!((report.put.written, report.put.unchanged, report.more), (0, 10, false));
    assert_eq!(store.archive().count(&conv, NOW).await.unwrap(), 10);
    assert_eq!(store.marks(&conv, NOW).await.unwrap().archived, 10);
}

#[tokio::test]
async fn a20_rows_that_the_archive_lost_are_copied_again_before_the_trim() {
    let Tiers { store, redis: _redis, dir } = tiers();
    let conv = conversation("c");
    commit(&store, &conv, &drafts(0..10, NOW - 8 * DAY), NOW).await;
    copy_all(&store, &conv, NOW).await;
    let file = rusqlite::Connection::open(dir.path().join("archive.db")).unwrap();
    assert_eq!(file.execute("DELETE FROM records WHERE seq IN (3, 7)", []).unwrap(), 2);
    let fence = fence(store.hot(), &conv).await;
    let report = store.trim(&conv, &fence, NOW).await.unwrap();
    assert_eq!((report.removed, report.recopied), (10, 2));
    assert_eq!(log(&store, &conv, NOW).await, (1..=10).collect::<Vec<_>>());
}

#[tokio::test]
async fn another_body_under_an_archived_seq_poisons_the_conversation_and_deletes_nothing() {
    let Tiers { store, redis: _redis, dir } = tiers();
    let conv = conversation("c");
    commit(&store, &conv, &drafts(0..3, NOW - 8 * DAY), NOW).await;
    copy_all(&store, &conv, NOW).await;
    commit(&store, &conv, &drafts(3..4, NOW - 8 * DAY), NOW).await;
    let file = rusqlite::Connection::open(dir.path().join("archive.db")).unwrap();
    file.execute("INSERT INTO records (conv, seq, expires_at, record) SELECT conv, 4, expires_at, record FROM records WHERE seq = 3", []).unwrap();
    let fence = fence(store.hot(), &conv).await;
    let error = store.copy(&conv, &fence, NOW).await.unwrap_err();
    assert!(matches!(error, MoveError::Poisoned(_)), "{error}");
    file.execute("UPDATE records SET record = (SELECT record FROM records WHERE seq = 3) WHERE seq = 2", [])
        .unwrap();
    let error = store.trim(&conv, &fence, NOW).await.unwrap_err();
    assert!(matches!(error, MoveError::Poisoned(_)), "{error}");
    let marks = store.marks(&conv, NOW).await.unwrap();
    assert_eq!((marks.floor, marks.archived, marks.last), (1, 3, 4));
    assert_eq!(log(&store, &conv, NOW).await, [1, 2, 3, 4]);
}

#[tokio::test]
async fn a_damaged_hot_record_stops_its_conversation_before_it_and_is_never_deleted() {
    let Tiers { store, redis, dir: _dir } = tiers();
    let conv = conversation("c");
    commit(&store, &conv, &drafts(0..5, NOW - 8 * DAY), NOW).await;
    let shard = store.hot().shards().shard_of(&conv);
    let list = format!("qim:{{{shard}}}:c:c");
    redis::cmd("LSET").arg(&list).arg(2).arg("rubbish").exec_async(&mut raw(&redis).await).await.unwrap();
    let fence = fence(store.hot(), &conv).await;
    let error = store.copy(&conv, &fence, NOW).await.unwrap_err();
    assert!(matches!(&error, MoveError::Poisoned(reason) if reason.contains("seq 3")), "{error}");
    assert_eq!(store.marks(&conv, NOW).await.unwrap().archived, 2);
    assert!(store.trim(&conv, &fence, NOW).await.is_err());
    let marks = store.marks(&conv, NOW).await.unwrap();
    assert_eq!((marks.floor, marks.last), (3, 5), "what came before it went to the archive");
    assert_eq!(log(&store, &conv, NOW).await, [1, 2, 4, 5]);
    let aside = store.hot().set_aside(shard).await.unwrap();
    assert!(
        aside.iter().any(|entry| entry.seq == Some(3) && entry.conversation.as_ref() == Some(&conv)),
        "{aside:?}"
    );
}

#[tokio::test]
async fn a19_with_the_archive_down_only_what_expired_goes_and_commits_and_hot_reads_go_on() {
    let (redis, hot) = hot_store();
    let nowhere = format!("scylla://127.0.0.1:{}/qim", qim_testkit::free_port());
    let options = qim_store::archive::ArchiveOptions { timeout: SECOND, tls: None };
    let archive = qim_store::archive::open(&nowhere.parse().unwrap(), options).unwrap();
    let store = TieredMessageStore::with_trim(hot, archive, WINDOW);
    let conv = conversation("c");
    let batch =
        [draft("1", Ephemeral24h, NOW), draft("2", DefaultClass, NOW), draft("3", ComplianceHold, NOW)];
    commit(&store, &conv, &batch, NOW).await;
    let fence = fence(store.hot(), &conv).await;
    let later = NOW + 31 * DAY;
    assert!(matches!(store.copy(&conv, &fence, NOW).await, Err(MoveError::Archive(_))));
    assert_eq!(
        store.trim(&conv, &fence, NOW + 29 * DAY).await.unwrap().removed,
        1,
        "what expired needs no copy"
    );
    let stats = store.hot().stats(later).await.unwrap();
    assert_eq!(stats.unarchived, 2);
    assert!(
        stats.unarchived_since.is_some_and(|since| since <= NOW),
        "the lag is there to be seen: {stats:?}"
    );

    let page = pull(&store, &conv, Position::After(1), 10, later).await;
    assert_eq!(
        (page_seqs(&page), page.archive_unavailable),
        (vec![3], true),
        "2 is still there and not readable"
    );
    assert_eq!(store.trim(&conv, &fence, later).await.unwrap().removed, 1);
    assert_eq!(store.marks(&conv, later).await.unwrap().floor, 3, "what is held stays");
    assert_eq!(collect_all(store.hot(), later).await, qim_store::hot::GcReport::default());
    assert_eq!(seqs(&commit(&store, &conv, &drafts(10..12, later), later).await), [4, 5]);
    drop(redis);
}

#[tokio::test]
async fn with_the_archive_down_hot_pages_are_served_and_archived_ones_say_try_again() {
    let Tiers { store, redis: _redis, dir: _dir } = tiers();
    let conv = conversation("c");
    ten_and_ten(&store, &conv).await;
    let nowhere = format!("scylla://127.0.0.1:{}/qim", qim_testkit::free_port());
    let options = qim_store::archive::ArchiveOptions { timeout: SECOND, tls: None };
    let down = qim_store::archive::open(&nowhere.parse().unwrap(), options).unwrap();
    let store = TieredMessageStore::with_trim(RedisMessageStore::clone(store.hot()), down, WINDOW);
    let newest = pull(&store, &conv, Position::Before(u64::MAX), 5, NOW).await;
    assert_eq!((page_seqs(&newest), newest.earliest_available), ((16..=20).collect(), 11));
    assert!(newest.archive_unavailable && newest.has_more);
    // A page that ends just at the floor says so as well.
    for limit in [10, 15] {
        let newest = pull(&store, &conv, Position::Before(u64::MAX), limit, NOW).await;
        assert_eq!((page_seqs(&newest), newest.has_more, newest.next_seq), ((11..=20).collect(), true, 11));
    }
    let request =
        |position| PullRequest { position, limit: 5, fail_on_expired: false, form: PayloadForm::Plain };
    for position in [Position::After(3), Position::Before(11)] {
        assert!(matches!(store.pull(&conv, request(position), NOW).await, Err(PullError::Archive(_))));
    }
}

#[tokio::test]
async fn a10_a_record_that_expired_before_its_copy_is_never_readable_again() {
    let Tiers { store, redis: _redis, dir: _dir } = tiers();
    let conv = conversation("c");
    commit(&store, &conv, &[draft("1", Ephemeral24h, NOW), draft("2", DefaultClass, NOW)], NOW).await;
    copy_all(&store, &conv, NOW + DAY).await;
    trim_all(&store, &conv, NOW + 8 * DAY).await;
    assert_eq!(store.marks(&conv, NOW).await.unwrap().floor, 3);
    // Not even for a reader whose clock is behind.
    assert_eq!(log(&store, &conv, NOW + DAY).await, [2]);
    assert_eq!(log(&store, &conv, NOW + 30 * DAY).await, [0; 0]);
}

#[tokio::test]
async fn a11_a_held_record_outlives_everything_in_the_archive() {
    let Tiers { store, redis: _redis, dir: _dir } = tiers();
    let conv = conversation("c");
    commit(&store, &conv, &[draft("1", ComplianceHold, NOW), draft("2", DefaultClass, NOW)], NOW).await;
    copy_all(&store, &conv, NOW).await;
    let later = NOW + 10_000 * DAY;
    trim_all(&store, &conv, later).await;
    while store.archive().maintain(later).await.unwrap().more {}
    assert_eq!(log(&store, &conv, later).await, [1]);
    assert_eq!(store.archive().count(&conv, later).await.unwrap(), 1);
}

#[tokio::test]
async fn a_conversation_is_described_over_both_tiers() {
    let Tiers { store, redis: _redis, dir: _dir } = tiers();
    let conv = conversation("c");
    assert_eq!(store.describe(&conv, NOW).await.unwrap().marks.last, 0);
    ten_and_ten(&store, &conv).await;
    let description = store.describe(&conv, NOW).await.unwrap();
    assert_eq!((description.marks.last, description.marks.floor, description.marks.archived), (20, 11, 20));
    assert_eq!((description.marks.hot_records(), description.archived_records), (10, Some(20)));
    assert_eq!((description.earliest_available, description.set_aside), (1, None));
    assert!(description.hot_bytes > 100);
}

#[tokio::test]
async fn a_poisoned_conversation_is_named_put_off_and_forgiven_once_it_can_be_carried_on_with() {
    let Tiers { store, redis: _redis, dir: _dir } = tiers();
    let conv = conversation("c");
    let shard = store.hot().shards().shard_of(&conv);
    commit(&store, &conv, &drafts(0..3, NOW), NOW).await;
    let fence = fence(store.hot(), &conv).await;
    store.set_aside(&conv, &fence, "as a test", NOW, HOUR).await.unwrap();
    assert!(store.hot().unarchived(shard, NOW + HOUR - MS, 10).await.unwrap().is_empty());
    let cutoff = NOW - WINDOW + HOUR;
    assert!(store.hot().trim_candidates(shard, cutoff - MS, 10).await.unwrap().is_empty());
    assert!(store.describe(&conv, NOW).await.unwrap().set_aside.unwrap().contains("as a test"));
    assert_eq!(seqs(&commit(&store, &conv, &drafts(3..4, NOW), NOW).await), [4], "commits go on");
    assert_eq!(store.hot().unarchived(shard, NOW + HOUR, 10).await.unwrap(), std::slice::from_ref(&conv));
    store.copy(&conv, &fence, NOW + HOUR).await.unwrap();
    assert_eq!(store.describe(&conv, NOW).await.unwrap().set_aside, None);
}
