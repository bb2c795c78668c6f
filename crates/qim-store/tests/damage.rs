//! Damaged values in Redis and in the archive: cut, flipped, of another type, somebody else's. They are found, never served,
//! and stop nothing but themselves.

mod support;

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use qim_core::RetentionClass::{Default as DefaultClass, Ephemeral24h};
use qim_core::{ConversationKey, PayloadForm, UnixMillis};
use qim_store::TieredMessageStore;
use qim_store::hot::{CommitError, Draft, HotError};
use qim_store::tiered::{Position, PullRequest};
use redis::aio::MultiplexedConnection;
use support::*;

/// Numbers that look random, the same each time (xorshift).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % below
    }

    /// Cut, flipped, replaced, or the value of another place.
    fn damage(&mut self, value: &[u8], other: &[u8]) -> Vec<u8> {
        let mut bytes = value.to_vec();
        match self.roll(5) {
            0 => bytes.truncate(self.roll(value.len().max(1))),
            1 if !bytes.is_empty() => {
                let at = self.roll(bytes.len());
                bytes[at] ^= 1 << self.roll(8);
            }
            2 => bytes = noise(u32::try_from(self.roll(1 << 30)).unwrap(), self.roll(120)).to_vec(),
            3 => bytes.extend_from_slice(other),
            _ => bytes = other.to_vec(),
        }
        bytes
    }
}

/// Two conversations of one shard: one to damage, and its neighbour.
fn neighbours(store: &TieredMessageStore, round: usize) -> (ConversationKey, ConversationKey) {
    let of = |i: usize| conversation(&format!("{round}-{i}"));
    let shard = store.hot().shards().shard_of(&of(0));
    let other = (1..1_000).map(of).find(|other| store.hot().shards().shard_of(other) == shard).unwrap();
    (of(0), other)
}

/// Does all there is to do with a conversation that may be damaged, and checks that what is served is what was sent.
async fn use_all(
    tiers: &Tiers,
    conv: &ConversationKey,
    sent: &HashMap<String, Bytes>,
    now: UnixMillis,
) -> usize {
    let store = &tiers.store;
    let mut served = 0;
    for position in
        [Position::After(0), Position::Before(u64::MAX), Position::FromTime(NOW), Position::After(3)]
    {
        for form in [PayloadForm::Plain, PayloadForm::PlainOrZstd] {
            let request = PullRequest { position, limit: 20, fail_on_expired: false, form };
            let Ok(page) = store.pull(conv, request, now).await else { continue };
            assert!(page.records.windows(2).all(|pair| pair[0].seq < pair[1].seq), "{page:?}");
            for record in &page.records {
                let message = record.message();
                assert!(!message.is_expired(now));
                let said = sent.get(&message.client_msg_id).expect("it was sent");
                if form == PayloadForm::Plain {
                    assert!(message.payload == said, "seq {} of {conv} says something else", record.seq);
                }
            }
            served = served.max(page.records.len());
        }
    }
    let _ = store.describe(conv, now).await;
    for shard in store.hot().shards().all() {
        let _ = store.hot().collect_expired(shard, now).await;
    }
    let shard = store.hot().shards().shard_of(conv);
    if let Ok(Some(fence)) = store.hot().acquire_lease(shard, None, DAY).await {
        let _ = store.hot().unarchived(shard, now, 10).await;
        let _ = store.copy(conv, &fence, now).await;
        let _ = store.hot().trim_candidates(shard, now, 10).await;
        let _ = store.trim(conv, &fence, now).await;
        let _ = store.hot().release_lease(&fence).await;
    }
    let _ = store.hot().stats(now).await;
    served
}

async fn elements(raw: &mut MultiplexedConnection, list: &str) -> Vec<Vec<u8>> {
    redis::cmd("LRANGE").arg(list).arg(0).arg(-1).query_async(raw).await.unwrap()
}

