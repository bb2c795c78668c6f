//! The thin server: tonic and one call of the raw script for each request, nothing else. A process of its own, so that
//! its CPU time is not the client's.

use std::net::SocketAddr;
use std::pin::Pin;

use clap::Args;
use futures::{Stream, StreamExt};
use qim_proto::v1;
use qim_proto::v1::append_stream_response::Outcome;
use qim_proto::v1::history_server::{History, HistoryServer};
use tonic::{Request, Response, Status, Streaming};

use super::redis::{RawRedis, now_ms};
use crate::servers::redis::connect;

/// As many as the writer has under way.
const STREAM_IN_FLIGHT: usize = 256;

/// Serves the raw script over gRPC
#[derive(Debug, Clone, Args)]
pub(crate) struct ThinServerArgs {
    #[arg(long)]
    redis: String,
    #[arg(long)]
    listen: SocketAddr,
}

/// Until it is killed.
pub(crate) async fn serve(args: ThinServerArgs) -> anyhow::Result<()> {
    let store = RawRedis::new(connect(&args.redis).await?);
    let server = tonic::transport::Server::builder().tcp_nodelay(true);
    Ok({ server }.add_service(HistoryServer::new(ThinServer { store })).serve(args.listen).await?)
}

struct ThinServer {
    store: RawRedis,
}

async fn append(store: &RawRedis, request: v1::AppendRequest) -> Result<v1::AppendResponse, Status> {
    let created = now_ms();
    let encode = |message: v1::Message| {
        let mut record = Vec::with_capacity(64 + message.sender.len() + message.payload.len());
        record.extend_from_slice(&created.to_be_bytes());
        record.extend_from_slice(message.sender.as_bytes());
        record.extend_from_slice(message.client_msg_id.as_bytes());
        record.extend_from_slice(&message.payload);
        (message.client_msg_id.into_bytes(), record)
    };
    let records: Vec<_> = request.messages.into_iter().map(encode).collect();
    let first = store.commit_encoded(&request.conversation, &records).await;
    let first = first.map_err(|error| Status::internal(error.to_string()))?;
    let seqs = u64::try_from(first).unwrap_or_default()..;
    let committed = |seq| v1::Committed {
        seq,
        duplicate: false,
        created_at_ms: i64::try_from(created).ok(),
        expires_at_ms: i64::try_from(created).ok(),
    };
    Ok(v1::AppendResponse { results: seqs.take(records.len()).map(committed).collect() })
}

#[tonic::async_trait]
impl History for ThinServer {
    type AppendStreamStream = Pin<Box<dyn Stream<Item = Result<v1::AppendStreamResponse, Status>> + Send>>;
    type ImportStreamStream = futures::stream::Empty<Result<v1::ImportStreamResponse, Status>>;

    async fn append(
        &self,
        request: Request<v1::AppendRequest>,
    ) -> Result<Response<v1::AppendResponse>, Status> {
        append(&self.store, request.into_inner()).await.map(Response::new)
    }

    async fn append_stream(
        &self,
        requests: Request<Streaming<v1::AppendStreamRequest>>,
    ) -> Result<Response<Self::AppendStreamStream>, Status> {
        let store = self.store.clone();
        let answers = requests.into_inner().map(move |request| {
            let store = store.clone();
            async move {
                let v1::AppendStreamRequest { request_id, append: request } = request?;
                let committed = append(&store, request.unwrap_or_default()).await?;
                Ok(v1::AppendStreamResponse { request_id, outcome: Some(Outcome::Committed(committed)) })
            }
        });
        Ok(Response::new(Box::pin(answers.buffer_unordered(STREAM_IN_FLIGHT))))
    }

    async fn pull(&self, _: Request<v1::PullRequest>) -> Result<Response<v1::PullResponse>, Status> {
        Err(Status::unimplemented("commits only"))
    }

    async fn import(&self, _: Request<v1::ImportRequest>) -> Result<Response<v1::ImportResponse>, Status> {
        Err(Status::unimplemented("commits only"))
    }

    async fn import_stream(
        &self,
        _: Request<Streaming<v1::ImportStreamRequest>>,
    ) -> Result<Response<Self::ImportStreamStream>, Status> {
        Err(Status::unimplemented("commits only"))
    }

    async fn describe(
        &self,
        _: Request<v1::DescribeRequest>,
    ) -> Result<Response<v1::DescribeResponse>, Status> {
        Err(Status::unimplemented("commits only"))
    }
}
