//! Records that Redis keeps in pieces, on a real Redis and SQLite: they are read, recognised, collected and trimmed like
//! any other, and no piece is ever left behind.

mod support;

use bytes::Bytes;
use qim_core::RetentionClass::{Default as DefaultClass, Ephemeral24h};
use qim_core::{Compression, ConversationKey, PayloadForm, TenantId, UnixMillis, codec, stub};
use qim_store::TieredMessageStore;
use qim_store::hot::{CommitError, Draft, HotError, HotPage, HotValue, PageStart, RedisMessageStore};
use qim_store::tiered::{MoveError, Position, PullRequest, TieredDraft};
use qim_testkit::{RedisCluster, RedisServer};
use support::*;

const KIB: usize = 1024;
const SIZES: [usize; 3] = [17 * KIB, 64 * KIB, 1024 * KIB];

/// Text that compresses to about half.
fn digits(seed: u32, len: usize) -> Bytes {
    noise(seed, len).iter().map(|byte| b"0123456789abcdef"[usize::from(byte % 16)]).collect()
}

fn large(id: &str, payload: Bytes) -> Draft {
    Draft { payload, ..draft(id, DefaultClass, NOW) }
}

/// Of these sizes, incompressible and not, each between small ones.
fn mixed(sizes: &[usize]) -> Vec<Draft> {
    let mut drafts = vec![draft("first", DefaultClass, NOW)];
    for (seed, len) in (1..).zip(sizes) {
        drafts.push(large(&format!("noise-{len}"), noise(seed, *len)));
        drafts.push(draft(&format!("small-{len}"), DefaultClass, NOW));
        drafts.push(large(&format!("digits-{len}"), digits(seed, *len)));
    }
    drafts
}

async fn page(store: &RedisMessageStore, conversation: &ConversationKey, start: PageStart) -> HotPage {
    store.read_page(conversation, start, 50, NOW).await.unwrap()
}

/// The whole log, page by page.
async fn log(
    store: &TieredMessageStore,
    conversation: &ConversationKey,
    now: UnixMillis,
) -> Vec<(u64, Bytes)> {
    let (mut after, mut log) = (0, Vec::new());
    loop {
        let request = PullRequest {
            position: Position::After(after),
            limit: 50,
            fail_on_expired: false,
            form: PayloadForm::Plain,
        };
        let page = store.pull(conversation, request, now).await.unwrap();
        log.extend(page.records.into_iter().map(|record| (record.seq, record.payload)));
        if !page.has_more {
            return log;
        }
        assert!(page.next_seq > after, "a page goes forward");
        after = page.next_seq;
    }
}

/// The lists of pieces there are, sorted.
async fn lists_of_pieces(redis: &RedisServer) -> Vec<String> {
    let mut keys: Vec<String> =
        redis::cmd("KEYS").arg("qim:*:l:*").query_async(&mut raw(redis).await).await.unwrap();
    keys.sort();
    keys
}

fn key_of(store: &RedisMessageStore, conversation: &ConversationKey, name: &str) -> String {
    format!("qim:{{{}}}:{name}", store.shards().shard_of(conversation))
}

#[tokio::test]
async fn large_payloads_come_back_as_they_were_from_either_tier_and_leave_no_pieces_behind() {
    for (compression, in_pieces) in [(Compression::Off, 6), (Compression::Zstd, 5)] {
        let Tiers { redis, dir, .. } = tiers();
        let url = format!("sqlite:{}", dir.path().join("archive.db").display());
        let hot = connect(&redis).with_compression(compression);
        let store = TieredMessageStore::with_trim(hot, open_archive(&url), WINDOW);
        let conv = conversation("c");
        let drafts = mixed(&SIZES);
        let sent: Vec<_> = (1..).zip(&drafts).map(|(seq, draft)| (seq, draft.payload.clone())).collect();
        let batch: Vec<_> =
            drafts.into_iter().map(|draft| TieredDraft { draft, first_sent_at: None }).collect();
        store.commit(&conv, &batch, NOW).await.unwrap();
        assert_eq!(lists_of_pieces(&redis).await.len(), in_pieces, "{compression:?}");
        assert!(log(&store, &conv, NOW).await == sent, "from Redis");
        let newest = page(store.hot(), &conv, PageStart::Before(u64::MAX)).await;
        for value in &newest.values {
            let HotValue::Record(record) = value else { panic!("{value:?}") };
            assert!(
                record.encoded.bytes() == &codec::encode(&conv, &record.encoded.message()),
                "seq {}",
                record.seq
            );
        }
        copy_all(&store, &conv, NOW).await;
        assert_eq!(trim_all(&store, &conv, NOW + 8 * DAY).await, sent.len() as u64);
        assert_eq!(lists_of_pieces(&redis).await, [""; 0]);
        assert!(log(&store, &conv, NOW + 8 * DAY).await == sent, "from the archive");
    }
}

