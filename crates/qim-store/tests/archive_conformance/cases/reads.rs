//! Pages: their order, their limits, and where the next one begins.

use std::collections::BTreeMap;

use qim_core::{RetentionClass, UnixMillis};
use qim_store::archive::{ArchivePage, Direction, SeqRange};

use super::{ALL, list, range, readable, seqs};
use crate::backend::Subject;
use crate::messages::{DAY, Draft, Numbers, RETENTION, records};

const DIRECTIONS: [Direction; 2] = [Direction::Forwards, Direction::Backwards];

pub(crate) async fn a_page_is_ascending_in_both_directions(subject: Subject) {
    let Subject { store, conversation, now, .. } = &subject;
    store.put(conversation, &records(conversation, 1..=20, *now), *now).await.unwrap();
    let read = async |range, direction, limit| {
        let page = store.read(conversation, range, direction, limit, *now).await.unwrap();
        (seqs(&page), page.next)
    };
    assert_eq!(read(ALL, Direction::Forwards, 3).await, (vec![1, 2, 3], Some(4)));
    assert_eq!(read(range(5, 9), Direction::Forwards, 3).await, (vec![5, 6, 7], Some(8)));
    assert_eq!(read(range(5, 9), Direction::Forwards, 4).await, (vec![5, 6, 7, 8], None));
    assert_eq!(read(range(5, 9), Direction::Forwards, 500).await, (vec![5, 6, 7, 8], None));
    assert_eq!(read(ALL, Direction::Backwards, 3).await, (vec![18, 19, 20], Some(18)));
    assert_eq!(read(range(1, 18), Direction::Backwards, 2).await, (vec![16, 17], Some(16)));
    assert_eq!(read(range(5, 9), Direction::Backwards, 4).await, (vec![5, 6, 7, 8], None));
    assert_eq!(read(range(5, 9), Direction::Backwards, 500).await, (vec![5, 6, 7, 8], None));
    assert_eq!(read(range(20, 21), Direction::Backwards, 1).await, (vec![20], None));
    assert_eq!(read(range(21, 500), Direction::Forwards, 1).await, (vec![], None));
}

pub(crate) async fn a_read_crosses_buckets(subject: Subject) {
    let Subject { store, conversation, now, .. } = &subject;
    let written: Vec<u64> = (4090..=4100).chain(8188..=8195).collect();
    store.put(conversation, &records(conversation, written.clone(), *now), *now).await.unwrap();
    assert_eq!(readable(&subject, *now).await, written);
    for edge in [4095, 4096, 4097, 8191, 8192, 8193] {
        for direction in DIRECTIONS {
            let page = store.read(conversation, range(edge, edge + 1), direction, 5, *now).await.unwrap();
            assert_eq!((seqs(&page), page.next), (vec![edge], None));
        }
        let page =
            store.read(conversation, range(edge - 1, edge + 2), Direction::Forwards, 5, *now).await.unwrap();
        assert_eq!(seqs(&page), [edge - 1, edge, edge + 1]);
        let page = store.read(conversation, range(1, edge), Direction::Backwards, 2, *now).await.unwrap();
        assert_eq!(seqs(&page), [edge - 2, edge - 1]);
        let marks = store.marks(conversation, range(edge - 1, edge + 2), *now).await.unwrap();
        assert_eq!(marks.iter().map(|mark| mark.seq).collect::<Vec<_>>(), [edge - 1, edge, edge + 1]);
        assert_eq!(
            store.earliest(conversation, range(edge, u64::MAX), *now).await.unwrap().unwrap().seq,
            edge
        );
    }
}

pub(crate) async fn a_page_has_at_most_three_mib(subject: Subject) {
    let Subject { store, conversation, now, .. } = &subject;
    let put: Vec<_> = (1..=120)
        .map(|seq| Draft::new(seq, *now).payload(vec![b'x'; 64 * 1024]).commit(conversation))
        .collect();
    store.put(conversation, &put, *now).await.unwrap();
    let (mut found, mut rest) = (Vec::new(), ALL);
    while rest.from <= 120 {
        let page = store.read(conversation, rest, Direction::Forwards, 500, *now).await.unwrap();
        let bytes: usize = page.records.iter().map(|record| record.payload.len()).sum();
        assert!(bytes <= 3 << 20, "{bytes} bytes in a page");
        assert!(bytes > 2 << 20 || page.next.is_none(), "only {bytes} bytes in a page");
        found.extend(seqs(&page));
        rest.from = page.next.unwrap_or(u64::MAX);
    }
    assert_eq!(found, list(1..=120));
    let page = store.read(conversation, ALL, Direction::Backwards, 500, *now).await.unwrap();
    assert_eq!(page.records.last().unwrap().seq, 120);
    assert_eq!(page.next, Some(page.records[0].seq));
}

pub(crate) async fn a_page_has_at_least_one_record(subject: Subject) {
    let Subject { store, conversation, now, .. } = &subject;
    let large = |seq| Draft::new(seq, *now).payload(vec![b'x'; 4 << 20]).commit(conversation);
    store.put(conversation, &[large(1), large(2)], *now).await.unwrap();
    let page = store.read(conversation, ALL, Direction::Forwards, 10, *now).await.unwrap();
    assert_eq!((seqs(&page), page.next), (vec![1], Some(2)));
    let page = store.read(conversation, ALL, Direction::Backwards, 10, *now).await.unwrap();
    assert_eq!((seqs(&page), page.next), (vec![2], Some(2)));
}

