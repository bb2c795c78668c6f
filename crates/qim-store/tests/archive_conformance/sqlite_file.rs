//! What only the archive in a file shows: its upkeep, its locks, and files that are not one.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use qim_core::{ClientIdHash, RetentionClass};
use qim_store::archive::{
    ArchiveError, ArchiveOptions, ArchiveStore, Direction, MaintenanceReport, SqliteArchive,
};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::backend::{SqliteFile, Subject, fresh_conversation, now, runtime};
use crate::cases::{ALL, list, readable, seqs};
use crate::messages::{DAY, Draft, RETENTION, records};

fn on_file<F: Future<Output = ()>>(test: impl FnOnce(SqliteFile, TempDir) -> F) {
    let directory = TempDir::new().unwrap();
    let file = SqliteFile(directory.path().join("archive.db"));
    runtime().block_on(test(file, directory));
}

fn with_timeout(path: &Path, timeout: Duration) -> SqliteArchive {
    SqliteArchive::open(path, ArchiveOptions { timeout, tls: None })
}

fn count(path: &Path, table: &str) -> i64 {
    let connection = Connection::open(path).unwrap();
    connection.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
}

/// Waits until all is deleted and given back; answers the sum.
async fn maintain(store: &dyn ArchiveStore, now: qim_core::UnixMillis) -> MaintenanceReport {
    let mut sum = MaintenanceReport::default();
    loop {
        let report = store.maintain(now).await.unwrap();
        sum.rows_deleted += report.rows_deleted;
        sum.bytes_freed += report.bytes_freed;
        if !report.more {
            return sum;
        }
    }
}

#[test]
fn upkeep_deletes_what_has_expired_and_gives_its_space_back() {
    on_file(async |file, _directory| {
        let (store, conversation, begun) = (file.open(), fresh_conversation(), now());
        for first in (1..=10_000).step_by(500) {
            let put: Vec<_> = (first..first + 500)
                .map(|seq| {
                    let class =
                        if seq % 100 == 0 { RetentionClass::ComplianceHold } else { RetentionClass::Default };
                    Draft::new(seq, begun).class(class).payload(vec![b'x'; 300]).commit(&conversation)
                })
                .collect();
            store.put(&conversation, &put, begun).await.unwrap();
        }
        let nothing = maintain(&*store, begun).await;
        assert_eq!((nothing.rows_deleted, count(file.path(), "records")), (0, 10_000));
        let size = || file.path().metadata().unwrap().len();
        let before = size();
        let report = maintain(&*store, begun + RETENTION).await;
        assert_eq!(report.rows_deleted, 9_900);
        assert_eq!(count(file.path(), "records"), 100);
        // The client ids stay for sixty days more.
        let ids: Vec<_> = (1..=10_000).map(|n| ClientIdHash::of("alice", &format!("id-{n}"))).collect();
        let remembered = async |at| {
            let mut sum = 0;
            for ids in ids.chunks(500) {
                let found = store.find_client_ids(&conversation, ids, at).await.unwrap();
                sum += found.iter().flatten().count();
            }
            sum
        };
        assert_eq!(remembered(begun + RETENTION).await, 10_000);
        maintain(&*store, begun + RETENTION).await;
        let freed = before - size();
        assert!(freed > 2 << 20, "the file shrank from {before} by {freed} bytes");
        assert!(report.bytes_freed > 2 << 20, "{report:?}");
        let bytes = || {
            let connection = Connection::open(file.path()).unwrap();
            connection
                .query_row("SELECT sum(length(ids)) FROM client_ids", [], |row| row.get::<_, i64>(0))
                .unwrap()
        };
        let before = bytes();
        // Chunks are swept once a day at most.
        assert_eq!(maintain(&*store, begun + 91 * DAY).await.rows_deleted, 0);
        // Those of the held records stay with them.
        assert_eq!(remembered(begun + 91 * DAY).await, 100);
        assert!(bytes() < before / 50, "{} bytes of {before} are left", bytes());
        let page = store.read(&conversation, ALL, Direction::Forwards, 500, begun).await.unwrap();
        assert_eq!(page.records.len(), 100);
        assert_eq!(store.high_water(&conversation).await.unwrap(), 10_000);
    });
}

#[test]
fn copies_go_on_during_upkeep() {
    on_file(async |file, _directory| {
        let (store, conversation, begun) = (file.open(), fresh_conversation(), now());
        for first in (1..=20_000).step_by(500) {
            store
                .put(&conversation, &records(&conversation, first..first + 500, begun), begun)
                .await
                .unwrap();
        }
        let upkeep = tokio::spawn({
            let store = store.clone();
            async move { maintain(&*store, begun + RETENTION).await }
        });
        let other = fresh_conversation();
        let mut seq = 0;
        while !upkeep.is_finished() {
            seq += 1;
            store.put(&other, &records(&other, [seq], begun + RETENTION), begun + RETENTION).await.unwrap();
        }
        assert_eq!(upkeep.await.unwrap().rows_deleted, 20_000);
        assert!(seq > 10, "only {seq} copies got through");
        assert_eq!(store.count(&other, begun + RETENTION).await.unwrap(), seq);
    });
}

