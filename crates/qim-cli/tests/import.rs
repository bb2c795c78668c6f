//! `qim import`, against a small server in this process.

mod history_server;

use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

use history_server::{Ended, Server, file, line};
use tonic::Status;

/// `count` messages in turn over a few conversations.
fn chat(count: usize, conversations: usize) -> Vec<String> {
    (0..count)
        .map(|i| line(&format!("c{}", i % conversations), &i.to_string(), &format!("body {i}")))
        .collect()
}

/// Each conversation holds its messages of the file, in order.
fn assert_in_order(server: &Server, count: usize, conversations: usize) {
    let mut state = server.state();
    for conversation in 0..conversations {
        let ids: Vec<usize> = state
            .conversation(&format!("c{conversation}"))
            .iter()
            .map(|record| record.client_msg_id.parse().unwrap())
            .collect();
        assert_eq!(ids, (conversation..count).step_by(conversations).collect::<Vec<_>>());
    }
    assert!(!state.overlapped, "one batch of a conversation at a time");
}

#[test]
fn all_messages_arrive_once_in_order_and_in_good_batches() {
    let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let path = file(folder.path(), &chat(5000, 7));
    let ended = server.run(&["import", &path, "--json"]);
    assert_eq!((ended.status, ended.imported()), (0, [5000, 0, 0, 0]), "{ended:?}");
    assert_in_order(&server, 5000, 7);
    let state = server.state();
    let batches = &state.batches;
    assert!(batches.iter().all(|size| *size <= 100));
    assert!(batches.len() <= 5000 / 100 + 7, "{} requests", batches.len());
    assert_eq!(state.transports(), (1, 0), "all on one stream");
}

#[test]
fn an_import_can_be_repeated() {
    let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let path = file(folder.path(), &chat(300, 3));
    assert_eq!(server.run(&["import", &path, "--json"]).imported(), [300, 0, 0, 0]);
    assert_eq!(server.run(&["import", &path, "--json"]).imported(), [0, 300, 0, 0]);
    assert_in_order(&server, 300, 3);
}

#[test]
fn bad_lines_are_told_and_counted_and_stop_nothing_else() {
    let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let mut lines = chat(60, 2);
    for bad in 0..30 {
        lines.insert(bad * 2, "{\"not\": \"a message\"}".to_owned());
    }
    let path = file(folder.path(), &lines);
    let ended = server.run(&["import", &path, "--json"]);
    assert_eq!((ended.status, ended.imported()), (1, [60, 0, 0, 30]));
    let told: Vec<_> = ended.stderr.lines().filter(|text| text.starts_with(&path)).collect();
    assert_eq!(told.len(), 21);
    assert!(told[1].starts_with(&format!("{path}:3: unknown field `not`")), "{}", told[1]);
    assert_eq!(told[20], format!("{path}: and 10 more"));
    assert_in_order(&server, 60, 2);
}

#[test]
fn a_message_that_the_server_refuses_fails_alone() {
    let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let mut lines = chat(40, 1);
    lines[7] = line("c0", "x", "bad, named");
    lines[20] = line("c0", "y", "bad, not named");
    lines[33] = line("c0", "1", "the id of line 2 with another body");
    let path = file(folder.path(), &lines);
    let ended = server.run(&["import", &path, "--json"]);
    assert_eq!((ended.status, ended.imported()), (1, [37, 0, 0, 3]), "{ended:?}");
    for (number, reason) in [(8, "payload is not liked"), (21, "something in it"), (34, "messages[")] {
        assert!(ended.stderr.contains(&format!("{path}:{number}: {reason}")), "{}", ended.stderr);
    }
    let mut state = server.state();
    let ids: Vec<usize> =
        state.conversation("c0").iter().map(|record| record.client_msg_id.parse().unwrap()).collect();
    assert_eq!(ids.len(), 37);
    assert!(ids.is_sorted());
}

#[test]
fn expired_messages_are_counted() {
    let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let old = line("c", "old", "b").replace("3600000", "3000000000");
    let path = file(folder.path(), &[old, line("c", "new", "b")]);
    let ended = server.run(&["import", &path, "--json"]);
    assert_eq!((ended.status, ended.imported()), (0, [1, 0, 1, 0]));
}

#[test]
fn an_answer_that_is_lost_is_asked_for_again_and_commits_nothing_twice() {
    let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    server.state().lost_answers = 3;
    let path = file(folder.path(), &chat(500, 5));
    let ended = server.run(&["import", &path, "--json"]);
    assert_eq!(ended.status, 0);
    let [committed, duplicate, expired, failed] = ended.imported();
    assert_eq!((committed + duplicate, expired, failed), (500, 0, 0));
    assert!(duplicate > 0, "the lost answers had committed something");
    assert_in_order(&server, 500, 5);
}

