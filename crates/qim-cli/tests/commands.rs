//! The small commands, against a small server in this process.

mod history_server;

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use history_server::{Ended, Server, qim};
use serde_json::Value;

fn objects(ended: &Ended) -> Vec<Value> {
    ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn seqs(ended: &Ended) -> Vec<u64> {
    objects(ended).iter().map(|record| record["seq"].as_u64().unwrap()).collect()
}

fn append(server: &Server, count: usize) {
    for i in 1..=count {
        assert_eq!(server.run(&["append", "c", "--sender", "s", &format!("body {i}")]).status, 0);
    }
}

#[test]
fn append_answers_the_seq_and_the_same_id_answers_it_again() {
    let server = Server::start();
    let args = ["append", "c", "--sender", "s", "--id", "x", "--class", "ephemeral_24h", "hello", "--json"];
    let first = server.run(&args).json();
    assert_eq!((first["seq"].as_u64(), first["duplicate"].as_bool()), (Some(1), Some(false)));
    assert_eq!(first["client_msg_id"], "x");
    assert_eq!(
        first["expires_at_ms"].as_i64().unwrap() - first["created_at_ms"].as_i64().unwrap(),
        86_400_000
    );
    assert_eq!(server.run(&args).json()["duplicate"], true);
}

#[test]
fn append_makes_an_id_of_32_hex_digits_and_keeps_it_when_it_tries_again() {
    let server = Server::start();
    server.state().unavailable = 1;
    server.state().lost_answers = 1;
    let ended = server.run(&["append", "c", "--sender", "s", "hello", "--json"]);
    assert_eq!(ended.status, 0, "{ended:?}");
    assert_eq!(ended.json()["duplicate"], true);
    let id = ended.json()["client_msg_id"].as_str().unwrap().to_owned();
    assert!(id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()), "{id}");
    assert_eq!(server.state().records(), 1);
}

