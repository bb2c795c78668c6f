//! How a daemon starts and ends, seen from outside: `examples/probe.rs` as a process.

use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use qim_testkit::{Daemon, Ended, Launch, eventually, free_port};

const SOON: Duration = Duration::from_secs(30);

fn probe() -> Launch {
    let admin = format!("127.0.0.1:{}", free_port());
    Launch::program("examples/probe").env("QIM_ADMIN_ADDR", admin)
}

fn faulty(fault: &str) -> Launch {
    probe().env("PROBE_FAULT", fault)
}

fn status(ended: &Ended) -> i32 {
    ended.status.code().unwrap_or_else(|| panic!("{ended:?}"))
}

#[test]
fn it_runs_until_sigterm_then_drains_and_ends_with_status_0() {
    let daemon = probe().start();
    assert_eq!(daemon.readyz().body, "ready\n");
    eventually(SOON, "something is counted", || daemon.metrics().get("probe_counted_total") > Some(1.0));
    let metrics = daemon.metrics();
    assert!(metrics.get("process_resident_memory_bytes") > Some(0.0));
    assert!(metrics.get("qim_loop_last_success_timestamp_seconds{loop=\"count\"}") > Some(1.7e9));
    assert_eq!(daemon.terminate().code(), Some(0));
    let log = daemon.stderr();
    for part in ["starting", "QIM_HOT_WINDOW=7d", "draining", "phase=\"counting\"", "ended clean=true"] {
        assert!(log.contains(part), "{part} is not in {log}");
    }
}

#[test]
fn sigint_ends_it_too_and_it_can_start_again() {
    let daemon = probe().start();
    daemon.signal(Signal::SIGINT);
    assert_eq!(daemon.await_exit(SOON).code(), Some(0));
    daemon.restart();
    daemon.await_ready(SOON);
}

#[test]
fn a_signal_while_it_starts_ends_it_as_well() {
    let daemon = faulty("starts for ever").start_unready();
    assert_eq!(daemon.readyz().status, 503);
    assert_eq!(daemon.readyz().body, "not ready: daemon: starting\n");
    assert_eq!(daemon.terminate().code(), Some(0));
}

/// Waits for the first run, which does not end.
fn hanging(grace: &str) -> Daemon {
    let daemon = faulty("hangs").env("QIM_SHUTDOWN_GRACE", grace).start();
    std::thread::sleep(Duration::from_millis(300));
    daemon
}

#[test]
fn what_does_not_drain_is_left_behind_within_the_grace_and_named() {
    let daemon = hanging("1s");
    let start = Instant::now();
    assert_eq!(daemon.terminate().code(), Some(1));
    assert!(
        (Duration::from_secs(1)..Duration::from_secs(5)).contains(&start.elapsed()),
        "{:?}",
        start.elapsed()
    );
    assert!(daemon.stderr().contains("not drained in time phase=\"counting\""), "{}", daemon.stderr());
}

#[test]
fn it_is_alive_but_not_ready_while_it_drains_and_a_second_signal_ends_it_at_once() {
    let daemon = hanging("10m");
    daemon.signal(Signal::SIGTERM);
    eventually(SOON, "it drains", || daemon.readyz().body == "not ready: daemon: draining\n");
    daemon.signal(Signal::SIGTERM);
    let status = daemon.await_exit(SOON);
    assert_eq!((status.code(), status.signal()), (Some(143), None));
}

#[test]
fn a_task_that_fails_ends_the_daemon_with_its_reason() {
    let ended = faulty("fails").run(SOON);
    assert_eq!(status(&ended), 1);
    assert!(ended.stderr.contains("the counter is corrupt"), "{}", ended.stderr);
}

