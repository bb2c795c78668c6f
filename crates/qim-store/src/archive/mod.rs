//! The archive tier: where records stay until their date once they have left the hot window.

mod cql;
mod dictionaries;
mod id_chunks;
mod page;
mod row;
mod sqlite;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use qim_core::{
    ArchiveUrl, ClientIdHash, ClientTls, CodecError, ConversationKey, EncodedRecord, PayloadForm, Record,
    UnixMillis,
};

pub use cql::ScyllaArchive;
pub use dictionaries::{DictionaryMark, DictionaryStore};
pub use sqlite::SqliteArchive;

/// Most records in one [`ArchiveStore::put`].
pub const PUT_RECORDS_MAX: usize = 512;
/// Widest range of one [`ArchiveStore::rows`] and [`ArchiveStore::marks`].
pub const MARKS_WIDTH_MAX: u64 = 512;
/// Most records in one [`ArchiveStore::read`].
pub const READ_RECORDS_MAX: usize = 500;
/// Most ids in one [`ArchiveStore::find_client_ids`].
pub const FIND_CLIENT_IDS_MAX: usize = 500;
/// How long after its `created_at` the client id of a record is remembered.
pub const CLIENT_ID_RETENTION: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// How a store is used, whichever it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArchiveOptions<'a> {
    /// The longest that one call takes (`QIM_ARCHIVE_TIMEOUT`).
    pub timeout: Duration,
    /// How connections are secured, where the URL says that they are; `None`: as the system sees fit.
    pub tls: Option<&'a ClientTls>,
}

impl Default for ArchiveOptions<'_> {
    /// Five seconds: longer than a healthy archive ever takes, and short enough for a caller to wait.
    fn default() -> Self {
        Self { timeout: Duration::from_secs(5), tls: None }
    }
}

/// The archive that `url` names. Does not connect yet: see [`ArchiveStore::prepare`].
pub fn open(url: &ArchiveUrl, options: ArchiveOptions<'_>) -> Result<Arc<dyn ArchiveStore>, ArchiveError> {
    Ok(match url {
        ArchiveUrl::Scylla(url) => Arc::new(ScyllaArchive::open(url, options)?),
        ArchiveUrl::Sqlite(path) => Arc::new(SqliteArchive::open(path, options)),
    })
}

/// A record as the hot tier gave it, in the encoding that both tiers store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRecord {
    /// Its place in the conversation.
    pub seq: u64,
    /// All of it. The payload was not opened.
    pub encoded: EncodedRecord,
}

/// What a [`ArchiveStore::put`] did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PutReport {
    /// Rows that were not there before. A record that has expired counts here whether or not the store wrote it.
    pub written: u64,
    /// Rows that were there, equal to the byte.
    pub unchanged: u64,
    /// Rows among `written` whose TTL the store had to cut short of their date.
    pub clamped: u64,
}

/// Seqs that were given and whose records are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The first seq.
    pub from: u64,
    /// The last seq.
    pub to: u64,
    /// When it was noticed that data may have been lost, by the clock of the server that was.
    pub noticed_at: UnixMillis,
}

/// A row as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRow {
    /// Its place in the conversation.
    pub seq: u64,
    /// When it expires; `None`: never by itself.
    pub expires_at: Option<UnixMillis>,
    /// The encoded record.
    pub encoded: Bytes,
}

/// What tells an archived row from another one, made of the row as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowMark {
    /// Its place in the conversation.
    pub seq: u64,
    /// When it expires; `None`: never by itself.
    pub expires_at: Option<UnixMillis>,
    /// [`record_digest`] of its encoded record.
    pub digest: u64,
}

/// The lowest record that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Earliest {
    /// Its place in the conversation.
    pub seq: u64,
    /// Until when it stays the earliest, as records before it do not come back. `None`: until somebody ends it.
    pub expires_at: Option<UnixMillis>,
}

/// A message that was committed under this client id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommittedId {
    /// The seq it was given.
    pub seq: u64,
    /// [`qim_core::body_digest`] of the message.
    pub body_digest: u64,
    /// The date it was given.
    pub created_at: UnixMillis,
    /// When it expires; `None`: never by itself.
    pub expires_at: Option<UnixMillis>,
}

/// Which end of a range a read starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the low end: the records next above `from`.
    Forwards,
    /// From the high end: the records next below `below`.
    Backwards,
}

/// Which records to read: those with `from <= seq < below`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeqRange {
    /// The lowest seq; at least 1.
    pub from: u64,
    /// One above the highest seq.
    pub below: u64,
}

/// A stored row that is not a record. It is never served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedRow {
    /// Its place in the conversation.
    pub seq: u64,
    /// What is wrong with it.
    pub reason: String,
}

