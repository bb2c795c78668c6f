use std::collections::HashSet;

use proptest::prelude::*;
use proptest::test_runner::Config;

use super::*;
use crate::{Compressor, ConversationKey, Decompressor, TenantId};

const NOW: UnixMillis = UnixMillis::new(1_800_000_000_000);

/// Who says what, where.
#[derive(Debug, Clone)]
struct Line {
    conversation: u32,
    sender: u32,
    text: String,
}

/// Deterministic, so that two corpora differ in what a test says and in nothing else.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }
}

/// A word of letters that no other number gives.
fn word(number: usize) -> String {
    let letter = |n: usize| char::from(b"etaoinshrdlucmwf"[n % 16]);
    (0..3).map(|i| letter(number >> (4 * i))).chain(['q'; 2]).chain([letter(number)]).collect()
}

/// 1500 messages of 300 words that everybody uses, in 90 conversations, by 25 senders; and in each message a word of
/// the kind that `own` makes, by conversation and sender.
fn chat(seed: u64, own: impl Fn(usize, usize, usize) -> String) -> Vec<Line> {
    let mut numbers = Numbers(seed);
    (0..1500)
        .map(|message| {
            let (conversation, sender) = (numbers.below(90), numbers.below(25));
            let words: Vec<String> = (0..24).map(|_| word(numbers.below(300))).collect();
            let at = numbers.below(words.len());
            let text = [&words[..at].join(" "), &own(message, conversation, sender), &words[at..].join(" ")]
                .map(String::as_str)
                .join(" ");
            let number = |n: usize| u32::try_from(n).unwrap();
            Line { conversation: number(conversation), sender: number(sender), text }
        })
        .collect()
}

fn trained(lines: &[Line]) -> Result<Trained, TooLittleText> {
    let mut corpus = Corpus::default();
    for line in lines {
        let conversation =
            ConversationKey::new(TenantId::default(), &format!("c{}", line.conversation)).unwrap();
        corpus.push(&conversation, &format!("s{}", line.sender), line.text.as_bytes());
    }
    train(corpus)
}

/// In how many conversations and by how many senders the text was used, counted in the plainest way.
fn spread(lines: &[Line], phrase: &str) -> (usize, usize) {
    let with: Vec<&Line> = lines.iter().filter(|line| line.text.contains(phrase)).collect();
    let conversations: HashSet<u32> = with.iter().map(|line| line.conversation).collect();
    let senders: HashSet<u32> = with.iter().map(|line| line.sender).collect();
    (conversations.len(), senders.len())
}

fn holds(dictionary: &[u8], text: &str) -> bool {
    dictionary.windows(text.len()).any(|window| window == text.as_bytes())
}

proptest! {
    #![proptest_config(Config { cases: 12, failure_persistence: None, ..Config::default() })]

    /// What the dictionary holds is its tables and these phrases, and each phrase is what many people say.
    #[test]
    fn only_phrases_of_50_conversations_and_10_senders_enter_a_dictionary(
        seed: u64,
        conversations in 20..90_usize,
        senders in 1..25_usize,
    ) {
        // Words that are used in so many conversations, or by so many senders, at most.
        let lines = chat(seed, |message, conversation, sender| match message % 3 {
            0 => format!("x{:04}", conversation * senders / 90),
            1 if conversation < conversations => "Zx9 few conversations".to_owned(),
            2 if sender < senders => "Yx8 few senders".to_owned(),
            _ => format!("secret{message}"),
        });
        let Trained { dictionary, phrases } = trained(&lines).unwrap();
        prop_assert!(dictionary.ends_with(phrases.concat().as_bytes()));
        for phrase in &phrases {
            let (conversations, senders) = spread(&lines, phrase);
            prop_assert!(conversations >= PHRASE_CONVERSATIONS_MIN, "{phrase:?}: {conversations}");
            prop_assert!(senders >= PHRASE_SENDERS_MIN, "{phrase:?}: {senders}");
        }
        for phrase in ["Zx9", "Yx8"] {
            let (conversations, senders) = spread(&lines, phrase);
            let is_admissible =
                conversations >= PHRASE_CONVERSATIONS_MIN && senders >= PHRASE_SENDERS_MIN;
            prop_assert_eq!(holds(&dictionary, phrase), is_admissible, "{}", phrase);
        }
        prop_assert!(!holds(&dictionary, "secret"));
    }

    /// With all that few people say replaced by something else that few people say, the dictionary is the same to the
    /// byte, its tables included: nothing of it is in there, in whatever form.
    #[test]
    fn text_that_is_not_admissible_leaves_no_trace(seed: u64, other: u64) {
        let one = chat(seed, |message, _, _| format!("secret{message}"));
        let another = chat(seed, |message, _, _| format!("{:x}", other.wrapping_mul(message as u64 * 2 + 1)));
        prop_assert_eq!(trained(&one), trained(&another));
    }
}

