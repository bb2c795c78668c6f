//! What is known of rows without reading them whole: marks, the earliest one, the high-water mark, the count.

use std::time::Duration;

use qim_core::RetentionClass;
use qim_store::archive::{Earliest, MARKS_WIDTH_MAX, RowMark, record_digest};

use super::{ALL, range};
use crate::backend::Subject;
use crate::messages::{DAY, Draft, RETENTION, records};

pub(crate) async fn marks_tell_date_and_digest(subject: Subject) {
    let Subject { store, conversation, now, .. } = &subject;
    let classes = [RetentionClass::ComplianceHold, RetentionClass::Default, RetentionClass::Ephemeral24h];
    let put: Vec<_> = [1, 2, 5]
        .into_iter()
        .zip(classes)
        .map(|(seq, class)| Draft::new(seq, *now).class(class).commit(conversation))
        .collect();
    store.put(conversation, &put, *now).await.unwrap();
    let mark = |n: usize| RowMark {
        seq: put[n].seq,
        expires_at: put[n].encoded.expires_at(),
        digest: record_digest(put[n].encoded.bytes()),
    };
    let whole = range(1, 1 + MARKS_WIDTH_MAX);
    assert_eq!(store.marks(conversation, whole, *now).await.unwrap(), [mark(0), mark(1), mark(2)]);
    assert_eq!(store.marks(conversation, range(2, 5), *now).await.unwrap(), [mark(1)]);
    assert_eq!(store.marks(conversation, whole, *now + DAY).await.unwrap(), [mark(0), mark(1)]);
    assert_eq!(store.marks(conversation, whole, *now + RETENTION).await.unwrap(), [mark(0)]);
    for (at, left) in [(*now, 3), (*now + DAY, 2), (*now + RETENTION, 1)] {
        let marks: Vec<_> = (0..left).map(mark).collect();
        assert_eq!(store.marks_of(conversation, &put, at).await.unwrap(), marks);
    }
    let elsewhere = records(conversation, [6, 7], *now);
    assert_eq!(store.marks_of(conversation, &elsewhere, *now).await.unwrap(), []);
}

pub(crate) async fn the_earliest_is_the_lowest_unexpired_record(subject: Subject) {
    let Subject { store, conversation, now, .. } = &subject;
    let put: Vec<_> = (1..=9)
        .map(|seq| {
            let class =
                if seq <= 3 || seq == 5 { RetentionClass::Ephemeral24h } else { RetentionClass::Default };
            Draft::new(seq, *now).class(class).commit(conversation)
        })
        .collect();
    store.put(conversation, &put, *now).await.unwrap();
    let earliest = async |at| store.earliest(conversation, ALL, at).await.unwrap();
    let (day, month) = (*now + DAY, *now + RETENTION);
    assert_eq!(earliest(*now).await, Some(Earliest { seq: 1, expires_at: Some(day) }));
    assert_eq!(earliest(day - Duration::from_millis(1)).await.unwrap().seq, 1);
    assert_eq!(earliest(day).await, Some(Earliest { seq: 4, expires_at: Some(month) }));
    assert_eq!(earliest(month).await, None);
}

pub(crate) async fn a_held_record_at_the_start_stays_the_earliest(subject: Subject) {
    let Subject { store, conversation, now, .. } = &subject;
    let mut put = vec![Draft::new(2, *now).class(RetentionClass::ComplianceHold).commit(conversation)];
    put.extend(
        (3..=8).map(|seq| Draft::new(seq, *now).class(RetentionClass::Ephemeral24h).commit(conversation)),
    );
    put.extend(records(conversation, 9000..=9002, *now));
    store.put(conversation, &put, *now).await.unwrap();
    for at in [*now, *now + DAY, *now + RETENTION] {
        assert_eq!(
            store.earliest(conversation, ALL, at).await.unwrap(),
            Some(Earliest { seq: 2, expires_at: None })
        );
    }
    let behind = store.earliest(conversation, range(3, u64::MAX), *now + DAY).await.unwrap();
    assert_eq!(behind.unwrap().seq, 9000);
}

