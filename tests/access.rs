//! Who may do what: tokens, rights and tenants, as clients and operators see them.

use qim_access::{Right, Token};
use qim_proto::v1;
use qim_proto::v1::append_stream_response::Outcome;
use qim_proto::v1::history_client::HistoryClient;
use qim_proto::v1::pull_request::Position;
use qim_testkit::{eventually, eventually_async, http_get};
use qim_tests::{PATIENCE, Pair, TokenFile, last_json, message, now_ms, pull_all, qim, token, with_token};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt;

const HOLD: v1::RetentionClass = v1::RetentionClass::ComplianceHold;

fn append(tenant: &str, conversation: &str, messages: Vec<v1::Message>) -> v1::AppendRequest {
    v1::AppendRequest { tenant: tenant.into(), conversation: conversation.into(), messages }
}

fn import(tenant: &str, conversation: &str, messages: Vec<v1::Message>) -> v1::ImportRequest {
    let dated = messages.into_iter().map(|m| v1::Message { created_at_ms: Some(now_ms()), ..m }).collect();
    v1::ImportRequest { tenant: tenant.into(), conversation: conversation.into(), messages: dated }
}

fn describe(tenant: &str, conversation: &str) -> v1::DescribeRequest {
    v1::DescribeRequest { tenant: tenant.into(), conversation: conversation.into() }
}

fn start(file: &TokenFile) -> Pair {
    let path = file.path().display().to_string();
    Pair::options().env("QIM_TOKENS_FILE", path).env("QIM_RELOAD_INTERVAL", "1s").start()
}

/// With the token, where there is one.
fn dressed<T>(token: Option<&Token>, message: T) -> Request<T> {
    match token {
        Some(token) => with_token(token, message),
        None => Request::new(message),
    }
}

