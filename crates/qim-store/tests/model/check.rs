//! What has to be so after every step: everything that a reader can see is what the model says.

use std::collections::BTreeSet;
use std::time::Duration;

use qim_core::{ConversationKey, PayloadForm, Record, UnixMillis};
use qim_store::ArchiveStore as _;
use qim_store::archive::{ArchiveError, SeqRange};
use qim_store::hot::HotError;
use qim_store::tiered::{Page, Position, PullError, PullRequest, TierError};
use qim_testkit::ConversationModel;

use crate::support::Fault;
use crate::support::HOUR;
use crate::world::World;

const PAGE: usize = 30;
/// What the archive answers in one call.
const ROWS: usize = 512;
/// A copy takes less, on the busiest machine. It counts the time that it takes: what had only that long left is not archived.
const COPY_MAX: Duration = Duration::from_mins(1);

impl World {
    /// All of it, of all conversations; first through the faults there are, then without.
    pub(crate) async fn check(&mut self) {
        for conversation in 0..self.models.len() {
            self.check_newest_page(conversation).await;
        }
        let fault = self.archive.set(Fault::None);
        for conversation in 0..self.models.len() {
            self.check_reads(conversation).await;
            self.check_marks(conversation).await;
            self.check_rows(conversation).await;
        }
        self.check_indexes().await;
        self.archive.set(fault);
    }

    /// A page may fail, but what it shows and says is so: there is nothing between its records, and nothing before them
    /// where it says so.
    async fn check_newest_page(&self, conversation: usize) {
        let model = &self.models[conversation];
        let newest = || self.try_pull(model.conversation(), Position::Before(u64::MAX), 7);
        let page = match self.once_checked(newest).await {
            Err(PullError::Archive(_)) => return,
            // A dictionary that Redis has lost is in the archive only.
            Err(PullError::Hot(HotError::Unavailable(_))) if self.has_lost => return,
            page => page.unwrap(),
        };
        let from = if page.has_more { page.next_seq } else { 1 };
        let must = model.alive(self.latest).into_iter().filter(|seq| *seq >= from);
        self.check_records(model, &page.records, must, "a page under faults");
    }

    async fn check_reads(&mut self, conversation: usize) {
        let model = &self.models[conversation];
        let (must, may) = (model.alive(self.latest), model.alive(self.now));
        let (records, earliest) = self.read_all(model.conversation()).await;
        self.check_records(model, &records, must.iter().copied(), "forwards");
        let possible = model.earliest(self.now)..=model.earliest(self.latest);
        assert!(possible.contains(&earliest), "earliest available {earliest}, not in {possible:?}");
        if self.now == self.latest {
            assert!(earliest >= self.earliest[conversation], "the earliest never goes back");
        }
        let newest = self.pull(model.conversation(), Position::Before(u64::MAX)).await;
        let newest: Vec<u64> = newest.records.iter().map(|record| record.seq).collect();
        if must == may {
            assert!(must.ends_with(&newest) && newest.len() == must.len().min(PAGE), "backwards: {newest:?}");
        }
        if self.now == self.latest {
            self.earliest[conversation] = earliest;
        }
    }

    /// In order, each as it was acknowledged, none expired, and none missing that must be there.
    fn check_records(
        &self,
        model: &ConversationModel,
        records: &[Record],
        must: impl Iterator<Item = u64>,
        what: &str,
    ) {
        for record in records {
            assert_eq!(&record.message(), model.at(record.seq), "seq {} {what}", record.seq);
            assert!(!record.encoded.is_expired(self.now), "seq {} {what} has expired", record.seq);
        }
        assert!(records.is_sorted_by(|a, b| a.seq < b.seq), "{what}: in order");
        let seen: BTreeSet<u64> = records.iter().map(|record| record.seq).collect();
        let missing: Vec<u64> = must.filter(|seq| !seen.contains(seq)).collect();
        assert_eq!(missing, [0; 0], "missing {what} in {}", model.conversation());
    }

