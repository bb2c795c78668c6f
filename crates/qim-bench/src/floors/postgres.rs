//! `PostgreSQL`: a table keyed by conversation and seq, client ids unique.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, ensure};
use async_trait::async_trait;
use tokio_postgres::{Client, NoTls, Statement};

use super::redis::now_ms;
use crate::corpus::Batch;
use crate::load::{Commits, Pages};
use crate::servers::postgres::Postgres;

/// Each a process of the server; requests are pipelined on each.
const CONNECTIONS: usize = 8;

const SCHEMA: &str = "
DROP TABLE IF EXISTS messages;
CREATE TABLE messages (
  conversation text NOT NULL,
  seq bigint NOT NULL,
  sender text NOT NULL,
  client_msg_id bytea NOT NULL,
  created_at bigint NOT NULL,
  expires_at bigint NOT NULL,
  payload bytea NOT NULL,
  PRIMARY KEY (conversation, seq),
  UNIQUE (conversation, sender, client_msg_id)
);
CHECKPOINT;";

/// Rows of one conversation: one statement, whatever their number.
const INSERT: &str = "
INSERT INTO messages
SELECT $1, $2 + n - 1, sender, id, $3, $4, payload
FROM unnest($5::text[], $6::bytea[], $7::bytea[]) WITH ORDINALITY AS t (sender, id, payload, n)
ON CONFLICT (conversation, sender, client_msg_id) DO NOTHING";

const NEWEST: &str = "
SELECT seq, sender, client_msg_id, created_at, expires_at, payload FROM messages
WHERE conversation = $1 AND expires_at > $2 ORDER BY seq DESC LIMIT 50";

/// A client with its connections. The seqs are its own, which costs the server nothing: the best case for it.
pub(crate) struct PostgresTable {
    connections: Vec<Connection>,
    turn: AtomicUsize,
    seqs: Mutex<HashMap<Arc<str>, i64>>,
}

struct Connection {
    client: Client,
    insert: Statement,
    newest: Statement,
}

impl PostgresTable {
    /// With an empty table.
    pub(crate) async fn create(server: &Postgres) -> Result<Self> {
        let mut connections = Vec::new();
        for index in 0..CONNECTIONS {
            let (client, connection) = tokio_postgres::connect(&server.config(), NoTls).await?;
            // Ends when the client is dropped.
            tokio::spawn(connection);
            if index == 0 {
                client.batch_execute(SCHEMA).await?;
            }
            let (insert, newest) = (client.prepare(INSERT).await?, client.prepare(NEWEST).await?);
            connections.push(Connection { client, insert, newest });
        }
        Ok(Self { connections, turn: AtomicUsize::new(0), seqs: Mutex::default() })
    }

    /// After loading: what autovacuum would have done by then.
    pub(crate) async fn settle(&self) -> Result<()> {
        Ok(self.connections[0].client.batch_execute("VACUUM ANALYZE messages").await?)
    }

    fn connection(&self) -> &Connection {
        &self.connections[self.turn.fetch_add(1, Ordering::Relaxed) % CONNECTIONS]
    }

    fn allocate(&self, conversation: &Arc<str>, count: usize) -> i64 {
        let mut seqs = self.seqs.lock().unwrap_or_else(PoisonError::into_inner);
        let next = seqs.entry(conversation.clone()).or_insert(1);
        let first = *next;
        *next += i64::try_from(count).unwrap_or(i64::MAX);
        first
    }
}

#[async_trait]
impl Commits for PostgresTable {
    async fn commit(&self, batch: Batch) -> Result<()> {
        let first = self.allocate(&batch.conversation, batch.messages.len());
        let now = i64::try_from(now_ms())?;
        let expires = now + 30 * 24 * 60 * 60 * 1000;
        let senders: Vec<&str> = batch.messages.iter().map(|message| &*message.sender).collect();
        let ids: Vec<_> = batch.messages.iter().map(|message| message.id.to_be_bytes()).collect();
        let ids: Vec<&[u8]> = ids.iter().map(<[u8; 16]>::as_slice).collect();
        let payloads: Vec<&[u8]> = batch.messages.iter().map(|message| &*message.payload).collect();
        let connection = self.connection();
        let conversation = &*batch.conversation;
        let rows = connection
            .client
            .execute(&connection.insert, &[&conversation, &first, &now, &expires, &senders, &ids, &payloads])
            .await?;
        ensure!(rows == u64::try_from(batch.messages.len())?, "{rows} rows");
        Ok(())
    }
}

#[async_trait]
impl Pages for PostgresTable {
    async fn newest(&self, conversation: Arc<str>) -> Result<usize> {
        let connection = self.connection();
        let now = i64::try_from(now_ms())?;
        let rows = connection.client.query(&connection.newest, &[&&*conversation, &now]).await?;
        // As any client would: each value as what it is.
        let read: usize = rows.iter().map(|row| row.get::<_, Vec<u8>>(5).len().min(1)).sum();
        ensure!(read <= rows.len());
        Ok(rows.len())
    }
}
