//! Which daemons there are, by the clock of Redis: a daemon whose own was an hour ahead when it died would count for an hour.

use std::time::Duration;

use qim_core::{PeerRetention, RetentionDays};

use super::keys::{ARCHIVERS, RETENTION};
use super::{HotError, RedisMessageStore};

/// A daemon that was not heard of for this long no longer counts where retentions are compared.
const PEER_FRESH: Duration = Duration::from_mins(1);

impl RedisMessageStore {
    /// Says that this archiver is alive, and answers how many are: those that were heard of for less than `fresh`.
    pub async fn announce_archiver(&self, instance: &str, fresh: Duration) -> Result<usize, HotError> {
        Ok(self.announce(ARCHIVERS, instance, "", fresh).await?.len().max(1))
    }

    /// Takes an archiver off the list.
    pub async fn withdraw_archiver(&self, instance: &str) -> Result<(), HotError> {
        self.connection.command(redis::cmd("HDEL").arg(ARCHIVERS).arg(instance)).await
    }

    /// Tells the other daemons which retention this one runs with (SPEC A12), and answers what they told.
    pub async fn exchange_retention(
        &self,
        role: &str,
        instance: &str,
        days: RetentionDays,
    ) -> Result<Vec<PeerRetention>, HotError> {
        let own = format!("{role}:{instance}");
        let told = self.announce(RETENTION, &own, &format!("{days}:"), PEER_FRESH).await?;
        let others = told.into_iter().filter(|(peer, _)| *peer != own);
        let mut peers: Vec<PeerRetention> = others
            .map(|(peer, days)| PeerRetention { peer, days: days.trim_end_matches(':').to_owned() })
            .collect();
        peers.sort_by(|a, b| a.peer.cmp(&b.peer));
        Ok(peers)
    }

    /// Takes this daemon's retention back when it stops.
    pub async fn withdraw_retention(&self, role: &str, instance: &str) -> Result<(), HotError> {
        self.connection.command(redis::cmd("HDEL").arg(RETENTION).arg(format!("{role}:{instance}"))).await
    }

    /// Names and what is said of them, this one among them.
    async fn announce(
        &self,
        list: &str,
        name: &str,
        what: &str,
        fresh: Duration,
    ) -> Result<Vec<(String, String)>, HotError> {
        let mut call = self.scripts.announce.call();
        call.key(list).arg(name).arg(what).arg(u64::try_from(fresh.as_millis()).unwrap_or(u64::MAX));
        self.connection.script(&call).await
    }
}
