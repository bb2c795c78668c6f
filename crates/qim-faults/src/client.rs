//! The clients: they send what the load says, send again what was not answered, read pages, and write everything down.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use qim_proto::v1;
use qim_proto::v1::history_client::HistoryClient;
use qim_proto::v1::imported::Outcome as Imported;
use qim_proto::v1::pull_request::Position;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crate::ledger::{
    Attempt, Body, Dates, Ledger, Oddity, Outcome, Read, Seen, Sent, client_msg_id, number_of, payload,
};
use crate::load::{Act, Class, Message, Request};

const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// Longer than the daemons' own deadlines, so that most answers come.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(2_500);
/// Before what was not answered is sent again.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
const SENDER: &str = "alice";

/// What all clients of a run share.
#[derive(Clone)]
pub(crate) struct Clients {
    writers: Vec<HistoryClient<Channel>>,
    tenant: String,
    ledger: Arc<Mutex<Ledger>>,
}

/// What was sent together, and is sent together again.
#[derive(Debug, Clone)]
pub(crate) struct Batch {
    pub(crate) conversation: usize,
    pub(crate) imported_as: Option<i64>,
    pub(crate) messages: Vec<Message>,
}

impl Clients {
    /// Of these writers. Connects when it has to.
    pub(crate) fn new(writers: &[String], tenant: String) -> anyhow::Result<Self> {
        let connect = |url: &String| {
            let endpoint = Endpoint::from_shared(url.clone())?;
            let endpoint = endpoint.connect_timeout(CONNECT_TIMEOUT).timeout(REQUEST_TIMEOUT);
            Ok(HistoryClient::new(endpoint.connect_lazy()))
        };
        let writers = writers.iter().map(connect).collect::<anyhow::Result<_>>()?;
        Ok(Self { writers, tenant, ledger: Arc::default() })
    }

