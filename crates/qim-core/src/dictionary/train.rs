//! Makes a dictionary of a corpus: content of admissible phrases only, and tables of statistics over such phrases.

use std::collections::HashMap;

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_64;

use super::phrases::{PHRASE_CONVERSATIONS_MIN, PHRASE_SENDERS_MIN, Phrases};
use crate::ConversationKey;

/// How much text of a corpus is kept; of a larger one it is every second message, every fourth, and so on. Training
/// takes about ten times as much memory.
pub const CORPUS_BYTES_MAX: usize = 24 << 20;
/// Of one message; what is pasted is longer and says little.
const SAMPLE_BYTES_MAX: usize = 4096;
/// Phrases in a dictionary. A writer holds a few times as much, and more gains nothing: see ADR 14.
const CONTENT_BYTES_MAX: usize = 64 * 1024;
/// Less is not worth having.
const CONTENT_BYTES_MIN: usize = 1024;
/// What a reference to a phrase takes, about: so much of it is not saved.
const REFERENCE_BYTES: usize = 3;
/// Messages that the statistics are made of: more change nothing.
const STATISTICS_MESSAGES_MAX: usize = 20_000;
/// The shortest message that tells anything.
const STATISTICS_BYTES_MIN: usize = 9;
/// The end of the tables in a dictionary of zstd, which always has these three offsets there (RFC 8878, 5).
const TABLES_END: [u8; 12] = [1, 0, 0, 0, 4, 0, 0, 0, 8, 0, 0, 0];
/// Beyond it there are no tables any more.
const TABLES_BYTES_MAX: usize = 1024;
/// Where a dictionary of zstd has a number.
const NUMBER: std::ops::Range<usize> = 4..8;

/// Messages to train on. Bounded, however many are put in.
#[derive(Debug)]
pub struct Corpus {
    samples: Vec<Sample>,
    bytes: usize,
    bytes_max: usize,
    /// One message in so many is kept.
    stride: usize,
    offered: usize,
}

/// A message. Conversation and sender are hashes: two that fall together count as one, which only makes a phrase rarer.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) conversation: u64,
    pub(super) sender: u32,
    pub(super) text: String,
}

/// What a training gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trained {
    /// The dictionary, as zstd takes it: tables, then the phrases one after the other, those worth most at the end.
    pub dictionary: Bytes,
    /// All text in it: phrases that were seen in at least 50 conversations and by at least 10 senders.
    pub phrases: Vec<String>,
}

/// A corpus does not have enough that many people say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{messages} messages have {phrase_bytes} bytes of phrases that were seen in at least {PHRASE_CONVERSATIONS_MIN} \
     conversations and by at least {PHRASE_SENDERS_MIN} senders; a dictionary takes {CONTENT_BYTES_MIN} or more"
)]
pub struct TooLittleText {
    /// Messages of text that were looked at.
    pub messages: usize,
    /// How much may enter a dictionary.
    pub phrase_bytes: usize,
}

impl Default for Corpus {
    fn default() -> Self {
        Self::bounded(CORPUS_BYTES_MAX)
    }
}

impl Corpus {
    /// Keeps at most so many bytes of text.
    pub fn bounded(bytes_max: usize) -> Self {
        Self { samples: Vec::new(), bytes: 0, bytes_max, stride: 1, offered: 0 }
    }

    /// Another message. What is not UTF-8 is passed over. Equal senders of different tenants count as one.
    pub fn push(&mut self, conversation: &ConversationKey, sender: &str, payload: &[u8]) {
        let Ok(text) = std::str::from_utf8(payload) else { return };
        self.offered += 1;
        if !(self.offered - 1).is_multiple_of(self.stride) || text.is_empty() {
            return;
        }
        let text = text[..text.floor_char_boundary(SAMPLE_BYTES_MAX)].to_owned();
        let sender = u32::try_from(xxh3_64(sender.as_bytes()) >> 32).expect("32 bits");
        self.bytes += text.len();
        self.samples.push(Sample { conversation: conversation.stable_hash(), sender, text });
        if self.bytes > self.bytes_max {
            let mut keep = false;
            self.samples.retain(|_| {
                keep = !keep;
                keep
            });
            self.stride *= 2;
            self.bytes = self.samples.iter().map(|sample| sample.text.len()).sum();
        }
    }