#[test]
fn what_was_acknowledged_is_in_the_files() {
    on_file(async |file, directory| {
        let (store, conversation, begun) = (file.open(), fresh_conversation(), now());
        store.put(&conversation, &records(&conversation, 1..=50, begun), begun).await.unwrap();
        // The process ends here; all there is are its files.
        let copy = SqliteFile(directory.path().join("copy.db"));
        std::fs::copy(file.path(), copy.path()).unwrap();
        std::fs::copy(directory.path().join("archive.db-wal"), directory.path().join("copy.db-wal")).unwrap();
        let page = copy.open().read(&conversation, ALL, Direction::Forwards, 500, begun).await.unwrap();
        assert_eq!(seqs(&page), list(1..=50));
    });
}

#[test]
fn an_expired_message_is_gone_from_the_file() {
    on_file(async |file, directory| {
        let (store, conversation, begun) = (file.open(), fresh_conversation(), now());
        let put: Vec<_> = (1..=200)
            .map(|seq| Draft::new(seq, begun).payload("the-secret-word").commit(&conversation))
            .collect();
        store.put(&conversation, &put, begun).await.unwrap();
        maintain(&*store, begun + RETENTION).await;
        drop(store);
        // A connection that closes last copies the log back and removes it.
        let closed = Connection::open(file.path()).unwrap();
        closed.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        for entry in std::fs::read_dir(directory.path()).unwrap() {
            let bytes = std::fs::read(entry.unwrap().path()).unwrap();
            assert!(!bytes.windows(15).any(|window| window == b"the-secret-word"));
        }
    });
}

#[test]
fn a_locked_file_is_unavailable_in_time_and_then_works() {
    on_file(async |file, _directory| {
        let store = with_timeout(file.path(), Duration::from_millis(800));
        let (conversation, begun) = (fresh_conversation(), now());
        let put = records(&conversation, 1..=2, begun);
        store.put(&conversation, &put[..1], begun).await.unwrap();
        let lock = Connection::open(file.path()).unwrap();
        lock.execute_batch("BEGIN IMMEDIATE").unwrap();
        let asked = Instant::now();
        let error = store.put(&conversation, &put, begun).await.unwrap_err();
        assert!(matches!(error, ArchiveError::Unavailable(_)), "{error}");
        assert!(asked.elapsed() < Duration::from_millis(1800), "it took {:?}", asked.elapsed());
        // Readers do not wait for writers.
        let page = store.read(&conversation, ALL, Direction::Forwards, 10, begun).await.unwrap();
        assert_eq!(seqs(&page), [1]);
        lock.execute_batch("ROLLBACK").unwrap();
        assert_eq!(store.put(&conversation, &put, begun).await.unwrap().written, 1);
    });
}

#[test]
fn a_call_that_takes_too_long_is_interrupted() {
    on_file(async |file, _directory| {
        let (store, conversation, begun) = (file.open(), fresh_conversation(), now());
        for first in (1..=40_000).step_by(500) {
            store
                .put(&conversation, &records(&conversation, first..first + 500, begun), begun)
                .await
                .unwrap();
        }
        let hasty = with_timeout(file.path(), Duration::from_micros(300));
        let mut late = 0;
        for _ in 0..20 {
            match hasty.count(&conversation, begun).await {
                Ok(count) => assert_eq!(count, 40_000),
                Err(error) => {
                    assert!(matches!(error, ArchiveError::Unavailable(_)), "{error}");
                    late += 1;
                }
            }
        }
        assert!(late > 0);
        assert_eq!(store.count(&conversation, begun).await.unwrap(), 40_000);
    });
}

