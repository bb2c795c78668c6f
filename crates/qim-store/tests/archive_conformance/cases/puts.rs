//! What a put does, and what it does not.

use qim_core::{ClientIdHash, ConversationKey, RetentionClass, TenantId};
use qim_store::archive::{ArchiveError, ArchivePage, Direction, PUT_RECORDS_MAX, PutReport};

use super::{ALL, list, range, readable, seqs};
use crate::backend::{Subject, fresh_conversation};
use crate::messages::{DAY, Draft, records};

fn report(written: u64, unchanged: u64) -> PutReport {
    PutReport { written, unchanged, clamped: 0 }
}

pub(crate) async fn an_unknown_conversation_is_empty(subject: Subject) {
    let Subject { store, conversation, now, .. } = &subject;
    store.prepare().await.unwrap();
    store.ping().await.unwrap();
    for direction in [Direction::Forwards, Direction::Backwards] {
        let page = store.read(conversation, ALL, direction, 500, *now).await.unwrap();
        assert_eq!(page, ArchivePage::default());
    }
    assert_eq!(store.marks(conversation, range(1, 513), *now).await.unwrap(), []);
    assert_eq!(store.earliest(conversation, ALL, *now).await.unwrap(), None);
    let id = ClientIdHash::of("alice", "id-1");
    assert_eq!(store.find_client_ids(conversation, &[id], *now).await.unwrap(), [None]);
    assert_eq!(store.high_water(conversation).await.unwrap(), 0);
    assert_eq!(store.count(conversation, *now).await.unwrap(), 0);
}

pub(crate) async fn an_empty_put_does_nothing(subject: Subject) {
    let Subject { store, conversation, now, .. } = &subject;
    assert_eq!(store.put(conversation, &[], *now).await.unwrap(), report(0, 0));
    assert_eq!(store.high_water(conversation).await.unwrap(), 0);
}

pub(crate) async fn a_record_comes_back_to_the_byte(subject: Subject) {
    let Subject { store, conversation, now, .. } = &subject;
    let payloads = ["", "hello", "Straße 会话 🎈", "\0\u{1}\n", &"x".repeat(64 * 1024)];
    let mut put = Vec::new();
    for (class, payload) in
        RetentionClass::ALL.into_iter().flat_map(|class| payloads.map(|text| (class, text)))
    {
        let draft = |seq| Draft::new(seq, *now).class(class).payload(payload.to_owned());
        let seq = put.len() as u64 + 1;
        put.push(draft(seq).commit(conversation));
        put.push(draft(seq + 1).packed().commit(conversation));
    }
    assert_eq!(store.put(conversation, &put, *now).await.unwrap(), report(put.len() as u64, 0));
    let page = store.read(conversation, ALL, Direction::Forwards, 500, *now).await.unwrap();
    assert_eq!((page.damaged, page.next), (vec![], None));
    for (read, put) in page.records.iter().zip(&put) {
        assert_eq!(*read, crate::messages::read(put));
    }
    assert_eq!(page.records.len(), put.len());
}

pub(crate) async fn a_repeated_put_changes_nothing(subject: Subject) {
    let Subject { store, conversation, now, .. } = &subject;
    let put = records(conversation, 1..=100, *now - DAY);
    assert_eq!(store.put(conversation, &put, *now).await.unwrap(), report(100, 0));
    let before = store.read(conversation, ALL, Direction::Forwards, 500, *now).await.unwrap();
    for later in [*now, *now + DAY] {
        assert_eq!(store.put(conversation, &put, later).await.unwrap(), report(0, 100));
    }
    let after = store.read(conversation, ALL, Direction::Forwards, 500, *now).await.unwrap();
    assert_eq!(after, before);
    assert_eq!(store.high_water(conversation).await.unwrap(), 100);
}

pub(crate) async fn a_put_writes_only_what_is_missing(subject: Subject) {
    let Subject { store, conversation, now, .. } = &subject;
    let all = records(conversation, 1..=10, *now);
    assert_eq!(store.put(conversation, &all[2..5], *now).await.unwrap(), report(3, 0));
    assert_eq!(store.put(conversation, &all[8..], *now).await.unwrap(), report(2, 0));
    assert_eq!(readable(&subject, *now).await, [3, 4, 5, 9, 10]);
    assert_eq!(store.put(conversation, &all, *now).await.unwrap(), report(5, 5));
    assert_eq!(readable(&subject, *now).await, list(1..=10));
}

pub(crate) async fn a_conflict_is_named_and_changes_nothing(subject: Subject) {
    let Subject { store, conversation, now, .. } = &subject;
    store.put(conversation, &records(conversation, 1..=5, *now), *now).await.unwrap();
    let before = store.read(conversation, ALL, Direction::Forwards, 500, *now).await.unwrap();
    let mut put = records(conversation, 1..=9, *now);
    for seq in [3, 4] {
        put[seq - 1] = Draft::new(seq as u64, *now).payload("another").commit(conversation);
    }
    let error = store.put(conversation, &put, *now).await.unwrap_err();
    assert!(matches!(error, ArchiveError::Conflict { seq: 3 }), "{error}");
    assert!(!error.is_retryable());
    let after = store.read(conversation, ALL, Direction::Forwards, 500, *now).await.unwrap();
    assert_eq!(after, before);
    assert_eq!(store.high_water(conversation).await.unwrap(), 5);
    assert_eq!(store.count(conversation, *now).await.unwrap(), 5);
}

