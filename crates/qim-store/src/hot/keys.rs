//! The names of everything qim keeps in Redis. All keys of a conversation carry the hash tag of its shard, so that
//! they live on one node of a cluster.

use std::fmt::Display;

use qim_core::{ConversationKey, ShardCount};

/// The deployment's own facts, which belong to no shard.
pub(super) const DEPLOYMENT: &str = "qim:deployment";
/// Archivers that are alive: a hash of instance to the time of the last sign of life.
pub(super) const ARCHIVERS: &str = "qim:archivers";
/// The retention each daemon runs with: a hash of `role:instance` to `days:time`.
pub(super) const RETENTION: &str = "qim:retention";
/// What payloads were compressed with: a hash, see dictionaries.rs.
pub(super) const DICTIONARIES: &str = "qim:dictionaries";

/// Counts how often it was waited until commits were durable (durability.rs).
pub(super) const BARRIER: &str = "qim:barrier";

/// What commits may go together in one call, and have one history: all of them on one server, those of a shard on a
/// cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Lane {
    /// The one server.
    Server,
    /// A shard of a cluster.
    Shard(u16),
}

impl Lane {
    fn named(self, name: &str) -> String {
        match self {
            Self::Server => format!("qim:{name}"),
            Self::Shard(shard) => ShardKeys(shard).named(name),
        }
    }

    /// Which history of this Redis it is (lua/lineage.lua).
    pub(super) fn lineage(self) -> String {
        self.named("lineage")
    }

    /// Writers that have acknowledged something in it: a hash of writer to the number of the lineage for which it has put
    /// back what it acknowledged, and its last sign of life (`lua/enter_lineage.lua`).
    pub(super) fn writers(self) -> String {
        self.named("writers")
    }

    /// What this history goes on from (`lua/enter_lineage.lua`).
    pub(super) fn ancestors(self) -> String {
        self.named("ancestors")
    }

    /// Where writers wait for others that have to put something back first: a hash of storage id to writers and seqs
    /// (`lua/restore_messages.lua`).
    pub(super) fn pending(self) -> String {
        self.named("pending")
    }
}

/// The keys of one shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ShardKeys(pub(super) u16);

impl ShardKeys {
    fn named(self, name: &str) -> String {
        format!("qim:{{{}}}:{name}", self.0)
    }

    /// The expiry index: a ZSET of `storage id NUL seq` by `expires_at` (SPEC A8).
    pub(super) fn gc(self) -> String {
        self.named("msghistorygc")
    }

    /// Conversations with records that the archive has not got: a ZSET by when to copy them next.
    pub(super) fn unarchived(self) -> String {
        self.named("unarchived")
    }

    /// Conversations that were put off by [`Self::unarchived`]: a ZSET by since when they wait.
    pub(super) fn aside(self) -> String {
        self.named("aside")
    }

    /// Conversations with records: a ZSET by `created_at` of the first, or later where its trim has to wait.
    pub(super) fn trim(self) -> String {
        self.named("trim")
    }

    /// What was found damaged: a hash of `storage id NUL seq`, or `storage id NUL` for a whole conversation, to
    /// `time where reason`.
    pub(super) fn set_aside(self) -> String {
        self.named("setaside")
    }

    /// Counters, a hash of records `committed`, `removed` (collected or trimmed) and `archived` (or expired before
    /// that), which only grow and only in their sums over all shards mean something, and of the shard's conversations
    /// `idle`.
    pub(super) fn stats(self) -> String {
        self.named("stats")
    }

    /// Conversations with nothing hot: a hash of buckets (lua/idle.lua).
    pub(super) fn idle(self) -> String {
        self.named("idle")
    }

    /// The fencing token of the archiver that works on the shard.
    pub(super) fn lease(self) -> String {
        self.named("lease")
    }

    /// Which writer collects this shard and those after it now.
    pub(super) fn collector(self) -> String {
        self.named("collector")
    }

    /// Names nothing, ever: see `lua/slot_guard.lua`.
    pub(super) fn guard(self) -> String {
        self.named("guard")
    }

    /// Counts holders of the lease.
    pub(super) fn fence(self) -> String {
        self.named("fence")
    }
}

/// The keys of one conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ConversationKeys {
    pub(super) shard: ShardKeys,
    pub(super) id: String,
}

impl ConversationKeys {
    pub(super) fn new(shards: ShardCount, conversation: &ConversationKey) -> Self {
        Self { shard: ShardKeys(shards.shard_of(conversation)), id: conversation.storage_id() }
    }

    /// Records and header.
    pub(super) fn records(&self) -> String {
        self.named('c', "")
    }

    /// Buckets of an index of fingerprints, where there are too many for hints in the header. Scripts make this name from
    /// that of the list as well.
    pub(super) fn fingerprints(&self) -> String {
        self.named('f', "")
    }

    /// The pieces of a large record. Scripts make this name as well.
    pub(super) fn pieces(&self, seq: u64) -> String {
        self.named('l', format_args!("\0{seq}"))
    }

    fn named(&self, kind: char, rest: impl Display) -> String {
        format!("qim:{{{}}}:{kind}:{}{rest}", self.shard.0, self.id)
    }
}

/// `storage id NUL seq`: what names a record in an index.
pub(super) fn parse_member(member: &str) -> Option<(&str, u64)> {
    let (id, seq) = member.rsplit_once('\0')?;
    Some((id, seq.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use qim_core::TenantId;

    #[test]
    fn all_keys_of_a_conversation_carry_the_tag_of_its_shard() {
        let conversation = ConversationKey::new(TenantId::default(), "conv-1").unwrap();
        let keys = ConversationKeys::new(ShardCount::DEFAULT, &conversation);
        let tag = format!("qim:{{{}}}:", ShardCount::DEFAULT.shard_of(&conversation));
        for key in [keys.records(), keys.fingerprints(), keys.pieces(1), keys.shard.gc(), keys.shard.lease()]
        {
            assert!(key.starts_with(&tag), "{key}");
        }
    }

    #[test]
    fn a_member_names_conversation_and_seq() {
        assert_eq!(parse_member("conv\u{0}12"), Some(("conv", 12)));
        assert_eq!(parse_member("acme\u{0}conv\u{0}12"), Some(("acme\u{0}conv", 12)));
        assert_eq!(parse_member("conv"), None);
        assert_eq!(parse_member("conv\u{0}x"), None);
    }
}