#[tokio::test]
async fn a_large_message_sent_again_is_a_duplicate_and_another_body_is_refused() {
    let (redis, store) = hot_store();
    let store = store.with_compression(Compression::Zstd);
    let conv = conversation("c");
    let batch = mixed(&SIZES);
    let first = store.commit(&conv, &batch, NOW, None).await.unwrap();
    let again = store.commit(&conv, &batch, NOW, None).await.unwrap();
    assert!(again.iter().all(|committed| committed.duplicate));
    assert_eq!(seqs(&again), seqs(&first));
    assert_eq!(again[1].dates, first[1].dates);
    for other in [noise(9, 64 * KIB), "short".into()] {
        let error = store.commit(&conv, &[large("noise-65536", other)], NOW, None).await.unwrap_err();
        assert!(matches!(error, CommitError::AlreadyExists { index: 0, seq: 5 }), "{error}");
    }
    let error = store.commit(&conv, &[large("first", noise(9, 64 * KIB))], NOW, None).await.unwrap_err();
    assert!(matches!(error, CommitError::AlreadyExists { index: 0, seq: 1 }), "{error}");
    assert_eq!(lists_of_pieces(&redis).await.len(), 5);
}

#[tokio::test]
async fn scripts_and_codec_read_the_same_in_a_stub() {
    let (redis, store) = hot_store();
    let conv = ConversationKey::new(TenantId::new("acme").unwrap(), "c").unwrap();
    store.commit(&conv, &[large("1", noise(1, 20 * KIB))], NOW, None).await.unwrap();
    let mut raw = raw(&redis).await;
    let list = key_of(&store, &conv, "c:acme\0c");
    let value: Vec<u8> = redis::cmd("LINDEX").arg(&list).arg(0).query_async(&mut raw).await.unwrap();
    let script = redis::Script::new(concat!(
        include_str!("../lua/linear_hashing.lua"),
        include_str!("../lua/idle.lua"),
        include_str!("../lua/conversation.lua"),
        include_str!("../lua/pieces.lua"),
        "local v = ARGV[1] return { is_record(v) and is_stub(v) and 1 or 0, created_at(v), expires_at(v), ",
        "record_bytes(v), identity_of(v), pieces_key(KEYS[1], 1) }"
    ));
    let read: (u64, u64, u64, usize, Vec<u8>, String) =
        script.key(&list).arg(&value).invoke_async(&mut raw).await.unwrap();
    let (form, identity) = codec::identity(&value);
    let pieces = key_of(&store, &conv, "l:acme\0c\u{0}1");
    let identity = [&[form], identity].concat();
    assert_eq!(
        read,
        (1, NOW.get(), (NOW + 30 * DAY).get(), stub::announced_len(&value), identity, pieces.clone())
    );
    assert_eq!(lists_of_pieces(&redis).await, [pieces]);
}

