//! kill -9 of either daemon in the middle of the work: after a restart nothing is lost and nothing is twice.

use std::thread;
use std::time::Duration;

use qim_testkit::eventually;
use qim_tests::{PATIENCE, Pair, cql_keyspace, demo_file, last_json, qim};

/// Imports while `kill` strikes in the middle, then repeats the import and verifies.
fn survives(pair: &Pair, kill: impl Fn() + Send + Sync) {
    let file = demo_file(&pair.writer, 6_000, 11);
    let path = file.to_str().unwrap();
    let committed = || pair.writer.metrics().sum("qim_commits_total", &[]);
    thread::scope(|scope| {
        let import = scope.spawn(|| qim(&pair.writer, &["import", path]).run(PATIENCE * 2));
        eventually(PATIENCE, "the import is under way", || committed() > 300.0);
        kill();
        let ended = import.join().expect("qim ran");
        let report = last_json(&ended);
        assert_eq!(report["failed"], 0, "{report} {}", ended.stderr);
    });
    let again = pair.qim_json(&["import", path]);
    assert_eq!((&again["committed"], &again["failed"]), (&0.into(), &0.into()), "{again}");
    let before = pair.qim_json(&["verify", path]);
    pair.await_settled();
    let after = pair.qim_json(&["verify", path]);
    for report in [before, after] {
        assert_eq!((&report["missing"], &report["different"]), (&0.into(), &0.into()), "{report}");
    }
}

#[test]
fn the_writer_is_killed_in_the_middle_of_an_import() {
    let pair = Pair::start();
    survives(&pair, || {
        for _ in 0..3 {
            pair.writer.kill9();
            pair.writer.restart();
            pair.writer.await_ready(PATIENCE);
            thread::sleep(Duration::from_millis(150));
        }
    });
}

fn survives_kills_of_the_archiver(pair: &Pair) {
    survives(pair, || {
        for _ in 0..5 {
            pair.archiver.kill9();
            pair.archiver.restart();
            pair.archiver.await_ready(PATIENCE);
            thread::sleep(Duration::from_millis(200));
        }
    });
}

#[test]
fn the_archiver_is_killed_again_and_again_while_it_copies_to_sqlite() {
    survives_kills_of_the_archiver(&Pair::start());
}

#[test]
fn the_archiver_is_killed_again_and_again_while_it_copies_to_a_cql_server() {
    survives_kills_of_the_archiver(&Pair::options().archive_url(cql_keyspace()).start());
}

#[test]
fn redis_is_restarted_in_the_middle_of_an_import() {
    let pair = Pair::start();
    survives(&pair, || pair.redis.restart());
}
