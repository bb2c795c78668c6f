//! Compares a conversation of the file with the same conversation in the store.

use qim_core::{RetentionClass, UnixMillis};
use qim_proto::v1;

use crate::record::class_from_api;
use crate::time_args::show_date;

use super::findings::Findings;
use super::ledger::{Expected, Said, ShortId};
use super::retention::{Due, Rules, SLACK};

/// One conversation's comparison. It is shown the records of the store in the order of their seqs.
pub(crate) struct Audit<'a> {
    expected: &'a [Expected],
    rules: &'a Rules,
    now: UnixMillis,
    /// Finds the records of the file by id: sorted by id, then by place in the file. Made at the first record, since
    /// many conversations wait for their turn.
    by_id: Vec<(ShortId, usize)>,
    /// The seq under which each was found; 0 where it was not.
    found: Vec<u64>,
    /// Those that count as different: once each, however much is wrong.
    different: Vec<bool>,
    /// The place in the file of the last one found.
    furthest: usize,
    /// Seq and date of the record before, whether of the file or not.
    previous: Option<(u64, i64)>,
    findings: Findings,
}

impl<'a> Audit<'a> {
    /// Starts with nothing seen.
    pub(crate) fn new(expected: &'a [Expected], rules: &'a Rules, now: UnixMillis) -> Self {
        Self {
            expected,
            rules,
            now,
            by_id: Vec::new(),
            found: Vec::new(),
            different: Vec::new(),
            furthest: 0,
            previous: None,
            findings: Findings::default(),
        }
    }

    /// Compares the next record of the store.
    pub(crate) fn see(&mut self, record: &v1::Record) {
        self.index();
        // A class that this version does not know is none of the file's.
        let class = class_from_api(record.retention_class);
        let said = Said {
            sender: &record.sender,
            client_msg_id: &record.client_msg_id,
            class: class.unwrap_or_default(),
            content_type: &record.content_type,
            payload: &record.payload,
        };
        let digest = class.map(|_| said.digest());
        let places = self.places(said.id());
        if let Some(stored) = self.stored_one(&places) {
            for place in places {
                let expected = &self.expected[place];
                if place == stored || self.due(expected) != Due::Absent {
                    let wrong = self.compare(place, place == stored, record, digest);
                    self.note(place, record.seq, wrong);
                }
            }
        }
        self.previous = Some((record.seq, record.created_at_ms));
    }

    /// Counts what was not seen.
    pub(crate) fn finish(mut self) -> Findings {
        self.index();
        for (expected, found) in self.expected.iter().zip(&self.found) {
            match (found, self.due(expected)) {
                (1.., _) => self.findings.compared += 1,
                (0, Due::Present) => {
                    self.findings.missing += 1;
                    self.findings.tell(expected.line, "is missing".to_owned());
                }
                (0, Due::Either | Due::Absent) => self.findings.expired += 1,
            }
        }
        self.findings
    }

    fn index(&mut self) {
        if self.found.is_empty() {
            self.found = vec![0; self.expected.len()];
            self.different = vec![false; self.expected.len()];
            self.by_id = self.expected.iter().enumerate().map(|(place, e)| (e.id, place)).collect();
            self.by_id.sort_unstable();
        }
    }

    /// Where the file has this id.
    fn places(&self, id: ShortId) -> Vec<usize> {
        let from = self.by_id.partition_point(|(other, _)| *other < id);
        self.by_id[from..].iter().take_while(|(other, _)| *other == id).map(|(_, place)| *place).collect()
    }

    /// Of several lines with the same id the first one was stored, unless it had expired when it came.
    fn stored_one(&self, places: &[usize]) -> Option<usize> {
        let live = places.iter().find(|place| self.due(&self.expected[**place]) != Due::Absent);
        live.or(places.first()).copied()
    }

    fn due(&self, expected: &Expected) -> Due {
        self.rules.due(expected.class, expected.date, self.now)
    }

    /// What is wrong with this record of the file, now that the store has shown one of the same id.
    fn compare(
        &mut self,
        place: usize,
        is_stored_one: bool,
        record: &v1::Record,
        digest: Option<[u8; 16]>,
    ) -> Option<String> {
        let expected = &self.expected[place];
        let class = class_from_api(record.retention_class);
        if self.found[place] != 0 {
            return Some(format!("is stored twice, as seq {} and seq {}", self.found[place], record.seq));
        }
        if class != Some(expected.class) {
            let stored = class.map_or_else(|| record.retention_class.to_string(), |class| class.to_string());
            return Some(format!("seq {} has class {stored}, not {}", record.seq, expected.class));
        }
        if digest != Some(expected.digest) {
            return Some(format!("seq {} has another payload or content type", record.seq));
        }
        if !is_stored_one {
            // A second line of the same message: its date and place are the first one's.
            return None;
        }
        let wrong = self.compare_date(place, record).or_else(|| self.overdue(place, record));
        if place < self.furthest && wrong.is_none() {
            let before = self.expected[self.furthest].line;
            return Some(format!("seq {} stands behind the record of line {before}", record.seq));
        }
        self.furthest = self.furthest.max(place);
        wrong
    }

    /// The store may only have moved a date later, to that of the record before.
    fn compare_date(&self, place: usize, record: &v1::Record) -> Option<String> {
        let expected = &self.expected[place];
        let (stored, given) = (record.created_at_ms, expected.date.as_i64());
        let as_given = if expected.is_exact {
            stored == given
        } else {
            // An age counts from the start of the import, which was not after the moment assumed for it.
            stored <= (expected.date + SLACK).as_i64()
        };
        if as_given || (stored > given && self.is_date_of_predecessor(place, record)) {
            return None;
        }
        let wanted = if expected.is_exact { "not" } else { "later than its age allows:" };
        Some(format!("seq {} is dated {}, {wanted} {}", record.seq, show_date(stored), show_date(given)))
    }

    fn is_date_of_predecessor(&self, place: usize, record: &v1::Record) -> bool {
        if let Some((seq, date)) = self.previous
            && seq + 1 == record.seq
        {
            return date == record.created_at_ms;
        }
        // The record before has expired. Where the file has all that came before, it says what date that can have been.
        let before = &self.expected[..place];
        let is_known = !before.is_empty() && before.iter().all(|expected| expected.is_exact);
        let latest = before.iter().map(|expected| expected.date.as_i64()).max();
        !is_known || latest == Some(record.created_at_ms)
    }

    /// A record must go at its date: the one that it is stored with, which may be later than the file's.
    fn overdue(&self, place: usize, record: &v1::Record) -> Option<String> {
        let stored = UnixMillis::checked(record.created_at_ms).unwrap_or_default();
        let class: RetentionClass = self.expected[place].class;
        (self.rules.due(class, stored, self.now) == Due::Absent)
            .then(|| format!("seq {} of {} should have expired", record.seq, show_date(record.created_at_ms)))
    }

    fn note(&mut self, place: usize, seq: u64, wrong: Option<String>) {
        if self.found[place] == 0 {
            self.found[place] = seq;
        }
        let Some(text) = wrong else { return };
        if !std::mem::replace(&mut self.different[place], true) {
            self.findings.different += 1;
            self.findings.tell(self.expected[place].line, text);
        }
    }
}

#[cfg(test)]
#[path = "audit_tests.rs"]
mod tests;
