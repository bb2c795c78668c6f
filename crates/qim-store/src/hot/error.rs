use std::time::Duration;

use qim_core::ConversationKey;
use redis::{ErrorKind, RedisError, ServerErrorKind};

/// Why the hot tier did not do what it was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum HotError {
    /// It cannot be reached or did not answer in time: whether the act happened is unknown. Repeat it later; every act
    /// is harmless when repeated.
    #[error("the hot tier is unavailable: {0}")]
    Unavailable(String),
    /// Redis has lost data, or may have, and it is not yet known what. Nothing was changed; what was acknowledged is being
    /// put back. Repeat it later.
    #[error("the hot tier may have lost data, and is being checked: {reason}")]
    Checking {
        /// What is waited for.
        reason: String,
        /// How long that should take.
        retry_after: Duration,
    },
    /// This Redis is not as it was left: its lineage ended. Nothing was changed.
    #[error("Redis was restarted, replaced or emptied")]
    LineageEnded,
    /// Redis is at its memory limit. Nothing was changed, and nothing stored will be deleted to make room (SPEC C5).
    #[error("the hot tier is at its memory limit")]
    OutOfMemory,
    /// What is stored for this conversation contradicts itself. Nothing was changed. Somebody has to look.
    #[error("conversation {conversation} is damaged in the hot tier: {reason}")]
    Corrupt {
        /// Which conversation.
        conversation: ConversationKey,
        /// What is wrong.
        reason: String,
    },
    /// Another archiver holds the lease of the shard now: stop working on it.
    #[error("the lease of the shard is held by another archiver")]
    Fenced,
    /// It answers, and refuses: wrong password, missing right, a setting that qim cannot work with. Trying again helps
    /// only after somebody acted.
    #[error("the hot tier refuses: {0}")]
    Refused(String),
}

impl HotError {
    /// How long to wait before trying again, where that can help without anybody acting.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Unavailable(_) | Self::LineageEnded => Some(Duration::from_millis(500)),
            Self::Checking { retry_after, .. } => Some(*retry_after),
            // Trim and expiry give memory back, but not at once.
            Self::OutOfMemory => Some(Duration::from_secs(5)),
            Self::Corrupt { .. } | Self::Fenced | Self::Refused(_) => None,
        }
    }
}

impl HotError {
    /// Commits wait for this, and where readers would miss something, they do, too.
    pub(crate) fn checking(reason: impl Into<String>) -> Self {
        Self::Checking { reason: reason.into(), retry_after: Duration::from_millis(500) }
    }

    /// It is not known yet what a conversation has.
    pub(crate) fn putting_back() -> Self {
        Self::checking("writers put back what they acknowledged")
    }

    /// From the text of an error that a script caught.
    pub(super) fn from_text(text: String) -> Self {
        if text.contains("OOM command not allowed") { Self::OutOfMemory } else { Self::Refused(text) }
    }
}

impl From<RedisError> for HotError {
    fn from(error: RedisError) -> Self {
        if error.code() == Some("LINEAGE") {
            return Self::LineageEnded;
        }
        if let (Some("QUARANTINE"), Some(left)) = (error.code(), error.detail()) {
            let left = left.trim().parse().unwrap_or(1000);
            let reason = "other writers put back what they acknowledged".to_owned();
            return Self::Checking { reason, retry_after: Duration::from_millis(left) };
        }
        // Inside a script the code of the error that stopped it stands at the start of its text.
        let text = error.to_string();
        if error.code() == Some("OOM") || text.contains("OOM command not allowed") {
            return Self::OutOfMemory;
        }
        match error.kind() {
            ErrorKind::Server(
                ServerErrorKind::BusyLoading
                | ServerErrorKind::ClusterDown
                | ServerErrorKind::MasterDown
                | ServerErrorKind::TryAgain
                | ServerErrorKind::Moved
                | ServerErrorKind::Ask
                | ServerErrorKind::ReadOnly,
            )
            | ErrorKind::Io
            | ErrorKind::ClusterConnectionNotFound => Self::Unavailable(text),
            _ if error.is_timeout() || error.is_connection_dropped() => Self::Unavailable(text),
            _ => Self::Refused(text),
        }
    }
}
