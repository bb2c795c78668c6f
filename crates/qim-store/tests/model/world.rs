//! A deployment and its model, changed together, step by step.

use std::sync::Arc;
use std::time::Duration;

use proptest::sample::Index;
use qim_core::{Compression, ConversationKey, Message, RetentionClass, UnixMillis};
use qim_store::hot::{Committed, Draft, HotError, Marks};
use qim_store::tiered::{MoveError, TieredCommitError, TieredDraft};
use qim_store::{ArchiveStore, TieredMessageStore};
use qim_testkit::{ConversationModel, FaultMode, FaultProxy, ModelCommit, RedisServer};

use crate::step::{BACK_MAX, CONVERSATIONS, Step};
use crate::support::FaultyArchive;
use crate::support::*;

/// What the hot tier surely remembers, wherever its record is.
const SURELY_HOT: Duration = Duration::from_hours(24 * 6);
/// What the archive remembers of records that GC never takes before their copy.
const SURELY_ARCHIVED: Duration = Duration::from_hours(24 * 89);
/// Every so many messages have a payload that is kept in pieces.
const LARGE_EACH: u32 = 16;
const LARGE_BYTES: usize = 20_000;
/// About ten messages.
const RECENT_BYTES_FEW: usize = 2_000;

pub(crate) struct World {
    pub(crate) redis: RedisServer,
    /// The last one commits; the others were there before it.
    pub(crate) writers: Vec<TieredMessageStore>,
    pub(crate) archive: Arc<FaultyArchive>,
    link: FaultProxy,
    pub(crate) now: UnixMillis,
    /// The latest that it ever was.
    pub(crate) latest: UnixMillis,
    pub(crate) models: Vec<ConversationModel>,
    /// Of each conversation, as they were seen last.
    pub(crate) marks: Vec<Marks>,
    pub(crate) earliest: Vec<u64>,
    /// How long the file of Redis was after each step.
    pub(crate) file_bytes: Vec<u64>,
    /// Writers keep less of what they acknowledged than a step takes.
    pub(crate) is_forgetful: bool,
    /// Redis has lost data.
    pub(crate) has_lost: bool,
    next_id: u32,
    /// Something was trimmed while the archive did not answer: what expired then went without leaving its id there.
    has_trimmed_alone: bool,
}

impl World {
    /// An empty deployment over this archive. `name` sets its conversations apart from those of others there.
    pub(crate) async fn new(archive: Arc<dyn ArchiveStore>, name: &str, is_forgetful: bool) -> Self {
        let (redis, link) = redis_options().start_behind_proxy();
        let archive = Arc::new(FaultyArchive::new(archive));
        let writers =
            vec![open(&redis.url_by(link.addr()), archive.clone(), Compression::Zstd, is_forgetful).await];
        let file_bytes = vec![redis.append_only_bytes()];
        let key = |i: usize| conversation(&format!("{name}c{i}"));
        let models = (0..CONVERSATIONS).map(|i| ConversationModel::new(key(i), thirty_days())).collect();
        let (marks, earliest) = (vec![Marks::NEW; CONVERSATIONS], vec![0; CONVERSATIONS]);
        Self {
            redis,
            writers,
            archive,
            link,
            now: NOW,
            latest: NOW,
            models,
            marks,
            earliest,
            file_bytes,
            is_forgetful,
            has_lost: false,
            next_id: 0,
            has_trimmed_alone: false,
        }
    }

    pub(crate) fn key(&self, conversation: usize) -> ConversationKey {
        self.models[conversation].conversation().clone()
    }

    /// The writer that commits now.
    pub(crate) fn writer(&self) -> &TieredMessageStore {
        self.writers.last().expect("there is one from the beginning")
    }

    pub(crate) async fn step(&mut self, step: &Step) {
        self.take_step(step).await;
        self.file_bytes.push(self.redis.append_only_bytes());
    }

