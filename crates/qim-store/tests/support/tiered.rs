//! Short ways to commit to both tiers and to read from them.

use std::time::Duration;

use qim_core::{ConversationKey, PayloadForm, UnixMillis};
use qim_store::TieredMessageStore;
use qim_store::hot::{Committed, Draft, LINEAGE_WATCH_INTERVAL};
use qim_store::tiered::{Page, Position, PullRequest, TieredCommitError, TieredDraft};

use super::{DAY, NOW, copy_all, drafts, trim_all};

pub(crate) fn from_now(draft: Draft) -> TieredDraft {
    TieredDraft { draft, first_sent_at: None }
}

pub(crate) async fn commit(
    store: &TieredMessageStore,
    conversation: &ConversationKey,
    drafts: &[Draft],
    now: UnixMillis,
) -> Vec<Committed> {
    let drafts: Vec<_> = drafts.iter().cloned().map(from_now).collect();
    commit_again(store, conversation, &drafts, now).await
}

/// As a client does, which tries again where it is told when, and the writer, which looks at what became of Redis meanwhile.
pub(crate) async fn commit_again(
    store: &TieredMessageStore,
    conversation: &ConversationKey,
    drafts: &[TieredDraft],
    now: UnixMillis,
) -> Vec<Committed> {
    let began = std::time::Instant::now();
    loop {
        match store.commit(conversation, drafts, now).await {
            Ok(committed) => return committed,
            Err(TieredCommitError::Hot(error)) if error.retry_after().is_some() => {
                assert!(began.elapsed() < Duration::from_secs(60), "still {error}");
                let _ = store.watch_lineage(now, false).await;
                tokio::time::sleep(LINEAGE_WATCH_INTERVAL).await;
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}

pub(crate) async fn pull(
    store: &TieredMessageStore,
    conversation: &ConversationKey,
    position: Position,
    limit: usize,
    now: UnixMillis,
) -> Page {
    let request = PullRequest { position, limit, fail_on_expired: false, form: PayloadForm::Plain };
    store.pull(conversation, request, now).await.unwrap()
}

pub(crate) fn page_seqs(page: &Page) -> Vec<u64> {
    page.records.iter().map(|record| record.seq).collect()
}

/// The whole log, page by page.
pub(crate) async fn log(
    store: &TieredMessageStore,
    conversation: &ConversationKey,
    now: UnixMillis,
) -> Vec<u64> {
    let (mut after, mut seqs) = (0, Vec::new());
    loop {
        let page = pull(store, conversation, Position::After(after), 7, now).await;
        seqs.extend(page_seqs(&page));
        if !page.has_more {
            return seqs;
        }
        assert!(page.next_seq > after, "a page goes forward");
        after = page.next_seq;
    }
}

/// The whole log, from its end.
pub(crate) async fn log_backwards(
    store: &TieredMessageStore,
    conversation: &ConversationKey,
    now: UnixMillis,
) -> Vec<u64> {
    let (mut before, mut seqs) = (u64::MAX, Vec::new());
    loop {
        let page = pull(store, conversation, Position::Before(before), 7, now).await;
        seqs.splice(0..0, page_seqs(&page));
        if !page.has_more {
            return seqs;
        }
        assert!(page.next_seq < before, "a page goes back");
        before = page.next_seq;
    }
}

/// Twenty records, the first ten eight days old and in the archive only, the last ten of today.
pub(crate) async fn ten_and_ten(store: &TieredMessageStore, conversation: &ConversationKey) {
    commit(store, conversation, &drafts(0..10, NOW - 8 * DAY), NOW).await;
    commit(store, conversation, &drafts(10..20, NOW), NOW).await;
    copy_all(store, conversation, NOW).await;
    assert_eq!(trim_all(store, conversation, NOW).await, 10);
}
