//! The archive in one `SQLite` file: the default on one machine. Both daemons open the same file.

mod client_ids;
mod database;
mod dictionaries;
mod gaps;
mod put;
mod queries;
mod readers;
mod statements;
mod upkeep;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use qim_core::{ClientIdHash, ConversationKey, Decompressor, PayloadForm, UnixMillis};
use rusqlite::Connection;
use tokio::time::Instant;

use self::database::Database;
use self::readers::Readers;
use self::writer::Writer;
use super::page::{self, Page, PageBuilder, assert_batch};
use super::row::Row;
use super::{
    ArchiveError, ArchiveOptions, ArchivePage, ArchiveStore, CommittedId, Direction, Earliest,
    FIND_CLIENT_IDS_MAX, Gap, MARKS_WIDTH_MAX, MaintenanceReport, PutReport, RowMark, SeqRange, StoredRecord,
    StoredRow,
};

/// The archive in one file. One connection writes, in a thread of its own, and a few read.
pub struct SqliteArchive {
    timeout: Duration,
    /// The file and its schema were there once.
    is_prepared: AtomicBool,
    writer: Writer,
    readers: Readers,
    decompressor: Arc<Decompressor>,
}

impl SqliteArchive {
    /// The archive in this file, which the first call opens or creates.
    pub fn open(path: impl AsRef<Path>, options: ArchiveOptions<'_>) -> Self {
        let ArchiveOptions { timeout, .. } = options;
        // Waiting for the other daemon's transaction ends before the caller stops waiting, so that he learns why.
        let database = Arc::new(Database::new(PathBuf::from(path.as_ref()), timeout * 3 / 4));
        Self {
            timeout,
            is_prepared: AtomicBool::new(false),
            writer: Writer::start(database.clone()),
            readers: Readers::new(database),
            decompressor: Arc::default(),
        }
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    async fn prepare_by(&self, deadline: Instant) -> Result<(), ArchiveError> {
        if !self.is_prepared.load(Ordering::Acquire) {
            self.writer.open(deadline).await?;
            self.is_prepared.store(true, Ordering::Release);
        }
        Ok(())
    }

    async fn read_by<T, F>(&self, deadline: Instant, act: F) -> Result<T, ArchiveError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        self.prepare_by(deadline).await?;
        self.readers.read(deadline, act).await
    }

    async fn page(
        &self,
        conversation: &ConversationKey,
        range: SeqRange,
        direction: Direction,
        (limit, form, now): (usize, PayloadForm, UnixMillis),
        deadline: Instant,
    ) -> Result<Page, ArchiveError> {
        page::with_dictionaries(self, &self.decompressor, form, |opener| {
            let conversation = conversation.clone();
            self.read_by(deadline, move |connection| {
                let page = PageBuilder::new(&conversation, range, direction, (limit, now), opener);
                queries::page(connection, page, &conversation, direction, now)
            })
        })
        .await
    }
}

#[async_trait]
impl ArchiveStore for SqliteArchive {
    async fn prepare(&self) -> Result<(), ArchiveError> {
        self.prepare_by(self.deadline()).await
    }

    async fn ping(&self) -> Result<(), ArchiveError> {
        self.read_by(self.deadline(), |connection| {
            connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))
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
        let conversation = conversation.clone();
        let rows = Row::all_with_dictionaries(self, records, &self.decompressor).await?;
        let put = move |connection: &Connection| put::put(connection, &conversation, &rows, now);
        let report = self.writer.write(self.deadline(), put).await?;
        self.is_prepared.store(true, Ordering::Release);
        Ok(report)
    }

    async fn rows(
        &self,
        conversation: &ConversationKey,
        range: SeqRange,
        now: UnixMillis,
    ) -> Result<Vec<StoredRow>, ArchiveError> {
        assert!(range.below.saturating_sub(range.from) <= MARKS_WIDTH_MAX, "a range of rows is narrow");
        let conversation = conversation.clone();
        let rows = move |connection: &Connection| queries::rows(connection, &conversation, range, now);
        self.read_by(self.deadline(), rows).await
    }