#[test]
fn several_programs_make_the_file_at_once() {
    runtime().block_on(async {
        for _ in 0..50 {
            let directory = TempDir::new().unwrap();
            let file = SqliteFile(directory.path().join("archive.db"));
            let begun = now();
            let tasks: Vec<_> = (0..4)
                .map(|_| {
                    let store = file.open();
                    tokio::spawn(async move {
                        let conversation = fresh_conversation();
                        store.put(&conversation, &records(&conversation, [1], begun), begun).await.unwrap();
                        assert_eq!(store.count(&conversation, begun).await.unwrap(), 1);
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
            assert_eq!(count(file.path(), "records"), 4);
        }
    });
}

#[test]
fn two_programs_write_and_read_the_same_file() {
    on_file(async |file, _directory| {
        // Both make it at once.
        let stores: Vec<_> = (0..6).map(|_| file.open()).collect();
        let begun = now();
        let tasks: Vec<_> = stores
            .into_iter()
            .map(|store| {
                tokio::spawn(async move {
                    let conversation = fresh_conversation();
                    store.prepare().await.unwrap();
                    for seq in 1..=30 {
                        store.put(&conversation, &records(&conversation, [seq], begun), begun).await.unwrap();
                        let page =
                            store.read(&conversation, ALL, Direction::Forwards, 500, begun).await.unwrap();
                        assert_eq!(seqs(&page), list(1..=seq));
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(count(file.path(), "records"), 180);
        assert_eq!(count(file.path(), "conversations"), 6);
    });
}

#[test]
fn a_conflict_fails_alone_among_many_puts() {
    on_file(async |file, _directory| {
        let (store, begun) = (file.open(), now());
        let bad = fresh_conversation();
        store.put(&bad, &records(&bad, [1], begun), begun).await.unwrap();
        let tasks: Vec<_> = (0..300)
            .map(|n| {
                let (store, bad) = (store.clone(), bad.clone());
                tokio::spawn(async move {
                    if n % 10 == 5 {
                        let another = Draft::new(1, begun).payload("another").commit(&bad);
                        let error = store.put(&bad, &[another], begun).await.unwrap_err();
                        assert!(matches!(error, ArchiveError::Conflict { seq: 1 }), "{error}");
                    } else {
                        let good = fresh_conversation();
                        store.put(&good, &records(&good, 1..=3, begun), begun).await.unwrap();
                        assert_eq!(store.count(&good, begun).await.unwrap(), 3);
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(count(file.path(), "records"), 1 + 270 * 3);
    });
}

#[test]
fn a_newer_schema_is_refused() {
    on_file(async |file, _directory| {
        file.open().prepare().await.unwrap();
        let newer = Connection::open(file.path()).unwrap();
        newer.pragma_update(None, "user_version", 4).unwrap();
        let store = file.open();
        for _ in 0..2 {
            let error = store.prepare().await.unwrap_err();
            assert!(matches!(error, ArchiveError::SchemaTooNew { found: 4, known: 3 }), "{error}");
        }
        let error = store.high_water(&fresh_conversation()).await.unwrap_err();
        assert!(matches!(error, ArchiveError::SchemaTooNew { .. }), "{error}");
    });
}

#[test]
fn what_is_not_an_archive_is_refused_by_name_and_left_alone() {
    on_file(async |file, directory| {
        let text = directory.path().join("notes.txt");
        std::fs::write(&text, "not a database, but long enough to look like one\n".repeat(100)).unwrap();
        let other = directory.path().join("other.db");
        let foreign = Connection::open(&other).unwrap();
        foreign.execute_batch("CREATE TABLE songs (title TEXT)").unwrap();
        let before = std::fs::read(&other).unwrap();
        for (path, why) in [
            (text.as_path(), "is not an SQLite database"),
            (other.as_path(), "is another program's database"),
            (directory.path(), "cannot be used"),
            (&directory.path().join("missing/archive.db"), "cannot be used"),
        ] {
            let error = SqliteFile(path.to_owned()).open().prepare().await.unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, ArchiveError::Refused(_)), "{text}");
            assert!(text.contains(why) && text.contains(&*path.to_string_lossy()), "{text}");
        }
        assert_eq!(std::fs::read(&other).unwrap(), before);
        drop(file);
    });
}

#[test]
fn a_file_that_was_removed_or_replaced_is_not_written_to() {
    on_file(async |file, directory| {
        let (store, conversation, begun) = (file.open(), fresh_conversation(), now());
        let put = records(&conversation, 1..=3, begun);
        store.put(&conversation, &put[..1], begun).await.unwrap();
        let aside = directory.path().join("aside.db");
        let moved = ["", "-wal", "-shm"].map(|end| {
            let name = |path: &Path| format!("{}{end}", path.display());
            (name(file.path()), name(&aside))
        });
        for (from, to) in &moved {
            std::fs::rename(from, to).unwrap();
        }
        for _ in 0..2 {
            let error = store.put(&conversation, &put, begun).await.unwrap_err();
            assert!(matches!(error, ArchiveError::Refused(_)), "{error}");
            store.count(&conversation, begun).await.unwrap_err();
        }
        assert!(!file.path().exists());
        for (from, to) in &moved {
            std::fs::rename(to, from).unwrap();
        }
        assert_eq!(store.put(&conversation, &put, begun).await.unwrap().written, 2);
        let subject = Subject {
            other: file.open(),
            store: store.clone(),
            conversation,
            damage: Arc::new(file),
            now: begun,
        };
        assert_eq!(readable(&subject, begun).await, [1, 2, 3]);
    });
}