    pub(crate) fn writers(&self) -> usize {
        self.writers.len()
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what one client has to, until it is done or the load ends.
    pub(crate) async fn work(&self, client: usize, requests: &[Request], end: tokio::time::Instant) {
        let mut batches: Vec<Batch> = Vec::new();
        for (step, Request { pause_ms, act }) in requests.iter().enumerate() {
            tokio::time::sleep(Duration::from_millis(*pause_ms)).await;
            if tokio::time::Instant::now() > end {
                return;
            }
            let writer = (client + step) % self.writers.len();
            match act {
                Act::Send { conversation, age_ms, messages } => {
                    let imported_as = age_ms.map(|age| now_ms() - i64::try_from(age).expect("an age"));
                    let batch =
                        Batch { conversation: *conversation, imported_as, messages: messages.clone() };
                    batches.push(batch.clone());
                    if !self.send(writer, &batch, Body::Own).await {
                        tokio::time::sleep(RETRY_PAUSE).await;
                        self.send((writer + 1) % self.writers.len(), &batch, Body::Own).await;
                    }
                }
                Act::Resend { back } => {
                    if let Some(batch) = batches.iter().rev().nth(*back) {
                        self.send(writer, batch, Body::Own).await;
                    }
                }
                Act::Conflict { back } => {
                    let batch = batches.iter().rev().nth(*back);
                    if let Some(batch) = batch.and_then(|batch| self.acknowledged_part(batch)) {
                        self.send(writer, &batch, Body::Other).await;
                    }
                }
                Act::Read { conversation, forwards: true, limit } => {
                    let _ = self.read_forwards(writer, *conversation, *limit, false).await;
                }
                Act::Read { conversation, forwards: false, limit } => {
                    let _ = self.read_backwards(writer, *conversation, *limit, false).await;
                }
                Act::Describe { conversation } => {
                    let _ = self.describe(writer, *conversation).await;
                }
            }
        }
    }

    /// Its first message, where that is known to be committed.
    fn acknowledged_part(&self, batch: &Batch) -> Option<Batch> {
        let first = batch.messages.first()?;
        self.ledger().messages.get(&first.number)?.acknowledged().next()?;
        Some(Batch { messages: vec![*first], ..batch.clone() })
    }

    /// Sends all of it in one request; whether it was answered.
    pub(crate) async fn send(&self, writer: usize, batch: &Batch, body: Body) -> bool {
        let messages = batch.messages.iter().map(|message| self.to_send(batch, *message, body)).collect();
        let (tenant, conversation) = (self.tenant.clone(), conversation(batch.conversation));
        let mut client = self.writers[writer].clone();
        let sent_ms = now_ms();
        self.note_sending(batch);
        let outcomes = if batch.imported_as.is_some() {
            let request = v1::ImportRequest { tenant, conversation, messages };
            client
                .import(request)
                .await
                .map(|answer| answer.into_inner().results.iter().map(|result| imported(*result)).collect())
        } else {
            let request = v1::AppendRequest { tenant, conversation, messages };
            client.append(request).await.map(|answer| {
                answer.into_inner().results.iter().map(|result| appended(*result)).collect::<Vec<_>>()
            })
        };
        let done_ms = now_ms();
        let answered = outcomes.is_ok();
        let outcomes = outcomes.unwrap_or_else(|status| {
            if status.code() == Code::DataLoss {
                self.note_oddity(batch.conversation, &status);
            }
            vec![refused(&status); batch.messages.len()]
        });
        let mut ledger = self.ledger();
        for (message, outcome) in batch.messages.iter().zip(outcomes) {
            let sent = ledger.messages.get_mut(&message.number).expect("it was noted before it was sent");
            sent.attempts.push(Attempt { sent_ms, done_ms, body, outcome });
        }
        answered
    }

    /// Somebody may read it before it is answered.
    fn note_sending(&self, batch: &Batch) {
        let mut ledger = self.ledger();
        for message in &batch.messages {
            ledger.messages.entry(message.number).or_insert_with(|| Sent {
                conversation: batch.conversation,
                class: message.class,
                bytes: message.bytes,
                imported_as: batch.imported_as,
                attempts: Vec::new(),
            });
        }
    }

    fn to_send(&self, batch: &Batch, message: Message, body: Body) -> v1::Message {
        let Message { number, class, bytes } = message;
        let first_sent =
            self.ledger().messages.get(&number).and_then(|sent| sent.attempts.first()).map(|a| a.sent_ms);
        let class = match class {
            Class::Ephemeral => v1::RetentionClass::Ephemeral24h,
            Class::Default => v1::RetentionClass::Default,
            Class::Hold => v1::RetentionClass::ComplianceHold,
        };
        v1::Message {
            sender: SENDER.to_owned(),
            client_msg_id: client_msg_id(number),
            retention_class: class.into(),
            content_type: String::new(),
            payload: payload(number, bytes, body).into(),
            first_sent_at_ms: first_sent,
            created_at_ms: batch.imported_as,
        }
    }

    /// Sends once more what nobody knows the outcome of; how much of it still has none.
    pub(crate) async fn settle_unknown(&self, writer: usize) -> usize {
        let mut unknown: BTreeMap<(usize, Option<i64>), Vec<Message>> = BTreeMap::new();
        for (number, sent) in self.ledger().messages.iter().filter(|(_, sent)| sent.is_unknown()) {
            let message = Message { number: *number, class: sent.class, bytes: sent.bytes };
            unknown.entry((sent.conversation, sent.imported_as)).or_default().push(message);
        }
        let mut left = 0;
        for ((conversation, imported_as), messages) in unknown {
            let batch = Batch { conversation, imported_as, messages };
            left += usize::from(!self.send(writer, &batch, Body::Own).await);
        }
        left
    }

    /// All of a conversation, page by page.
    pub(crate) async fn read_forwards(
        &self,
        writer: usize,
        conversation: usize,
        limit: u32,
        is_final: bool,
    ) -> Result<(), Status> {
        self.read_pages(writer, conversation, (0, Position::AfterSeq), limit, is_final).await
    }

    /// The same from its end.
    pub(crate) async fn read_backwards(
        &self,
        writer: usize,
        conversation: usize,
        limit: u32,
        is_final: bool,
    ) -> Result<(), Status> {
        self.read_pages(writer, conversation, (u64::MAX, Position::BeforeSeq), limit, is_final).await
    }

    async fn read_pages(
        &self,
        writer: usize,
        conversation: usize,
        (mut from, position): (u64, fn(u64) -> Position),
        limit: u32,
        is_final: bool,
    ) -> Result<(), Status> {
        loop {
            let page = self.pull(writer, conversation, position(from), limit, is_final).await?;
            if !page.has_more {
                return Ok(());
            }
            from = page.next_seq;
        }
    }

    async fn pull(
        &self,
        writer: usize,
        number: usize,
        position: Position,
        limit: u32,
        is_final: bool,
    ) -> Result<v1::PullResponse, Status> {
        let request = v1::PullRequest {
            tenant: self.tenant.clone(),
            conversation: conversation(number),
            position: Some(position),
            limit,
            ..v1::PullRequest::default()
        };
        let sent_ms = now_ms();
        let answer = self.writers[writer].clone().pull(request).await;
        let done_ms = now_ms();
        let page = answer.map(tonic::Response::into_inner).inspect_err(|status| {
            if matches!(status.code(), Code::DataLoss | Code::OutOfRange) {
                self.note_oddity(number, status);
            }
        })?;
        let (from, below) = covered(position, &page);
        let mut ledger = self.ledger();
        let records = page.records.iter().map(|record| seen(&ledger, record)).collect();
        ledger.reads.push(Read {
            conversation: number,
            sent_ms,
            done_ms,
            from,
            below,
            earliest: page.earliest_available_conversation_seq,
            last: page.last_conversation_seq,
            archive_unavailable: page.archive_unavailable,
            records,
            gaps: page.gaps.iter().map(|gap| (gap.from, gap.to)).collect(),
            is_final,
        });
        Ok(page)
    }

    pub(crate) async fn describe(
        &self,
        writer: usize,
        number: usize,
    ) -> Result<v1::DescribeResponse, Status> {
        let request = v1::DescribeRequest { tenant: self.tenant.clone(), conversation: conversation(number) };
        Ok(self.writers[writer].clone().describe(request).await?.into_inner())
    }

    fn note_oddity(&self, conversation: usize, status: &Status) {
        let said = format!("{:?}: {}", status.code(), status.message());
        self.ledger().oddities.push(Oddity { at_ms: now_ms(), conversation, said });
    }
}

/// By the clock of this machine.
pub(crate) fn now_ms() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(since_epoch.as_millis()).expect("before the year 292 million")
}

