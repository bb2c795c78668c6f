//! `qim.v1.History` as its clients see it.

use std::time::Duration;

use futures::StreamExt;
use qim_proto::v1;
use qim_proto::v1::append_stream_response::Outcome;
use qim_proto::v1::pull_request::Position;
use qim_testkit::eventually_async;
use qim_tests::{PATIENCE, Pair, message, now_ms, pull_all};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::{ServerReflectionRequest, server_reflection_response::MessageResponse};
use tonic_types::StatusExt;

fn append(conversation: &str, messages: Vec<v1::Message>) -> v1::AppendRequest {
    v1::AppendRequest { conversation: conversation.into(), messages, ..Default::default() }
}

#[tokio::test]
async fn every_bad_field_is_named_with_what_is_allowed_and_nothing_is_committed() {
    let pair = Pair::start();
    let mut client = pair.client().await;
    let long = "x".repeat(129);
    let bad = vec![
        message("fine"),
        v1::Message { sender: String::new(), client_msg_id: long.clone(), ..message("x") },
        v1::Message { retention_class: 9, content_type: "a\nb".into(), ..message("x") },
        v1::Message { payload: vec![0; 65_537].into(), created_at_ms: Some(1), ..message("x") },
        v1::Message { first_sent_at_ms: Some(-1), ..message("x") },
    ];
    let request = v1::AppendRequest { tenant: "a\u{7}b".into(), ..append(&long, bad) };
    let status = client.append(request).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    let details = status.get_error_details();
    let fields: Vec<_> =
        details.bad_request().unwrap().field_violations.iter().map(|fault| fault.field.clone()).collect();
    assert_eq!(
        fields,
        [
            "tenant",
            "conversation",
            "messages[1].sender",
            "messages[1].client_msg_id",
            "messages[2].content_type",
            "messages[2].retention_class",
            "messages[3].payload",
            "messages[3].created_at_ms",
            "messages[4].first_sent_at_ms",
        ]
    );
    for (count, ok) in [(0, false), (1, true), (500, true), (501, false)] {
        let messages = (0..count).map(|i| message(&i.to_string())).collect();
        let result = client.append(append(&format!("c{count}"), messages)).await;
        assert_eq!(result.is_ok(), ok, "{count} messages");
    }
    let future = v1::Message { created_at_ms: Some(now_ms() + 3_600_000), ..message("x") };
    for (message, what) in [(future, "from the future"), (message("x"), "without a date")] {
        let request =
            v1::ImportRequest { conversation: "c".into(), messages: vec![message], ..Default::default() };
        assert_eq!(client.import(request).await.unwrap_err().code(), Code::InvalidArgument, "{what}");
    }
    let request = v1::PullRequest { limit: 501, ..pull_all("c") };
    assert_eq!(client.pull(request).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn an_append_sent_again_is_answered_as_the_first_time() {
    let pair = Pair::start();
    let mut client = pair.client().await;
    let request = append("c", vec![message("1"), message("2")]);
    let first = client.append(request.clone()).await.unwrap().into_inner().results;
    let again = client.append(request).await.unwrap().into_inner().results;
    assert_eq!(first.iter().map(|result| result.seq).collect::<Vec<_>>(), [1, 2]);
    for (first, again) in first.iter().zip(&again) {
        assert!(!first.duplicate && again.duplicate);
        assert_eq!(
            (first.seq, first.created_at_ms, first.expires_at_ms),
            (again.seq, again.created_at_ms, again.expires_at_ms)
        );
        assert_eq!(first.expires_at_ms.unwrap() - first.created_at_ms.unwrap(), 30 * qim_tests::DAY_MS);
    }
    let reused = v1::Message { payload: "another body".into(), ..message("2") };
    let status = client.append(append("c", vec![message("3"), reused])).await.unwrap_err();
    assert_eq!(status.code(), Code::AlreadyExists);
    assert_eq!(
        status.get_error_details().error_info().unwrap().metadata["field"],
        "messages[1].client_msg_id"
    );
    let page = client.pull(pull_all("c")).await.unwrap().into_inner();
    assert_eq!(page.last_conversation_seq, 2, "nothing of the batch was committed");
}

#[tokio::test]
async fn an_import_names_the_message_of_the_request_that_is_wrong_even_behind_expired_ones() {
    let pair = Pair::start();
    let mut client = pair.client().await;
    client.append(append("c", vec![message("used")])).await.unwrap();
    let at = |id: &str, age_days: i64, body: &'static str| v1::Message {
        created_at_ms: Some(now_ms() - age_days * qim_tests::DAY_MS),
        payload: body.into(),
        ..message(id)
    };
    let messages = vec![at("old", 31, "x"), at("used", 0, "another body"), at("fine", 0, "x")];
    let request = v1::ImportRequest { conversation: "c".into(), messages, ..Default::default() };
    let status = client.import(request).await.unwrap_err();
    assert_eq!(status.code(), Code::AlreadyExists);
    assert_eq!(
        status.get_error_details().error_info().unwrap().metadata["field"],
        "messages[1].client_msg_id"
    );
}

#[tokio::test]
async fn a_stream_answers_each_request_once_and_keeps_the_order_of_each_conversation() {
    let pair = Pair::start();
    let mut client = pair.client().await;
    let (sender, receiver) = tokio::sync::mpsc::channel(8);
    let total = 600_u64;
    tokio::spawn(async move {
        for i in 0..total {
            let mut request = append(&format!("c{}", i % 3), vec![message(&i.to_string())]);
            if i % 100 == 99 {
                request.messages[0].sender = String::new();
            }
            let request = v1::AppendStreamRequest { request_id: i, append: Some(request) };
            sender.send(request).await.unwrap();
        }
    });
    let mut answers = client.append_stream(ReceiverStream::new(receiver)).await.unwrap().into_inner();
    let (mut committed, mut refused) = (Vec::new(), Vec::new());
    while let Some(answer) = answers.next().await {
        let answer = answer.unwrap();
        match answer.outcome.unwrap() {
            Outcome::Committed(response) => committed.push((answer.request_id, response.results[0].seq)),
            Outcome::Error(error) => refused.push((answer.request_id, error.code, error.fields)),
        }
    }
    assert_eq!(committed.len() + refused.len(), usize::try_from(total).unwrap());
    assert_eq!(refused.len(), 6);
    assert!(
        refused.iter().all(|(_, code, fields)| *code == i32::from(Code::InvalidArgument)
            && fields == &["messages[0].sender"])
    );
    committed.sort_unstable();
    for lane in 0..3 {
        let seqs: Vec<u64> = committed.iter().filter(|(id, _)| id % 3 == lane).map(|(_, seq)| *seq).collect();
        assert!(
            seqs.iter().copied().eq(1..=u64::try_from(seqs.len()).unwrap()),
            "in the order of the requests"
        );
    }
}

#[tokio::test]
async fn a_stream_of_imports_answers_each_as_a_call_and_keeps_the_order_of_each_conversation() {
    let pair = Pair::start();
    let mut client = pair.client().await;
    let total = 300_u64;
    let request = |id: u64| {
        let dated = |age_ms: i64, client_msg_id: &str| v1::Message {
            created_at_ms: Some(now_ms() - age_ms),
            ..message(client_msg_id)
        };
        let (expired, living) = (dated(31 * qim_tests::DAY_MS, &format!("old-{id}")), id.to_string());
        let mut messages = vec![expired, dated(0, &living)];
        if id % 100 == 99 {
            // The id of an earlier message of this conversation, with another body.
            messages[1] = v1::Message { payload: "another".into(), ..dated(0, &(id - 99).to_string()) };
        }
        let conversation = format!("c{}", id % 3);
        let import = v1::ImportRequest { conversation, messages, ..Default::default() };
        v1::ImportStreamRequest { request_id: id, import: Some(import) }
    };
    let requests: Vec<_> = (0..total).map(request).collect();
    let mut answers = client.import_stream(futures::stream::iter(requests)).await.unwrap().into_inner();
    let (mut committed, mut refused) = (Vec::new(), 0);
    while let Some(answer) = answers.message().await.unwrap() {
        match answer.outcome.unwrap() {
            v1::import_stream_response::Outcome::Imported(response) => {
                let outcomes: Vec<_> = response.results.iter().map(v1::Imported::outcome).collect();
                assert_eq!(outcomes, [v1::imported::Outcome::Expired, v1::imported::Outcome::Committed]);
                committed.push((answer.request_id, response.results[1].seq));
            }
            v1::import_stream_response::Outcome::Error(error) => {
                assert_eq!(answer.request_id % 100, 99);
                assert_eq!(error.code, i32::from(Code::AlreadyExists), "{error:?}");
                let status =
                    tonic::Status::with_details(Code::AlreadyExists, error.message, error.status_details);
                let details = status.get_error_details();
                assert_eq!(details.error_info().unwrap().metadata["field"], "messages[1].client_msg_id");
                refused += 1;
            }
        }
    }
    assert_eq!((committed.len(), refused), (297, 3));
    committed.sort_unstable();
    for lane in 0..3 {
        let seqs = committed.iter().filter(|(id, _)| id % 3 == lane).map(|(_, seq)| *seq);
        assert!(seqs.eq(1..=99), "in the order of the requests");
    }
}

#[tokio::test]
async fn a_position_beyond_the_end_is_out_of_range_and_says_what_is_there() {
    let pair = Pair::start();
    let mut client = pair.client().await;
    client.append(append("c", vec![message("1"), message("2")])).await.unwrap();
    let at = |position| v1::PullRequest { position: Some(position), ..pull_all("c") };
    for (seq, fail_on_expired) in [(u64::MAX, false), (u64::MAX, true), (3, true)] {
        let request = v1::PullRequest { fail_on_expired, ..at(Position::AfterSeq(seq)) };
        assert_eq!(client.pull(request).await.unwrap_err().code(), Code::OutOfRange, "{seq}");
    }
    let status = client.pull(at(Position::AfterSeq(3))).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange);
    let details = status.get_error_details();
    let metadata = &details.error_info().unwrap().metadata;
    assert_eq!(metadata["earliest_available_conversation_seq"], "1");
    assert_eq!(metadata["last_conversation_seq"], "2");
    for (position, seqs) in [
        (Position::AfterSeq(2), vec![]),
        (Position::AfterSeq(1), vec![2]),
        (Position::BeforeSeq(u64::MAX), vec![1, 2]),
        (Position::BeforeSeq(2), vec![1]),
        (Position::BeforeSeq(0), vec![]),
        (Position::FromTimeMs(i64::MIN), vec![1, 2]),
        (Position::FromTimeMs(i64::MAX), vec![]),
    ] {
        let page = client.pull(at(position)).await.unwrap().into_inner();
        assert_eq!(page.records.iter().map(|record| record.seq).collect::<Vec<_>>(), seqs, "{position:?}");
        assert_eq!((page.earliest_available_conversation_seq, page.last_conversation_seq), (1, 2));
    }
    let nothing = client.pull(pull_all("nobody")).await.unwrap().into_inner();
    assert_eq!((nothing.records.len(), nothing.earliest_available_conversation_seq), (0, 1));
}

