//! What the clients saw, compared with what must hold: a pure function of the ledger.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::ledger::{Body, Ledger, Outcome, Read, Seen, Sent};

/// What a run must not show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) enum Breach {
    /// Acknowledged, alive, and not readable at the end.
    Lost,
    /// One message at two seqs, a retry answered with another seq, or an id with two bodies.
    Duplicated,
    /// Readable after it was gone by its date.
    Resurrected,
    /// Answered at or after its date, or with another date than it was given.
    ExpiredRead,
    /// Two messages under one seq.
    SeqReused,
    /// A page without what it should have, or a conversation that is said to start later or end earlier than it does.
    FalseGap,
    /// Something does not work again.
    Stuck,
}

/// One breach, and what it is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Violation {
    pub(crate) breach: Breach,
    pub(crate) conversation: usize,
    pub(crate) seq: u64,
    pub(crate) number: Option<u32>,
    pub(crate) said: String,
}

/// What the faults of a run excuse.
#[derive(Debug, Clone, Default)]
pub(crate) struct Excuses {
    /// How wrong a daemon's clock was at most: what is dated within that much of a read may be on it or not.
    pub(crate) skew_ms: i64,
    /// Redis lost data, and a writer that remembered it was killed: what is named in a gap may be gone.
    pub(crate) gaps: bool,
    /// When Redis lost data. What nobody had been told of by then may have been seen, and is as if it had never been.
    pub(crate) losses_ms: Vec<i64>,
}

/// All breaches that the ledger shows, each once for a message or seq.
pub(crate) fn check(ledger: &Ledger, excuses: &Excuses) -> Vec<Violation> {
    let conversations: BTreeSet<usize> = ledger
        .messages
        .values()
        .map(|sent| sent.conversation)
        .chain(ledger.reads.iter().map(|read| read.conversation))
        .collect();
    let mut found = Vec::new();
    for conversation in conversations {
        let mut check = Check::new(ledger, conversation, excuses);
        check.acknowledgements();
        check.pages();
        check.gone();
        check.ends();
        found.append(&mut check.found);
    }
    for oddity in &ledger.oddities {
        found.push(Violation {
            breach: Breach::FalseGap,
            conversation: oddity.conversation,
            seq: 0,
            number: None,
            said: oddity.said.clone(),
        });
    }
    found.sort();
    found.dedup_by_key(|violation| {
        (violation.breach, violation.conversation, violation.seq, violation.number)
    });
    found
}

struct Check<'a> {
    ledger: &'a Ledger,
    conversation: usize,
    excuses: &'a Excuses,
    /// In the order in which they were sent.
    reads: Vec<&'a Read>,
    /// Which message stands under a seq, as far as anybody was told.
    owners: BTreeMap<u64, u32>,
    /// All gaps that any read named, and when the first one did.
    gaps: BTreeMap<(u64, u64), i64>,
    found: Vec<Violation>,
}

impl<'a> Check<'a> {
    fn new(ledger: &'a Ledger, conversation: usize, excuses: &'a Excuses) -> Self {
        let mut reads: Vec<&Read> =
            ledger.reads.iter().filter(|read| read.conversation == conversation).collect();
        reads.sort_by_key(|read| read.sent_ms);
        let mut gaps = BTreeMap::new();
        for read in &reads {
            for gap in &read.gaps {
                gaps.entry(*gap).or_insert(read.done_ms);
            }
        }
        Self { ledger, conversation, excuses, reads, owners: BTreeMap::new(), gaps, found: Vec::new() }
    }

    /// Whether a read that was answered before then named a gap with this seq.
    fn was_named(&self, seq: u64, before_ms: i64) -> bool {
        self.gaps.iter().any(|(gap, named_ms)| holds(gap, seq) && *named_ms < before_ms)
    }

    fn note(&mut self, breach: Breach, seq: u64, number: Option<u32>, said: impl Into<String>) {
        let said = said.into();
        self.found.push(Violation { breach, conversation: self.conversation, seq, number, said });
    }

