//! One module for each part of the contract.

pub(crate) mod client_ids;
pub(crate) mod dates;
pub(crate) mod dictionaries;
pub(crate) mod gaps;
pub(crate) mod marks;
pub(crate) mod puts;
pub(crate) mod reads;

use qim_core::UnixMillis;
use qim_store::archive::{ArchivePage, Direction, SeqRange};

use crate::backend::Subject;

/// All seqs.
pub(crate) const ALL: SeqRange = SeqRange { from: 1, below: u64::MAX };

pub(crate) const fn range(from: u64, below: u64) -> SeqRange {
    SeqRange { from, below }
}

/// The seqs of a page's records.
pub(crate) fn seqs(page: &ArchivePage) -> Vec<u64> {
    page.records.iter().map(|record| record.seq).collect()
}

/// The seqs that are read from the low end at `now`, all pages of them.
pub(crate) async fn readable(subject: &Subject, now: UnixMillis) -> Vec<u64> {
    let (mut found, mut rest) = (Vec::new(), ALL);
    loop {
        let page =
            subject.store.read(&subject.conversation, rest, Direction::Forwards, 500, now).await.unwrap();
        assert_eq!(page.damaged, []);
        found.extend(seqs(&page));
        match page.next {
            Some(next) => rest.from = next,
            None => return found,
        }
    }
}

pub(crate) fn list(seqs: impl IntoIterator<Item = u64>) -> Vec<u64> {
    seqs.into_iter().collect()
}
