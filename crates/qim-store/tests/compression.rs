//! Records with and without compression, side by side in both tiers, on a real Redis and SQLite.

mod support;

use qim_core::RetentionClass::Default as DefaultClass;
use qim_core::{Compression, ConversationKey, PayloadEncoding, PayloadForm, Record, UnixMillis};
use qim_store::TieredMessageStore;
use qim_store::hot::{CommitError, Draft, HotError, HotValue, PageStart};
use qim_store::tiered::{MoveError, Page, Position, PullRequest, TieredCommitError, TieredDraft};
use support::*;

const SAYING: &str = "to be, or not to be, or to be, or not to be: that is the question";

/// Two writers on the same tiers, of which only the second compresses.
struct Writers {
    plain: TieredMessageStore,
    packing: TieredMessageStore,
    tiers: Tiers,
}

fn writers() -> Writers {
    let tiers = tiers();
    let url = format!("sqlite:{}", tiers.dir.path().join("archive.db").display());
    let hot = connect(&tiers.redis).with_compression(Compression::Zstd);
    let packing = TieredMessageStore::with_trim(hot, open_archive(&url), WINDOW);
    Writers { plain: tiers.store.clone(), packing, tiers }
}

fn says(id: u32, created_at: UnixMillis) -> Draft {
    Draft {
        payload: format!("{id}: {SAYING}").into(),
        ..draft(&format!("id-{id}"), DefaultClass, created_at)
    }
}

async fn commit(
    store: &TieredMessageStore,
    conversation: &ConversationKey,
    drafts: &[Draft],
) -> Result<Vec<(u64, bool)>, TieredCommitError> {
    let drafts: Vec<_> =
        drafts.iter().map(|draft| TieredDraft { draft: draft.clone(), first_sent_at: None }).collect();
    let committed = store.commit(conversation, &drafts, NOW).await?;
    Ok(committed.iter().map(|committed| (committed.seq, committed.duplicate)).collect())
}

async fn pull(store: &TieredMessageStore, conversation: &ConversationKey, position: Position) -> Page {
    let request = PullRequest { position, limit: 500, fail_on_expired: false, form: PayloadForm::Plain };
    store.pull(conversation, request, NOW).await.unwrap()
}

/// What a payload says, whichever way it came.
fn said(record: &Record) -> Vec<u8> {
    match record.encoding {
        PayloadEncoding::Plain => record.payload.to_vec(),
        PayloadEncoding::Zstd => zstd::decode_all(&record.payload[..]).unwrap(),
    }
}

async fn compressed(store: &TieredMessageStore, conversation: &ConversationKey) -> Vec<bool> {
    let page = store.hot().read_page(conversation, PageStart::After(0), 500, NOW).await.unwrap();
    let is_compressed = |value: &HotValue| value.readable(NOW).unwrap().payload().is_compressed();
    page.values.iter().map(is_compressed).collect()
}

#[tokio::test]
async fn a_reader_that_takes_zstd_gets_ordinary_frames_where_payloads_are_stored_so() {
    let Writers { plain, packing, tiers: _tiers } = writers();
    let conv = conversation("c");
    let long = Draft { payload: SAYING.repeat(5_000).into(), ..says(4, NOW) };
    commit(&packing, &conv, &[says(1, NOW - 8 * DAY)]).await.unwrap();
    commit(&plain, &conv, &[says(2, NOW)]).await.unwrap();
    commit(&packing, &conv, &[says(3, NOW), long.clone()]).await.unwrap();
    let expected = [says(1, NOW).payload, says(2, NOW).payload, says(3, NOW).payload, long.payload];
    for archived in [false, true] {
        if archived {
            copy_all(&plain, &conv, NOW).await;
            assert_eq!(trim_all(&plain, &conv, NOW).await, 1);
        }
        for position in [Position::After(0), Position::Before(u64::MAX)] {
            let request =
                PullRequest { position, limit: 50, fail_on_expired: false, form: PayloadForm::PlainOrZstd };
            let page = plain.pull(&conv, request, NOW).await.unwrap();
            assert_eq!(page.records.iter().map(said).collect::<Vec<_>>(), expected);
            let framed: Vec<bool> =
                page.records.iter().map(|record| record.encoding == PayloadEncoding::Zstd).collect();
            assert_eq!(framed, [true, false, true, true]);
        }
    }
}

#[tokio::test]
async fn records_of_both_kinds_are_one_conversation_over_both_tiers() {
    let Writers { plain, packing, tiers: _tiers } = writers();
    let conv = conversation("c");
    let old: Vec<_> = (0..8).map(|id| says(id, NOW - 8 * DAY)).collect();
    let new: Vec<_> = (8..16).map(|id| says(id, NOW)).collect();
    for (i, draft) in old.iter().chain(&new).enumerate() {
        let store = if i % 2 == 0 { &plain } else { &packing };
        commit(store, &conv, std::slice::from_ref(draft)).await.unwrap();
    }
    assert_eq!(compressed(&plain, &conv).await, [false, true].repeat(8));
    for moved in [false, true] {
        if moved {
            copy_all(&plain, &conv, NOW).await;
            assert_eq!(trim_all(&plain, &conv, NOW).await, 8);
        }
        for store in [&plain, &packing] {
            for position in [Position::After(0), Position::Before(17)] {
                let page = pull(store, &conv, position).await;
                assert_eq!(page.from_archive, if moved { 8 } else { 0 });
                assert_eq!(page.records.len(), 16);
                for (record, draft) in page.records.iter().zip(old.iter().chain(&new)) {
                    assert_eq!(record.payload, draft.payload);
                }
            }
        }
    }
}

