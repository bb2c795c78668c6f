use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge,
    histogram,
};
use qim_core::RetentionClass;
use qim_store::hot::LossReport;

/// Everything the writer counts.
pub(crate) struct WriterMetrics {
    commits: [Counter; 4],
    pub(crate) duplicates: Counter,
    pub(crate) commit_seconds: Histogram,
    pub(crate) pull_seconds: Histogram,
    pub(crate) pulled_hot: Counter,
    pub(crate) pulled_archive: Counter,
    pub(crate) imports_expired: Counter,
    refusals: Refusals,
    pub(crate) gc_collected: Counter,
    pub(crate) gc_stale: Counter,
    pub(crate) gc_set_aside: Counter,
    pub(crate) gc_due: Gauge,
    pub(crate) gc_lag: Gauge,
    /// When the earliest entry that is due expired, ms; 0: none is due.
    pub(crate) gc_due_since: AtomicU64,
    pub(crate) set_aside: Gauge,
    pub(crate) hot_records: Gauge,
    pub(crate) dictionary: Gauge,
    pub(crate) redis_used: Gauge,
    pub(crate) redis_limit: Gauge,
    losses: Losses,
}

struct Losses {
    restored: Counter,
    conflicts: Counter,
    gaps: Counter,
    lost: Counter,
    cut_short: Counter,
    recent_bytes: Gauge,
}

struct Refusals {
    invalid: Counter,
    already_exists: Counter,
    memory: Counter,
    unavailable: Counter,
    corrupt: Counter,
}

/// Why a commit was refused: the values of the label `reason`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    Invalid,
    AlreadyExists,
    Memory,
    Unavailable,
    Corrupt,
}

impl WriterMetrics {
    pub(crate) fn new() -> Self {
        describe();
        let refused = |reason: &'static str| counter!("qim_commit_refusals_total", "reason" => reason);
        Self {
            commits: RetentionClass::ALL.map(|class| counter!("qim_commits_total", "class" => class.name())),
            duplicates: counter!("qim_commit_duplicates_total"),
            commit_seconds: histogram!("qim_commit_duration_seconds"),
            pull_seconds: histogram!("qim_pull_duration_seconds"),
            pulled_hot: counter!("qim_pulled_records_total", "tier" => "hot"),
            pulled_archive: counter!("qim_pulled_records_total", "tier" => "archive"),
            imports_expired: counter!("qim_imports_expired_total"),
            refusals: Refusals {
                invalid: refused("invalid"),
                already_exists: refused("already_exists"),
                memory: refused("memory"),
                unavailable: refused("unavailable"),
                corrupt: refused("corrupt"),
            },
            gc_collected: counter!("qim_gc_collected_total"),
            gc_stale: counter!("qim_gc_stale_total"),
            gc_set_aside: counter!("qim_gc_set_aside_total"),
            gc_due: gauge!("qim_gc_due"),
            gc_lag: gauge!("qim_gc_lag_seconds"),
            gc_due_since: AtomicU64::new(0),
            set_aside: gauge!("qim_set_aside", "kind" => "all"),
            hot_records: gauge!("qim_hot_records"),
            dictionary: gauge!("qim_dictionary_in_use"),
            redis_used: gauge!("qim_redis_memory_used_bytes"),
            redis_limit: gauge!("qim_redis_memory_limit_bytes"),
            losses: Losses {
                restored: counter!("qim_restored_messages_total"),
                conflicts: counter!("qim_restore_conflicts_total"),
                gaps: counter!("qim_gaps_total"),
                lost: counter!("qim_lost_messages_total"),
                cut_short: counter!("qim_recent_cut_short_total"),
                recent_bytes: gauge!("qim_recent_bytes"),
            },
        }
    }

    pub(crate) fn committed(&self, class: RetentionClass) {
        self.commits[class as usize].increment(1);
    }

    pub(crate) fn refused(&self, reason: Refusal) {
        let counter = match reason {
            Refusal::Invalid => &self.refusals.invalid,
            Refusal::AlreadyExists => &self.refusals.already_exists,
            Refusal::Memory => &self.refusals.memory,
            Refusal::Unavailable => &self.refusals.unavailable,
            Refusal::Corrupt => &self.refusals.corrupt,
        };
        counter.increment(1);
    }

