//! Messages that have been read and wait to be sent.

use std::collections::{BTreeMap, HashMap, VecDeque};

use qim_core::{ConversationKey, UnixMillis};
use qim_proto::v1;

use crate::ndjson::Entry;

/// What the window takes of memory at most, with what is under way. The last line read may go beyond it. The larger it
/// is, the more messages of a conversation go together, where a file has many conversations by turns.
const WINDOW_BYTES: usize = 24 << 20;
/// What a message takes of memory besides its texts and its payload: their allocations and its place in the queue.
const MESSAGE_MEMORY_BYTES: usize = 384;
/// What a conversation takes: its names, its places in the maps, and the part of its queue that is not used yet.
const CONVERSATION_MEMORY_BYTES: usize = 1024;
/// What a request holds at most. A single message may be larger.
const BATCH_BYTES: usize = 1 << 20;
const BATCH_MESSAGES: usize = 100;
/// The most that a message takes in a request besides its texts and its payload: tags, lengths and dates.
const MESSAGE_FRAME_BYTES: usize = 64;

/// A message and the line it stands on.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pending {
    pub(crate) line: u64,
    /// The bytes of the file up to the end of the line, from the end of the line before.
    pub(crate) file_bytes: u64,
    pub(crate) message: v1::Message,
}

impl Pending {
    /// Dates the message by the start of the import.
    pub(crate) fn new(
        line: u64,
        file_bytes: u64,
        entry: Entry,
        start: UnixMillis,
    ) -> Result<(ConversationKey, Self), String> {
        let date = entry.date.resolve(start).ok_or("age_ms reaches back before 1970")?;
        let message = v1::Message { created_at_ms: Some(date.as_i64()), ..entry.message };
        Ok((entry.conversation, Self { line, file_bytes, message }))
    }

    fn bytes(&self) -> usize {
        let v1::Message { sender, client_msg_id, content_type, payload, .. } = &self.message;
        MESSAGE_FRAME_BYTES + sender.len() + client_msg_id.len() + content_type.len() + payload.len()
    }
}

/// Messages of one conversation, in order, for one request.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) conversation: ConversationKey,
    pub(crate) pending: Vec<Pending>,
    /// What it takes of the window, to be given back with [`Window::release`].
    pub(crate) memory_bytes: usize,
}

/// Which batches may be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Take {
    /// Those that cannot grow.
    Full,
    /// The one that has waited longest, full or not.
    Any,
}

/// Messages by conversation. A conversation whose batch is under way gives no other until it is released.
#[derive(Debug, Default)]
pub(crate) struct Window {
    conversations: HashMap<ConversationKey, Waiting>,
    /// The conversations that can give a batch, by the line of their first message: the longest wait first.
    by_age: BTreeMap<u64, ConversationKey>,
    /// Those of them that can give a full batch.
    full: BTreeMap<u64, ConversationKey>,
    /// Waiting and under way.
    memory_bytes: usize,
    /// Waiting.
    messages: usize,
}

#[derive(Debug, Default)]
struct Waiting {
    pending: VecDeque<Pending>,
    bytes: usize,
    under_way: bool,
}

impl Waiting {
    fn is_full(&self) -> bool {
        self.pending.len() >= BATCH_MESSAGES || self.bytes >= BATCH_BYTES
    }
}

impl Window {
    /// No more should be read.
    pub(crate) fn is_full(&self) -> bool {
        self.memory_bytes >= WINDOW_BYTES
    }

