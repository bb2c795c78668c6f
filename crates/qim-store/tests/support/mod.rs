//! What the tests of the two tiers share: a real Redis for each test, and short ways to say what is committed.
#![allow(dead_code, unused_imports, reason = "each test binary uses its own part")]

mod faulty_archive;
mod tiered;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use qim_core::{
    ConversationKey, DEFAULT_CONTENT_TYPE, RetentionClass, RetentionDays, ShardCount, TenantId, UnixMillis,
};
use qim_store::archive::{self, ArchiveOptions};
use qim_store::hot::{Committed, Draft, Fence, GcReport, RedisMessageStore};
use qim_store::{ArchiveStore, RetentionPolicy, TieredMessageStore};
use qim_testkit::{RedisOptions, RedisServer};

pub(crate) use faulty_archive::{Fault, FaultyArchive};
pub(crate) use tiered::*;

pub(crate) const DAY: Duration = Duration::from_hours(24);
pub(crate) const HOUR: Duration = Duration::from_hours(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const WINDOW: Duration = Duration::from_hours(24 * 7);
/// 2027-01-15T08:00:00Z. No test reads the time of day.
pub(crate) const NOW: UnixMillis = UnixMillis::new(1_800_000_000_000);

/// How the Redis of a test is started that does not care: a server, or with `QIM_TEST_REDIS=cluster` a cluster.
pub(crate) fn redis_options() -> RedisOptions {
    let options = RedisServer::options().append_only();
    match std::env::var("QIM_TEST_REDIS").as_deref() {
        Err(_) | Ok("server") => options,
        Ok("cluster") => options.whole_cluster(),
        Ok(other) => panic!("QIM_TEST_REDIS={other}: not server, nor cluster"),
    }
}

/// A store on a Redis of its own; 30 days of retention, no trim window.
pub(crate) fn hot_store() -> (RedisServer, RedisMessageStore) {
    hot_store_on(redis_options())
}

/// The same, on one server in any case: where all shards share what a cluster has for each.
pub(crate) fn hot_store_on_one_server() -> (RedisServer, RedisMessageStore) {
    hot_store_on(RedisServer::options().append_only())
}

fn hot_store_on(options: RedisOptions) -> (RedisServer, RedisMessageStore) {
    let redis = options.start();
    let store = connect(&redis);
    (redis, store)
}

pub(crate) fn connect(redis: &RedisServer) -> RedisMessageStore {
    connect_to(&redis.url())
}

pub(crate) fn connect_to(url: &str) -> RedisMessageStore {
    let url = url.parse().expect("a Redis URL");
    RedisMessageStore::open(&url, ShardCount::new(4).unwrap(), Duration::from_secs(5))
        .expect("a store")
        .with_retention(thirty_days())
        .of_new_deployment()
}

pub(crate) fn thirty_days() -> RetentionPolicy {
    RetentionPolicy::from_days(RetentionDays::new(30).unwrap())
}

pub(crate) fn conversation(id: &str) -> ConversationKey {
    ConversationKey::new(TenantId::default(), id).expect("an id")
}

pub(crate) fn draft(id: &str, class: RetentionClass, created_at: UnixMillis) -> Draft {
    Draft {
        sender: "alice".into(),
        client_msg_id: id.into(),
        class,
        content_type: DEFAULT_CONTENT_TYPE.into(),
        payload: format!("body of {id}").into_bytes().into(),
        created_at,
    }
}

/// Bytes that do not compress, another sequence for each seed (xorshift).
pub(crate) fn noise(seed: u32, len: usize) -> Bytes {
    let mut state = u64::from(seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_be_bytes()[3]
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// Drafts `from..to` of class default, one a millisecond, the last of them at `last`.
pub(crate) fn drafts(range: std::ops::Range<u64>, last: UnixMillis) -> Vec<Draft> {
    let end = range.end;
    range
        .map(|i| {
            draft(
                &format!("id-{i}"),
                RetentionClass::Default,
                last - MS * u32::try_from(end - 1 - i).unwrap(),
            )
        })
        .collect()
}

pub(crate) fn seqs(committed: &[Committed]) -> Vec<u64> {
    committed.iter().map(|committed| committed.seq).collect()
}

/// The lease of a conversation's shard.
pub(crate) async fn fence(store: &RedisMessageStore, conversation: &ConversationKey) -> Fence {
    let shard = store.shards().shard_of(conversation);
    store.acquire_lease(shard, None, Duration::from_mins(10)).await.unwrap().expect("nobody else holds it")
}

/// GC over all shards until nothing is due.
pub(crate) async fn collect_all(store: &RedisMessageStore, now: UnixMillis) -> GcReport {
    let mut sum = GcReport::default();
    for shard in store.shards().all() {
        loop {
            let report = store.collect_expired(shard, now).await.unwrap();
            sum = sum.plus(report);
            if !report.more {
                break;
            }
        }
    }
    GcReport { more: false, ..sum }
}

/// A plain connection, to look at what is stored or to damage it.
pub(crate) async fn raw(redis: &RedisServer) -> redis::aio::MultiplexedConnection {
    // Longer than anything takes on a busy machine.
    let patient = redis::AsyncConnectionConfig::new()
        .set_connection_timeout(Some(Duration::from_secs(30)))
        .set_response_timeout(Some(Duration::from_secs(30)));
    let client = redis::Client::open(format!("redis://{}", redis.addr())).unwrap();
    client.get_multiplexed_async_connection_with_config(&patient).await.unwrap()
}

/// All members of the expiry index, over all shards, with their dates.
pub(crate) async fn registered(redis: &RedisServer) -> Vec<(String, u64)> {
    index(redis, "msghistorygc").await
}

/// All members of an index, over all shards, with their scores.
pub(crate) async fn index(redis: &RedisServer, name: &str) -> Vec<(String, u64)> {
    let mut raw = raw(redis).await;
    let mut all: Vec<(String, u64)> = Vec::new();
    for shard in 0..4 {
        let part: Vec<(String, u64)> = redis::cmd("ZRANGE")
            .arg(format!("qim:{{{shard}}}:{name}"))
            .arg(0)
            .arg(-1)
            .arg("WITHSCORES")
            .query_async(&mut raw)
            .await
            .unwrap();
        all.extend(part);
    }
    all.sort();
    all
}

/// Both tiers over a Redis and a SQLite file of their own, with 30 days of retention and 7 days of window.
pub(crate) struct Tiers {
    pub(crate) redis: RedisServer,
    pub(crate) store: TieredMessageStore,
    pub(crate) dir: tempfile::TempDir,
}

pub(crate) fn tiers() -> Tiers {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", dir.path().join("archive.db").display());
    let (redis, hot) = hot_store();
    let store = TieredMessageStore::with_trim(hot, open_archive(&url), WINDOW);
    Tiers { redis, store, dir }
}

pub(crate) fn open_archive(url: &str) -> Arc<dyn ArchiveStore> {
    let options = ArchiveOptions { timeout: Duration::from_secs(5), tls: None };
    archive::open(&url.parse().expect("an archive URL"), options).expect("an archive")
}

/// Copies everything that waits in this conversation.
pub(crate) async fn copy_all(store: &TieredMessageStore, conversation: &ConversationKey, now: UnixMillis) {
    let fence = fence(store.hot(), conversation).await;
    while store.copy(conversation, &fence, now).await.unwrap().more {}
    store.hot().release_lease(&fence).await.unwrap();
}

/// Trims everything that is due in this conversation; answers how much that was.
pub(crate) async fn trim_all(
    store: &TieredMessageStore,
    conversation: &ConversationKey,
    now: UnixMillis,
) -> u64 {
    let fence = fence(store.hot(), conversation).await;
    let mut removed = 0;
    loop {
        let report = store.trim(conversation, &fence, now).await.unwrap();
        removed += report.removed;
        if !report.more {
            break;
        }
    }
    store.hot().release_lease(&fence).await.unwrap();
    removed
}
