//! The bare CQL driver: batches of rows inserted, pages selected.

use std::sync::Arc;

use anyhow::{Context, Result};
use async_trait::async_trait;
use futures::{TryStreamExt, stream};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::statement::Consistency;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;

use super::Row;
use crate::load::Pages;
use crate::servers::cql::Cql;

/// Rows of one batch (all of one partition), and batches under way.
const ROWS: usize = 64;
const IN_FLIGHT: usize = 32;

/// A table of its own.
pub(crate) struct CqlTable {
    session: Session,
    insert: PreparedStatement,
    newest: PreparedStatement,
}

impl CqlTable {
    pub(crate) async fn create(server: &Cql) -> Result<Self> {
        let session = SessionBuilder::new().known_node(server.address()).build().await?;
        let keyspace = format!("floor_{:016x}", rand::random::<u64>());
        session
            .query_unpaged(
                format!(
                    "CREATE KEYSPACE {keyspace} WITH replication = \
                     {{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}}"
                ),
                (),
            )
            .await?;
        let table = format!(
            "CREATE TABLE {keyspace}.records (conversation text, bucket bigint, seq bigint, record blob, \
             expires_at bigint, PRIMARY KEY ((conversation, bucket), seq)) WITH compaction = \
             {{'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': 'DAYS', \
             'compaction_window_size': 1}}"
        );
        session.query_unpaged(table, ()).await?;
        let insert = format!(
            "INSERT INTO {keyspace}.records (conversation, bucket, seq, record, expires_at) \
             VALUES (?, 0, ?, ?, ?) USING TTL ?"
        );
        let newest = format!(
            "SELECT seq, record, expires_at FROM {keyspace}.records WHERE conversation = ? AND bucket = 0 \
             ORDER BY seq DESC LIMIT 50"
        );
        let (mut insert, mut newest) = (session.prepare(insert).await?, session.prepare(newest).await?);
        for statement in [&mut insert, &mut newest] {
            statement.set_consistency(Consistency::LocalQuorum);
            statement.set_is_idempotent(true);
        }
        Ok(Self { session, insert, newest })
    }

    /// Unlogged batches, each of one partition. The rows are in the order of their conversations.
    pub(crate) async fn insert(&self, rows: &[Row]) -> Result<()> {
        let runs = rows.chunk_by(|a, b| a.conversation == b.conversation);
        let batches = runs.flat_map(|run| run.chunks(ROWS)).map(Ok::<_, anyhow::Error>);
        stream::iter(batches).try_for_each_concurrent(IN_FLIGHT, |rows| self.insert_batch(rows)).await
    }

    async fn insert_batch(&self, rows: &[Row]) -> Result<()> {
        let mut batch = Batch::new(BatchType::Unlogged);
        batch.set_consistency(Consistency::LocalQuorum);
        batch.set_is_idempotent(true);
        for _ in rows {
            batch.append_statement(self.insert.clone());
        }
        let values: Vec<_> = rows
            .iter()
            .map(|row| (&*row.conversation, row.seq, &row.record[..], row.expires_at, 30 * 24 * 60 * 60))
            .collect();
        self.session.batch(&batch, values).await?;
        Ok(())
    }
}

#[async_trait]
impl Pages for CqlTable {
    async fn newest(&self, conversation: Arc<str>) -> Result<usize> {
        let result = self.session.execute_unpaged(&self.newest, (&*conversation,)).await?;
        let result = result.into_rows_result().context("rows")?;
        let rows: Result<Vec<(i64, Vec<u8>, i64)>, _> = result.rows()?.collect();
        Ok(rows?.len())
    }
}