    async fn take_step(&mut self, step: &Step) {
        match step {
            Step::Send { conversation, class, count, hours_old } => {
                let created_at = self.now - HOUR * *hours_old;
                let drafts = (0..*count).map(|_| self.new_draft(*class, created_at)).collect();
                self.send(*conversation, drafts).await;
            }
            Step::Resend { conversation, which } => {
                if let Some(draft) = self.pick(*conversation, *which, Self::is_remembered) {
                    let new = self.new_draft(RetentionClass::Default, self.now);
                    self.send(*conversation, vec![draft, new]).await;
                }
            }
            Step::Conflict { conversation, which } => {
                if let Some(draft) =
                    self.pick(*conversation, *which, |world, known| !known.is_expired(world.latest))
                {
                    let new = self.new_draft(RetentionClass::Default, self.now);
                    let other = Draft { payload: "something else".into(), ..draft };
                    self.send(*conversation, vec![new, other]).await;
                }
            }
            Step::SendUnanswered { conversation, class } => {
                let draft = self.new_draft(*class, self.now);
                self.send_unanswered(*conversation, draft).await;
            }
            Step::Advance(time) => {
                self.now = self.now + *time;
                self.latest = self.latest.max(self.now);
            }
            Step::Rewind(time) => self.now = (self.now - *time).max(self.latest - BACK_MAX),
            Step::Collect => _ = collect_all(self.writer().hot(), self.now).await,
            Step::Copy { conversation } => self.copy(*conversation).await,
            Step::Trim { conversation } => self.trim(*conversation).await,
            Step::CrashedCopy { conversation, at } => {
                let before = self.archive.set(*at);
                self.copy(*conversation).await;
                self.archive.set(before);
            }
            Step::CrashedTrim { conversation, at } => {
                let before = self.archive.set(*at);
                self.trim(*conversation).await;
                self.archive.set(before);
            }
            Step::StaleArchiver { conversation } => self.stale_archiver(*conversation).await,
            Step::Archive(fault) => _ = self.archive.set(*fault),
            Step::Maintain => self.maintain().await,
            Step::Train => self.train().await,
            Step::AnotherWriter(compression) => {
                let url = self.redis.url_by(self.link.addr());
                let writer = open(&url, self.archive.clone(), *compression, self.is_forgetful).await;
                // Where the archive is away it learns them when it needs them.
                let _ = writer.refresh_dictionaries().await;
                self.writers.push(writer);
            }
            Step::Lose { conversation, loss } => self.lose(*conversation, loss).await,
            Step::Seek { conversation, hours_ago } => self.seek(*conversation, *hours_ago).await,
            Step::Describe { conversation } => self.describe(*conversation).await,
        }
    }

    pub(crate) fn new_draft(&mut self, class: RetentionClass, created_at: UnixMillis) -> Draft {
        self.next_id += 1;
        let mut draft = draft(&format!("id-{}", self.next_id), class, created_at);
        if self.next_id.is_multiple_of(LARGE_EACH) {
            draft.payload = noise(self.next_id, LARGE_BYTES);
        }
        draft
    }

    /// Whether it will be recognised for certain when it is sent again.
    fn is_remembered(&self, known: &Message) -> bool {
        let archived = known.class == RetentionClass::Default
            && self.latest < known.created_at + SURELY_ARCHIVED
            && !self.has_trimmed_alone;
        let hot = self.latest < known.created_at + SURELY_HOT && !self.has_lost;
        !known.is_expired(self.latest) || hot || archived
    }

    /// One of the messages of which `fits` is true, as it is sent again.
    fn pick(
        &self,
        conversation: usize,
        which: Index,
        fits: impl Fn(&Self, &Message) -> bool,
    ) -> Option<Draft> {
        let known: Vec<&Message> = self.models[conversation]
            .all()
            .map(|(_, known)| known)
            .filter(|known| fits(self, known))
            .collect();
        let known = known.get(which.index(known.len().max(1)))?;
        Some(Draft {
            sender: known.sender.clone(),
            client_msg_id: known.client_msg_id.clone(),
            class: known.class,
            content_type: known.content_type.clone(),
            payload: known.payload.clone(),
            created_at: known.created_at,
        })
    }

