//! What a gRPC error means, for the program and for people.

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use qim_proto::v1;
use tonic::{Code, Status};
use tonic_types::StatusExt;

/// What to do after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The same request may succeed later; the server may have said when.
    Retry(Option<Duration>),
    /// It may be worth a few more tries: an error that a healthy server does not give.
    Doubt,
    /// The request is at fault, and will always be.
    Refused,
    /// Every request will end like this.
    Hopeless,
}

/// Decides by the code, and by who made the error: this side, because it got no answer, or the server.
pub(crate) fn fate(status: &Status) -> Fate {
    if is_lost_connection(status) {
        return Fate::Retry(None);
    }
    match status.code() {
        Code::Unavailable
        | Code::DeadlineExceeded
        | Code::ResourceExhausted
        | Code::Aborted
        | Code::Cancelled => Fate::Retry(status.get_details_retry_info().and_then(|info| info.retry_delay)),
        // A server that stops in the middle of an answer looks like this, too.
        Code::Internal | Code::Unknown => Fate::Doubt,
        Code::Unauthenticated | Code::PermissionDenied | Code::Unimplemented => Fate::Hopeless,
        _ => Fate::Refused,
    }
}

/// The error of one request in a stream, as a call would have got it.
pub(crate) fn status_in_stream(error: v1::StreamError) -> Status {
    let v1::StreamError { code, message, status_details, .. } = error;
    Status::with_details(Code::from(code), message, status_details)
}

/// Only errors of this side's transport have a cause; those that a server sends are just code and text.
fn is_lost_connection(status: &Status) -> bool {
    status.source().is_some()
}

/// Whether the server could not be reached, or could not answer in time.
pub(crate) fn is_unavailable(status: &Status) -> bool {
    is_lost_connection(status)
        || matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled)
}

/// The error as a sentence, with the fields at fault.
pub(crate) fn sentence(status: &Status) -> String {
    if is_lost_connection(status) {
        return root_cause(status);
    }
    let code = code_name(status.code());
    let fields: Vec<String> = violations(status)
        .into_iter()
        // The text may say it already.
        .filter(|(field, reason)| !(status.message().contains(field) && status.message().contains(reason)))
        .map(|(field, reason)| format!("{field} {reason}"))
        .collect();
    match (status.message(), fields.join("; ")) {
        ("", fields) if fields.is_empty() => code.to_owned(),
        ("", fields) => format!("{fields} ({code})"),
        (message, fields) if fields.is_empty() => format!("{message} ({code})"),
        (message, fields) => format!("{message}: {fields} ({code})"),
    }
}

