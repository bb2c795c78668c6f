//! A real archive that counts what is read, and fails when it is told to: before it does anything, or after all is done.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use qim_core::{ClientIdHash, ConversationKey, Dictionary, PayloadForm, UnixMillis};
use qim_store::ArchiveStore;
use qim_store::archive::{
    ArchiveError, ArchivePage, CommittedId, DictionaryMark, DictionaryStore, Direction, Earliest, Gap,
    MaintenanceReport, PutReport, RowMark, SeqRange, StoredRecord, StoredRow,
};

/// What happens to calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// None does anything.
    Down,
    /// Each is done, and nobody learns that in time.
    Slow,
    /// After so many calls one fails, before or after it is done; then none.
    Once {
        after: usize,
        is_done: bool,
    },
}

/// The archive behind it, with a fault.
pub(crate) struct FaultyArchive {
    inner: Arc<dyn ArchiveStore>,
    fault: Mutex<Fault>,
    reads: AtomicUsize,
}

enum Fate {
    Succeeds,
    Fails,
    FailsWhenDone,
}

impl FaultyArchive {
    pub(crate) fn new(inner: Arc<dyn ArchiveStore>) -> Self {
        Self { inner, fault: Mutex::new(Fault::None), reads: AtomicUsize::new(0) }
    }

    /// From here on; answers what was so far.
    pub(crate) fn set(&self, fault: Fault) -> Fault {
        std::mem::replace(&mut self.fault.lock().unwrap_or_else(PoisonError::into_inner), fault)
    }

    /// Whether calls do what they are asked and say so.
    pub(crate) fn is_well(&self) -> bool {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) == Fault::None
    }

    /// How often it was asked for something.
    pub(crate) fn reads(&self) -> usize {
        self.reads.load(Ordering::Relaxed)
    }

    fn next(&self) -> Fate {
        let mut fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        match *fault {
            Fault::None => Fate::Succeeds,
            Fault::Down => Fate::Fails,
            Fault::Slow => Fate::FailsWhenDone,
            Fault::Once { after: 0, is_done } => {
                *fault = Fault::None;
                if is_done { Fate::FailsWhenDone } else { Fate::Fails }
            }
            Fault::Once { after, is_done } => {
                *fault = Fault::Once { after: after - 1, is_done };
                Fate::Succeeds
            }
        }
    }

    async fn read_call<T>(
        &self,
        read: impl Future<Output = Result<T, ArchiveError>>,
    ) -> Result<T, ArchiveError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.call(read).await
    }

    async fn call<T>(&self, act: impl Future<Output = Result<T, ArchiveError>>) -> Result<T, ArchiveError> {
        let lost = || Err(ArchiveError::Unavailable("as told".to_owned()));
        match self.next() {
            Fate::Succeeds => act.await,
            Fate::Fails => lost(),
            Fate::FailsWhenDone => act.await.and_then(|_| lost()),
        }
    }
}

#[async_trait]
impl DictionaryStore for FaultyArchive {
    async fn dictionaries(&self) -> Result<Vec<DictionaryMark>, ArchiveError> {
        self.read_call(self.inner.dictionaries()).await
    }

    async fn dictionary(&self, id: u32) -> Result<Option<Bytes>, ArchiveError> {
        self.read_call(self.inner.dictionary(id)).await
    }

    async fn add_dictionary(&self, dictionary: &Dictionary) -> Result<(), ArchiveError> {
        self.call(self.inner.add_dictionary(dictionary)).await
    }

    async fn raise_dictionary(&self, id: u32, needed_until: UnixMillis) -> Result<(), ArchiveError> {
        self.call(self.inner.raise_dictionary(id, needed_until)).await
    }

    async fn delete_dictionary(&self, id: u32) -> Result<(), ArchiveError> {
        self.call(self.inner.delete_dictionary(id)).await
    }
}

#[async_trait]
impl ArchiveStore for FaultyArchive {
    async fn prepare(&self) -> Result<(), ArchiveError> {
        self.call(self.inner.prepare()).await
    }

    async fn ping(&self) -> Result<(), ArchiveError> {
        self.call(self.inner.ping()).await
    }

    async fn put(
        &self,
        conversation: &ConversationKey,
        records: &[StoredRecord],
        now: UnixMillis,
    ) -> Result<PutReport, ArchiveError> {
        self.call(self.inner.put(conversation, records, now)).await
    }

    async fn rows(
        &self,
        conversation: &ConversationKey,
        range: SeqRange,
        now: UnixMillis,
    ) -> Result<Vec<StoredRow>, ArchiveError> {
        self.read_call(self.inner.rows(conversation, range, now)).await
    }

    async fn marks_of(
        &self,
        conversation: &ConversationKey,
        records: &[StoredRecord],
        now: UnixMillis,
    ) -> Result<Vec<RowMark>, ArchiveError> {
        self.read_call(self.inner.marks_of(conversation, records, now)).await
    }

    async fn read(
        &self,
        conversation: &ConversationKey,
        range: SeqRange,
        direction: Direction,
        limit: usize,
        now: UnixMillis,
    ) -> Result<ArchivePage, ArchiveError> {
        self.read_call(self.inner.read(conversation, range, direction, limit, now)).await
    }

    async fn read_settled(
        &self,
        conversation: &ConversationKey,
        range: SeqRange,
        direction: Direction,
        size: (usize, PayloadForm),
        now: UnixMillis,
    ) -> Result<ArchivePage, ArchiveError> {
        self.read_call(self.inner.read_settled(conversation, range, direction, size, now)).await
    }

    async fn earliest(
        &self,
        conversation: &ConversationKey,
        range: SeqRange,
        now: UnixMillis,
    ) -> Result<Option<Earliest>, ArchiveError> {
        self.read_call(self.inner.earliest(conversation, range, now)).await
    }

    async fn find_client_ids(
        &self,
        conversation: &ConversationKey,
        ids: &[ClientIdHash],
        now: UnixMillis,
    ) -> Result<Vec<Option<CommittedId>>, ArchiveError> {
        self.read_call(self.inner.find_client_ids(conversation, ids, now)).await
    }

    async fn high_water(&self, conversation: &ConversationKey) -> Result<u64, ArchiveError> {
        self.read_call(self.inner.high_water(conversation)).await
    }

    async fn raise_high_water(&self, conversation: &ConversationKey, seq: u64) -> Result<(), ArchiveError> {
        self.call(self.inner.raise_high_water(conversation, seq)).await
    }

    async fn is_empty(&self) -> Result<bool, ArchiveError> {
        self.read_call(self.inner.is_empty()).await
    }

    async fn found(&self) -> Result<(), ArchiveError> {
        self.call(self.inner.found()).await
    }

    async fn note_gap(&self, conversation: &ConversationKey, gap: Gap) -> Result<(), ArchiveError> {
        self.call(self.inner.note_gap(conversation, gap)).await
    }

    async fn gaps(&self, conversation: &ConversationKey) -> Result<Vec<Gap>, ArchiveError> {
        self.read_call(self.inner.gaps(conversation)).await
    }

    async fn count(&self, conversation: &ConversationKey, now: UnixMillis) -> Result<u64, ArchiveError> {
        self.read_call(self.inner.count(conversation, now)).await
    }

    async fn maintain(&self, now: UnixMillis) -> Result<MaintenanceReport, ArchiveError> {
        self.call(self.inner.maintain(now)).await
    }
}
