//! What a page costs: one hot call, and below the floor one read of the archive more.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use qim_core::{ClientIdHash, ConversationKey, Dictionary, PayloadForm, Record, UnixMillis};
use qim_store::archive::{
    ArchiveError, ArchivePage, CommittedId, DictionaryMark, DictionaryStore, Direction, Earliest, Gap,
    MaintenanceReport, PutReport, RowMark, SeqRange, StoredRecord, StoredRow,
};
use qim_store::tiered::{Page, Position, PullRequest, TieredDraft};
use qim_store::{ArchiveStore, TieredMessageStore};
use support::*;

/// An archive that counts what is read.
struct Counting {
    archive: Arc<dyn ArchiveStore>,
    reads: Arc<AtomicUsize>,
}

impl Counting {
    fn read_once(&self) -> &dyn ArchiveStore {
        self.reads.fetch_add(1, Ordering::Relaxed);
        &*self.archive
    }
}

#[async_trait]
impl DictionaryStore for Counting {
    async fn dictionaries(&self) -> Result<Vec<DictionaryMark>, ArchiveError> {
        self.read_once().dictionaries().await
    }

    async fn dictionary(&self, id: u32) -> Result<Option<Bytes>, ArchiveError> {
        self.read_once().dictionary(id).await
    }

    async fn add_dictionary(&self, dictionary: &Dictionary) -> Result<(), ArchiveError> {
        self.archive.add_dictionary(dictionary).await
    }

    async fn raise_dictionary(&self, id: u32, needed_until: UnixMillis) -> Result<(), ArchiveError> {
        self.archive.raise_dictionary(id, needed_until).await
    }

    async fn delete_dictionary(&self, id: u32) -> Result<(), ArchiveError> {
        self.archive.delete_dictionary(id).await
    }
}

#[async_trait]
impl ArchiveStore for Counting {
    async fn prepare(&self) -> Result<(), ArchiveError> {
        self.archive.prepare().await
    }

    async fn ping(&self) -> Result<(), ArchiveError> {
        self.archive.ping().await
    }

    async fn put(
        &self,
        conversation: &ConversationKey,
        records: &[StoredRecord],
        now: UnixMillis,
    ) -> Result<PutReport, ArchiveError> {
        self.archive.put(conversation, records, now).await
    }

    async fn marks(
        &self,
        conversation: &ConversationKey,
        range: SeqRange,
        now: UnixMillis,
    ) -> Result<Vec<RowMark>, ArchiveError> {
        self.read_once().marks(conversation, range, now).await
    }

    async fn marks_of(
        &self,
        conversation: &ConversationKey,
        records: &[StoredRecord],
        now: UnixMillis,
    ) -> Result<Vec<RowMark>, ArchiveError> {
        self.read_once().marks_of(conversation, records, now).await
    }

    async fn read(
        &self,
        conversation: &ConversationKey,
        range: SeqRange,
        direction: Direction,
        limit: usize,
        now: UnixMillis,
    ) -> Result<ArchivePage, ArchiveError> {
        self.read_once().read(conversation, range, direction, limit, now).await
    }

    async fn read_settled(
        &self,
        conversation: &ConversationKey,
        range: SeqRange,
        direction: Direction,
        size: (usize, PayloadForm),
        now: UnixMillis,
    ) -> Result<ArchivePage, ArchiveError> {
        self.read_once().read_settled(conversation, range, direction, size, now).await
    }

    async fn rows(
        &self,
        conversation: &ConversationKey,
        range: SeqRange,
        now: UnixMillis,
    ) -> Result<Vec<StoredRow>, ArchiveError> {
        self.read_once().rows(conversation, range, now).await
    }

    async fn is_empty(&self) -> Result<bool, ArchiveError> {
        self.read_once().is_empty().await
    }

    async fn note_gap(&self, conversation: &ConversationKey, gap: Gap) -> Result<(), ArchiveError> {
        self.archive.note_gap(conversation, gap).await
    }

    async fn gaps(&self, conversation: &ConversationKey) -> Result<Vec<Gap>, ArchiveError> {
        self.read_once().gaps(conversation).await
    }

    async fn earliest(
        &self,
        conversation: &ConversationKey,
        range: SeqRange,
        now: UnixMillis,
    ) -> Result<Option<Earliest>, ArchiveError> {
        self.read_once().earliest(conversation, range, now).await
    }

    async fn find_client_ids(
        &self,
        conversation: &ConversationKey,
        ids: &[ClientIdHash],
        now: UnixMillis,
    ) -> Result<Vec<Option<CommittedId>>, ArchiveError> {
        self.read_once().find_client_ids(conversation, ids, now).await
    }

    async fn high_water(&self, conversation: &ConversationKey) -> Result<u64, ArchiveError> {
        self.read_once().high_water(conversation).await
    }

    async fn count(&self, conversation: &ConversationKey, now: UnixMillis) -> Result<u64, ArchiveError> {
        self.read_once().count(conversation, now).await
    }

