use std::collections::HashMap;
use std::time::Duration;

use qim_store::archive::ArchiveError;
use qim_store::hot::HotError;
use qim_store::tiered::{PullError, TierError, TieredCommitError};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, FieldViolation, StatusExt};

const DOMAIN: &str = "qim";

/// The fields that are wrong, each with what is allowed.
pub(super) fn invalid(faults: Vec<FieldViolation>) -> Status {
    let told: Vec<String> =
        faults.iter().map(|fault| format!("{}: {}", fault.field, fault.description)).collect();
    let details = ErrorDetails::with_bad_request(faults);
    Status::with_error_details(Code::InvalidArgument, told.join("; "), details)
}

/// `positions` says where each draft of the batch stands in the request.
pub(super) fn commit(error: TieredCommitError, positions: &[usize]) -> Status {
    match error {
        TieredCommitError::AlreadyExists { index, seq } => already_exists(positions[index], seq),
        TieredCommitError::Hot(error) => hot(&error),
        TieredCommitError::Archive(error) => archive(&error),
    }
}

pub(super) fn pull(error: PullError) -> Status {
    match error {
        PullError::OutOfRange { earliest_available, last } => out_of_range(earliest_available, last),
        PullError::Hot(error) => hot(&error),
        PullError::Archive(error) => archive(&error),
    }
}

pub(super) fn tier(error: &TierError) -> Status {
    match error {
        TierError::Hot(error) => hot(error),
        TierError::Archive(error) => archive(error),
    }
}

fn already_exists(index: usize, seq: u64) -> Status {
    let field = format!("messages[{index}].client_msg_id");
    let told = match seq {
        0 => format!("{field} is used twice in this request, with different bodies; nothing was committed"),
        seq => format!(
            "{field} was used before, for the message at seq {seq}, which has another body; nothing was committed"
        ),
    };
    let metadata = HashMap::from([("field".to_owned(), field), ("seq".to_owned(), seq.to_string())]);
    let details = ErrorDetails::with_error_info("CLIENT_MSG_ID_REUSED", DOMAIN, metadata);
    Status::with_error_details(Code::AlreadyExists, told, details)
}

fn out_of_range(earliest: u64, last: u64) -> Status {
    let metadata = HashMap::from([
        ("earliest_available_conversation_seq".to_owned(), earliest.to_string()),
        ("last_conversation_seq".to_owned(), last.to_string()),
    ]);
    let details = ErrorDetails::with_error_info("SEQ_OUT_OF_RANGE", DOMAIN, metadata);
    let told =
        format!("the position is out of range: the earliest available seq is {earliest}, the last {last}");
    Status::with_error_details(Code::OutOfRange, told, details)
}

pub(super) fn hot(error: &HotError) -> Status {
    let told = error.to_string();
    match error {
        HotError::Unavailable(_) | HotError::Checking { .. } | HotError::LineageEnded => {
            retry(Code::Unavailable, told, error.retry_after())
        }
        HotError::OutOfMemory => retry(Code::ResourceExhausted, told, error.retry_after()),
        HotError::Corrupt { .. } => Status::data_loss(told),
        HotError::Fenced | HotError::Refused(_) => Status::internal(told),
    }
}

pub(super) fn archive(error: &ArchiveError) -> Status {
    let told = error.to_string();
    if error.is_retryable() {
        retry(Code::Unavailable, told, Some(Duration::from_secs(1)))
    } else {
        Status::internal(told)
    }
}

fn retry(code: Code, told: String, after: Option<Duration>) -> Status {
    Status::with_error_details(code, told, ErrorDetails::with_retry_info(after))
}
