//! Readers' positions: at page edges, in purged ranges, among equal dates.

use qim_core::PayloadForm;
use qim_core::RetentionClass::Default as DefaultClass;
use qim_store::tiered::{Position, PullError, PullRequest};

use crate::support::*;

#[tokio::test]
async fn records_of_one_timestamp_are_neither_skipped_nor_repeated_at_the_edge_of_a_page() {
    let Tiers { store, redis: _redis, dir: _dir } = tiers();
    let conv = conversation("c");
    let old = NOW - 8 * DAY;
    let batch: Vec<_> = (0..20).map(|id| draft(&format!("{id}"), DefaultClass, old)).collect();
    commit(&store, &conv, &drafts(100..103, old - DAY), old).await;
    commit(&store, &conv, &batch, old).await;
    commit(&store, &conv, &drafts(200..203, NOW), NOW).await;
    let paged = async |limit: usize| {
        let mut page = pull(&store, &conv, Position::FromTime(old), limit, NOW).await;
        let mut seen = page_seqs(&page);
        while page.has_more {
            page = pull(&store, &conv, Position::After(page.next_seq), limit, NOW).await;
            seen.extend(page_seqs(&page));
        }
        seen
    };
    for trimmed in [false, true] {
        if trimmed {
            copy_all(&store, &conv, NOW).await;
            assert_eq!(trim_all(&store, &conv, NOW).await, 23);
        }
        for limit in [1, 3, 7, 20] {
            assert_eq!(
                paged(limit).await,
                (4..=26).collect::<Vec<_>>(),
                "pages of {limit}, trimmed: {trimmed}"
            );
        }
    }
}

/// What a reader computes from a page: how much it has not read, how much it missed.
#[tokio::test]
async fn what_a_reader_has_not_read_and_what_it_missed_is_never_negative_however_much_was_purged() {
    let Tiers { store, redis: _redis, dir: _dir } = tiers();
    let conv = conversation("c");
    let nobody = pull(&store, &conv, Position::After(0), 5, NOW).await;
    assert_eq!((nobody.earliest_available, nobody.last, nobody.next_seq), (1, 0, 0));
    ten_and_ten(&store, &conv).await;
    for now in [NOW, NOW + 22 * DAY + MS * 5, NOW + 25 * DAY, NOW + 31 * DAY] {
        trim_all(&store, &conv, now).await;
        for position in 0..=20 {
            let page = pull(&store, &conv, Position::After(position), 3, now).await;
            assert!(page.earliest_available >= 1 && page.earliest_available <= page.last + 1, "{page:?}");
            assert!((position..=page.last).contains(&page.next_seq), "{position}: {page:?}");
            let read = position.max(page.earliest_available - 1);
            let unread = page.last.checked_sub(read).expect("never negative");
            assert!(unread >= page.records.len() as u64, "{position}: {page:?}");
            assert_eq!(page.has_more, unread > page.records.len() as u64, "{position}: {page:?}");
            let back = pull(&store, &conv, Position::Before(position), 3, now).await;
            assert!(back.next_seq <= position.max(1), "{position}: {back:?}");
        }
        let description = store.describe(&conv, now).await.unwrap();
        assert!(description.marks.hot_records() <= 20);
        assert!(description.archived_records.unwrap() <= 20);
    }
    let request = PullRequest {
        position: Position::After(21),
        limit: 3,
        fail_on_expired: false,
        form: PayloadForm::Plain,
    };
    let beyond = store.pull(&conv, request, NOW + 31 * DAY).await.unwrap_err();
    assert!(matches!(beyond, PullError::OutOfRange { earliest_available: 21, last: 20 }), "{beyond}");
}
