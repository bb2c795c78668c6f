use qim_access::Right;
use qim_proto::v1;
use tonic::Status;

use super::{Caller, History};

/// A request of a stream: what the streams differ in. All else is the same for each.
pub(in crate::service) trait StreamRequest: prost::Message + Default + 'static {
    /// What each request needs.
    const RIGHT: Right;
    type Results: Send;
    type Response: Send + 'static;

    /// Chosen by the client.
    fn id(&self) -> u64;

    /// What it is about, as the client named it, valid or not; `None` where the request is empty.
    fn batch(&self) -> Option<BatchHead<'_>>;

    /// What the method without a stream does with it. An empty one is refused for what it lacks.
    fn carry_out(
        self,
        history: &History,
        caller: &Caller,
    ) -> impl Future<Output = Result<Self::Results, Status>> + Send;

    fn response(request_id: u64, outcome: Result<Self::Results, v1::StreamError>) -> Self::Response;
}

/// Where a batch belongs, and how large it is.
pub(in crate::service) struct BatchHead<'a> {
    pub(super) tenant: &'a str,
    pub(super) conversation: &'a str,
    pub(super) messages: usize,
}

impl StreamRequest for v1::AppendStreamRequest {
    const RIGHT: Right = Right::Append;
    type Results = v1::AppendResponse;
    type Response = v1::AppendStreamResponse;

    fn id(&self) -> u64 {
        self.request_id
    }

    fn batch(&self) -> Option<BatchHead<'_>> {
        let v1::AppendRequest { tenant, conversation, messages } = self.append.as_ref()?;
        Some(BatchHead { tenant, conversation, messages: messages.len() })
    }

    async fn carry_out(self, history: &History, caller: &Caller) -> Result<v1::AppendResponse, Status> {
        history.append_messages(caller, self.append.unwrap_or_default()).await
    }

    fn response(
        request_id: u64,
        outcome: Result<v1::AppendResponse, v1::StreamError>,
    ) -> v1::AppendStreamResponse {
        use v1::append_stream_response::Outcome;
        let outcome = outcome.map_or_else(Outcome::Error, Outcome::Committed);
        v1::AppendStreamResponse { request_id, outcome: Some(outcome) }
    }
}

impl StreamRequest for v1::ImportStreamRequest {
    const RIGHT: Right = Right::Import;
    type Results = v1::ImportResponse;
    type Response = v1::ImportStreamResponse;

    fn id(&self) -> u64 {
        self.request_id
    }

    fn batch(&self) -> Option<BatchHead<'_>> {
        let v1::ImportRequest { tenant, conversation, messages } = self.import.as_ref()?;
        Some(BatchHead { tenant, conversation, messages: messages.len() })
    }

    async fn carry_out(self, history: &History, caller: &Caller) -> Result<v1::ImportResponse, Status> {
        history.import_messages(caller, self.import.unwrap_or_default()).await
    }

    fn response(
        request_id: u64,
        outcome: Result<v1::ImportResponse, v1::StreamError>,
    ) -> v1::ImportStreamResponse {
        use v1::import_stream_response::Outcome;
        let outcome = outcome.map_or_else(Outcome::Error, Outcome::Imported);
        v1::ImportStreamResponse { request_id, outcome: Some(outcome) }
    }
}
