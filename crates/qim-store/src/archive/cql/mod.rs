//! The archive in a cluster that speaks CQL: `ScyllaDB`, or Cassandra 4 and up.

mod buckets;
mod client_ids;
mod connector;
mod dictionaries;
mod error;
mod gaps;
mod known_buckets;
mod link;
mod put;
mod read;
mod schema;
mod statements;
mod tls;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use qim_core::{ClientIdHash, ClientTls, ConversationKey, Decompressor, PayloadForm, ScyllaUrl, UnixMillis};
use tokio::time;

use self::connector::Connector;
use self::known_buckets::KnownBuckets;
use super::page::{self, PageBuilder, assert_batch};
use super::row::Row;
use super::{
    ArchiveError, ArchiveOptions, ArchivePage, ArchiveStore, CommittedId, Direction, Earliest,
    FIND_CLIENT_IDS_MAX, Gap, MARKS_WIDTH_MAX, MaintenanceReport, PutReport, RowMark, SeqRange, StoredRecord,
    StoredRow,
};

/// The archive in a cluster that speaks CQL.
pub struct ScyllaArchive {
    timeout: Duration,
    connector: Arc<Connector>,
    known: KnownBuckets,
    decompressor: Arc<Decompressor>,
}

impl ScyllaArchive {
    /// The archive in this keyspace, to which the first call connects. The name of the keyspace is not case-sensitive,
    /// as usual in CQL.
    pub fn open(url: &ScyllaUrl, options: ArchiveOptions<'_>) -> Result<Self, ArchiveError> {
        let mut url = url.clone();
        url.keyspace.make_ascii_lowercase();
        // It becomes part of statements.
        if !url.keyspace.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return Err(ArchiveError::Refused(format!("{:?} is not the name of a keyspace", url.keyspace)));
        }
        let ArchiveOptions { timeout, tls } = options;
        let tls = if url.tls { Some(tls::config(tls.unwrap_or(&ClientTls::default()))?) } else { None };
        let connector = Arc::new(Connector::new(url, tls, timeout));
        Ok(Self { timeout, connector, known: KnownBuckets::default(), decompressor: Arc::default() })
    }

    async fn page(
        &self,
        conversation: &ConversationKey,
        range: SeqRange,
        direction: Direction,
        (limit, form, now): (usize, PayloadForm, UnixMillis),
        known: Option<&KnownBuckets>,
    ) -> Result<ArchivePage, ArchiveError> {
        self.within(async {
            let link = self.connector.link().await?;
            let read = |opener| {
                let page = PageBuilder::new(conversation, range, direction, (limit, now), opener);
                read::page(&link, page, conversation, direction, now, known)
            };
            Ok(page::with_dictionaries(self, &self.decompressor, form, read).await?.page)
        })
        .await
    }

    /// Ends within the timeout, whatever the server does.
    async fn within<T>(
        &self,
        call: impl Future<Output = Result<T, ArchiveError>>,
    ) -> Result<T, ArchiveError> {
        time::timeout(self.timeout, call).await.unwrap_or_else(|_| {
            Err(ArchiveError::Unavailable(format!("no answer within {:?}", self.timeout)))
        })
    }
}

#[async_trait]
impl ArchiveStore for ScyllaArchive {
    async fn prepare(&self) -> Result<(), ArchiveError> {
        self.within(async { self.connector.link().await.map(drop) }).await
    }

    async fn renew_tls(&self, tls: &ClientTls) -> Result<(), ArchiveError> {
        self.connector.renew(tls).await
    }

    async fn ping(&self) -> Result<(), ArchiveError> {
        self.within(async {
            let link = self.connector.link().await?;
            link.rows::<(i32,)>(&link.statements.schema_version, ()).await.map(drop)
        })
        .await
    }

    async fn put(
        &self,
        conversation: &ConversationKey,
        records: &[StoredRecord],
        now: UnixMillis,
    ) -> Result<PutReport, ArchiveError> {
        assert_batch(records);
        if records.is_empty() {
            return Ok(PutReport::default());
        }
        let rows = Row::all_with_dictionaries(self, records, &self.decompressor).await?;
        self.within(async {
            let link = self.connector.link().await?;
            put::put(&link, conversation, &rows, now).await
        })
        .await
    }

