//! The main job, on both archives: committed to Redis, copied with the time left, trimmed, expired to the millisecond,
//! read back as one log.

use std::fmt::Write as _;
use std::time::Duration;

use qim_proto::v1;
use qim_testkit::eventually;
use qim_tests::{DAY_MS, PATIENCE, Pair, PairOptions, cql_keyspace, demo_file, now_ms, pull_all};

/// Chat comes in, is sent again, and is read back, before and after the trim: nothing is lost, nothing is twice, and
/// Redis keeps the hot window only.
fn chat_comes_in_and_is_read_back(options: PairOptions) {
    let pair = options.start();
    let file = demo_file(&pair.writer, 4_000, 7);
    let path = file.to_str().unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    let ages: Vec<(i64, String)> = text
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .map(|row| (row["age_ms"].as_i64().unwrap(), row["class"].as_str().unwrap_or("default").to_owned()))
        .collect();
    let hot = ages.iter().filter(|(age, _)| *age < 7 * DAY_MS).count();
    assert!(hot > 100 && hot < ages.len() - 100, "{hot} of {} are hot", ages.len());

    let imported = pair.qim_json(&["import", path]);
    let count =
        |report: &serde_json::Value, name: &str| report[name].as_u64().unwrap_or_else(|| panic!("{report}"));
    assert_eq!(count(&imported, "committed") + count(&imported, "expired"), 4_000, "{imported}");
    assert!(count(&imported, "expired") > 100 && count(&imported, "failed") == 0, "{imported}");
    let again = pair.qim_json(&["import", path]);
    assert_eq!(
        (count(&again, "committed"), count(&again, "duplicate")),
        (0, count(&imported, "committed")),
        "{again}"
    );

    let before = pair.qim_json(&["verify", path]);
    pair.await_settled();
    let after = pair.qim_json(&["verify", path]);
    for report in [&before, &after] {
        assert_eq!((count(report, "missing"), count(report, "different")), (0, 0), "{report}");
        assert_eq!(count(report, "compared"), count(&imported, "committed"), "{report}");
    }
    let again = pair.qim_json(&["import", path]);
    assert_eq!(
        (count(&again, "committed"), count(&again, "duplicate")),
        (0, count(&imported, "committed")),
        "{again}"
    );
    let kept = usize::try_from(pair.hot_records()).unwrap();
    assert!(kept <= hot, "Redis keeps {kept} records, {hot} are inside the window");
    let registered = pair.archiver.metrics().get("qim_archived_rows_total").unwrap();
    assert!(registered > 0.0);
}

#[test]
fn chat_comes_in_and_is_read_back_with_sqlite() {
    chat_comes_in_and_is_read_back(Pair::options());
}

#[test]
fn chat_comes_in_and_is_read_back_with_a_cql_server() {
    chat_comes_in_and_is_read_back(Pair::options().archive_url(cql_keyspace()));
}

