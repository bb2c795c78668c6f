use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use super::*;

type Pairs<'a> = &'a [(&'a str, &'a str)];

fn environment(pairs: Pairs<'_>) -> Environment {
    Environment::from_pairs(pairs.iter().copied())
}

fn writer(pairs: Pairs<'_>) -> Result<WriterConfig, ConfigFaults> {
    WriterConfig::from_environment(&environment(pairs))
}

fn archiver(pairs: Pairs<'_>) -> Result<ArchiverConfig, ConfigFaults> {
    ArchiverConfig::from_environment(&environment(pairs))
}

fn lines<T: std::fmt::Debug>(result: Result<T, ConfigFaults>) -> Vec<String> {
    result.expect_err("the configuration is bad").to_string().lines().map(ToOwned::to_owned).collect()
}

#[test]
fn a1_each_bad_retention_is_named_with_value_and_range() {
    for bad in
        ["0", "3651", "-1", "3.5", "", "30d", " 30", "30 ", "+30", "030", "1e2", "99999999999999999999"]
    {
        let expected = format!(
            "QIM_DEFAULT_HISTORY_RETENTION_DAYS: {bad:?} is not a whole number of days from 1 to 3650"
        );
        let pairs = [("QIM_DEFAULT_HISTORY_RETENTION_DAYS", bad)];
        assert_eq!(lines(writer(&pairs)), [expected.as_str()]);
        assert_eq!(lines(archiver(&pairs)), [expected.as_str()]);
    }
}

#[test]
fn a1_the_retention_is_30_unless_set_and_reaches_from_1_to_3650() {
    assert_eq!(writer(&[]).unwrap().shared.default_history_retention.get(), 30);
    for (text, days) in [("1", 1), ("365", 365), ("3650", 3650)] {
        let pairs = [("QIM_DEFAULT_HISTORY_RETENTION_DAYS", text)];
        assert_eq!(archiver(&pairs).unwrap().shared.default_history_retention.get(), days);
    }
}

#[test]
fn unset_variables_mean_the_defaults() {
    let writer = writer(&[]).unwrap();
    assert_eq!(writer.listen_addr.to_string(), "127.0.0.1:7400");
    assert_eq!(writer.shared.admin_addr.to_string(), "127.0.0.1:7401");
    assert_eq!(writer.gc_interval, Duration::from_secs(5));
    assert_eq!(writer.payload_bytes_max, 65_536);
    assert_eq!(writer.compression, Compression::Zstd);
    assert_eq!(writer.tls, None);
    assert_eq!(writer.shared.hot_window, Duration::from_secs(7 * 86_400));
    assert_eq!(writer.shared.redis_timeout, Duration::from_secs(2));
    assert_eq!(writer.shared.archive_timeout, Duration::from_secs(5));
    assert_eq!(writer.shared.shutdown_grace, Duration::from_secs(20));
    assert_eq!(writer.shared.shards, ShardCount::DEFAULT);
    assert_eq!(writer.shared.log_format, LogFormat::Text);
    assert!(writer.shared.instance.ends_with(&format!("-{}", std::process::id())));
    let archiver = archiver(&[]).unwrap();
    assert_eq!(archiver.shared.admin_addr.to_string(), "127.0.0.1:7402");
    assert_eq!(archiver.copy_delay, Duration::from_secs(2));
}

#[test]
fn three_bad_variables_give_three_lines() {
    let bad = [("QIM_SHARDS", "0"), ("QIM_HOT_WINDOW", "91d"), ("QIM_GC_INTERVAL", "5")];
    let mut lines = lines(writer(&bad));
    lines.sort();
    assert_eq!(
        lines,
        [
            r#"QIM_GC_INTERVAL: "5" is not a duration from 100ms to 1m: a whole number and ms, s, m, h or d"#,
            r#"QIM_HOT_WINDOW: "91d" is not a duration from 1h to 90d: a whole number and ms, s, m, h or d"#,
            r#"QIM_SHARDS: "0" is not a whole number from 1 to 4096"#,
        ]
    );
}

#[test]
fn every_variable_is_checked_where_it_is_used_and_an_empty_one_is_bad() {
    for variable in VARIABLES {
        let pairs = [(variable.name, "")];
        let named = |faults: Option<ConfigFaults>| {
            faults.is_some_and(|faults| faults.faults().iter().any(|fault| fault.variable == variable.name))
        };
        assert_eq!(named(writer(&pairs).err()), variable.used_by != UsedBy::Archiver, "{}", variable.name);
        assert_eq!(named(archiver(&pairs).err()), variable.used_by != UsedBy::Writer, "{}", variable.name);
    }
}

