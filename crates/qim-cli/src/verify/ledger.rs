use std::collections::HashMap;

use qim_core::{ClientIdHash, ConversationKey, DEFAULT_CONTENT_TYPE, RetentionClass, UnixMillis};
use xxhash_rust::xxh3::Xxh3;

use crate::ndjson::{Date, Entry};

/// Half of a [`ClientIdHash`]: enough within one conversation of one file, at half the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ShortId(u64);

impl ShortId {
    pub(crate) fn of(sender: &str, client_msg_id: &str) -> Self {
        let whole = ClientIdHash::of(sender, client_msg_id).0;
        Self(u64::try_from(whole >> 64).expect("the upper half has 64 bits"))
    }
}

/// What is kept of a record of the file: 40 bytes, however large it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Expected {
    /// Stands for sender and id, by which the record is found again.
    pub(crate) id: ShortId,
    /// The file's date; for an age, the latest that it can mean.
    pub(crate) date: UnixMillis,
    pub(crate) digest: [u8; 16],
    pub(crate) line: u32,
    pub(crate) class: RetentionClass,
    /// The file gives the very date.
    pub(crate) is_exact: bool,
}

/// The file, as much of it as is needed to recognize its records.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// In the order of the file.
    pub(crate) conversations: HashMap<ConversationKey, Vec<Expected>>,
    pub(crate) records: u64,
    /// Lines that are no records.
    pub(crate) unreadable: u64,
    imported_at: UnixMillis,
}

impl Ledger {
    /// Ages count from `imported_at`.
    pub(crate) fn new(imported_at: UnixMillis) -> Self {
        Self { conversations: HashMap::new(), records: 0, unreadable: 0, imported_at }
    }

    /// Adds a record of the file. The error is the reason why it is none, for people.
    pub(crate) fn enter(&mut self, line: u64, entry: &Entry) -> Result<(), String> {
        let date = entry.date.resolve(self.imported_at).ok_or("age_ms reaches back before 1970")?;
        let message = &entry.message;
        let said = Said {
            sender: &message.sender,
            client_msg_id: &message.client_msg_id,
            class: entry.class,
            content_type: &message.content_type,
            payload: &message.payload,
        };
        let expected = Expected {
            id: said.id(),
            date,
            digest: said.digest(),
            line: u32::try_from(line).unwrap_or(u32::MAX),
            class: entry.class,
            is_exact: matches!(entry.date, Date::At(_)),
        };
        self.records += 1;
        match self.conversations.get_mut(&entry.conversation) {
            Some(expected_there) => expected_there.push(expected),
            None => drop(self.conversations.insert(entry.conversation.clone(), vec![expected])),
        }
        Ok(())
    }

    /// There are no more: gives back what growing took.
    pub(crate) fn close(&mut self) {
        self.conversations.values_mut().for_each(Vec::shrink_to_fit);
    }
}

/// What a message says, and who says it: all that must come back as it was.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Said<'a> {
    pub(crate) sender: &'a str,
    pub(crate) client_msg_id: &'a str,
    pub(crate) class: RetentionClass,
    /// Empty means the default one.
    pub(crate) content_type: &'a str,
    pub(crate) payload: &'a [u8],
}

impl Said<'_> {
    /// The same for every message of this sender and id.
    pub(crate) fn id(&self) -> ShortId {
        ShortId::of(self.sender, self.client_msg_id)
    }

    /// The same only for the same message.
    pub(crate) fn digest(&self) -> [u8; 16] {
        let content_type =
            if self.content_type.is_empty() { DEFAULT_CONTENT_TYPE } else { self.content_type };
        let mut hash = Xxh3::new();
        for part in
            [self.sender.as_bytes(), self.client_msg_id.as_bytes(), content_type.as_bytes(), self.payload]
        {
            // With its length, so that parts do not run together.
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.update(&[self.class as u8]);
        hash.digest128().to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: Said<'static> = Said {
        sender: "s",
        client_msg_id: "i",
        class: RetentionClass::Default,
        content_type: "",
        payload: b"body",
    };

    #[test]
    fn a_digest_changes_with_anything_that_is_said() {
        let others = [
            Said { sender: "t", ..SAID },
            Said { client_msg_id: "j", ..SAID },
            Said { class: RetentionClass::TenantCustom, ..SAID },
            Said { content_type: "text/x", ..SAID },
            Said { payload: b"bodY", ..SAID },
            Said { payload: b"", ..SAID },
            Said { sender: "si", client_msg_id: "", ..SAID },
        ];
        for other in others {
            assert_ne!(other.digest(), SAID.digest(), "{other:?}");
        }
        assert_eq!(Said { content_type: DEFAULT_CONTENT_TYPE, ..SAID }.digest(), SAID.digest());
    }

    #[test]
    fn a_record_is_kept_in_40_bytes() {
        assert_eq!(size_of::<Expected>(), 40);
    }
}