pub(crate) async fn a_put_at_another_date_is_a_conflict(subject: Subject) {
    let Subject { store, conversation, now, .. } = &subject;
    store.put(conversation, &records(conversation, [1], *now), *now).await.unwrap();
    let held = Draft::new(1, *now).class(RetentionClass::ComplianceHold).commit(conversation);
    let later = Draft::new(1, *now + DAY).commit(conversation);
    for other in [held, later] {
        let error = store.put(conversation, &[other], *now).await.unwrap_err();
        assert!(matches!(error, ArchiveError::Conflict { seq: 1 }), "{error}");
    }
    assert_eq!(readable(&subject, *now).await, [1]);
}

pub(crate) async fn the_largest_put_crosses_buckets(subject: Subject) {
    let Subject { store, conversation, now, .. } = &subject;
    let seqs = 4000..4000 + PUT_RECORDS_MAX as u64;
    let put = records(conversation, seqs.clone(), *now);
    assert_eq!(store.put(conversation, &put, *now).await.unwrap(), report(512, 0));
    assert_eq!(readable(&subject, *now).await, list(seqs));
    assert_eq!(store.put(conversation, &put, *now).await.unwrap(), report(0, 512));
    assert_eq!(store.count(conversation, *now).await.unwrap(), 512);
    assert_eq!(store.high_water(conversation).await.unwrap(), 4511);
}

pub(crate) async fn a_put_with_holes_between_its_seqs_is_read_back(subject: Subject) {
    let Subject { store, conversation, now, .. } = &subject;
    let seqs: Vec<u64> = (0..300).map(|n| 1 + n * 1999).collect();
    let put = records(conversation, seqs.iter().copied(), *now);
    assert_eq!(store.put(conversation, &put, *now).await.unwrap(), report(300, 0));
    assert_eq!(store.put(conversation, &put, *now).await.unwrap(), report(0, 300));
    assert_eq!(readable(&subject, *now).await, seqs);
    assert_eq!(store.count(conversation, *now).await.unwrap(), 300);
    let page = store.read(conversation, ALL, Direction::Backwards, 2, *now).await.unwrap();
    assert_eq!(super::seqs(&page), seqs[298..]);
    let mut other = put.clone();
    other[299] = Draft::new(other[299].seq, *now).payload("another").commit(conversation);
    let error = store.put(conversation, &other, *now).await.unwrap_err();
    assert!(matches!(error, ArchiveError::Conflict { seq } if seq == seqs[299]), "{error}");
}

pub(crate) async fn conversations_and_tenants_do_not_mix(subject: Subject) {
    let Subject { store, conversation, now, .. } = &subject;
    let name = conversation.conversation();
    let same_name = ConversationKey::new(TenantId::new("globex").unwrap(), name).unwrap();
    let (head, tail) = name.split_at(1);
    let run_together = ConversationKey::new(TenantId::new(&format!("acme{head}")).unwrap(), tail).unwrap();
    for (n, key) in [conversation, &same_name, &run_together, &fresh_conversation()].iter().enumerate() {
        let first = n as u64 * 10 + 1;
        store.put(key, &records(key, first..first + 3, *now), *now).await.unwrap();
    }
    for (n, key) in [conversation, &same_name, &run_together].iter().enumerate() {
        let first = n as u64 * 10 + 1;
        let page = store.read(key, ALL, Direction::Forwards, 500, *now).await.unwrap();
        assert_eq!(seqs(&page), [first, first + 1, first + 2]);
        assert_eq!(store.high_water(key).await.unwrap(), first + 2);
        assert_eq!(store.count(key, *now).await.unwrap(), 3);
    }
}

pub(crate) async fn two_writers_of_the_same_records_leave_one_copy(subject: Subject) {
    let Subject { store, other, conversation, now, .. } = &subject;
    let put = records(conversation, 1..=200, *now);
    let (one, two) = tokio::join!(store.put(conversation, &put, *now), other.put(conversation, &put, *now));
    let (one, two) = (one.unwrap(), two.unwrap());
    // Without a transaction across the network, each may have written what the other one wrote, too.
    assert!(one.written + two.written >= 200);
    assert_eq!((one.written + one.unchanged, two.written + two.unchanged), (200, 200));
    assert_eq!(readable(&subject, *now).await, list(1..=200));
    assert_eq!(store.count(conversation, *now).await.unwrap(), 200);
}

pub(crate) async fn what_one_program_puts_another_reads(subject: Subject) {
    let Subject { store, other, conversation, now, .. } = &subject;
    for seq in 1..=5 {
        store.put(conversation, &records(conversation, [seq], *now), *now).await.unwrap();
        let page = other.read(conversation, ALL, Direction::Backwards, 1, *now).await.unwrap();
        assert_eq!(seqs(&page), [seq]);
        assert_eq!(other.high_water(conversation).await.unwrap(), seq);
    }
}