    async fn rows(
        &self,
        conversation: &ConversationKey,
        range: SeqRange,
        now: UnixMillis,
    ) -> Result<Vec<StoredRow>, ArchiveError> {
        assert!(range.below.saturating_sub(range.from) <= MARKS_WIDTH_MAX, "a range of rows is narrow");
        self.within(async {
            let link = self.connector.link().await?;
            read::stored_rows(&link, conversation, range, now).await
        })
        .await
    }

    async fn marks_of(
        &self,
        conversation: &ConversationKey,
        records: &[StoredRecord],
        now: UnixMillis,
    ) -> Result<Vec<RowMark>, ArchiveError> {
        self.within(async {
            let link = self.connector.link().await?;
            read::marks_of(&link, conversation, records, now).await
        })
        .await
    }

    async fn read(
        &self,
        conversation: &ConversationKey,
        range: SeqRange,
        direction: Direction,
        limit: usize,
        now: UnixMillis,
    ) -> Result<ArchivePage, ArchiveError> {
        self.page(conversation, range, direction, (limit, PayloadForm::Plain, now), None).await
    }

    async fn read_settled(
        &self,
        conversation: &ConversationKey,
        range: SeqRange,
        direction: Direction,
        (limit, form): (usize, PayloadForm),
        now: UnixMillis,
    ) -> Result<ArchivePage, ArchiveError> {
        self.page(conversation, range, direction, (limit, form, now), Some(&self.known)).await
    }

    async fn earliest(
        &self,
        conversation: &ConversationKey,
        range: SeqRange,
        now: UnixMillis,
    ) -> Result<Option<Earliest>, ArchiveError> {
        self.within(async {
            let link = self.connector.link().await?;
            let link = &link;
            page::earliest(range, |rest| {
                page::with_dictionaries(self, &self.decompressor, PayloadForm::Plain, move |opener| {
                    let page = PageBuilder::new(conversation, rest, Direction::Forwards, (1, now), opener);
                    read::page(link, page, conversation, Direction::Forwards, now, None)
                })
            })
            .await
        })
        .await
    }

    async fn find_client_ids(
        &self,
        conversation: &ConversationKey,
        ids: &[ClientIdHash],
        now: UnixMillis,
    ) -> Result<Vec<Option<CommittedId>>, ArchiveError> {
        assert!(ids.len() <= FIND_CLIENT_IDS_MAX, "at most {FIND_CLIENT_IDS_MAX} ids are looked up at once");
        self.within(async {
            let link = self.connector.link().await?;
            client_ids::find(&link, conversation, ids, now).await
        })
        .await
    }

    async fn high_water(&self, conversation: &ConversationKey) -> Result<u64, ArchiveError> {
        self.within(async {
            let link = self.connector.link().await?;
            put::high_water(&link, conversation).await
        })
        .await
    }

    async fn raise_high_water(&self, conversation: &ConversationKey, seq: u64) -> Result<(), ArchiveError> {
        self.within(async { put::raise_high_water(&*self.connector.link().await?, conversation, seq).await })
            .await
    }

    async fn is_empty(&self) -> Result<bool, ArchiveError> {
        self.within(async { gaps::is_empty(&*self.connector.link().await?).await }).await
    }

    async fn found(&self) -> Result<(), ArchiveError> {
        self.within(async { gaps::found(&*self.connector.link().await?).await }).await
    }

    async fn note_gap(&self, conversation: &ConversationKey, gap: Gap) -> Result<(), ArchiveError> {
        self.within(async { gaps::note(&*self.connector.link().await?, conversation, gap).await }).await
    }

    async fn gaps(&self, conversation: &ConversationKey) -> Result<Vec<Gap>, ArchiveError> {
        self.within(async { gaps::of(&*self.connector.link().await?, conversation).await }).await
    }

    async fn count(&self, conversation: &ConversationKey, now: UnixMillis) -> Result<u64, ArchiveError> {
        self.within(async {
            let link = self.connector.link().await?;
            read::count(&link, conversation, now).await
        })
        .await
    }

    /// Nothing to do: rows go by their TTL.
    async fn maintain(&self, _now: UnixMillis) -> Result<MaintenanceReport, ArchiveError> {
        Ok(MaintenanceReport::default())
    }
}