    async fn maintain(&self, now: UnixMillis) -> Result<MaintenanceReport, ArchiveError> {
        self.archive.maintain(now).await
    }
}

/// Both tiers, and what is asked of them.
struct Costs {
    tiers: Tiers,
    reads: Arc<AtomicUsize>,
    redis: redis::aio::MultiplexedConnection,
}

impl Costs {
    async fn start() -> Self {
        let reads = Arc::new(AtomicUsize::new(0));
        let mut tiers = tiers();
        let archive = open_archive(&format!("sqlite:{}", tiers.dir.path().join("archive.db").display()));
        let counting = Arc::new(Counting { archive, reads: reads.clone() });
        tiers.store = TieredMessageStore::with_trim(tiers.store.hot().clone(), counting, WINDOW);
        let redis = raw(&tiers.redis).await;
        Self { tiers, reads, redis }
    }

    /// How often Redis has found something on one of its connections: once a round trip, as nothing here is longer than
    /// what it takes at once.
    async fn calls(&mut self) -> usize {
        let info: String = redis::cmd("INFO").arg("stats").query_async(&mut self.redis).await.unwrap();
        let line = info.lines().find_map(|line| line.strip_prefix("total_reads_processed:")).unwrap();
        line.trim().parse().unwrap()
    }

    /// A page of 5, the hot calls that it took, and the reads of the archive.
    async fn pull(&mut self, conversation: &ConversationKey, position: Position) -> (Page, usize, usize) {
        let request = PullRequest { position, limit: 5, fail_on_expired: false, form: PayloadForm::Plain };
        let (calls, reads) = (self.calls().await, self.reads.load(Ordering::Relaxed));
        let page = self.tiers.store.pull(conversation, request, NOW).await.unwrap();
        // Asking is a call as well.
        let calls = self.calls().await - calls - 1;
        (page, calls, self.reads.load(Ordering::Relaxed) - reads)
    }

    async fn commit(&self, conversation: &ConversationKey, range: std::ops::Range<u64>, last: UnixMillis) {
        let drafts = drafts(range, last).into_iter();
        let drafts: Vec<_> = drafts.map(|draft| TieredDraft { draft, first_sent_at: None }).collect();
        self.tiers.store.commit(conversation, &drafts, last).await.unwrap();
    }

    async fn archive(&self, conversation: &ConversationKey) {
        copy_all(&self.tiers.store, conversation, NOW).await;
        trim_all(&self.tiers.store, conversation, NOW).await;
    }
}

fn seqs_of(page: &Page) -> Vec<u64> {
    page.records.iter().map(|record: &Record| record.seq).collect()
}

#[tokio::test]
async fn a_page_costs_one_hot_call_and_below_the_floor_one_read_of_the_archive() {
    let mut costs = Costs::start().await;
    let [hot, both, resting, nobody] = ["hot", "both", "resting", "nobody"].map(conversation);
    costs.commit(&hot, 0..20, NOW).await;
    costs.commit(&both, 0..10, NOW - 8 * DAY).await;
    costs.commit(&both, 10..12, NOW).await;
    costs.commit(&resting, 0..20, NOW - 8 * DAY).await;
    for conversation in [&both, &resting] {
        costs.archive(conversation).await;
        // The script is there, and the earliest seq is known, from here on.
        costs.pull(conversation, Position::Before(u64::MAX)).await;
        costs.pull(conversation, Position::After(0)).await;
    }
    let newest = Position::Before(u64::MAX);
    for (conversation, position, seqs, reads) in [
        (&hot, newest, 16..=20, 0),
        (&hot, Position::Before(11), 6..=10, 0),
        (&hot, Position::After(0), 1..=5, 0),
        (&both, newest, 8..=12, 1),
        (&both, Position::After(10), 11..=12, 0),
        (&both, Position::Before(6), 1..=5, 1),
        (&resting, newest, 16..=20, 1),
        (&resting, Position::After(3), 4..=8, 1),
    ] {
        let (page, calls, read) = costs.pull(conversation, position).await;
        assert_eq!(seqs_of(&page), seqs.collect::<Vec<_>>(), "{conversation}, {position:?}");
        assert_eq!((calls, read), (1, reads), "{conversation}, {position:?}");
    }
    let (page, calls, read) = costs.pull(&nobody, newest).await;
    assert_eq!((page.records.len(), page.last, calls, read), (0, 0, 1, 0));
}

#[tokio::test]
async fn the_first_page_of_a_conversation_asks_the_archive_for_its_earliest_seq_as_well() {
    let mut costs = Costs::start().await;
    let resting = conversation("resting");
    costs.commit(&resting, 0..20, NOW - 8 * DAY).await;
    costs.archive(&resting).await;
    costs.pull(&conversation("nobody"), Position::Before(u64::MAX)).await;
    let (page, calls, reads) = costs.pull(&resting, Position::Before(u64::MAX)).await;
    assert_eq!((seqs_of(&page), page.earliest_available), ((16..=20).collect(), 1));
    assert_eq!((calls, reads), (1, 2));
}
