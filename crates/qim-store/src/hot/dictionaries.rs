//! Dictionaries in Redis: one hash, with a few fields for each of them.
//!
//! ```text
//! last   the highest number ever given
//! d:ID   the dictionary, as qim-core encodes it
//! u:ID   until when records need it, ms; only ever raised, and before a record that needs it is committed
//! r:ID   it is about to be deleted: nothing may be packed with it any more
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use qim_core::{Compressor, ConversationKey, Dictionary, StoredPayload, UnixMillis, codec};

use super::keys::DICTIONARIES;
use super::{Draft, HotError, HotValue, RedisMessageStore};

/// Dates are noted by the day, so that a writer does it about once a day.
const DAY: Duration = Duration::from_hours(24);

/// A dictionary in Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HotDictionary {
    /// Its number.
    pub id: u32,
    /// When the last record that needs it expires, or later.
    pub needed_until: UnixMillis,
    /// It is about to be deleted.
    pub is_retired: bool,
}

/// Until when each dictionary is kept for this process, as far as it has asked. Never later than what Redis has.
#[derive(Debug, Default)]
pub(super) struct Kept(Mutex<HashMap<u32, UnixMillis>>);

impl Kept {
    fn until(&self, id: u32) -> UnixMillis {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(&id).copied().unwrap_or(UnixMillis::EPOCH)
    }

    fn raise(&self, id: u32, until: UnixMillis) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept.entry(id).or_default();
        *known = until.max(*known);
    }
}

impl RedisMessageStore {
    /// All dictionaries, ascending by number.
    pub async fn dictionaries(&self) -> Result<Vec<HotDictionary>, HotError> {
        let fields: Vec<String> = self.connection.command(redis::cmd("HKEYS").arg(DICTIONARIES)).await?;
        let numbers = fields.iter().filter_map(|field| field.strip_prefix("d:")?.parse::<u32>().ok());
        let mut all = Vec::new();
        for id in numbers {
            let mut facts = redis::cmd("HMGET");
            facts.arg(DICTIONARIES).arg(format!("u:{id}")).arg(format!("r:{id}"));
            let (needed_until, retired): (Option<u64>, Option<String>) =
                self.connection.command(&facts).await?;
            let needed_until = UnixMillis::new(needed_until.unwrap_or(0));
            all.push(HotDictionary { id, needed_until, is_retired: retired.is_some() });
        }
        all.sort_by_key(|dictionary| dictionary.id);
        Ok(all)
    }

    /// A dictionary as it is stored; `None` where it is not there.
    pub async fn dictionary(&self, id: u32) -> Result<Option<Bytes>, HotError> {
        let stored: Option<Vec<u8>> =
            self.connection.command(redis::cmd("HGET").arg(DICTIONARIES).arg(format!("d:{id}"))).await?;
        Ok(stored.map(Bytes::from))
    }

    /// A number for a new dictionary, above this one and all that were ever given.
    pub async fn reserve_dictionary(&self, above: u32) -> Result<u32, HotError> {
        let mut call = self.scripts.reserve_dictionary.call();
        self.connection.script(call.key(DICTIONARIES).arg(above)).await
    }

    /// Puts a dictionary there that the archive has; one that is there stays. It is kept until this date at least.
    pub async fn add_dictionary(
        &self,
        id: u32,
        stored: &Bytes,
        needed_until: UnixMillis,
    ) -> Result<(), HotError> {
        let mut add = redis::cmd("HSETNX");
        add.arg(DICTIONARIES).arg(format!("d:{id}")).arg(&stored[..]);
        self.connection.command::<()>(&add).await?;
        self.raise_dictionary(id, needed_until).await?;
        Ok(())
    }

    /// Keeps a dictionary until this date at least; `false` where it cannot be kept.
    pub async fn raise_dictionary(&self, id: u32, needed_until: UnixMillis) -> Result<bool, HotError> {
        let mut call = self.scripts.raise_dictionary.call();
        self.connection.script(call.key(DICTIONARIES).arg(id).arg(needed_until.get())).await
    }

