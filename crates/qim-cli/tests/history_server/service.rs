use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use futures::{Stream, StreamExt};
use qim_proto::v1;
use qim_proto::v1::history_server::History;
use qim_proto::v1::import_stream_response::Outcome as StreamOutcome;
use qim_proto::v1::imported::Outcome;
use qim_proto::v1::pull_request::Position;
use tokio_stream::Empty;
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_types::{ErrorDetails, StatusExt};

use super::State;

const DAY_MS: i64 = 86_400_000;

pub(crate) struct Service(pub(crate) Arc<Mutex<State>>);

impl Service {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    async fn import_messages(&self, request: v1::ImportRequest) -> Result<v1::ImportResponse, Status> {
        self.refuse_while_unavailable()?;
        let key = key(&request.tenant, &request.conversation);
        let under_way = UnderWay::begin(&self.0, key.clone());
        let takes = self.state().import_takes;
        tokio::time::sleep(takes).await;
        drop(under_way);
        let mut state = self.state();
        let batch = request.messages.len();
        let mut records = state.conversations.get(&key).cloned().unwrap_or_default();
        let mut results = Vec::new();
        for (index, message) in request.messages.into_iter().enumerate() {
            results.push(import_one(&mut records, index, message)?);
        }
        // All or none: only now.
        state.conversations.insert(key, records);
        state.batches.push(batch);
        take_one(&mut state.lost_answers, "the answer is lost")?;
        Ok(v1::ImportResponse { results })
    }

    fn refuse_while_unavailable(&self) -> Result<(), Status> {
        take_one(&mut self.state().unavailable, "not yet")
    }
}

/// An import of this conversation, until it is done or given up.
struct UnderWay(Arc<Mutex<State>>, (String, String));

impl UnderWay {
    fn begin(state: &Arc<Mutex<State>>, key: (String, String)) -> Self {
        let mut locked = state.lock().unwrap();
        if !locked.under_way.insert(key.clone()) {
            locked.overlapped = true;
        }
        Self(state.clone(), key)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.lock().unwrap().under_way.remove(&self.1);
    }
}

#[tonic::async_trait]
impl History for Service {
    type AppendStreamStream = Empty<Result<v1::AppendStreamResponse, Status>>;
    type ImportStreamStream = Pin<Box<dyn Stream<Item = Result<v1::ImportStreamResponse, Status>> + Send>>;

    async fn append(
        &self,
        request: Request<v1::AppendRequest>,
    ) -> Result<Response<v1::AppendResponse>, Status> {
        self.refuse_while_unavailable()?;
        let request = request.into_inner();
        let mut state = self.state();
        let records = state.conversations.entry(key(&request.tenant, &request.conversation)).or_default();
        let mut results = Vec::new();
        for (index, mut message) in request.messages.into_iter().enumerate() {
            message.created_at_ms = Some(now_ms());
            let imported = import_one(records, index, message)?;
            let record = &records[usize::try_from(imported.seq).unwrap() - 1];
            results.push(v1::Committed {
                seq: imported.seq,
                duplicate: imported.outcome() == Outcome::Duplicate,
                created_at_ms: Some(record.created_at_ms),
                expires_at_ms: record.expires_at_ms,
            });
        }
        take_one(&mut state.lost_answers, "the answer is lost")?;
        Ok(Response::new(v1::AppendResponse { results }))
    }

    async fn append_stream(
        &self,
        _: Request<Streaming<v1::AppendStreamRequest>>,
    ) -> Result<Response<Self::AppendStreamStream>, Status> {
        Err(Status::unimplemented("not used by the command"))
    }

    async fn pull(&self, request: Request<v1::PullRequest>) -> Result<Response<v1::PullResponse>, Status> {
        self.refuse_while_unavailable()?;
        let request = request.into_inner();
        let mut state = self.state();
        let archive_unavailable = take_one(&mut state.archive_outages, "").is_err();
        let limit = match (request.limit as usize, state.page_records_max) {
            (0, _) => 50,
            (limit, 0) => limit,
            (limit, max) => limit.min(max),
        };
        let empty = Vec::new();
        let records = state.conversations.get(&key(&request.tenant, &request.conversation)).unwrap_or(&empty);
        let now = now_ms();
        let live: Vec<_> = records.iter().filter(|r| r.expires_at_ms.is_none_or(|at| at > now)).collect();
        let last = records.last().map_or(0, |record| record.seq);
        let (page, has_more, next_seq): (Vec<_>, bool, u64) =
            if let Some(Position::BeforeSeq(seq)) = request.position {
                let fit: Vec<_> = live.into_iter().filter(|record| record.seq < seq).collect();
                let page = fit[fit.len().saturating_sub(limit)..].to_vec();
                let next = page.first().map_or(1, |record| record.seq);
                (page, fit.len() > limit, next)
            } else {
                let fits = |record: &&v1::Record| match request.position {
                    Some(Position::AfterSeq(seq)) => record.seq > seq,
                    Some(Position::FromTimeMs(from)) => record.created_at_ms >= from,
                    _ => true,
                };
                let fit: Vec<_> = live.into_iter().filter(fits).collect();
                let page = fit[..fit.len().min(limit)].to_vec();
                let next = page.last().map_or(last, |record| record.seq);
                (page, fit.len() > limit, next)
            };
        Ok(Response::new(v1::PullResponse {
            records: page.into_iter().cloned().collect(),
            earliest_available_conversation_seq: 1,
            last_conversation_seq: last,
            has_more,
            next_seq,
            archive_unavailable,
            gaps: state.gaps.clone(),
        }))
    }

