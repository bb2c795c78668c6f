use qim_core::{ConversationKey, UnixMillis};
use redis::Value;

use super::commit::read;
use super::{HotError, HotValue, Marks, RedisMessageStore, corrupt};

/// Where a page of the hot tier starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageStart {
    /// At the first seq above this one that is still hot.
    After(u64),
    /// At the seqs just below this one.
    Before(u64),
    /// At the first seq that the archive has not got.
    Unarchived,
}

/// What the hot tier held at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HotPage {
    /// Where the conversation stood.
    pub marks: Marks,
    /// The lowest seq in this tier that can be read, where it was found among the first ones.
    pub first_readable: Option<u64>,
    /// Up to here nothing can be read in this tier but `first_readable`.
    pub looked_to: u64,
    /// The page, ascending and without a gap in the seqs.
    pub values: Vec<HotValue>,
}

impl HotPage {
    /// The page of a conversation that does not exist.
    pub const EMPTY: Self =
        Self { marks: Marks::NEW, first_readable: None, looked_to: 0, values: Vec::new() };
}

impl RedisMessageStore {
    /// Reads up to `limit` (at most 512) places of a conversation and its marks, as they were at one moment.
    pub async fn read_page(
        &self,
        conversation: &ConversationKey,
        start: PageStart,
        limit: usize,
        now: UnixMillis,
    ) -> Result<HotPage, HotError> {
        let (mode, seq) = match start {
            PageStart::After(seq) => ("after", seq),
            PageStart::Before(seq) => ("before", seq),
            PageStart::Unarchived => ("unarchived", 0),
        };
        // Lua counts in doubles; no conversation gets this far.
        let seq = seq.min(1 << 48);
        let mut call = self.scripts.read_page.prepare_invoke();
        let keys = self.keys(conversation);
        call.key(keys.records()).key(keys.shard.idle());
        call.arg(&keys.id).arg(mode).arg(seq).arg(limit).arg(now.get());
        let reply: Vec<Value> = self.connection.script(&call).await?;
        parse_page(conversation, reply)
    }

    /// The lowest place in this tier whose record was created at or after `time` (collected ones count too), and the
    /// marks; `last + 1` when there is none.
    pub async fn seek_time(
        &self,
        conversation: &ConversationKey,
        time: UnixMillis,
    ) -> Result<(Marks, u64), HotError> {
        let mut call = self.scripts.seek_time.prepare_invoke();
        let keys = self.keys(conversation);
        call.key(keys.records()).key(keys.shard.idle()).arg(&keys.id).arg(time.get());
        let reply: Vec<Value> = self.connection.script(&call).await?;
        if reply.is_empty() {
            return Ok((Marks::NEW, 1));
        }
        let mut reply = reply.into_iter();
        let mut next = || reply.next().ok_or_else(|| HotError::Refused("seek_time: short reply".into()));
        let marks = parse_header(conversation, &read::<Vec<u8>>(next()?)?, &mut next)?;
        Ok((marks, read(next()?)?))
    }
}

/// The marks; an error where the reply says why there are none.
fn parse_header(
    conversation: &ConversationKey,
    header: &[u8],
    next: &mut impl FnMut() -> Result<Value, HotError>,
) -> Result<Marks, HotError> {
    if header == b"corrupt" {
        return Err(corrupt(conversation, read::<String>(next()?)?));
    }
    Marks::parse(header).ok_or_else(|| corrupt(conversation, "the header cannot be read"))
}

fn parse_page(conversation: &ConversationKey, reply: Vec<Value>) -> Result<HotPage, HotError> {
    if reply.is_empty() {
        return Ok(HotPage::EMPTY);
    }
    let mut reply = reply.into_iter();
    let mut next = || reply.next().ok_or_else(|| HotError::Refused("read_page: short reply".into()));
    let marks = parse_header(conversation, &read::<Vec<u8>>(next()?)?, &mut next)?;
    let first_readable = Some(read(next()?)?).filter(|seq| *seq > 0);
    let looked_to = read(next()?)?;
    let first: u64 = read(next()?)?;
    let values = reply.zip(first..).map(|(value, seq)| Ok(HotValue::parse(conversation, seq, read(value)?)));
    Ok(HotPage { marks, first_readable, looked_to, values: values.collect::<Result<_, HotError>>()? })
}
