use std::cell::Cell;
use std::time::Duration;

use tonic::{Request, Response, Status};

use crate::client::{History, ServerUrl};
use crate::failure::Failure;
use crate::grpc::{self, Fate};
use crate::patience::Patience;
use crate::time_args::show_duration;

/// An answer that takes longer than this does not come.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// How often an error that a healthy server does not give is tried again before it is believed.
const DOUBTFUL_TRIES: u32 = 5;

/// The server, behind a connection that may be lost and comes back.
#[derive(Debug)]
pub(crate) struct Link {
    client: History,
    server: ServerUrl,
    patience: Patience,
    /// An outage is told once, not once for each request that waits for its end.
    outage_told: Cell<bool>,
}

impl Link {
    /// Tries for `give_up` without progress.
    pub(crate) fn new(client: History, server: ServerUrl, give_up: Duration) -> Self {
        Self { client, server, patience: Patience::new(give_up), outage_told: Cell::new(false) }
    }

    /// The same server, with another patience.
    pub(crate) fn with_patience(self, give_up: Duration) -> Self {
        Self::new(self.client, self.server, give_up)
    }

    /// Calls until there is an answer. The inner error is an answer too: this request was refused. The outer one ends
    /// the command. `tell` is given what people should know meanwhile.
    pub(crate) async fn call<Req, Res>(
        &self,
        request: &Req,
        method: impl AsyncFn(History, Request<Req>) -> Result<Response<Res>, Status>,
        tell: impl Fn(&str),
    ) -> Result<Result<Res, Status>, Failure>
    where
        Req: Clone,
    {
        let mut attempts = self.patience.attempts();
        loop {
            let mut attempt = Request::new(request.clone());
            attempt.set_timeout(ANSWER_TIMEOUT);
            let status = match method(self.client.clone(), attempt).await {
                Ok(response) => {
                    self.answered(&tell);
                    return Ok(Ok(response.into_inner()));
                }
                Err(status) => status,
            };
            let asked = match grpc::fate(&status) {
                Fate::Retry(asked) => asked,
                Fate::Doubt if attempts.failed() < DOUBTFUL_TRIES => None,
                Fate::Doubt | Fate::Refused => {
                    self.answered(&tell);
                    return Ok(Err(status));
                }
                Fate::Hopeless => return Err(self.refused(&status)),
            };
            let Some(wait) = attempts.next_wait(asked) else { return Err(self.given_up(&status)) };
            if !self.outage_told.replace(true) {
                let bound = show_duration(self.patience.give_up());
                tell(&format!(
                    "{}: {}; trying again for {bound}",
                    self.server.as_str(),
                    grpc::sentence(&status)
                ));
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// A refusal as the end of the command.
    pub(crate) fn refused(&self, status: &Status) -> Failure {
        Failure::Refused(format!("{}: {}", self.server.as_str(), grpc::sentence(status)))
    }

    fn answered(&self, tell: &impl Fn(&str)) {
        self.patience.progress();
        if self.outage_told.replace(false) {
            tell(&format!("{}: answers again", self.server.as_str()));
        }
    }

    fn given_up(&self, status: &Status) -> Failure {
        let cause = format!("{}: {}", self.server.as_str(), grpc::sentence(status));
        let failure = match self.patience.give_up() {
            Duration::ZERO => cause,
            give_up => format!("gave up after {} without progress: {cause}", show_duration(give_up)),
        };
        if self.patience.give_up().is_zero() && !grpc::is_unavailable(status) {
            // Full, not away: nobody asked to wait.
            return Failure::Refused(failure);
        }
        Failure::Unavailable(failure)
    }
}