#[tokio::test]
async fn records_headers_and_indexes_of_any_bytes_are_never_served_as_something_else_and_stop_no_neighbour() {
    let tiers = tiers();
    let store = &tiers.store;
    let mut raw = raw(&tiers.redis).await;
    let mut dice = Dice(0x5EED_5EED);
    let mut intact = 0;
    for round in 0..120 {
        let (conv, neighbour) = neighbours(store, round);
        let mut sent = HashMap::new();
        for conv in [&conv, &neighbour] {
            let batch: Vec<Draft> = (0..8)
                .map(|i| {
                    let class = if i % 3 == 0 { Ephemeral24h } else { DefaultClass };
                    let len = [5, 200, 20_000][dice.roll(3)];
                    let payload = noise(u32::try_from(round * 10 + i).unwrap(), len);
                    Draft {
                        payload,
                        ..draft(
                            &format!("id-{}-{i}", conv.conversation()),
                            class,
                            NOW - DAY * 8 + MS * u32::try_from(i).unwrap(),
                        )
                    }
                })
                .collect();
            sent.extend(batch.iter().map(|draft| (draft.client_msg_id.clone(), draft.payload.clone())));
            commit(store, conv, &batch, NOW - DAY * 8).await;
        }
        let now = NOW - DAY * 8 + [SECOND, DAY + SECOND, DAY * 8][dice.roll(3)];
        let shard = store.hot().shards().shard_of(&conv);
        let list = format!("qim:{{{shard}}}:c:{}", conv.storage_id());
        let values = elements(&mut raw, &list).await;
        // The last one is the header.
        let place = if dice.roll(3) == 0 { values.len() - 1 } else { dice.roll(values.len()) };
        let other = values[dice.roll(values.len())].clone();
        let damaged = dice.damage(&values[place], &other);
        redis::cmd("LSET").arg(&list).arg(place).arg(damaged).exec_async(&mut raw).await.unwrap();
        if round % 4 == 0 {
            let member = dice.damage(format!("{}\0{}", conv.storage_id(), 1).as_bytes(), &other);
            let index = ["msghistorygc", "unarchived", "trim"][dice.roll(3)];
            let key = format!("qim:{{{shard}}}:{index}");
            redis::cmd("ZADD").arg(key).arg(1).arg(member).exec_async(&mut raw).await.unwrap();
        }
        intact += use_all(&tiers, &conv, &sent, now).await;
        let one = [Draft { payload: "new".into(), ..draft(&format!("new-{round}"), DefaultClass, now) }];
        let _ = store.hot().commit(&conv, &one, now, None).await;
        let retries = [draft(&format!("id-{}-1", conv.conversation()), DefaultClass, now)];
        let _ = store.hot().commit(&conv, &retries, now, None).await;

        // Whatever became of it: its neighbour is whole.
        let expected = if now >= NOW - DAY * 7 { 5 } else { 8 };
        assert_eq!(use_all(&tiers, &neighbour, &sent, now).await, expected, "round {round}");
        assert_eq!(seqs(&commit(store, &neighbour, &one, now).await), [9]);
        sent.clear();
    }
    assert!(intact > 300, "what is not damaged is served: {intact}");
}

#[tokio::test]
async fn keys_of_another_type_in_our_namespace_stop_only_what_they_stand_for() {
    let tiers = tiers();
    let store = &tiers.store;
    let mut raw = raw(&tiers.redis).await;
    for (round, type_of) in ["string", "hash", "zset"].into_iter().enumerate() {
        let (conv, neighbour) = neighbours(store, 1_000 + round);
        let shard = store.hot().shards().shard_of(&conv);
        for name in ["c", "f"] {
            let key = format!("qim:{{{shard}}}:{name}:{}", conv.storage_id());
            redis::cmd("DEL").arg(&key).exec_async(&mut raw).await.unwrap();
            let mut foreign = redis::cmd(match type_of {
                "string" => "SET",
                "hash" => "HSET",
                _ => "ZADD",
            });
            foreign.arg(&key).arg("1");
            if type_of != "string" {
                foreign.arg("x");
            }
            foreign.exec_async(&mut raw).await.unwrap();
        }
        // Neighbours nobody has ever heard of.
        redis::cmd("SET").arg(format!("qim:{{{shard}}}:nonsense")).arg(1).exec_async(&mut raw).await.unwrap();
        let one = drafts(0..3, NOW);
        let sent: HashMap<_, _> =
            one.iter().map(|draft| (draft.client_msg_id.clone(), draft.payload.clone())).collect();
        let refused = store.hot().commit(&conv, &one, NOW, None).await;
        assert!(refused.is_err(), "{type_of}: {refused:?}");
        commit(store, &neighbour, &one, NOW).await;
        assert_eq!(use_all(&tiers, &conv, &sent, NOW).await, 0);
        assert_eq!(use_all(&tiers, &neighbour, &sent, NOW).await, 3);
        assert_eq!(store.archive().count(&neighbour, NOW).await.unwrap(), 3, "it was copied");
    }
}

