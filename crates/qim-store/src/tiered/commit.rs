use std::time::Duration;

use qim_core::{ClientIdHash, ConversationKey, Message, UnixMillis, body_digest};

use super::{TierError, TieredMessageStore};
use crate::archive::{ArchiveError, CommittedId};
use crate::hot::{CommitError, Committed, Dates, Draft, HotError};

/// How often a commit starts over because a trim moved the floor under it, or because it had to be settled first.
const ATTEMPTS_MAX: usize = 16;

/// For how long after Redis may have lost data a message may be one that was sent before, and says nothing of that.
const RETRIES_AFTER_LOSS: Duration = Duration::from_mins(10);

/// A draft, and when its client first tried to send it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TieredDraft {
    /// The message.
    pub draft: Draft,
    /// When the client first tried; `None`: now.
    pub first_sent_at: Option<UnixMillis>,
}

/// Why a batch was not committed. Nothing of it was.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TieredCommitError {
    /// The client id of a draft was used before for a message that says something else.
    #[error("the client_msg_id was used before, for a message with another body (seq {seq})")]
    AlreadyExists {
        /// Which draft of the batch, from 0.
        index: usize,
        /// The message that has the id; 0 where it is an earlier one of the same batch.
        seq: u64,
    },
    /// The hot tier failed.
    #[error(transparent)]
    Hot(#[from] HotError),
    /// The archive has to be asked, and failed: whether it knows drafts that are old, or how far a conversation had come
    /// before Redis may have lost data.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
}

impl From<TierError> for TieredCommitError {
    fn from(error: TierError) -> Self {
        match error {
            TierError::Hot(error) => Self::Hot(error),
            TierError::Archive(error) => Self::Archive(error),
        }
    }
}

impl TieredMessageStore {
    /// Commits drafts of one conversation, all or none. One that may have been committed so long ago that the hot tier
    /// has forgotten it is looked up in the archive first.
    pub async fn commit(
        &self,
        conversation: &ConversationKey,
        drafts: &[TieredDraft],
        now: UnixMillis,
    ) -> Result<Vec<Committed>, TieredCommitError> {
        for _ in 0..ATTEMPTS_MAX {
            // Anew each time: that Redis may have lost data is often noticed by the commit itself.
            let lost_at = self.hot.lineage(conversation).await.ok().and_then(|lineage| lineage.doubted_at());
            // By the clock that dated the loss.
            let lost = lost_at.map(|lost_at| (lost_at, self.hot.server_now(conversation).unwrap_or(now)));
            let may_be_forgotten = |i: &usize| self.may_be_forgotten(&drafts[*i], lost, now);
            let old: Vec<usize> = (0..drafts.len()).filter(may_be_forgotten).collect();
            let (floor, known) = if old.is_empty() {
                (None, vec![None; drafts.len()])
            } else {
                let floor = self.marks(conversation, now).await?.floor;
                (Some(floor), self.find_archived(conversation, drafts, &old, floor, now).await?)
            };
            match self.commit_unknown(conversation, drafts, known, now, floor).await {
                Ok(committed) => return Ok(committed),
                // What was trimmed meanwhile may be what is being sent again: ask once more.
                Err(CommitError::FloorMoved { .. }) => {}
                Err(CommitError::Doubted) => self.settle(conversation, now).await?,
                Err(CommitError::AlreadyExists { index, seq }) => {
                    return Err(TieredCommitError::AlreadyExists { index, seq });
                }
                Err(CommitError::Hot(error)) => return Err(error.into()),
            }
        }
        Err(HotError::Unavailable("the conversation changes too quickly".into()).into())
    }

    /// Whether the hot tier may have forgotten an earlier try of this draft, since it was trimmed or lost: when, and what time
    /// it is now, by the clock of Redis. Asks a little early, since the clock of the archiver that trims may be ahead of this
    /// one, and that of Redis, too.
    fn may_be_forgotten(
        &self,
        draft: &TieredDraft,
        lost: Option<(UnixMillis, UnixMillis)>,
        now: UnixMillis,
    ) -> bool {
        let margin = (self.window / 24).min(Duration::from_hours(1));
        let first = |now: UnixMillis| draft.first_sent_at.unwrap_or(now).min(draft.draft.created_at).min(now);
        first(now) + self.window <= now + margin
            || lost.is_some_and(|(lost_at, server_now)| first(server_now) <= lost_at + RETRIES_AFTER_LOSS)
    }

    /// For each draft: the answer, where the archive knows it.
    async fn find_archived(
        &self,
        conversation: &ConversationKey,
        drafts: &[TieredDraft],
        old: &[usize],
        floor: u64,
        now: UnixMillis,
    ) -> Result<Vec<Option<Committed>>, TieredCommitError> {
        let mut known = vec![None; drafts.len()];
        if floor == 1 {
            // Nothing was ever trimmed here: the hot tier knows all there is.
            return Ok(known);
        }
        let id = |i: &usize| ClientIdHash::of(&drafts[*i].draft.sender, &drafts[*i].draft.client_msg_id);
        let ids: Vec<ClientIdHash> = old.iter().map(id).collect();
        let found = self.archive.find_client_ids(conversation, &ids, now).await?;
        for (index, found) in old.iter().zip(found) {
            if let Some(found) = found {
                known[*index] = Some(answer(&drafts[*index].draft, found, *index)?);
            }
        }
        Ok(known)
    }

    async fn commit_unknown(
        &self,
        conversation: &ConversationKey,
        drafts: &[TieredDraft],
        mut answers: Vec<Option<Committed>>,
        now: UnixMillis,
        floor: Option<u64>,
    ) -> Result<Vec<Committed>, CommitError> {
        let unknown: Vec<usize> = (0..drafts.len()).filter(|i| answers[*i].is_none()).collect();
        if !unknown.is_empty() {
            let batch: Vec<&Draft> = unknown.iter().map(|i| &drafts[*i].draft).collect();
            let committed =
                self.hot.commit(conversation, &batch, now, floor).await.map_err(|error| match error {
                    CommitError::AlreadyExists { index, seq } => {
                        CommitError::AlreadyExists { index: unknown[index], seq }
                    }
                    other => other,
                })?;
            for (index, committed) in unknown.into_iter().zip(committed) {
                answers[index] = Some(committed);
            }
        }
        Ok(answers.into_iter().map(|answer| answer.expect("known or committed")).collect())
    }
}

fn answer(draft: &Draft, found: CommittedId, index: usize) -> Result<Committed, TieredCommitError> {
    let message = Message {
        sender: draft.sender.clone(),
        client_msg_id: draft.client_msg_id.clone(),
        class: draft.class,
        created_at: draft.created_at,
        expires_at: None,
        content_type: draft.content_type.clone(),
        payload: draft.payload.clone(),
    };
    if body_digest(&message) != found.body_digest {
        return Err(TieredCommitError::AlreadyExists { index, seq: found.seq });
    }
    let dates = Dates { created_at: found.created_at, expires_at: found.expires_at };
    Ok(Committed { seq: found.seq, duplicate: true, dates: Some(dates) })
}