#[test]
fn append_takes_a_body_from_standard_input_byte_for_byte() {
    let server = Server::start();
    let mut append =
        server.command(&["append", "c", "--sender", "s", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    append.stdin.take().unwrap().write_all(b"\xff\x00\n").unwrap();
    assert!(append.wait().unwrap().success());
    let record = &objects(&server.run(&["pull", "c", "--json"]))[0];
    assert_eq!(record["payload_base64"], "/wAK");
    assert!(record.get("body").is_none());
}

#[test]
fn pull_pages_in_both_directions_and_from_a_time() {
    let server = Server::start();
    append(&server, 9);
    server.state().page_records_max = 2;
    let pull = |args: &[&str]| seqs(&server.run(&[&["pull", "c", "--json"], args].concat()));
    assert_eq!(pull(&[]), (1..=9).collect::<Vec<_>>());
    assert_eq!(pull(&["--after", "3", "--limit", "5"]), [4, 5, 6, 7, 8]);
    assert_eq!(pull(&["--before", "8", "--limit", "5"]), [3, 4, 5, 6, 7]);
    assert_eq!(pull(&["--from", "1h", "--limit", "3"]), [1, 2, 3]);
    assert_eq!(pull(&["--after", "9"]), [] as [u64; 0]);
}

#[test]
fn pull_names_gaps_beside_the_records() {
    let server = Server::start();
    append(&server, 2);
    server.state().gaps = vec![
        qim_proto::v1::Gap { from: 3, to: 5, ..Default::default() },
        qim_proto::v1::Gap { from: 7, to: 7, ..Default::default() },
    ];
    let ended = server.run(&["pull", "c", "--json"]);
    assert_eq!(seqs(&ended), [1, 2]);
    for told in ["the records of seqs 3 to 5 are lost", "the records of seq 7 are lost"] {
        assert!(ended.stderr.contains(told), "{}", ended.stderr);
    }
}

#[test]
fn pull_prints_columns_for_people() {
    let server = Server::start();
    for (sender, body) in [("al", "one\ntwo"), ("barbara", "\u{1b}[2J")] {
        server.run(&["append", "c", "--sender", sender, body]);
    }
    let ended = server.run(&["pull", "c"]);
    let lines: Vec<_> = ended.stdout.lines().collect();
    assert_eq!(&lines[0][..3], "1  ");
    assert_eq!(&lines[0][27..], "  al       one", "{}", lines[0]);
    assert_eq!(lines[1], format!("{}two", " ".repeat(38)));
    assert!(lines[2].ends_with("barbara  \\u{1b}[2J"), "{}", lines[2]);
}

#[test]
fn the_tenant_is_that_of_the_command_line() {
    let server = Server::start();
    server.run(&["--tenant", "acme", "append", "c", "--sender", "s", "hello"]);
    assert_eq!(server.run(&["describe", "c", "--json"]).json()["exists"], false);
    let described = server.run(&["describe", "c", "--json", "--tenant", "acme"]).json();
    assert_eq!((&described["exists"], &described["last_conversation_seq"]), (&true.into(), &1.into()));
}

#[test]
fn tail_prints_the_last_page_and_then_what_comes_through_an_outage_until_ctrl_c() {
    let mut server = Server::start();
    append(&server, 5);
    let mut tail = server.command(&["tail", "c", "--limit", "2", "--json"]).spawn().unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    let mut next_seq = || {
        let record: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        record["seq"].as_u64().unwrap()
    };
    assert_eq!([next_seq(), next_seq()], [4, 5]);
    server.kill();
    std::thread::sleep(Duration::from_millis(600));
    server.restart();
    append(&server, 2);
    assert_eq!([next_seq(), next_seq()], [6, 7]);
    let interrupted = std::process::Command::new("kill").args(["-INT", &tail.id().to_string()]).status();
    assert!(interrupted.unwrap().success());
    assert!(tail.wait().unwrap().success());
}

#[test]
fn a_server_that_cannot_be_reached_is_69_and_says_why() {
    let mut server = Server::start();
    server.kill();
    for args in [
        &["pull", "c"][..],
        &["describe", "c"],
        &["tail", "c"],
        &["append", "c", "--sender", "s", "b", "--give-up", "100ms"],
    ] {
        let ended = server.run(args);
        assert_eq!(ended.status, 69, "{ended:?}");
        assert!(ended.stderr.contains("onnection refused"), "{ended:?}");
    }
}

#[test]
fn a_refusal_is_a_sentence_and_1() {
    let ended = Server::start().run(&["append", "c", "--sender", "s", "bad, named"]);
    assert_eq!(ended.status, 1);
    let sentence = "the request is not valid: messages[0].payload is not liked (INVALID_ARGUMENT)";
    assert!(ended.stderr.trim_end().ends_with(sentence), "{}", ended.stderr);
}

#[test]
fn a_pipe_that_is_closed_early_ends_the_command_quietly() {
    let mut demo = qim(&["demo", "--messages", "20000"]).spawn().unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    drop(lines);
    let ended = Ended::from(demo.wait_with_output().unwrap());
    assert_eq!((ended.status, ended.stderr.as_str()), (0, ""));
}

#[test]
fn bad_usage_is_2_and_a_bad_environment_78() {
    assert_eq!(qim(&["pull"]).output().unwrap().status.code(), Some(2));
    assert_eq!(qim(&["--server", "nonsense", "describe", "c"]).output().unwrap().status.code(), Some(2));
    let mut command = qim(&["describe", "c"]);
    assert_eq!(command.env("QIM_SERVER", "nonsense").output().unwrap().status.code(), Some(78));
}

#[test]
fn manifests_that_agree_are_good_and_others_are_found_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("compose.yaml");
    let check = |writer: &str, archiver: &str| {
        let service = |program: &str, days: &str| {
            let variable = "QIM_DEFAULT_HISTORY_RETENTION_DAYS";
            format!("  {program}:\n    image: {program}:1\n    environment:\n      {variable}: \"{days}\"\n")
        };
        let services = service("qim-writer", writer) + &service("qim-archiver", archiver);
        std::fs::write(&path, format!("services:\n{services}")).unwrap();
        Ended::from(qim(&["check-manifests", path.to_str().unwrap()]).output().unwrap())
    };
    assert_eq!(check("30", "30").status, 0);
    let ended = check("30", "90");
    assert_eq!(ended.status, 1);
    assert!(ended.stdout.contains("compose.yaml:") && ended.stdout.contains("90"), "{}", ended.stdout);
    std::fs::write(&path, "services:\n  other:\n    image: other:1\n").unwrap();
    assert_eq!(qim(&["check-manifests", path.to_str().unwrap()]).output().unwrap().status.code(), Some(78));
    assert_eq!(qim(&["check-manifests", "/does/not/exist"]).output().unwrap().status.code(), Some(2));
}

#[test]
fn health_is_good_only_while_the_daemon_says_that_it_is_ready() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let admin = std::thread::spawn(move || {
        for answer in ["HTTP/1.0 200 OK\r\n\r\nready\n", "HTTP/1.0 503 Service Unavailable\r\n\r\nstarting\n"]
        {
            let (stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(&stream);
            let mut line = String::new();
            while reader.read_line(&mut line).unwrap() > 2 {}
            (&stream).write_all(answer.as_bytes()).unwrap();
        }
    });
    let health = || {
        let mut command = qim(&["health"]);
        Ended::from(command.env("QIM_ADMIN_ADDR", addr.to_string()).output().unwrap())
    };
    let ready = health();
    assert_eq!((ready.status, ready.stdout.as_str()), (0, "ready\n"));
    let starting = health();
    assert_eq!((starting.status, starting.stdout.as_str()), (1, "starting\n"));
    admin.join().unwrap();
    let began = Instant::now();
    assert_eq!(health().status, 1);
    assert!(began.elapsed() < Duration::from_secs(4));
}