    async fn import(
        &self,
        request: Request<v1::ImportRequest>,
    ) -> Result<Response<v1::ImportResponse>, Status> {
        self.state().calls += 1;
        self.import_messages(request.into_inner()).await.map(Response::new)
    }

    async fn import_stream(
        &self,
        request: Request<Streaming<v1::ImportStreamRequest>>,
    ) -> Result<Response<Self::ImportStreamStream>, Status> {
        let answers_max = {
            let mut state = self.state();
            if let Some(refusal) = &state.streams_refused {
                return Err(refusal.clone());
            }
            state.streams += 1;
            state.stream_answers_max.unwrap_or(usize::MAX)
        };
        let (service, requests) = (Self(self.0.clone()), request.into_inner());
        let answers = requests.map(move |request| {
            let service = Self(service.0.clone());
            async move {
                let v1::ImportStreamRequest { request_id, import } = request?;
                let outcome = match service.import_messages(import.unwrap_or_default()).await {
                    Ok(response) => StreamOutcome::Imported(response),
                    Err(status) => StreamOutcome::Error(stream_error(&status)),
                };
                Ok(v1::ImportStreamResponse { request_id, outcome: Some(outcome) })
            }
        });
        Ok(Response::new(Box::pin(answers.buffer_unordered(256).take(answers_max))))
    }

    async fn describe(
        &self,
        request: Request<v1::DescribeRequest>,
    ) -> Result<Response<v1::DescribeResponse>, Status> {
        self.refuse_while_unavailable()?;
        let request = request.into_inner();
        let state = self.state();
        let records = state.conversations.get(&key(&request.tenant, &request.conversation));
        Ok(Response::new(records.map_or_else(v1::DescribeResponse::default, |records| {
            v1::DescribeResponse {
                exists: true,
                last_conversation_seq: records.len() as u64,
                ..v1::DescribeResponse::default()
            }
        })))
    }
}

/// A body says how the server likes it: `bad, named`, `bad, not named`.
fn import_one(
    records: &mut Vec<v1::Record>,
    index: usize,
    message: v1::Message,
) -> Result<v1::Imported, Status> {
    match &message.payload[..] {
        b"bad, named" => {
            let field = format!("messages[{index}].payload");
            let details = ErrorDetails::with_bad_request_violation(field, "is not liked");
            return Err(Status::with_error_details(
                Code::InvalidArgument,
                "the request is not valid",
                details,
            ));
        }
        b"bad, not named" => return Err(Status::invalid_argument("something in it is not liked")),
        _ => {}
    }
    let same_id = |record: &&v1::Record| {
        record.sender == message.sender && record.client_msg_id == message.client_msg_id
    };
    if let Some(known) = records.iter().find(same_id) {
        if known.payload != message.payload {
            let text = format!("messages[{index}].client_msg_id was used before with another body");
            return Err(Status::already_exists(text));
        }
        return Ok(v1::Imported { outcome: Outcome::Duplicate as i32, seq: known.seq });
    }
    let given = message.created_at_ms.expect("the command dates every message");
    let created_at_ms = records.last().map_or(given, |record| given.max(record.created_at_ms));
    let expires_at_ms = retention_ms(message.retention_class()).map(|retention| created_at_ms + retention);
    if expires_at_ms.is_some_and(|at| at <= now_ms()) {
        return Ok(v1::Imported { outcome: Outcome::Expired as i32, seq: 0 });
    }
    let seq = records.len() as u64 + 1;
    let content_type = match message.content_type.as_str() {
        "" => "text/plain; charset=utf-8".to_owned(),
        given => given.to_owned(),
    };
    records.push(v1::Record {
        seq,
        sender: message.sender,
        client_msg_id: message.client_msg_id,
        retention_class: message.retention_class,
        content_type,
        payload: message.payload,
        created_at_ms,
        expires_at_ms,
        payload_encoding: v1::PayloadEncoding::Unspecified.into(),
    });
    Ok(v1::Imported { outcome: Outcome::Committed as i32, seq })
}

fn stream_error(status: &Status) -> v1::StreamError {
    v1::StreamError {
        code: status.code().into(),
        message: status.message().to_owned(),
        status_details: status.details().to_vec().into(),
        ..v1::StreamError::default()
    }
}

fn retention_ms(class: v1::RetentionClass) -> Option<i64> {
    match class {
        v1::RetentionClass::Ephemeral24h => Some(DAY_MS),
        v1::RetentionClass::Unspecified | v1::RetentionClass::Default => Some(30 * DAY_MS),
        v1::RetentionClass::ComplianceHold | v1::RetentionClass::TenantCustom => None,
    }
}

fn key(tenant: &str, conversation: &str) -> (String, String) {
    let tenant = if tenant.is_empty() { "default" } else { tenant };
    (tenant.to_owned(), conversation.to_owned())
}

fn take_one(left: &mut u32, reason: &str) -> Result<(), Status> {
    match left.checked_sub(1) {
        None => Ok(()),
        Some(rest) => {
            *left = rest;
            Err(Status::unavailable(reason))
        }
    }
}

fn now_ms() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}
