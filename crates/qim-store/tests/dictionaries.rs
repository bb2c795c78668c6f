//! Dictionaries on a real Redis and SQLite: from the first record that needs one to the last.

mod support;

use qim_core::RetentionClass::{self, ComplianceHold, Default as DefaultClass, Ephemeral24h};
use qim_core::{Compression, ConversationKey, PayloadForm, UnixMillis};
use qim_store::TieredMessageStore;
use qim_store::hot::{Draft, PageStart};
use qim_store::tiered::{DictionaryReport, Position, PullRequest, TieredCommitError, TieredDraft};
use support::*;

const SAYING: &str = "whether it is nobler in the mind to suffer";
const WORDS: &str = "nobler in the mind to suffer, whether it is";

/// Another program on the same tiers, which compresses.
fn writer(tiers: &Tiers) -> TieredMessageStore {
    let url = format!("sqlite:{}", tiers.dir.path().join("archive.db").display());
    let hot = connect(&tiers.redis).with_compression(Compression::Zstd);
    TieredMessageStore::with_trim(hot, open_archive(&url), WINDOW)
}

/// Adds a dictionary, and lets the writer use it.
async fn train(store: &TieredMessageStore, now: UnixMillis) -> u32 {
    let id = store.add_dictionary(WORDS.into(), now).await.unwrap();
    assert_eq!(store.refresh_dictionaries().await.unwrap(), Some(id));
    id
}

fn says(id: u32, class: RetentionClass, created_at: UnixMillis) -> Draft {
    Draft { payload: format!("{id}: {SAYING}").into(), ..draft(&format!("id-{id}"), class, created_at) }
}

async fn commit(
    store: &TieredMessageStore,
    conversation: &ConversationKey,
    drafts: &[Draft],
    now: UnixMillis,
) -> Result<Vec<(u64, bool)>, TieredCommitError> {
    let drafts: Vec<_> =
        drafts.iter().map(|draft| TieredDraft { draft: draft.clone(), first_sent_at: None }).collect();
    let committed = store.commit(conversation, &drafts, now).await?;
    Ok(committed.iter().map(|committed| (committed.seq, committed.duplicate)).collect())
}

/// The dictionary of each record in Redis.
async fn needed(
    store: &TieredMessageStore,
    conversation: &ConversationKey,
    now: UnixMillis,
) -> Vec<Option<u32>> {
    let page = store.hot().read_page(conversation, PageStart::After(0), 500, now).await.unwrap();
    page.values
        .iter()
        .filter_map(|value| value.readable(now))
        .map(qim_core::EncodedRecord::dictionary)
        .collect()
}

async fn payloads(
    store: &TieredMessageStore,
    conversation: &ConversationKey,
    position: Position,
    now: UnixMillis,
) -> Vec<String> {
    let request = PullRequest { position, limit: 500, fail_on_expired: false, form: PayloadForm::Plain };
    let page = store.pull(conversation, request, now).await.unwrap();
    let text = |payload: &[u8]| String::from_utf8(payload.to_vec()).unwrap();
    page.records.iter().map(|record| text(&record.payload)).collect()
}

async fn kept(store: &TieredMessageStore) -> Vec<u32> {
    let hot: Vec<u32> = store.hot().dictionaries().await.unwrap().iter().map(|d| d.id).collect();
    let archived: Vec<u32> = store.archive().dictionaries().await.unwrap().iter().map(|d| d.id).collect();
    assert_eq!(hot, archived);
    hot
}

#[tokio::test]
async fn records_of_any_dictionary_and_of_none_are_one_conversation_over_both_tiers() {
    let tiers = tiers();
    let (store, conv) = (writer(&tiers), conversation("c"));
    let old = NOW - 8 * DAY;
    assert_eq!(store.refresh_dictionaries().await.unwrap(), None);
    commit(&store, &conv, &[says(1, DefaultClass, old)], NOW).await.unwrap();
    for id in [1, 2] {
        assert_eq!(train(&store, NOW).await, id);
        commit(
            &store,
            &conv,
            &[says(id * 10, DefaultClass, old), says(id * 10 + 1, ComplianceHold, old)],
            NOW,
        )
        .await
        .unwrap();
    }
    commit(&tiers.store, &conv, &[says(3, DefaultClass, old)], NOW).await.unwrap();
    assert_eq!(
        needed(&store, &conv, NOW).await,
        [None, Some(1), None, Some(2), None, None],
        "what never expires is stored without one"
    );
    let sent: Vec<String> = [1, 10, 11, 20, 21, 3].into_iter().map(|id| format!("{id}: {SAYING}")).collect();
    for moved in [false, true] {
        if moved {
            copy_all(&tiers.store, &conv, NOW).await;
            assert_eq!(trim_all(&tiers.store, &conv, NOW).await, 6);
        }
        // One that was there all the time, and one that has just started and was told of nothing.
        for reader in [&store, &tiers.store, &writer(&tiers)] {
            for position in [Position::After(0), Position::Before(7)] {
                assert_eq!(payloads(reader, &conv, position, NOW).await, sent);
            }
        }
        // A retry is known with whatever it was packed, also by a writer that does not know the dictionary yet.
        let again = [says(10, DefaultClass, old), says(20, DefaultClass, old)];
        for retrying in [&store, &writer(&tiers)] {
            assert_eq!(commit(retrying, &conv, &again, NOW).await.unwrap(), [(2, true), (4, true)]);
        }
    }
}

