use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::{LocalBoxFuture, Shared};
use qim_proto::v1;
use qim_proto::v1::import_stream_response::Outcome;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::client::History;
use crate::grpc::{self, Fate};
use crate::link::ANSWER_TIMEOUT;

/// Requests that wait for the transport to take them. It has as many bytes on their way as the server's windows let it.
const QUEUE: usize = 4;
/// So many streams may be closed before a request is answered: more than a fleet that ends one by one closes at a time.
const REOPENED_MAX: usize = 4;

/// `ImportStream` in the place of `Import`: opened by the first request, and again by the first after its end. The
/// requests on it are answered one by one, as calls are. With a server that does not have it they are calls.
#[derive(Default)]
pub(crate) struct ImportStream {
    /// The one that is used now, from the moment at which somebody begins to open it.
    current: RefCell<Option<Opening>>,
    /// Counts the streams, so that whoever saw one end lets go of no other.
    opened: Cell<u64>,
    next_id: Cell<u64>,
    is_unknown_to_the_server: Cell<bool>,
}

/// A stream and its number. Those who wait while it is opened all get what comes of it.
#[derive(Clone)]
struct Opening {
    number: u64,
    stream: Shared<LocalBoxFuture<'static, Result<Open, Status>>>,
}

#[derive(Clone)]
struct Open {
    requests: mpsc::Sender<v1::ImportStreamRequest>,
    waiting: Arc<Waiting>,
}

/// Why a request has no answer of its own.
#[derive(Debug, Clone)]
enum End {
    /// The server took no more requests, and answered those it took.
    Closed,
    Failed(Status),
}

type Answer = Result<v1::ImportResponse, Status>;

/// Those who wait for an answer, by the id of their request.
#[derive(Debug, Default)]
struct Waiting(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    answers: HashMap<u64, oneshot::Sender<Result<Answer, End>>>,
    /// Set at the end of the stream: nobody waits from then on.
    end: Option<End>,
}

impl ImportStream {
    /// What `Import` would answer. `request` makes the request as often as it is sent; where it is called, the call is
    /// `attempt` with it.
    pub(crate) async fn import(
        &self,
        mut client: History,
        attempt: Request<()>,
        request: impl Fn() -> v1::ImportRequest,
    ) -> Result<Response<v1::ImportResponse>, Status> {
        if self.is_unknown_to_the_server.get() {
            return client.import(attempt.map(|()| request())).await;
        }
        let mut outcome = self.exchange(&client, request()).await;
        for _ in 0..REOPENED_MAX {
            // A server that is about to end closes its streams in peace: another one, or the next, takes what is left.
            if matches!(outcome, Err(End::Closed)) {
                outcome = self.exchange(&client, request()).await;
            }
        }
        match outcome {
            Ok(answer) => answer.map(Response::new),
            Err(End::Closed) => Err(Status::unavailable("the server closes the stream")),
            Err(End::Failed(status)) if status.code() == Code::Unimplemented => {
                self.is_unknown_to_the_server.set(true);
                client.import(attempt.map(|()| request())).await
            }
            Err(End::Failed(status)) => match grpc::fate(&status) {
                Fate::Retry(_) | Fate::Hopeless => Err(status),
                // It does not say which of its requests is at fault; a call does.
                Fate::Doubt | Fate::Refused => client.import(attempt.map(|()| request())).await,
            },
        }
    }

    /// Sends the request on the stream that is open, or is opened for it, and waits for its answer.
    async fn exchange(&self, client: &History, request: v1::ImportRequest) -> Result<Answer, End> {
        let Opening { number, stream } = self.opening(client);
        let request_id = self.next_id.replace(self.next_id.get() + 1);
        let import = v1::ImportStreamRequest { request_id, import: Some(request) };
        let exchange = async { stream.await.map_err(End::Failed)?.exchange(import).await };
        let answer = timeout(ANSWER_TIMEOUT, exchange).await.unwrap_or_else(|_| {
            Err(End::Failed(Status::deadline_exceeded("the server does not answer in time")))
        });
        if answer.is_err() {
            self.let_go_of(number);
        }
        answer
    }

    fn opening(&self, client: &History) -> Opening {
        let mut current = self.current.borrow_mut();
        let opening = current.get_or_insert_with(|| {
            self.opened.set(self.opened.get() + 1);
            let stream = open(client.clone()).boxed_local().shared();
            Opening { number: self.opened.get(), stream }
        });
        opening.clone()
    }

    fn let_go_of(&self, number: u64) {
        self.current.borrow_mut().take_if(|opening| opening.number == number);
    }
}

async fn open(mut client: History) -> Result<Open, Status> {
    let (requests, receiver) = mpsc::channel(QUEUE);
    let answers = client.import_stream(ReceiverStream::new(receiver)).await?.into_inner();
    let waiting: Arc<Waiting> = Arc::default();
    tokio::spawn(take_answers(answers, waiting.clone()));
    Ok(Open { requests, waiting })
}

impl Open {
    async fn exchange(self, request: v1::ImportStreamRequest) -> Result<Answer, End> {
        let answer = self.waiting.enter(request.request_id)?;
        // An error means that the stream has ended, which the other side of `answer` learns.
        let _ = self.requests.send(request).await;
        answer.await.unwrap_or(Err(End::Closed))
    }
}

/// To the end of the stream.
async fn take_answers(mut answers: Streaming<v1::ImportStreamResponse>, waiting: Arc<Waiting>) {
    let end = loop {
        match answers.message().await {
            Ok(Some(v1::ImportStreamResponse { request_id, outcome })) => {
                let answer = match outcome {
                    Some(Outcome::Imported(response)) => Ok(response),
                    Some(Outcome::Error(error)) => Err(grpc::status_in_stream(error)),
                    None => Err(Status::unknown("the server answered an unknown outcome")),
                };
                waiting.answer(request_id, answer);
            }
            Ok(None) => break End::Closed,
            Err(status) => break End::Failed(status),
        }
    };
    waiting.end(end);
}

impl Waiting {
    fn enter(&self, request_id: u64) -> Result<oneshot::Receiver<Result<Answer, End>>, End> {
        let mut state = self.state();
        if let Some(end) = &state.end {
            return Err(end.clone());
        }
        let (sender, receiver) = oneshot::channel();
        state.answers.insert(request_id, sender);
        Ok(receiver)
    }

    fn answer(&self, request_id: u64, answer: Answer) {
        // Where nobody waits any more it came too late, and the request goes again.
        if let Some(sender) = self.state().answers.remove(&request_id) {
            let _ = sender.send(Ok(answer));
        }
    }

    fn end(&self, end: End) {
        let mut state = self.state();
        for (_, sender) in state.answers.drain() {
            let _ = sender.send(Err(end.clone()));
        }
        state.end = Some(end);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
