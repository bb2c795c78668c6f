//! A new writer makes itself known before it acknowledges anything.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use tokio::time::sleep;

use super::super::keys::Lane;
use super::super::{HotError, RedisMessageStore};
use super::Lineages;

/// A writer that was not heard of for this long, by the server's clock, is not waited for: four of its intervals.
const PRESENT_MS: u64 = 2_000;
const WAIT: Duration = Duration::from_millis(100);
/// No introduction takes longer.
const WAIT_MAX: Duration = Duration::from_secs(4);

impl RedisMessageStore {
    /// Waits until each living writer has looked since this one signed on: up to half a second, or two where another one has
    /// just died. If all of Redis is lost, and this writer with it, the others are then the only ones that know of it; one of
    /// which nobody knew would not be missed, and its seqs would be given again.
    pub(crate) async fn introduce_writer(&self) -> Result<(), HotError> {
        let lanes = self.lanes();
        try_join_all(lanes.iter().map(|lane| self.enter_lineage(*lane))).await?;
        let mut signed_on: HashMap<Lane, u64> =
            lanes.into_iter().map(|lane| (lane, self.lineages.seen_at(lane))).collect();
        let began = Instant::now();
        loop {
            signed_on.retain(|lane, at| !self.lineages.is_known_since(*lane, *at));
            if signed_on.is_empty() || began.elapsed() > WAIT_MAX {
                return Ok(());
            }
            sleep(WAIT).await;
            try_join_all(signed_on.keys().map(|lane| self.enter_lineage(*lane))).await?;
        }
    }
}

impl Lineages {
    /// The server's time of the last look; 0: there was none.
    fn seen_at(&self, lane: Lane) -> u64 {
        self.lanes().get(&lane).map_or(0, |known| known.seen_at)
    }

    /// Whether all others that live have looked after the server's time `at`.
    fn is_known_since(&self, lane: Lane, at: u64) -> bool {
        self.lanes().get(&lane).is_none_or(|known| {
            let mut others = known.writers.iter().filter(|writer| writer.name != self.writer);
            others.all(|writer| writer.seen_at > at || writer.seen_at + PRESENT_MS < known.seen_at)
        })
    }
}