#[tokio::test]
async fn a_conversation_of_another_tenant_is_another_conversation() {
    let pair = Pair::start();
    let mut client = pair.client().await;
    for tenant in ["", "default", "acme"] {
        let request = v1::AppendRequest { tenant: tenant.into(), ..append("c", vec![message("1")]) };
        let results = client.append(request).await.unwrap().into_inner().results;
        assert_eq!((results[0].seq, results[0].duplicate), (1, tenant == "default"), "{tenant:?}");
    }
    let described = client
        .describe(v1::DescribeRequest { tenant: "acme".into(), conversation: "c".into() })
        .await
        .unwrap()
        .into_inner();
    assert!(described.exists && described.hot_records == 1 && described.last_conversation_seq == 1);
}

#[tokio::test]
async fn payloads_come_as_they_were_sent_unless_the_reader_takes_zstd() {
    let pair = Pair::start();
    let mut client = pair.client().await;
    let said = "to be, or not to be, or to be, or not to be: that is the question".repeat(3);
    let long = v1::Message { payload: said.clone().into(), ..message("1") };
    client.append(append("c", vec![long])).await.unwrap();
    for accept_zstd in [false, true] {
        let request = v1::PullRequest { accept_zstd, ..pull_all("c") };
        let record = client.pull(request).await.unwrap().into_inner().records.remove(0);
        let expected = if accept_zstd { v1::PayloadEncoding::Zstd } else { v1::PayloadEncoding::Unspecified };
        assert_eq!(record.payload_encoding(), expected);
        assert_eq!(record.payload == said, !accept_zstd);
        assert!(record.payload.len() <= said.len());
    }
}