#[test]
fn a_server_that_dies_and_comes_back_loses_nothing() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    server.state().import_takes = Duration::from_millis(30);
    let path = file(folder.path(), &chat(6000, 9));
    let import = server.command(&["import", &path, "--json", "--concurrency", "4"]).spawn().unwrap();
    for killed_at in [500, 2500] {
        let began = Instant::now();
        while server.state().records() < killed_at {
            assert!(began.elapsed() < Duration::from_secs(30), "{} records", server.state().records());
            std::thread::sleep(Duration::from_millis(2));
        }
        server.kill();
        assert!(server.state().records() < 6000, "killed in the middle");
        std::thread::sleep(Duration::from_millis(700));
        server.restart();
    }
    let ended = Ended::from(import.wait_with_output().unwrap());
    assert_eq!(ended.status, 0, "{ended:?}");
    let [committed, duplicate, expired, failed] = ended.imported();
    assert_eq!((committed + duplicate, expired, failed), (6000, 0, 0));
    // More often where an answer was still on its way when another request had failed.
    assert!(ended.stderr.matches("answers again").count() >= 2, "{}", ended.stderr);
    assert_in_order(&server, 6000, 9);
}

#[test]
fn a_stream_that_its_server_closes_is_opened_again_and_nobody_is_told() {
    let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    server.state().stream_answers_max = Some(20);
    let path = file(folder.path(), &chat(5000, 50));
    let ended = server.run(&["import", &path, "--json"]);
    assert_eq!((ended.status, ended.stderr.as_str()), (0, ""), "{ended:?}");
    let [committed, duplicate, expired, failed] = ended.imported();
    assert_eq!((committed + duplicate, expired, failed), (5000, 0, 0));
    let (streams, calls) = server.state().transports();
    assert!(streams >= 3 && calls == 0, "{streams} streams, {calls} calls");
    assert_in_order(&server, 5000, 50);
}

#[test]
fn a_server_that_has_no_streams_is_called_for_each_batch() {
    for refusal in [Status::unimplemented("unknown method"), Status::out_of_range("the request is too large")]
    {
        let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
        server.state().streams_refused = Some(refusal);
        let mut lines = chat(1000, 10);
        lines[7] = line("c7", "7", "bad, named");
        let path = file(folder.path(), &lines);
        let ended = server.run(&["import", &path, "--json"]);
        assert_eq!((ended.status, ended.imported()), (1, [999, 0, 0, 1]), "{ended:?}");
        assert_eq!(server.state().transports(), (0, 11));
    }
}

#[test]
fn a_refusal_of_the_whole_stream_that_every_request_would_get_ends_the_import() {
    let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    server.state().streams_refused = Some(Status::permission_denied("the token lacks the right import"));
    let path = file(folder.path(), &chat(1000, 10));
    let ended = server.run(&["import", &path, "--json"]);
    assert_eq!((ended.status, ended.imported()), (1, [0, 0, 0, 0]), "{ended:?}");
    assert!(ended.stderr.contains("the token lacks the right import"), "{ended:?}");
    assert_eq!(server.state().transports(), (0, 0));
}

#[test]
fn without_a_server_it_gives_up_with_69_and_still_prints_its_counts() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    server.kill();
    let path = file(folder.path(), &chat(10, 1));
    let began = Instant::now();
    let ended = server.run(&["import", &path, "--json", "--give-up", "600ms"]);
    assert!(began.elapsed() >= Duration::from_millis(600));
    assert_eq!((ended.status, ended.imported()), (69, [0, 0, 0, 0]), "{ended:?}");
    assert!(ended.stderr.contains("gave up after 600ms without progress"), "{}", ended.stderr);
    assert!(ended.stderr.contains("onnection refused"), "{}", ended.stderr);
}

#[test]
fn lines_of_a_pipe_are_sent_while_it_is_still_open() {
    let server = Server::start();
    let mut import = server.command(&["import", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut pipe = import.stdin.take().unwrap();
    writeln!(pipe, "{}", line("c", "1", "first")).unwrap();
    let began = Instant::now();
    while server.state().records() < 1 {
        assert!(began.elapsed() < Duration::from_secs(10), "the line waits for the end of the pipe");
        std::thread::sleep(Duration::from_millis(5));
    }
    write!(pipe, "{}", line("c", "2", "second, without a newline")).unwrap();
    drop(pipe);
    let ended = Ended::from(import.wait_with_output().unwrap());
    assert_eq!(ended.status, 0, "{ended:?}");
    assert!(ended.stdout.starts_with("committed      2\nduplicate      0\n"), "{}", ended.stdout);
    assert_eq!(server.state().records(), 2);
}

#[test]
fn large_messages_go_in_requests_of_at_most_a_mebibyte() {
    let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let lines: Vec<_> = (0..40).map(|i| line("c", &i.to_string(), &"x".repeat(200 << 10))).collect();
    let path = file(folder.path(), &lines);
    assert_eq!(server.run(&["import", &path, "--json"]).imported(), [40, 0, 0, 0]);
    assert!(server.state().batches.iter().all(|size| *size <= 5), "{:?}", server.state().batches);
}

#[test]
fn a_file_that_does_not_exist_is_a_usage_error() {
    let ended = Server::start().run(&["import", "/does/not/exist"]);
    assert_eq!(ended.status, 2);
    assert!(ended.stderr.contains("cannot read /does/not/exist"), "{}", ended.stderr);
}
