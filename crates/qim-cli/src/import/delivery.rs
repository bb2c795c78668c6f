//! Sends a batch until each of its messages has an outcome.

use std::rc::Rc;

use qim_core::ConversationKey;
use qim_proto::v1;
use qim_proto::v1::imported::Outcome;
use tonic::{Code, Status};

use crate::failure::Failure;
use crate::grpc;
use crate::link::Link;
use crate::progress::Progress;

use super::stream::ImportStream;
use super::window::{Batch, Pending};

/// What became of a batch.
#[derive(Debug)]
pub(crate) struct Delivered {
    pub(crate) conversation: ConversationKey,
    /// What it took of the window.
    pub(crate) memory_bytes: usize,
    /// What it was of the file.
    pub(crate) file_bytes: u64,
    pub(crate) committed: u64,
    pub(crate) duplicate: u64,
    pub(crate) expired: u64,
    /// Lines and reasons.
    pub(crate) failed: Vec<(u64, String)>,
}

/// Sends the batch. A message that the server refuses is taken out, and the rest is sent again, in order. The error
/// ends the import: the server cannot be reached, or will refuse everything.
pub(crate) async fn deliver(
    link: Rc<Link>,
    stream: Rc<ImportStream>,
    progress: Rc<Progress>,
    batch: Batch,
) -> Result<Delivered, Failure> {
    let Batch { conversation, pending, memory_bytes } = batch;
    let file_bytes = pending.iter().map(|pending| pending.file_bytes).sum();
    let mut delivered = Delivered::new(conversation, memory_bytes, file_bytes);
    // The part on top is sent first.
    let mut parts = vec![pending];
    while let Some(part) = parts.pop() {
        let request = || request(&delivered.conversation, &part);
        let answer = link
            .call(
                &(),
                async |client, attempt| stream.import(client, attempt, request).await,
                |text| progress.tell(text),
            )
            .await?;
        match answer {
            Ok(response) => delivered.count(&part, &response.results),
            Err(refusal) => {
                let verdict = judge(part, &refusal);
                delivered.failed.extend(verdict.failed);
                parts.extend(verdict.again.into_iter().rev());
            }
        }
    }
    Ok(delivered)
}

impl Delivered {
    fn new(conversation: ConversationKey, memory_bytes: usize, file_bytes: u64) -> Self {
        let (committed, duplicate, expired, failed) = (0, 0, 0, Vec::new());
        Self { conversation, memory_bytes, file_bytes, committed, duplicate, expired, failed }
    }

    fn count(&mut self, part: &[Pending], results: &[v1::Imported]) {
        if results.len() != part.len() {
            let reason = format!("the server answered {} results for {} messages", results.len(), part.len());
            self.failed.extend(part.iter().map(|pending| (pending.line, reason.clone())));
            return;
        }
        for (pending, result) in part.iter().zip(results) {
            match result.outcome() {
                Outcome::Committed => self.committed += 1,
                Outcome::Duplicate => self.duplicate += 1,
                Outcome::Expired => self.expired += 1,
                Outcome::Unspecified => {
                    let reason = format!("the server answered the unknown outcome {}", result.outcome);
                    self.failed.push((pending.line, reason));
                }
            }
        }
    }
}

fn request(conversation: &ConversationKey, part: &[Pending]) -> v1::ImportRequest {
    v1::ImportRequest {
        tenant: conversation.tenant().as_str().to_owned(),
        conversation: conversation.conversation().to_owned(),
        messages: part.iter().map(|pending| pending.message.clone()).collect(),
    }
}

/// What to make of a refused part.
#[derive(Debug, PartialEq)]
struct Verdict {
    failed: Vec<(u64, String)>,
    /// To be sent again, in this order.
    again: Vec<Vec<Pending>>,
}

fn judge(mut part: Vec<Pending>, refusal: &Status) -> Verdict {
    let named = grpc::named_messages(refusal, part.len());
    if !named.is_empty() {
        let failed = named.iter().map(|(index, reason)| (part[*index].line, reason.clone())).collect();
        let mut index = 0;
        part.retain(|_| {
            index += 1;
            !named.contains_key(&(index - 1))
        });
        return Verdict { failed, again: if part.is_empty() { Vec::new() } else { vec![part] } };
    }
    let one_of_them_is_at_fault = matches!(refusal.code(), Code::InvalidArgument | Code::AlreadyExists)
        && !grpc::names_conversation(refusal);
    if one_of_them_is_at_fault && part.len() > 1 {
        // The server does not say which one: halving finds it.
        let second = part.split_off(part.len() / 2);
        return Verdict { failed: Vec::new(), again: vec![part, second] };
    }
    let reason = grpc::sentence(refusal);
    Verdict { failed: part.iter().map(|pending| (pending.line, reason.clone())).collect(), again: Vec::new() }
}

#[cfg(test)]
mod tests {
    use tonic_types::{ErrorDetails, StatusExt};

    use super::*;

    fn part(lines: std::ops::RangeInclusive<u64>) -> Vec<Pending> {
        lines.map(|line| Pending { line, file_bytes: 0, message: v1::Message::default() }).collect()
    }

    fn lines(parts: &[Vec<Pending>]) -> Vec<Vec<u64>> {
        parts.iter().map(|part| part.iter().map(|pending| pending.line).collect()).collect()
    }

    #[test]
    fn the_message_that_the_server_names_fails_and_the_rest_goes_again() {
        let details = ErrorDetails::with_bad_request_violation("messages[1].payload", "has 70000 bytes");
        let refusal = Status::with_error_details(Code::InvalidArgument, "not valid", details);
        let verdict = judge(part(11..=13), &refusal);
        assert_eq!(verdict.failed, [(12, "payload has 70000 bytes".to_owned())]);
        assert_eq!(lines(&verdict.again), [[11, 13]]);
        assert!(judge(part(11..=12), &refusal).again == [part(11..=11)]);
    }

    #[test]
    fn a_refusal_that_names_no_message_is_narrowed_down_by_halves() {
        let refusal = Status::already_exists("used before");
        let verdict = judge(part(1..=5), &refusal);
        assert!(verdict.failed.is_empty());
        assert_eq!(lines(&verdict.again), [vec![1, 2], vec![3, 4, 5]]);
        assert_eq!(judge(part(1..=1), &refusal).failed.len(), 1);
    }

    #[test]
    fn a_refusal_of_the_conversation_fails_all_of_it() {
        let details = ErrorDetails::with_bad_request_violation("conversation", "is not allowed");
        let refusal = Status::with_error_details(Code::InvalidArgument, "not valid", details);
        for refusal in [refusal, Status::failed_precondition("set aside")] {
            let verdict = judge(part(1..=3), &refusal);
            assert_eq!(verdict.failed.len(), 3);
            assert!(verdict.again.is_empty());
        }
    }

    #[test]
    fn an_answer_that_does_not_fit_its_request_is_no_success() {
        let conversation = ConversationKey::new(qim_core::TenantId::default(), "c").unwrap();
        let mut delivered = Delivered::new(conversation, 0, 0);
        let result = |outcome: Outcome| v1::Imported { outcome: outcome as i32, seq: 1 };
        delivered.count(&part(1..=2), &[result(Outcome::Committed)]);
        assert_eq!((delivered.committed, delivered.failed.len()), (0, 2));
        delivered.count(&part(3..=4), &[result(Outcome::Expired), result(Outcome::Unspecified)]);
        assert_eq!((delivered.expired, delivered.failed.len()), (1, 3));
    }
}
