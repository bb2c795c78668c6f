//! What is told of a run that went wrong, and what of all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::checker::{Breach, Violation};
use crate::fleet::Happened;
use crate::ledger::{Ledger, Outcome};
use crate::recovery::Recovery;
use crate::schedule::Schedule;

/// Violations told of in full.
const TOLD_MAX: usize = 12;
const READS_TOLD_MAX: usize = 12;

/// What was looked at, and what was found.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Findings {
    pub(crate) acknowledged: u64,
    pub(crate) pages: u64,
    pub(crate) lost: u64,
    pub(crate) duplicated: u64,
    pub(crate) resurrected: u64,
    pub(crate) expired_read: u64,
    pub(crate) seq_reused: u64,
    pub(crate) false_gaps: u64,
    pub(crate) stuck: u64,
}

/// What came of one run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct RunResult {
    #[serde(flatten)]
    pub(crate) findings: Findings,
    pub(crate) recovery_seconds: f64,
    /// How often each kind was inflicted.
    pub(crate) faults: BTreeMap<String, u64>,
    /// Kinds that could not be, and why.
    pub(crate) skipped: BTreeMap<String, String>,
    pub(crate) seconds: f64,
}

/// The one line at the end of a campaign.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Summary {
    pub(crate) runs: u64,
    /// Runs that told nothing: they could not be started, or were given up.
    pub(crate) broken_runs: u64,
    pub(crate) first_seed: u64,
    #[serde(flatten)]
    pub(crate) findings: Findings,
    pub(crate) worst_recovery_seconds: f64,
    pub(crate) faults: BTreeMap<String, u64>,
    pub(crate) skipped: BTreeMap<String, String>,
    pub(crate) failed_seeds: Vec<u64>,
    pub(crate) seconds: f64,
}

impl Findings {
    fn new(ledger: &Ledger, violations: &[Violation]) -> Self {
        let count = |breach| violations.iter().filter(|violation| violation.breach == breach).count() as u64;
        Self {
            acknowledged: ledger.messages.values().filter(|sent| sent.acknowledged().next().is_some()).count()
                as u64,
            pages: ledger.reads.len() as u64,
            lost: count(Breach::Lost),
            duplicated: count(Breach::Duplicated),
            resurrected: count(Breach::Resurrected),
            expired_read: count(Breach::ExpiredRead),
            seq_reused: count(Breach::SeqReused),
            false_gaps: count(Breach::FalseGap),
            stuck: count(Breach::Stuck),
        }
    }

    fn add(&mut self, other: Self) {
        self.acknowledged += other.acknowledged;
        self.pages += other.pages;
        self.lost += other.lost;
        self.duplicated += other.duplicated;
        self.resurrected += other.resurrected;
        self.expired_read += other.expired_read;
        self.seq_reused += other.seq_reused;
        self.false_gaps += other.false_gaps;
        self.stuck += other.stuck;
    }

    fn are_good(&self) -> bool {
        self.lost
            + self.duplicated
            + self.resurrected
            + self.expired_read
            + self.seq_reused
            + self.false_gaps
            + self.stuck
            == 0
    }
}

impl RunResult {
    pub(crate) fn new(
        schedule: &Schedule,
        ledger: &Ledger,
        violations: &[Violation],
        recovery: &Recovery,
        happened: &Happened,
    ) -> Self {
        let not_inflicted = |fault| happened.not_inflicted.iter().any(|(other, _)| *other == fault);
        let mut faults = BTreeMap::new();
        for fault in schedule.faults.iter().filter(|fault| !not_inflicted(**fault)) {
            *faults.entry(fault.kind.to_string()).or_default() += 1;
        }
        let skipped =
            happened.not_inflicted.iter().map(|(fault, why)| (fault.kind.to_string(), why.clone())).collect();
        Self {
            findings: Findings::new(ledger, violations),
            recovery_seconds: rounded(recovery.seconds),
            faults,
            skipped,
            seconds: 0.0,
        }
    }

    pub(crate) fn taking(self, time: Duration) -> Self {
        Self { seconds: rounded(time.as_secs_f64()), ..self }
    }

    pub(crate) fn is_good(&self) -> bool {
        self.findings.are_good()
    }
}