#[tokio::test]
async fn a_retry_is_known_whatever_stored_the_first_try() {
    let Writers { plain, packing, tiers: _tiers } = writers();
    for (i, [first, second]) in [[&plain, &packing], [&packing, &plain]].into_iter().enumerate() {
        let conv = conversation(&format!("c{i}"));
        let drafts = [says(1, NOW - 8 * DAY), says(2, NOW - 8 * DAY)];
        let other = Draft { payload: format!("{SAYING}!").into(), ..says(2, NOW - 8 * DAY) };
        assert_eq!(commit(first, &conv, &drafts).await.unwrap(), [(1, false), (2, false)]);
        for moved in [false, true] {
            if moved {
                copy_all(&plain, &conv, NOW).await;
                assert_eq!(trim_all(&plain, &conv, NOW).await, 2);
            }
            assert_eq!(commit(second, &conv, &drafts).await.unwrap(), [(1, true), (2, true)]);
            let error = commit(second, &conv, std::slice::from_ref(&other)).await.unwrap_err();
            assert!(matches!(error, TieredCommitError::AlreadyExists { index: 0, seq: 2 }), "{error}");
        }
    }
}

/// The record with the end of its payload overwritten and a checksum that is right.
fn with_damaged_frame(conversation: &ConversationKey, mut record: Vec<u8>) -> Vec<u8> {
    let end = record.len() - 4;
    record[end - 20..end].fill(0xff);
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(&conversation.stable_hash().to_be_bytes());
    checksum.update(&record[..end]);
    record[end..].copy_from_slice(&checksum.finalize().to_be_bytes());
    record
}

#[tokio::test]
async fn a_damaged_frame_is_named_never_served_and_never_archived() {
    let Writers { plain: _plain, packing: store, tiers } = writers();
    let conv = conversation("c");
    let drafts: Vec<_> = (0..5).map(|id| says(id, NOW - 8 * DAY)).collect();
    commit(&store, &conv, &drafts).await.unwrap();
    let shard = store.hot().shards().shard_of(&conv);
    let list = format!("qim:{{{shard}}}:c:c");
    let mut raw = raw(&tiers.redis).await;
    let record: Vec<u8> = redis::cmd("LINDEX").arg(&list).arg(2).query_async(&mut raw).await.unwrap();
    let damaged = with_damaged_frame(&conv, record);
    redis::cmd("LSET").arg(&list).arg(2).arg(damaged).exec_async(&mut raw).await.unwrap();

    let page = pull(&store, &conv, Position::After(0)).await;
    assert_eq!(page.records.iter().map(|record| record.seq).collect::<Vec<_>>(), [1, 2, 4, 5]);
    let aside = store.hot().set_aside(shard).await.unwrap();
    assert!(aside[0].reason.contains("compressed payload"), "{}", aside[0].reason);
    let error = store.hot().commit(&conv, &drafts[2..3], NOW, None).await.unwrap_err();
    assert!(matches!(error, CommitError::Hot(HotError::Corrupt { .. })), "{error}");

    let fence = fence(store.hot(), &conv).await;
    let error = store.copy(&conv, &fence, NOW).await.unwrap_err();
    assert!(matches!(&error, MoveError::Poisoned(why) if why.contains("seq 3")), "{error}");
    let _ = store.trim(&conv, &fence, NOW).await;
    let marks = store.marks(&conv, NOW).await.unwrap();
    assert_eq!((marks.floor, marks.archived, marks.last), (3, 2, 5), "what comes before it goes on");
    assert_eq!(store.archive().high_water(&conv).await.unwrap(), 2);
}

/// 64 KiB of one letter are a few bytes in both tiers; a page is as small as if they were not.
#[tokio::test]
async fn a_page_is_bounded_by_what_it_is_when_it_is_read() {
    let Writers { plain, packing, tiers: _tiers } = writers();
    let conv = conversation("c");
    let large = |id: u32| Draft { payload: vec![b'x'; 65_536].into(), ..says(id, NOW - 8 * DAY) };
    commit(&packing, &conv, &(0..120).map(large).collect::<Vec<_>>()).await.unwrap();
    for moved in [false, true] {
        if moved {
            copy_all(&plain, &conv, NOW).await;
            assert_eq!(trim_all(&plain, &conv, NOW).await, 120);
        }
        let (mut after, mut pages) = (0, 0);
        while after < 120 {
            let page = pull(&plain, &conv, Position::After(after)).await;
            assert!((1..=48).contains(&page.records.len()), "{}", page.records.len());
            assert_eq!(page.records[0].seq, after + 1);
            (after, pages) = (page.next_seq, pages + 1);
        }
        assert_eq!(pages, 3);
        let page = pull(&plain, &conv, Position::Before(121)).await;
        assert_eq!((page.records.len(), page.next_seq, page.has_more), (48, 73, true));
    }
}
