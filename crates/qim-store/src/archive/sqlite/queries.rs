//! What the reading connections do.

use bytes::Bytes;
use qim_core::{ConversationKey, UnixMillis};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::statements::{
    COUNT_RECORDS, SELECT_CONVERSATION, SELECT_MARKS, SELECT_RECORDS_BACKWARDS, SELECT_RECORDS_FORWARDS,
};
use crate::archive::page::{DateColumn, Page, PageBuilder, RawRow};
use crate::archive::row::{signed, unsigned};
use crate::archive::{Direction, RowMark, SeqRange, record_digest};

pub(super) fn marks(
    connection: &Connection,
    conversation: &ConversationKey,
    range: SeqRange,
    now: UnixMillis,
) -> rusqlite::Result<Vec<RowMark>> {
    let mut statement = connection.prepare_cached(SELECT_MARKS)?;
    let bounds = params![
        conversation.tenant().as_str(),
        conversation.conversation(),
        signed(range.from),
        signed(range.below),
        now.as_i64(),
    ];
    let rows = statement.query_map(bounds, |row| {
        let seq = unsigned(row.get(0)?);
        let digest = record_digest(row.get_ref(2)?.as_blob()?);
        // A damaged date is no mark: whoever looks for this row does not find it, and looks closer.
        Ok(match date(row, 1)? {
            DateColumn::Never => Some(RowMark { seq, expires_at: None, digest }),
            DateColumn::At(date) => Some(RowMark { seq, expires_at: Some(date), digest }),
            DateColumn::Damaged => None,
        })
    })?;
    rows.filter_map(Result::transpose).collect()
}

/// Takes rows of the range until the page is full.
pub(super) fn page(
    connection: &Connection,
    mut page: PageBuilder,
    conversation: &ConversationKey,
    direction: Direction,
    now: UnixMillis,
) -> rusqlite::Result<Page> {
    let mut statement = connection.prepare_cached(match direction {
        Direction::Forwards => SELECT_RECORDS_FORWARDS,
        Direction::Backwards => SELECT_RECORDS_BACKWARDS,
    })?;
    let SeqRange { from, below } = page.rest();
    let bounds =
        params![conversation.tenant().as_str(), conversation.conversation(), signed(from), signed(below)];
    let mut rows = statement.query(bounds)?;
    while let Some(row) = rows.next()? {
        let date = date(row, 1)?;
        // A record that has expired is not even read: a large one takes pages of its own.
        let encoded = if date.is_past(now) { None } else { Some(row.get_ref(2)?.as_blob()?) };
        let encoded = encoded.map(Bytes::copy_from_slice);
        page.push(RawRow { seq: unsigned(row.get(0)?), date, encoded });
        if page.is_full() {
            return Ok(page.finish());
        }
    }
    page.skip_rest();
    Ok(page.finish())
}

pub(super) fn high_water(connection: &Connection, conversation: &ConversationKey) -> rusqlite::Result<u64> {
    Ok(conversation_row(connection, conversation)?.map_or(0, |(_, high_water)| unsigned(high_water)))
}

pub(super) fn count(
    connection: &Connection,
    conversation: &ConversationKey,
    now: UnixMillis,
) -> rusqlite::Result<u64> {
    let values = params![conversation.tenant().as_str(), conversation.conversation(), now.as_i64()];
    connection.prepare_cached(COUNT_RECORDS)?.query_row(values, |row| row.get(0)).map(unsigned)
}

/// The number that stands for a conversation, and its high-water mark.
pub(super) fn conversation_row(
    connection: &Connection,
    conversation: &ConversationKey,
) -> rusqlite::Result<Option<(i64, i64)>> {
    let names = params![conversation.tenant().as_str(), conversation.conversation()];
    let mut statement = connection.prepare_cached(SELECT_CONVERSATION)?;
    statement.query_row(names, |row| Ok((row.get(0)?, row.get(1)?))).optional()
}

fn date(row: &Row<'_>, column: usize) -> rusqlite::Result<DateColumn> {
    Ok(row.get::<_, Option<i64>>(column)?.map_or(DateColumn::Never, DateColumn::from_millis))
}