/// The reason at the bottom of an error, which is the one that helps: "connection refused", not "transport error".
pub(crate) fn root_cause(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

/// The messages of a batch that the server names as the ones at fault, with the reason for each.
pub(crate) fn named_messages(status: &Status, batch_len: usize) -> BTreeMap<usize, String> {
    let mut named = BTreeMap::new();
    for (field, reason) in violations(status) {
        if let Some((index, rest)) = message_index(&field).filter(|(index, _)| *index < batch_len) {
            let reason = format!("{} {reason}", rest.trim_start_matches('.')).trim().to_owned();
            named.entry(index).and_modify(|all| *all = format!("{all}; {reason}")).or_insert(reason);
        }
    }
    if named.is_empty() {
        // Some codes have no list of fields: the message is then named in a detail or in the text.
        let places = other_places(status);
        if let Some((index, _)) =
            places.iter().find_map(|text| find_message_index(text)).filter(|(index, _)| *index < batch_len)
        {
            named.insert(index, sentence(status));
        }
    }
    named
}

/// Whether the conversation or its tenant is at fault, and so every message of the batch.
pub(crate) fn names_conversation(status: &Status) -> bool {
    violations(status).iter().any(|(field, _)| field == "conversation" || field == "tenant")
}

fn violations(status: &Status) -> Vec<(String, String)> {
    let details = status.get_details_bad_request();
    let violations = details.map(|details| details.field_violations).unwrap_or_default();
    violations.into_iter().map(|violation| (violation.field, violation.description)).collect()
}

fn other_places(status: &Status) -> Vec<String> {
    let mut places = Vec::new();
    if let Some(resource) = status.get_details_resource_info() {
        places.extend([resource.resource_name, resource.description]);
    }
    if let Some(info) = status.get_details_error_info() {
        places.extend(info.metadata.into_values());
    }
    places.push(status.message().to_owned());
    places
}

fn find_message_index(text: &str) -> Option<(usize, &str)> {
    text.match_indices("messages[").find_map(|(at, _)| message_index(&text[at..]))
}

/// `messages[7].sender` is message 7 and `.sender`.
fn message_index(field: &str) -> Option<(usize, &str)> {
    let (index, rest) = field.strip_prefix("messages[")?.split_once(']')?;
    Some((index.parse().ok()?, rest))
}

fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::io;
    use std::sync::Arc;

    use tonic_types::ErrorDetails;

    use super::*;

    fn refused(violations: &[(&str, &str)]) -> Status {
        let mut details = ErrorDetails::new();
        for (field, reason) in violations {
            details.add_bad_request_violation(*field, *reason);
        }
        Status::with_error_details(Code::InvalidArgument, "the request is not valid", details)
    }

    #[test]
    fn an_error_is_a_sentence_with_its_fields() {
        let status = refused(&[("conversation", "is empty"), ("messages[3].sender", "is empty")]);
        assert_eq!(
            sentence(&status),
            "the request is not valid: conversation is empty; messages[3].sender is empty (INVALID_ARGUMENT)"
        );
        let details = ErrorDetails::with_bad_request_violation("sender", "is empty");
        let status = Status::with_error_details(Code::InvalidArgument, "sender: is empty", details);
        assert_eq!(sentence(&status), "sender: is empty (INVALID_ARGUMENT)");
        assert_eq!(sentence(&Status::internal("")), "INTERNAL");
        assert_eq!(sentence(&Status::data_loss("record 3 is damaged")), "record 3 is damaged (DATA_LOSS)");
    }

    #[test]
    fn an_error_without_an_answer_says_its_cause_and_is_retried() {
        let mut status = Status::unknown("transport error");
        status.set_source(Arc::new(io::Error::other("connection refused")));
        assert_eq!(sentence(&status), "connection refused");
        assert_eq!(fate(&status), Fate::Retry(None));
        assert!(is_unavailable(&status));
        assert_eq!(fate(&Status::unknown("a server's own")), Fate::Doubt);
    }

    #[test]
    fn the_server_says_when_to_retry() {
        let details = ErrorDetails::with_retry_info(Some(Duration::from_secs(3)));
        let status = Status::with_error_details(Code::ResourceExhausted, "the hot tier is full", details);
        assert_eq!(fate(&status), Fate::Retry(Some(Duration::from_secs(3))));
        assert_eq!(fate(&Status::unavailable("starting")), Fate::Retry(None));
        assert_eq!(fate(&Status::invalid_argument("")), Fate::Refused);
        assert_eq!(fate(&Status::unimplemented("")), Fate::Hopeless);
    }

    #[test]
    fn the_messages_at_fault_are_found_in_field_violations() {
        let status = refused(&[
            ("messages[0].payload", "has 70000 bytes"),
            ("messages[2].sender", "is empty"),
            ("messages[2].client_msg_id", "is empty"),
            ("messages[9].sender", "lies outside the batch"),
        ]);
        let named = named_messages(&status, 3);
        assert_eq!(
            named.into_iter().collect::<Vec<_>>(),
            [
                (0, "payload has 70000 bytes".to_owned()),
                (2, "sender is empty; client_msg_id is empty".to_owned())
            ]
        );
        assert!(named_messages(&refused(&[("conversation", "is empty")]), 3).is_empty());
        assert!(names_conversation(&refused(&[("conversation", "is empty")])));
    }

    #[test]
    fn the_message_that_exists_already_is_found_in_any_detail_or_the_text() {
        let text = Status::already_exists("messages[1].client_msg_id was used before with another body");
        let metadata = HashMap::from([("field".to_owned(), "messages[1].client_msg_id".to_owned())]);
        let info = Status::with_error_details(
            Code::AlreadyExists,
            "used before",
            ErrorDetails::with_error_info("OTHER_BODY", "qim", metadata),
        );
        let resource = Status::with_error_details(
            Code::AlreadyExists,
            "used before",
            ErrorDetails::with_resource_info("message", "messages[1]", "", ""),
        );
        for status in [text, info, resource] {
            assert_eq!(named_messages(&status, 2).keys().copied().collect::<Vec<_>>(), [1], "{status:?}");
        }
        assert!(named_messages(&Status::already_exists("used before"), 2).is_empty());
    }
}