#[tokio::test]
async fn a_full_page_comes_back_whatever_the_size_of_its_records() {
    let pair = Pair::start();
    let mut client = pair.client().await;
    for i in 0..100 {
        let big = v1::Message { payload: vec![b'x'; 65_536].into(), ..message(&i.to_string()) };
        client.append(append("c", vec![big])).await.unwrap();
    }
    let (mut after, mut seen) = (0, 0);
    loop {
        let request = v1::PullRequest { position: Some(Position::AfterSeq(after)), ..pull_all("c") };
        let page = client.pull(request).await.unwrap().into_inner();
        seen += page.records.len();
        after = page.next_seq;
        if !page.has_more {
            break;
        }
    }
    assert_eq!(seen, 100);
}

#[tokio::test]
async fn health_and_reflection_answer() {
    let pair = Pair::start();
    let channel = tonic::transport::Endpoint::new(pair.writer.grpc_url()).unwrap().connect().await.unwrap();
    let mut health = tonic_health::pb::health_client::HealthClient::new(channel.clone());
    for service in ["", "qim.v1.History"] {
        let request = tonic_health::pb::HealthCheckRequest { service: service.into() };
        eventually_async(PATIENCE, "the service is serving", async || {
            let status = health.check(request.clone()).await.unwrap().into_inner().status;
            status == i32::from(tonic_health::pb::health_check_response::ServingStatus::Serving)
        })
        .await;
    }
    let list = ServerReflectionRequest {
        message_request: Some(MessageRequest::ListServices(String::new())),
        ..Default::default()
    };
    let mut reflection = ServerReflectionClient::new(channel);
    let mut answers =
        reflection.server_reflection_info(futures::stream::iter([list])).await.unwrap().into_inner();
    let answer = answers.next().await.unwrap().unwrap().message_response.unwrap();
    let MessageResponse::ListServicesResponse(services) = answer else { panic!("{answer:?}") };
    assert!(services.service.iter().any(|service| service.name == "qim.v1.History"), "{services:?}");
}