/// A page of archived records.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArchivePage {
    /// Unexpired records in ascending order of seq, whichever the direction.
    pub records: Vec<Record>,
    /// Rows of the page that are damaged.
    pub damaged: Vec<DamagedRow>,
    /// Where the rest of the range begins when the read stopped before its end: the next `from` forwards, the next
    /// `below` backwards. `None`: the whole range was looked at.
    pub next: Option<u64>,
}

/// What a [`ArchiveStore::maintain`] did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MaintenanceReport {
    /// Expired rows deleted.
    pub rows_deleted: u64,
    /// Bytes given back to the file system.
    pub bytes_freed: u64,
    /// Expired rows are left: call again.
    pub more: bool,
}

/// Why the archive did not do what it was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ArchiveError {
    /// It cannot be reached, is overloaded, did not answer in time, or its disk is full or fails: whether the act
    /// happened is unknown. Try again later.
    #[error("the archive is unavailable: {0}")]
    Unavailable(String),
    /// There is another record under this seq of this conversation. Nothing was changed. Stop: somebody has to look.
    #[error("the archive holds another record under seq {seq}")]
    Conflict {
        /// The lowest such seq of the batch.
        seq: u64,
    },
    /// The payload of the record under this seq cannot be opened. Nothing was changed.
    #[error("the record at seq {seq} is damaged: {reason}")]
    Damaged {
        /// The lowest such seq of the batch.
        seq: u64,
        /// What is wrong with it.
        reason: CodecError,
    },
    /// The stored data was made by a newer qim. Stop: refuse to start.
    #[error("the archive has schema version {found}; this qim knows {known}: use a newer one")]
    SchemaTooNew {
        /// The stored version.
        found: u32,
        /// The newest version this program knows.
        known: u32,
    },
    /// It answers, and refuses: wrong password, missing right, a statement it does not take. Trying again
    /// helps only after somebody acted.
    #[error("the archive refuses: {0}")]
    Refused(String),
}

impl ArchiveError {
    /// Whether the same call may succeed later without anybody acting.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }
}

/// XXH3-64 of an encoded record: what [`RowMark::digest`] is compared with.
pub fn record_digest(encoded: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(encoded)
}

/// The archive tier (DESIGN, "Archive tier"): a conversation's records by seq, each gone at its date.
///
/// Rules for every implementation, held by the conformance suite in `tests/archive_conformance.rs`:
///
/// - **Durable before it says so.** What `put` acknowledged survives the loss of this process.
/// - **Idempotent.** Repeating any call changes nothing. A record is never replaced by another one.
/// - **Never past the date.** No read answers a record at or after its `expires_at` by the `now` of the call, whether
///   or not the row is physically gone. Rows go by themselves within 5 s of their date; a held record (`expires_at`
///   is `None`) never does.
/// - **Bounded.** Every call ends within the configured timeout with [`ArchiveError::Unavailable`] at the latest,
///   whatever the server does; every read touches a bounded number of rows.
/// - **With its dictionaries.** A payload that needs a dictionary is opened with the one that the store itself has
///   ([`DictionaryStore`]); where that is missing, the record is damaged.
/// - **Lazy.** Opening a store does not need its server: it connects on the first call, and again after it was lost.
#[async_trait]
pub trait ArchiveStore: DictionaryStore {
    /// Connects, and creates or migrates the schema. Called at start; a caller goes on without the archive when this
    /// is [`ArchiveError::Unavailable`], since every other call does the same first where it has not been done.
    async fn prepare(&self) -> Result<(), ArchiveError>;

    /// Goes on with these certificates where a connection over TLS can be made with them; else nothing changes. For an
    /// archive that is not reached over TLS, nothing at all.
    async fn renew_tls(&self, _tls: &ClientTls) -> Result<(), ArchiveError> {
        Ok(())
    }

    /// Whether it answers now.
    async fn ping(&self) -> Result<(), ArchiveError>;

    /// Copies records of one conversation: at most 512, ascending by seq. Each row lives for the time its record has
    /// left at `now` ([`qim_core::RowTtl`]); one that has expired is written to go at once, or not at all. Remembers
    /// the client id of each for 90 days after its `created_at`, and for as long as the record lives (20 years where it
    /// never expires), and raises the high-water mark. [`ArchiveError::Conflict`] where another record stands under one
    /// of the seqs, or a row too damaged to tell, and [`ArchiveError::Damaged`] where a payload cannot be opened: then
    /// nothing is changed. One that fails otherwise may have done a part of it; doing it again does the rest. Of one
    /// conversation there is one caller at a time: two that put different records under one seq at the same moment are
    /// not found out by every store.
    async fn put(
        &self,
        conversation: &ConversationKey,
        records: &[StoredRecord],
        now: UnixMillis,
    ) -> Result<PutReport, ArchiveError>;