    /// There is one way to a row.
    async fn marks_of(
        &self,
        conversation: &ConversationKey,
        records: &[StoredRecord],
        now: UnixMillis,
    ) -> Result<Vec<RowMark>, ArchiveError> {
        let (Some(first), Some(last)) = (records.first(), records.last()) else { return Ok(Vec::new()) };
        self.marks(conversation, SeqRange { from: first.seq, below: last.seq + 1 }, now).await
    }

    async fn read(
        &self,
        conversation: &ConversationKey,
        range: SeqRange,
        direction: Direction,
        limit: usize,
        now: UnixMillis,
    ) -> Result<ArchivePage, ArchiveError> {
        self.read_settled(conversation, range, direction, (limit, PayloadForm::Plain), now).await
    }

    async fn read_settled(
        &self,
        conversation: &ConversationKey,
        range: SeqRange,
        direction: Direction,
        (limit, form): (usize, PayloadForm),
        now: UnixMillis,
    ) -> Result<ArchivePage, ArchiveError> {
        let page = self.page(conversation, range, direction, (limit, form, now), self.deadline()).await?;
        Ok(page.page)
    }

    async fn earliest(
        &self,
        conversation: &ConversationKey,
        range: SeqRange,
        now: UnixMillis,
    ) -> Result<Option<Earliest>, ArchiveError> {
        let deadline = self.deadline();
        let first = (1, PayloadForm::Plain, now);
        page::earliest(range, |rest| self.page(conversation, rest, Direction::Forwards, first, deadline))
            .await
    }

    async fn find_client_ids(
        &self,
        conversation: &ConversationKey,
        ids: &[ClientIdHash],
        now: UnixMillis,
    ) -> Result<Vec<Option<CommittedId>>, ArchiveError> {
        assert!(ids.len() <= FIND_CLIENT_IDS_MAX, "at most {FIND_CLIENT_IDS_MAX} ids are looked up at once");
        let (conversation, ids) = (conversation.clone(), ids.to_vec());
        let find = move |connection: &Connection| client_ids::find(connection, &conversation, &ids, now);
        self.read_by(self.deadline(), find).await
    }

    async fn high_water(&self, conversation: &ConversationKey) -> Result<u64, ArchiveError> {
        let conversation = conversation.clone();
        let high_water = move |connection: &Connection| queries::high_water(connection, &conversation);
        self.read_by(self.deadline(), high_water).await
    }

    async fn is_empty(&self) -> Result<bool, ArchiveError> {
        self.read_by(self.deadline(), gaps::is_empty).await
    }

    async fn found(&self) -> Result<(), ArchiveError> {
        self.writer.write(self.deadline(), gaps::found).await
    }

    async fn raise_high_water(&self, conversation: &ConversationKey, seq: u64) -> Result<(), ArchiveError> {
        let conversation = conversation.clone();
        let raise = move |connection: &Connection| put::raise_high_water(connection, &conversation, seq);
        self.writer.write(self.deadline(), raise).await.map(drop)
    }

    async fn note_gap(&self, conversation: &ConversationKey, gap: Gap) -> Result<(), ArchiveError> {
        let conversation = conversation.clone();
        let note = move |connection: &Connection| gaps::note(connection, &conversation, gap);
        self.writer.write(self.deadline(), note).await
    }

    async fn gaps(&self, conversation: &ConversationKey) -> Result<Vec<Gap>, ArchiveError> {
        let conversation = conversation.clone();
        self.read_by(self.deadline(), move |connection| gaps::of(connection, &conversation)).await
    }

    async fn count(&self, conversation: &ConversationKey, now: UnixMillis) -> Result<u64, ArchiveError> {
        let conversation = conversation.clone();
        let count = move |connection: &Connection| queries::count(connection, &conversation, now);
        self.read_by(self.deadline(), count).await
    }

    async fn maintain(&self, now: UnixMillis) -> Result<MaintenanceReport, ArchiveError> {
        upkeep::maintain(&self.writer, &self.readers, now, self.timeout / 2, self.deadline()).await
    }
}

#[cfg(test)]
mod tests;
