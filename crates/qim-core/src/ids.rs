use std::fmt;
use std::sync::Arc;

use crate::hash::conversation_hash;

/// Longest id in bytes.
const ID_BYTES_MAX: usize = 128;

/// Why a string cannot be an id. It does not say which field it was meant for; the caller knows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidId {
    /// The string has no bytes.
    #[error("is empty; allowed are 1 to 128 bytes of UTF-8")]
    Empty,
    /// The string is longer than 128 bytes.
    #[error("has {0} bytes; allowed are 1 to 128 bytes of UTF-8")]
    TooLong(usize),
    /// The string holds a control character (Unicode category Cc).
    #[error("holds the control character U+{:04X}; allowed are 1 to 128 bytes of UTF-8 without control characters", *.0 as u32)]
    Control(char),
}

/// Checks what all opaque ids have in common: 1..=128 bytes of UTF-8 without control characters.
pub fn validate_id(id: &str) -> Result<(), InvalidId> {
    if id.is_empty() {
        return Err(InvalidId::Empty);
    }
    if id.len() > ID_BYTES_MAX {
        return Err(InvalidId::TooLong(id.len()));
    }
    id.chars().find(|c| c.is_control()).map_or(Ok(()), |c| Err(InvalidId::Control(c)))
}

/// A tenant's id.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TenantId(Arc<str>);

impl TenantId {
    /// The tenant meant where none is given.
    pub const DEFAULT: &str = "default";

    /// An empty string means the default tenant.
    pub fn new(id: &str) -> Result<Self, InvalidId> {
        let id = if id.is_empty() { Self::DEFAULT } else { id };
        validate_id(id)?;
        Ok(Self(id.into()))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for TenantId {
    fn default() -> Self {
        Self(Self::DEFAULT.into())
    }
}

/// What names a conversation: its tenant, and its id inside that tenant.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConversationKey {
    tenant: TenantId,
    conversation: Arc<str>,
    /// Made once: each record's checksum begins with it.
    stable_hash: u64,
}

impl ConversationKey {
    /// Between tenant and conversation in a storage id. No id can hold it.
    const SEPARATOR: char = '\0';

    /// Checks the conversation id; the tenant's was checked when it was made.
    pub fn new(tenant: TenantId, conversation: &str) -> Result<Self, InvalidId> {
        validate_id(conversation)?;
        let stable_hash = conversation_hash(tenant.as_str(), conversation);
        Ok(Self { tenant, conversation: conversation.into(), stable_hash })
    }

    /// The tenant.
    pub fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// The id inside the tenant.
    pub fn conversation(&self) -> &str {
        &self.conversation
    }

    /// XXH3-64 of tenant, NUL and conversation. The same for ever: shards and record checksums depend on it.
    pub const fn stable_hash(&self) -> u64 {
        self.stable_hash
    }

    /// One string for both, as short as it can be since every key in the hot tier holds it: the conversation alone
    /// in the default tenant, else tenant, NUL, conversation. Two conversations never share one.
    pub fn storage_id(&self) -> String {
        if self.tenant.as_str() == TenantId::DEFAULT {
            self.conversation.to_string()
        } else {
            format!("{}{}{}", self.tenant.as_str(), Self::SEPARATOR, self.conversation)
        }
    }

    /// The conversation that has this storage id.
    pub fn from_storage_id(id: &str) -> Result<Self, InvalidId> {
        match id.split_once(Self::SEPARATOR) {
            Some((tenant, conversation)) => Self::new(TenantId::new(tenant)?, conversation),
            None => Self::new(TenantId::default(), id),
        }
    }
}

impl fmt::Display for ConversationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.tenant.as_str(), self.conversation)
    }
}

impl fmt::Debug for ConversationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_1_to_128_bytes_and_no_control_character() {
        assert_eq!(validate_id(""), Err(InvalidId::Empty));
        assert_eq!(validate_id(&"a".repeat(128)), Ok(()));
        assert_eq!(validate_id(&"a".repeat(129)), Err(InvalidId::TooLong(129)));
        assert_eq!(validate_id(&"é".repeat(64)), Ok(()));
        assert_eq!(validate_id(&"é".repeat(65)), Err(InvalidId::TooLong(130)));
        assert_eq!(validate_id("a\0b"), Err(InvalidId::Control('\0')));
        assert_eq!(validate_id("a\u{85}b"), Err(InvalidId::Control('\u{85}')));
        assert_eq!(validate_id("a b/c{d}:e"), Ok(()));
    }

    #[test]
    fn a_storage_id_leads_back_to_its_conversation() {
        for (tenant, conversation) in [("", "c"), ("default", "c"), ("acme", "c"), ("c", "default")] {
            let key = ConversationKey::new(TenantId::new(tenant).unwrap(), conversation).unwrap();
            assert_eq!(ConversationKey::from_storage_id(&key.storage_id()).unwrap(), key);
        }
    }
}
