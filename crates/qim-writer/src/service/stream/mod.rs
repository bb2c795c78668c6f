//! `AppendStream` and `ImportStream`: many requests under way at once, those of one conversation in their order.

mod kinds;

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::pin::pin;
use std::sync::Arc;

use futures::future::Either;
use futures::stream::FuturesUnordered;
use futures::{Stream, StreamExt};
use qim_proto::v1;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};
use tonic_types::StatusExt;

use super::{Caller, History};
use crate::transport::{Account, Charge, malformed};

pub(super) use kinds::StreamRequest;

/// Requests of one stream under way; with so many the stream is not read further.
const IN_FLIGHT_MAX: usize = 256;
/// A request with so many messages is a task of its own, so that all cores work for one stream. For fewer, a task costs
/// more than it brings.
const TASK_MESSAGES_MIN: usize = 4;
/// Answers waiting for a client that does not read them.
const ANSWERS_MAX: usize = 64;

/// What a request takes beside its messages, in bytes: its place in queues, its answer.
const REQUEST_BYTES: usize = 2 * 1024;

/// Stands for the conversation of a request as the client named it, valid or not. Two that share one only wait for each
/// other.
type Lane = u64;

/// When a request may begin.
struct Turn {
    /// Tells that the one before it in its lane is done.
    before: Option<oneshot::Receiver<()>>,
    /// For the one after it.
    done: oneshot::Sender<()>,
    lane: Lane,
    ticket: u64,
}

struct Done<R: StreamRequest> {
    lane: Lane,
    ticket: u64,
    answer: Answer<R>,
}

/// An answer, and what is accounted for until its client takes it.
type Answer<R> = (<R as StreamRequest>::Response, Option<Charge>);

/// Reads requests as long as there is room, and answers each once.
pub(super) fn answers<R: StreamRequest>(
    history: History,
    caller: Caller,
    account: Arc<Account>,
    requests: Streaming<R>,
) -> impl Stream<Item = Result<R::Response, Status>> + Send + 'static {
    let (answers, receiver) = mpsc::channel(ANSWERS_MAX);
    tokio::spawn(async move {
        if let Err(status) = serve(history, caller, &account, requests, &answers).await {
            // The client may be gone; then nobody is there to be told.
            let _ = answers.send(Err(status)).await;
        }
    });
    ReceiverStream::new(receiver).map(|answer| answer.map(|(answer, _held)| answer))
}

async fn serve<R: StreamRequest>(
    history: History,
    caller: Caller,
    account: &Arc<Account>,
    mut requests: Streaming<R>,
    answers: &mpsc::Sender<Result<Answer<R>, Status>>,
) -> Result<(), Status> {
    let history = Arc::new(history);
    let mut under_way = FuturesUnordered::new();
    // For each conversation, the latest request and what tells that it is done.
    let mut lanes: HashMap<Lane, (u64, oneshot::Receiver<()>)> = HashMap::new();
    let (mut ticket, mut open, mut ends_with) = (0, true, Ok(()));
    // The next to begin, once there is room for it; none is read after it meanwhile.
    let mut next: Option<R> = None;
    let mut draining = pin!(history.draining.cancelled());
    while open || !under_way.is_empty() {
        tokio::select! {
            // What was accepted is finished and answered; the client sends the rest to another writer.
            () = &mut draining, if open => open = false,
            request = requests.next(), if open && next.is_none() && under_way.len() < IN_FLIGHT_MAX => match request {
                None => open = false,
                Some(Ok(request)) => next = Some(request),
                Some(Err(status)) => (ends_with, open) = (Err(malformed(status)), false),
            },
            Some(Done { lane, ticket: done, answer }) = under_way.next() => {
                if lanes.get(&lane).is_some_and(|(latest, _)| *latest == done) {
                    lanes.remove(&lane);
                }
                if answers.send(Ok(answer)).await.is_err() {
                    return Ok(());
                }
            }
        }
        let Some(request) = next.take() else { continue };
        let bytes = REQUEST_BYTES + request.encoded_len();
        let held = match account.try_charge(bytes) {
            Some(held) => Ok(held),
            // Those of this stream give theirs back soon; where there are none it is refused.
            None if !under_way.is_empty() => {
                next = Some(request);
                continue;
            }
            None => account.charge(bytes),
        };
        ticket += 1;
        let lane = lane(&request, lanes.hasher());
        let is_large = request.batch().is_some_and(|batch| batch.messages >= TASK_MESSAGES_MIN);
        let (done, wait) = oneshot::channel();
        let before = lanes.insert(lane, (ticket, wait)).map(|(_, wait)| wait);
        let turn = Turn { before, done, lane, ticket };
        let done = answered(history.clone(), caller.clone(), request, held, turn);
        under_way.push(if is_large { Either::Left(task(done)) } else { Either::Right(done) });
    }
    ends_with
}

fn lane(request: &impl StreamRequest, hasher: &impl BuildHasher) -> Lane {
    hasher.hash_one(request.batch().map(|batch| (batch.tenant, batch.conversation)))
}

async fn answered<R: StreamRequest>(
    history: Arc<History>,
    caller: Caller,
    request: R,
    held: Result<Charge, Status>,
    turn: Turn,
) -> Done<R> {
    let Turn { before, done, lane, ticket } = turn;
    if let Some(before) = before {
        // An error means that the one before is gone, and so is done.
        let _ = before.await;
    }
    let request_id = request.id();
    let admitted = held.and_then(|held| Ok((held, caller.asked_again(R::RIGHT)?)));
    let (held, outcome) = match admitted {
        Ok((held, caller)) => (Some(held), request.carry_out(&history, &caller).await),
        Err(status) => (None, Err(status)),
    };
    let _ = done.send(());
    let response = R::response(request_id, outcome.map_err(|status| stream_error(&status)));
    Done { lane, ticket, answer: (response, held) }
}

async fn task<R: StreamRequest>(answered: impl Future<Output = Done<R>> + Send + 'static) -> Done<R> {
    // Where the stream ends first, what it began goes on; its answers are nobody's.
    let done = tokio::spawn(answered).await;
    done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

fn stream_error(status: &Status) -> v1::StreamError {
    let details = status.get_error_details();
    let after = details.retry_info().and_then(|retry| retry.retry_delay);
    let fields =
        details.bad_request().map(|bad| bad.field_violations.iter().map(|fault| fault.field.clone()));
    v1::StreamError {
        code: status.code().into(),
        message: status.message().to_owned(),
        retry_after_ms: after.map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX)),
        fields: fields.map(Iterator::collect).unwrap_or_default(),
        status_details: status.details().to_vec().into(),
    }
}