    pub(crate) fn losses(&self, report: LossReport) {
        let LossReport { restored, conflicts, gaps, lost, recent_bytes, cut_short } = report;
        self.losses.restored.absolute(restored);
        self.losses.conflicts.absolute(conflicts);
        self.losses.gaps.absolute(gaps);
        self.losses.lost.absolute(lost);
        self.losses.cut_short.absolute(cut_short);
        #[allow(clippy::cast_precision_loss, reason = "a gauge is a double")]
        self.losses.recent_bytes.set(recent_bytes as f64);
    }

    /// Called at each scrape, so that the lag grows even while nothing can be asked.
    pub(crate) fn refresh(&self, now: qim_core::UnixMillis) {
        let since = self.gc_due_since.load(Ordering::Relaxed);
        let lag = if since == 0 { 0.0 } else { now.since(qim_core::UnixMillis::new(since)).as_secs_f64() };
        self.gc_lag.set(lag);
    }
}

fn describe() {
    describe_counter!("qim_commits_total", Unit::Count, "Messages committed, by retention class.");
    describe_counter!(
        "qim_commit_refusals_total",
        Unit::Count,
        "Requests to commit that were refused, by reason."
    );
    describe_counter!("qim_commit_duplicates_total", Unit::Count, "Messages that had been committed before.");
    describe_counter!(
        "qim_imports_expired_total",
        Unit::Count,
        "Messages that had expired before they were imported."
    );
    describe_histogram!("qim_commit_duration_seconds", Unit::Seconds, "How long a request to commit takes.");
    describe_histogram!("qim_pull_duration_seconds", Unit::Seconds, "How long a request for a page takes.");
    describe_counter!("qim_pulled_records_total", Unit::Count, "Records answered to readers, by tier.");
    describe_counter!("qim_gc_collected_total", Unit::Count, "Expired records removed from the hot tier.");
    describe_counter!(
        "qim_gc_stale_total",
        Unit::Count,
        "Entries of the expiry index without a record, cleared."
    );
    describe_counter!(
        "qim_gc_set_aside_total",
        Unit::Count,
        "Entries of the expiry index set aside as corrupt."
    );
    describe_gauge!(
        "qim_gc_due",
        Unit::Count,
        "Expired records that are still in the hot tier (no reader sees them)."
    );
    describe_gauge!(
        "qim_gc_lag_seconds",
        Unit::Seconds,
        "How long ago the earliest of them expired; 0 when none is due."
    );
    describe_gauge!("qim_set_aside", Unit::Count, "Damaged entries set aside, for somebody to look at.");
    describe_gauge!("qim_hot_records", Unit::Count, "Records in the hot tier.");
    describe_gauge!(
        "qim_dictionary_in_use",
        "The number of the dictionary that payloads are packed with; 0: none."
    );
    describe_gauge!("qim_redis_memory_used_bytes", Unit::Bytes, "Memory that Redis uses.");
    describe_gauge!("qim_redis_memory_limit_bytes", Unit::Bytes, "Memory that Redis may use; 0: no limit.");
    describe_losses();
}

fn describe_losses() {
    describe_counter!(
        "qim_restored_messages_total",
        Unit::Count,
        "Acknowledged messages that Redis had lost, put back under their seqs."
    );
    describe_counter!(
        "qim_restore_conflicts_total",
        Unit::Count,
        "Acknowledged messages that could not be put back, since another has their seq."
    );
    describe_counter!("qim_gaps_total", Unit::Count, "Gaps noted: runs of seqs whose messages are lost.");
    describe_counter!(
        "qim_lost_messages_total",
        Unit::Count,
        "Seqs in noted gaps: as many messages are lost, or at most as many."
    );
    describe_counter!(
        "qim_recent_cut_short_total",
        Unit::Count,
        "Acknowledged messages that were not remembered for ten seconds, for want of room."
    );
    describe_gauge!(
        "qim_recent_bytes",
        Unit::Bytes,
        "What is remembered of acknowledged messages that the archive may not have."
    );
}
