//! What the daemons refuse to start with, and what they say.

use std::time::Duration;

use qim_testkit::{Ended, Launch, RedisServer, eventually, free_port};
use qim_tests::PATIENCE;

const DAEMONS: [&str; 2] = ["qim-writer", "qim-archiver"];
const SOON: Duration = Duration::from_secs(20);

fn refused(launch: Launch) -> Vec<String> {
    let Ended { status, stdout, stderr } = launch.run(SOON);
    assert_eq!(status.code(), Some(78), "{stderr}");
    assert_eq!(stdout, "");
    stderr.lines().map(str::to_owned).collect()
}

#[test]
fn a1_each_bad_retention_ends_both_daemons_with_78_and_one_line_that_names_variable_value_and_range() {
    for daemon in DAEMONS {
        for bad in ["0", "3651", "-1", "3.5", "", "30d", " 30"] {
            let lines = refused(Launch::program(daemon).env("QIM_DEFAULT_HISTORY_RETENTION_DAYS", bad));
            let expected = format!(
                "QIM_DEFAULT_HISTORY_RETENTION_DAYS: {bad:?} is not a whole number of days from 1 to 3650"
            );
            assert_eq!(lines, [expected], "{daemon}");
        }
    }
}

#[test]
fn a1_unset_means_30_and_the_ends_of_the_range_are_legal() {
    for daemon in DAEMONS {
        for (value, shown) in [(None, "30"), (Some("1"), "1"), (Some("3650"), "3650")] {
            let launch = Launch::program(daemon).arg("--check-config");
            let launch = match value {
                Some(value) => launch.env("QIM_DEFAULT_HISTORY_RETENTION_DAYS", value),
                None => launch,
            };
            let ended = launch.run(SOON);
            assert!(ended.status.success(), "{ended:?}");
            assert!(
                ended.stdout.contains(&format!("QIM_DEFAULT_HISTORY_RETENTION_DAYS={shown}\n")),
                "{ended:?}"
            );
        }
    }
}

#[test]
fn three_bad_variables_give_three_lines() {
    for daemon in DAEMONS {
        let launch = Launch::program(daemon)
            .env("QIM_DEFAULT_HISTORY_RETENTION_DAYS", "0")
            .env("QIM_HOT_WINDOW", "7")
            .env("QIM_SHARDS", "many");
        let lines = refused(launch);
        assert_eq!(lines.len(), 3, "{lines:?}");
        for (line, variable) in
            lines.iter().zip(["QIM_DEFAULT_HISTORY_RETENTION_DAYS", "QIM_HOT_WINDOW", "QIM_SHARDS"])
        {
            assert!(line.starts_with(&format!("{variable}: ")), "{lines:?}");
        }
    }
}

#[test]
fn a21_there_is_no_object_storage_tier() {
    for daemon in DAEMONS {
        let lines = refused(Launch::program(daemon).env("QIM_ARCHIVE_URL", "s3://bucket/history"));
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("scylla://") && lines[0].contains("sqlite:PATH"), "{lines:?}");
    }
}

#[test]
fn a_listener_that_others_can_reach_needs_tls_or_a_word_that_it_is_meant() {
    for daemon in DAEMONS {
        let lines = refused(Launch::program(daemon).env("QIM_ADMIN_ADDR", "0.0.0.0:7401"));
        assert!(
            lines[0].starts_with("QIM_ADMIN_ADDR: ") && lines[0].contains("QIM_ALLOW_PLAINTEXT"),
            "{lines:?}"
        );
    }
    let lines = refused(Launch::writer().env("QIM_LISTEN_ADDR", "0.0.0.0:7400"));
    assert!(lines[0].starts_with("QIM_LISTEN_ADDR: ") && lines[0].contains("QIM_TLS_CERT_FILE"), "{lines:?}");
}

#[test]
fn a_password_is_never_shown() {
    for daemon in DAEMONS {
        let launch = Launch::program(daemon)
            .env("QIM_REDIS_URL", "redis://user:hunter2@127.0.0.1:notaport")
            .env("QIM_ARCHIVE_URL", "scylla://user:hunter2@host/0keyspace");
        let lines = refused(launch).join("\n");
        assert!(!lines.contains("hunter2"), "{lines}");
    }
}

#[test]
fn a_redis_that_is_not_there_is_named_and_ends_the_daemon() {
    for daemon in DAEMONS {
        let url = format!("redis://:hunter2@127.0.0.1:{}", free_port());
        let launch = Launch::program(daemon)
            .env("QIM_REDIS_URL", &url)
            .env("QIM_ADMIN_ADDR", format!("127.0.0.1:{}", free_port()))
            .env("QIM_LISTEN_ADDR", format!("127.0.0.1:{}", free_port()));
        let ended = launch.run(SOON);
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        assert!(ended.stderr.contains("hot tier at redis://:***@127.0.0.1:"), "{ended:?}");
        assert!(!ended.stderr.contains("hunter2"), "{ended:?}");
    }
}

#[test]
fn data_made_with_another_number_of_shards_or_another_layout_is_refused_at_the_start() {
    for (layout, shards, named) in [("3", "64", ["QIM_SHARDS", "64"]), ("2", "256", ["layout 2", "3 only"])] {
        let redis = RedisServer::start();
        redis.command(&["HSET", "qim:deployment", "layout", layout, "shards", shards]);
        for daemon in DAEMONS {
            let launch = Launch::program(daemon)
                .env("QIM_REDIS_URL", redis.url())
                .env("QIM_ADMIN_ADDR", format!("127.0.0.1:{}", free_port()))
                .env("QIM_LISTEN_ADDR", format!("127.0.0.1:{}", free_port()));
            let ended = launch.run(SOON);
            assert_eq!(ended.status.code(), Some(1), "{ended:?}");
            assert!(named.iter().all(|named| ended.stderr.contains(named)), "{ended:?}");
        }
    }
}

#[test]
fn a_keyspace_keeps_its_replication_and_the_daemons_name_both() {
    let (redis, keyspace) = (RedisServer::start(), qim_tests::cql_keyspace());
    let start = |launch: Launch, url: String| {
        launch.env("QIM_REDIS_URL", redis.url()).env("QIM_ARCHIVE_URL", url).start()
    };
    let warning = "another replication than replication_factor says";
    let made = start(Launch::writer(), keyspace.clone());
    eventually(PATIENCE, "the keyspace is there", || made.stderr().contains("connected to the archive"));
    assert!(!made.stderr().contains(warning), "{}", made.stderr());
    for launch in [Launch::writer(), Launch::archiver()] {
        let other = start(launch, format!("{keyspace}?replication_factor=3"));
        eventually(PATIENCE, "it says so", || other.stderr().contains(warning));
        let stderr = other.stderr();
        let line = stderr.lines().find(|line| line.contains(warning)).expect("it is there");
        assert!(line.contains("configured=3") && line.contains(r#"": "1""#), "{line}");
        // It works with what is there.
        eventually(PATIENCE, "it is connected", || other.stderr().contains("connected to the archive"));
    }
}
