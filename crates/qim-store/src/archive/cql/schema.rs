//! The keyspace and its tables: made where they are missing, never changed where they are there.

use std::collections::BTreeMap;
use std::time::Duration;

use qim_core::UnixMillis;
use scylla::client::session::Session;
use scylla::deserialize::row::DeserializeRow;
use scylla::errors::{DbError, ExecutionError, RequestAttemptError};
use scylla::serialize::row::SerializeRow;
use scylla::statement::Statement;

use super::error;
use super::statements::{
    CREATE_CLIENT_IDS, CREATE_CONVERSATIONS, CREATE_DICTIONARIES, CREATE_GAPS, CREATE_HELD_RECORDS,
    CREATE_KEYSPACE, CREATE_RECORDS, CREATE_SCHEMA_VERSION, INSERT_SCHEMA_VERSION, SELECT_COMPATIBILITY_MODE,
    SELECT_KEYSPACES, SELECT_REPLICATION, SELECT_SCHEMA_VERSION, SELECT_TABLES, Text,
};
use crate::archive::ArchiveError;

/// The newest schema that this program knows, and the one it makes.
const SCHEMA_VERSION: u32 = 3;
/// One change of the schema: about a second on a quiet server, several on one that has just started.
const CHANGE_MAX: Duration = Duration::from_secs(30);
/// How often making the tables is tried, for one that another program is making at the same time.
const ATTEMPTS_MAX: u32 = 3;
/// The last second at which a Cassandra that keeps the storage format of version 4 can expire a row
/// (2038-01-19T03:14:06Z), less a minute for a request that is under way and a clock that is ahead of ours.
const LATEST_EXPIRY: UnixMillis = UnixMillis::new((2_147_483_646 - 60) * 1000);

const TABLES: [(&str, Text); 7] = [
    ("schema_version", CREATE_SCHEMA_VERSION),
    ("conversations", CREATE_CONVERSATIONS),
    ("records", CREATE_RECORDS),
    ("held_records", CREATE_HELD_RECORDS),
    ("client_ids", CREATE_CLIENT_IDS),
    ("dictionaries", CREATE_DICTIONARIES),
    ("gaps", CREATE_GAPS),
];

/// Makes what is missing; fails where the schema is a newer program's.
pub(super) async fn ensure(
    session: &Session,
    keyspace: &str,
    replication_factor: u8,
) -> Result<(), ArchiveError> {
    // Looked at first: the usual start changes nothing, and does not need the right to.
    let mut missing = missing_tables(session, keyspace).await?;
    let mut attempts = 0;
    while !missing.is_empty() {
        attempts += 1;
        let created = create(session, keyspace, replication_factor, &missing).await;
        agree(session).await?;
        missing = missing_tables(session, keyspace).await?;
        // Where another program makes the same tables on another node, one of the two may be told no.
        if attempts == ATTEMPTS_MAX && !missing.is_empty() {
            let error = || ArchiveError::Unavailable("tables that were made are not there yet".to_owned());
            return Err(created.err().unwrap_or_else(error));
        }
    }
    warn_of_another_replication(session, keyspace, replication_factor).await?;
    if attempts > 0 {
        let refreshed = session.refresh_metadata().await;
        refreshed.map_err(|error| ArchiveError::Unavailable(error.to_string()))?;
    }
    let version = || query::<(i32,)>(session, SELECT_SCHEMA_VERSION.in_keyspace(keyspace), ());
    let stored = match version().await {
        // The node that answered may not have heard of the table yet.
        Err(_) => {
            agree(session).await?;
            version().await?
        }
        Ok(stored) => stored,
    };
    match stored.first().map(|(version,)| u32::try_from(*version).unwrap_or(u32::MAX)) {
        Some(found) if found > SCHEMA_VERSION => {
            Err(ArchiveError::SchemaTooNew { found, known: SCHEMA_VERSION })
        }
        Some(SCHEMA_VERSION) => Ok(()),
        // An older one has all tables by now.
        Some(_) | None => {
            let version = i32::try_from(SCHEMA_VERSION).expect("a small number");
            let text = INSERT_SCHEMA_VERSION.in_keyspace(keyspace);
            execute(session, text, (version, i64::from(version))).await
        }
    }
}

