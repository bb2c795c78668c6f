//! Nothing is served past its date, and nothing that is damaged is served at all.

use std::time::Duration;

use bytes::Bytes;
use qim_core::{RetentionClass, UnixMillis};
use qim_store::archive::{ArchiveError, Direction, Earliest};

use super::{ALL, range, readable, seqs};
use crate::backend::{Subject, fresh_conversation};
use crate::messages::{DAY, Draft, RETENTION, records, stored, with_damaged_frame};

const MILLI: Duration = Duration::from_millis(1);

pub(crate) async fn a13_a_record_is_served_until_the_millisecond_it_expires(subject: Subject) {
    let Subject { store, conversation, now, .. } = &subject;
    store.put(conversation, &records(conversation, [1], *now), *now).await.unwrap();
    let date = *now + RETENTION;
    let earliest = Earliest { seq: 1, expires_at: Some(date) };
    for (at, is_there) in [(date - MILLI, true), (date, false), (date + MILLI, false)] {
        for direction in [Direction::Forwards, Direction::Backwards] {
            let page = store.read(conversation, ALL, direction, 10, at).await.unwrap();
            assert_eq!(seqs(&page), if is_there { vec![1] } else { vec![] });
            assert_eq!(page.damaged, []);
        }
        assert_eq!(store.marks(conversation, range(1, 2), at).await.unwrap().len(), usize::from(is_there));
        assert_eq!(store.earliest(conversation, ALL, at).await.unwrap(), is_there.then_some(earliest));
        assert_eq!(store.count(conversation, at).await.unwrap(), u64::from(is_there));
    }
}

pub(crate) async fn a10_a_record_that_has_expired_is_never_readable(subject: Subject) {
    let Subject { store, conversation, now, .. } = &subject;
    let mut put = records(conversation, 1..=3, *now - RETENTION);
    put.extend(records(conversation, 4..=6, *now));
    let report = store.put(conversation, &put, *now).await.unwrap();
    assert_eq!((report.written, report.clamped), (6, 0));
    assert_eq!(readable(&subject, *now).await, [4, 5, 6]);
    let marks = store.marks(conversation, range(1, 7), *now).await.unwrap();
    assert_eq!(marks.iter().map(|mark| mark.seq).collect::<Vec<_>>(), [4, 5, 6]);
    assert_eq!(store.earliest(conversation, ALL, *now).await.unwrap().unwrap().seq, 4);
    assert_eq!(store.count(conversation, *now).await.unwrap(), 3);
    // Not even by a reader whose clock is behind, once the second has passed for which a server keeps it.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(readable(&subject, *now - DAY).await, [4, 5, 6]);
}

pub(crate) async fn a10_a_late_copy_keeps_its_date(subject: Subject) {
    let Subject { store, conversation, now, .. } = &subject;
    let created_at = *now - 29 * DAY;
    store.put(conversation, &records(conversation, [1], created_at), *now).await.unwrap();
    let date = created_at + RETENTION;
    assert_eq!(store.marks(conversation, range(1, 2), *now).await.unwrap()[0].expires_at, Some(date));
    assert_eq!(readable(&subject, date - MILLI).await, [1]);
    assert_eq!(readable(&subject, date).await, [] as [u64; 0]);
}

pub(crate) async fn a11_a_held_record_is_served_for_ever(subject: Subject) {
    let Subject { store, conversation, now, .. } = &subject;
    let classes = [RetentionClass::ComplianceHold, RetentionClass::TenantCustom, RetentionClass::Default];
    let put: Vec<_> = (1..)
        .zip(classes)
        .map(|(seq, class)| Draft::new(seq, *now).class(class).commit(conversation))
        .collect();
    store.put(conversation, &put, *now).await.unwrap();
    assert_eq!(readable(&subject, *now).await, [1, 2, 3]);
    assert_eq!(readable(&subject, UnixMillis::MAX).await, [1, 2]);
    let marks = store.marks(conversation, range(1, 4), UnixMillis::MAX).await.unwrap();
    assert_eq!(marks.iter().map(|mark| mark.expires_at).collect::<Vec<_>>(), [None, None]);
    assert_eq!(store.count(conversation, UnixMillis::MAX).await.unwrap(), 2);
}

/// Whatever the order in which they come.
pub(crate) async fn records_of_all_lives_lie_side_by_side(subject: Subject) {
    let Subject { store, conversation, now, .. } = &subject;
    let classes = [
        RetentionClass::Default,
        RetentionClass::Ephemeral24h,
        RetentionClass::ComplianceHold,
        RetentionClass::Ephemeral24h,
        RetentionClass::Default,
        RetentionClass::Ephemeral24h,
    ];
    for (seq, class) in (1..).zip(classes) {
        let record = Draft::new(seq, *now).class(class).commit(conversation);
        store.put(conversation, &[record], *now).await.unwrap();
    }
    assert_eq!(readable(&subject, *now).await, [1, 2, 3, 4, 5, 6]);
    assert_eq!(readable(&subject, *now + DAY).await, [1, 3, 5]);
    assert_eq!(readable(&subject, *now + RETENTION).await, [3]);
}

