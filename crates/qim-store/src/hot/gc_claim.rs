//! How several writers share GC: none does what another has just done or is doing. It is only about work done twice; GC
//! itself comes to no harm by that, so that a claim needs no fencing.

use std::time::Duration;

use super::keys::ShardKeys;
use super::{HotError, RedisMessageStore};

/// On a cluster, whose nodes collect beside each other.
const CLUSTER_PARTS: u16 = 16;

impl RedisMessageStore {
    /// All shards, in the parts that writers claim. One server is one part: with two that collect at a time commits wait
    /// longer, and nothing is collected sooner.
    pub fn gc_parts(&self) -> Vec<Vec<u16>> {
        let parts = if self.connection.is_cluster() { CLUSTER_PARTS } else { 1 };
        let shards: Vec<u16> = self.shards.all().collect();
        shards.chunks(shards.len().div_ceil(usize::from(parts))).map(<[u16]>::to_vec).collect()
    }

    /// Claims a part of [`Self::gc_parts`] for `instance` for this long, or for longer where it has it; `false` where
    /// another has it. Works at the memory limit, too.
    pub async fn claim_gc(&self, part: &[u16], instance: &str, ttl: Duration) -> Result<bool, HotError> {
        let first = *part.first().expect("a part has shards");
        let mut call = self.scripts.claim_gc.call();
        call.key(ShardKeys(first).collector()).arg(instance);
        call.arg(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
        self.connection.script(&call).await
    }
}