#[tokio::test]
async fn gc_removes_the_pieces_and_a_retry_is_known_still() {
    let (redis, store) = hot_store();
    let conv = ConversationKey::new(TenantId::new("acme").unwrap(), "c").unwrap();
    let batch = [
        Draft { class: Ephemeral24h, ..large("short-lived", noise(1, 64 * KIB)) },
        large("stays", noise(2, 64 * KIB)),
    ];
    store.commit(&conv, &batch, NOW, None).await.unwrap();
    assert_eq!(collect_all(&store, NOW + DAY - MS).await.collected, 0);
    assert_eq!(lists_of_pieces(&redis).await.len(), 2);
    assert_eq!(collect_all(&store, NOW + DAY).await.collected, 1);
    assert_eq!(lists_of_pieces(&redis).await, [key_of(&store, &conv, "l:acme\0c\u{0}2")]);
    let values = page(&store, &conv, PageStart::After(0)).await.values;
    assert!(matches!(values[..], [HotValue::Collected { seq: 1, .. }, HotValue::Record(_)]));
    let again = store.commit(&conv, &batch, NOW, None).await.unwrap();
    assert!(again.iter().all(|committed| committed.duplicate) && again[0].dates.is_none());
}

#[tokio::test]
async fn a_trim_removes_the_pieces_of_what_it_removes_and_no_others() {
    let Tiers { redis, store, dir: _dir } = tiers();
    let (conv, hot) = (conversation("c"), store.hot().clone());
    for (id, created_at) in [("1", NOW - 8 * DAY), ("2", NOW - 8 * DAY), ("3", NOW), ("4", NOW)] {
        let draft = Draft { created_at, ..large(id, noise(1, 40 * KIB)) };
        hot.commit(&conv, &[draft], NOW, None).await.unwrap();
    }
    copy_all(&store, &conv, NOW).await;
    assert_eq!(trim_all(&store, &conv, NOW).await, 2);
    let left = ["l:c\u{0}3", "l:c\u{0}4"].map(|name| key_of(&hot, &conv, name));
    assert_eq!(lists_of_pieces(&redis).await, left);
    assert_eq!(log(&store, &conv, NOW).await.len(), 4);
}