pub(crate) async fn an_empty_range_has_no_records(subject: Subject) {
    let Subject { store, conversation, now, .. } = &subject;
    store.put(conversation, &records(conversation, 1..=5, *now), *now).await.unwrap();
    for empty in [range(3, 3), range(5, 2), range(1, 1)] {
        for direction in DIRECTIONS {
            let page = store.read(conversation, empty, direction, 10, *now).await.unwrap();
            assert_eq!(page, ArchivePage::default());
        }
        assert_eq!(store.marks(conversation, empty, *now).await.unwrap(), []);
        assert_eq!(store.earliest(conversation, empty, *now).await.unwrap(), None);
    }
}

/// Random records of all classes with holes, against a map of what must be there.
pub(crate) async fn every_record_is_reached_by_following_next(subject: Subject) {
    let Subject { store, conversation, now, .. } = &subject;
    let mut numbers = Numbers(7);
    let mut model: BTreeMap<u64, Option<UnixMillis>> = BTreeMap::new();
    let mut seq = 3900;
    while seq < 4400 {
        let mut batch = Vec::new();
        for _ in 0..=numbers.below(40) {
            seq += 1 + numbers.below(3);
            let class = RetentionClass::ALL[usize::try_from(numbers.below(4)).unwrap()];
            batch.push(Draft::new(seq, *now).class(class).commit(conversation));
        }
        store.put(conversation, &batch, *now).await.unwrap();
        model.extend(batch.iter().map(|record| (record.seq, record.encoded.expires_at())));
    }
    for round in 0..40 {
        let at = [*now, *now + DAY, *now + RETENTION][round % 3];
        let from = 3800 + numbers.below(400);
        let whole = range(from, from + numbers.below(600));
        let limit = 1 + usize::try_from(numbers.below(70)).unwrap();
        let expected: Vec<u64> = model
            .iter()
            .filter(|(seq, date)| {
                (whole.from..whole.below).contains(seq) && date.is_none_or(|date| at < date)
            })
            .map(|(seq, _)| *seq)
            .collect();
        for direction in DIRECTIONS {
            assert_eq!(follow(&subject, whole, direction, limit, at).await, expected);
        }
        let earliest = store.earliest(conversation, whole, at).await.unwrap();
        assert_eq!(earliest.map(|earliest| earliest.seq), expected.first().copied());
    }
    let expected = model.values().filter(|date| date.is_none_or(|date| *now + DAY < date)).count();
    assert_eq!(store.count(conversation, *now + DAY).await.unwrap(), expected as u64);
}

/// The seqs of all pages of a range, ascending.
async fn follow(
    subject: &Subject,
    range: SeqRange,
    direction: Direction,
    limit: usize,
    at: UnixMillis,
) -> Vec<u64> {
    let (mut found, mut rest) = (Vec::new(), range);
    loop {
        let page = subject.store.read(&subject.conversation, rest, direction, limit, at).await.unwrap();
        assert!(page.records.len() <= limit);
        assert!(page.records.iter().all(|record| (rest.from..rest.below).contains(&record.seq)));
        found.extend(seqs(&page));
        match (page.next, direction) {
            (None, _) => break,
            (Some(next), Direction::Forwards) => rest.from = next,
            (Some(next), Direction::Backwards) => rest.below = next,
        }
    }
    if direction == Direction::Backwards {
        found.sort_unstable();
    }
    found
}

pub(crate) async fn a_long_run_of_expired_records_is_passed(subject: Subject) {
    let Subject { store, conversation, now, .. } = &subject;
    for first in (1..=6000).step_by(500) {
        let mut put = records(conversation, first..first + 500, *now);
        if first == 5501 {
            put.truncate(499);
            put.push(Draft::new(6000, *now).class(RetentionClass::ComplianceHold).commit(conversation));
        }
        store.put(conversation, &put, *now).await.unwrap();
    }
    let later = *now + RETENTION;
    assert_eq!(follow(&subject, ALL, Direction::Forwards, 10, later).await, [6000]);
    assert_eq!(follow(&subject, range(1, 6000), Direction::Backwards, 10, later).await, [] as [u64; 0]);
    assert_eq!(store.earliest(conversation, ALL, later).await.unwrap().unwrap().seq, 6000);
}

pub(crate) async fn high_seqs_are_read(subject: Subject) {
    let Subject { store, conversation, now, .. } = &subject;
    let first = 1 << 40;
    store.put(conversation, &records(conversation, [1], *now), *now).await.unwrap();
    store.put(conversation, &records(conversation, first..first + 3, *now), *now).await.unwrap();
    assert_eq!(readable(&subject, *now).await, [1, first, first + 1, first + 2]);
    let page = store.read(conversation, ALL, Direction::Backwards, 3, *now).await.unwrap();
    assert_eq!(seqs(&page), [first, first + 1, first + 2]);
    assert_eq!(store.high_water(conversation).await.unwrap(), first + 2);
}
