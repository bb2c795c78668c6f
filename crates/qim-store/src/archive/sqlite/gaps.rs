use qim_core::{ConversationKey, UnixMillis};
use rusqlite::{Connection, params};

use super::put::insert_conversation;
use super::queries::conversation_row;
use super::statements::{
    INSERT_DEPLOYMENT, INSERT_GAP, RAISE_HIGH_WATER, SELECT_ANY_CONVERSATION, SELECT_GAPS,
};
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
    let id = match conversation_row(connection, conversation)? {
        Some((id, _)) => id,
        None => insert_conversation(connection, conversation, to)?,
    };
    let values = params![id, signed(from), signed(to), noticed_at.as_i64()];
    connection.prepare_cached(INSERT_GAP)?.execute(values)?;
    connection.prepare_cached(RAISE_HIGH_WATER)?.execute(params![id, signed(to)])?;
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
