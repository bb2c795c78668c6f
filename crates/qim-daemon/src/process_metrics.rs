//! The metrics that Prometheus expects of every process, read from `/proc` when asked.

use std::fmt::Write as _;
use std::fs;

/// The unit of times in `/proc`: `USER_HZ`, which is 100 on all architectures that Linux still runs on.
const TICKS_PER_SECOND: f64 = 100.0;
const BYTES_PER_KIB: f64 = 1024.0;

// Positions in /proc/self/stat after the name of the program, see proc_pid_stat(5).
const USER_TICKS: usize = 11;
const SYSTEM_TICKS: usize = 12;
const START_TICKS: usize = 19;

pub(crate) struct ProcessMetrics {
    start_time_seconds: Option<f64>,
}

impl ProcessMetrics {
    pub(crate) fn new() -> Self {
        Self { start_time_seconds: start_time_seconds() }
    }

    /// In the Prometheus text format; what cannot be read is left out.
    pub(crate) fn render(&self) -> String {
        let metrics = [
            ("process_cpu_seconds_total", "counter", "User and system CPU time spent.", cpu_seconds()),
            ("process_open_fds", "gauge", "Open file descriptors.", open_fds()),
            ("process_resident_memory_bytes", "gauge", "Resident memory.", resident_bytes()),
            ("process_start_time_seconds", "gauge", "Start, in seconds since 1970.", self.start_time_seconds),
        ];
        let mut text = String::new();
        for (name, kind, help, value) in metrics {
            if let Some(value) = value {
                let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n");
            }
        }
        text
    }
}

fn cpu_seconds() -> Option<f64> {
    Some((stat_field(USER_TICKS)? + stat_field(SYSTEM_TICKS)?) / TICKS_PER_SECOND)
}

fn start_time_seconds() -> Option<f64> {
    let boot = number_after(&fs::read_to_string("/proc/stat").ok()?, "btime ")?;
    Some(boot + stat_field(START_TICKS)? / TICKS_PER_SECOND)
}

fn resident_bytes() -> Option<f64> {
    let kib = number_after(&fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")?;
    Some(kib * BYTES_PER_KIB)
}

fn open_fds() -> Option<f64> {
    let count = fs::read_dir("/proc/self/fd").ok()?.count();
    u32::try_from(count).ok().map(f64::from)
}

fn stat_field(position: usize) -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name in front is in parentheses, and may hold some itself.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(position)?.parse().ok()
}

/// The first number in the line that starts so.
fn number_after(text: &str, start: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(start))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;

    #[test]
    fn the_process_is_described_by_plausible_numbers() {
        let text = ProcessMetrics::new().render();
        let value = |name: &str| {
            number_after(&text, &format!("{name} ")).unwrap_or_else(|| panic!("{name} in {text}"))
        };
        assert!(value("process_resident_memory_bytes") > 100_000.0);
        assert!(value("process_cpu_seconds_total") >= 0.0);
        assert!(value("process_open_fds") >= 3.0);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        let age = now - value("process_start_time_seconds");
        assert!((-2.0..3600.0).contains(&age), "started {age} s ago");
    }
}
