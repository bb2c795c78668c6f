use async_trait::async_trait;
use bytes::Bytes;
use qim_core::{Dictionary, UnixMillis};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::SqliteArchive;
use super::statements::{
    DELETE_DICTIONARY, INSERT_DICTIONARY, RAISE_DICTIONARY, SELECT_DICTIONARIES, SELECT_DICTIONARY,
};
use super::writer::Fault;
use crate::archive::dictionaries::taken;
use crate::archive::row::unsigned;
use crate::archive::{ArchiveError, DictionaryMark, DictionaryStore};

#[async_trait]
impl DictionaryStore for SqliteArchive {
    async fn dictionaries(&self) -> Result<Vec<DictionaryMark>, ArchiveError> {
        self.read_by(self.deadline(), |connection| {
            let mut statement = connection.prepare_cached(SELECT_DICTIONARIES)?;
            let marks = statement.query_map([], |row| {
                Ok(DictionaryMark { id: row.get(0)?, needed_until: UnixMillis::new(unsigned(row.get(1)?)) })
            })?;
            marks.collect()
        })
        .await
    }

    async fn dictionary(&self, id: u32) -> Result<Option<Bytes>, ArchiveError> {
        self.read_by(self.deadline(), move |connection| stored(connection, id)).await
    }

    async fn add_dictionary(&self, dictionary: &Dictionary) -> Result<(), ArchiveError> {
        let (id, encoded) = (dictionary.id(), dictionary.encode());
        let add = move |connection: &Connection| {
            connection.prepare_cached(INSERT_DICTIONARY)?.execute(params![id, &encoded[..]])?;
            let is_this = stored(connection, id)?.is_some_and(|stored| stored == encoded);
            if is_this { Ok(()) } else { Err(Fault::Archive(taken(id))) }
        };
        self.writer.write(self.deadline(), add).await
    }

    async fn raise_dictionary(&self, id: u32, needed_until: UnixMillis) -> Result<(), ArchiveError> {
        let raise = move |connection: &Connection| {
            connection.prepare_cached(RAISE_DICTIONARY)?.execute(params![id, needed_until.as_i64()])?;
            Ok(())
        };
        self.writer.write(self.deadline(), raise).await
    }

    async fn delete_dictionary(&self, id: u32) -> Result<(), ArchiveError> {
        let delete = move |connection: &Connection| {
            connection.prepare_cached(DELETE_DICTIONARY)?.execute([id])?;
            Ok(())
        };
        self.writer.write(self.deadline(), delete).await
    }
}

fn stored(connection: &Connection, id: u32) -> rusqlite::Result<Option<Bytes>> {
    let mut statement = connection.prepare_cached(SELECT_DICTIONARY)?;
    statement.query_row([id], |row| Ok(Bytes::from(row.get::<_, Vec<u8>>(0)?))).optional()
}