#[tokio::test]
async fn a_foreign_key_in_the_place_of_a_shards_index_is_named_before_anything_is_written() {
    for name in ["msghistorygc", "unarchived", "trim", "stats", "idle"] {
        let tiers = tiers();
        let store = &tiers.store;
        let (resting, neighbour) = neighbours(store, 3_000);
        let shard = store.hot().shards().shard_of(&resting);
        commit(store, &resting, &drafts(0..3, NOW - 8 * DAY), NOW).await;
        copy_all(store, &resting, NOW).await;
        assert_eq!(trim_all(store, &resting, NOW).await, 3);
        let mut raw = raw(&tiers.redis).await;
        let (key, kept) = (format!("qim:{{{shard}}}:{name}"), format!("{{{shard}}}:kept"));
        let _: Result<(), _> = redis::cmd("RENAME").arg(&key).arg(&kept).query_async(&mut raw).await;
        redis::cmd("SET").arg(&key).arg("theirs").exec_async(&mut raw).await.unwrap();
        let before = elements_of_all(&mut raw).await;

        let short_lived = [draft("id-9", Ephemeral24h, NOW)];
        for conv in [&resting, &neighbour] {
            let refused = store.hot().commit(conv, &short_lived, NOW, None).await.unwrap_err();
            let CommitError::Hot(HotError::Refused(reason)) = &refused else { panic!("{name}: {refused}") };
            assert!(reason.contains(&format!("{key} holds something else")), "{reason}");
        }
        assert_eq!(elements_of_all(&mut raw).await, before, "{name}: nothing was written");
        let theirs: String = redis::cmd("GET").arg(&key).query_async(&mut raw).await.unwrap();
        assert_eq!(theirs, "theirs");

        // With the key gone all goes on where it was, and what was refused is committed, copied and collected as ever.
        redis::cmd("DEL").arg(&key).exec_async(&mut raw).await.unwrap();
        let _: Result<(), _> = redis::cmd("RENAME").arg(&kept).arg(&key).query_async(&mut raw).await;
        for (conv, seq) in [(&resting, 4), (&neighbour, 1)] {
            let committed = commit(store, conv, &short_lived, NOW).await;
            assert_eq!((committed[0].seq, committed[0].duplicate), (seq, false), "{name}");
            copy_all(store, conv, NOW).await;
        }
        let stats = store.hot().stats(NOW).await.unwrap();
        assert_eq!((stats.records, stats.unarchived), (2, 0), "{name}");
        assert_eq!(collect_all(store.hot(), NOW + DAY).await.collected, 2, "{name}");
        assert_eq!(store.hot().stats(NOW).await.unwrap().set_aside, 0, "{name}");
    }
}

/// Of all conversations with a list.
async fn elements_of_all(raw: &mut MultiplexedConnection) -> Vec<(String, Vec<Vec<u8>>)> {
    let mut lists: Vec<String> = redis::cmd("KEYS").arg("qim:*:c:*").query_async(raw).await.unwrap();
    lists.sort();
    let mut all = Vec::new();
    for list in lists {
        let values = elements(raw, &list).await;
        all.push((list, values));
    }
    all
}

