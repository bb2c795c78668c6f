use std::collections::{HashMap, HashSet};

use qim_core::TenantId;

use super::*;
use crate::ndjson::{Date, Entry};

const WEEK_MS: u128 = 7 * 86_400_000;

fn demo(messages: u32, conversations: u32, seed: u64) -> Vec<Entry> {
    let mut chat = Chat::new(seed, messages, conversations);
    let mut entries = Vec::new();
    while let Some(slot) = chat.slots.next() {
        let line = serde_json::to_vec(&chat.message(slot)).unwrap();
        entries.push(Entry::parse(&line, &TenantId::default()).unwrap());
    }
    entries
}

fn age_ms(entry: &Entry) -> u128 {
    let Date::Age(age) = entry.date else { panic!("the demo gives ages") };
    age.as_millis()
}

/// Median and mean.
fn shape(mut numbers: Vec<usize>) -> (usize, usize) {
    numbers.sort_unstable();
    (numbers[numbers.len() / 2], numbers.iter().sum::<usize>() / numbers.len())
}

#[test]
fn the_same_seed_gives_the_same_chat_and_another_seed_another() {
    let chat = demo(500, 25, 1);
    assert_eq!(chat, demo(500, 25, 1));
    assert_ne!(chat, demo(500, 25, 2));
}

#[test]
fn there_are_exactly_as_many_messages_as_asked_for() {
    for (messages, conversations) in [(0, 1), (1, 1), (7, 100), (1000, 1), (20_000, 1000)] {
        assert_eq!(demo(messages, conversations, 3).len(), messages as usize);
    }
}

#[test]
fn ids_are_32_hex_digits_and_never_repeat() {
    let chat = demo(20_000, 1000, 1);
    let ids: HashSet<_> = chat.iter().map(|entry| entry.message.client_msg_id.as_str()).collect();
    assert_eq!(ids.len(), chat.len());
    assert!(ids.iter().all(|id| id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit())));
}

#[test]
fn messages_come_oldest_first_and_are_at_most_40_days_old() {
    let ages: Vec<_> = demo(20_000, 1000, 1).iter().map(age_ms).collect();
    assert!(ages.is_sorted_by(|a, b| a >= b));
    assert!(ages[0] > 38 * 86_400_000 && ages[0] < 40 * 86_400_000, "{}", ages[0]);
    assert!(ages[ages.len() - 1] < 86_400_000);
}

#[test]
fn an_active_week_of_a_conversation_has_about_4_messages_in_the_median_and_9_in_the_mean() {
    let mut weeks: HashMap<_, usize> = HashMap::new();
    for entry in demo(50_000, 2500, 1) {
        *weeks.entry((entry.conversation.clone(), age_ms(&entry) / WEEK_MS)).or_default() += 1;
    }
    let (median, mean) = shape(weeks.into_values().collect());
    assert!((3..=5).contains(&median) && (7..=11).contains(&mean), "median {median}, mean {mean}");
}

#[test]
fn few_conversations_have_many_of_the_messages() {
    let mut sizes: HashMap<_, usize> = HashMap::new();
    for entry in demo(50_000, 2500, 1) {
        *sizes.entry(entry.conversation).or_default() += 1;
    }
    let mut sizes: Vec<_> = sizes.into_values().collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    let top: usize = sizes.iter().take(sizes.len() / 10).sum();
    assert!(top > 50_000 * 3 / 10, "the first tenth has {top}");
    assert!(sizes[0] > 10 * sizes[sizes.len() / 2]);
}

#[test]
fn bodies_have_the_sizes_of_chat() {
    let sizes = demo(30_000, 1500, 1).iter().map(|entry| entry.message.payload.len()).collect::<Vec<_>>();
    assert!(sizes.iter().all(|size| (1..=8000).contains(size)));
    assert!(sizes.iter().any(|size| *size > 4000));
    let (median, mean) = shape(sizes);
    assert!((100..=125).contains(&median) && (260..=320).contains(&mean), "median {median}, mean {mean}");
}

#[test]
fn all_classes_some_tenants_and_some_binary_payloads_are_there_and_most_is_plain() {
    let chat = demo(20_000, 1000, 1);
    let share =
        |is: &dyn Fn(&Entry) -> bool| chat.iter().filter(|entry| is(entry)).count() * 1000 / chat.len();
    let of_class = |class| share(&|entry: &Entry| entry.class == class);
    assert!(of_class(RetentionClass::Default) > 880);
    assert!((45..80).contains(&of_class(RetentionClass::Ephemeral24h)));
    assert!((5..30).contains(&of_class(RetentionClass::ComplianceHold)));
    assert!((5..30).contains(&of_class(RetentionClass::TenantCustom)));
    assert!((1..15).contains(&share(&|entry| !entry.message.content_type.is_empty())));
    assert!(share(&|entry| entry.conversation.tenant() == &TenantId::default()) > 700);
    let tenants: HashSet<_> = chat.iter().map(|entry| entry.conversation.tenant().as_str()).collect();
    assert_eq!(tenants.len(), 4);
}
