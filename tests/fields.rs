//! Every field of every request at its edges: what is not allowed is named, and nothing is changed.

use std::collections::BTreeSet;

use futures::StreamExt;
use prost::Message as _;
use prost::bytes::{BufMut, Bytes, BytesMut};
use qim_proto::v1;
use qim_proto::v1::append_stream_response::Outcome;
use qim_proto::v1::history_client::HistoryClient;
use qim_proto::v1::pull_request::Position;
use qim_tests::{DAY_MS, PATIENCE, Pair, message, now_ms, pull_all, unique};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_types::StatusExt;

/// The date of the last millisecond of the year 9999.
const YEAR_9999: i64 = 253_402_300_799_999;

/// A request, and the field that is wrong with it, where one is.
struct Case {
    request: Request,
    wrong: Option<&'static str>,
}

#[derive(Debug, Clone)]
enum Request {
    Append(v1::AppendRequest),
    Import(v1::ImportRequest),
    Pull(v1::PullRequest),
    Describe(v1::DescribeRequest),
}

impl Request {
    async fn send(self, client: &mut HistoryClient<Channel>) -> Result<(), Status> {
        match self {
            Self::Append(request) => client.append(request).await.map(drop),
            Self::Import(request) => client.import(request).await.map(drop),
            Self::Pull(request) => client.pull(request).await.map(drop),
            Self::Describe(request) => client.describe(request).await.map(drop),
        }
    }
}

fn fresh() -> String {
    format!("c{}", unique())
}

fn append(message: v1::Message) -> Request {
    Request::Append(v1::AppendRequest {
        conversation: fresh(),
        messages: vec![message],
        ..Default::default()
    })
}

fn import(message: v1::Message) -> Request {
    let message = v1::Message { created_at_ms: message.created_at_ms.or(Some(now_ms())), ..message };
    Request::Import(v1::ImportRequest {
        conversation: fresh(),
        messages: vec![message],
        ..Default::default()
    })
}

fn pull(position: Option<Position>) -> v1::PullRequest {
    v1::PullRequest { position, ..pull_all(&fresh()) }
}

/// Texts that an id may be, and some that it may not.
fn texts() -> Vec<(String, bool)> {
    let fine = [
        "x".into(),
        "x".repeat(128),
        "é".repeat(64),
        "\u{10FFFF}".into(),
        "a b\u{a0}c".into(),
        "{}:*".into(),
    ];
    let wrong =
        ["x".repeat(129), "é".repeat(65), "a\0b".into(), "a\nb".into(), "\u{7f}".into(), "\u{85}".into()];
    fine.into_iter()
        .map(|text: String| (text, true))
        .chain(wrong.into_iter().map(|text| (text, false)))
        .collect()
}

fn names(cases: &mut Vec<Case>) {
    let empty_conversation = std::iter::once((String::new(), false));
    for (text, is_fine) in empty_conversation.chain(texts()) {
        let wrong = (!is_fine).then_some("conversation");
        let messages = vec![message("1")];
        let append = v1::AppendRequest { conversation: text.clone(), messages, ..Default::default() };
        cases.push(Case { request: Request::Append(append), wrong });
        let pull = v1::PullRequest { conversation: text.clone(), ..Default::default() };
        cases.push(Case { request: Request::Pull(pull), wrong });
        let describe = v1::DescribeRequest { conversation: text, ..Default::default() };
        cases.push(Case { request: Request::Describe(describe), wrong });
    }
    let no_tenant = std::iter::once((String::new(), true));
    for (tenant, is_fine) in no_tenant.chain(texts()) {
        let wrong = (!is_fine).then_some("tenant");
        let messages = vec![v1::Message { created_at_ms: Some(now_ms()), ..message("1") }];
        let (of, conversation) = (tenant.clone(), fresh());
        let import = v1::ImportRequest { tenant: of, conversation, messages };
        cases.push(Case { request: Request::Import(import), wrong });
        let pull = v1::PullRequest { tenant: tenant.clone(), ..pull(None) };
        cases.push(Case { request: Request::Pull(pull), wrong });
        cases.push(Case {
            request: Request::Describe(v1::DescribeRequest { tenant, conversation: fresh() }),
            wrong,
        });
    }
}

