//! Damaged records of the hot tier whose copies in the archive are whole.

use qim_core::{ConversationKey, UnixMillis};

use super::TieredMessageStore;
use crate::archive::{DamagedRow, Direction, SeqRange, StoredRecord};
use crate::hot::{HotPage, HotValue};

impl TieredMessageStore {
    /// Puts the archive's copies in the places of damaged records, as far as it has got them and answers: a page is served
    /// without those that it has not, and without asking for more where it is away. Damage is named all the same.
    pub(super) async fn stand_in(&self, conversation: &ConversationKey, page: &mut HotPage, now: UnixMillis) {
        for value in &mut page.values {
            let HotValue::Damaged { seq, reason } = value else { continue };
            if *seq > page.marks.archived {
                return;
            }
            let range = SeqRange { from: *seq, below: *seq + 1 };
            let found = match self.archive.read(conversation, range, Direction::Forwards, 1, now).await {
                Ok(found) => found,
                Err(error) => {
                    tracing::warn!(%conversation, seq, %error, "a damaged record cannot be served from the archive");
                    return;
                }
            };
            if let Some(copy) = found.records.into_iter().next() {
                let reason = format!("{reason}; its copy in the archive is served");
                let row = DamagedRow { seq: *seq, reason };
                self.note_damage(conversation, &row, "hot", now).await;
                *value = HotValue::Record(StoredRecord { seq: row.seq, encoded: copy.encoded });
            }
        }
    }
}
