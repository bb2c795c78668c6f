//! Dictionaries: each under its number, and in use for the records that need them.

use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use qim_core::{Compressor, Dictionary, Message, RetentionClass, UnixMillis, codec};
use qim_store::archive::{ArchiveError, ArchiveStore, Direction, StoredRecord};
use qim_testkit::dictionary;

use super::{ALL, readable, seqs};
use crate::backend::Subject;
use crate::messages::{DAY, RETENTION, stored};

const WORDS: &str = "what we learnt of whether it is nobler in the mind to suffer";

/// A number of the case's own: all cases of a run may share their archive.
fn fresh_id(now: UnixMillis) -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let run = u32::try_from(now.get() / 1000 % 1_000_000).unwrap();
    run * 1000 + NEXT.fetch_add(1, Ordering::Relaxed)
}

async fn mark(store: &dyn ArchiveStore, id: u32) -> Option<UnixMillis> {
    let all = store.dictionaries().await.unwrap();
    assert!(all.is_sorted_by_key(|mark| mark.id), "{all:?}");
    all.into_iter().find(|mark| mark.id == id).map(|mark| mark.needed_until)
}

/// Records 1 to 3, as a writer commits them that has the dictionary.
fn packed(subject: &Subject, dictionary: &Dictionary) -> Vec<StoredRecord> {
    let compressor = Compressor::default();
    compressor.use_dictionary(Some(dictionary)).unwrap();
    let Subject { conversation, now, .. } = subject;
    let record = |seq: u64| {
        let message = Message {
            sender: "alice".to_owned(),
            client_msg_id: format!("id-{seq}"),
            class: RetentionClass::Default,
            created_at: *now,
            expires_at: Some(*now + RETENTION),
            content_type: qim_core::DEFAULT_CONTENT_TYPE.to_owned(),
            payload: compressor.pack_expiring(&payload(seq)),
        };
        assert_eq!(message.payload.dictionary(), Some(dictionary.id()));
        stored(conversation, seq, codec::encode(conversation, &message))
    };
    (1..=3).map(record).collect()
}

fn payload(seq: u64) -> Bytes {
    format!("{seq}: whether it is nobler in the mind").into()
}

pub(crate) async fn a_dictionary_comes_back_to_the_byte_until_it_is_deleted(subject: Subject) {
    let Subject { store, other, now, .. } = &subject;
    let added = dictionary(fresh_id(*now), *now, WORDS);
    let id = added.id();
    assert_eq!(store.dictionary(id).await.unwrap(), None);
    for _ in 0..2 {
        store.add_dictionary(&added).await.unwrap();
        assert_eq!(other.dictionary(id).await.unwrap(), Some(added.encode()));
        assert_eq!(mark(&**other, id).await, Some(UnixMillis::EPOCH));
    }
    let large = dictionary(fresh_id(*now), *now, &"x".repeat(qim_core::dictionary::DICTIONARY_BYTES_MAX));
    store.add_dictionary(&large).await.unwrap();
    assert_eq!(store.dictionary(large.id()).await.unwrap(), Some(large.encode()));
    for gone in [id, large.id(), id] {
        store.delete_dictionary(gone).await.unwrap();
        assert_eq!((other.dictionary(gone).await.unwrap(), mark(&**store, gone).await), (None, None));
    }
}

pub(crate) async fn a_dictionary_is_never_replaced_and_its_date_never_goes_back(subject: Subject) {
    let Subject { store, other, now, .. } = &subject;
    let id = fresh_id(*now);
    store.add_dictionary(&dictionary(id, *now, WORDS)).await.unwrap();
    let error = other.add_dictionary(&dictionary(id, *now, "something else")).await.unwrap_err();
    assert!(matches!(error, ArchiveError::Refused(_)), "{error}");
    assert_eq!(store.dictionary(id).await.unwrap(), Some(dictionary(id, *now, WORDS).encode()));
    for (until, kept) in [(*now, *now), (*now + DAY, *now + DAY), (*now, *now + DAY)] {
        store.raise_dictionary(id, until).await.unwrap();
        assert_eq!(mark(&**other, id).await, Some(kept));
    }
    store.delete_dictionary(id).await.unwrap();
}

pub(crate) async fn records_are_opened_with_the_dictionary_that_the_archive_has(subject: Subject) {
    let Subject { store, other, conversation, now, .. } = &subject;
    let added = dictionary(fresh_id(*now), *now, WORDS);
    store.add_dictionary(&added).await.unwrap();
    // Neither program was told of the dictionary before it met the records.
    store.put(conversation, &packed(&subject, &added), *now).await.unwrap();
    assert_eq!(other.earliest(conversation, ALL, *now).await.unwrap().unwrap().seq, 1);
    for reader in [other, store] {
        let page = reader.read(conversation, ALL, Direction::Forwards, 500, *now).await.unwrap();
        assert_eq!((seqs(&page), page.damaged.len()), (vec![1, 2, 3], 0));
        for record in page.records {
            assert_eq!(record.payload, payload(record.seq));
        }
    }
    assert_eq!(readable(&subject, *now).await, [1, 2, 3]);
}

pub(crate) async fn a_record_without_its_dictionary_is_reported_and_not_served(subject: Subject) {
    let Subject { store, other, conversation, now, .. } = &subject;
    let never_added = dictionary(fresh_id(*now), *now, WORDS);
    let error = store.put(conversation, &packed(&subject, &never_added), *now).await.unwrap_err();
    assert!(matches!(error, ArchiveError::Damaged { seq: 1, .. }), "{error}");
    assert_eq!(store.count(conversation, *now).await.unwrap(), 0, "nothing was changed");

    let lost = dictionary(fresh_id(*now), *now, WORDS);
    store.add_dictionary(&lost).await.unwrap();
    store.put(conversation, &packed(&subject, &lost), *now).await.unwrap();
    store.delete_dictionary(lost.id()).await.unwrap();
    let page = other.read(conversation, ALL, Direction::Backwards, 500, *now).await.unwrap();
    assert_eq!((seqs(&page), page.damaged.len()), (vec![], 3));
    assert!(page.damaged[0].reason.contains(&format!("dictionary {}", lost.id())), "{:?}", page.damaged);
    assert_eq!(page.next, None);
}
