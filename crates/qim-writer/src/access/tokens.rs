use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use metrics::{Counter, counter, describe_counter};
use qim_access::{Grant, TokenDigest, TokenFile};
use qim_daemon::Metrics;

/// A token that the file lists.
pub(super) struct KnownToken {
    pub(super) grant: Grant,
    /// Requests made with it.
    pub(super) requests: Counter,
}

/// By digest. Digests are compared in constant time, and the map's key is random: how long a look-up takes says nothing
/// about how much of a guess was right.
type ByDigest = HashMap<TokenDigest, Arc<KnownToken>>;

/// The tokens there are now.
pub(super) struct Tokens {
    known: RwLock<Arc<ByDigest>>,
    metrics: Metrics,
}

impl Tokens {
    pub(super) fn new(file: &TokenFile, metrics: Metrics) -> Self {
        metrics.register(|| {
            describe_counter!(
                "qim_token_requests_total",
                "Requests by the name of the token they came with, refused ones as well."
            );
        });
        Self { known: RwLock::new(Arc::new(by_digest(file, &metrics))), metrics }
    }

    pub(super) fn find(&self, digest: &TokenDigest) -> Option<Arc<KnownToken>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(digest).cloned()
    }

    /// From now on these.
    pub(super) fn replace(&self, file: &TokenFile) {
        let known = Arc::new(by_digest(file, &self.metrics));
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = known;
    }
}

fn by_digest(file: &TokenFile, metrics: &Metrics) -> ByDigest {
    let known = |grant: &Grant| {
        let requests = metrics.register(|| counter!("qim_token_requests_total", "token" => grant.id.clone()));
        Arc::new(KnownToken { grant: grant.clone(), requests })
    };
    file.grants().iter().map(|grant| (grant.digest, known(grant))).collect()
}
