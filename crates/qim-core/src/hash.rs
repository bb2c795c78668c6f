use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use crate::{CodecError, ConversationKey, Decompressor, EncodedRecord, Message, RetentionClass};

/// How many virtual shards a deployment has: 1..=4096, stored with the data and never changed (`QIM_SHARDS`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardCount(u16);

impl ShardCount {
    /// The number of shards where nothing is configured.
    pub const DEFAULT: Self = Self(256);

    /// `None` outside 1..=4096.
    pub const fn new(count: u16) -> Option<Self> {
        if matches!(count, 1..=4096) { Some(Self(count)) } else { None }
    }

    /// The number of shards.
    pub const fn get(self) -> u16 {
        self.0
    }

    /// The shard of a conversation. The same for ever: keys in Redis are named after it.
    pub fn shard_of(self, key: &ConversationKey) -> u16 {
        let shard = key.stable_hash() % u64::from(self.0);
        u16::try_from(shard).expect("a remainder is below its divisor")
    }

    /// All shards.
    pub fn all(self) -> impl ExactSizeIterator<Item = u16> + Clone {
        0..self.0
    }
}

/// What [`ConversationKey::stable_hash`] answers.
pub(crate) fn conversation_hash(tenant: &str, conversation: &str) -> u64 {
    xxh3_64(&joined(tenant, conversation))
}

/// Stands for (sender, `client_msg_id`) within a conversation in the archive, which does not compare the record behind
/// it: 128 bits, so that no two ever meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientIdHash(pub u128);

impl ClientIdHash {
    /// XXH3-128 of sender, NUL and id.
    pub fn of(sender: &str, client_msg_id: &str) -> Self {
        Self(xxh3_128(&joined(sender, client_msg_id)))
    }

    /// As stored: big-endian.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }
}

fn joined(first: &str, second: &str) -> Vec<u8> {
    [first.as_bytes(), b"\0", second.as_bytes()].concat()
}

/// Identifies what a message says: class, content type and payload. A retry says the same.
pub fn body_digest(message: &Message) -> u64 {
    let mut body = body_front(message.class, &message.content_type, message.payload.len());
    body.extend_from_slice(&message.payload);
    xxh3_64(&body)
}

impl EncodedRecord {
    /// [`ClientIdHash`] of its sender and id.
    pub fn client_id_hash(&self) -> ClientIdHash {
        let (sender, id) = (self.sender(), self.client_msg_id());
        let mut joined = Vec::with_capacity(sender.len() + 1 + id.len());
        sender.push_to(&mut joined);
        joined.push(0);
        id.push_to(&mut joined);
        ClientIdHash(xxh3_128(&joined))
    }

    /// [`body_digest`] of the message. It is over what the payload says, not over how it is stored, since a retry may
    /// come when payloads are stored in another way.
    pub fn body_digest(&self, decompressor: &Decompressor) -> Result<u64, CodecError> {
        let (encoding, content) = self.stored_payload();
        let mut body = body_front(self.class(), self.content_type(), self.payload_len());
        decompressor.open_into(&mut body, encoding, content)?;
        Ok(xxh3_64(&body))
    }
}

/// What the payload is behind, with room for it.
fn body_front(class: RetentionClass, content_type: &str, payload_len: usize) -> Vec<u8> {
    let mut body = Vec::with_capacity(payload_len + content_type.len() + 2);
    body.push(class as u8);
    body.extend_from_slice(content_type.as_bytes());
    body.push(0);
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TenantId;

    fn key(tenant: &str, conversation: &str) -> ConversationKey {
        ConversationKey::new(TenantId::new(tenant).unwrap(), conversation).unwrap()
    }

    /// These numbers name keys of stored data: when one changes, the code is wrong, not the test.
    #[test]
    fn conversation_and_shard_hashes_are_stable_for_ever() {
        let vectors = [
            ("default", "conv-1", 0xe1b5_246b_3442_de03, 3),
            ("acme", "conv-1", 0x4e32_f63d_c283_d080, 128),
            ("default", "Straße/会话", 0xb819_0cf6_aa66_a69b, 155),
        ];
        for (tenant, conversation, hash, shard) in vectors {
            let key = key(tenant, conversation);
            assert_eq!(key.stable_hash(), hash, "{key}");
            assert_eq!(ShardCount::DEFAULT.shard_of(&key), shard, "{key}");
        }
    }

    #[test]
    fn tenant_and_conversation_do_not_run_together() {
        assert_ne!(key("ab", "c").stable_hash(), key("a", "bc").stable_hash());
        assert_ne!(ClientIdHash::of("ab", "c"), ClientIdHash::of("a", "bc"));
    }

    #[test]
    fn shards_are_used_evenly() {
        let shards = ShardCount::new(16).unwrap();
        let mut used = [0_u32; 16];
        for i in 0..16_000 {
            used[usize::from(shards.shard_of(&key("default", &format!("conv-{i}"))))] += 1;
        }
        assert!(used.iter().all(|n| (850..1150).contains(n)), "{used:?}");
    }

    #[test]
    fn a_deployment_has_1_to_4096_shards() {
        assert_eq!(ShardCount::new(0), None);
        assert_eq!(ShardCount::new(4097), None);
        assert_eq!(ShardCount::new(4096).unwrap().all().len(), 4096);
    }
}
