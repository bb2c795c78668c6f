use tonic::{Code, Status};

/// How the status begins that bytes get which are no message of the kind that was asked for.
const UNDECODABLE: &str = "failed to decode Protobuf message";

/// Such bytes are the client's fault, and a field is named; the transport calls it its own.
pub(crate) fn malformed(status: Status) -> Status {
    if is_malformed(&status) { Status::invalid_argument(status.message()) } else { status }
}

pub(super) fn is_malformed(status: &Status) -> bool {
    status.code() == Code::Internal && status.message().starts_with(UNDECODABLE)
}
