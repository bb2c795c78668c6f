//! What a server would do by itself: expired rows are deleted, and their space goes back to the file system.

use std::time::Duration;

use qim_core::UnixMillis;
use rusqlite::{Connection, params};
use tokio::time::Instant;

use super::client_ids;
use super::readers::Readers;
use super::statements::DELETE_EXPIRED_RECORDS;
use super::writer::{Fault, Writer};
use crate::archive::row::unsigned;
use crate::archive::{ArchiveError, MaintenanceReport};

/// Rows deleted in one transaction: a few milliseconds, which is what a copy that comes meanwhile waits.
const DELETE_ROWS_MAX: u32 = 500;
/// Chunks of client ids swept in one transaction.
const SWEEP_CHUNKS_MAX: u32 = 100;
/// Pages moved in one transaction; as many milliseconds.
const VACUUM_PAGES_MAX: u64 = 256;
/// One free page in so many stays in the file, for what is copied next.
const FREE_PAGES_KEPT: u64 = 16;

/// Works for up to `budget`, in many short transactions with copies in between. Each takes until `deadline` at most.
pub(super) async fn maintain(
    writer: &Writer,
    readers: &Readers,
    now: UnixMillis,
    budget: Duration,
    deadline: Instant,
) -> Result<MaintenanceReport, ArchiveError> {
    let stop = Instant::now() + budget;
    let mut report = MaintenanceReport { more: true, ..MaintenanceReport::default() };
    while report.more && Instant::now() < stop {
        let deleted = writer.write(deadline, move |connection| delete(connection, now)).await?;
        report.rows_deleted += deleted.records as u64;
        report.more =
            deleted.records == DELETE_ROWS_MAX as usize || deleted.chunks == SWEEP_CHUNKS_MAX as usize;
    }
    let mut vacuum = Vacuum { bytes_freed: 0, more: true };
    while vacuum.more && Instant::now() < stop {
        vacuum = writer.write(deadline, vacuum_some).await?;
        report.bytes_freed += vacuum.bytes_freed;
    }
    report.more |= vacuum.more;
    // The file itself shrinks when the log is copied back into it. Where a reader is in the way, a later call does it.
    readers
        .read(deadline, |connection| connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())))
        .await?;
    Ok(report)
}

struct Deleted {
    records: usize,
    chunks: usize,
}

fn delete(connection: &Connection, now: UnixMillis) -> Result<Deleted, Fault> {
    Ok(Deleted {
        records: connection
            .prepare_cached(DELETE_EXPIRED_RECORDS)?
            .execute(params![now.as_i64(), DELETE_ROWS_MAX])?,
        chunks: client_ids::sweep(connection, now, SWEEP_CHUNKS_MAX)?,
    })
}

struct Vacuum {
    bytes_freed: u64,
    more: bool,
}

fn vacuum_some(connection: &Connection) -> Result<Vacuum, Fault> {
    let number = |pragma| connection.pragma_query_value(None, pragma, |row| row.get(0)).map(unsigned);
    let free_before = number("freelist_count")?;
    let spare = free_before.saturating_sub(number("page_count")? / FREE_PAGES_KEPT);
    let pages = spare.min(VACUUM_PAGES_MAX);
    if pages > 0 {
        let mut statement = connection.prepare(&format!("PRAGMA incremental_vacuum({pages})"))?;
        let mut steps = statement.query([])?;
        while steps.next()?.is_some() {} // each step frees a page
    }
    let freed = free_before.saturating_sub(number("freelist_count")?);
    Ok(Vacuum { bytes_freed: freed * number("page_size")?, more: freed > 0 && spare > freed })
}