fn conversation(number: usize) -> String {
    format!("c{number}")
}

fn appended(result: v1::Committed) -> Outcome {
    let created = result.created_at_ms;
    let dates = created.map(|created_ms| Dates { created_ms, expires_ms: result.expires_at_ms });
    Outcome::Acknowledged { seq: result.seq, dates }
}

fn imported(result: v1::Imported) -> Outcome {
    if result.outcome() == Imported::Expired {
        return Outcome::Expired;
    }
    Outcome::Acknowledged { seq: result.seq, dates: None }
}

fn refused(status: &Status) -> Outcome {
    let said = format!("{:?}: {}", status.code(), status.message());
    match status.code() {
        Code::AlreadyExists => Outcome::AlreadyExists,
        Code::ResourceExhausted | Code::InvalidArgument => Outcome::Refused(said),
        _ => Outcome::Unknown(said),
    }
}

/// What a page says everything about: the first seq, and the one behind the last.
fn covered(position: Position, page: &v1::PullResponse) -> (u64, u64) {
    match position {
        Position::BeforeSeq(before) => {
            (if page.has_more { page.next_seq } else { 1 }, before.min(page.last_conversation_seq + 1))
        }
        Position::AfterSeq(after) => {
            (after + 1, 1 + if page.has_more { page.next_seq } else { page.last_conversation_seq })
        }
        Position::FromTimeMs(_) => unreachable!("nobody asks for that"),
    }
}

fn seen(ledger: &Ledger, record: &v1::Record) -> Seen {
    let number = number_of(&record.client_msg_id).filter(|_| record.sender == SENDER);
    let sent = number.and_then(|number| Some((number, ledger.messages.get(&number)?)));
    let body = sent.and_then(|(number, sent)| {
        let is = |body: &Body| payload(number, sent.bytes, *body) == record.payload;
        [Body::Own, Body::Other].into_iter().find(is)
    });
    let dates = Dates { created_ms: record.created_at_ms, expires_ms: record.expires_at_ms };
    Seen { seq: record.seq, number, body, dates }
}
