//! Keeps up with what Redis is, and puts back what it lost (ADR 18).

use std::time::Duration;

use qim_core::UnixMillis;

use super::{TierError, TieredMessageStore};
use crate::archive::Gap;
use crate::hot::{Archived, Founding, Hole, HotError, Lineage, PageStart, PutBack, Settle, Settled};

/// Other writers have this long to put back what comes before: they look every half second, and no commit is taken for
/// longer (`QUARANTINE_MS` in `lineage.lua`).
const OTHERS_WAIT: Duration = Duration::from_secs(2);
/// One that waits at a lower seq, or has put back nothing, and has not come on for this long does not hold up the others.
const STUCK: Duration = Duration::from_secs(10);

/// What a look at Redis did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LineageReport {
    /// Records that were put back.
    pub restored: u64,
    /// Something is still to be put back: look again soon.
    pub more: bool,
}

impl TieredMessageStore {
    /// Finds out whether Redis is as it was left, and puts back what it has lost of what this writer acknowledged. To be
    /// called every [`crate::hot::LINEAGE_WATCH_INTERVAL`] by whoever commits. `ask_archived`, where anything is kept for
    /// it, also asks what the archive has by now, so that this need not be remembered any longer. Looking again is harmless.
    pub async fn watch_lineage(
        &self,
        now: UnixMillis,
        ask_archived: bool,
    ) -> Result<LineageReport, TierError> {
        if self.hot.founding() == Founding::NotKnown {
            self.find_out_founding().await?;
        }
        // On a cluster a part of Redis may be away: the others are looked at all the same.
        let mut errors: Vec<TierError> = Vec::new();
        let asked = if ask_archived && self.hot.waits_for_archive() {
            self.hot.archived_to(now).await.map_err(|error| errors.push(error.into())).ok()
        } else {
            None
        };
        let archived = asked.map_or(Archived::NotAsked, |date| Archived::UpTo { date, now });
        errors.extend(self.hot.watch_lineages(archived).await.err().map(TierError::from));
        let mut report = LineageReport::default();
        for result in self.hot.put_back_all().await {
            match result {
                Ok((lineage, put_back)) => {
                    errors.extend(self.follow_up(&lineage, &put_back, &mut report, now).await.err());
                }
                Err(error) => errors.push(error.into()),
            }
        }
        errors.into_iter().next().map_or(Ok(report), Err)
    }

    /// What is left to do where everything of a lane was tried.
    async fn follow_up(
        &self,
        lineage: &Lineage,
        put_back: &PutBack,
        report: &mut LineageReport,
        now: UnixMillis,
    ) -> Result<(), TierError> {
        report.restored += put_back.restored;
        report.more |= !put_back.holes.is_empty();
        self.hot.losses().restored(put_back.restored);
        if put_back.holes.is_empty() {
            self.tell_result(put_back);
        }
        for hole in &put_back.holes {
            let is_next = hole.is_lowest && put_back.others_have_tried && put_back.age > OTHERS_WAIT;
            if is_next || put_back.age > STUCK {
                self.bridge(hole, lineage, now).await?;
            }
        }
        Ok(())
    }

    /// For a new writer, before it takes commits: makes sure that the others know of it (ADR 18). Takes two seconds at most.
    pub async fn introduce_writer(&self) -> Result<(), HotError> {
        self.hot.introduce_writer().await
    }

    /// A Redis without a lineage is a new deployment where the archive has nothing either.
    pub(super) async fn find_out_founding(&self) -> Result<(), TierError> {
        if self.hot.has_no_lineage().await? && self.archive.is_empty().await? {
            self.hot.found().await?;
            // Before anything is committed: if all of Redis is lost then, this is no new deployment.
            self.archive.found().await?;
        } else {
            self.hot.set_founding(Founding::No);
            // Whoever founded it may have been cut off right there.
            let _ = self.archive.found().await;
        }
        Ok(())
    }

    fn tell_result(&self, put_back: &PutBack) {
        tracing::warn!(restored = put_back.restored, "what was acknowledged lately is in Redis");
        for (conversation, seq) in &put_back.conflicts {
            tracing::error!(%conversation, seq, "another record has the seq of one that was acknowledged and lost");
        }
        self.hot.losses().conflicts(put_back.conflicts.len() as u64);
    }

    /// Closes the hole before what is to be put back next: with what the archive has; what it has not is lost.
    async fn bridge(&self, hole: &Hole, lineage: &Lineage, now: UnixMillis) -> Result<(), TierError> {
        let Hole { conversation, last, seq, .. } = hole;
        let known = self.archive.high_water(conversation).await?.max(*last);
        if known + 1 < *seq {
            let noticed_at = lineage.doubted_at().unwrap_or(now);
            self.note_gap(conversation, Gap { from: known + 1, to: seq - 1, noticed_at }).await?;
        }
        let marks = self.hot.read_page(conversation, PageStart::After(u64::MAX), 0, now).await?.marks;
        let request = Settle {
            seen: *last,
            last: seq - 1,
            not_before: self.last_date(conversation, marks, now).await?,
            is_final: false,
        };
        if self.hot.settle(conversation, lineage, request).await? == Settled::Behind {
            self.catch_up(conversation, lineage, marks, seq - 1, now).await?;
        }
        Ok(())
    }
}