    /// Messages that are kept.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }
}

/// Makes a dictionary. Depends on nothing but which phrases are admissible, how often, and in which order each message
/// has them: text that is not admissible leaves no trace.
pub fn train(mut corpus: Corpus) -> Result<Trained, TooLittleText> {
    corpus.samples.sort_by_key(|sample| sample.conversation);
    let found = Phrases::find(&corpus.samples);
    let mut uses: HashMap<&str, usize> = HashMap::new();
    for phrase in found.messages.iter().flatten() {
        *uses.entry(phrase).or_default() += 1;
    }
    let phrases = choose(&uses, CONTENT_BYTES_MAX);
    let content = phrases.concat();
    let too_little = TooLittleText { messages: corpus.samples.len(), phrase_bytes: content.len() };
    if content.len() < CONTENT_BYTES_MIN {
        return Err(too_little);
    }
    let tables = tables(&found.messages, content.len()).ok_or(too_little)?;
    let dictionary = [&tables[..], content.as_bytes()].concat().into();
    Ok(Trained { dictionary, phrases: phrases.into_iter().map(str::to_owned).collect() })
}

/// The phrases that save most for the room they take, the best at the end, where a reference to them is shortest. One
/// that stands in another one is there already.
fn choose<'a>(uses: &HashMap<&'a str, usize>, bytes_max: usize) -> Vec<&'a str> {
    // In thousandths of what one byte of room saves, so that the order is the same on every machine.
    let worth = |phrase: &str| uses[phrase] * 1000 * (phrase.len() - REFERENCE_BYTES) / phrase.len();
    let mut ranked: Vec<&str> =
        uses.keys().copied().filter(|phrase| phrase.len() > REFERENCE_BYTES).collect();
    ranked.sort_by(|a, b| worth(b).cmp(&worth(a)).then(a.cmp(b)));
    let (mut chosen, mut bytes, mut rest) = (Vec::new(), 0, ranked.into_iter().peekable());
    while bytes < bytes_max && rest.peek().is_some() {
        while bytes < bytes_max
            && let Some(phrase) = rest.next()
        {
            bytes += phrase.len();
            chosen.push(phrase);
        }
        chosen = without_contained(chosen);
        bytes = chosen.iter().map(|phrase| phrase.len()).sum();
    }
    chosen.sort_by(|a, b| worth(b).cmp(&worth(a)).then(a.cmp(b)));
    let mut left = bytes_max;
    chosen.retain(|phrase| {
        let fits = phrase.len() <= left;
        left -= if fits { phrase.len() } else { 0 };
        fits
    });
    chosen.reverse();
    chosen
}

fn without_contained(mut phrases: Vec<&str>) -> Vec<&str> {
    phrases.sort_by(|a, b| b.len().cmp(&a.len()).then(a.cmp(b)));
    let mut text = String::new();
    phrases.retain(|phrase| {
        let is_new = !text.contains(phrase);
        if is_new {
            text.push_str(phrase);
            // No phrase has it, so that none is found across two others.
            text.push('\0');
        }
        is_new
    });
    phrases
}

/// The tables of a dictionary: how often which byte, length and distance occurs, over messages that consist of
/// admissible phrases. Zstd makes a whole dictionary of them, of which only the tables are taken.
fn tables(messages: &[Vec<&str>], content_bytes: usize) -> Option<Vec<u8>> {
    // Evenly from all conversations.
    let step = messages.len().div_ceil(STATISTICS_MESSAGES_MAX).max(1);
    let samples: Vec<String> = messages
        .iter()
        .step_by(step)
        .map(|phrases| phrases.concat())
        .filter(|text| text.len() >= STATISTICS_BYTES_MIN)
        .collect();
    let made = zstd::dict::from_samples(&samples, content_bytes + TABLES_BYTES_MAX).ok()?;
    let head = &made[..made.len().min(TABLES_BYTES_MAX)];
    let end = head.windows(TABLES_END.len()).position(|bytes| bytes == TABLES_END)? + TABLES_END.len();
    let mut tables = made[..end].to_vec();
    // No number: frames are not to carry one.
    tables[NUMBER].fill(0);
    Some(tables)
}