    /// As clients send them.
    pub(crate) fn as_sent(&self, drafts: &[Draft]) -> Vec<TieredDraft> {
        let tiered = |draft: &Draft| TieredDraft {
            draft: draft.clone(),
            first_sent_at: Some(self.first_sent_at(draft.created_at)),
        };
        drafts.iter().map(tiered).collect()
    }

    /// Sends a batch, and wants the answer that the model gives.
    async fn send(&mut self, conversation: usize, drafts: Vec<Draft>) {
        let key = self.key(conversation);
        let result = self.writer().commit(&key, &self.as_sent(&drafts), self.now).await;
        if let Err(TieredCommitError::Archive(_)) = result {
            // Whether it is known could not be asked: nothing was done, as the next check shows.
            return;
        }
        let expected = self.models[conversation].commit(&drafts.iter().map(message).collect::<Vec<_>>());
        match (expected, result) {
            (ModelCommit::AlreadyExists(expected), Err(TieredCommitError::AlreadyExists { index, .. })) => {
                assert_eq!(index, expected);
            }
            (ModelCommit::Taken(expected), Ok(answers)) => {
                self.check_answers(conversation, &expected, &answers);
            }
            (expected, result) => panic!("{expected:?} was to come, not {result:?}"),
        }
    }

    fn check_answers(&mut self, conversation: usize, expected: &[(u64, bool)], answers: &[Committed]) {
        let told: Vec<_> = answers.iter().map(|answer| (answer.seq, answer.duplicate)).collect();
        assert_eq!(told, expected, "seqs of {}", self.key(conversation));
        for answer in answers {
            if let (true, Some(dates)) = (self.has_lost, answer.dates) {
                self.models[conversation].believe(answer.seq, dates.created_at, self.latest);
            }
            let known = self.models[conversation].at(answer.seq);
            let told = answer.dates.map(|dates| (dates.created_at, dates.expires_at));
            assert!(told.is_some() || known.is_expired(self.latest), "a living record has dates");
            assert!(
                told.is_none_or(|told| told == (known.created_at, known.expires_at)),
                "dates of seq {}: {told:?}, not {:?}",
                answer.seq,
                (known.created_at, known.expires_at)
            );
        }
    }

    /// A new message was taken.
    pub(crate) fn expect_taken(&mut self, conversation: usize, draft: &Draft, answers: &[Committed]) {
        let ModelCommit::Taken(expected) = self.models[conversation].commit(&[message(draft)]) else {
            unreachable!("it is new");
        };
        self.check_answers(conversation, &expected, answers);
    }

    /// The answer to the first request for it is lost; so may be what was asked before. Then it is sent again.
    async fn send_unanswered(&mut self, conversation: usize, draft: Draft) {
        let (key, batch) = (self.key(conversation), self.as_sent(std::slice::from_ref(&draft)));
        self.link.set(FaultMode::DropOneReply);
        let first = self.writer().commit(&key, &batch, self.now).await;
        self.link.set(FaultMode::Pass);
        let unavailable =
            |error: &TieredCommitError| matches!(error, TieredCommitError::Hot(HotError::Unavailable(_)));
        let may_fail =
            |error: &TieredCommitError| unavailable(error) || matches!(error, TieredCommitError::Archive(_));
        assert!(first.as_ref().err().is_none_or(may_fail), "{first:?}");
        let again = loop {
            match self.writer().commit(&key, &batch, self.now).await {
                // The connection may still be that of the lost answer.
                Err(error) if unavailable(&error) => {}
                // It has to be asked, as it was the first time.
                Err(TieredCommitError::Archive(_)) => _ = self.archive.set(Fault::None),
                result => break result.expect("it can be committed").remove(0),
            }
        };
        let ModelCommit::Taken(expected) = self.models[conversation].commit(&[message(&draft)]) else {
            unreachable!("it is new");
        };
        assert_eq!(again.seq, expected[0].0, "one seq, however often it was sent");
    }

