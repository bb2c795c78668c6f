//! SQLite without qim: rows inserted many at once, pages selected.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use async_trait::async_trait;
use rusqlite::{Connection, params_from_iter};

use super::Row;
use crate::load::Pages;

/// Rows of one statement, and statements of one transaction: what a pass of the archiver writes.
const ROWS: usize = 64;
const STATEMENTS: usize = 8;

const SCHEMA: &str = "
PRAGMA synchronous = FULL;
PRAGMA journal_mode = WAL;
CREATE TABLE records (
  conv TEXT NOT NULL, seq INTEGER NOT NULL, expires_at INTEGER, record BLOB NOT NULL, PRIMARY KEY (conv, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX records_by_expiry ON records (expires_at) WHERE expires_at IS NOT NULL;";

const NEWEST: &str = "SELECT seq, expires_at, record FROM records WHERE conv = ?1 AND expires_at > ?2 ORDER BY seq DESC LIMIT 50";

/// As durable as qim's own archive.
pub(crate) fn create(path: &Path) -> Result<Connection> {
    let connection = Connection::open(path)?;
    connection.execute_batch(SCHEMA)?;
    Ok(connection)
}

/// Moves what is in the write-ahead log into the file.
pub(crate) fn checkpoint(path: &Path) -> Result<()> {
    let connection = Connection::open(path)?;
    Ok(connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(()))?)
}

/// Multi-row inserts, in transactions.
pub(crate) fn insert(connection: &mut Connection, rows: &[Row]) -> Result<()> {
    for chunk in rows.chunks(ROWS * STATEMENTS) {
        let transaction = connection.transaction()?;
        for rows in chunk.chunks(ROWS) {
            let places = vec!["(?, ?, ?, ?)"; rows.len()].join(", ");
            let mut statement =
                transaction.prepare_cached(&format!("INSERT INTO records VALUES {places}"))?;
            let values = rows.iter().flat_map(|row| {
                let conversation: rusqlite::types::Value = row.conversation.to_string().into();
                [conversation, row.seq.into(), row.expires_at.into(), row.record.to_vec().into()]
            });
            statement.execute(params_from_iter(values))?;
        }
        transaction.commit()?;
    }
    Ok(())
}

/// Reads on as many connections as there are cores, on threads of their own.
pub(crate) struct SqlitePages {
    connections: Vec<Arc<Mutex<Connection>>>,
    turn: std::sync::atomic::AtomicUsize,
}

impl SqlitePages {
    pub(crate) fn open(path: &PathBuf, connections: usize) -> Result<Self> {
        let open = |_| Ok(Arc::new(Mutex::new(Connection::open(path)?)));
        let connections = (0..connections).map(open).collect::<Result<_>>()?;
        Ok(Self { connections, turn: 0.into() })
    }
}

#[async_trait]
impl Pages for SqlitePages {
    async fn newest(&self, conversation: Arc<str>) -> Result<usize> {
        let turn = self.turn.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let connection = self.connections[turn % self.connections.len()].clone();
        tokio::task::spawn_blocking(move || {
            let connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
            let mut statement = connection.prepare_cached(NEWEST)?;
            let rows =
                statement.query_map(rusqlite::params![&*conversation, 0], |row| row.get::<_, Vec<u8>>(2))?;
            let records: Vec<Vec<u8>> = rows.collect::<Result<_, _>>()?;
            Ok(records.len())
        })
        .await?
    }
}