    fn messages(&self) -> impl Iterator<Item = (u32, &'a Sent)> + use<'a> {
        let (messages, conversation) = (&self.ledger.messages, self.conversation);
        let all = messages.iter().map(|(number, sent)| (*number, sent));
        all.filter(move |(_, sent)| sent.conversation == conversation)
    }

    /// When Redis first lost data after this read, if it did.
    fn lost_ms_after(&self, read: &Read) -> Option<i64> {
        self.excuses.losses_ms.iter().copied().filter(|lost_ms| read.sent_ms < *lost_ms).min()
    }

    /// How far the conversation goes that a read saw: less than that, where the end was lost before anybody was told of it.
    fn lasting_end(&self, read: &Read) -> u64 {
        let Some(lost_ms) = self.lost_ms_after(read) else { return read.last };
        let acknowledged = self.messages().flat_map(|(_, sent)| sent.acknowledged());
        let known = acknowledged.filter(|(_, known_ms)| *known_ms < lost_ms).map(|(seq, _)| seq);
        known.max().unwrap_or(0).min(read.last)
    }

    /// Each message has one seq, and each seq one message.
    fn acknowledgements(&mut self) {
        for (number, sent) in self.messages() {
            let mut own = None;
            for (seq, _) in sent.acknowledged() {
                if own.is_some_and(|own| own != seq) {
                    self.note(Breach::Duplicated, seq, Some(number), format!("first it was seq {own:?}"));
                }
                own = own.or(Some(seq));
                self.own(seq, number);
            }
            for attempt in &sent.attempts {
                let said = match (attempt.body, &attempt.outcome) {
                    (Body::Own, Outcome::AlreadyExists) => "its own body was refused as another one",
                    // What is gone can no longer be compared: then the id alone counts.
                    (Body::Other, Outcome::Acknowledged { seq, .. })
                        if own != Some(*seq)
                            || attempt.done_ms
                                < sent.lives_until(self.excuses.skew_ms) - self.excuses.skew_ms =>
                    {
                        "another body was taken under its id"
                    }
                    _ => continue,
                };
                self.note(Breach::Duplicated, own.unwrap_or(0), Some(number), said);
            }
        }
    }

    fn own(&mut self, seq: u64, number: u32) {
        let owner = *self.owners.entry(seq).or_insert(number);
        if owner != number {
            self.note(Breach::SeqReused, seq, Some(number), format!("message {owner} has it, too"));
        }
    }

    /// What is on each page may be there, and what must be there is.
    fn pages(&mut self) {
        for read in self.reads.clone() {
            for pair in read.records.windows(2) {
                if pair[0].seq >= pair[1].seq {
                    self.note(Breach::SeqReused, pair[1].seq, pair[1].number, "a page is not in order");
                }
            }
            for seen in &read.records {
                self.record(read, seen);
            }
            // A daemon whose clock is wrong may have removed what another one remembers as the earliest.
            if let (1, false, 0, Some(first)) =
                (read.from, read.archive_unavailable, self.excuses.skew_ms, read.records.first())
                && first.seq != read.earliest
            {
                let said = format!(
                    "the earliest is said to be {}, and the first one is {}",
                    read.earliest, first.seq
                );
                self.note(Breach::FalseGap, first.seq, first.number, said);
            }
            self.absent(read);
        }
    }

    fn record(&mut self, read: &Read, seen: &Seen) {
        let expires = seen.dates.expires_ms.unwrap_or(i64::MAX);
        if expires <= read.sent_ms - self.excuses.skew_ms {
            let late = read.sent_ms - expires;
            self.note(Breach::ExpiredRead, seen.seq, seen.number, format!("read {late} ms after its date"));
        }
        let Some((number, sent)) = seen.number.and_then(|number| self.ledger.messages.get_key_value(&number))
        else {
            return self.note(Breach::SeqReused, seen.seq, None, "nobody sent this");
        };
        if sent.conversation != self.conversation {
            self.note(Breach::SeqReused, seen.seq, Some(*number), "it belongs to another conversation");
        }
        if seen.body != Some(Body::Own) {
            self.note(Breach::SeqReused, seen.seq, Some(*number), format!("its body is {:?}", seen.body));
        }
        let is_undone = |lost_ms| sent.acknowledged().all(|(_, known_ms)| known_ms >= lost_ms);
        if self.lost_ms_after(read).is_some_and(is_undone) {
            return;
        }
        if let Some((seq, _)) = sent.acknowledged().next()
            && seq != seen.seq
        {
            self.note(
                Breach::Duplicated,
                seen.seq,
                Some(*number),
                format!("it was acknowledged as seq {seq}"),
            );
        }
        self.own(seen.seq, *number);
        let by_policy = sent.class.retention_ms().map(|retention| seen.dates.created_ms + retention);
        let told = sent.told_dates().unwrap_or(seen.dates);
        if seen.dates.expires_ms != by_policy || seen.dates != told {
            let said = format!("its dates are {:?}; by policy {by_policy:?}, told {told:?}", seen.dates);
            self.note(Breach::ExpiredRead, seen.seq, Some(*number), said);
        }
    }

    /// Acknowledged before the page was asked for, alive when it was answered, and not on it.
    fn absent(&mut self, read: &Read) {
        let shown: BTreeSet<u64> = read.records.iter().map(|seen| seen.seq).collect();
        // A page names the gaps among the seqs that it is about; the earliest seq lies above those that any page names.
        let excused = self.excuses.gaps;
        for (number, sent) in self.messages() {
            let Some((seq, _)) = sent.acknowledged().find(|(_, known)| *known < read.sent_ms) else {
                continue;
            };
            if seq > read.last {
                self.note(
                    Breach::FalseGap,
                    seq,
                    Some(number),
                    format!("the last seq is said to be {}", read.last),
                );
            }
            let alive = sent.lives_until(self.excuses.skew_ms) > read.done_ms + self.excuses.skew_ms;
            if !alive || (excused && read.gaps.iter().any(|gap| holds(gap, seq))) {
                continue;
            }
            let named_anywhere = excused && self.was_named(seq, i64::MAX);
            if seq < read.earliest && !read.archive_unavailable && !named_anywhere {
                let said = format!("the earliest is said to be {}", read.earliest);
                self.note(Breach::FalseGap, seq, Some(number), said);
            }
            if (read.from..read.below).contains(&seq) && !shown.contains(&seq) {
                let breach = if read.is_final { Breach::Lost } else { Breach::FalseGap };
                let said = format!("not on a page of {}..{} at {}", read.from, read.below, read.sent_ms);
                self.note(breach, seq, Some(number), said);
            }
        }
    }

    /// What a page left out at its date stays away.
    fn gone(&mut self) {
        let mut gone: BTreeMap<u64, i64> = BTreeMap::new();
        let dates: BTreeMap<u64, i64> = (self.reads.iter().flat_map(|read| &read.records))
            .map(|seen| (seen.seq, seen.dates.expires_ms.unwrap_or(i64::MAX)))
            .collect();
        for read in self.reads.clone() {
            for seen in &read.records {
                let was_gone = gone.get(&seen.seq).is_some_and(|since| *since < read.sent_ms);
                if was_gone && dates[&seen.seq] <= read.sent_ms - self.excuses.skew_ms {
                    self.note(Breach::Resurrected, seen.seq, seen.number, "it had gone by its date");
                }
            }
            let shown: BTreeSet<u64> = read.records.iter().map(|seen| seen.seq).collect();
            for (seq, expires) in dates.range(read.from..read.below.max(read.from)) {
                if !shown.contains(seq) && *expires <= read.done_ms {
                    gone.entry(*seq).or_insert(read.done_ms);
                }
            }
        }
    }

    /// The end of a conversation never goes back, and a gap that is named holds nothing any more.
    fn ends(&mut self) {
        let mut furthest: Vec<(i64, u64)> = Vec::new();
        for read in self.reads.clone() {
            let before =
                furthest.iter().filter(|(done, _)| *done < read.sent_ms).map(|(_, last)| *last).max();
            if before.is_some_and(|before| read.last < before) {
                self.note(Breach::FalseGap, read.last, None, format!("the last seq was {before:?} before"));
            }
            furthest.push((read.done_ms, self.lasting_end(read)));
        }
        for read in self.reads.clone() {
            for seen in &read.records {
                let is_named = read.gaps.iter().any(|gap| holds(gap, seen.seq));
                if is_named || self.was_named(seen.seq, read.sent_ms) {
                    self.note(Breach::FalseGap, seen.seq, seen.number, "it is in a gap that was named");
                }
            }
        }
    }
}

fn holds((from, to): &(u64, u64), seq: u64) -> bool {
    (*from..=*to).contains(&seq)
}

#[cfg(test)]
#[path = "checker_tests.rs"]
mod tests;