fn messages(cases: &mut Vec<Case>) {
    let mut case = |message: v1::Message, wrong: Option<&'static str>| {
        cases.push(Case { request: append(message.clone()), wrong });
        cases.push(Case { request: import(message), wrong });
    };
    for (text, is_fine) in texts().into_iter().chain([(String::new(), false)]) {
        let wrong = |field| (!is_fine).then_some(field);
        case(v1::Message { sender: text.clone(), ..message("1") }, wrong("messages[0].sender"));
        case(v1::Message { client_msg_id: text.clone(), ..message("1") }, wrong("messages[0].client_msg_id"));
        if !text.is_empty() {
            case(v1::Message { content_type: text, ..message("1") }, wrong("messages[0].content_type"));
        }
    }
    for (len, wrong) in [(0, None), (1, None), (65_536, None), (65_537, Some("messages[0].payload"))] {
        case(v1::Message { payload: vec![b'x'; len].into(), ..message("1") }, wrong);
    }
    for class in [0, 1, 2, 3, 4] {
        case(v1::Message { retention_class: class, ..message("1") }, None);
    }
    for class in [-1, 5, i32::MIN, i32::MAX] {
        case(v1::Message { retention_class: class, ..message("1") }, Some("messages[0].retention_class"));
    }
    for date in [0, 1, now_ms() + 30_000, now_ms() + 3_600_000] {
        case(v1::Message { first_sent_at_ms: Some(date), ..message("1") }, None);
    }
    for date in [-1, i64::MIN, now_ms() + DAY_MS, YEAR_9999, i64::MAX] {
        let wrong = Some("messages[0].first_sent_at_ms");
        case(v1::Message { first_sent_at_ms: Some(date), ..message("1") }, wrong);
    }
}

fn dates_of_imports(cases: &mut Vec<Case>) {
    for date in [0, 1, now_ms() + 30_000] {
        let held = v1::RetentionClass::ComplianceHold.into();
        let request =
            import(v1::Message { created_at_ms: Some(date), retention_class: held, ..message("1") });
        cases.push(Case { request, wrong: None });
    }
    let wrong = Some("messages[0].created_at_ms");
    for date in [-1, i64::MIN, now_ms() + DAY_MS, YEAR_9999, i64::MAX] {
        cases
            .push(Case { request: import(v1::Message { created_at_ms: Some(date), ..message("1") }), wrong });
    }
    cases
        .push(Case { request: append(v1::Message { created_at_ms: Some(now_ms()), ..message("1") }), wrong });
    let undated =
        v1::ImportRequest { conversation: fresh(), messages: vec![message("1")], ..Default::default() };
    cases.push(Case { request: Request::Import(undated), wrong });
}

fn counts_and_positions(cases: &mut Vec<Case>) {
    for (count, is_fine) in [(0, false), (1, true), (500, true), (501, false)] {
        let messages = (0..count).map(|i| message(&i.to_string())).collect();
        let append = v1::AppendRequest { conversation: fresh(), messages, ..Default::default() };
        cases.push(Case { request: Request::Append(append), wrong: (!is_fine).then_some("messages") });
    }
    for (limit, is_fine) in
        [(0, true), (1, true), (500, true), (501, false), (1_000_000_000, false), (u32::MAX, false)]
    {
        let request = Request::Pull(v1::PullRequest { limit, ..pull(None) });
        cases.push(Case { request, wrong: (!is_fine).then_some("limit") });
    }
    for position in [
        Position::AfterSeq(0),
        Position::BeforeSeq(0),
        Position::BeforeSeq(u64::MAX),
        Position::FromTimeMs(i64::MIN),
        Position::FromTimeMs(0),
        Position::FromTimeMs(YEAR_9999),
        Position::FromTimeMs(i64::MAX),
    ] {
        cases.push(Case { request: Request::Pull(pull(Some(position))), wrong: None });
    }
}

