//! What keeps dictionaries in both tiers, from the first record that needs them to the last.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use qim_core::{ConversationKey, Dictionary, DictionaryError, UnixMillis};

use super::{MoveError, TieredMessageStore};
use crate::hot::{HotDictionary, HotError, HotPage, HotValue, PageStart};

/// A dictionary stays for so long after the last record that needs it: longer than clocks are apart, writers go on
/// with what they know, and rows stay after their date.
pub const DICTIONARY_MARGIN: Duration = Duration::from_hours(48);
/// While something has waited for its copy or trim for longer than this, no dictionary goes: expired records may still
/// have to be opened on their way.
const BACKLOG_MAX: Duration = Duration::from_hours(24);

/// What [`TieredMessageStore::maintain_dictionaries`] found and did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DictionaryReport {
    /// Dictionaries that are there.
    pub kept: u64,
    /// Dictionaries deleted, since nothing needs them any more.
    pub deleted: u64,
    /// Dictionaries that one of the tiers had lost, and has again.
    pub restored: u64,
}

/// Why a dictionary was not added.
#[derive(Debug, thiserror::Error)]
pub enum AddDictionaryError {
    /// It is none.
    #[error(transparent)]
    Dictionary(#[from] DictionaryError),
    /// A tier failed.
    #[error(transparent)]
    Tier(#[from] MoveError),
}

impl TieredMessageStore {
    /// Stores a dictionary in both tiers, the archive first, under a new number, which makes it the current one: the
    /// one that writers use from their next refresh on. Answers the number.
    pub async fn add_dictionary(&self, bytes: Bytes, now: UnixMillis) -> Result<u32, AddDictionaryError> {
        let archived = self.archive.dictionaries().await.map_err(MoveError::from)?;
        let highest = archived.last().map_or(0, |mark| mark.id);
        let id = self.hot.reserve_dictionary(highest).await.map_err(MoveError::from)?;
        let dictionary = Dictionary::new(id, now, bytes)?;
        self.archive.add_dictionary(&dictionary).await.map_err(MoveError::from)?;
        self.hot.add_dictionary(id, &dictionary.encode(), now).await.map_err(MoveError::from)?;
        Ok(id)
    }

    /// Learns all dictionaries and lets commits pack with the current one: the one with the highest number. Answers
    /// which that is; `None` where there is none, or where commits do not compress.
    pub async fn refresh_dictionaries(&self) -> Result<Option<u32>, HotError> {
        let all = self.hot.dictionaries().await?;
        for HotDictionary { id, .. } in &all {
            self.learn_dictionary(*id).await?;
        }
        let ids: Vec<u32> = all.iter().map(|dictionary| dictionary.id).collect();
        self.hot.decompressor().forget_all_but(&ids);
        let Some(compressor) = self.hot.compressor() else { return Ok(None) };
        let mut usable = all.iter().rev().filter(|dictionary| !dictionary.is_retired);
        let current = usable.find_map(|usable| self.hot.decompressor().dictionary(usable.id));
        let id = current.as_ref().map(|dictionary| dictionary.id());
        if compressor.dictionary() != id {
            match compressor.use_dictionary(current.as_deref()) {
                Ok(()) => tracing::info!(id, "payloads are packed with another dictionary from now on"),
                Err(error) => tracing::error!(id, %error, "the dictionary cannot be used"),
            }
        }
        Ok(compressor.dictionary())
    }

    /// Reads a dictionary that records need, unless it is known: from Redis, else from the archive. Answers whether it
    /// is there and whole.
    async fn learn_dictionary(&self, id: u32) -> Result<bool, HotError> {
        if self.hot.decompressor().dictionary(id).is_some() || self.hot.learn_dictionary(id).await? {
            return Ok(true);
        }
        let unavailable =
            |error| HotError::Unavailable(format!("dictionary {id} is not in Redis, and {error}"));
        let Some(stored) = self.archive.dictionary(id).await.map_err(unavailable)? else { return Ok(false) };
        let dictionary = Dictionary::decode(id, &stored);
        if let Ok(dictionary) = dictionary {
            self.hot.decompressor().learn(Arc::new(dictionary));
            return Ok(true);
        }
        Ok(false)
    }

    /// A page of the hot tier for readers: of a Redis that is as it was left (ADR 18), and with payloads that can be opened,
    /// where their dictionaries can be had at all. What is damaged is the archive's copy, where that is whole.
    pub(super) async fn hot_page(
        &self,
        conversation: &ConversationKey,
        start: PageStart,
        limit: usize,
        now: UnixMillis,
    ) -> Result<HotPage, HotError> {
        let lineage = self.hot.lineage(conversation).await?;
        let mut page = self.hot.read_page_in(Some(&lineage), conversation, start, limit, now).await?;
        self.stand_in(conversation, &mut page, now).await;
        let needed = |value: &HotValue| value.readable(now)?.dictionary();
        for id in page.values.iter().filter_map(needed).collect::<BTreeSet<_>>() {
            self.learn_dictionary(id).await?;
        }
        Ok(page)
    }

    /// Makes both tiers agree on the dictionaries, and deletes those that no record needs any more. Safe to call from
    /// several processes, and to repeat after a crash at any point.
    pub async fn maintain_dictionaries(&self, now: UnixMillis) -> Result<DictionaryReport, MoveError> {
        let mut report =
            DictionaryReport { restored: self.restore_dictionaries(now).await?, ..Default::default() };
        let all = self.hot.dictionaries().await?;
        report.kept = all.len() as u64;
        let Some((current, others)) = all.split_last() else { return Ok(report) };
        debug_assert!(others.iter().all(|other| other.id < current.id), "ascending");
        let before = now - DICTIONARY_MARGIN;
        let due: Vec<_> =
            others.iter().filter(|other| other.is_retired || other.needed_until < before).collect();
        if due.is_empty() || self.has_backlog(now).await? {
            return Ok(report);
        }
        for HotDictionary { id, .. } in due {
            // Asked of Redis at the moment itself: a writer may have kept it meanwhile.
            if self.hot.retire_dictionary(*id, before).await? {
                self.archive.delete_dictionary(*id).await?;
                self.hot.remove_dictionary(*id).await?;
                tracing::info!(id, "no record needs the dictionary any more: deleted");
                report.deleted += 1;
                report.kept -= 1;
            }
        }
        Ok(report)
    }

    /// Puts back what one tier has lost, and notes in the archive until when dictionaries are needed. Answers how many
    /// were put back.
    async fn restore_dictionaries(&self, now: UnixMillis) -> Result<u64, MoveError> {
        // Redis first: what another archiver deletes meanwhile leaves the archive before it leaves Redis.
        let hot = self.hot.dictionaries().await?;
        let archived = self.archive.dictionaries().await?;
        let mut restored = 0;
        for mark in archived.iter().filter(|mark| hot.iter().all(|dictionary| dictionary.id != mark.id)) {
            // Redis has lost its data. What was committed since the archive was told last cannot be known, so the
            // longest retention counts from now on.
            let retentions = qim_core::RetentionClass::ALL
                .into_iter()
                .filter_map(|class| self.hot.retention().retention(class, &qim_core::TenantId::default()));
            let until = now + retentions.max().unwrap_or_default() + Duration::from_hours(24);
            if let Some(stored) = self.archive.dictionary(mark.id).await? {
                self.hot.add_dictionary(mark.id, &stored, mark.needed_until.max(until)).await?;
                tracing::warn!(id = mark.id, "Redis had lost a dictionary: restored from the archive");
                restored += 1;
            }
        }
        for dictionary in hot.iter().filter(|dictionary| !dictionary.is_retired) {
            let archived = archived.iter().find(|mark| mark.id == dictionary.id);
            if archived.is_none()
                && self.is_in_use(dictionary.id).await?
                && let Some(stored) = self.hot.dictionary(dictionary.id).await?
                && let Ok(whole) = Dictionary::decode(dictionary.id, &stored)
            {
                self.archive.add_dictionary(&whole).await?;
                tracing::warn!(id = dictionary.id, "the archive had lost a dictionary: restored from Redis");
                restored += 1;
            }
            if archived.is_none_or(|mark| mark.needed_until < dictionary.needed_until) {
                self.archive.raise_dictionary(dictionary.id, dictionary.needed_until).await?;
            }
        }
        Ok(restored)
    }

    /// Another archiver may be deleting it: it retires a dictionary before the archive loses it.
    async fn is_in_use(&self, id: u32) -> Result<bool, HotError> {
        Ok(self.hot.dictionaries().await?.iter().any(|other| other.id == id && !other.is_retired))
    }

    async fn has_backlog(&self, now: UnixMillis) -> Result<bool, HotError> {
        let stats = self.hot.stats(now).await?;
        let late = now - BACKLOG_MAX;
        Ok(stats.unarchived_since.is_some_and(|since| since < late)
            || stats.oldest_created_at.is_some_and(|created_at| created_at + self.window < late))
    }
}
