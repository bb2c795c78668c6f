//! Who may do what. Without a file of tokens everybody may do everything, which is for the loopback.
//!
//! A request is admitted once, by its token and the right that its method needs; its tenant and the classes of its
//! messages are checked with what that token grants. A stream asks again for each request in it, so that a token that
//! was taken back is of no use to a stream that is open.

mod refusals;
mod reload;
mod tokens;

use std::sync::Arc;

use qim_access::{Right, TokenDigest, TokenFile};
use qim_daemon::Metrics;
use qim_proto::v1;
use tonic::metadata::MetadataMap;
use tonic::{Request, Status};

pub(crate) use refusals::Refusals;
pub(crate) use reload::TokensTask;

use refusals::Refused;
use tokens::{KnownToken, Tokens};

const SCHEME: &str = "Bearer";

/// Decides about every request. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Access {
    /// `None`: everybody may do everything.
    tokens: Option<Arc<Tokens>>,
    refusals: Arc<Refusals>,
}

/// Who sent a request, and what is granted to them.
#[derive(Clone)]
pub(crate) struct Caller {
    access: Access,
    /// `None`: everything is granted.
    token: Option<Arc<KnownToken>>,
}

impl Access {
    /// With the tokens that there are at the start.
    pub(crate) fn new(file: Option<&TokenFile>, refusals: Arc<Refusals>, metrics: &Metrics) -> Self {
        let tokens = file.map(|file| Arc::new(Tokens::new(file, metrics.clone())));
        Self { tokens, refusals }
    }

    /// Finds out who sent the request, and whether they have the right to call its method at all.
    pub(crate) fn admit<T>(&self, request: &Request<T>, right: Right) -> Result<Caller, Status> {
        let Some(tokens) = &self.tokens else { return Ok(Caller { access: self.clone(), token: None }) };
        let refused = |refused: Refused<'_>| self.refusals.refuse(refused.from(request.remote_addr()));
        let token = bearer(request.metadata()).ok_or_else(|| refused(Refused::without_token()))?;
        let digest = TokenDigest::of_text(token).and_then(|digest| tokens.find(&digest));
        let token = digest.ok_or_else(|| refused(Refused::with_unknown_token()))?;
        token.requests.increment(1);
        if !token.grant.rights.include(right) {
            return Err(refused(Refused::without_right(&token.grant.id, right)));
        }
        Ok(Caller { access: self.clone(), token: Some(token) })
    }
}

/// The token of `authorization: Bearer TOKEN`; the scheme is not case-sensitive (RFC 9110).
fn bearer(metadata: &MetadataMap) -> Option<&str> {
    let (scheme, token) = metadata.get("authorization")?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case(SCHEME).then(|| token.trim())
}

impl Caller {
    /// The same caller with what is granted to them now, which may be nothing any more. For each request of a stream.
    pub(crate) fn asked_again(&self, right: Right) -> Result<Self, Status> {
        let (Some(tokens), Some(before)) = (&self.access.tokens, &self.token) else {
            return Ok(self.clone());
        };
        let refusals = &self.access.refusals;
        let token = tokens.find(&before.grant.digest);
        let token = token.ok_or_else(|| refusals.refuse(Refused::with_unknown_token()))?;
        token.requests.increment(1);
        if !token.grant.rights.include(right) {
            return Err(refusals.refuse(Refused::without_right(&token.grant.id, right)));
        }
        Ok(Self { access: self.access.clone(), token: Some(token) })
    }

    /// Whether the conversations of this tenant are there at all for the caller. One that asks for others is answered as
    /// for a conversation that does not exist, and counted.
    pub(crate) fn sees(&self, tenant: &str) -> bool {
        let hidden = self.token.as_ref().filter(|token| !token.grant.tenants.include(tenant));
        if let Some(token) = hidden {
            self.access.refusals.count(Refused::outside_tenants(&token.grant.id));
        }
        hidden.is_none()
    }

    /// Refuses messages for a tenant that the caller does not see, which tells nothing about it, and holds without the
    /// right to them.
    pub(crate) fn may_commit(&self, tenant: &str, messages: &[v1::Message]) -> Result<(), Status> {
        let Some(token) = &self.token else { return Ok(()) };
        let grant = &token.grant;
        let refuse = |refused| Err(self.access.refusals.refuse(refused));
        if !grant.tenants.include(tenant) {
            return refuse(Refused::outside_tenants(&grant.id));
        }
        if grant.rights.include(Right::Compliance) {
            return Ok(());
        }
        let hold = i32::from(v1::RetentionClass::ComplianceHold);
        match messages.iter().position(|message| message.retention_class == hold) {
            Some(index) => refuse(Refused::hold_at(&grant.id, index)),
            None => Ok(()),
        }
    }
}