/// The fields that a refusal names.
fn named(status: &Status) -> BTreeSet<String> {
    let details = status.get_error_details();
    let violations = details.bad_request().map(|bad| bad.field_violations.clone()).unwrap_or_default();
    violations.into_iter().map(|violation| violation.field).collect()
}

#[tokio::test]
async fn every_field_is_taken_up_to_its_edge_and_named_beyond_it_and_then_nothing_is_changed() {
    let pair = Pair::start();
    let mut client = pair.client().await;
    let mut cases = Vec::new();
    names(&mut cases);
    messages(&mut cases);
    dates_of_imports(&mut cases);
    counts_and_positions(&mut cases);
    let (wrong, fine): (Vec<_>, Vec<_>) = cases.into_iter().partition(|case| case.wrong.is_some());
    assert!(wrong.len() > 100 && fine.len() > 100, "{} and {}", wrong.len(), fine.len());
    for Case { request, wrong } in &wrong {
        let status = request.clone().send(&mut client).await.expect_err(wrong.unwrap());
        assert_eq!(status.code(), Code::InvalidArgument, "{wrong:?}: {status}");
        assert_eq!(named(&status), BTreeSet::from([wrong.unwrap().to_owned()]), "{status}");
        assert!(status.message().starts_with(wrong.unwrap()), "{status}");
    }

    // The same in a stream, which goes on.
    let appends: Vec<_> = wrong
        .iter()
        .filter_map(|case| match &case.request {
            Request::Append(append) => Some((append.clone(), case.wrong.unwrap())),
            _ => None,
        })
        .collect();
    let requests = appends.iter().zip(1..).map(|((append, _), request_id)| v1::AppendStreamRequest {
        request_id,
        append: Some(append.clone()),
    });
    let requests: Vec<_> = std::iter::once(v1::AppendStreamRequest::default()).chain(requests).collect();
    let total = requests.len();
    let mut answers = client.append_stream(futures::stream::iter(requests)).await.unwrap().into_inner();
    let mut answered = 0;
    while let Some(answer) = answers.next().await {
        let answer = answer.unwrap();
        let Outcome::Error(error) = answer.outcome.unwrap() else { panic!("{}", answer.request_id) };
        assert_eq!(error.code, i32::from(Code::InvalidArgument), "{error:?}");
        match usize::try_from(answer.request_id).unwrap() {
            0 => assert!(error.fields.contains(&"messages".to_owned()), "{error:?}"),
            id => assert_eq!(error.fields, [appends[id - 1].1], "{error:?}"),
        }
        answered += 1;
    }
    assert_eq!(answered, total);
    imports_in_a_stream_are_refused_as_calls_are(&mut client, &wrong).await;
    let committed = pair.writer.metrics().sum("qim_commits_total", &[]);
    assert!(committed == 0.0, "{committed} were committed");
    assert!(pair.redis.command(&["KEYS", "qim:*:c:*"]).texts().is_empty());

    for Case { request, .. } in fine {
        let shown = format!("{request:?}");
        if let Err(status) = request.send(&mut client).await {
            panic!("{status}: {}", shown.chars().take(300).collect::<String>());
        }
    }
    let beyond = client.pull(pull(Some(Position::AfterSeq(u64::MAX)))).await.unwrap_err();
    assert_eq!(beyond.code(), Code::OutOfRange);
    assert_eq!(beyond.get_error_details().error_info().unwrap().reason, "SEQ_OUT_OF_RANGE");
    pair.await_settled();
    assert_eq!(pair.writer.metrics().get("qim_set_aside{kind=\"all\"}"), Some(0.0));
}

