use qim_daemon::ArchiverConfig;
use qim_daemon::config::{DaemonConfig, Environment};
use qim_store::TieredMessageStore;
use qim_store::hot::HotError;
use qim_store::tiered::MoveError;
use qim_tiers::Committing;

use crate::failure::Failure;
use crate::session::Session;

/// Opens both tiers as an archiver does. Both have to be there.
pub(super) async fn open(session: &Session) -> Result<TieredMessageStore, Failure> {
    let environment = Environment::from_pairs(session.environment.variables.clone());
    let config = ArchiverConfig::from_environment(&environment)
        .map_err(|faults| Failure::Configuration(faults.to_string()))?;
    let shared = config.shared();
    let opened =
        TieredMessageStore::open(qim_tiers::options(shared, Committing::NOTHING)).await.map_err(|error| {
            let why = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            Failure::Unavailable(format!("{error}: {why}"))
        })?;
    match opened.archive_unavailable {
        Some(reason) => Err(Failure::Unavailable(format!("archive at {}: {reason}", shared.archive_url))),
        None => Ok(opened.store),
    }
}

pub(super) fn hot(error: HotError) -> Failure {
    tier(&MoveError::from(error))
}

/// A tier that cannot be asked now is unavailable; one that says no has refused.
pub(super) fn tier(error: &MoveError) -> Failure {
    let may_succeed_later = match error {
        MoveError::Hot(error) => error.retry_after().is_some(),
        MoveError::Archive(error) => error.is_retryable(),
        MoveError::Poisoned(_) => false,
    };
    if may_succeed_later {
        Failure::Unavailable(error.to_string())
    } else {
        Failure::Refused(error.to_string())
    }
}
