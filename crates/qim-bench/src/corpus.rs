//! The messages to measure with: a real file, or generated chat of the same shape.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use rand::RngExt;
use serde::Deserialize;
use serde_json::Value;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;
/// What Redis keeps.
const WEEK_MS: i64 = 7 * DAY_MS;
/// Messages that `qim demo` has over six weeks for one that it has in the last.
const DEMO_WEEKS: usize = 7;

/// A message to commit.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) sender: Arc<str>,
    /// Unique.
    pub(crate) id: u128,
    pub(crate) payload: Bytes,
}

/// Messages of one conversation that are committed together.
#[derive(Debug, Clone)]
pub(crate) struct Batch {
    pub(crate) conversation: Arc<str>,
    pub(crate) messages: Vec<Message>,
}

/// A message of the corpus.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) conversation: Arc<str>,
    pub(crate) sender: Arc<str>,
    pub(crate) payload: Bytes,
    pub(crate) age_ms: i64,
}

/// All messages of the last seven days that can be read now, in the order of the file.
#[derive(Debug)]
pub(crate) struct Corpus {
    pub(crate) entries: Vec<Entry>,
}

#[derive(Deserialize)]
struct Line {
    tenant: Option<String>,
    conversation: String,
    sender: String,
    class: Option<String>,
    body: Option<String>,
    payload_base64: Option<String>,
    created_at: Option<Value>,
    age_ms: Option<i64>,
}

impl Corpus {
    /// Reads a file as `qim import` does.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("{}", path.display()))?;
        Self::parse(BufReader::new(file)).with_context(|| format!("{}", path.display()))
    }

    /// By `qim demo`: the last week of six.
    pub(crate) fn generate(qim: &Path, messages: usize) -> Result<Self> {
        let count = (messages * DEMO_WEEKS).to_string();
        let output = Command::new(qim).args(["demo", "--messages", &count]).output().context("qim demo")?;
        if !output.status.success() {
            bail!("qim demo: {}", String::from_utf8_lossy(&output.stderr));
        }
        let mut corpus = Self::parse(&output.stdout[..])?;
        corpus.entries.truncate(messages);
        Ok(corpus)
    }

    fn parse(lines: impl BufRead) -> Result<Self> {
        let now = jiff::Timestamp::now().as_millisecond();
        let mut names: HashMap<String, Arc<str>> = HashMap::new();
        let mut intern =
            |name: String| names.entry(name).or_insert_with_key(|name| name.as_str().into()).clone();
        let mut entries = Vec::new();
        for (index, line) in lines.lines().enumerate() {
            let line: Line = serde_json::from_str(&line?).with_context(|| format!("line {}", index + 1))?;
            let age_ms = line.age_ms(now).with_context(|| format!("line {}", index + 1))?;
            let kept_ms = if line.class.as_deref() == Some("ephemeral_24h") { DAY_MS } else { WEEK_MS };
            if age_ms >= kept_ms {
                continue;
            }
            let payload = match (line.body, line.payload_base64) {
                (Some(body), _) => body.into_bytes(),
                (None, encoded) => STANDARD.decode(encoded.unwrap_or_default())?,
            };
            let conversation = match line.tenant {
                Some(tenant) => format!("{tenant}.{}", line.conversation),
                None => line.conversation,
            };
            entries.push(Entry {
                conversation: intern(conversation),
                sender: intern(line.sender),
                payload: payload.into(),
                age_ms,
            });
        }
        if entries.is_empty() {
            bail!("no message is from the last seven days");
        }
        Ok(Self { entries })
    }

    /// Payload bytes of all messages.
    pub(crate) fn payload_bytes(&self) -> usize {
        self.entries.iter().map(|entry| entry.payload.len()).sum()
    }

    /// Different conversations.
    pub(crate) fn conversations(&self) -> usize {
        let mut names: Vec<&str> = self.entries.iter().map(|entry| &*entry.conversation).collect();
        names.sort_unstable();
        names.dedup();
        names.len()
    }

    /// Writes so many messages for `qim import`, each with an id of its own: the corpus as often as it takes, each
    /// time with other conversations. `age_ms` gives each its age.
    pub(crate) fn write(&self, path: &Path, count: usize, age_ms: impl Fn(&Entry) -> i64) -> Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        for (index, entry) in self.entries.iter().cycle().take(count).enumerate() {
            let round = index / self.entries.len();
            let name = &entry.conversation;
            let conversation = if round == 0 { name.to_string() } else { format!("{name}.{round}") };
            let mut line = serde_json::json!({
                "conversation": conversation,
                "sender": &*entry.sender,
                "client_msg_id": format!("{:032x}", rand::random::<u128>()),
                "age_ms": age_ms(entry),
            });
            match std::str::from_utf8(&entry.payload) {
                Ok(body) => line["body"] = body.into(),
                Err(_) => line["payload_base64"] = STANDARD.encode(&entry.payload).into(),
            }
            serde_json::to_writer(&mut file, &line)?;
            file.write_all(b"\n")?;
        }
        Ok(file.flush()?)
    }

    /// Messages for a conversation, drawn so that busy ones speak as often as they do in the corpus.
    pub(crate) fn draw(&self, messages: usize) -> Batch {
        let mut random = rand::rng();
        let conversation = self.entries[random.random_range(0..self.entries.len())].conversation.clone();
        let start = random.random_range(0..self.entries.len());
        self.batch(conversation, start, messages)
    }

    /// So many messages from a place of the corpus on, with new ids, for a conversation.
    pub(crate) fn batch(&self, conversation: Arc<str>, start: usize, messages: usize) -> Batch {
        let messages = self.entries.iter().cycle().skip(start % self.entries.len()).take(messages);
        let message = |entry: &Entry| Message {
            sender: entry.sender.clone(),
            id: rand::random(),
            payload: entry.payload.clone(),
        };
        Batch { conversation, messages: messages.map(message).collect() }
    }
}

impl Line {
    fn age_ms(&self, now: i64) -> Result<i64> {
        let created_at = match (&self.created_at, self.age_ms) {
            (_, Some(age)) => return Ok(age),
            (Some(Value::String(date)), None) => date.parse::<jiff::Timestamp>()?.as_millisecond(),
            (Some(date), None) => date.as_i64().context("created_at is not a date")?,
            (None, None) => bail!("created_at or age_ms is missing"),
        };
        Ok(now - created_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_can_be_read_in_the_hot_window() {
        let line = |id: u32, class: &str, age_ms: i64| {
            format!(
                r#"{{"conversation":"c","sender":"s","client_msg_id":"{id}","class":"{class}","body":"é","age_ms":{age_ms}}}"#
            )
        };
        let text = [
            line(1, "default", 5),
            line(2, "ephemeral_24h", DAY_MS),
            line(3, "default", WEEK_MS),
            line(4, "ephemeral_24h", 7),
        ]
        .join("\n");
        let corpus = Corpus::parse(text.as_bytes()).unwrap();
        assert_eq!(corpus.entries.iter().map(|entry| entry.age_ms).collect::<Vec<_>>(), [5, 7]);
        assert_eq!((corpus.payload_bytes(), corpus.conversations()), (4, 1));
        assert_eq!(corpus.draw(3).messages.len(), 3);
    }
}
