//! Finds the phrases of a corpus that many people use: sequences of words as they stand in messages.
//!
//! A word is a run of letters and digits with the space before it; anything else is a word of one character, and so is
//! each character of a script that puts no spaces between words. A phrase of n words is looked at only where both
//! phrases of n - 1 words in it are admissible, so that each pass has fewer candidates than the one before.

use std::collections::HashMap;
use std::hash::Hash;

use super::train::Sample;

/// In how many conversations a phrase must have been seen to enter a dictionary.
pub const PHRASE_CONVERSATIONS_MIN: usize = 50;
/// By how many senders a phrase must have been used to enter a dictionary.
pub const PHRASE_SENDERS_MIN: usize = 10;
/// Longer phrases are found as two.
const WORDS_MAX: usize = 24;
/// From here on scripts put no spaces between words, or are pictures.
const FIRST_WORD_OF_ITS_OWN: char = '\u{2e80}';
const INADMISSIBLE: u32 = u32::MAX;

/// The admissible phrases of a corpus.
pub(super) struct Phrases<'a> {
    /// Each message as the longest admissible phrases in it, from left to right, and nothing else.
    pub(super) messages: Vec<Vec<&'a str>>,
}

/// Who used a phrase. Messages come sorted by conversation.
struct Seen {
    conversation: u64,
    conversations: usize,
    senders: [u32; PHRASE_SENDERS_MIN],
    distinct_senders: usize,
    /// What it is called in the next pass, where it is admissible.
    id: u32,
}

struct Message<'a> {
    text: &'a str,
    /// Where words end.
    ends: Vec<u32>,
    words: Vec<u32>,
    /// For each word: the admissible phrase of as many words as this pass has that starts there.
    phrases: Vec<u32>,
    /// For each word: how many words the longest admissible phrase has that starts there.
    longest: Vec<u8>,
}

impl<'a> Phrases<'a> {
    /// Of samples that are sorted by conversation.
    pub(super) fn find(samples: &'a [Sample]) -> Self {
        debug_assert!(samples.is_sorted_by_key(|sample| sample.conversation), "conversations are counted");
        let mut messages: Vec<Message<'a>> =
            samples.iter().map(|sample| Message::new(&sample.text)).collect();
        let words = count(samples, &messages, |message, add| {
            (0..message.ends.len()).for_each(|at| add(message.word(at)));
        });
        for message in &mut messages {
            message.words = (0..message.ends.len()).map(|at| words[message.word(at)].id).collect();
            message.phrases.clone_from(&message.words);
            message.longest = message.words.iter().map(|id| u8::from(*id != INADMISSIBLE)).collect();
        }
        for len in 2..=WORDS_MAX {
            let found = count(samples, &messages, |message, add| {
                message.candidates(len).for_each(|(_, candidate)| add(candidate));
            });
            if found.values().all(|seen| seen.id == INADMISSIBLE) {
                break;
            }
            for message in &mut messages {
                message.extend(len, |candidate| found[candidate].id);
            }
        }
        Self { messages: messages.iter().map(Message::parse).collect() }
    }
}

/// Who used what `list` names, with a number for what is admissible.
fn count<'m, 't: 'm, K: Hash + Eq>(
    samples: &[Sample],
    messages: &'m [Message<'t>],
    list: impl Fn(&'m Message<'t>, &mut dyn FnMut(K)),
) -> HashMap<K, Seen> {
    let mut found: HashMap<K, Seen> = HashMap::new();
    for (sample, message) in samples.iter().zip(messages) {
        list(message, &mut |key| {
            found.entry(key).or_insert_with(|| Seen::new(sample.conversation)).by(sample);
        });
    }
    for (id, seen) in (0..).zip(found.values_mut().filter(|seen| seen.is_admissible())) {
        seen.id = id;
    }
    found
}

