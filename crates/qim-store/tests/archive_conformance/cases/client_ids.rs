//! What was committed under a client id: how a retry finds its first answer after the hot tier has forgotten it.

use std::time::Duration;

use qim_core::{ClientIdHash, RetentionClass, body_digest};
use qim_store::archive::{CommittedId, FIND_CLIENT_IDS_MAX, StoredRecord};

use crate::backend::Subject;
use crate::messages::{DAY, Draft, RETENTION, read, records};

fn id(n: u64) -> ClientIdHash {
    ClientIdHash::of("alice", &format!("id-{n}"))
}

fn committed(record: &StoredRecord) -> CommittedId {
    CommittedId {
        seq: record.seq,
        body_digest: body_digest(&read(record).message()),
        created_at: record.encoded.created_at(),
        expires_at: record.encoded.expires_at(),
    }
}

pub(crate) async fn a_client_id_leads_to_what_was_committed(subject: Subject) {
    let Subject { store, conversation, now, .. } = &subject;
    let held = Draft::new(2, *now).class(RetentionClass::ComplianceHold).commit(conversation);
    let put = [records(conversation, [1], *now).remove(0), held];
    store.put(conversation, &put, *now).await.unwrap();
    let found = store.find_client_ids(conversation, &[id(2), id(9), id(1), id(2)], *now).await.unwrap();
    assert_eq!(found, [Some(committed(&put[1])), None, Some(committed(&put[0])), Some(committed(&put[1]))]);
    let other = ClientIdHash::of("bob", "id-1");
    assert_eq!(store.find_client_ids(conversation, &[other], *now).await.unwrap(), [None]);
    assert_eq!(store.find_client_ids(conversation, &[], *now).await.unwrap(), []);
}

pub(crate) async fn client_ids_outlive_their_records(subject: Subject) {
    let Subject { store, conversation, now, .. } = &subject;
    let mut put = records(conversation, 1..=2, *now - RETENTION - DAY);
    put.push(Draft::new(3, *now).class(RetentionClass::Ephemeral24h).commit(conversation));
    store.put(conversation, &put, *now).await.unwrap();
    let found = store.find_client_ids(conversation, &[id(1), id(2), id(3)], *now + DAY).await.unwrap();
    assert_eq!(found, [Some(committed(&put[0])), Some(committed(&put[1])), Some(committed(&put[2]))]);
}

pub(crate) async fn a_client_id_is_forgotten_after_ninety_days_but_not_before_its_record(subject: Subject) {
    let Subject { store, conversation, now, .. } = &subject;
    let put = records(conversation, [1], *now);
    let held = Draft::new(2, *now).class(RetentionClass::ComplianceHold).commit(conversation);
    let long_ago = records(conversation, [3], *now - 90 * DAY);
    store.put(conversation, &[put[0].clone(), held.clone(), long_ago[0].clone()], *now).await.unwrap();
    let find = async |at| store.find_client_ids(conversation, &[id(1), id(2), id(3)], at).await.unwrap();
    let last = *now + 90 * DAY - Duration::from_millis(1);
    assert_eq!(find(*now).await, [Some(committed(&put[0])), Some(committed(&held)), None]);
    assert_eq!(find(last).await, [Some(committed(&put[0])), Some(committed(&held)), None]);
    // A held record can be read for ever: what was sent as it must not be committed a second time.
    assert_eq!(find(*now + 90 * DAY).await, [None, Some(committed(&held)), None]);
    assert_eq!(find(*now + 3_650 * DAY).await, [None, Some(committed(&held)), None]);
}

pub(crate) async fn the_later_of_two_commits_under_one_id_is_remembered(subject: Subject) {
    let Subject { store, conversation, now, .. } = &subject;
    let first = Draft::new(1, *now - 2 * DAY).commit(conversation);
    let second = Draft::new(2, *now).id("id-1").commit(conversation);
    store.put(conversation, std::slice::from_ref(&second), *now).await.unwrap();
    store.put(conversation, &[first], *now).await.unwrap();
    assert_eq!(
        store.find_client_ids(conversation, &[id(1)], *now).await.unwrap(),
        [Some(committed(&second))]
    );
}

/// As before a trim, where the archive has lost some rows.
pub(crate) async fn a_second_copy_of_some_records_forgets_no_client_id(subject: Subject) {
    let Subject { store, conversation, now, .. } = &subject;
    let put = records(conversation, 1..=100, *now);
    store.put(conversation, &put[..90], *now).await.unwrap();
    for some in [vec![0, 89], vec![0, 1], (80..100).collect(), (0..100).collect()] {
        let some: Vec<_> = some.into_iter().map(|n: usize| put[n].clone()).collect();
        store.put(conversation, &some, *now).await.unwrap();
    }
    let ids: Vec<_> = (1..=100).map(id).collect();
    let found = store.find_client_ids(conversation, &ids, *now).await.unwrap();
    assert_eq!(found, put.iter().map(|record| Some(committed(record))).collect::<Vec<_>>());
}

pub(crate) async fn five_hundred_client_ids_are_found_in_their_order(subject: Subject) {
    let Subject { store, conversation, now, .. } = &subject;
    let put = records(conversation, 1..=400, *now);
    store.put(conversation, &put, *now).await.unwrap();
    let ids: Vec<_> = (1..=FIND_CLIENT_IDS_MAX as u64).rev().map(id).collect();
    let found = store.find_client_ids(conversation, &ids, *now).await.unwrap();
    let expected: Vec<_> = (1..=500).rev().map(|n| put.get(n - 1).map(committed)).collect();
    assert_eq!(found, expected);
}

pub(crate) async fn client_ids_of_high_seqs_are_found(subject: Subject) {
    let Subject { store, conversation, now, .. } = &subject;
    let put = records(conversation, [1, 300_000, 600_000, 3_000_000_000], *now);
    for record in &put {
        store.put(conversation, std::slice::from_ref(record), *now).await.unwrap();
    }
    let ids = [id(1), id(300_000), id(600_000), id(3_000_000_000), id(7)];
    let found = store.find_client_ids(conversation, &ids, *now).await.unwrap();
    let mut expected: Vec<_> = put.iter().map(|record| Some(committed(record))).collect();
    expected.push(None);
    assert_eq!(found, expected);
}

pub(crate) async fn a_conflict_leaves_client_ids_alone(subject: Subject) {
    let Subject { store, conversation, now, .. } = &subject;
    let put = records(conversation, 1..=2, *now);
    store.put(conversation, &put, *now).await.unwrap();
    let other = [
        Draft::new(1, *now).payload("another").commit(conversation),
        Draft::new(3, *now).commit(conversation),
    ];
    store.put(conversation, &other, *now).await.unwrap_err();
    let found = store.find_client_ids(conversation, &[id(1), id(2), id(3)], *now).await.unwrap();
    assert_eq!(found, [Some(committed(&put[0])), Some(committed(&put[1])), None]);
}
