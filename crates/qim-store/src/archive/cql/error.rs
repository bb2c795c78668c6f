//! What an error of the driver means for the caller of the archive.

use scylla::errors::{
    ConnectionError, ConnectionPoolError, ConnectionSetupRequestErrorKind, DbError, ExecutionError,
    MetadataError, NewSessionError, PrepareError, RequestAttemptError,
};

use crate::archive::ArchiveError;

/// Whether there is no connection left to send anything over.
pub(super) fn is_disconnected(error: &ExecutionError) -> bool {
    matches!(error, ExecutionError::ConnectionPoolError(_) | ExecutionError::EmptyPlan)
}

pub(super) fn from_execution(error: &ExecutionError) -> ArchiveError {
    let acts = match error {
        ExecutionError::BadQuery(_) | ExecutionError::UseKeyspaceError(_) => Helps::Acting,
        ExecutionError::PrepareError(error) => prepare(error),
        ExecutionError::ConnectionPoolError(error) => pool(error),
        ExecutionError::LastAttemptError(error) => attempt(error),
        _ => Helps::Waiting,
    };
    acts.with(error)
}

pub(super) fn from_prepare(error: &PrepareError) -> ArchiveError {
    prepare(error).with(error)
}

pub(super) fn from_new_session(error: &NewSessionError) -> ArchiveError {
    let acts = match error {
        NewSessionError::MetadataError(MetadataError::ConnectionPoolError(error)) => pool(error),
        NewSessionError::EmptyKnownNodesList | NewSessionError::IllegalConfig(_) => Helps::Acting,
        _ => Helps::Waiting,
    };
    acts.with(error)
}

/// Something that only a driver or a server that is not the one we know would do.
pub(super) fn unexpected(error: &impl std::fmt::Display) -> ArchiveError {
    ArchiveError::Refused(format!("unexpected answer: {error}"))
}

/// What helps against an error.
#[derive(Clone, Copy)]
enum Helps {
    Waiting,
    Acting,
}

impl Helps {
    fn with(self, error: &impl std::fmt::Display) -> ArchiveError {
        match self {
            Self::Waiting => ArchiveError::Unavailable(error.to_string()),
            Self::Acting => ArchiveError::Refused(error.to_string()),
        }
    }
}

fn prepare(error: &PrepareError) -> Helps {
    match error {
        PrepareError::ConnectionPoolError(error) => pool(error),
        PrepareError::AllAttemptsFailed { first_attempt } => attempt(first_attempt),
        _ => Helps::Waiting,
    }
}

fn attempt(error: &RequestAttemptError) -> Helps {
    match error {
        RequestAttemptError::DbError(error, _) => database(error),
        RequestAttemptError::BrokenConnectionError(_) | RequestAttemptError::UnableToAllocStreamId => {
            Helps::Waiting
        }
        _ => Helps::Acting,
    }
}

fn pool(error: &ConnectionPoolError) -> Helps {
    let ConnectionPoolError::Broken { last_connection_error, .. } = error else { return Helps::Waiting };
    let ConnectionError::ConnectionSetupRequestError(error) = last_connection_error else {
        return Helps::Waiting;
    };
    match error.get_error() {
        ConnectionSetupRequestErrorKind::DbError(error, _) => database(error),
        ConnectionSetupRequestErrorKind::MissingAuthentication
        | ConnectionSetupRequestErrorKind::StartAuthSessionError(_)
        | ConnectionSetupRequestErrorKind::AuthChallengeEvaluationError(_)
        | ConnectionSetupRequestErrorKind::AuthFinishError(_) => Helps::Acting,
        _ => Helps::Waiting,
    }
}

fn database(error: &DbError) -> Helps {
    match error {
        DbError::SyntaxError
        | DbError::Invalid
        | DbError::AlreadyExists { .. }
        | DbError::FunctionFailure { .. }
        | DbError::AuthenticationError
        | DbError::Unauthorized
        | DbError::ConfigError
        | DbError::ProtocolError => Helps::Acting,
        // Unavailable, overloaded, timeouts, failures of replicas, rate limits, and what newer servers may say.
        _ => Helps::Waiting,
    }
}
