//! What a page costs: one hot call, and below the floor one read of the archive more.

mod support;

use std::sync::Arc;

use qim_core::{ConversationKey, PayloadForm, UnixMillis};
use qim_store::TieredMessageStore;
use qim_store::tiered::{Page, Position, PullRequest};
use support::*;

/// Both tiers, and what is asked of them.
struct Costs {
    tiers: Tiers,
    counting: Arc<FaultyArchive>,
    redis: redis::aio::MultiplexedConnection,
}

impl Costs {
    async fn start() -> Self {
        let mut tiers = tiers();
        let archive = open_archive(&format!("sqlite:{}", tiers.dir.path().join("archive.db").display()));
        let counting = Arc::new(FaultyArchive::new(archive));
        tiers.store = TieredMessageStore::with_trim(tiers.store.hot().clone(), counting.clone(), WINDOW);
        let redis = raw(&tiers.redis).await;
        Self { tiers, counting, redis }
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
        let (calls, reads) = (self.calls().await, self.counting.reads());
        let page = self.tiers.store.pull(conversation, request, NOW).await.unwrap();
        // Asking is a call as well.
        let calls = self.calls().await - calls - 1;
        (page, calls, self.counting.reads() - reads)
    }

    async fn commit(&self, conversation: &ConversationKey, range: std::ops::Range<u64>, last: UnixMillis) {
        commit(&self.tiers.store, conversation, &drafts(range, last), last).await;
    }

    async fn archive(&self, conversation: &ConversationKey) {
        copy_all(&self.tiers.store, conversation, NOW).await;
        trim_all(&self.tiers.store, conversation, NOW).await;
    }
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
        assert_eq!(page_seqs(&page), seqs.collect::<Vec<_>>(), "{conversation}, {position:?}");
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
    assert_eq!((page_seqs(&page), page.earliest_available), ((16..=20).collect(), 1));
    assert_eq!((calls, reads), (1, 2));
}