/// Each is answered for itself, with the details that a call has.
async fn imports_in_a_stream_are_refused_as_calls_are(client: &mut HistoryClient<Channel>, wrong: &[Case]) {
    let imports: Vec<_> = wrong
        .iter()
        .filter_map(|case| match &case.request {
            Request::Import(import) => Some((import.clone(), case.wrong.unwrap())),
            _ => None,
        })
        .collect();
    let empty = v1::ImportStreamRequest { request_id: u64::MAX, import: None };
    let requests = (0..).zip(&imports).map(|(request_id, (import, _))| v1::ImportStreamRequest {
        request_id,
        import: Some(import.clone()),
    });
    let requests: Vec<_> = std::iter::once(empty).chain(requests).collect();
    let mut answers = client.import_stream(futures::stream::iter(requests)).await.unwrap().into_inner();
    let mut answered = BTreeSet::new();
    while let Some(answer) = answers.message().await.unwrap() {
        let Some(v1::import_stream_response::Outcome::Error(error)) = answer.outcome else {
            panic!("{}", answer.request_id)
        };
        assert_eq!(error.code, i32::from(Code::InvalidArgument), "{error:?}");
        let status = Status::with_details(Code::from(error.code), error.message, error.status_details);
        assert_eq!(named(&status), error.fields.into_iter().collect());
        if answer.request_id == u64::MAX {
            assert!(named(&status).contains("messages"), "{status}");
        } else {
            let index = usize::try_from(answer.request_id).unwrap();
            assert_eq!(named(&status), BTreeSet::from([imports[index].1.to_owned()]), "{status}");
        }
        answered.insert(answer.request_id);
    }
    assert_eq!(answered.len(), imports.len() + 1);
}

/// Bytes as they are, in the place of a message.
#[derive(Debug, Clone, Default)]
struct Raw;

impl tonic::codec::Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl tonic::codec::Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, to: &mut tonic::codec::EncodeBuf<'_>) -> Result<(), Status> {
        to.put(item);
        Ok(())
    }
}

impl tonic::codec::Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut tonic::codec::DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        use prost::bytes::Buf;
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

#[tokio::test]
async fn bytes_that_are_no_message_or_no_utf8_are_the_clients_fault_and_named() {
    let pair = Pair::start();
    let channel =
        Channel::from_shared(pair.writer.grpc_url()).unwrap().timeout(PATIENCE).connect().await.unwrap();
    // In each of these messages field 2 is the conversation: two bytes that are no UTF-8.
    let not_utf8 = Bytes::from_static(&[0x12, 2, 0xff, 0xfe]);
    let cut = Bytes::from_static(&[0x12, 200, 1, b'x']);
    for (method, streams) in [
        ("Append", false),
        ("Import", false),
        ("Pull", false),
        ("Describe", false),
        ("AppendStream", true),
        ("ImportStream", true),
    ] {
        for (bytes, told) in [(&not_utf8, "conversation"), (&cut, "failed to decode")] {
            let mut grpc = tonic::client::Grpc::new(channel.clone());
            grpc.ready().await.unwrap();
            let path = PathAndQuery::try_from(format!("/qim.v1.History/{method}")).unwrap();
            let status = if streams {
                // The request inside is field 2.
                let mut outer = BytesMut::from(&[0x12, u8::try_from(bytes.len()).unwrap()][..]);
                outer.put(bytes.clone());
                let requests = tonic::Request::new(futures::stream::iter([outer.freeze()]));
                let mut answers = grpc.streaming(requests, path, Raw).await.unwrap().into_inner();
                answers.message().await.unwrap_err()
            } else {
                grpc.unary(tonic::Request::new(bytes.clone()), path, Raw).await.map(drop).unwrap_err()
            };
            assert_eq!(status.code(), Code::InvalidArgument, "{method}: {status}");
            assert!(status.message().contains(told), "{method}: {status}");
        }
    }
    let fine = v1::DescribeRequest { conversation: "c".into(), ..Default::default() };
    assert!(!fine.encode_to_vec().is_empty());
    assert!(!pair.client().await.describe(fine).await.unwrap().into_inner().exists);
}