#[tokio::test]
async fn a_dictionary_is_kept_until_the_last_record_that_needs_it_is_gone() {
    let tiers = tiers();
    let (store, conv) = (writer(&tiers), conversation("c"));
    assert_eq!(train(&store, NOW).await, 1);
    commit(&store, &conv, &[says(1, DefaultClass, NOW), says(2, Ephemeral24h, NOW)], NOW).await.unwrap();
    let hot = store.hot().dictionaries().await.unwrap();
    let expires_at = NOW + 30 * DAY;
    assert!(hot[0].needed_until >= expires_at && hot[0].needed_until <= expires_at + DAY, "{hot:?}");
    assert_eq!(train(&store, NOW + DAY).await, 2);
    for (time, dictionaries) in [
        (NOW + 2 * DAY, vec![1, 2]),
        (expires_at - MS, vec![1, 2]),
        (expires_at + DAY, vec![1, 2]),
        (expires_at + 4 * DAY, vec![2]),
        (NOW + 4000 * DAY, vec![2]),
    ] {
        copy_all(&store, &conv, time).await;
        trim_all(&store, &conv, time).await;
        let report = store.maintain_dictionaries(time).await.unwrap();
        assert_eq!(kept(&store).await, dictionaries, "{time}");
        assert_eq!(report.kept, dictionaries.len() as u64);
        let readable = payloads(&writer(&tiers), &conv, Position::After(0), time).await;
        assert_eq!(readable.len(), usize::from(time < expires_at), "{time}");
    }
    assert_eq!(train(&store, NOW).await, 3, "no number is given twice");
}

#[tokio::test]
async fn a_dictionary_that_was_kept_meanwhile_stays_and_one_that_went_is_used_no_more() {
    let tiers = tiers();
    let (slow, other, conv) = (writer(&tiers), writer(&tiers), conversation("c"));
    assert_eq!(train(&slow, NOW).await, 1);
    assert_eq!(train(&other, NOW).await, 2);
    // It has not heard of the second one, and goes on with the first.
    let later = NOW + 3 * DAY;
    commit(&slow, &conv, &[says(1, DefaultClass, later)], later).await.unwrap();
    assert_eq!(needed(&other, &conv, later).await, [Some(1)]);
    assert_eq!(other.maintain_dictionaries(later).await.unwrap().deleted, 0);

    let end = later + 33 * DAY;
    copy_all(&other, &conv, end).await;
    trim_all(&other, &conv, end).await;
    assert_eq!(other.maintain_dictionaries(end).await.unwrap().deleted, 1);
    assert_eq!(commit(&slow, &conv, &[says(2, DefaultClass, end)], end).await.unwrap(), [(2, false)]);
    assert_eq!(needed(&other, &conv, end).await, [None], "packed without one");
    assert_eq!(slow.refresh_dictionaries().await.unwrap(), Some(2));
}

#[tokio::test]
async fn no_dictionary_goes_while_expired_records_wait_for_their_copy() {
    let tiers = tiers();
    let (store, conv) = (writer(&tiers), conversation("c"));
    train(&store, NOW).await;
    commit(&store, &conv, &[says(1, DefaultClass, NOW)], NOW).await.unwrap();
    train(&store, NOW).await;
    // The archiver was away for longer than the retention.
    let back = NOW + 40 * DAY;
    assert_eq!(
        store.maintain_dictionaries(back).await.unwrap(),
        DictionaryReport { kept: 2, ..Default::default() }
    );
    copy_all(&store, &conv, back).await;
    trim_all(&store, &conv, back).await;
    assert_eq!(store.maintain_dictionaries(back).await.unwrap().deleted, 1);
    assert_eq!(kept(&store).await, [2]);
}