#[tokio::test]
async fn at_the_memory_limit_nothing_of_a_large_message_is_stored() {
    let (redis, store) = hot_store();
    let conv = conversation("c");
    store.commit(&conv, &drafts(0..3, NOW), NOW, None).await.unwrap();
    redis.command(&["CONFIG", "SET", "maxmemory", "1mb"]);
    let error = store.commit(&conv, &mixed(&SIZES), NOW, None).await.unwrap_err();
    assert!(matches!(error, CommitError::Hot(HotError::OutOfMemory)), "{error}");
    assert_eq!(lists_of_pieces(&redis).await, [""; 0]);
    redis.command(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(seqs(&store.commit(&conv, &mixed(&[64 * KIB]), NOW, None).await.unwrap()), [4, 5, 6, 7]);
}

#[tokio::test]
async fn a_commit_that_fails_leaves_no_pieces_and_pieces_that_nobody_owns_do_no_harm() {
    let (redis, store) = hot_store();
    let (damaged, good) = (conversation("damaged"), conversation("good"));
    store.commit(&damaged, &drafts(0..1, NOW), NOW, None).await.unwrap();
    let list = key_of(&store, &damaged, "c:damaged");
    redis.command(&["LPUSH", &list, "extra"]);
    // Left by whoever deleted the conversation by hand.
    redis.command(&["RPUSH", &key_of(&store, &good, "l:good\u{0}2"), "rubbish"]);
    let batch = mixed(&[64 * KIB]);
    let (refused, stored) =
        tokio::join!(store.commit(&damaged, &batch, NOW, None), store.commit(&good, &batch, NOW, None));
    assert!(matches!(refused, Err(CommitError::Hot(HotError::Corrupt { .. }))), "{refused:?}");
    assert_eq!(seqs(&stored.unwrap()), [1, 2, 3, 4]);
    assert_eq!(redis.command(&["LLEN", &list]).integer(), 3, "extra, record and header");
    let pieces = ["l:good\u{0}2", "l:good\u{0}4"].map(|name| key_of(&store, &good, name));
    assert_eq!(lists_of_pieces(&redis).await, pieces);
    let values = page(&store, &good, PageStart::After(0)).await.values;
    assert!(values.iter().all(|value| value.readable(NOW).is_some()));
}

#[tokio::test]
async fn damaged_pieces_are_named_their_record_is_not_served_and_its_neighbours_are() {
    for damage in ["DEL", "LPOP", "LSET", "SET", "COPY", "stub"] {
        let Tiers { redis, store, dir: _dir } = tiers();
        let conv = conversation("c");
        let batch: Vec<_> = (1..=5).map(|i| large(&i.to_string(), noise(i, 20 * KIB))).collect();
        store.hot().commit(&conv, &batch, NOW, None).await.unwrap();
        let [list, pieces, others] =
            ["c:c", "l:c\u{0}3", "l:c\u{0}4"].map(|name| key_of(store.hot(), &conv, name));
        let mut raw = raw(&redis).await;
        match damage {
            "DEL" => redis::cmd("DEL").arg(&pieces).exec_async(&mut raw).await.unwrap(),
            "LPOP" => redis::cmd("LPOP").arg(&pieces).exec_async(&mut raw).await.unwrap(),
            "LSET" => redis::cmd("LSET").arg(&pieces).arg(1).arg("x").exec_async(&mut raw).await.unwrap(),
            "SET" => redis::cmd("SET").arg(&pieces).arg("x").exec_async(&mut raw).await.unwrap(),
            "COPY" => {
                let mut copy = redis::cmd("COPY");
                copy.arg(&others).arg(&pieces).arg("REPLACE").exec_async(&mut raw).await.unwrap();
            }
            _ => {
                let mut stub: Vec<u8> =
                    redis::cmd("LINDEX").arg(&list).arg(2).query_async(&mut raw).await.unwrap();
                *stub.last_mut().unwrap() ^= 1;
                redis::cmd("LSET").arg(&list).arg(2).arg(stub).exec_async(&mut raw).await.unwrap();
            }
        }
        let served: Vec<u64> = log(&store, &conv, NOW).await.into_iter().map(|(seq, _)| seq).collect();
        assert_eq!(served, [1, 2, 4, 5], "{damage}");
        let aside = store.hot().set_aside_reason(&conv).await.unwrap().unwrap();
        assert!(aside.starts_with("seq 3") && aside.contains("pieces"), "{damage}: {aside}");
        let error = store.hot().commit(&conv, &batch[2..3], NOW, None).await.unwrap_err();
        assert!(matches!(error, CommitError::Hot(HotError::Corrupt { .. })), "{damage}: {error}");
        let fence = fence(store.hot(), &conv).await;
        let error = store.copy(&conv, &fence, NOW).await.unwrap_err();
        assert!(
            matches!(&error, MoveError::Poisoned(reason) if reason.contains("seq 3")),
            "{damage}: {error}"
        );
        assert_eq!(store.marks(&conv, NOW).await.unwrap().archived, 2, "{damage}");
    }
}

#[tokio::test]
async fn a_page_of_large_records_is_cut_at_a_few_megabytes_and_has_at_least_one() {
    let (_redis, store) = hot_store();
    let conv = conversation("c");
    for i in 1..=10 {
        store.commit(&conv, &[large(&i.to_string(), noise(i, 1024 * KIB - 300))], NOW, None).await.unwrap();
    }
    let seqs = async |start| -> Vec<u64> {
        page(&store, &conv, start).await.values.iter().map(HotValue::seq).collect()
    };
    assert_eq!(seqs(PageStart::After(0)).await, [1, 2, 3]);
    assert_eq!(seqs(PageStart::Unarchived).await, [1, 2, 3]);
    assert_eq!(seqs(PageStart::Before(10)).await, [7, 8, 9]);
    assert_eq!(seqs(PageStart::Before(u64::MAX)).await, [8, 9, 10]);
    let huge = large("huge", noise(11, 4 * 1024 * KIB));
    store.commit(&conv, &[huge], NOW, None).await.unwrap();
    assert_eq!(seqs(PageStart::After(10)).await, [11]);
    assert_eq!(seqs(PageStart::Before(u64::MAX)).await, [11]);
}

#[tokio::test]
async fn what_is_removed_while_it_is_read_is_not_taken_for_damage() {
    let Tiers { redis, store, dir: _dir } = tiers();
    let conv = conversation("c");
    for round in 0..12 {
        let batch: Vec<_> = (0..16)
            .map(|i| {
                let class = if i % 2 == 0 { Ephemeral24h } else { DefaultClass };
                Draft { class, ..large(&format!("{round}-{i}"), noise(i + 1, 20 * KIB)) }
            })
            .collect();
        store.hot().commit(&conv, &batch, NOW, None).await.unwrap();
        copy_all(&store, &conv, NOW).await;
        let reading = tokio::spawn({
            let (store, conv, retried) = (store.clone(), conv.clone(), batch[15].clone());
            async move {
                for _ in 0..20 {
                    for start in [PageStart::After(0), PageStart::Before(u64::MAX)] {
                        let values = page(store.hot(), &conv, start).await.values;
                        let is_damaged = |value: &HotValue| matches!(value, HotValue::Damaged { .. });
                        assert!(!values.iter().any(is_damaged), "{values:?}");
                    }
                    let floor = store.marks(&conv, NOW).await.unwrap().floor;
                    let known = store.hot().commit(&conv, std::slice::from_ref(&retried), NOW, Some(floor));
                    match known.await {
                        Ok(committed) if committed[0].duplicate => {}
                        Ok(_) | Err(CommitError::FloorMoved { .. }) => break,
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        });
        tokio::task::yield_now().await;
        collect_all(store.hot(), NOW + DAY).await;
        trim_all(&store, &conv, NOW + 8 * DAY).await;
        reading.await.unwrap();
        copy_all(&store, &conv, NOW).await;
        trim_all(&store, &conv, NOW + 8 * DAY).await;
    }
    assert_eq!(lists_of_pieces(&redis).await, [""; 0]);
}

#[tokio::test]
async fn a_large_record_takes_hardly_more_memory_than_its_payload() {
    let (redis, store) = hot_store();
    let memory = |key: &str| redis.command(&["MEMORY", "USAGE", key, "SAMPLES", "0"]).integer();
    for (i, len) in [(1, 17 * KIB), (2, 64 * KIB), (3, 100_000), (4, 1024 * KIB)] {
        let conv = conversation(&i.to_string());
        store.commit(&conv, &drafts(0..5, NOW), NOW, None).await.unwrap();
        let list = key_of(&store, &conv, &format!("c:{i}"));
        let before = memory(&list);
        store.commit(&conv, &[large("large", noise(i, len))], NOW, None).await.unwrap();
        let pieces = memory(&key_of(&store, &conv, &format!("l:{i}\u{0}6")));
        let bytes = memory(&list) - before + pieces;
        let at_most = if len < 64 * KIB { 105 } else { 102 };
        assert!(bytes * 100 <= i64::try_from(len).unwrap() * at_most, "{len} bytes take {bytes}");
    }
}

#[tokio::test]
async fn pieces_live_on_the_node_of_their_conversation_in_a_cluster() {
    let cluster = RedisCluster::start(3);
    let url = cluster.url().parse().unwrap();
    let shards = qim_core::ShardCount::new(16).unwrap();
    let store = RedisMessageStore::open(&url, shards, 5 * SECOND).unwrap().with_retention(thirty_days());
    store.join_deployment().await.unwrap();
    for i in 0..12 {
        let conv = conversation(&format!("c{i}"));
        let batch =
            [draft("1", Ephemeral24h, NOW), Draft { class: Ephemeral24h, ..large("2", noise(1, 64 * KIB)) }];
        store.commit(&conv, &batch, NOW, None).await.unwrap();
        assert!(store.commit(&conv, &batch, NOW, None).await.unwrap()[1].duplicate);
        let newest = page(&store, &conv, PageStart::Before(u64::MAX)).await;
        assert_eq!(newest.values[1].readable(NOW).unwrap().payload_len(), 64 * KIB);
    }
    assert_eq!(collect_all(&store, NOW + DAY).await.collected, 24);
    for node in cluster.nodes() {
        assert!(lists_of_pieces(node).await.is_empty());
    }
}
