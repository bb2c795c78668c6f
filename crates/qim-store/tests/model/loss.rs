//! Redis loses data while its writers live (ADR 18): nothing that was acknowledged may be missing afterwards.

use std::time::Duration;

use qim_core::{RetentionClass, UnixMillis};
use qim_store::hot::{HotError, LINEAGE_WATCH_INTERVAL, Marks};
use qim_store::tiered::{PullError, TieredCommitError};

use crate::step::{CONVERSATIONS, Loss};
use crate::support::*;
use crate::world::World;

/// How often the writers look at Redis before it has to be as it was: a minute.
const LOOKS_MAX: u32 = 120;

impl World {
    pub(crate) async fn lose(&mut self, conversation: usize, loss: &Loss) {
        let fault = self.archive.set(Fault::None);
        if self.is_forgetful {
            self.archive_all().await;
        }
        match loss {
            Loss::All => _ = self.redis.command(&["FLUSHALL"]),
            Loss::Since(step) => {
                self.redis.kill_and_cut(*step.get(&self.file_bytes));
                self.redis.restart();
            }
        }
        self.file_bytes = vec![self.redis.append_only_bytes()];
        self.has_lost = true;
        // What is put back is hot again, whether or not it had been trimmed.
        self.marks = vec![Marks::NEW; CONVERSATIONS];
        self.put_back(conversation).await;
        self.archive.set(fault);
    }

    /// The archive gets all there is, and the writers learn that: what they have let go need not be put back.
    async fn archive_all(&mut self) {
        for conversation in 0..CONVERSATIONS {
            self.copy(conversation).await;
        }
        // Clocks may be apart, so what was committed just now might still be on its way.
        self.latest = self.latest + Duration::from_mins(1);
        self.now = self.latest;
        for writer in &self.writers {
            writer.watch_lineage(self.now, true).await.expect("both tiers answer");
        }
    }

    /// What the writers' daemons do, while a client sends a message until it is taken.
    async fn put_back(&mut self, conversation: usize) {
        let (key, draft) = (self.key(conversation), self.new_draft(RetentionClass::Default, self.now));
        let batch = self.as_sent(std::slice::from_ref(&draft));
        for _ in 0..LOOKS_MAX {
            self.look().await;
            match self.writer().commit(&key, &batch, self.now).await {
                Ok(answers) => return self.expect_taken(conversation, &draft, &answers),
                Err(TieredCommitError::Hot(
                    HotError::Checking { .. } | HotError::LineageEnded | HotError::Unavailable(_),
                )) => tokio::time::sleep(LINEAGE_WATCH_INTERVAL / 5).await,
                Err(error) => panic!("{error}"),
            }
        }
        panic!("no message was taken any more");
    }

    /// Every writer looks, as its daemon does every half second.
    async fn look(&self) {
        for writer in &self.writers {
            // Fails while Redis restarts.
            let _ = writer.watch_lineage(self.now, false).await;
        }
    }

    /// What a reader gets who tries again while the writers check. On a cluster each shard is through with a loss by itself.
    /// And where the clock of the machine is put back to before the last loss, the next new writer checks once more: to it
    /// Redis is one that may have lost data (ADR 18).
    pub(crate) async fn once_checked<T>(
        &self,
        read: impl AsyncFn() -> Result<T, PullError>,
    ) -> Result<T, PullError> {
        for _ in 0..LOOKS_MAX {
            match read().await {
                Err(PullError::Hot(HotError::Checking { reason, .. })) if self.has_lost => {
                    eprintln!("tried again: {reason}");
                    self.look().await;
                    tokio::time::sleep(LINEAGE_WATCH_INTERVAL / 5).await;
                }
                answer => return answer,
            }
        }
        read().await
    }

    /// When a client says that it first tried. A loss is dated by the clock of Redis, which the model's knows nothing of:
    /// what is sent since then may be what was sent before it.
    pub(crate) fn first_sent_at(&self, created_at: UnixMillis) -> UnixMillis {
        if self.has_lost { UnixMillis::EPOCH } else { created_at }
    }
}