#[tokio::test]
async fn what_one_tier_loses_comes_back_from_the_other() {
    let tiers = tiers();
    let (store, conv) = (writer(&tiers), conversation("c"));
    train(&store, NOW).await;
    commit(&store, &conv, &[says(1, DefaultClass, NOW)], NOW).await.unwrap();
    train(&store, NOW).await;
    store.maintain_dictionaries(NOW).await.unwrap();
    let before = store.hot().dictionaries().await.unwrap();

    let mut raw = raw(&tiers.redis).await;
    redis::cmd("DEL").arg("qim:dictionaries").exec_async(&mut raw).await.unwrap();
    let fresh = writer(&tiers);
    assert_eq!(fresh.refresh_dictionaries().await.unwrap(), None, "Redis says that there is none");
    let read = payloads(&fresh, &conv, Position::After(0), NOW).await;
    assert_eq!(read, [format!("1: {SAYING}")], "the archive has it");
    assert_eq!(store.maintain_dictionaries(NOW).await.unwrap().restored, 2);
    let restored = store.hot().dictionaries().await.unwrap();
    for (before, restored) in before.iter().zip(&restored) {
        assert!(before.id == restored.id && before.needed_until <= restored.needed_until);
    }
    assert!(restored[1].needed_until >= NOW + 30 * DAY, "what Redis had is not known any more");
    assert_eq!(train(&store, NOW).await, 3, "no number is given twice");

    store.archive().delete_dictionary(1).await.unwrap();
    assert_eq!(store.maintain_dictionaries(NOW).await.unwrap().restored, 1);
    assert_eq!(kept(&store).await, [1, 2, 3]);
    copy_all(&store, &conv, NOW).await;
}

#[tokio::test]
async fn a_record_whose_dictionary_is_lost_or_damaged_is_named_and_stops_no_other() {
    let tiers = tiers();
    let (store, conv) = (writer(&tiers), conversation("c"));
    train(&store, NOW).await;
    commit(&store, &conv, &[says(1, DefaultClass, NOW)], NOW).await.unwrap();
    commit(&tiers.store, &conv, &[says(2, DefaultClass, NOW)], NOW).await.unwrap();
    store.archive().delete_dictionary(1).await.unwrap();
    let mut raw = raw(&tiers.redis).await;
    for damage in ["not a dictionary", ""] {
        redis::cmd("HSET").arg("qim:dictionaries").arg("d:1").arg(damage).exec_async(&mut raw).await.unwrap();
        let reader = writer(&tiers);
        reader.refresh_dictionaries().await.unwrap();
        let read = payloads(&reader, &conv, Position::After(0), NOW).await;
        assert_eq!(read, [format!("2: {SAYING}")]);
        let shard = reader.hot().shards().shard_of(&conv);
        let aside = reader.hot().set_aside(shard).await.unwrap();
        assert_eq!(aside[0].seq, Some(1));
        assert!(aside[0].reason.contains("dictionary 1"), "{}", aside[0].reason);
        reader.maintain_dictionaries(NOW).await.unwrap();
    }
}

#[tokio::test]
async fn writers_raise_the_date_once_a_day_however_much_they_commit() {
    let tiers = tiers();
    let (store, conv) = (writer(&tiers), conversation("c"));
    train(&store, NOW).await;
    let mut dates = std::collections::BTreeSet::new();
    for hour in 0..48 {
        let now = NOW + HOUR * hour;
        commit(&store, &conv, &[says(hour, DefaultClass, now)], now).await.unwrap();
        dates.insert(store.hot().dictionaries().await.unwrap()[0].needed_until);
    }
    assert!((2..=3).contains(&dates.len()), "{dates:?}");
}

#[tokio::test]
async fn a_sample_of_the_deployment_has_nothing_that_expired_or_never_does() {
    let tiers = tiers();
    let (store, now) = (writer(&tiers), NOW + 2 * DAY);
    train(&store, NOW).await;
    for i in 0..20 {
        let conv = conversation(&format!("c{i}"));
        let drafts = [
            says(1, DefaultClass, NOW),
            says(2, ComplianceHold, NOW),
            says(3, Ephemeral24h, NOW),
            says(4, DefaultClass, NOW),
        ];
        commit(&store, &conv, &drafts, NOW).await.unwrap();
    }
    let mut seen = Vec::new();
    let take = |conversation: &ConversationKey, sender: &str, payload: &[u8]| {
        seen.push((conversation.conversation().to_owned(), sender.to_owned(), payload.to_vec()));
    };
    writer(&tiers).hot().sample(now, take).await.unwrap();
    assert_eq!(seen.len(), 40);
    let texts = [1, 4].map(|id| format!("{id}: {SAYING}").into_bytes());
    assert!(seen.iter().all(|(_, sender, payload)| sender == "alice" && texts.contains(payload)));
}