#[test]
fn a_panic_ends_the_process_with_its_message_and_place() {
    for fault in ["panics", "panics in a task", "panics in a thread"] {
        let ended = faulty(fault).env("QIM_LOG_FORMAT", "json").run(SOON);
        assert_eq!(status(&ended), 101, "{fault}");
        let told = ended.stderr.lines().find(|line| line.contains("one and one is three"));
        assert!(told.is_some_and(|line| line.contains("probe.rs:")), "{}", ended.stderr);
        assert!(ended.stderr.lines().all(|line| line.starts_with('{')), "{}", ended.stderr);
    }
}

#[test]
fn what_prevents_the_start_is_told_even_where_logging_is_off() {
    for filter in ["info", "off"] {
        let ended = faulty("cannot start").env("QIM_LOG", filter).run(SOON);
        assert_eq!(status(&ended), 1);
        assert_eq!(ended.stderr.matches("no database").count(), 1, "{}", ended.stderr);
    }
}

#[test]
fn a_port_in_use_is_told_with_the_name_of_the_variable() {
    let first = probe().start();
    let addr = first.admin_url().replace("http://", "");
    let ended = Launch::program("examples/probe").env("QIM_ADMIN_ADDR", &addr).run(SOON);
    assert_eq!(status(&ended), 1);
    assert!(ended.stderr.contains(&format!("QIM_ADMIN_ADDR: cannot listen on {addr}")), "{}", ended.stderr);
}

#[test]
fn a_bad_configuration_ends_with_status_78_and_a_line_for_each_variable() {
    let bad = || {
        probe().env("QIM_DEFAULT_HISTORY_RETENTION_DAYS", "3651").env("QIM_SHARDS", "").env("QIM_LOG", "loud")
    };
    for launch in [bad(), bad().arg("--check-config")] {
        let ended = launch.run(SOON);
        assert_eq!(status(&ended), 78);
        let expected =
            "QIM_DEFAULT_HISTORY_RETENTION_DAYS: \"3651\" is not a whole number of days from 1 to 3650";
        assert!(ended.stderr.lines().any(|line| line == expected), "{}", ended.stderr);
        assert_eq!(ended.stderr.lines().count(), 3, "{}", ended.stderr);
        assert_eq!(ended.stdout, "");
    }
}

#[test]
fn check_config_shows_what_would_be_in_effect_without_secrets() {
    let launch =
        probe().env("QIM_REDIS_URL", "redis://:SECRET@h:1").env("QIM_REDDIS_URL", "x").arg("--check-config");
    let ended = launch.run(SOON);
    assert_eq!(status(&ended), 0);
    assert!(ended.stdout.contains("QIM_REDIS_URL=redis://:***@h:1\n"), "{}", ended.stdout);
    assert!(ended.stdout.contains("QIM_HOT_WINDOW=7d\n"), "{}", ended.stdout);
    assert!(ended.stderr.contains("QIM_REDDIS_URL"), "{}", ended.stderr);
    assert!(!format!("{ended:?}").contains("SECRET"));
}

#[test]
fn unknown_variables_are_warned_about_by_name() {
    let daemon = probe().env("QIM_HOT_WINDOWS", "7d").env("QIM_TEST_ANYTHING", "x").start();
    let log = daemon.stderr();
    assert!(log.contains("QIM_HOT_WINDOWS") && !log.contains("QIM_TEST_ANYTHING"), "{log}");
}

#[test]
fn help_and_version_go_to_stdout_and_other_arguments_are_refused() {
    let version = probe().arg("--version").run(SOON);
    assert_eq!(
        (status(&version), version.stdout),
        (0, format!("qim-archiver {}\n", env!("CARGO_PKG_VERSION")))
    );
    let help = probe().arg("--help").run(SOON);
    assert!(
        status(&help) == 0 && help.stdout.contains("QIM_DEFAULT_HISTORY_RETENTION_DAYS"),
        "{}",
        help.stdout
    );
    let other = probe().arg("--shards=3").run(SOON);
    assert_eq!((status(&other), other.stdout.as_str()), (2, ""));
    assert!(other.stderr.contains("--shards=3"), "{}", other.stderr);
}