#[test]
fn every_duration_holds_its_range() {
    for (name, good, bad) in [
        ("QIM_HOT_WINDOW", ["1h", "90d"], ["59m", "91d"]),
        ("QIM_SHUTDOWN_GRACE", ["1s", "10m"], ["999ms", "601s"]),
        ("QIM_GC_INTERVAL", ["100ms", "1m"], ["99ms", "61s"]),
        ("QIM_KEEPALIVE", ["1s", "10m"], ["999ms", "601s"]),
        ("QIM_RELOAD_INTERVAL", ["1s", "1m"], ["999ms", "61s"]),
        ("QIM_REDIS_TIMEOUT", ["50ms", "1m"], ["49ms", "61s"]),
        ("QIM_ARCHIVE_TIMEOUT", ["100ms", "60s"], ["99ms", "2m"]),
    ] {
        for value in good {
            assert!(writer(&[(name, value)]).is_ok(), "{name}={value}");
        }
        for value in
            bad.into_iter().chain(["", "7", "d", "7D", "7 d", "-7d", "1.5h", "7d ", "184467440737095516d"])
        {
            assert!(
                lines(writer(&[(name, value)]))[0].starts_with(&format!("{name}: {value:?} ")),
                "{name}={value}"
            );
        }
    }
    assert_eq!(archiver(&[("QIM_COPY_DELAY", "0s")]).unwrap().copy_delay, Duration::ZERO);
    assert!(archiver(&[("QIM_COPY_DELAY", "61m")]).is_err());
}

#[test]
fn numbers_hold_their_ranges() {
    for (name, good, bad) in [
        ("QIM_SHARDS", ["1", "4096"], ["0", "4097"]),
        ("QIM_PAYLOAD_BYTES_MAX", ["1", "1048576"], ["0", "1048577"]),
        ("QIM_CONNECTIONS_MAX", ["1", "1000000"], ["0", "1000001"]),
        ("QIM_CONNECTION_REQUESTS_MAX", ["1", "65536"], ["0", "65537"]),
        ("QIM_REQUEST_MEMORY_MAX", ["67108864", "4294967295"], ["67108863", "4294967296"]),
    ] {
        assert!(good.iter().all(|value| writer(&[(name, value)]).is_ok()), "{name}");
        assert!(bad.iter().all(|value| writer(&[(name, value)]).is_err()), "{name}");
    }
}

#[test]
fn a_misspelt_log_level_is_refused_and_not_read_as_a_target() {
    for good in ["info", "off", "warn,qim_store=debug", "INFO", "info,qim_store::hot=trace"] {
        assert_eq!(writer(&[("QIM_LOG", good)]).unwrap().shared.log_filter, good);
    }
    for bad in ["inof", "info,", "info,qim_store", "qim_store=loud", "=info"] {
        assert!(lines(writer(&[("QIM_LOG", bad)]))[0].contains("is not a log filter"), "{bad}");
    }
    assert!(lines(writer(&[("QIM_LOG_FORMAT", "JSON")]))[0].contains("neither text nor json"));
}

#[test]
fn payloads_are_compressed_or_not() {
    assert_eq!(writer(&[("QIM_COMPRESSION", "off")]).unwrap().compression, Compression::Off);
    assert_eq!(writer(&[("QIM_COMPRESSION", "zstd")]).unwrap().compression, Compression::Zstd);
    let found = lines(writer(&[("QIM_COMPRESSION", "gzip")]));
    assert_eq!(found, [r#"QIM_COMPRESSION: "gzip" is neither zstd nor off"#]);
}

#[test]
fn a_listener_beyond_loopback_needs_tls_or_a_decision() {
    let public = [("QIM_LISTEN_ADDR", "0.0.0.0:7400"), ("QIM_ADMIN_ADDR", "[::]:7401")];
    let found = lines(writer(&public));
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(|line| line.contains("QIM_ALLOW_PLAINTEXT=true")), "{found:?}");
    assert!(found.iter().any(|line| line.starts_with("QIM_LISTEN_ADDR: \"0.0.0.0:7400\"")), "{found:?}");
    assert!(writer(&[public[0], public[1], ("QIM_ALLOW_PLAINTEXT", "true")]).is_ok());
    assert!(writer(&[("QIM_LISTEN_ADDR", "[::1]:1"), ("QIM_ADMIN_ADDR", "127.9.9.9:1")]).is_ok());
    assert!(lines(writer(&[("QIM_ALLOW_PLAINTEXT", "yes")]))[0].contains("neither true nor false"));

    let pem = tempfile::NamedTempFile::new().unwrap();
    let path = pem.path().to_str().unwrap();
    let tls = [public[0], ("QIM_TLS_CERT_FILE", path), ("QIM_TLS_KEY_FILE", path)];
    assert_eq!(writer(&tls).unwrap().tls.unwrap().key_file, pem.path());
}

#[test]
fn tls_needs_both_files_and_both_readable() {
    let pem = tempfile::NamedTempFile::new().unwrap();
    let path = pem.path().to_str().unwrap();
    assert_eq!(
        lines(writer(&[("QIM_TLS_CERT_FILE", path)])),
        ["QIM_TLS_KEY_FILE: is not set, while QIM_TLS_CERT_FILE is; set both or neither"]
    );
    let found = lines(writer(&[("QIM_TLS_CERT_FILE", path), ("QIM_TLS_KEY_FILE", "/nonexistent")]));
    assert!(found[0].starts_with("QIM_TLS_KEY_FILE: \"/nonexistent\" cannot be read"), "{found:?}");
}

#[test]
fn a_url_can_come_from_a_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "  redis://:pw@h:1\n").unwrap();
    let path = file.path().to_str().unwrap();
    let config = archiver(&[("QIM_REDIS_URL_FILE", path)]).unwrap();
    assert_eq!(config.shared.redis_url, RedisUrl::Single("redis://:pw@h:1".to_owned()));

    let both = archiver(&[("QIM_REDIS_URL_FILE", path), ("QIM_REDIS_URL", "redis://h")]);
    assert_eq!(lines(both), ["QIM_REDIS_URL: is set together with QIM_REDIS_URL_FILE; set only one of them"]);
    let found = lines(archiver(&[("QIM_ARCHIVE_URL_FILE", "/nonexistent")]));
    assert!(
        found[0].starts_with("QIM_ARCHIVE_URL_FILE: \"/nonexistent\" cannot be read: No such file"),
        "{found:?}"
    );
}

