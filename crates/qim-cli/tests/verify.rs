//! `qim verify`, against a small server in this process.

mod history_server;

use history_server::{Server, file, line, qim};

/// A server that has imported generated chat, and the file with it.
fn imported_demo(folder: &std::path::Path) -> (Server, String, usize) {
    let demo = qim(&["demo", "--messages", "3000", "--seed", "5"]).output().unwrap();
    let path = folder.join("demo.ndjson");
    std::fs::write(&path, &demo.stdout).unwrap();
    let server = Server::start();
    let path = path.to_str().unwrap().to_owned();
    let ended = server.run(&["import", &path, "--json"]);
    assert_eq!(ended.status, 0, "{ended:?}");
    let [committed, _, expired, _] = ended.imported();
    assert!(expired > 100 && committed > 1000);
    (server, path, usize::try_from(committed).unwrap())
}

#[test]
fn what_was_imported_is_there_exactly_and_what_has_expired_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let (server, path, committed) = imported_demo(folder.path());
    server.state().page_records_max = 7;
    let ended = server.run(&["verify", &path, "--json", "--tenant-retention", "never"]);
    assert_eq!(ended.status, 0, "{ended:?}");
    let [compared, missing, different, expired] = ended.verified();
    assert_eq!((usize::try_from(compared).unwrap(), missing, different), (committed, 0, 0));
    assert_eq!(compared + expired, 3000);
    assert_eq!(ended.json().as_object().unwrap().len(), 4);
}

#[test]
fn every_tampered_record_is_found_with_its_line() {
    let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let lines: Vec<_> = (0..30).map(|i| line("c", &i.to_string(), &format!("body {i}"))).collect();
    let path = file(folder.path(), &lines);
    server.run(&["import", &path]);
    {
        let mut state = server.state();
        let records = state.conversation("c");
        records[3].payload = "body 3 ".into();
        records.remove(10);
        records[20].created_at_ms += 86_400_000;
    }
    let ended = server.run(&["verify", &path, "--json"]);
    assert_eq!((ended.status, ended.verified()), (1, [29, 1, 2, 0]), "{ended:?}");
    for text in [":4: seq 4 has another payload", ":11: is missing", ":22: seq 22 is dated"] {
        assert!(ended.stderr.contains(&format!("{path}{text}")), "{}", ended.stderr);
    }
}

#[test]
fn absolute_dates_are_compared_to_the_millisecond() {
    let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let hold = |id: &str, date: &str| {
        format!(
            r#"{{"conversation":"c","sender":"s","client_msg_id":"{id}","body":"b","class":"compliance_hold","created_at":{date}}}"#
        )
    };
    let lines =
        [hold("1", "\"2024-05-06T07:08:09.123Z\""), hold("2", "1714979289000"), hold("3", "1714979289200")];
    let path = file(folder.path(), &lines);
    assert_eq!(server.run(&["import", &path, "--json"]).imported(), [3, 0, 0, 0]);
    // The second was moved to the first's date, which is no difference.
    assert_eq!(server.state().conversation("c")[1].created_at_ms, 1_714_979_289_123);
    assert_eq!(server.run(&["verify", &path, "--json"]).verified(), [3, 0, 0, 0]);
    server.state().conversation("c")[2].created_at_ms += 1;
    let ended = server.run(&["verify", &path]);
    assert_eq!(ended.status, 1);
    assert_eq!(ended.stdout, "compared   3\nmissing    0\ndifferent  1\nexpired    0\n");
}

#[test]
fn an_outage_of_the_server_or_its_archive_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let (server, path, committed) = imported_demo(folder.path());
    server.state().unavailable = 2;
    server.state().archive_outages = 3;
    let ended = server.run(&["verify", &path, "--json"]);
    assert_eq!((ended.status, ended.verified()[0]), (0, committed as u64), "{ended:?}");
    server.state().archive_outages = u32::MAX;
    let ended = server.run(&["verify", &path, "--json", "--give-up", "300ms"]);
    assert_eq!(ended.status, 69);
    assert!(ended.stderr.contains("the archive is unavailable"), "{}", ended.stderr);
}

#[test]
fn a_line_that_is_no_record_is_found_wrong_and_the_others_are_compared() {
    let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let path = file(folder.path(), &[line("c", "1", "b"), "{".to_owned()]);
    server.run(&["import", &path]);
    let ended = server.run(&["verify", &path, "--json"]);
    assert_eq!((ended.status, ended.verified()), (1, [1, 0, 0, 0]));
    assert_eq!(ended.json()["unreadable"], 1);
    assert!(ended.stderr.contains(&format!("{path}:2: is not JSON")), "{}", ended.stderr);
}

#[test]
fn the_retention_comes_from_the_environment_and_a_bad_one_is_a_configuration_error() {
    let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let path = file(folder.path(), &[line("c", "1", "b").replace("3600000", "864000000")]);
    let verify = |days: &str| {
        let mut command = server.command(&["verify", &path, "--json"]);
        let output = command.env("QIM_DEFAULT_HISTORY_RETENTION_DAYS", days).output().unwrap();
        history_server::Ended::from(output)
    };
    assert_eq!(verify("30").verified(), [0, 1, 0, 0]);
    assert_eq!(verify("7").verified(), [0, 0, 0, 1]);
    let ended = verify("30d");
    assert_eq!(ended.status, 78);
    assert!(ended.stderr.contains("QIM_DEFAULT_HISTORY_RETENTION_DAYS: \"30d\""), "{}", ended.stderr);
}