    /// Nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.messages == 0
    }

    /// Behind the other messages of its conversation.
    pub(crate) fn push(&mut self, conversation: &ConversationKey, pending: Pending) {
        let bytes = pending.bytes();
        self.memory_bytes += bytes + MESSAGE_MEMORY_BYTES;
        self.messages += 1;
        let waiting = self.conversations.entry(conversation.clone()).or_insert_with(|| {
            self.memory_bytes += CONVERSATION_MEMORY_BYTES;
            Waiting::default()
        });
        waiting.bytes += bytes;
        waiting.pending.push_back(pending);
        self.enlist(conversation);
    }

    /// The next batch, if there is one to take.
    pub(crate) fn take(&mut self, take: Take) -> Option<Batch> {
        let queue = if take == Take::Full { &self.full } else { &self.by_age };
        let (line, conversation) = queue.first_key_value()?;
        let (line, conversation) = (*line, conversation.clone());
        self.by_age.remove(&line);
        self.full.remove(&line);
        Some(self.cut(conversation))
    }

    /// The batch of this conversation is done.
    pub(crate) fn release(&mut self, conversation: &ConversationKey, memory_bytes: usize) {
        self.memory_bytes -= memory_bytes;
        let waiting = self.conversations.get_mut(conversation).expect("a batch of it was under way");
        assert!(waiting.under_way, "a batch is released once");
        waiting.under_way = false;
        if waiting.pending.is_empty() {
            self.conversations.remove(conversation);
            self.memory_bytes -= CONVERSATION_MEMORY_BYTES;
        } else {
            self.enlist(conversation);
        }
    }

    /// Takes a batch off the front of a conversation.
    fn cut(&mut self, conversation: ConversationKey) -> Batch {
        let waiting =
            self.conversations.get_mut(&conversation).expect("only known conversations are enlisted");
        let (mut pending, mut bytes) = (Vec::new(), 0);
        while let Some(next) = waiting.pending.front()
            && pending.len() < BATCH_MESSAGES
            && (pending.is_empty() || bytes + next.bytes() <= BATCH_BYTES)
        {
            bytes += next.bytes();
            pending.extend(waiting.pending.pop_front());
        }
        waiting.bytes -= bytes;
        waiting.under_way = true;
        self.messages -= pending.len();
        let memory_bytes = bytes + pending.len() * MESSAGE_MEMORY_BYTES;
        Batch { conversation, pending, memory_bytes }
    }

    fn enlist(&mut self, conversation: &ConversationKey) {
        let waiting = &self.conversations[conversation];
        let Some(first) = waiting.pending.front().filter(|_| !waiting.under_way) else { return };
        self.by_age.insert(first.line, conversation.clone());
        if waiting.is_full() {
            self.full.insert(first.line, conversation.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use qim_core::TenantId;

    use super::*;

    fn key(name: &str) -> ConversationKey {
        ConversationKey::new(TenantId::default(), name).unwrap()
    }

    fn pending(line: u64, payload_bytes: usize) -> Pending {
        let message = v1::Message { payload: vec![b'x'; payload_bytes].into(), ..v1::Message::default() };
        Pending { line, file_bytes: 0, message }
    }

    fn lines(batch: &Batch) -> Vec<u64> {
        batch.pending.iter().map(|pending| pending.line).collect()
    }

    #[test]
    fn a_batch_holds_at_most_100_messages_and_a_mebibyte() {
        let mut window = Window::default();
        for line in 1..=150 {
            window.push(&key("many"), pending(line, 10));
        }
        for line in 201..=203 {
            window.push(&key("large"), pending(line, 400 << 10));
        }
        window.push(&key("huge"), pending(301, 2 << 20));
        let mut sizes = Vec::new();
        while let Some(batch) = window.take(Take::Full) {
            let bytes: usize = batch.pending.iter().map(Pending::bytes).sum();
            assert!(batch.pending.len() == 1 || bytes <= BATCH_BYTES);
            sizes.push((batch.conversation.conversation().to_owned(), batch.pending.len()));
        }
        let expected = [("many", 100), ("large", 2), ("huge", 1)];
        assert_eq!(sizes, expected.map(|(name, len)| (name.to_owned(), len)));
    }

    #[test]
    fn a_conversation_gives_its_messages_in_order_and_one_batch_at_a_time() {
        let mut window = Window::default();
        for line in 1..=250 {
            window.push(&key("c"), pending(line, 1));
        }
        let mut seen = Vec::new();
        while let Some(batch) = window.take(Take::Any) {
            assert!(window.take(Take::Any).is_none() && window.take(Take::Full).is_none());
            seen.extend(lines(&batch));
            window.release(&batch.conversation, batch.memory_bytes);
        }
        assert_eq!(seen, (1..=250).collect::<Vec<_>>());
    }

    #[test]
    fn the_conversation_that_waits_longest_is_served_first() {
        let mut window = Window::default();
        for (line, name) in [(1, "a"), (2, "b"), (3, "a"), (4, "c")] {
            window.push(&key(name), pending(line, 1));
        }
        assert!(window.take(Take::Full).is_none());
        let first = window.take(Take::Any).unwrap();
        assert_eq!(lines(&first), [1, 3]);
        window.push(&key("a"), pending(5, 1));
        assert_eq!(lines(&window.take(Take::Any).unwrap()), [2]);
        window.release(&first.conversation, first.memory_bytes);
        assert_eq!(lines(&window.take(Take::Any).unwrap()), [4]);
        assert_eq!(lines(&window.take(Take::Any).unwrap()), [5]);
        assert!(window.take(Take::Any).is_none());
    }

    #[test]
    fn the_window_is_bounded_and_empties_completely() {
        let mut window = Window::default();
        let mut line = 0;
        while !window.is_full() {
            line += 1;
            window.push(&key(&format!("c{}", line % 7)), pending(line, 1 << 10));
        }
        assert!(line <= 24 << 10);
        let mut taken = 0;
        while let Some(batch) = window.take(Take::Any) {
            taken += batch.pending.len() as u64;
            window.release(&batch.conversation, batch.memory_bytes);
        }
        assert_eq!(taken, line);
        assert!(window.is_empty() && window.memory_bytes == 0 && window.conversations.is_empty());
    }

    #[test]
    fn the_queues_do_not_grow_with_the_file() {
        let mut window = Window::default();
        for line in 1..=100_000 {
            window.push(&key("hot"), pending(line, 1));
            if let Some(batch) = window.take(Take::Full) {
                window.release(&batch.conversation, batch.memory_bytes);
            }
        }
        assert!(window.by_age.len() + window.full.len() + window.conversations.len() <= 2);
    }
}
