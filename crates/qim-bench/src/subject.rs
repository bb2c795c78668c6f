//! qim itself, and the thin server: whatever speaks its API.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use async_trait::async_trait;
use qim_proto::v1;
use qim_proto::v1::append_stream_response::Outcome;
use qim_proto::v1::history_client::HistoryClient;
use qim_proto::v1::pull_request::Position;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};

use crate::corpus::Batch;
use crate::load::{Commits, Pages};

/// More than are ever in flight, so that sending never waits here.
const STREAM_QUEUE: usize = 256;

/// One connection.
#[derive(Clone)]
pub(crate) struct Unary {
    client: HistoryClient<Channel>,
}

/// A reader that takes payloads as zstd frames, and does not open them.
pub(crate) struct Frames(pub(crate) Unary);

/// One `AppendStream`.
pub(crate) struct AppendStream {
    requests: mpsc::Sender<v1::AppendStreamRequest>,
    next_id: AtomicU64,
    waiting: Arc<Waiting>,
}

type Waiting = Mutex<HashMap<u64, oneshot::Sender<Outcome>>>;

impl Unary {
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        let channel = Endpoint::new(url.to_owned())?.tcp_nodelay(true).connect().await?;
        Ok(Self { client: HistoryClient::new(channel) })
    }

    /// Commits messages dated then.
    pub(crate) async fn import(
        &self,
        batch: Batch,
        created_at_ms: i64,
        class: v1::RetentionClass,
    ) -> Result<()> {
        let mut append = request(batch);
        for message in &mut append.messages {
            message.created_at_ms = Some(created_at_ms);
            message.retention_class = class.into();
        }
        let conversation = append.conversation;
        let request = v1::ImportRequest { tenant: String::new(), conversation, messages: append.messages };
        let results = self.client.clone().import(request).await?.into_inner().results;
        let committed = |result: &v1::Imported| result.outcome() == v1::imported::Outcome::Committed;
        ensure!(results.iter().all(committed), "not committed, expired meanwhile");
        Ok(())
    }
}

impl AppendStream {
    pub(crate) async fn open(mut unary: Unary) -> Result<Self> {
        let (requests, receiver) = mpsc::channel(STREAM_QUEUE);
        let mut answers = unary.client.append_stream(ReceiverStream::new(receiver)).await?.into_inner();
        let waiting: Arc<Waiting> = Arc::default();
        let answered = waiting.clone();
        tokio::spawn(async move {
            while let Some(Ok(answer)) = answers.next().await {
                let sender = lock(&answered).remove(&answer.request_id);
                if let (Some(sender), Some(outcome)) = (sender, answer.outcome) {
                    let _ = sender.send(outcome);
                }
            }
            // Whoever still waits learns that the stream has ended.
            lock(&answered).clear();
        });
        Ok(Self { requests, next_id: AtomicU64::new(1), waiting })
    }
}

fn lock(waiting: &Waiting) -> std::sync::MutexGuard<'_, HashMap<u64, oneshot::Sender<Outcome>>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

fn request(batch: Batch) -> v1::AppendRequest {
    let message = |message: crate::corpus::Message| v1::Message {
        sender: message.sender.to_string(),
        client_msg_id: format!("{:032x}", message.id),
        payload: message.payload,
        ..v1::Message::default()
    };
    v1::AppendRequest {
        tenant: String::new(),
        conversation: batch.conversation.to_string(),
        messages: batch.messages.into_iter().map(message).collect(),
    }
}

#[async_trait]
impl Commits for Unary {
    async fn commit(&self, batch: Batch) -> Result<()> {
        let count = batch.messages.len();
        let answer = self.client.clone().append(request(batch)).await?.into_inner();
        ensure!(answer.results.len() == count, "{} results", answer.results.len());
        Ok(())
    }
}

#[async_trait]
impl Commits for AppendStream {
    async fn commit(&self, batch: Batch) -> Result<()> {
        let request_id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        lock(&self.waiting).insert(request_id, sender);
        let append = Some(request(batch));
        self.requests
            .send(v1::AppendStreamRequest { request_id, append })
            .await
            .context("the stream ended")?;
        match receiver.await.context("the stream ended")? {
            Outcome::Committed(_) => Ok(()),
            Outcome::Error(error) => bail!("code {}: {}", error.code, error.message),
        }
    }
}

#[async_trait]
impl Pages for Unary {
    async fn newest(&self, conversation: Arc<str>) -> Result<usize> {
        Ok(self.client.clone().pull(newest(&conversation)).await?.into_inner().records.len())
    }
}

#[async_trait]
impl Pages for Frames {
    async fn newest(&self, conversation: Arc<str>) -> Result<usize> {
        let request = v1::PullRequest { accept_zstd: true, ..newest(&conversation) };
        Ok(self.0.client.clone().pull(request).await?.into_inner().records.len())
    }
}

fn newest(conversation: &str) -> v1::PullRequest {
    v1::PullRequest {
        conversation: conversation.to_owned(),
        position: Some(Position::BeforeSeq(u64::MAX)),
        limit: 50,
        ..v1::PullRequest::default()
    }
}