fn file_with(pair: &Pair, rows: &[(&str, &str, i64)]) -> String {
    let mut text = String::new();
    for (index, (conversation, class, age_ms)) in rows.iter().enumerate() {
        writeln!(
            text,
            r#"{{"conversation":"{conversation}","sender":"s","client_msg_id":"{index}","class":"{class}","body":"b{index}","age_ms":{age_ms}}}"#
        )
        .unwrap();
    }
    let path = pair.writer.dir().join("rows.ndjson");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

async fn reads_until_their_date(pair: Pair, rows: &[(&str, &str, i64)], settle: bool) {
    let path = file_with(&pair, rows);
    pair.qim_json(&["import", &path]);
    if settle {
        pair.await_settled();
        assert_eq!(pair.hot_records(), 0, "all of it is in the archive only");
    }
    let mut client = pair.client().await;
    let record = client.pull(pull_all("c")).await.unwrap().into_inner().records.remove(0);
    let date = record.expires_at_ms.unwrap();
    let (mut seen_before, mut seen_after) = (0, 0);
    while now_ms() < date + 300 {
        let asked = now_ms();
        let page = client.pull(pull_all("c")).await.unwrap().into_inner();
        let answered = now_ms();
        let shown = page.records.iter().any(|record| record.expires_at_ms == Some(date));
        if answered < date {
            assert!(shown, "it is readable until its date");
            assert_eq!(page.earliest_available_conversation_seq, 1);
            seen_before += 1;
        }
        if asked >= date {
            assert!(!shown, "{} ms after its date", asked - date);
            assert_eq!(page.earliest_available_conversation_seq, 2);
            seen_after += 1;
        }
    }
    assert!(seen_before > 5 && seen_after > 5, "{seen_before} pages before, {seen_after} after");
}

#[tokio::test]
async fn a13_a_record_is_readable_until_the_millisecond_it_expires_in_redis() {
    let rows = [("c", "ephemeral_24h", DAY_MS - 3_000), ("c", "default", DAY_MS - 3_000)];
    reads_until_their_date(Pair::start(), &rows, false).await;
}

#[tokio::test]
async fn a13_a_record_is_readable_until_the_millisecond_it_expires_in_the_archive() {
    let rows = [("c", "default", 30 * DAY_MS - 10_000), ("c", "default", 29 * DAY_MS)];
    for options in [Pair::options(), Pair::options().archive_url(cql_keyspace())] {
        reads_until_their_date(options.start(), &rows, true).await;
    }
}

#[tokio::test]
async fn a9_what_is_due_is_out_of_redis_within_the_gc_interval() {
    let pair = Pair::start();
    let rows: Vec<_> = (0..600).map(|_| ("c", "ephemeral_24h", DAY_MS - 2_000)).collect();
    pair.qim_json(&["import", &file_with(&pair, &rows)]);
    assert_eq!(pair.hot_records(), 600);
    let mut client = pair.client().await;
    let date = client.pull(pull_all("c")).await.unwrap().into_inner().records[499].expires_at_ms.unwrap();
    eventually(PATIENCE, "GC has collected all of it", || pair.hot_records() == 0);
    let late = now_ms() - date;
    assert!((0..=6_000).contains(&late), "{late} ms after the date");
    assert_eq!(pair.writer.metrics().get("qim_gc_collected_total"), Some(600.0));
    let page = client.pull(pull_all("c")).await.unwrap().into_inner();
    assert_eq!((page.earliest_available_conversation_seq, page.last_conversation_seq), (601, 600));
    let next = v1::AppendRequest {
        conversation: "c".into(),
        messages: vec![qim_tests::message("x")],
        ..Default::default()
    };
    assert_eq!(client.append(next).await.unwrap().into_inner().results[0].seq, 601, "no seq is used again");
}

#[test]
fn expired_rows_leave_the_sqlite_file_within_seconds() {
    let pair = Pair::start();
    let rows: Vec<_> = (0..50).map(|_| ("c", "default", 30 * DAY_MS - 4_000)).collect();
    pair.qim_json(&["import", &file_with(&pair, &rows)]);
    pair.await_settled();
    let deleted = || pair.archiver.metrics().get("qim_expired_rows_deleted_total").unwrap_or(0.0);
    eventually(Duration::from_secs(12), "the rows are deleted", || deleted() >= 50.0);
}

#[test]
fn a12_another_retention_in_the_other_daemon_is_a_metric_and_a_degraded_readiness() {
    let pair = Pair::options().archiver_env("QIM_DEFAULT_HISTORY_RETENTION_DAYS", "31").start();
    for daemon in [&pair.writer, &pair.archiver] {
        eventually(PATIENCE, "the mismatch is seen", || {
            daemon.metrics().get("qim_retention_mismatch") == Some(1.0)
        });
        let ready = daemon.readyz();
        assert_eq!(ready.status, 200);
        assert!(ready.body.contains("QIM_DEFAULT_HISTORY_RETENTION_DAYS"), "{}", ready.body);
        assert!(daemon.stderr().contains("QIM_DEFAULT_HISTORY_RETENTION_DAYS is 3"), "{}", daemon.stderr());
    }
    assert_eq!(pair.writer.metrics().get("qim_retention_days"), Some(30.0));
}
