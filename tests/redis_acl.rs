//! The rights of deploy/redis/qim.acl are all that qim needs of Redis, and no more.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use qim_testkit::{Launch, RedisCluster, RedisServer, Reply, eventually};
use qim_tests::{DAY_MS, PATIENCE, Pair, demo_file, last_json, now_ms, qim};
use serde_json::json;

const RULES: &str = include_str!("../deploy/redis/qim.acl");
/// What a connection to a numbered database asks for: not in this project's sources.
const OF_THE_CLIENT: [&str; 1] = ["select"];

/// The URL of a user with exactly these rights.
fn restricted(redis: &RedisServer) -> String {
    let mut words = vec!["ACL", "SETUSER", "qim", "reset", "on", ">secret"];
    words.extend(RULES.split_whitespace());
    assert_eq!(redis.command(&words), Reply::Text("OK".to_owned()));
    redis.url().replace("redis://", "redis://qim:secret@")
}

fn allowed() -> BTreeSet<String> {
    RULES.split_whitespace().filter_map(|word| word.strip_prefix('+')).map(str::to_owned).collect()
}

#[test]
fn compose_and_kubernetes_start_a_redis_with_these_rights_and_no_other_user() {
    for manifest in ["docker-compose.yml", "deploy/kubernetes/redis.yaml"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(manifest);
        let text = fs::read_to_string(&path).unwrap();
        let users: Vec<&str> = text.lines().filter(|line| line.contains("--user ")).collect();
        let started: Vec<&&str> = users.iter().filter(|line| !line.contains("redis-cli")).collect();
        let [line] = started[..] else { panic!("{manifest}: {started:?}") };
        assert!(line.contains("--user default off --user qim on \">$"), "{manifest}: {line}");
        assert!(line.ends_with("$$(cat /etc/redis/qim.acl)"), "{manifest}: {line}");
    }
}

#[test]
fn a_round_of_everything_is_done_with_these_rights_and_not_one_command_is_refused() {
    let pair = Pair::options().redis_url(restricted).env("QIM_DICTIONARY_REFRESH", "1s").start();
    let url = pair.redis.url().replace("redis://", "redis://qim:secret@");
    let dictionary = |arguments: &[&str]| {
        let launch = Launch::program("qim").arg("--json").arg("dictionary");
        let launch = arguments.iter().fold(launch, |launch, argument| launch.arg(*argument));
        let ended =
            launch.env("QIM_REDIS_URL", &url).env("QIM_ARCHIVE_URL", &pair.archive_url).run(PATIENCE * 2);
        assert!(ended.status.success(), "{ended:?}");
        ended
    };
    // Commits with a dictionary and without, of every age and class, and again; copies, trims, reads from both tiers.
    let file = demo_file(&pair.writer, 12_000, 2);
    let path = file.to_str().unwrap();
    let imported = pair.qim_json(&["import", path]);
    assert_eq!(imported["failed"], 0, "{imported}");
    dictionary(&["train", "--from", "live"]);
    eventually(PATIENCE, "the writer uses the dictionary", || {
        pair.writer.metrics().sum("qim_dictionary_in_use", &[]) > 0.0
    });
    dictionary(&["list"]);
    special_records(&pair);
    pair.await_settled();
    for path in [path, &demo_file(&pair.writer, 500, 3).display().to_string()] {
        pair.qim_json(&["import", path]);
        let report = pair.qim_json(&["verify", path]);
        assert_eq!((&report["missing"], &report["different"]), (&json!(0), &json!(0)), "{report}");
    }
    pair.qim_json(&["describe", "many"]);
    pair.qim_json(&["pull", "many", "--from", "1h"]);
    eventually(PATIENCE, "expired records are collected", || {
        pair.writer.metrics().get("qim_gc_collected_total") > Some(0.0)
    });
    for daemon in [&pair.writer, &pair.archiver] {
        assert!(!daemon.stderr().contains("NOPERM"), "{}", daemon.stderr());
    }
    assert_eq!(pair.redis.command(&["ACL", "LOG"]), Reply::Array(Vec::new()), "nothing was refused");
    assert!(pair.archiver.terminate().success() && pair.writer.terminate().success());
    assert_eq!(pair.redis.command(&["ACL", "LOG"]), Reply::Array(Vec::new()), "nor while they ended");
}

