//! Lost seqs, and rows as they are stored: what a hot tier that lost data is filled from.

use qim_core::UnixMillis;
use qim_store::archive::Gap;

use super::range;
use crate::backend::{Subject, fresh_conversation};
use crate::messages::Draft;

const fn gap(from: u64, to: u64) -> Gap {
    Gap { from, to, noticed_at: UnixMillis::new(1_800_000_000_000) }
}

pub(crate) async fn gaps_are_kept_in_order_and_raise_the_high_water_mark(subject: Subject) {
    let Subject { store, other, conversation, .. } = &subject;
    assert_eq!(store.gaps(conversation).await.unwrap(), []);
    for noted in [gap(20, 29), gap(3, 3), gap(20, 29)] {
        store.note_gap(conversation, noted).await.unwrap();
    }
    assert_eq!(other.gaps(conversation).await.unwrap(), [gap(3, 3), gap(20, 29)]);
    assert_eq!(other.high_water(conversation).await.unwrap(), 29);
    assert_eq!(store.gaps(&fresh_conversation()).await.unwrap(), []);
    assert!(!store.is_empty().await.unwrap());
}

pub(crate) async fn an_archive_on_which_a_deployment_began_is_not_empty(subject: Subject) {
    for _ in 0..2 {
        subject.store.found().await.unwrap();
        assert!(!subject.other.is_empty().await.unwrap());
    }
}

pub(crate) async fn rows_are_the_very_bytes_that_were_put(subject: Subject) {
    let Subject { store, conversation, now, .. } = &subject;
    let records: Vec<_> = (1..=3).map(|seq| Draft::new(seq, *now).commit(conversation)).collect();
    store.put(conversation, &records, *now).await.unwrap();
    let rows = store.rows(conversation, range(2, 10), *now).await.unwrap();
    let found: Vec<_> = rows.iter().map(|row| (row.seq, row.expires_at, &row.encoded)).collect();
    let expected: Vec<_> = records[1..]
        .iter()
        .map(|record| (record.seq, record.encoded.expires_at(), record.encoded.bytes()))
        .collect();
    assert_eq!(found, expected);
}
