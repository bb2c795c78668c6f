//! What is seen from inside only: the settings of connections, and errors that are hard to bring about from outside.

use qim_core::TenantId;
use rusqlite::ErrorCode;
use rusqlite::ffi;
use tempfile::TempDir;

use super::*;
use crate::archive::StoredRecord;

fn conversation() -> ConversationKey {
    ConversationKey::new(TenantId::default(), "c").unwrap()
}

fn record(seq: u64, payload: usize) -> StoredRecord {
    let message = qim_core::StoredMessage {
        sender: "alice".to_owned(),
        client_msg_id: format!("id-{seq}"),
        class: qim_core::RetentionClass::ComplianceHold,
        created_at: UnixMillis::new(1_800_000_000_000),
        expires_at: None,
        content_type: qim_core::DEFAULT_CONTENT_TYPE.to_owned(),
        payload: qim_core::StoredPayload::raw(vec![b'x'; payload].into()),
    };
    let encoded = qim_core::codec::encode(&conversation(), &message).into();
    StoredRecord { seq, encoded: qim_core::Decoder::of(&conversation()).check(encoded).unwrap() }
}

fn open(directory: &TempDir) -> SqliteArchive {
    SqliteArchive::open(directory.path().join("archive.db"), ArchiveOptions::default())
}

#[tokio::test]
async fn a_writing_connection_syncs_every_commit_and_overwrites_what_it_deletes() {
    let directory = TempDir::new().unwrap();
    let archive = open(&directory);
    let settings = archive.writer.write(archive.deadline(), |connection| {
        let number = |pragma| connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
        Ok([number("synchronous")?, number("auto_vacuum")?, number("secure_delete")?])
    });
    assert_eq!(settings.await.unwrap(), [2, 2, 1]);
}

#[tokio::test]
async fn a_reading_connection_cannot_write() {
    let directory = TempDir::new().unwrap();
    let archive = open(&directory);
    let written = archive.read_by(archive.deadline(), |connection| {
        connection.execute("DELETE FROM conversations", []).map(drop)
    });
    assert!(matches!(written.await, Err(ArchiveError::Refused(_))));
}

/// The limit on pages fails the way a full disk does.
#[tokio::test]
async fn a_full_disk_takes_no_put_until_there_is_room_and_keeps_what_was_there() {
    let directory = TempDir::new().unwrap();
    let (archive, conversation, now) = (open(&directory), conversation(), UnixMillis::new(1_800_000_000_000));
    archive.put(&conversation, &[record(1, 100)], now).await.unwrap();
    let limit = |pages: i64| {
        archive.writer.write(archive.deadline(), move |connection| {
            Ok(connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))?)
        })
    };
    limit(1).await.unwrap(); // no fewer than there are
    let error = archive.put(&conversation, &[record(2, 60_000)], now).await.unwrap_err();
    assert!(matches!(&error, ArchiveError::Unavailable(why) if why.contains("full")), "{error}");
    limit(1_000_000).await.unwrap();
    assert_eq!(archive.high_water(&conversation).await.unwrap(), 1);
    archive.put(&conversation, &[record(2, 60_000)], now).await.unwrap();
    assert_eq!(archive.count(&conversation, now).await.unwrap(), 2);
}

#[test]
fn an_error_says_whether_waiting_helps() {
    let database = Database::new("archive.db".into(), Duration::ZERO);
    let explain = |code| database.explain(&rusqlite::Error::SqliteFailure(ffi::Error::new(code), None));
    let waiting = [
        ffi::SQLITE_BUSY,
        ffi::SQLITE_BUSY_SNAPSHOT,
        ffi::SQLITE_LOCKED,
        ffi::SQLITE_INTERRUPT,
        ffi::SQLITE_FULL,
        ffi::SQLITE_IOERR_FSYNC,
    ];
    for code in waiting {
        assert!(explain(code).is_retryable(), "{}", explain(code));
    }
    let acting = [ffi::SQLITE_READONLY, ffi::SQLITE_CORRUPT, ffi::SQLITE_CANTOPEN, ffi::SQLITE_NOTADB];
    for code in acting {
        assert!(matches!(explain(code), ArchiveError::Refused(_)), "{}", explain(code));
    }
    assert_eq!(ffi::Error::new(ffi::SQLITE_FULL).code, ErrorCode::DiskFull);
}

/// The queries that run all the time use an index, whatever the planner of a later version thinks.
#[tokio::test]
async fn no_frequent_statement_scans_a_table() {
    let directory = TempDir::new().unwrap();
    let archive = open(&directory);
    let plans = archive.writer.write(archive.deadline(), |connection| {
        let mut plans = Vec::new();
        for text in [
            statements::SELECT_CONVERSATION,
            statements::SELECT_BATCH,
            statements::SELECT_MARKS,
            statements::SELECT_RECORDS_FORWARDS,
            statements::SELECT_RECORDS_BACKWARDS,
            statements::COUNT_RECORDS,
            statements::SELECT_CLIENT_IDS,
            statements::DELETE_EXPIRED_RECORDS,
            statements::SELECT_CLIENT_IDS_TO_SWEEP,
            statements::DELETE_CLIENT_IDS,
        ] {
            let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {text}"))?;
            let nothing = vec![rusqlite::types::Null; statement.parameter_count()];
            let steps = statement
                .query_map(rusqlite::params_from_iter(nothing), |row| row.get::<_, String>(3))?
                .collect::<Result<Vec<_>, _>>()?;
            plans.push((text, steps));
        }
        Ok(plans)
    });
    for (text, steps) in plans.await.unwrap() {
        let whole = steps.iter().find(|step| step.starts_with("SCAN") || step.contains("TEMP B-TREE"));
        assert_eq!(whole, None, "{text}\n{steps:#?}");
    }
}