/// A conversation long enough for an index, a record large enough for pieces, and one that is about to expire.
fn special_records(pair: &Pair) {
    let mut lines = Vec::new();
    let mut add = |conversation: &str, class: &str, body: &str, age_ms: i64| {
        let line = json!({
            "conversation": conversation, "sender": "s", "client_msg_id": lines.len().to_string(),
            "class": class, "body": body, "created_at": now_ms() - age_ms,
        });
        lines.push(line.to_string());
    };
    (0..700).for_each(|_| add("many", "default", "one of many", 0));
    let noise: String =
        (0_u32..60_000).map(|i| char::from(33 + (i.wrapping_mul(2_654_435_761) >> 24) as u8 % 90)).collect();
    add("large-old", "default", &noise, 8 * DAY_MS);
    add("large-short", "ephemeral_24h", &noise, DAY_MS - 4_000);
    add("large", "default", &noise, 0);
    let path = pair.writer.dir().join("special.ndjson");
    fs::write(&path, lines.join("\n")).unwrap();
    let ended = qim(&pair.writer, &["import", path.to_str().unwrap()]).run(PATIENCE);
    assert_eq!(last_json(&ended)["failed"], 0, "{ended:?}");
}

#[test]
fn a_cluster_is_used_with_these_rights() {
    let cluster = RedisCluster::start(3);
    cluster.nodes().iter().for_each(|node| drop(restricted(node)));
    let url = cluster.url().replace("redis-cluster://", "redis-cluster://qim:secret@");
    let dir = tempfile::tempdir().unwrap();
    let archive = format!("sqlite:{}", dir.path().join("archive.db").display());
    let launch = |launch: Launch| launch.env("QIM_REDIS_URL", &url).env("QIM_ARCHIVE_URL", &archive).start();
    // The first thing that a daemon asks for is on its way to another node.
    let from = cluster.primary_of("qim:deployment");
    let to = cluster.nodes().iter().find(|node| node.addr() != from.addr()).unwrap();
    let migration = cluster.migrate_slot_of("qim:deployment", to).unwrap();
    let writer = launch(Launch::writer());
    migration.finish().unwrap();
    let archiver = launch(Launch::archiver());
    let file = demo_file(&writer, 200, 1);
    for command in ["import", "verify"] {
        let ended = qim(&writer, &[command, file.to_str().unwrap()]).run(PATIENCE);
        assert!(ended.status.success(), "{ended:?}");
    }
    eventually(PATIENCE, "it is archived", || archiver.metrics().get("qim_archived_rows_total") > Some(0.0));
    for node in cluster.nodes() {
        assert_eq!(node.command(&["ACL", "LOG"]), Reply::Array(Vec::new()), "nothing was refused");
    }
}

#[test]
fn each_right_is_for_a_command_that_is_sent_and_each_command_that_is_sent_has_its_right() {
    let store = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("crates/qim-store");
    let mut sent: BTreeSet<String> = OF_THE_CLIENT.map(str::to_owned).into();
    sent.extend(["evalsha", "eval"].map(str::to_owned));
    let mut sources = Vec::new();
    collect(&store.join("lua"), &mut sources);
    collect(&store.join("src/hot"), &mut sources);
    for source in sources {
        let text = fs::read_to_string(source).unwrap();
        let after = |mark: &'static str| text.split(mark).skip(1).map(str::to_owned).collect::<Vec<_>>();
        for rest in ["redis.call('", "redis.pcall('", "redis::cmd(\""].into_iter().flat_map(after) {
            let command: String = rest.chars().take_while(char::is_ascii_alphabetic).collect();
            sent.insert(match command.to_lowercase().as_str() {
                "cluster" => "cluster|slots".to_owned(),
                "config" => "config|get".to_owned(),
                "memory" => "memory|usage".to_owned(),
                command => command.to_owned(),
            });
        }
    }
    // An older server does not start with a right for a command that it has not got: docs/security.md.
    assert!(sent.remove("waitaof"));
    assert_eq!(allowed(), sent);
}

#[test]
fn anything_else_is_refused() {
    let redis = RedisServer::start();
    restricted(&redis);
    let may = |command: &[&str]| {
        let dry_run = [&["ACL", "DRYRUN", "qim"][..], command].concat();
        redis.command(&dry_run) == Reply::Text("OK".to_owned())
    };
    assert!(may(&["GET", "qim:{1}:lease"]) && may(&["CONFIG", "GET", "maxmemory"]));
    for command in [
        &["GET", "another"][..],
        &["SET", "qim", "x"],
        &["FLUSHALL"],
        &["KEYS", "*"],
        &["SCAN", "0"],
        &["CONFIG", "SET", "maxmemory", "0"],
        &["SCRIPT", "LOAD", "return 1"],
        &["SCRIPT", "FLUSH"],
        &["ACL", "LIST"],
        &["DEBUG", "SLEEP", "0"],
        &["SHUTDOWN"],
        &["MONITOR"],
        &["SUBSCRIBE", "qim:x"],
        &["REPLICAOF", "h", "1"],
        &["CLIENT", "LIST"],
    ] {
        assert!(!may(command), "{command:?}");
    }
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { collect(&path, files) } else { files.push(path) }
    }
}