#[test]
fn a_password_never_appears() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "SECRET").unwrap();
    let path = file.path().to_str().unwrap();
    for pairs in [
        [("QIM_REDIS_URL", "redis://:SECRET@h:x"), ("QIM_ARCHIVE_URL", "scylla://u:SECRET@h")],
        [("QIM_REDIS_URL", "http://u:SECRET@h"), ("QIM_ARCHIVE_URL", "s3://SECRET@h")],
        [("QIM_REDIS_URL_FILE", path), ("QIM_ARCHIVE_URL_FILE", path)],
        [("QIM_REDIS_URL_FILE", "redis://:SECRET@h"), ("QIM_TLS_KEY_FILE", "-----BEGIN\nSECRET")],
    ] {
        let faults = writer(&pairs).unwrap_err();
        assert_eq!(faults.faults().len(), if pairs[1].0.contains("TLS") { 3 } else { 2 });
        assert!(!format!("{faults} {faults:?}").contains("SECRET"), "{faults}");
    }
    let good = [("QIM_REDIS_URL", "redis://u:SECRET@h"), ("QIM_ARCHIVE_URL", "scylla://u:SECRET@h/k")];
    let config = writer(&good).unwrap();
    let shown = format!("{config:?} {:?}", config.effective());
    assert!(!shown.contains("SECRET") && shown.contains("redis://u:***@h"), "{shown}");
}

#[test]
fn unknown_variables_are_listed_and_do_not_stop_the_start() {
    let environment = environment(&[
        ("QIM_HOT_WINDOWS", "7d"),
        ("QIM_hot_window", "nonsense"),
        ("QIM_TEST_CQL_URL", "x"),
        ("HOT_WINDOW", "x"),
        ("QIM_COPY_DELAY", "1s"),
    ]);
    assert_eq!(environment.unknown(), ["QIM_HOT_WINDOWS", "QIM_hot_window"]);
    assert!(WriterConfig::from_environment(&environment).is_ok());
}

#[test]
fn a_value_that_is_not_text_is_an_error_that_names_its_variable() {
    let not_text = || OsString::from_vec(vec![b'7', 0xff]);
    let environment =
        Environment::from_pairs([("QIM_HOT_WINDOW", not_text()), ("QIM_COPY_DELAY", not_text())]);
    let faults = WriterConfig::from_environment(&environment).unwrap_err();
    assert_eq!(faults.to_string(), "QIM_HOT_WINDOW: its value is not UTF-8 text");
}

#[test]
fn the_table_is_complete_and_what_is_shown_could_be_set() {
    for (used_by, effective) in [
        (UsedBy::Writer, writer(&[]).unwrap().effective()),
        (UsedBy::Archiver, archiver(&[]).unwrap().effective()),
    ] {
        for variable in VARIABLES.iter().filter(|variable| variable.used_by.includes(used_by)) {
            let shown =
                effective.iter().find(|(name, _)| *name == variable.name).map(|(_, value)| value.as_str());
            match variable.default_in(used_by) {
                Some(default) => assert_eq!(shown, Some(default), "{}", variable.name),
                None => assert!(shown.is_none() || variable.name == "QIM_INSTANCE", "{}", variable.name),
            }
        }
        let pairs: Vec<_> = effective.iter().map(|(name, value)| (*name, value.as_str())).collect();
        assert!(writer(&pairs).is_ok() && archiver(&pairs).is_ok());
    }
}

#[test]
fn durations_are_shown_in_their_largest_whole_unit() {
    for text in ["0s", "1ms", "1500ms", "90s", "1m", "90m", "25h", "7d"] {
        let duration = value::duration(text, Duration::ZERO..=Duration::MAX).unwrap();
        assert_eq!(format_duration(duration), text);
    }
}