#[tokio::test]
async fn sigterm_finishes_what_was_accepted_and_ends_with_0_even_while_a_stream_is_open() {
    let pair = Pair::start();
    let mut client = pair.client().await;
    let (sender, receiver) = tokio::sync::mpsc::channel(8);
    let mut answers = client.append_stream(ReceiverStream::new(receiver)).await.unwrap().into_inner();
    for i in 0..5 {
        let append = append("c", vec![message(&i.to_string())]);
        sender.send(v1::AppendStreamRequest { request_id: i, append: Some(append) }).await.unwrap();
    }
    let first = answers.next().await.unwrap().unwrap();
    assert_eq!(first.request_id, 0);
    let (sending, receiver) = tokio::sync::mpsc::channel(8);
    let mut imported = client.import_stream(ReceiverStream::new(receiver)).await.unwrap().into_inner();
    let messages = vec![v1::Message { created_at_ms: Some(now_ms()), ..message("imported") }];
    let import = v1::ImportRequest { conversation: "i".into(), messages, ..Default::default() };
    sending.send(v1::ImportStreamRequest { request_id: 7, import: Some(import) }).await.unwrap();
    assert_eq!(imported.message().await.unwrap().unwrap().request_id, 7);
    let ended = tokio::task::spawn_blocking(move || {
        let started = std::time::Instant::now();
        let statuses = (pair.writer.terminate(), pair.archiver.terminate());
        (statuses, started.elapsed(), pair)
    });
    let mut answered = 1;
    while let Ok(Some(answer)) = tokio::time::timeout(PATIENCE, answers.next()).await {
        answered += u64::from(answer.is_ok());
    }
    assert_eq!(imported.message().await.unwrap(), None, "closed in peace while it is open");
    let ((writer, archiver), took, _pair) = ended.await.unwrap();
    assert_eq!((writer.code(), archiver.code()), (Some(0), Some(0)));
    assert!(took < Duration::from_secs(15), "{took:?}");
    assert_eq!(answered, 5, "what was accepted was answered");
}