#[tokio::test]
async fn a_damaged_hot_record_is_served_from_its_copy_in_the_archive() {
    let tiers = tiers();
    let url = tiers.dir.path().join("archive.db");
    let archive = Arc::new(FaultyArchive::new(open_archive(&format!("sqlite:{}", url.display()))));
    let store = TieredMessageStore::with_trim(connect(&tiers.redis), archive.clone(), WINDOW);
    let conv = conversation("c");
    commit(&store, &conv, &drafts(0..5, NOW), NOW).await;
    copy_all(&store, &conv, NOW).await;
    commit(&store, &conv, &drafts(5..7, NOW), NOW).await;
    // Seq 2 has a good copy, that of 4 is damaged as well, and 6 was not copied yet.
    let mut raw = raw(&tiers.redis).await;
    let shard = store.hot().shards().shard_of(&conv);
    for seq in [2, 4, 6] {
        let list = format!("qim:{{{shard}}}:c:c");
        redis::cmd("LSET").arg(list).arg(seq - 1).arg("damaged").exec_async(&mut raw).await.unwrap();
    }
    let file = rusqlite::Connection::open(url).unwrap();
    assert_eq!(file.execute("UPDATE records SET record = x'00' WHERE seq = 4", []).unwrap(), 1);

    for position in [Position::After(0), Position::Before(u64::MAX)] {
        let page = pull(&store, &conv, position, 20, NOW).await;
        assert_eq!(page_seqs(&page), [1, 2, 3, 5, 7]);
        assert_eq!(page.records[1].message().payload, "body of id-1");
        assert!(!page.has_more);
    }
    let set_aside: HashMap<String, String> =
        redis::cmd("HGETALL").arg(format!("qim:{{{shard}}}:setaside")).query_async(&mut raw).await.unwrap();
    let is_served = |seq: u64| set_aside[&format!("c\0{seq}")].contains("its copy in the archive is served");
    assert_eq!([2, 4, 6].map(is_served), [true, false, false], "{set_aside:?}");
    archive.set(Fault::Down);
    assert_eq!(page_seqs(&pull(&store, &conv, Position::After(0), 20, NOW).await), [1, 3, 5, 7]);
}

#[tokio::test]
async fn rows_of_any_bytes_in_the_archive_are_named_and_never_served() {
    let tiers = tiers();
    let store = &tiers.store;
    let file = rusqlite::Connection::open(tiers.dir.path().join("archive.db")).unwrap();
    let mut dice = Dice(0xDA_7A);
    for round in 0..60 {
        let (conv, neighbour) = neighbours(store, 2_000 + round);
        let batch: Vec<Draft> = (0..8)
            .map(|i| {
                draft(
                    &format!("id-{round}-{i}"),
                    DefaultClass,
                    NOW - 8 * DAY + MS * u32::try_from(i).unwrap(),
                )
            })
            .collect();
        let sent: HashMap<_, _> =
            batch.iter().map(|draft| (draft.client_msg_id.clone(), draft.payload.clone())).collect();
        for conv in [&conv, &neighbour] {
            commit(store, conv, &batch, NOW - 8 * DAY).await;
            copy_all(store, conv, NOW).await;
            assert_eq!(trim_all(store, conv, NOW).await, 8);
        }
        let row_of = "seq = ?1 AND conv = (SELECT id FROM conversations WHERE conversation = ?2)";
        let read = |seq: i64| -> Vec<u8> {
            let sql = format!("SELECT record FROM records WHERE {row_of}");
            file.query_row(&sql, (seq, conv.conversation()), |row| row.get(0)).unwrap()
        };
        let seq = i64::try_from(dice.roll(8) + 1).unwrap();
        let other = read(i64::try_from(dice.roll(8) + 1).unwrap());
        let damaged = dice.damage(&read(seq), &other);
        let sql = format!("UPDATE records SET record = ?3 WHERE {row_of}");
        assert_eq!(file.execute(&sql, (seq, conv.conversation(), &damaged)).unwrap(), 1);
        assert!(use_all(&tiers, &conv, &sent, NOW).await >= 7, "the others are served");
        assert_eq!(use_all(&tiers, &neighbour, &sent, NOW).await, 8);
        // A retry of what is damaged is known by its id all the same.
        let again = commit(store, &conv, &batch[..1], NOW).await;
        assert_eq!((again[0].seq, again[0].duplicate), (1, true));
    }
    // What the schema does not allow cannot be there: no null and no text in the place of a record.
    for value in ["NULL", "'text'"] {
        assert!(file.execute(&format!("UPDATE records SET record = {value}"), []).is_err(), "{value}");
    }
}
