use crate::ndjson::Source;
use crate::progress::Progress;

use super::delivery::Delivered;

/// How many failures are told one by one.
const TOLD_MAX: u64 = 20;

/// What became of the lines so far.
#[derive(Debug)]
pub(crate) struct Tally {
    source: Source,
    committed: u64,
    duplicate: u64,
    expired: u64,
    failed: u64,
}

impl Tally {
    /// Nothing so far.
    pub(crate) fn new(source: Source) -> Self {
        Self { source, committed: 0, duplicate: 0, expired: 0, failed: 0 }
    }

    pub(crate) fn committed(&self) -> u64 {
        self.committed
    }

    pub(crate) fn duplicate(&self) -> u64 {
        self.duplicate
    }

    pub(crate) fn expired(&self) -> u64 {
        self.expired
    }

    pub(crate) fn failed(&self) -> u64 {
        self.failed
    }

    /// All that have an outcome.
    pub(crate) fn total(&self) -> u64 {
        self.committed + self.duplicate + self.expired + self.failed
    }

    /// A line that cannot be imported; tells the first ones.
    pub(crate) fn fail(&mut self, line: u64, reason: &str, progress: &Progress) {
        self.failed += 1;
        if self.failed <= TOLD_MAX {
            progress.say(&format!("{}:{line}: {reason}", self.source));
        }
    }

    /// A batch is done.
    pub(crate) fn add(&mut self, delivered: &Delivered, progress: &Progress) {
        self.committed += delivered.committed;
        self.duplicate += delivered.duplicate;
        self.expired += delivered.expired;
        for (line, reason) in &delivered.failed {
            self.fail(*line, reason, progress);
        }
    }

    /// Tells how many failures were not told.
    pub(crate) fn finish(&self, progress: &Progress) {
        if let Some(more @ 1..) = self.failed.checked_sub(TOLD_MAX) {
            progress.say(&format!("{}: and {more} more", self.source));
        }
    }
}
