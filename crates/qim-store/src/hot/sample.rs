use futures::{StreamExt, TryStreamExt, stream};
use qim_core::{ConversationKey, UnixMillis};

use super::{HotError, HotValue, PageStart, RedisMessageStore};

/// Conversations read at once.
const CONCURRENCY: usize = 16;
/// Conversations that are looked at, over all shards.
const CONVERSATIONS_MAX: usize = 40_000;
/// The newest messages of a conversation that are looked at: many conversations say more than long ones.
const MESSAGES_MAX: usize = 64;

impl RedisMessageStore {
    /// Messages to train a dictionary on: some of the newest of some of the conversations, of each shard the same
    /// number. Only what a reader may see at `now`, and nothing that never expires. `take` is told each with its
    /// conversation and sender.
    pub async fn sample(
        &self,
        now: UnixMillis,
        mut take: impl FnMut(&ConversationKey, &str, &[u8]),
    ) -> Result<(), HotError> {
        let of_a_shard = CONVERSATIONS_MAX.div_ceil(usize::from(self.shards.get()));
        for shard in self.shards.all() {
            let conversations = self.trim_candidates(shard, UnixMillis::MAX, of_a_shard).await?;
            let pages: Vec<_> = stream::iter(conversations)
                .map(|conversation| async move {
                    let start = PageStart::Before(u64::MAX);
                    let page = self.read_page(&conversation, start, MESSAGES_MAX, now).await;
                    match page {
                        // A damaged conversation stops no other, here as everywhere.
                        Err(HotError::Corrupt { .. }) => Ok((conversation, Vec::new())),
                        page => Ok::<_, HotError>((conversation, page?.values)),
                    }
                })
                .buffered(CONCURRENCY)
                .try_collect()
                .await?;
            for (conversation, values) in pages {
                for record in values.iter().filter_map(|value: &HotValue| value.readable(now)) {
                    if record.expires_at().is_none() {
                        continue;
                    }
                    if let Some(id) = record.dictionary()
                        && self.decompressor.dictionary(id).is_none()
                    {
                        self.learn_dictionary(id).await?;
                    }
                    if let Ok(payload) = record.payload().open(&self.decompressor) {
                        take(&conversation, &record.sender().to_string(), &payload);
                    }
                }
            }
        }
        Ok(())
    }
}
