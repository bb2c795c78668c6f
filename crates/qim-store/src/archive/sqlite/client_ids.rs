//! Client ids, in chunks: see [`crate::archive::id_chunks`].

use std::collections::BTreeSet;
use std::time::Duration;

use qim_core::{ClientIdHash, ConversationKey, UnixMillis};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::queries::conversation_row;
use super::statements::{
    DELETE_CLIENT_IDS, SELECT_CLIENT_IDS, SELECT_CLIENT_IDS_TO_SWEEP, UPSERT_CLIENT_IDS,
};
use crate::archive::CommittedId;
use crate::archive::id_chunks::{self, Entry, Lookup};
use crate::archive::row::{Row, signed, unsigned};

/// A chunk is swept no more often than this, so that an id may be kept for so much longer than it has to be.
const SWEEP_EVERY: Duration = Duration::from_hours(24);

/// Remembers the client ids of these rows.
pub(super) fn remember(
    connection: &Connection,
    conversation: i64,
    rows: &[Row],
    now: UnixMillis,
) -> rusqlite::Result<()> {
    for (chunk, new) in id_chunks::by_chunk(rows, now) {
        let mut entries = chunk_entries(connection, conversation, chunk)?;
        for entry in new {
            match entries.iter_mut().find(|known| known.id == entry.id) {
                Some(known) if known.order() < entry.order() => *known = entry,
                Some(_) => {}
                None => entries.push(entry),
            }
        }
        entries.retain(|entry| now < entry.end());
        write(connection, conversation, chunk, &entries)?;
    }
    Ok(())
}

/// What was committed under these ids, in their order.
pub(super) fn find(
    connection: &Connection,
    conversation: &ConversationKey,
    ids: &[ClientIdHash],
    now: UnixMillis,
) -> rusqlite::Result<Vec<Option<CommittedId>>> {
    let Some((conv, high_water)) = conversation_row(connection, conversation)? else {
        return Ok(vec![None; ids.len()]);
    };
    let high_water = unsigned(high_water);
    let chunks: BTreeSet<u64> = ids.iter().flat_map(|id| id_chunks::chunks_of(*id, high_water)).collect();
    let mut lookup = Lookup::of(ids, now);
    for chunk in chunks {
        lookup.look_through(chunk_entries(connection, conv, chunk)?);
    }
    Ok(lookup.found(ids))
}

/// Forgets ids whose time has come, in up to `limit` chunks; answers how many chunks that were.
pub(super) fn sweep(connection: &Connection, now: UnixMillis, limit: u32) -> rusqlite::Result<usize> {
    let mut due = connection.prepare_cached(SELECT_CLIENT_IDS_TO_SWEEP)?;
    let due = due.query_map(params![now.as_i64(), limit], |row| {
        Ok((row.get(0)?, unsigned(row.get(1)?), row.get::<_, Vec<u8>>(2)?))
    })?;
    let due: Vec<(i64, u64, Vec<u8>)> = due.collect::<Result<_, _>>()?;
    for (conversation, chunk, ids) in &due {
        let left: Vec<Entry> = id_chunks::unpack(ids).filter(|entry| now < entry.end()).collect();
        write(connection, *conversation, *chunk, &left)?;
    }
    Ok(due.len())
}

fn chunk_entries(connection: &Connection, conversation: i64, chunk: u64) -> rusqlite::Result<Vec<Entry>> {
    let mut statement = connection.prepare_cached(SELECT_CLIENT_IDS)?;
    let entries = statement.query_row(params![conversation, signed(chunk)], |row| {
        Ok(id_chunks::unpack(row.get_ref(0)?.as_blob()?).collect())
    });
    Ok(entries.optional()?.unwrap_or_default())
}

fn write(connection: &Connection, conversation: i64, chunk: u64, entries: &[Entry]) -> rusqlite::Result<()> {
    let Some(first_end) = entries.iter().map(Entry::end).min() else {
        connection.prepare_cached(DELETE_CLIENT_IDS)?.execute(params![conversation, signed(chunk)])?;
        return Ok(());
    };
    connection.prepare_cached(UPSERT_CLIENT_IDS)?.execute(params![
        conversation,
        signed(chunk),
        sweep_at(first_end).as_i64(),
        id_chunks::pack(entries),
    ])?;
    Ok(())
}

/// The next full [`SWEEP_EVERY`].
fn sweep_at(first_end: UnixMillis) -> UnixMillis {
    let every = u64::try_from(SWEEP_EVERY.as_millis()).expect("a day");
    UnixMillis::new(first_end.get().div_ceil(every) * every)
}
