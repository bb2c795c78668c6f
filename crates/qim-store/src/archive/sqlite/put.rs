use qim_core::{ConversationKey, UnixMillis};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::client_ids;
use super::queries::conversation_row;
use super::statements::{
    INSERT_CONVERSATION, INSERT_RECORD, RAISE_HIGH_WATER, SELECT_BATCH, SELECT_CONVERSATION,
};
use super::writer::Fault;
use crate::archive::row::{Row, signed, unsigned};
use crate::archive::{ArchiveError, PutReport, record_digest};

/// The act of a [`super::super::ArchiveStore::put`], inside a transaction. Rows ascend by seq, and there is one.
pub(super) fn put(
    connection: &Connection,
    conversation: &ConversationKey,
    rows: &[Row],
    now: UnixMillis,
) -> Result<PutReport, Fault> {
    let last = rows[rows.len() - 1].seq;
    let names = params![conversation.tenant().as_str(), conversation.conversation()];
    let known = connection
        .prepare_cached(SELECT_CONVERSATION)?
        .query_row(names, |row| Ok((row.get::<_, i64>(0)?, row.get(1)?)))
        .optional()?;
    let missing = match known {
        Some((id, _)) => missing_rows(connection, id, rows)?,
        None => rows.iter().collect(),
    };
    let (id, high_water) = match known {
        Some(known) => known,
        None => (insert_conversation(connection, conversation, last)?, signed(last)),
    };
    // One that has expired is not written: it would be deleted again with the next upkeep.
    let mut insert = connection.prepare_cached(INSERT_RECORD)?;
    for row in missing.iter().filter(|row| !row.is_expired(now)) {
        insert.execute(params![
            id,
            signed(row.seq),
            row.expires_at.map(UnixMillis::as_i64),
            &row.encoded[..],
        ])?;
    }
    client_ids::remember(connection, id, rows, now)?;
    if unsigned(high_water) < last {
        connection.prepare_cached(RAISE_HIGH_WATER)?.execute(params![id, signed(last)])?;
    }
    let written = missing.len() as u64;
    Ok(PutReport { written, unchanged: rows.len() as u64 - written, clamped: 0 })
}

/// The id of the conversation, of which seqs up to this one were given.
pub(super) fn raise_high_water(
    connection: &Connection,
    conversation: &ConversationKey,
    seq: u64,
) -> Result<i64, Fault> {
    let Some((id, _)) = conversation_row(connection, conversation)? else {
        return Ok(insert_conversation(connection, conversation, seq)?);
    };
    connection.prepare_cached(RAISE_HIGH_WATER)?.execute(params![id, signed(seq)])?;
    Ok(id)
}

/// Those of `rows` that are not there. Fails when another record stands under the seq of one.
fn missing_rows<'a>(
    connection: &Connection,
    conversation: i64,
    rows: &'a [Row],
) -> Result<Vec<&'a Row>, Fault> {
    let mut statement = connection.prepare_cached(SELECT_BATCH)?;
    let bounds = params![conversation, signed(rows[0].seq), signed(rows[rows.len() - 1].seq)];
    let mut stored = statement
        .query_map(bounds, |row| Ok((unsigned(row.get(0)?), record_digest(row.get_ref(1)?.as_blob()?))))?;
    let mut next = stored.next().transpose()?;
    let mut missing = Vec::new();
    for row in rows {
        while next.is_some_and(|(seq, _)| seq < row.seq) {
            next = stored.next().transpose()?;
        }
        match next {
            Some((seq, digest)) if seq == row.seq && digest == row.digest => {}
            Some((seq, _)) if seq == row.seq => return Err(Fault::Archive(ArchiveError::Conflict { seq })),
            _ => missing.push(row),
        }
    }
    Ok(missing)
}

/// Its number.
pub(super) fn insert_conversation(
    connection: &Connection,
    conversation: &ConversationKey,
    high_water: u64,
) -> rusqlite::Result<i64> {
    let values = params![conversation.tenant().as_str(), conversation.conversation(), signed(high_water)];
    connection.prepare_cached(INSERT_CONVERSATION)?.query_row(values, |row| row.get(0))
}
