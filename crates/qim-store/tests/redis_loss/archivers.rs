//! Archivers after a loss: who held a lease before it holds none.

use qim_store::hot::HotError;
use qim_store::tiered::MoveError;

use crate::support::*;
use crate::{Writer, check};

#[tokio::test]
async fn an_archiver_from_before_a_loss_can_do_no_harm_though_the_counter_of_tokens_is_lost() {
    let tiers = tiers();
    let mut writer = Writer::of(tiers.store.clone());
    let (store, conv) = (tiers.store.clone(), conversation("c"));
    writer.send("c", 0..3).await;
    let stale = fence(store.hot(), &conv).await;
    tiers.redis.command(&["FLUSHALL"]);
    writer.send_until_taken(&[], "c", "id-3").await;
    let before = store.marks(&conv, NOW).await.unwrap();
    // Nobody holds the lease; then somebody else does, with the first token of the new counter.
    for is_held in [false, true] {
        let fresh = if is_held { Some(fence(store.hot(), &conv).await) } else { None };
        assert_ne!(fresh.as_ref(), Some(&stale), "no token is given again");
        for refused in
            [store.copy(&conv, &stale, NOW).await.err(), store.trim(&conv, &stale, NOW).await.err()]
        {
            assert!(matches!(refused, Some(MoveError::Hot(HotError::Fenced))), "{refused:?}");
        }
        assert_eq!(store.marks(&conv, NOW).await.unwrap(), before, "it moved nothing");
        let Some(fresh) = fresh else { continue };
        assert_eq!(store.hot().acquire_lease(stale.shard, Some(&stale), SECOND).await.unwrap(), None);
        store.hot().release_lease(&stale).await.unwrap();
        assert!(!store.copy(&conv, &fresh, NOW).await.unwrap().more, "the stale one released nothing");
    }
    assert_eq!(store.marks(&conv, NOW).await.unwrap().archived, 4);
    check(&[&writer]).await;
}
