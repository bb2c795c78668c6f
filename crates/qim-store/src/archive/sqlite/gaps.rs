use qim_core::{ConversationKey, UnixMillis};
use rusqlite::{Connection, params};

use super::put::raise_high_water;
use super::statements::{INSERT_DEPLOYMENT, INSERT_GAP, SELECT_ANY_CONVERSATION, SELECT_GAPS};
use super::writer::Fault;
use crate::archive::Gap;
use crate::archive::row::{signed, unsigned};

pub(super) fn is_empty(connection: &Connection) -> rusqlite::Result<bool> {
    Ok(!connection.prepare_cached(SELECT_ANY_CONVERSATION)?.exists([])?)
}

pub(super) fn found(connection: &Connection) -> Result<(), Fault> {
    connection.prepare_cached(INSERT_DEPLOYMENT)?.execute([])?;
    Ok(())
}

pub(super) fn note(
    connection: &Connection,
    conversation: &ConversationKey,
    Gap { from, to, noticed_at }: Gap,
) -> Result<(), Fault> {
    let id = raise_high_water(connection, conversation, to)?;
    let values = params![id, signed(from), signed(to), noticed_at.as_i64()];
    connection.prepare_cached(INSERT_GAP)?.execute(values)?;
    Ok(())
}

pub(super) fn of(connection: &Connection, conversation: &ConversationKey) -> rusqlite::Result<Vec<Gap>> {
    let mut statement = connection.prepare_cached(SELECT_GAPS)?;
    let names = params![conversation.tenant().as_str(), conversation.conversation()];
    let gaps = statement.query_map(names, |row| {
        Ok(Gap {
            from: unsigned(row.get(0)?),
            to: unsigned(row.get(1)?),
            noticed_at: UnixMillis::new(unsigned(row.get(2)?)),
        })
    })?;
    gaps.collect()
}
