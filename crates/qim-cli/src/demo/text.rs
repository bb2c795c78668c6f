use super::random::Random;
use super::words::{LANGUAGES, Language};

/// Sizes of bodies in bytes: median 113 and mean 290, as measured in real chat; sigma = sqrt(2 ln(290 / 113)), a
/// little more for what the longest size cuts off.
const BODY_MEDIAN: f64 = 113.0;
const BODY_SIGMA: f64 = 1.42;
const BODY_BYTES_MAX: f64 = 8_000.0;

/// How long the next message is, in bytes.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and 8000")]
pub(crate) fn body_bytes(random: &mut Random) -> usize {
    random.log_normal(BODY_MEDIAN, BODY_SIGMA).clamp(1.0, BODY_BYTES_MAX) as usize
}

/// Writes in one language.
#[derive(Debug, Clone)]
pub(crate) struct Writer {
    language: &'static Language,
    words: Vec<&'static str>,
}

impl Writer {
    /// One for each language.
    pub(crate) fn all() -> Vec<Self> {
        let writer = |language: &'static Language| Self {
            language,
            words: language.words.split_whitespace().collect(),
        };
        LANGUAGES.iter().map(writer).collect()
    }

    /// The index of a writer, drawn by how common the language is here.
    pub(crate) fn draw(random: &mut Random) -> usize {
        let whole = LANGUAGES.iter().map(|language| language.share).sum();
        let shares: Vec<_> = LANGUAGES.iter().map(|language| language.share).enumerate().collect();
        random.share(whole, &shares).expect("the shares make the whole")
    }

    /// A text of at most `bytes` bytes, and not much less; never empty.
    pub(crate) fn write(&self, bytes: usize, random: &mut Random) -> String {
        let mut text = String::with_capacity(bytes + 32);
        let mut sentence_words = 0;
        while text.len() < bytes {
            if !text.is_empty() {
                text.push_str(self.separator(&mut sentence_words, random));
            }
            self.push_word(&mut text, random);
            sentence_words += 1;
        }
        cut(&mut text, bytes);
        text
    }

    fn separator(&self, sentence_words: &mut u64, random: &mut Random) -> &'static str {
        let ends = *sentence_words >= 3 && random.below(8) == 0;
        if !ends {
            return self.language.space;
        }
        *sentence_words = 0;
        match random.below(6) {
            0 => "\n",
            1 => self.language.question,
            _ => self.language.stop,
        }
    }

    /// Mostly a word; sometimes what no word list has: a number, a link, a smile.
    fn push_word(&self, text: &mut String, random: &mut Random) {
        match random.below(60) {
            0 => text.push_str(&random.below(10_000).to_string()),
            1 => text.extend(["https://example.org/", &format!("{:x}", random.next() >> 32)]),
            2 => text.push_str(random.pick::<&str>(&["🙂", "👍", "🎉", "☕", "🌧️", "😅"])),
            _ => {
                // The product of two draws favours the front of the list, where the common words stand.
                let (first, second) = (random.fraction(), random.fraction());
                text.push_str(self.words[index(self.words.len(), first * second)]);
            }
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "short lists"
)]
fn index(len: usize, fraction: f64) -> usize {
    (len as f64 * fraction) as usize
}

/// At the last character that fits, but not before the first.
fn cut(text: &mut String, bytes: usize) {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    if end == 0 {
        end = text.chars().next().map_or(0, char::len_utf8);
    }
    text.truncate(end);
}