    async fn check_marks(&mut self, conversation: usize) {
        let model = &self.models[conversation];
        let marks = self.writer().marks(model.conversation(), self.now).await.unwrap();
        let before = std::mem::replace(&mut self.marks[conversation], marks);
        assert_eq!(marks.last, model.last(), "a seq for each message and no other");
        assert!(marks.floor - 1 <= marks.archived && marks.archived <= marks.last, "{marks:?}");
        assert!(
            marks.floor >= before.floor && marks.archived >= before.archived && marks.last >= before.last,
            "{marks:?} after {before:?}"
        );
    }

    /// Each row goes at the date of its message, and none is missing that the archived mark speaks of.
    async fn check_rows(&self, conversation: usize) {
        let (model, marks) = (&self.models[conversation], &self.marks[conversation]);
        let mut rows = Vec::new();
        for from in (1..=model.last()).step_by(ROWS) {
            let range = SeqRange { from, below: from + ROWS as u64 };
            rows.extend(self.archive.rows(model.conversation(), range, self.now).await.unwrap());
        }
        for row in &rows {
            assert_eq!(row.expires_at, model.at(row.seq).expires_at, "the date of row {}", row.seq);
        }
        let mut must = model.alive(self.latest + COPY_MAX).into_iter().filter(|seq| *seq <= marks.archived);
        let missing = must.find(|seq| !rows.iter().any(|row| row.seq == *seq));
        assert_eq!(missing, None, "it is archived up to {}", marks.archived);
    }

    pub(crate) async fn seek(&self, conversation: usize, hours_ago: u32) {
        let model = &self.models[conversation];
        let time = self.now - HOUR * hours_ago;
        let page = match self.try_pull(model.conversation(), Position::FromTime(time), PAGE).await {
            Err(PullError::Archive(_)) => return,
            page => page.unwrap(),
        };
        let from = model.first_since(time);
        assert!(page.records.iter().all(|record| record.seq >= from), "from {time}: {:?}", page.records);
        let upto = if page.has_more { page.next_seq } else { page.last };
        let must = model.alive(self.latest).into_iter().filter(|seq| (from..=upto).contains(seq));
        self.check_records(model, &page.records, must, "from a time");
    }

    pub(crate) async fn describe(&self, conversation: usize) {
        let model = &self.models[conversation];
        let described = match self.writer().describe(model.conversation(), self.now).await {
            // Of what Redis may have lost whole only the archive can say whether it ever was.
            Err(TierError::Archive(ArchiveError::Unavailable(_))) if self.has_lost => return,
            described => described.unwrap(),
        };
        assert_eq!((described.marks.last, described.set_aside), (model.last(), None));
        let Some(archived) = described.archived_records else { return };
        let alive = |now: UnixMillis| model.alive(now).into_iter();
        let least =
            alive(self.latest + COPY_MAX).filter(|seq| *seq <= described.marks.archived).count() as u64;
        let most = alive(self.now).count() as u64;
        assert!((least..=most).contains(&archived), "{archived} archived, of {least} to {most}");
    }

    async fn read_all(&self, key: &ConversationKey) -> (Vec<Record>, u64) {
        let (mut after, mut records) = (0, Vec::new());
        loop {
            let page = self.pull(key, Position::After(after)).await;
            records.extend(page.records);
            if !page.has_more {
                return (records, page.earliest_available);
            }
            assert!(page.next_seq > after, "a page goes forward");
            after = page.next_seq;
        }
    }

    async fn pull(&self, key: &ConversationKey, position: Position) -> Page {
        self.try_pull(key, position, PAGE).await.unwrap()
    }

    async fn try_pull(
        &self,
        key: &ConversationKey,
        position: Position,
        limit: usize,
    ) -> Result<Page, PullError> {
        let request = PullRequest { position, limit, fail_on_expired: false, form: PayloadForm::Plain };
        self.writer().pull(key, request, self.now).await
    }
}
