use std::collections::BTreeSet;

use qim_core::TenantId;
use serde_json::json;

use crate::right::{Right, Rights};
use crate::token::TokenDigest;

/// Longest public name of a token, in bytes.
const ID_BYTES_MAX: usize = 64;

/// What one token allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The public name of the token, which logs and metrics show.
    pub id: String,
    /// Of the token.
    pub digest: TokenDigest,
    /// Whose conversations it sees.
    pub tenants: Tenants,
    /// What may be done with them.
    pub rights: Rights,
}

/// The tenants that a token sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tenants {
    /// All there are and will be.
    All,
    /// These.
    Some(BTreeSet<TenantId>),
}

/// Why a text cannot be the public name of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not 1 to 64 of the characters A-Z a-z 0-9 . _ - that do not begin with qim_, as a token does")]
pub struct InvalidTokenId;

/// Checks the public name of a token. What could be the token itself is refused, since a name is shown.
pub fn validate_token_id(id: &str) -> Result<(), InvalidTokenId> {
    let is_plain = id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    let fits = (1..=ID_BYTES_MAX).contains(&id.len());
    if is_plain && fits && !id.starts_with("qim_") { Ok(()) } else { Err(InvalidTokenId) }
}

impl Tenants {
    /// Whether a tenant is among them, as requests name it: an empty name means the default tenant.
    pub fn include(&self, tenant: &str) -> bool {
        match self {
            Self::All => true,
            Self::Some(tenants) => {
                let tenant = if tenant.is_empty() { TenantId::DEFAULT } else { tenant };
                tenants.iter().any(|seen| seen.as_str() == tenant)
            }
        }
    }
}

impl Grant {
    /// The line for the file of tokens.
    pub fn to_line(&self) -> String {
        let tenants = match &self.tenants {
            Tenants::All => json!("*"),
            Tenants::Some(tenants) => tenants.iter().map(TenantId::as_str).collect(),
        };
        let rights: Vec<&str> = self.rights.iter().map(Right::name).collect();
        let digest = self.digest.to_string();
        json!({ "id": self.id, "sha256": digest, "tenants": tenants, "rights": rights }).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_tenant_is_the_one_that_is_not_named() {
        let tenants =
            |names: &[&str]| Tenants::Some(names.iter().map(|name| TenantId::new(name).unwrap()).collect());
        assert!(tenants(&["default"]).include("") && tenants(&["a", "b"]).include("b"));
        for (names, other) in [(&["a"][..], ""), (&["a"][..], "A"), (&["default"][..], "a"), (&[][..], "")] {
            assert!(!tenants(names).include(other), "{names:?} {other:?}");
        }
        assert!(Tenants::All.include("anybody") && Tenants::All.include(""));
    }

    #[test]
    fn a_public_name_is_short_plain_and_no_token() {
        for good in ["billing", "a", "team-1.reader_2", &"x".repeat(64)] {
            assert_eq!(validate_token_id(good), Ok(()), "{good}");
        }
        for bad in ["", "a b", "ä", "a\"b", "qim_abc", &"x".repeat(65)] {
            assert_eq!(validate_token_id(bad), Err(InvalidTokenId), "{bad}");
        }
    }
}
