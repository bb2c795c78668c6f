//! `qim.v1.History`: what a request means, and what each failure is called.

mod append;
mod convert;
mod import;
mod page;
mod pull;
mod status;
mod stream;
mod validate;

use std::pin::Pin;
use std::sync::Arc;

use futures::Stream;
use prost::Message;
use qim_access::Right;
use qim_core::{ConversationKey, SharedClock, TenantId};
use qim_daemon::WriterConfig;
use qim_proto::encoding_server::history_server::History as HistoryApi;
use qim_proto::{EncodedPullResponse, v1};
use qim_store::TieredMessageStore;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use crate::access::{Access, Caller};
use crate::metrics::{Refusal, WriterMetrics};
use crate::transport::{Charge, STREAM_WINDOW, account_of};

use stream::StreamRequest;

/// The answers of a stream, as they come.
type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The service. Cheap to clone.
#[derive(Clone)]
pub(crate) struct History {
    store: TieredMessageStore,
    payload_bytes_max: usize,
    clock: SharedClock,
    metrics: Arc<WriterMetrics>,
    access: Access,
    /// A conversation that does not exist. Whoever asks for one that they must not know of is answered for this one, so
    /// that the answer is the same in every respect: its content, its errors, and the time it takes.
    nobodys: ConversationKey,
    /// Cancelled when the daemon is to end: streams take no more requests then.
    draining: CancellationToken,
}

impl History {
    pub(crate) fn new(
        store: TieredMessageStore,
        config: &WriterConfig,
        clock: SharedClock,
        metrics: Arc<WriterMetrics>,
        access: Access,
        draining: CancellationToken,
    ) -> Self {
        let name = format!("{:032x}", rand::random::<u128>());
        let nobodys = ConversationKey::new(TenantId::default(), &name).expect("32 digits are an id");
        let payload_bytes_max = config.payload_bytes_max;
        Self { store, payload_bytes_max, clock, metrics, access, nobodys, draining }
    }

    /// The conversation, as far as the caller may know of it.
    fn as_seen_by(&self, caller: &Caller, conversation: ConversationKey) -> ConversationKey {
        if caller.sees(conversation.tenant().as_str()) { conversation } else { self.nobodys.clone() }
    }

    /// Serves the requests of a stream.
    fn stream<R: StreamRequest>(
        &self,
        request: Request<Streaming<R>>,
    ) -> Result<Response<Answers<R::Response>>, Status> {
        let caller = self.access.admit(&request, R::RIGHT)?;
        let account = account_of(request.extensions()).clone();
        // While it waits it is not read, and the transport keeps what has come.
        let unread = account.charge(STREAM_WINDOW as usize)?;
        let answers = stream::answers(self.clone(), caller, account, request.into_inner());
        let mut response: Response<Answers<R::Response>> = Response::new(Box::pin(answers));
        response.extensions_mut().insert(Arc::new(unread));
        Ok(response)
    }

    /// The conversation that a request names.
    fn conversation(tenant: &str, conversation: &str) -> Result<ConversationKey, Status> {
        let mut faults = validate::Faults::default();
        let key = faults.conversation(tenant, conversation);
        faults.into_result()?;
        Ok(key.expect("no fault was found"))
    }
}

/// Accounts for a request that is worked on.
fn held(request: &Request<impl Message>) -> Result<Charge, Status> {
    account_of(request.extensions()).charge(request.get_ref().encoded_len())
}

#[tonic::async_trait]
impl HistoryApi for History {
    type AppendStreamStream = Answers<v1::AppendStreamResponse>;
    type ImportStreamStream = Answers<v1::ImportStreamResponse>;

    async fn append(
        &self,
        request: Request<v1::AppendRequest>,
    ) -> Result<Response<v1::AppendResponse>, Status> {
        let caller = self.access.admit(&request, Right::Append)?;
        let _held = held(&request)?;
        Ok(Response::new(self.append_messages(&caller, request.into_inner()).await?))
    }

    async fn append_stream(
        &self,
        request: Request<Streaming<v1::AppendStreamRequest>>,
    ) -> Result<Response<Self::AppendStreamStream>, Status> {
        self.stream(request)
    }

    async fn pull(&self, request: Request<v1::PullRequest>) -> Result<Response<EncodedPullResponse>, Status> {
        let caller = self.access.admit(&request, Right::Pull)?;
        let account = account_of(request.extensions()).clone();
        let page = self.pull_page(&caller, request.into_inner()).await?;
        // A client may ask for pages and never take them.
        let held = account.charge(page.encoded_len())?;
        let mut response = Response::new(page);
        response.extensions_mut().insert(Arc::new(held));
        Ok(response)
    }

    async fn import(
        &self,
        request: Request<v1::ImportRequest>,
    ) -> Result<Response<v1::ImportResponse>, Status> {
        let caller = self.access.admit(&request, Right::Import)?;
        let _held = held(&request)?;
        Ok(Response::new(self.import_messages(&caller, request.into_inner()).await?))
    }

    async fn import_stream(
        &self,
        request: Request<Streaming<v1::ImportStreamRequest>>,
    ) -> Result<Response<Self::ImportStreamStream>, Status> {
        self.stream(request)
    }

    async fn describe(
        &self,
        request: Request<v1::DescribeRequest>,
    ) -> Result<Response<v1::DescribeResponse>, Status> {
        let caller = self.access.admit(&request, Right::Pull)?;
        Ok(Response::new(self.describe_conversation(&caller, request.into_inner()).await?))
    }
}