    async fn maintain(&self) {
        while let Ok(report) = self.archive.maintain(self.now).await {
            if !report.more {
                break;
            }
        }
        let _ = self.writer().maintain_dictionaries(self.now).await;
    }

    async fn train(&self) {
        let words = format!("body of id-{}", self.next_id);
        let _ = self.writer().add_dictionary(words.into(), self.now).await;
        let _ = self.writer().refresh_dictionaries().await;
    }

    /// Copies all of it, or until the archive fails.
    pub(crate) async fn copy(&self, conversation: usize) {
        if self.models[conversation].last() == 0 {
            return;
        }
        let (key, hot) = (self.key(conversation), self.writer().hot());
        let fence = fence(hot, &key).await;
        loop {
            match self.writer().copy(&key, &fence, self.now).await {
                Ok(report) if report.more => {}
                Ok(_) | Err(MoveError::Archive(_)) => break,
                Err(error) => panic!("{error}"),
            }
        }
        hot.release_lease(&fence).await.unwrap();
    }

    /// Trims all that is due, or until the archive fails.
    async fn trim(&mut self, conversation: usize) {
        self.has_trimmed_alone |= !self.archive.is_well();
        let (key, hot) = (self.key(conversation), self.writer().hot());
        let fence = fence(hot, &key).await;
        loop {
            match self.writer().trim(&key, &fence, self.now).await {
                Ok(report) if report.more => {}
                Ok(_) | Err(MoveError::Archive(_)) => break,
                Err(error) => panic!("{error}"),
            }
        }
        hot.release_lease(&fence).await.unwrap();
    }

    async fn stale_archiver(&mut self, conversation: usize) {
        if self.models[conversation].last() == 0 {
            return;
        }
        let (key, hot) = (self.key(conversation), self.writer().hot());
        let stale = fence(hot, &key).await;
        hot.release_lease(&stale).await.unwrap();
        let fresh = fence(hot, &key).await;
        let before = self.writer().marks(&key, self.now).await.unwrap();
        let copied = self.writer().copy(&key, &stale, self.now).await;
        let trimmed = self.writer().trim(&key, &stale, self.now).await;
        for refused in [copied.err(), trimmed.err()] {
            let refused = refused.expect("it is fenced");
            assert!(matches!(refused, MoveError::Hot(HotError::Fenced) | MoveError::Archive(_)), "{refused}");
        }
        assert_eq!(self.writer().marks(&key, self.now).await.unwrap(), before, "it moved nothing");
        hot.release_lease(&fresh).await.unwrap();
        self.copy(conversation).await;
    }
}

/// A writer that has seen Redis: what it finds from then on is no new deployment.
async fn open(
    url: &str,
    archive: Arc<FaultyArchive>,
    compression: Compression,
    is_forgetful: bool,
) -> TieredMessageStore {
    let recent_bytes_max = if is_forgetful { RECENT_BYTES_FEW } else { usize::MAX };
    let hot = connect_to(url).with_compression(compression).with_recent_bytes_max(recent_bytes_max);
    let writer = TieredMessageStore::with_trim(hot, archive, WINDOW);
    writer.watch_lineage(NOW, false).await.expect("Redis answers");
    writer
}

fn message(draft: &Draft) -> Message {
    Message {
        sender: draft.sender.clone(),
        client_msg_id: draft.client_msg_id.clone(),
        class: draft.class,
        created_at: draft.created_at,
        expires_at: None,
        content_type: draft.content_type.clone(),
        payload: draft.payload.clone(),
    }
}
