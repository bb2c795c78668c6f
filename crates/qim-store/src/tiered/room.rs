use tokio::sync::{Semaphore, SemaphorePermit};

use crate::hot::{HotError, HotPage, HotValue};

/// Pages read at once, of at most 3 MiB each. No more, too, so that they do not stand in front of commits in Redis.
const READS: usize = 4;
/// Bytes of records on their way between the tiers, beside the pages that are being read.
const BYTES: u32 = 16 << 20;

/// Bounds the memory of records on their way, however many conversations are worked on at once.
pub(super) struct Room {
    reads: Semaphore,
    bytes: Semaphore,
}

impl Default for Room {
    fn default() -> Self {
        Self { reads: Semaphore::new(READS), bytes: Semaphore::new(BYTES as usize) }
    }
}

impl Room {
    /// The page, once there is room for it. The room is taken until the permit is dropped.
    pub(super) async fn read(
        &self,
        page: impl Future<Output = Result<HotPage, HotError>>,
    ) -> Result<(HotPage, SemaphorePermit<'_>), HotError> {
        let _read = self.reads.acquire().await.expect("it is never closed");
        let page = page.await?;
        let bytes = page.values.iter().map(|value| match value {
            HotValue::Record(record) => record.encoded.len(),
            HotValue::Collected { .. } | HotValue::Damaged { .. } => 0,
        });
        let bytes = u32::try_from(bytes.sum::<usize>()).map_or(BYTES, |bytes| bytes.min(BYTES));
        let room = self.bytes.acquire_many(bytes).await.expect("it is never closed");
        Ok((page, room))
    }
}
