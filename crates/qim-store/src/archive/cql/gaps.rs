use qim_core::{ConversationKey, UnixMillis};

use super::link::Link;
use super::put::{micros, raise_high_water};
use crate::archive::row::{signed, unsigned};
use crate::archive::{ArchiveError, Gap};

pub(super) async fn is_empty(link: &Link) -> Result<bool, ArchiveError> {
    Ok(link.rows::<(String,)>(&link.statements.any_conversation, ()).await?.is_empty())
}

/// The mark of a conversation without names, which no real one is.
pub(super) async fn found(link: &Link) -> Result<(), ArchiveError> {
    link.write(vec![(&link.statements.raise_high_water, (1_i64, 1_i64, "", ""))]).await
}

/// The mark first: a gap that is not noted does less harm than a seq that is given again.
pub(super) async fn note(
    link: &Link,
    conversation: &ConversationKey,
    Gap { from, to, noticed_at }: Gap,
) -> Result<(), ArchiveError> {
    raise_high_water(link, conversation, to).await?;
    let (tenant, conversation) = (conversation.tenant().as_str(), conversation.conversation());
    let values = (tenant, conversation, signed(from), signed(to), noticed_at.as_i64(), micros(noticed_at));
    link.write(vec![(&link.statements.insert_gap, values)]).await
}

pub(super) async fn of(link: &Link, conversation: &ConversationKey) -> Result<Vec<Gap>, ArchiveError> {
    let names = (conversation.tenant().as_str(), conversation.conversation());
    let rows: Vec<(i64, i64, i64)> = link.rows(&link.statements.gaps, names).await?;
    let gap = |(from, to, noticed_at)| Gap {
        from: unsigned(from),
        to: unsigned(to),
        noticed_at: UnixMillis::new(unsigned(noticed_at)),
    };
    Ok(rows.into_iter().map(gap).collect())
}