pub(crate) async fn a_damaged_record_is_reported_and_not_served(subject: Subject) {
    let Subject { store, conversation, damage, now, .. } = &subject;
    let put = records(conversation, 1..=5, *now);
    store.put(conversation, &put, *now).await.unwrap();
    let mut flipped = put[2].encoded.bytes().to_vec();
    flipped[20] ^= 1;
    damage.set_record(conversation, 3, &flipped).await;
    damage.set_record(conversation, 1, &[]).await;
    for direction in [Direction::Forwards, Direction::Backwards] {
        let page = store.read(conversation, ALL, direction, 10, *now).await.unwrap();
        assert_eq!(seqs(&page), [2, 4, 5]);
        assert_eq!(page.damaged.iter().map(|row| row.seq).collect::<Vec<_>>(), [1, 3]);
        assert!(page.damaged[1].reason.contains("checksum"), "{:?}", page.damaged);
        assert_eq!(page.next, None);
    }
    assert_eq!(store.earliest(conversation, ALL, *now).await.unwrap().unwrap().seq, 2);
}

pub(crate) async fn a_damaged_frame_is_reported_and_not_served(subject: Subject) {
    let Subject { store, conversation, damage, now, .. } = &subject;
    let text = "to be, or not to be, or to be, or not to be: that is the question";
    let packed = |seq| Draft::new(seq, *now).payload(text).packed().commit(conversation);
    let put = [1, 2, 3].map(packed);
    store.put(conversation, &put, *now).await.unwrap();
    let damaged = with_damaged_frame(conversation, &put[1]);
    damage.set_record(conversation, 2, &damaged).await;
    for direction in [Direction::Forwards, Direction::Backwards] {
        let page = store.read(conversation, ALL, direction, 10, *now).await.unwrap();
        assert_eq!((seqs(&page), page.damaged.len()), (vec![1, 3], 1));
        assert!(page.damaged[0].reason.contains("compressed payload"), "{:?}", page.damaged);
    }
    // One that is damaged already is not taken, and nothing that comes with it is.
    let batch = [packed(4), stored(conversation, 5, damaged), packed(6)];
    let error = store.put(conversation, &batch, *now).await.unwrap_err();
    assert!(matches!(error, ArchiveError::Damaged { seq: 5, .. }), "{error}");
    assert_eq!(store.high_water(conversation).await.unwrap(), 3);
}

pub(crate) async fn a_record_of_another_conversation_is_reported_and_not_served(subject: Subject) {
    let Subject { store, conversation, damage, now, .. } = &subject;
    store.put(conversation, &records(conversation, 1..=2, *now), *now).await.unwrap();
    let foreign = records(&fresh_conversation(), [1], *now);
    damage.set_record(conversation, 1, foreign[0].encoded.bytes()).await;
    let page = store.read(conversation, ALL, Direction::Forwards, 10, *now).await.unwrap();
    assert_eq!((seqs(&page), page.damaged.len()), (vec![2], 1));
}

pub(crate) async fn a_damaged_date_never_serves_a_record_past_its_own(subject: Subject) {
    let Subject { store, conversation, damage, now, .. } = &subject;
    store.put(conversation, &records(conversation, 1..=4, *now), *now).await.unwrap();
    let date = *now + RETENTION;
    for (seq, wrong) in [(1, UnixMillis::MAX.as_i64()), (2, i64::MAX), (3, -1)] {
        damage.set_expires_at(conversation, seq, wrong).await;
    }
    let page = store.read(conversation, ALL, Direction::Forwards, 10, date).await.unwrap();
    assert_eq!(seqs(&page), [] as [u64; 0]);
    let earliest = store.earliest(conversation, ALL, *now).await.unwrap().unwrap();
    assert_eq!(earliest, Earliest { seq: 1, expires_at: Some(date) });
    // No date at all is no reason to serve it either.
    let page = store.read(conversation, ALL, Direction::Forwards, 10, *now).await.unwrap();
    assert_eq!(seqs(&page), [1, 4]);
    assert_eq!(page.damaged.iter().map(|row| row.seq).collect::<Vec<_>>(), [2, 3]);
}

pub(crate) async fn a_damaged_date_never_serves_a_record_past_the_date(subject: Subject) {
    let Subject { store, conversation, damage, now, .. } = &subject;
    store.put(conversation, &records(conversation, 1..=2, *now), *now).await.unwrap();
    let sooner = *now + DAY;
    damage.set_expires_at(conversation, 1, sooner.as_i64()).await;
    assert_eq!(
        store.earliest(conversation, ALL, *now).await.unwrap(),
        Some(Earliest { seq: 1, expires_at: Some(sooner) })
    );
    assert_eq!(readable(&subject, sooner).await, [2]);
}

pub(crate) async fn damaged_rows_count_towards_the_limit(subject: Subject) {
    let Subject { store, conversation, damage, now, .. } = &subject;
    store.put(conversation, &records(conversation, 1..=6, *now), *now).await.unwrap();
    for seq in [1, 2, 5] {
        damage.set_record(conversation, seq, &Bytes::from_static(b"x")).await;
    }
    let page = store.read(conversation, ALL, Direction::Forwards, 3, *now).await.unwrap();
    assert_eq!((seqs(&page), page.damaged.len(), page.next), (vec![3], 2, Some(4)));
    let page = store.read(conversation, ALL, Direction::Backwards, 2, *now).await.unwrap();
    assert_eq!((seqs(&page), page.damaged.len(), page.next), (vec![6], 1, Some(5)));
}
