//! Dictionaries as an operator has them: trained by `qim`, used by a running writer, and no record unreadable across any
//! change of them.

use std::path::{Path, PathBuf};

use qim_testkit::{Ended, Launch, eventually};
use qim_tests::{PATIENCE, Pair, PairOptions, cql_keyspace, demo_file, last_json, qim};
use serde_json::Value;

/// `qim dictionary …` with the configuration of the pair.
fn dictionary(pair: &Pair, arguments: &[&str]) -> Ended {
    let launch = Launch::program("qim").arg("--json").arg("dictionary");
    let launch = arguments.iter().fold(launch, |launch, argument| launch.arg(*argument));
    launch.env("QIM_REDIS_URL", pair.redis.url()).env("QIM_ARCHIVE_URL", &pair.archive_url).run(PATIENCE)
}

/// Trains, and waits until the writer uses it.
fn train(pair: &Pair, from: &str) -> u64 {
    let ended = dictionary(pair, &["train", "--from", from]);
    assert!(ended.status.success(), "{ended:?}");
    let report = last_json(&ended);
    let id = report["id"].as_u64().expect("it was stored");
    let bytes = |name: &str| report[name].as_u64().unwrap();
    assert!(bytes("bytes_with") * 10 < bytes("bytes_without") * 9, "{report}");
    let in_use = || pair.writer.metrics().sum("qim_dictionary_in_use", &[]);
    eventually(PATIENCE, "the writer uses the dictionary", || in_use().to_string() == id.to_string());
    id
}

fn import(pair: &Pair, file: &Path) {
    let report = pair.qim_json(&["import", file.to_str().unwrap()]);
    assert_eq!(report["failed"], 0, "{report}");
}

/// Every record of these files is there, and is what it was.
fn verify(pair: &Pair, files: &[PathBuf]) {
    for file in files {
        let report = pair.qim_json(&["verify", file.to_str().unwrap()]);
        assert_eq!(
            (&report["missing"], &report["different"]),
            (&Value::from(0), &Value::from(0)),
            "{report}"
        );
    }
}

fn listed(pair: &Pair) -> Vec<u64> {
    let ended = dictionary(pair, &["list"]);
    assert!(ended.status.success(), "{ended:?}");
    let id = |line: &str| serde_json::from_str::<Value>(line).unwrap()["id"].as_u64().unwrap();
    ended.stdout.lines().map(id).collect()
}

/// Imports some more chat; all of it, and all that came before, is there.
fn more(pair: &Pair, files: &mut Vec<PathBuf>) {
    let file = demo_file(&pair.writer, 600, 10 + u32::try_from(files.len()).unwrap());
    import(pair, &file);
    files.push(file);
    verify(pair, files);
}

fn records_stay_readable_across_every_change(options: PairOptions) {
    let pair = options.env("QIM_DICTIONARY_REFRESH", "1s").start();
    let training = demo_file(&pair.writer, 12_000, 2);
    let training = training.to_str().unwrap();
    let mut files = Vec::new();
    more(&pair, &mut files);
    assert_eq!(listed(&pair), [0; 0]);
    assert_eq!(train(&pair, training), 1);
    more(&pair, &mut files);
    assert_eq!(train(&pair, training), 2);
    more(&pair, &mut files);
    pair.writer.restart();
    pair.writer.await_ready(PATIENCE);
    more(&pair, &mut files);
    // One that stores everything as it comes reads what others packed.
    let plain = Launch::writer()
        .env("QIM_REDIS_URL", pair.redis.url())
        .env("QIM_ARCHIVE_URL", &pair.archive_url)
        .env("QIM_COMPRESSION", "off")
        .start();
    let again = qim(&plain, &["import", files.last().unwrap().to_str().unwrap()]).run(PATIENCE);
    assert!(again.status.success(), "{again:?}");
    assert_eq!(last_json(&again)["committed"], 0, "a retry is known whatever packed the first try");
    let file = demo_file(&plain, 600, 99);
    let imported = qim(&plain, &["import", file.to_str().unwrap()]).run(PATIENCE);
    assert!(imported.status.success(), "{imported:?}");
    files.push(std::fs::canonicalize(&file).unwrap());
    verify(&pair, &files);
    pair.await_settled();
    verify(&pair, &files);
    more(&pair, &mut files);
    pair.archiver.restart();
    pair.await_settled();
    verify(&pair, &files);
    assert_eq!(listed(&pair), [1, 2], "records need both");
    assert_eq!(pair.archiver.metrics().get("qim_set_aside{kind=\"all\"}"), Some(0.0));
}

#[test]
fn records_stay_readable_across_every_change_of_compression_and_dictionary_with_sqlite() {
    records_stay_readable_across_every_change(Pair::options());
}

#[test]
fn records_stay_readable_across_every_change_of_compression_and_dictionary_with_a_cql_server() {
    records_stay_readable_across_every_change(Pair::options().archive_url(cql_keyspace()));
}

#[test]
fn a_training_says_what_it_would_give_and_stores_nothing_when_it_is_dry() {
    let pair = Pair::start();
    let training = demo_file(&pair.writer, 12_000, 2);
    let dry = dictionary(&pair, &["train", "--from", training.to_str().unwrap(), "--dry-run"]);
    let report = last_json(&dry);
    assert_eq!(report.get("id"), None);
    assert!(report["phrases"].as_u64().unwrap() > 100, "{report}");
    assert_eq!(listed(&pair), [0; 0]);
    let few = demo_file(&pair.writer, 300, 2);
    let ended = dictionary(&pair, &["train", "--from", few.to_str().unwrap()]);
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.stderr.contains("50 conversations and by at least 10 senders"), "{ended:?}");
    let ended = Launch::program("qim").arg("dictionary").arg("list").env("QIM_SHARDS", "0").run(PATIENCE);
    assert_eq!(ended.status.code(), Some(78), "{ended:?}");
    assert!(ended.stderr.contains("QIM_SHARDS"), "{ended:?}");
}

#[test]
fn a_dictionary_is_trained_on_what_the_deployment_has() {
    let pair = Pair::options().env("QIM_DICTIONARY_REFRESH", "1s").start();
    import(&pair, &demo_file(&pair.writer, 40_000, 2));
    assert_eq!(train(&pair, "live"), 1);
    let mut files = Vec::new();
    more(&pair, &mut files);
}