#[test]
fn a_corpus_that_says_too_little_is_refused() {
    let error = trained(&[]).unwrap_err();
    assert_eq!((error.messages, error.phrase_bytes), (0, 0));
    // Everybody says it, and it is short.
    let lines: Vec<_> = (0..900)
        .map(|i| Line { conversation: i % 90, sender: i % 25, text: "see you tomorrow".into() })
        .collect();
    let error = trained(&lines).unwrap_err();
    assert_eq!((error.messages, error.phrase_bytes), (900, 16));
    assert!(error.to_string().contains("50 conversations and by at least 10 senders"), "{error}");
}

#[test]
fn a_corpus_is_bounded_however_much_is_put_in() {
    let conversation = ConversationKey::new(TenantId::default(), "c").unwrap();
    let mut corpus = Corpus::bounded(10_000);
    for i in 0..5_000 {
        corpus.push(&conversation, "s", format!("message {i:08}").as_bytes());
        assert!(corpus.len() * 16 <= 10_000);
    }
    assert!(corpus.len() > 250, "{}", corpus.len());
    corpus.push(&conversation, "s", &[0xff; 10]);
    let mut pasted = Corpus::default();
    pasted.push(&conversation, "s", "é".repeat(100_000).as_bytes());
    assert_eq!((pasted.len(), pasted.is_empty()), (1, false));
}

fn dictionary() -> Dictionary {
    let lines = chat(1, |message, _, _| format!("own{message}"));
    Dictionary::new(7, NOW, trained(&lines).unwrap().dictionary).unwrap()
}

#[test]
fn short_messages_get_small_with_a_dictionary_and_come_back() {
    let (compressor, decompressor, dictionary) =
        (Compressor::default(), Decompressor::default(), dictionary());
    compressor.use_dictionary(Some(&dictionary)).unwrap();
    assert_eq!(compressor.dictionary(), Some(7));
    decompressor.learn(dictionary.into());
    let (mut plain, mut packed, mut all) = (0, 0, 0);
    for line in chat(2, |message, _, _| format!("own{message}")) {
        let payload = Bytes::from(line.text[..60].to_owned());
        let stored = compressor.pack_expiring(&payload);
        assert_eq!(stored.dictionary(), Some(7));
        assert_eq!(stored.open(&decompressor).unwrap(), payload);
        all += payload.len();
        plain += compressor.pack(&payload).stored_len();
        packed += stored.stored_len();
    }
    assert!(packed * 5 < plain * 3, "{all} bytes, {plain} without, {packed} with the dictionary");
    let short = Bytes::from(word(5));
    assert_eq!(compressor.pack_expiring(&short).open(&decompressor).unwrap(), short);
}

#[test]
fn without_a_dictionary_in_use_payloads_are_packed_by_themselves() {
    let compressor = Compressor::default();
    let payload = Bytes::from("to be, or not to be, or to be, or not to be: that is the question");
    compressor.use_dictionary(Some(&dictionary())).unwrap();
    assert_eq!(compressor.pack(&payload).dictionary(), None, "as records are that never expire");
    assert_eq!(compressor.pack_expiring(&payload).dictionary(), Some(7));
    compressor.use_dictionary(None).unwrap();
    assert_eq!(compressor.pack_expiring(&payload), compressor.pack(&payload));
}

#[test]
fn a_stored_dictionary_is_checked_to_the_last_bit() {
    let dictionary = dictionary();
    let stored = dictionary.encode();
    let read = Dictionary::decode(7, &stored).unwrap();
    assert_eq!((read.id(), read.created_at(), read.bytes()), (7, NOW, dictionary.bytes()));
    assert_eq!(Dictionary::decode(8, &stored).unwrap_err(), DictionaryError::Number { wanted: 8, found: 7 });
    for at in [0, 1, 8, 20, stored.len() - 5, stored.len() - 1] {
        let mut damaged = stored.to_vec();
        damaged[at] ^= 1;
        assert!(Dictionary::decode(7, &damaged.into()).is_err(), "byte {at}");
    }
    for len in [0, 1, 14, stored.len() - 1] {
        assert!(Dictionary::decode(7, &stored.slice(..len)).is_err(), "{len} bytes");
    }
    for bad in [vec![], vec![0; DICTIONARY_BYTES_MAX + 1], dictionary.bytes()[..20].to_vec()] {
        assert!(Dictionary::new(1, NOW, bad.into()).is_err());
    }
}
