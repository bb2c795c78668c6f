use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Connection, Error, ErrorCode, OpenFlags, Row, TransactionBehavior};

use super::statements::{SCHEMA_1, SCHEMA_2, SCHEMA_3, SELECT_HEADER, SETTINGS};
use crate::archive::ArchiveError;

/// The newest schema that this program knows, and the one it makes.
const SCHEMA_VERSION: u32 = 3;
/// What makes each version of the one before it.
const SCHEMAS: [&str; SCHEMA_VERSION as usize] = [SCHEMA_1, SCHEMA_2, SCHEMA_3];
/// `application_id` of our files ("qimA"), so that another program's database is not taken for an archive.
const APPLICATION_ID: i32 = 0x7169_6d41;
/// More than there are statements.
const STATEMENTS_CACHED: usize = 32;

/// The file, and how it is opened. Connections are only as good as the file they were opened on: see
/// [`Database::check_file`].
#[derive(Debug)]
pub(super) struct Database {
    path: PathBuf,
    busy_timeout: Duration,
    /// Device and inode of the file that this process uses, once it has opened one.
    file: Mutex<Option<(u64, u64)>>,
}

impl Database {
    pub(super) fn new(path: PathBuf, busy_timeout: Duration) -> Self {
        Self { path, busy_timeout, file: Mutex::new(None) }
    }

    /// Opens the file for writing; creates it and its schema where there is none yet.
    pub(super) fn open_writer(&self) -> Result<Connection, ArchiveError> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // A file that was there is not made anew behind the back of those who rely on what was in it.
        let create = if file.is_none() { OpenFlags::SQLITE_OPEN_CREATE } else { OpenFlags::empty() };
        let connection = self.open(create)?;
        self.migrate(connection).and_then(|connection| {
            *file = Some(self.file_now()?);
            Ok(connection)
        })
    }

    /// Opens the file for reading. A writer must have opened it before.
    pub(super) fn open_reader(&self) -> Result<Connection, ArchiveError> {
        self.check_file()?;
        let connection = self.open(OpenFlags::empty())?;
        connection.pragma_update(None, "query_only", true).map_err(|error| self.explain(&error))?;
        Ok(connection)
    }

    /// Fails when another file stands under the path, or none: what is written to the one we have open is lost.
    pub(super) fn check_file(&self) -> Result<(), ArchiveError> {
        let opened = *self.file.lock().unwrap_or_else(PoisonError::into_inner);
        match opened {
            Some(opened) if self.file_now()? != opened => {
                Err(self.refuse("was replaced while it was in use"))
            }
            _ => Ok(()),
        }
    }

    /// What an error of `SQLite` means for the caller of the archive.
    pub(super) fn explain(&self, error: &Error) -> ArchiveError {
        match error.sqlite_error_code() {
            Some(
                ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::OperationInterrupted
                | ErrorCode::OutOfMemory
                | ErrorCode::FileLockingProtocolFailed
                | ErrorCode::SchemaChanged
                // Of everybody's writes: no conversation is to blame, and rows that expire make room.
                | ErrorCode::DiskFull
                | ErrorCode::SystemIoFailure,
            ) => ArchiveError::Unavailable(format!("{}: {error}", self.path.display())),
            Some(ErrorCode::NotADatabase) => self.refuse("is not an SQLite database"),
            _ => self.refuse(&format!("cannot be used: {error}")),
        }
    }

    fn open(&self, create: OpenFlags) -> Result<Connection, ArchiveError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | create;
        let open = || {
            let connection = Connection::open_with_flags(&self.path, flags)?;
            connection.busy_timeout(self.busy_timeout)?;
            connection.set_prepared_statement_cache_capacity(STATEMENTS_CACHED);
            Ok(connection)
        };
        let connection = open().map_err(|error| self.explain(&error))?;
        self.check_schema(&connection)?;
        Ok(connection)
    }

    /// The version of the schema; 0 for an empty file.
    fn check_schema(&self, connection: &Connection) -> Result<u32, ArchiveError> {
        let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
        let header = connection.query_row(SELECT_HEADER, [], read);
        let (application, version, tables): (i64, i64, i64) = header.map_err(|error| self.explain(&error))?;
        if application != i64::from(APPLICATION_ID) && (application != 0 || version != 0 || tables != 0) {
            return Err(self.refuse("is another program's database"));
        }
        let version = u32::try_from(version).unwrap_or(u32::MAX);
        if version > SCHEMA_VERSION {
            return Err(ArchiveError::SchemaTooNew { found: version, known: SCHEMA_VERSION });
        }
        Ok(version)
    }

    fn migrate(&self, mut connection: Connection) -> Result<Connection, ArchiveError> {
        let explain = |error: Error| self.explain(&error);
        self.wait_while_busy(|| connection.execute_batch(SETTINGS)).map_err(explain)?;
        let mode: String =
            connection.pragma_query_value(None, "journal_mode", |row| row.get(0)).map_err(explain)?;
        if mode != "wal" {
            return Err(self.refuse("stands on a file system without shared memory, which WAL needs"));
        }
        if self.check_schema(&connection)? == SCHEMA_VERSION {
            return Ok(connection);
        }
        let transaction =
            connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(explain)?;
        // Looked at again with the lock held: both daemons may start at once.
        let version = self.check_schema(&transaction)?;
        if version < SCHEMA_VERSION {
            let create = || {
                SCHEMAS[version as usize..]
                    .iter()
                    .try_for_each(|schema| transaction.execute_batch(schema))?;
                transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
                transaction.pragma_update(None, "user_version", SCHEMA_VERSION)
            };
            create().map_err(explain)?;
        }
        transaction.commit().map_err(explain)?;
        Ok(connection)
    }

    /// `SQLite` itself does not wait where two programs switch a new file to WAL at once.
    fn wait_while_busy<T>(&self, act: impl Fn() -> rusqlite::Result<T>) -> rusqlite::Result<T> {
        const PAUSE: Duration = Duration::from_millis(5);
        let begun = Instant::now();
        loop {
            match act() {
                Err(error)
                    if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                        && begun.elapsed() < self.busy_timeout =>
                {
                    thread::sleep(PAUSE);
                }
                done => return done,
            }
        }
    }

    fn file_now(&self) -> Result<(u64, u64), ArchiveError> {
        let metadata = self.path.metadata().map_err(|error| self.refuse(&format!("is gone: {error}")))?;
        Ok((metadata.dev(), metadata.ino()))
    }

    fn refuse(&self, why: &str) -> ArchiveError {
        ArchiveError::Refused(format!("{} {why}", self.path.display()))
    }
}
