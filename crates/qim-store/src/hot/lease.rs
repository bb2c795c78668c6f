use std::time::Duration;

use super::keys::ShardKeys;
use super::{HotError, RedisMessageStore};

/// The right to move the marks of a shard's conversations, until the lease runs out. The token in it grows with every
/// new holder, and scripts compare it: one who slept through the end of the lease is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    /// Which shard.
    pub shard: u16,
    pub(super) token: String,
}

impl RedisMessageStore {
    /// Takes or renews the lease of a shard for `ttl`; `None` where another holds it.
    pub async fn acquire_lease(
        &self,
        shard: u16,
        held: Option<&Fence>,
        ttl: Duration,
    ) -> Result<Option<Fence>, HotError> {
        let keys = ShardKeys(shard);
        let mut call = self.scripts.acquire_lease.call();
        call.key(keys.lease()).key(keys.fence());
        call.arg(held.map_or("", |fence| &fence.token))
            .arg(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
        let token: String = self.connection.script(&call).await?;
        Ok((!token.is_empty()).then_some(Fence { shard, token }))
    }

    /// Gives a lease up, so that another need not wait for its end.
    pub async fn release_lease(&self, fence: &Fence) -> Result<(), HotError> {
        let mut call = self.scripts.release_lease.call();
        call.key(ShardKeys(fence.shard).lease()).arg(&fence.token);
        self.connection.script::<u64>(&call).await?;
        Ok(())
    }
}