    /// The unexpired rows with `from <= seq < below`, ascending; the range is at most 512 wide. One without a readable
    /// date or record is left out.
    async fn rows(
        &self,
        conversation: &ConversationKey,
        range: SeqRange,
        now: UnixMillis,
    ) -> Result<Vec<StoredRow>, ArchiveError>;

    /// The marks of [`Self::rows`]: a damaged row has none, so that whoever relies on marks takes it for missing.
    async fn marks(
        &self,
        conversation: &ConversationKey,
        range: SeqRange,
        now: UnixMillis,
    ) -> Result<Vec<RowMark>, ArchiveError> {
        let rows = self.rows(conversation, range, now).await?;
        let mark = |StoredRow { seq, expires_at, encoded }| RowMark {
            seq,
            expires_at,
            digest: record_digest(&encoded),
        };
        Ok(rows.into_iter().map(mark).collect())
    }

    /// The marks of the unexpired rows of these records of one put, in a range at most 512 wide. They are looked for
    /// where that put has written them, and not by the way that a reader takes to them: [`Self::marks`] goes that way,
    /// before anything is trimmed. Rows that lie between them may be among the answers.
    async fn marks_of(
        &self,
        conversation: &ConversationKey,
        records: &[StoredRecord],
        now: UnixMillis,
    ) -> Result<Vec<RowMark>, ArchiveError>;

    /// Up to `limit` (1..=500) unexpired records of the range, from the end that `direction` names, and no more than
    /// about 3 MiB of them (but at least one). Damaged rows count towards `limit`. A page may hold fewer, or none, and
    /// still say where the rest begins: only a bounded number of expired rows is looked at.
    async fn read(
        &self,
        conversation: &ConversationKey,
        range: SeqRange,
        direction: Direction,
        limit: usize,
        now: UnixMillis,
    ) -> Result<ArchivePage, ArchiveError>;

    /// [`Self::read`] of a range into which nothing is put any more, as below the floor of the hot tier: what an earlier
    /// such read learned of it may stand for another look. Payloads come as the reader takes them.
    async fn read_settled(
        &self,
        conversation: &ConversationKey,
        range: SeqRange,
        direction: Direction,
        (limit, form): (usize, PayloadForm),
        now: UnixMillis,
    ) -> Result<ArchivePage, ArchiveError>;

    /// The lowest unexpired record of the range; `None` when there is none.
    async fn earliest(
        &self,
        conversation: &ConversationKey,
        range: SeqRange,
        now: UnixMillis,
    ) -> Result<Option<Earliest>, ArchiveError>;

    /// For each id (1..=500): what was committed under it and is remembered, in their order.
    async fn find_client_ids(
        &self,
        conversation: &ConversationKey,
        ids: &[ClientIdHash],
        now: UnixMillis,
    ) -> Result<Vec<Option<CommittedId>>, ArchiveError>;

    /// The highest seq ever put, whether or not its record has expired; 0 for a conversation that never had one. Never
    /// below a stored seq; a put that failed may have raised it, too.
    async fn high_water(&self, conversation: &ConversationKey) -> Result<u64, ArchiveError>;

    /// Says that seqs up to this one (1..) were given, whatever became of their records. A lower one changes nothing.
    async fn raise_high_water(&self, conversation: &ConversationKey, seq: u64) -> Result<(), ArchiveError>;

    /// Whether it never had a record of any conversation, and no deployment ever began on it.
    async fn is_empty(&self) -> Result<bool, ArchiveError>;

    /// Says for ever that a deployment has begun: it is not empty from then on. Repeating it changes nothing.
    async fn found(&self) -> Result<(), ArchiveError>;

    /// Notes for ever that the records of these seqs are lost, and raises the high-water mark to the last of them, so that
    /// they are never given again. Repeating it changes nothing.
    async fn note_gap(&self, conversation: &ConversationKey, gap: Gap) -> Result<(), ArchiveError>;

    /// The noted gaps of a conversation, ascending.
    async fn gaps(&self, conversation: &ConversationKey) -> Result<Vec<Gap>, ArchiveError>;

    /// How many unexpired records it holds. The one call whose work grows with the conversation.
    async fn count(&self, conversation: &ConversationKey, now: UnixMillis) -> Result<u64, ArchiveError>;

    /// A bounded piece of the store's own upkeep: deletes expired rows where the server does not do it by itself, and
    /// gives their space back. Safe to call from several processes.
    async fn maintain(&self, now: UnixMillis) -> Result<MaintenanceReport, ArchiveError>;
}
