use tokio::sync::{Semaphore, SemaphorePermit};

use crate::hot::{HotError, HotPage, HotValue};

/// Pages read at once, of at most 3 MiB each. No more, too, so that they do not stand in front of commits in Redis.
const READS: usize = 4;
/// Bytes of records on their way between the tiers, beside the pages that are being read.
const BYTES: u32 = 16 << 20;
/// What a record takes beside its bytes, decoded and as a row.
const RECORD_BYTES: usize = 512;

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
            HotValue::Record(record) => record.encoded.bytes().len() + RECORD_BYTES,
            HotValue::Collected { .. } | HotValue::Damaged { .. } => 0,
        });
        let bytes = u32::try_from(bytes.sum::<usize>()).map_or(BYTES, |bytes| bytes.min(BYTES));
        let room = self.bytes.acquire_many(bytes).await.expect("it is never closed");
        Ok((page, room))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;
    use qim_core::{
        ConversationKey, DEFAULT_CONTENT_TYPE, Decoder, RetentionClass, StoredMessage, StoredPayload,
        TenantId, UnixMillis, codec,
    };

    use super::*;
    use crate::archive::StoredRecord;

    fn page(bytes: usize) -> HotPage {
        let message = StoredMessage {
            sender: "alice".to_owned(),
            client_msg_id: "id".to_owned(),
            class: RetentionClass::Default,
            created_at: UnixMillis::EPOCH,
            expires_at: None,
            content_type: DEFAULT_CONTENT_TYPE.to_owned(),
            payload: StoredPayload::raw(vec![b'x'; bytes].into()),
        };
        let conversation = ConversationKey::new(TenantId::default(), "c").unwrap();
        let record = codec::encode(&conversation, &message);
        let encoded = Decoder::of(&conversation).check(record.into()).unwrap();
        HotPage { values: vec![HotValue::Record(StoredRecord { seq: 1, encoded })], ..HotPage::EMPTY }
    }

    #[tokio::test]
    async fn a_thousand_conversations_have_only_so_much_in_memory() {
        const PAGE: usize = 3 << 20;
        let (room, whole) = (Room::default(), page(PAGE));
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let copies = (0..1000).map(async |_| {
            let read = async {
                most.fetch_max(now.fetch_add(PAGE, Ordering::Relaxed) + PAGE, Ordering::Relaxed);
                Ok(whole.clone())
            };
            let (page, _room) = room.read(read).await.unwrap();
            tokio::task::yield_now().await;
            drop(page);
            now.fetch_sub(PAGE, Ordering::Relaxed);
        });
        join_all(copies).await;
        assert_eq!(now.into_inner(), 0);
        assert!(most.into_inner() <= READS * PAGE + BYTES as usize);
    }

    #[tokio::test]
    async fn one_that_is_larger_than_the_room_has_it_alone() {
        let room = Room::default();
        let whole = BYTES as usize + 1;
        let (first, taken) = room.read(async { Ok(page(whole)) }).await.unwrap();
        assert_eq!((first.values.len(), room.bytes.available_permits()), (1, 0));
        drop(taken);
        assert_eq!(room.bytes.available_permits(), BYTES as usize);
    }
}
