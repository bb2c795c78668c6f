use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use qim_core::{RowTtl, UnixMillis};
use scylla::client::session::Session;
use scylla::deserialize::row::DeserializeRow;
use scylla::errors::ExecutionError;
use scylla::serialize::row::SerializeRow;
use scylla::statement::batch::{Batch, BatchStatement, BatchType};
use scylla::statement::prepared::PreparedStatement;
use tokio::sync::Semaphore;

use super::error;
use super::statements::Statements;
use crate::archive::ArchiveError;

/// Requests in flight from this process. More would only wait at the server, and count as its load.
const IN_FLIGHT_MAX: usize = 128;
/// Requests in flight for one call.
const CONCURRENCY: usize = 16;

/// A session that is connected and prepared.
pub(super) struct Link {
    pub(super) statements: Statements,
    session: Session,
    /// The last date that the server can expire a row at, where it has one.
    latest_expiry: Option<UnixMillis>,
    in_flight: Semaphore,
    is_lost: AtomicBool,
}

impl Link {
    pub(super) fn new(session: Session, statements: Statements, latest_expiry: Option<UnixMillis>) -> Self {
        let in_flight = Semaphore::new(IN_FLIGHT_MAX);
        Self { statements, session, latest_expiry, in_flight, is_lost: AtomicBool::new(false) }
    }

    /// No node could be reached when it was last used. The driver would come back to them by itself, but only after
    /// up to ten seconds.
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// The TTL of a row that goes at `expires_at`. The server takes its own time in whole seconds, so that a TTL from
    /// a full second on is what keeps a row from going before its date.
    pub(super) fn ttl(&self, expires_at: UnixMillis, now: UnixMillis) -> RowTtl {
        let second = now - Duration::from_millis(now.get() % 1000);
        RowTtl::time_left(Some(expires_at), second, self.latest_expiry)
    }

    pub(super) async fn rows<R>(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<Vec<R>, ArchiveError>
    where
        R: for<'frame, 'metadata> DeserializeRow<'frame, 'metadata>,
    {
        let permit = self.in_flight.acquire().await.expect("the semaphore is never closed");
        let result = self.session.execute_unpaged(statement, values).await;
        drop(permit);
        let result = result.map_err(|error| self.explain(&error))?;
        let result = result.into_rows_result().map_err(|error| error::unexpected(&error))?;
        let rows = result.rows::<R>().map_err(|error| error::unexpected(&error))?;
        rows.collect::<Result<_, _>>().map_err(|error| error::unexpected(&error))
    }

    /// Writes to one partition, all or nothing.
    pub(super) async fn write<V: SerializeRow>(
        &self,
        writes: Vec<(&PreparedStatement, V)>,
    ) -> Result<(), ArchiveError> {
        let (statements, values): (Vec<_>, Vec<_>) = writes.into_iter().unzip();
        let _permit = self.in_flight.acquire().await.expect("the semaphore is never closed");
        let result = match (&statements[..], &values[..]) {
            ([], _) | (_, []) => return Ok(()),
            ([statement], [values]) => self.session.execute_unpaged(statement, values).await,
            _ => {
                let statements = statements.into_iter().cloned().map(BatchStatement::PreparedStatement);
                let mut batch = Batch::new_with_statements(BatchType::Unlogged, statements.collect());
                batch.set_is_idempotent(true);
                self.session.batch(&batch, values).await
            }
        };
        result.map(drop).map_err(|error| self.explain(&error))
    }

    fn explain(&self, error: &ExecutionError) -> ArchiveError {
        if error::is_disconnected(error) {
            self.is_lost.store(true, Ordering::Relaxed);
        }
        error::from_execution(error)
    }
}

/// Runs the parts of one call, a few at a time, until the first error. Their results keep their order.
pub(super) async fn run_all<T, F>(parts: Vec<F>) -> Result<Vec<T>, ArchiveError>
where
    F: Future<Output = Result<T, ArchiveError>>,
{
    stream::iter(parts).buffered(CONCURRENCY).try_collect().await
}
