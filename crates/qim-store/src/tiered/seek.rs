use qim_core::{ConversationKey, UnixMillis};

use super::{PullError, TieredMessageStore};
use crate::archive::{Direction, SeqRange};
use crate::hot::{Marks, PageStart};

impl TieredMessageStore {
    /// Where reading from a time starts: no record below the seq was created at or after `time`, and the first one that
    /// can be read from there on was. `last + 1` where all are older.
    pub(super) async fn seek(
        &self,
        conversation: &ConversationKey,
        time: UnixMillis,
        now: UnixMillis,
    ) -> Result<u64, PullError> {
        let (marks, hot) = if self.hot.lineage(conversation).await?.doubted_at().is_some() {
            self.seek_in_doubt(conversation, time, now).await?
        } else {
            self.hot.seek_time(conversation, time).await?
        };
        if hot > marks.floor || marks.floor == 1 {
            return Ok(hot);
        }
        // All that is hot is young enough; maybe some of the archive is too. Dates never go back along a conversation.
        let (mut low, mut high) = (1, marks.floor);
        while low < high {
            let middle = u64::midpoint(low, high);
            let range = SeqRange { from: middle, below: high };
            let page = self.archive.read(conversation, range, Direction::Forwards, 1, now).await?;
            match (page.records.first(), page.next) {
                (Some(record), _) if record.encoded.created_at() >= time => high = middle,
                (Some(record), _) => low = record.seq + 1,
                (None, Some(next)) => low = next,
                (None, None) => high = middle,
            }
        }
        Ok(low)
    }

    /// As in the hot tier, with what the archive knows of a conversation that is not hot any more.
    async fn seek_in_doubt(
        &self,
        conversation: &ConversationKey,
        time: UnixMillis,
        now: UnixMillis,
    ) -> Result<(Marks, u64), PullError> {
        let page = self.settled_page(conversation, PageStart::After(u64::MAX), 0, now).await?;
        Ok(match self.hot.seek_time(conversation, time).await? {
            found if found.0.last > 0 => found,
            _ => (page.marks, page.marks.floor),
        })
    }
}