pub(crate) async fn the_earliest_is_looked_for_inside_the_range(subject: Subject) {
    let Subject { store, conversation, now, .. } = &subject;
    store.put(conversation, &records(conversation, [5, 6, 5000], *now), *now).await.unwrap();
    let earliest = async |from, below| {
        let found = store.earliest(conversation, range(from, below), *now).await.unwrap();
        found.map(|earliest| earliest.seq)
    };
    assert_eq!(earliest(1, 6).await, Some(5));
    assert_eq!(earliest(1, 5).await, None);
    assert_eq!(earliest(6, 7).await, Some(6));
    assert_eq!(earliest(7, 5000).await, None);
    assert_eq!(earliest(7, 5001).await, Some(5000));
}

/// What the archive lost is copied again from the hot tier before it is trimmed.
pub(crate) async fn a_late_copy_below_the_earliest_becomes_the_earliest(subject: Subject) {
    let Subject { store, conversation, now, .. } = &subject;
    store.put(conversation, &records(conversation, 9000..=9100, *now), *now).await.unwrap();
    assert_eq!(store.earliest(conversation, ALL, *now).await.unwrap().unwrap().seq, 9000);
    store.put(conversation, &records(conversation, [3], *now), *now).await.unwrap();
    assert_eq!(store.earliest(conversation, ALL, *now).await.unwrap().unwrap().seq, 3);
    assert_eq!(store.high_water(conversation).await.unwrap(), 9100);
}

pub(crate) async fn the_high_water_mark_never_goes_down(subject: Subject) {
    let Subject { store, conversation, now, .. } = &subject;
    for (seqs, mark) in [(5..=7, 7), (1..=4, 7), (8..=9, 9), (5..=7, 9)] {
        store.put(conversation, &records(conversation, seqs, *now), *now).await.unwrap();
        assert_eq!(store.high_water(conversation).await.unwrap(), mark);
    }
}

pub(crate) async fn the_high_water_mark_can_be_raised_without_a_record(subject: Subject) {
    let Subject { store, conversation, now, .. } = &subject;
    for (seq, mark) in [(5, 5), (9, 9), (7, 9)] {
        store.raise_high_water(conversation, seq).await.unwrap();
        assert_eq!(store.high_water(conversation).await.unwrap(), mark);
    }
    assert_eq!(store.count(conversation, *now).await.unwrap(), 0);
    store.put(conversation, &records(conversation, 10..=11, *now), *now).await.unwrap();
    assert_eq!(store.high_water(conversation).await.unwrap(), 11);
    assert_eq!(store.count(conversation, *now).await.unwrap(), 2);
}

pub(crate) async fn an_expired_record_raises_the_high_water_mark(subject: Subject) {
    let Subject { store, conversation, now, .. } = &subject;
    store.put(conversation, &records(conversation, 1..=4, *now - RETENTION), *now).await.unwrap();
    assert_eq!(store.high_water(conversation).await.unwrap(), 4);
    assert_eq!(store.count(conversation, *now).await.unwrap(), 0);
}

pub(crate) async fn only_unexpired_records_are_counted(subject: Subject) {
    let Subject { store, conversation, now, .. } = &subject;
    let put: Vec<_> = (4080..4120)
        .map(|seq| {
            let class = RetentionClass::ALL[usize::try_from(seq % 4).unwrap()];
            Draft::new(seq, *now).class(class).commit(conversation)
        })
        .collect();
    store.put(conversation, &put, *now).await.unwrap();
    // Ten each: ephemeral, default, and two that are held since the tenant has no policy.
    for (at, count) in [(*now, 40), (*now + DAY, 30), (*now + RETENTION, 20)] {
        assert_eq!(store.count(conversation, at).await.unwrap(), count);
    }
}