impl Summary {
    pub(crate) fn add(&mut self, seed: u64, result: Option<RunResult>) {
        self.runs += 1;
        let Some(result) = result else {
            self.broken_runs += 1;
            self.failed_seeds.push(seed);
            return;
        };
        if !result.is_good() {
            self.failed_seeds.push(seed);
        }
        self.findings.add(result.findings);
        self.worst_recovery_seconds = self.worst_recovery_seconds.max(result.recovery_seconds);
        for (kind, count) in result.faults {
            *self.faults.entry(kind).or_default() += count;
        }
        self.skipped.extend(result.skipped);
    }

    pub(crate) fn taking(mut self, time: Duration) -> Self {
        self.seconds = rounded(time.as_secs_f64());
        self.failed_seeds.sort_unstable();
        self
    }
}

fn rounded(seconds: f64) -> f64 {
    (seconds * 10.0).round() / 10.0
}

/// Everything about what went wrong in a run: the faults, and of each violation what was expected and the conversation
/// around it.
pub(crate) fn tell(
    schedule: &Schedule,
    ledger: &Ledger,
    violations: &[Violation],
    happened: &Happened,
    dir: &Path,
) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "== seed {}: {} violations; kept in {}",
        schedule.seed,
        violations.len(),
        dir.display()
    );
    let _ = writeln!(
        text,
        "{} writers, {} archivers, copies after {} ms",
        schedule.writers, schedule.archivers, schedule.copy_delay_ms
    );
    for fault in &schedule.faults {
        let _ = writeln!(
            text,
            "fault {} {} from {} to {} ms",
            fault.kind, fault.instance, fault.start_ms, fault.end_ms
        );
    }
    for (at, what) in &happened.log {
        let _ = writeln!(text, "{at} {what}");
    }
    let mut told = BTreeSet::new();
    for violation in violations.iter().take(TOLD_MAX) {
        let Violation { breach, conversation, seq, number, said } = violation;
        let number = number.map(|number| format!(" m{number}")).unwrap_or_default();
        let _ = writeln!(text, "-- {breach:?}: c{conversation} seq {seq}{number}: {said}");
        if told.insert((conversation, seq)) && *seq > 0 {
            tell_around(&mut text, ledger, violation);
        }
    }
    if violations.len() > TOLD_MAX {
        let _ = writeln!(text, "-- and {} more", violations.len() - TOLD_MAX);
    }
    text
}

/// The story of a message and of its seq.
fn tell_around(text: &mut String, ledger: &Ledger, violation: &Violation) {
    let mut lines: Vec<(i64, String)> = Vec::new();
    let has_seq =
        |outcome: &Outcome| matches!(outcome, Outcome::Acknowledged { seq, .. } if *seq == violation.seq);
    for (number, sent) in &ledger.messages {
        let here = sent.conversation == violation.conversation;
        let about = Some(*number) == violation.number
            || sent.attempts.iter().any(|attempt| has_seq(&attempt.outcome));
        if here && about {
            for attempt in &sent.attempts {
                let (class, done) = (sent.class, attempt.done_ms - attempt.sent_ms);
                let what = format!(
                    "m{number} {class:?} dated {:?} sent, {:?} body: {:?} after {done} ms",
                    sent.imported_as, attempt.body, attempt.outcome
                );
                lines.push((attempt.sent_ms, what));
            }
        }
    }
    let mut shown_before = None;
    let reads = ledger.reads.iter().filter(|read| read.conversation == violation.conversation);
    for read in reads.filter(|read| (read.from..read.below).contains(&violation.seq)) {
        let seen = read.records.iter().find(|seen| seen.seq == violation.seq);
        let what = format!(
            "page {}..{} earliest {} last {}{}: {}",
            read.from,
            read.below,
            read.earliest,
            read.last,
            if read.archive_unavailable { " archive unavailable" } else { "" },
            seen.map_or("not there".to_owned(), |seen| format!("{:?} {:?}", seen.number, seen.dates))
        );
        // Only where it changes.
        if shown_before.replace(seen.is_some()) != Some(seen.is_some()) || read.is_final {
            lines.push((read.sent_ms, what));
        }
    }
    lines.sort();
    lines.dedup();
    let _ = lines.iter().take(READS_TOLD_MAX * 2).try_for_each(|(at, what)| writeln!(text, "   {at} {what}"));
}
