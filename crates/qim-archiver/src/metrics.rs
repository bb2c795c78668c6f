use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge,
    histogram,
};
use qim_core::UnixMillis;

/// Everything the archiver counts.
pub(crate) struct ArchiverMetrics {
    pub(crate) archived: Counter,
    pub(crate) unchanged: Counter,
    pub(crate) recopied: Counter,
    pub(crate) clamped: Counter,
    pub(crate) trimmed: Counter,
    pub(crate) conversations_set_aside: Counter,
    pub(crate) rows_deleted: Counter,
    pub(crate) bytes_freed: Counter,
    pub(crate) dictionaries: Gauge,
    pub(crate) dictionaries_deleted: Counter,
    pub(crate) dictionaries_restored: Counter,
    pub(crate) leases: Gauge,
    pub(crate) archive: [ArchiveCalls; 3],
    pub(crate) unarchived: Gauge,
    pub(crate) set_aside: Gauge,
    unarchived_age: Gauge,
    trim_lag: Gauge,
    /// When the conversation that waits longest was due for its copy, ms; 0: none waits.
    unarchived_since: AtomicU64,
    /// When the record that waits longest left the hot window, ms; 0: none waits.
    trim_due_since: AtomicU64,
}

/// Calls to the archive for one purpose.
pub(crate) struct ArchiveCalls {
    pub(crate) seconds: Histogram,
    pub(crate) errors: Counter,
}

/// What the archive is called for: the values of the label `op`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Copy,
    Trim,
    Maintain,
}

impl ArchiverMetrics {
    pub(crate) fn new() -> Self {
        describe();
        Self {
            archived: counter!("qim_archived_rows_total"),
            unchanged: counter!("qim_archived_unchanged_rows_total"),
            recopied: counter!("qim_recopied_rows_total"),
            clamped: counter!("qim_ttl_clamped_total"),
            trimmed: counter!("qim_trimmed_records_total"),
            conversations_set_aside: counter!("qim_conversations_set_aside_total"),
            rows_deleted: counter!("qim_expired_rows_deleted_total"),
            bytes_freed: counter!("qim_archive_freed_bytes_total"),
            dictionaries: gauge!("qim_dictionaries"),
            dictionaries_deleted: counter!("qim_dictionaries_deleted_total"),
            dictionaries_restored: counter!("qim_dictionaries_restored_total"),
            leases: gauge!("qim_leases_held"),
            archive: ["copy", "trim", "maintain"].map(|op| ArchiveCalls {
                seconds: histogram!("qim_archive_duration_seconds", "op" => op),
                errors: counter!("qim_archive_errors_total", "op" => op),
            }),
            unarchived: gauge!("qim_unarchived_records"),
            set_aside: gauge!("qim_set_aside", "kind" => "all"),
            unarchived_age: gauge!("qim_unarchived_age_seconds"),
            trim_lag: gauge!("qim_trim_lag_seconds"),
            unarchived_since: AtomicU64::new(0),
            trim_due_since: AtomicU64::new(0),
        }
    }

    pub(crate) fn calls(&self, op: Op) -> &ArchiveCalls {
        &self.archive[op as usize]
    }

    /// Since when the longest waiting copy and trim wait; `None`: nothing does.
    pub(crate) fn waiting_since(&self, copy: Option<UnixMillis>, trim: Option<UnixMillis>) {
        self.unarchived_since.store(copy.map_or(0, UnixMillis::get), Ordering::Relaxed);
        self.trim_due_since.store(trim.map_or(0, UnixMillis::get), Ordering::Relaxed);
    }

    /// How long the longest waiting copy is overdue, when it was last measured.
    pub(crate) fn unarchived_age(&self, now: UnixMillis) -> Duration {
        age(&self.unarchived_since, now)
    }

    /// Called at each scrape, so that a lag grows even while nothing can be asked.
    pub(crate) fn refresh(&self, now: UnixMillis) {
        self.unarchived_age.set(age(&self.unarchived_since, now).as_secs_f64());
        self.trim_lag.set(age(&self.trim_due_since, now).as_secs_f64());
    }
}

fn age(since: &AtomicU64, now: UnixMillis) -> Duration {
    match since.load(Ordering::Relaxed) {
        0 => Duration::ZERO,
        since => now.since(UnixMillis::new(since)),
    }
}

fn describe() {
    describe_counter!("qim_archived_rows_total", Unit::Count, "Records copied to the archive.");
    describe_counter!(
        "qim_archived_unchanged_rows_total",
        Unit::Count,
        "Records that the archive had already."
    );
    describe_counter!(
        "qim_recopied_rows_total",
        Unit::Count,
        "Rows that the archive had lost, copied again before a trim."
    );
    describe_counter!("qim_ttl_clamped_total", Unit::Count, "Rows whose TTL the archive had to cut short.");
    describe_counter!(
        "qim_trimmed_records_total",
        Unit::Count,
        "Records that left the hot tier after the hot window."
    );
    describe_counter!(
        "qim_conversations_set_aside_total",
        Unit::Count,
        "Times a conversation was set aside."
    );
    describe_counter!(
        "qim_expired_rows_deleted_total",
        Unit::Count,
        "Expired rows deleted from the archive by qim itself."
    );
    describe_counter!(
        "qim_archive_freed_bytes_total",
        Unit::Bytes,
        "Bytes the archive gave back to the file system."
    );
    describe_gauge!("qim_dictionaries", Unit::Count, "Dictionaries that records need, or will.");
    describe_counter!(
        "qim_dictionaries_deleted_total",
        Unit::Count,
        "Dictionaries deleted, since no record needs them any more."
    );
    describe_counter!(
        "qim_dictionaries_restored_total",
        Unit::Count,
        "Dictionaries that a tier had lost, put back from the other one."
    );
    describe_gauge!("qim_leases_held", Unit::Count, "Shards this archiver works on.");
    describe_histogram!(
        "qim_archive_duration_seconds",
        Unit::Seconds,
        "How long a step with the archive takes."
    );
    describe_counter!("qim_archive_errors_total", Unit::Count, "Steps with the archive that failed.");
    describe_gauge!("qim_unarchived_records", Unit::Count, "Records that the archive has not got yet.");
    describe_gauge!(
        "qim_unarchived_age_seconds",
        Unit::Seconds,
        "How long the oldest of them waits; 0 when none does."
    );
    describe_gauge!(
        "qim_trim_lag_seconds",
        Unit::Seconds,
        "How long ago a record left the hot window that is still hot; 0 when none is."
    );
    describe_gauge!("qim_set_aside", Unit::Count, "Damaged entries set aside, for somebody to look at.");
}