impl Seen {
    fn new(conversation: u64) -> Self {
        Self {
            conversation,
            conversations: 1,
            senders: [0; PHRASE_SENDERS_MIN],
            distinct_senders: 0,
            id: INADMISSIBLE,
        }
    }

    fn by(&mut self, sample: &Sample) {
        if self.conversation != sample.conversation {
            self.conversation = sample.conversation;
            self.conversations += 1;
        }
        let known = &self.senders[..self.distinct_senders];
        if self.distinct_senders < PHRASE_SENDERS_MIN && !known.contains(&sample.sender) {
            self.senders[self.distinct_senders] = sample.sender;
            self.distinct_senders += 1;
        }
    }

    fn is_admissible(&self) -> bool {
        self.conversations >= PHRASE_CONVERSATIONS_MIN && self.distinct_senders == PHRASE_SENDERS_MIN
    }
}

impl<'a> Message<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, ends: word_ends(text), words: Vec::new(), phrases: Vec::new(), longest: Vec::new() }
    }

    fn start(&self, at: usize) -> usize {
        if at == 0 { 0 } else { self.ends[at - 1] as usize }
    }

    fn word(&self, at: usize) -> &'a str {
        &self.text[self.start(at)..self.ends[at] as usize]
    }

    /// Phrases of `len` words that may be admissible: where they start, and the phrase without its last word with that
    /// word.
    fn candidates(&self, len: usize) -> impl Iterator<Item = (usize, (u32, u32))> {
        let starts = 0..(self.words.len() + 1).saturating_sub(len);
        let both = |at: &usize| self.phrases[*at] != INADMISSIBLE && self.phrases[*at + 1] != INADMISSIBLE;
        starts.filter(both).map(move |at| (at, (self.phrases[at], self.words[at + len - 1])))
    }

    fn extend(&mut self, len: usize, id: impl Fn(&(u32, u32)) -> u32) {
        let mut phrases = vec![INADMISSIBLE; self.words.len()];
        for (at, candidate) in self.candidates(len) {
            phrases[at] = id(&candidate);
        }
        for (longest, _) in
            self.longest.iter_mut().zip(&phrases).filter(|(_, phrase)| **phrase != INADMISSIBLE)
        {
            *longest = u8::try_from(len).expect("a few words");
        }
        self.phrases = phrases;
    }

    fn parse(&self) -> Vec<&'a str> {
        let (mut pieces, mut at) = (Vec::new(), 0);
        while at < self.longest.len() {
            let words = usize::from(self.longest[at]);
            if words > 0 {
                pieces.push(&self.text[self.start(at)..self.ends[at + words - 1] as usize]);
            }
            at += words.max(1);
        }
        pieces
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Space,
    Letter,
    Alone,
}

fn word_ends(text: &str) -> Vec<u32> {
    let (mut ends, mut before) = (Vec::new(), Kind::Alone);
    for (at, character) in text.char_indices() {
        let kind = match character {
            FIRST_WORD_OF_ITS_OWN.. => Kind::Alone,
            ' ' => Kind::Space,
            _ if character.is_alphanumeric() => Kind::Letter,
            _ => Kind::Alone,
        };
        let goes_on = kind == Kind::Letter && before != Kind::Alone;
        if at > 0 && !goes_on {
            ends.push(u32::try_from(at).expect("a sample is short"));
        }
        before = kind;
    }
    if !text.is_empty() {
        ends.push(u32::try_from(text.len()).expect("a sample is short"));
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_letters_with_the_space_before_them_and_anything_else_is_alone() {
        let words = |text: &'static str| {
            let message = Message::new(text);
            (0..message.ends.len()).map(|at| message.word(at)).collect::<Vec<_>>()
        };
        assert_eq!(
            words("see you, a2  ok\n你好!"),
            ["see", " you", ",", " a2", " ", " ok", "\n", "你", "好", "!"]
        );
        assert_eq!(words(""), [""; 0]);
    }
}