/// The last date that the server can expire a row at, where it has one. A server that does not say gets the limit:
/// a row that goes in 2038 is better than one that is refused.
pub(super) async fn latest_expiry(session: &Session) -> Result<Option<UnixMillis>, ArchiveError> {
    let cluster = session.get_cluster_state();
    // Only ScyllaDB has shards; it has no such limit.
    if cluster.get_nodes_info().iter().any(|node| node.sharder().is_some()) {
        return Ok(None);
    }
    let statement = Statement::new(SELECT_COMPATIBILITY_MODE.in_keyspace(""));
    match session.query_unpaged(statement, ()).await {
        Ok(result) => {
            let rows = result.into_rows_result().map_err(|error| error::unexpected(&error))?;
            let mode = rows.maybe_first_row::<(Option<String>,)>();
            let (mode,) = mode.map_err(|error| error::unexpected(&error))?.unwrap_or_default();
            let is_limited = mode.is_none_or(|mode| mode.eq_ignore_ascii_case("CASSANDRA_4"));
            Ok(is_limited.then_some(LATEST_EXPIRY))
        }
        Err(ExecutionError::LastAttemptError(RequestAttemptError::DbError(
            DbError::Invalid | DbError::Unauthorized,
            _,
        ))) => Ok(Some(LATEST_EXPIRY)),
        Err(error) => Err(error::from_execution(&error)),
    }
}

async fn missing_tables(session: &Session, keyspace: &str) -> Result<Vec<Text>, ArchiveError> {
    let text = SELECT_TABLES.in_keyspace(keyspace);
    let present: Vec<(String,)> = query(session, text, (keyspace,)).await?;
    let is_missing = |name: &str| !present.iter().any(|(table,)| table == name);
    Ok(TABLES.into_iter().filter(|(name, _)| is_missing(name)).map(|(_, text)| text).collect())
}

/// A keyspace that is there keeps its replication: to change it is an operator's act, and takes a repair. But nobody
/// should believe in copies that are not made.
async fn warn_of_another_replication(
    session: &Session,
    keyspace: &str,
    replication_factor: u8,
) -> Result<(), ArchiveError> {
    let text = SELECT_REPLICATION.in_keyspace(keyspace);
    let rows: Vec<(BTreeMap<String, String>,)> = query(session, text, (keyspace,)).await?;
    let Some((replication,)) = rows.into_iter().next() else { return Ok(()) };
    let configured = replication_factor.to_string();
    // All but the class are numbers of copies: of each data centre, or of the whole.
    let mut copies = replication.iter().filter(|(name, _)| *name != "class");
    if copies.any(|(_, copies)| *copies != configured) {
        tracing::warn!(
            keyspace,
            ?replication,
            configured = replication_factor,
            "the keyspace has another replication than replication_factor says, and keeps it"
        );
    }
    Ok(())
}

async fn create(
    session: &Session,
    keyspace: &str,
    replication_factor: u8,
    tables: &[Text],
) -> Result<(), ArchiveError> {
    let text = SELECT_KEYSPACES.in_keyspace(keyspace);
    let keyspaces: Vec<(String,)> = query(session, text, (keyspace,)).await?;
    if keyspaces.is_empty() {
        let factor = replication_factor.to_string();
        let text = CREATE_KEYSPACE.in_keyspace(keyspace).replace("{replication_factor}", &factor);
        execute(session, text, ()).await?;
        // A node that has not heard of it yet refuses a table in it, whoever made it.
        agree(session).await?;
        tracing::info!(keyspace, replication_factor, "created the keyspace of the archive");
    }
    for table in tables {
        execute(session, table.in_keyspace(keyspace), ()).await?;
    }
    tracing::info!(keyspace, tables = tables.len(), "created the tables of the archive");
    Ok(())
}

async fn agree(session: &Session) -> Result<(), ArchiveError> {
    let agreed = session.await_schema_agreement().await;
    agreed.map(drop).map_err(|error| ArchiveError::Unavailable(error.to_string()))
}

async fn execute(session: &Session, text: String, values: impl SerializeRow) -> Result<(), ArchiveError> {
    let mut statement = Statement::new(text);
    statement.set_is_idempotent(true);
    statement.set_request_timeout(Some(CHANGE_MAX));
    let result = session.query_unpaged(statement, values).await;
    result.map(drop).map_err(|error| error::from_execution(&error))
}

async fn query<R>(session: &Session, text: String, values: impl SerializeRow) -> Result<Vec<R>, ArchiveError>
where
    R: for<'frame, 'metadata> DeserializeRow<'frame, 'metadata>,
{
    let result = session.query_unpaged(text, values).await;
    let result = result.map_err(|error| error::from_execution(&error))?;
    let result = result.into_rows_result().map_err(|error| error::unexpected(&error))?;
    let rows = result.rows::<R>().map_err(|error| error::unexpected(&error))?;
    rows.collect::<Result<_, _>>().map_err(|error| error::unexpected(&error))
}
