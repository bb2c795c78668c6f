//! Requests: endless, huge, tiny and many, taken back; answers that nobody takes.

use bytes::Bytes;
use futures::StreamExt;
use h2::Reason;
use qim_proto::v1;
use qim_testkit::eventually;
use qim_tests::{PATIENCE, Pair, message, pull_all};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

use crate::hostile::{Hostile, answer, framed, prefix, taken};
use crate::{Other, count, metric, resident};

const MIB: usize = 1024 * 1024;

fn append(conversation: &str, messages: Vec<v1::Message>) -> v1::AppendRequest {
    v1::AppendRequest { conversation: conversation.into(), messages, ..Default::default() }
}

fn in_stream(request_id: u64) -> v1::AppendStreamRequest {
    let append = append("stream", vec![message(&request_id.to_string())]);
    v1::AppendStreamRequest { request_id, append: Some(append) }
}

/// The smallest there may be: 64 MiB for all, 16 for one connection.
fn with_little_memory() -> Pair {
    Pair::options().env("QIM_REQUEST_MEMORY_MAX", (64 * MIB).to_string()).start()
}

fn committed(pair: &Pair) -> f64 {
    pair.writer.metrics().sum("qim_commits_total", &[])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_whose_answers_nobody_takes_is_read_no_further_and_goes_on_when_they_are_taken() {
    let pair = Pair::start();
    let mut other = Other::connect(&pair.writer).await;
    let mut hostile = Hostile::connect(&pair.writer, 0).await;
    let (response, mut body) = hostile.begin("AppendStream").await.unwrap();
    let total = 3_000;
    for i in 0..total {
        body.send_data(framed(&in_stream(i)), i + 1 == total).unwrap();
    }
    // 256 under way, 64 answers that wait, and those on their way between the two.
    eventually(PATIENCE, "what there is room for is committed", || committed(&pair) >= 64.0);
    for _ in 0..50 {
        other.is_served().await;
        assert!(committed(&pair) - 50.0 < 400.0, "{} of {total} are committed", committed(&pair));
    }
    hostile.open_windows(1 << 20);
    assert_eq!(taken(answer(response).await.unwrap()).await, Code::Ok);
    assert!((committed(&pair) - 3_050.0).abs() < 0.5);
    eventually(PATIENCE, "nothing is accounted for any more", || {
        count(&pair.writer, "qim_request_memory_bytes") == 0
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_that_nobody_takes_are_only_as_many_as_there_is_memory_for() {
    let pair = with_little_memory();
    let mut other = Other::connect(&pair.writer).await;
    for i in 0..50 {
        let noise: Bytes =
            (0..60_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> (i % 16)).to_be_bytes()[0]).collect();
        let big = v1::Message { payload: noise, ..message(&i.to_string()) };
        other.client.append(append("big", vec![big])).await.unwrap();
    }
    let mut hostile = Hostile::connect(&pair.writer, 0).await;
    let (mut open, mut refused) = (Vec::new(), 0);
    for _ in 0..100 {
        match answer(hostile.send("Pull", &pull_all("big")).await.unwrap()).await {
            Ok(body) => open.push(body),
            Err(code) => {
                assert_eq!(code, Code::ResourceExhausted);
                refused += 1;
            }
        }
    }
    assert!(
        (3..=6).contains(&open.len()) && refused >= 94,
        "{} pages wait, {refused} were refused",
        open.len()
    );
    assert!(count(&pair.writer, "qim_requests_refused_total") >= 94);
    assert!(metric(&pair.writer, "qim_request_memory_bytes") <= 16.0 * 1024.0 * 1024.0);
    other.is_served().await;
    // They are taken, and there is room for others.
    hostile.open_windows(8 << 20);
    let ends = futures::future::join_all(open.into_iter().map(taken)).await;
    assert!(ends.iter().all(|end| *end == Code::Ok), "{ends:?}");
    eventually(PATIENCE, "all is given back", || count(&pair.writer, "qim_request_memory_bytes") == 0);
    let again = answer(hostile.send("Pull", &pull_all("big")).await.unwrap()).await.unwrap();
    assert_eq!(taken(again).await, Code::Ok);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_never_end_take_no_more_than_their_connections_share() {
    let pair = with_little_memory();
    let mut other = Other::connect(&pair.writer).await;
    let before = resident(&pair.writer);
    let mut hostile = Hostile::connect(&pair.writer, 65_535).await;
    let part = Bytes::from(vec![7; MIB]);
    let mut open = Vec::new();
    for _ in 0..60 {
        let (response, mut body) = hostile.begin("Append").await.unwrap();
        body.send_data(prefix(8 * MIB).freeze(), false).unwrap();
        body.send_data(part.clone(), false).unwrap();
        open.push((response, body));
        other.is_served().await;
    }
    eventually(PATIENCE, "those without room are refused", || {
        count(&pair.writer, "qim_requests_refused_total") >= 44
    });
    assert!(metric(&pair.writer, "qim_request_memory_bytes") <= 16.0 * 1024.0 * 1024.0);
    let grown = resident(&pair.writer) - before;
    assert!(grown < 64.0, "{grown} MiB more than before");
    other.is_served().await;
    drop(open);
    eventually(PATIENCE, "all is given back", || count(&pair.writer, "qim_request_memory_bytes") == 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_of_a_hundred_megabytes_is_refused_unread() {
    let pair = Pair::start();
    let mut other = Other::connect(&pair.writer).await;
    let before = resident(&pair.writer);
    for method in ["Append", "Import", "Pull", "Describe", "AppendStream", "ImportStream"] {
        let mut hostile = Hostile::connect(&pair.writer, 65_535).await;
        let (response, mut body) = hostile.begin(method).await.unwrap();
        body.send_data(prefix(100_000_000).freeze(), false).unwrap();
        let refused = match answer(response).await {
            Err(code) => code,
            Ok(body) => taken(body).await,
        };
        assert_eq!(refused, Code::OutOfRange, "{method}");
    }
    let huge = v1::Message { payload: vec![0; 100_000_000].into(), ..message("huge") };
    let refused = other.client.append(append("other", vec![huge])).await.unwrap_err();
    // The writer refuses while the client still sends, which some clients call a broken connection.
    assert!(
        matches!(refused.code(), Code::OutOfRange | Code::Unknown | Code::Cancelled | Code::Internal),
        "{refused}"
    );
    other.is_served().await;
    let grown = resident(&pair.writer) - before;
    assert!(grown < 32.0, "{grown} MiB more than before");
}

/// A twentieth of a million, so that it takes seconds; what grew with their number would show.
#[tokio::test(flavor = "multi_thread")]
async fn fifty_thousand_tiny_requests_leave_nothing_behind() {
    let pair = Pair::start();
    let mut other = Other::connect(&pair.writer).await;
    let total = 50_000;
    let mut grown = 0.0_f64;
    let before = resident(&pair.writer);
    let (sender, receiver) = tokio::sync::mpsc::channel(256);
    let sending = tokio::spawn(async move {
        // Each is refused for its sender: what a request costs, and nothing of Redis.
        for request_id in 0..total {
            let tiny = v1::AppendStreamRequest { request_id, append: None };
            sender.send(tiny).await.unwrap();
        }
    });
    let mut client = other.client.clone();
    let mut answers = client.append_stream(ReceiverStream::new(receiver)).await.unwrap().into_inner();
    let mut answered = 0;
    while let Some(answer) = answers.next().await {
        answer.unwrap();
        answered += 1;
        if answered % 10_000 == 0 {
            other.is_served().await;
            grown = grown.max(resident(&pair.writer) - before);
        }
    }
    sending.await.unwrap();
    assert_eq!(answered, total);
    assert!(grown < 32.0, "{grown} MiB more than before");
    eventually(PATIENCE, "all is given back", || count(&pair.writer, "qim_request_memory_bytes") == 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_taken_back_at_once_end_their_connection_and_bother_nobody() {
    let pair = Pair::start();
    let mut other = Other::connect(&pair.writer).await;
    let before = resident(&pair.writer);
    let (mut connections, mut told_to_calm_down) = (0, 0);
    let mut sent = 0;
    while sent < 20_000 {
        let mut hostile = Hostile::connect(&pair.writer, 65_535).await;
        connections += 1;
        for _ in 0..2_000 {
            let request = append("reset", vec![message(&sent.to_string())]);
            let Ok((_response, mut body)) = hostile.begin("Append").await else { break };
            let _ = body.send_data(framed(&request), true);
            body.send_reset(Reason::CANCEL);
            sent += 1;
        }
        other.is_served().await;
        if let Err(error) = hostile.end().await {
            told_to_calm_down += u32::from(error.reason() == Some(Reason::ENHANCE_YOUR_CALM));
        }
    }
    assert!(told_to_calm_down > 0, "{connections} connections");
    let grown = resident(&pair.writer) - before;
    assert!(grown < 64.0, "{grown} MiB more than before");
    eventually(PATIENCE, "all is given back", || count(&pair.writer, "qim_request_memory_bytes") == 0);
    other.is_served().await;
}

/// Two hundred requests of about 300 KB at once on 16 MiB: more than there is room for.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_large_requests_waits_for_room_and_loses_none() {
    let pair = with_little_memory();
    let mut other = Other::connect(&pair.writer).await;
    let total = 200;
    let requests = futures::stream::iter((0..total).map(|request_id| {
        let one =
            |i: u64| v1::Message { payload: vec![7; 3_000].into(), ..message(&format!("{request_id}-{i}")) };
        let append = append(&format!("c{}", request_id % 10), (0..100).map(one).collect());
        v1::AppendStreamRequest { request_id, append: Some(append) }
    }));
    let mut answers = other.client.append_stream(requests).await.unwrap().into_inner();
    let mut committed = 0;
    while let Some(answer) = answers.next().await {
        let outcome = answer.unwrap().outcome.unwrap();
        assert!(matches!(outcome, v1::append_stream_response::Outcome::Committed(_)), "{outcome:?}");
        committed += 1;
    }
    assert_eq!(committed, total);
    assert_eq!(count(&pair.writer, "qim_requests_refused_total"), 0);
    other.is_served().await;
}