/// What each method answers, by the right that it needs.
async fn each_method(
    client: &mut HistoryClient<Channel>,
    token: Option<&Token>,
) -> Vec<(Right, Result<(), Status>)> {
    let no_appends = futures::stream::empty::<v1::AppendStreamRequest>();
    let no_imports = futures::stream::empty::<v1::ImportStreamRequest>();
    vec![
        (Right::Append, client.append(dressed(token, append("", "c", vec![message("a")]))).await.map(drop)),
        (Right::Append, client.append_stream(dressed(token, no_appends)).await.map(drop)),
        (Right::Pull, client.pull(dressed(token, pull_all("c"))).await.map(drop)),
        (Right::Pull, client.describe(dressed(token, describe("", "c"))).await.map(drop)),
        (Right::Import, client.import(dressed(token, import("", "c", vec![message("i")]))).await.map(drop)),
        (Right::Import, client.import_stream(dressed(token, no_imports)).await.map(drop)),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn each_method_needs_a_token_with_its_right_and_refusals_are_counted_and_never_show_the_token() {
    let rights = [Right::Append, Right::Pull, Right::Import];
    let tokens = rights.map(|right| token(right.name(), &["default"], &[right]));
    let file = TokenFile::of(&tokens.each_ref().map(|(_, line)| line.as_str()));
    let pair = start(&file);
    let mut client = pair.client().await;

    for dress in [None, Some(Token::generate().unwrap())] {
        for (right, answer) in each_method(&mut client, dress.as_ref()).await {
            assert_eq!(answer.unwrap_err().code(), Code::Unauthenticated, "{right}");
        }
    }
    for (held, (token, _)) in rights.into_iter().zip(&tokens) {
        for (right, answer) in each_method(&mut client, Some(token)).await {
            if right == held {
                answer.unwrap();
                continue;
            }
            let status = answer.unwrap_err();
            assert_eq!(status.code(), Code::PermissionDenied);
            assert_eq!(status.message(), format!("the token lacks the right {right}"));
        }
    }
    let metrics = pair.writer.metrics();
    let refused = |reason: &str| metrics.get(&format!("qim_access_refusals_total{{reason=\"{reason}\"}}"));
    assert_eq!(
        [refused("missing_token"), refused("unknown_token"), refused("right")],
        [6.0, 6.0, 12.0].map(Some)
    );
    assert_eq!(metrics.get("qim_token_requests_total{token=\"pull\"}"), Some(6.0));
    let log = pair.writer.stderr();
    assert!(log.contains("refused") && log.contains("token=\"append\""), "{log}");
    assert!(!log.contains("qim_A") && tokens.iter().all(|(token, _)| !log.contains(token.reveal())), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn admin_may_do_everything_with_its_tenants_and_nothing_with_others() {
    let (admin, line) = token("operator", &["default"], &[Right::Admin]);
    let (theirs, other) = token("theirs", &["theirs"], &[Right::Append]);
    let pair = start(&TokenFile::of(&[&line, &other]));
    let mut client = pair.client().await;
    for (right, answer) in each_method(&mut client, Some(&admin)).await {
        answer.unwrap_or_else(|status| panic!("{right}: {status}"));
    }
    let hold = v1::Message { retention_class: HOLD.into(), ..message("held") };
    client.append(with_token(&admin, append("", "c", vec![hold]))).await.unwrap();

    client.append(with_token(&theirs, append("theirs", "room", vec![message("x")]))).await.unwrap();
    let refused = client.append(with_token(&admin, append("theirs", "room", vec![message("y")]))).await;
    assert_eq!(refused.unwrap_err().message(), "the token is not for this tenant");
    let seen = client.describe(with_token(&admin, describe("theirs", "room"))).await.unwrap().into_inner();
    assert_eq!(seen, v1::DescribeResponse::default());
}

#[tokio::test(flavor = "multi_thread")]
async fn another_tenants_conversation_is_answered_exactly_as_one_that_does_not_exist() {
    let (ours, line) = token("ours", &["ours"], &[Right::Append, Right::Pull, Right::Import]);
    let (theirs, other) = token("theirs", &["theirs"], &[Right::Append, Right::Pull]);
    let pair = start(&TokenFile::of(&[&line, &other]));
    let mut client = pair.client().await;
    let messages = (0..3).map(|i| message(&i.to_string())).collect();
    client.append(with_token(&theirs, append("theirs", "room", messages))).await.unwrap();

    let positions = [
        None,
        Some(Position::AfterSeq(0)),
        Some(Position::AfterSeq(2)),
        Some(Position::AfterSeq(u64::MAX)),
        Some(Position::BeforeSeq(0)),
        Some(Position::BeforeSeq(2)),
        Some(Position::BeforeSeq(u64::MAX)),
        Some(Position::FromTimeMs(0)),
        Some(Position::FromTimeMs(now_ms() + 60_000)),
    ];
    let shown = |answer: Result<v1::PullResponse, Status>| {
        answer.map_err(|status| {
            let info = status.get_error_details().error_info().cloned();
            (status.code(), status.message().to_owned(), info.map(|info| info.metadata))
        })
    };
    for position in positions {
        for fail_on_expired in [false, true] {
            let page = |tenant: &str, conversation: &str| v1::PullRequest {
                tenant: tenant.into(),
                position,
                fail_on_expired,
                ..pull_all(conversation)
            };
            let seen =
                client.pull(with_token(&ours, page("theirs", "room"))).await.map(tonic::Response::into_inner);
            let absent =
                client.pull(with_token(&ours, page("ours", "none"))).await.map(tonic::Response::into_inner);
            assert_eq!(shown(seen), shown(absent), "{position:?} {fail_on_expired}");
        }
    }
    let seen = client.describe(with_token(&ours, describe("theirs", "room"))).await.unwrap().into_inner();
    assert_eq!(seen, v1::DescribeResponse::default());
    let own = client.describe(with_token(&theirs, describe("theirs", "room"))).await.unwrap().into_inner();
    assert_eq!(own.last_conversation_seq, 3);

    // What is written tells nothing of what is there.
    for conversation in ["room", "none"] {
        let refused =
            client.append(with_token(&ours, append("theirs", conversation, vec![message("x")]))).await;
        let import =
            client.import(with_token(&ours, import("theirs", conversation, vec![message("x")]))).await;
        for status in [refused.unwrap_err(), import.unwrap_err()] {
            assert_eq!(status.code(), Code::PermissionDenied);
            assert_eq!(status.message(), "the token is not for this tenant");
        }
    }
    let default = client.append(with_token(&ours, append("", "room", vec![message("x")]))).await.unwrap_err();
    assert_eq!(default.code(), Code::PermissionDenied, "no tenant named is the tenant default");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_asked_for_each_request_and_a_token_taken_back_ends_it() {
    let (ours, line) = token("ours", &["ours"], &[Right::Append]);
    let (_, spare) = token("spare", &["*"], &[Right::Pull]);
    let file = TokenFile::of(&[&line, &spare]);
    let pair = start(&file);
    let mut client = pair.client().await;
    let (sender, receiver) = tokio::sync::mpsc::channel(8);
    let mut answers =
        client.append_stream(with_token(&ours, ReceiverStream::new(receiver))).await.unwrap().into_inner();
    let mut next = 0;
    let mut ask = async |tenant: &str| {
        next += 1;
        let messages = vec![message(&next.to_string())];
        let append = Some(append(tenant, "c", messages));
        sender.send(v1::AppendStreamRequest { request_id: next, append }).await.unwrap();
        match answers.message().await.unwrap().unwrap().outcome.unwrap() {
            Outcome::Committed(_) => Code::Ok,
            Outcome::Error(error) => Code::from(error.code),
        }
    };
    assert_eq!(ask("ours").await, Code::Ok);
    assert_eq!(ask("theirs").await, Code::PermissionDenied);
    assert_eq!(ask("ours").await, Code::Ok, "the stream goes on");
    file.replace(&spare);
    eventually(PATIENCE, "the token is gone", || pair.writer.stderr().contains("the tokens have changed"));
    assert_eq!(ask("ours").await, Code::Unauthenticated);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_request_of_a_stream_of_imports_is_for_a_tenant_of_the_token_and_no_hold_without_the_right() {
    let (ours, line) = token("ours", &["ours"], &[Right::Import]);
    let pair = start(&TokenFile::of(&[&line]));
    let hold = v1::Message { retention_class: HOLD.into(), ..message("held") };
    let imports = [
        import("ours", "a", vec![message("1")]),
        import("theirs", "a", vec![message("1")]),
        import("ours", "b", vec![hold]),
        import("ours", "c", vec![message("1")]),
    ];
    let requests = (0..).zip(imports);
    let requests =
        requests.map(|(request_id, import)| v1::ImportStreamRequest { request_id, import: Some(import) });
    let requests = with_token(&ours, futures::stream::iter(requests.collect::<Vec<_>>()));
    let mut answers = pair.client().await.import_stream(requests).await.unwrap().into_inner();
    let mut codes = std::collections::BTreeMap::new();
    while let Some(answer) = answers.message().await.unwrap() {
        let code = match answer.outcome.unwrap() {
            v1::import_stream_response::Outcome::Imported(_) => Code::Ok,
            v1::import_stream_response::Outcome::Error(error) => Code::from(error.code),
        };
        assert_eq!(codes.insert(answer.request_id, code), None);
    }
    let expected = [Code::Ok, Code::PermissionDenied, Code::PermissionDenied, Code::Ok];
    assert_eq!(codes.into_values().collect::<Vec<_>>(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_needs_the_right_to_compliance_beside_that_to_commit() {
    let commit = [Right::Append, Right::Import];
    let (plain, line) = token("plain", &["*"], &commit);
    let (officer, privileged) = token("officer", &["*"], &[commit[0], commit[1], Right::Compliance]);
    let (only, lonely) = token("only", &["*"], &[Right::Compliance]);
    let pair = start(&TokenFile::of(&[&line, &privileged, &lonely]));
    let mut client = pair.client().await;
    let hold = |id: &str| v1::Message { retention_class: HOLD.into(), ..message(id) };
    let messages = || vec![message("1"), hold("2")];
    let refused = [
        client.append(with_token(&plain, append("", "c", messages()))).await.unwrap_err(),
        client.import(with_token(&plain, import("", "c", messages()))).await.unwrap_err(),
    ];
    for status in refused {
        assert_eq!(status.code(), Code::PermissionDenied);
        assert!(status.message().contains("messages[1].retention_class"), "{status:?}");
        assert!(status.message().contains("the right compliance"), "{status:?}");
    }
    let status = client.append(with_token(&only, append("", "c", messages()))).await.unwrap_err();
    assert_eq!(status.message(), "the token lacks the right append");
    let seqs = client.append(with_token(&officer, append("", "c", messages()))).await.unwrap().into_inner();
    assert_eq!(seqs.results.iter().map(|result| result.seq).collect::<Vec<_>>(), [1, 2]);
    let custom = v1::Message { retention_class: v1::RetentionClass::TenantCustom.into(), ..message("3") };
    client.append(with_token(&plain, append("", "c", vec![custom]))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_reloaded_without_a_restart_and_a_bad_file_changes_nothing_but_is_told() {
    let (old, line) = token("old", &["*"], &[Right::Pull]);
    let (new, next) = token("new", &["*"], &[Right::Pull]);
    let file = TokenFile::of(&[&line]);
    let pair = start(&file);
    let client = pair.client().await;
    let works = async |token: &Token| client.clone().pull(with_token(token, pull_all("c"))).await.is_ok();
    assert!(works(&old).await && !works(&new).await);

    file.replace(&format!("{line}\n{next}"));
    eventually_async(PATIENCE, "the new token works", || works(&new)).await;
    assert!(works(&old).await);

    file.replace(&format!("{next}\n{{\"id\":\"half"));
    eventually(PATIENCE, "the bad file is told", || {
        pair.writer.readyz().body.starts_with("degraded: tokens: ")
    });
    let told = pair.writer.readyz();
    assert!(told.status == 200 && told.body.contains("line 2: is not one JSON object"), "{told:?}");
    assert!(pair.writer.metrics().get("qim_loop_failures_total{loop=\"tokens\"}") > Some(0.0));
    assert!(works(&old).await && works(&new).await, "both are in effect still");

    file.replace(&next);
    eventually_async(PATIENCE, "the old token is gone", async || !works(&old).await).await;
    assert!(works(&new).await);
    eventually(PATIENCE, "all is well", || pair.writer.readyz().body == "ready\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_makes_tokens_and_shows_them_to_the_server() {
    let made = |arguments: &[&str]| {
        let launch = qim_testkit::Launch::program("qim").arg("--json").arg("token").arg("create");
        last_json(&arguments.iter().fold(launch, |launch, argument| launch.arg(*argument)).run(PATIENCE))
    };
    let reader = made(&["--tenant", "default", "--right", "pull", "--id", "reader"]);
    let writer = made(&["--tenant", "*", "--right", "append", "--right", "pull"]);
    let lines = [&reader, &writer].map(|made| made["line"].as_str().unwrap());
    assert!(!lines[0].contains(reader["token"].as_str().unwrap()), "{reader}");
    assert_eq!(writer["id"].as_str().unwrap().len(), 12);
    let pair = start(&TokenFile::of(&lines));
    let path = |made: &serde_json::Value| {
        let path = pair.writer.dir().join("token");
        std::fs::write(&path, made["token"].as_str().unwrap()).unwrap();
        path.display().to_string()
    };
    let append = ["append", "c", "hello", "--sender", "alice"];
    let refused = pair.qim(&append);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(refused.stderr.contains("a token is needed"), "{refused:?}");
    let refused = qim(&pair.writer, &append).arg("--token-file").arg(path(&reader)).run(PATIENCE);
    assert!(refused.stderr.contains("lacks the right append"), "{refused:?}");
    let done = qim(&pair.writer, &append).arg("--token-file").arg(path(&writer)).run(PATIENCE);
    assert!(done.status.success(), "{done:?}");
    let read = qim(&pair.writer, &["pull", "c"]).env("QIM_TOKEN", reader["token"].as_str().unwrap());
    assert_eq!(last_json(&read.run(PATIENCE))["sender"], "alice");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_admin_port_shows_nothing_of_users_data() {
    let (all, line) = token("all", &["*"], &[Right::Append, Right::Pull]);
    let pair = start(&TokenFile::of(&[&line]));
    let mut client = pair.client().await;
    let secret =
        v1::Message { sender: "SECRETsender".into(), payload: "SECRETbody".into(), ..message("SECRETid") };
    client.append(with_token(&all, append("SECRETtenant", "SECRETroom", vec![secret]))).await.unwrap();
    let page = v1::PullRequest { tenant: "SECRETtenant".into(), ..pull_all("SECRETroom") };
    assert_eq!(client.pull(with_token(&all, page)).await.unwrap().into_inner().records.len(), 1);
    eventually(PATIENCE, "it is counted as archived", || {
        pair.archiver.metrics().get("qim_archived_rows_total").unwrap_or(0.0) > 0.0
    });
    for daemon in [&pair.writer, &pair.archiver] {
        for path in ["/metrics", "/readyz", "/healthz", "/", "/debug", "/config"] {
            let answer = http_get(&format!("{}{path}", daemon.admin_url())).unwrap();
            assert!(!answer.body.contains("SECRET") && !answer.body.contains(all.reveal()), "{path}");
        }
    }
}
