use async_trait::async_trait;
use bytes::Bytes;
use qim_core::{Dictionary, UnixMillis};

use super::ScyllaArchive;
use super::put::micros;
use crate::archive::dictionaries::taken;
use crate::archive::row::unsigned;
use crate::archive::{ArchiveError, DictionaryMark, DictionaryStore};

#[async_trait]
impl DictionaryStore for ScyllaArchive {
    async fn dictionaries(&self) -> Result<Vec<DictionaryMark>, ArchiveError> {
        self.within(async {
            let link = self.connector.link().await?;
            let rows: Vec<(i64, Option<i64>)> = link.rows(&link.statements.dictionaries, ()).await?;
            let mark = |(id, date): (i64, Option<i64>)| {
                let needed_until = UnixMillis::new(unsigned(date.unwrap_or(0)));
                Some(DictionaryMark { id: u32::try_from(id).ok()?, needed_until })
            };
            Ok(rows.into_iter().filter_map(mark).collect())
        })
        .await
    }

    async fn dictionary(&self, id: u32) -> Result<Option<Bytes>, ArchiveError> {
        self.within(async {
            let link = self.connector.link().await?;
            let rows: Vec<(Option<Bytes>,)> =
                link.rows(&link.statements.dictionary, (i64::from(id),)).await?;
            Ok(rows.into_iter().next().and_then(|(stored,)| stored))
        })
        .await
    }

    async fn add_dictionary(&self, dictionary: &Dictionary) -> Result<(), ArchiveError> {
        let (id, encoded) = (dictionary.id(), dictionary.encode());
        // Numbers are given once, by Redis: nobody else adds one under this number between the two.
        match self.dictionary(id).await? {
            Some(stored) if stored == encoded => return Ok(()),
            Some(_) => return Err(taken(id)),
            None => {}
        }
        self.within(async {
            let link = self.connector.link().await?;
            let values = (i64::from(id), &encoded[..], micros(dictionary.created_at()));
            link.write(vec![(&link.statements.insert_dictionary, values)]).await
        })
        .await
    }

    async fn raise_dictionary(&self, id: u32, needed_until: UnixMillis) -> Result<(), ArchiveError> {
        self.within(async {
            let link = self.connector.link().await?;
            let date = needed_until.as_i64();
            link.write(vec![(&link.statements.raise_dictionary, (date, date, i64::from(id)))]).await
        })
        .await
    }

    async fn delete_dictionary(&self, id: u32) -> Result<(), ArchiveError> {
        self.within(async {
            let link = self.connector.link().await?;
            link.write(vec![(&link.statements.delete_dictionary, (i64::from(id),))]).await
        })
        .await
    }
}