    /// Says that a dictionary is about to be deleted; `false` where records have needed it since `before`.
    pub async fn retire_dictionary(&self, id: u32, before: UnixMillis) -> Result<bool, HotError> {
        let mut call = self.scripts.retire_dictionary.call();
        self.connection.script(call.key(DICTIONARIES).arg(id).arg(before.get())).await
    }

    /// Deletes a dictionary that was retired.
    pub async fn remove_dictionary(&self, id: u32) -> Result<(), HotError> {
        let mut remove = redis::cmd("HDEL");
        remove.arg(DICTIONARIES);
        for field in ["d", "u", "r"] {
            remove.arg(format!("{field}:{id}"));
        }
        self.connection.command(&remove).await
    }

    /// Reads a dictionary that records need. Answers whether it is there and whole.
    pub(crate) async fn learn_dictionary(&self, id: u32) -> Result<bool, HotError> {
        let Some(stored) = self.dictionary(id).await? else { return Ok(false) };
        match Dictionary::decode(id, &stored) {
            Ok(dictionary) => {
                self.decompressor.learn(dictionary.into());
                Ok(true)
            }
            Err(error) => {
                tracing::error!(id, %error, "a dictionary in Redis is damaged");
                Ok(false)
            }
        }
    }

    /// What commits pack with, where they do.
    pub(crate) fn compressor(&self) -> Option<&Compressor> {
        self.compressor.as_deref()
    }

    /// The payload as it is to be stored. A record that never expires would keep its dictionary for ever.
    pub(super) fn pack(&self, conversation: &ConversationKey, draft: &Draft) -> StoredPayload {
        let never_expires = self.retention.retention(draft.class, conversation.tenant()).is_none();
        match &self.compressor {
            None => StoredPayload::raw(draft.payload.clone()),
            Some(compressor) if never_expires => compressor.pack(&draft.payload),
            Some(compressor) => compressor.pack_expiring(&draft.payload),
        }
    }

    /// Makes sure, before records are committed, that the dictionaries that they need outlive them. `false` where one
    /// has gone meanwhile: then nothing may be committed that needs it, and nothing is packed with it any more.
    pub(super) async fn keep_dictionaries(
        &self,
        messages: impl Iterator<Item = codec::Fields<'_>>,
    ) -> Result<bool, HotError> {
        let mut needed: BTreeMap<u32, UnixMillis> = BTreeMap::new();
        for message in messages {
            if let Some(id) = message.payload.dictionary() {
                let expires_at = message.expires_at.expect("what never expires is packed by itself");
                let until = needed.entry(id).or_default();
                *until = expires_at.max(*until);
            }
        }
        for (id, until) in needed {
            if until <= self.kept.until(id) {
                continue;
            }
            let until = next_day(until);
            if !self.raise_dictionary(id, until).await? {
                tracing::warn!(id, "the dictionary has gone: packing without one");
                if let Some(compressor) = &self.compressor {
                    compressor.use_dictionary(None).expect("none can be used");
                }
                return Ok(false);
            }
            self.kept.raise(id, until);
        }
        Ok(true)
    }

    /// Reads the dictionaries that these values need and that are not known yet.
    pub(super) async fn learn_for<'a>(
        &self,
        values: impl Iterator<Item = &'a HotValue>,
    ) -> Result<(), HotError> {
        let needed = |value: &HotValue| match value {
            HotValue::Record(record) => record.encoded.dictionary(),
            HotValue::Collected { .. } | HotValue::Damaged { .. } => None,
        };
        for id in values.filter_map(needed).collect::<BTreeSet<_>>() {
            if self.decompressor.dictionary(id).is_none() {
                self.learn_dictionary(id).await?;
            }
        }
        Ok(())
    }
}

/// The end of the day that the date is in.
fn next_day(date: UnixMillis) -> UnixMillis {
    let day = u64::try_from(DAY.as_millis()).expect("a day");
    UnixMillis::new((date.get() / day + 1) * day)
}
