use qim_core::{ConversationKey, UnixMillis, stub};
use redis::Value;

use super::commit::read;
use super::keys::ShardKeys;
use super::layout::Header;
use super::lineage::{CheckedIn, Lineage};
use super::script::ScriptCall;
use super::{HotError, HotValue, Marks, RedisMessageStore, corrupt};

/// Above every seq.
const SEQ_MAX: u64 = 1 << 48;
/// Records that are read without a script, which would see to it that they are not too many bytes: so many of the largest
/// that are not in pieces are 1 MiB.
const DIRECT_LIMIT_MAX: usize = 64;
/// Of a page, those of records in pieces included; but at least one record. The same in `read_page.lua`.
const BYTES_MAX: usize = 3 * 1024 * 1024;
/// How often a page is read whose large records are removed while it is.
const ATTEMPTS_MAX: usize = 8;

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
    /// In which lineage the last seq was known to be right.
    pub(crate) checked_in: CheckedIn,
}

impl HotPage {
    /// The page of a conversation that does not exist.
    pub const EMPTY: Self = Self::of_marks(Marks::NEW);

    /// Of a conversation of which nothing is hot.
    pub(crate) const fn of_marks(marks: Marks) -> Self {
        let checked_in = CheckedIn(0);
        Self { marks, first_readable: None, looked_to: marks.last, values: Vec::new(), checked_in }
    }
}

/// A page as it is stored: stubs in place of large records.
pub(super) struct RawPage {
    marks: Marks,
    first_readable: Option<u64>,
    looked_to: u64,
    checked_in: CheckedIn,
    /// The seq of the first value.
    pub(super) first: u64,
    pub(super) values: Vec<Vec<u8>>,
}

impl RawPage {
    const EMPTY: Self = Self {
        marks: Marks::NEW,
        first_readable: None,
        looked_to: 0,
        checked_in: CheckedIn(0),
        first: 1,
        values: Vec::new(),
    };
}

impl RedisMessageStore {
    /// Reads up to `limit` (at most 512) places of a conversation and its marks, as they were at one moment. Shows whatever
    /// Redis has, also where it has just lost data.
    pub async fn read_page(
        &self,
        conversation: &ConversationKey,
        start: PageStart,
        limit: usize,
        now: UnixMillis,
    ) -> Result<HotPage, HotError> {
        self.read_page_in(None, conversation, start, limit, now).await
    }

    /// As [`Self::read_page`], in this lineage, where one is given: an error where it ended, so that a conversation that Redis
    /// lost is not taken for one that never was.
    pub(crate) async fn read_page_in(
        &self,
        lineage: Option<&Lineage>,
        conversation: &ConversationKey,
        start: PageStart,
        limit: usize,
        now: UnixMillis,
    ) -> Result<HotPage, HotError> {
        for _ in 0..ATTEMPTS_MAX {
            let RawPage { marks, first_readable, looked_to, checked_in, first, values } =
                self.read_raw(lineage, conversation, start, limit, now).await?;
            if let Some(values) = self.complete(conversation, first, values).await? {
                return Ok(HotPage { marks, first_readable, looked_to, values, checked_in });
            }
        }
        Err(HotError::Unavailable("records are removed faster than they can be read".into()))
    }

    /// As [`Self::read_page_in`]; the pieces of large records are not read.
    pub(super) async fn read_raw(
        &self,
        lineage: Option<&Lineage>,
        conversation: &ConversationKey,
        start: PageStart,
        limit: usize,
        now: UnixMillis,
    ) -> Result<RawPage, HotError> {
        let (mode, seq) = match start {
            PageStart::After(seq) => ("after", seq),
            PageStart::Before(seq) => ("before", seq),
            PageStart::Unarchived => ("unarchived", 0),
        };
        let newest = matches!(start, PageStart::Before(seq) if seq >= SEQ_MAX);
        if newest
            && limit <= DIRECT_LIMIT_MAX
            && let Some(page) = self.read_newest(conversation, lineage, limit, now).await?
        {
            return Ok(page);
        }
        // Lua counts in doubles; no conversation gets this far.
        let seq = seq.min(SEQ_MAX);
        let mut call = self.scripts.read_page.call();
        let keys = self.keys(conversation);
        call.key(keys.records()).key(keys.shard.idle());
        call.arg(&keys.id).arg(mode).arg(seq).arg(limit).arg(now.get());
        self.only_in(lineage, &mut call, keys.shard);
        let reply: Vec<Value> = self.connection.script(&call).await?;
        parse_page(conversation, reply)
    }

    /// The newest page, which is what most readers want, without a script: the header stands behind the records. Where a
    /// conversation rests that has no list is asked in the same round trip. `None` where all that does not tell enough,
    /// because the first records have just expired, the conversation changed in between, or something is damaged.
    async fn read_newest(
        &self,
        conversation: &ConversationKey,
        lineage: Option<&Lineage>,
        limit: usize,
        now: UnixMillis,
    ) -> Result<Option<RawPage>, HotError> {
        let keys = self.keys(conversation);
        let records = keys.records();
        let mut range = redis::cmd("LRANGE");
        range.arg(&records).arg(-1 - limit.cast_signed()).arg(-1);
        let mut call = self.scripts.resting.call();
        call.key(&records).key(keys.shard.idle()).arg(&keys.id);
        self.only_in(lineage, &mut call, keys.shard);
        let replies = self.connection.command_and_script(range, &call).await;
        let replies =
            replies.and_then(|(values, resting)| Ok((values.extract_error()?, resting.extract_error()?)));
        let (values, resting) = match replies {
            Err(HotError::Refused(_)) => return Ok(None),
            replies => replies?,
        };
        let Ok(mut values) = read::<Vec<Vec<u8>>>(values) else { return Ok(None) };
        if values.is_empty() {
            return Ok(read(resting).ok().and_then(parse_resting));
        }
        let Some(Header { marks, live, live_until, checked_in }) =
            values.pop().and_then(|header| Header::parse(&header))
        else {
            return Ok(None);
        };
        let places = marks.last + 1 - marks.floor;
        let first_is_readable = live > marks.last || live_until.is_none_or(|expires_at| now < expires_at);
        if !first_is_readable || values.len() as u64 != places.min(limit as u64) {
            return Ok(None);
        }
        values.drain(..values.len() - fitting(&values));
        Ok(Some(RawPage {
            marks,
            first_readable: Some(live).filter(|live| *live <= marks.last),
            looked_to: live.min(marks.last),
            checked_in,
            first: marks.last + 1 - values.len() as u64,
            values,
        }))
    }

    /// Makes a call that reads one in this lineage only, where one is given.
    fn only_in(&self, lineage: Option<&Lineage>, call: &mut ScriptCall<'_>, shard: ShardKeys) {
        if let Some(lineage) = lineage {
            call.key(self.lane_of(shard).lineage()).arg(&*lineage.text);
        }
    }

    /// The lowest place in this tier whose record was created at or after `time` (collected ones count too), and the
    /// marks; `last + 1` when there is none. An error where the lineage ended that this store has seen last.
    pub async fn seek_time(
        &self,
        conversation: &ConversationKey,
        time: UnixMillis,
    ) -> Result<(Marks, u64), HotError> {
        let mut call = self.scripts.seek_time.call();
        let keys = self.keys(conversation);
        call.key(keys.records()).key(keys.shard.idle()).arg(&keys.id).arg(time.get());
        self.only_in(Some(&self.lineage(conversation).await?), &mut call, keys.shard);
        let reply: Vec<Value> = self.connection.script(&call).await?;
        if reply.is_empty() {
            return Ok((Marks::NEW, 1));
        }
        let mut reply = reply.into_iter();
        let mut next = || reply.next().ok_or_else(|| HotError::Refused("seek_time: short reply".into()));
        let header = parse_header(conversation, &read::<Vec<u8>>(next()?)?, &mut next)?;
        Ok((header.marks, read(next()?)?))
    }
}

/// The page of a conversation without a list; `None` where there is one.
fn parse_resting(reply: Option<Vec<u64>>) -> Option<RawPage> {
    match reply?[..] {
        [] => Some(RawPage::EMPTY),
        [last, created_at, lineage] => Some(RawPage {
            marks: Marks::resting(last, UnixMillis::new(created_at)),
            first_readable: None,
            looked_to: last,
            checked_in: CheckedIn::of(lineage),
            first: last + 1,
            values: Vec::new(),
        }),
        _ => None,
    }
}

/// How many of the last values fit on a page, at least one.
fn fitting(values: &[Vec<u8>]) -> usize {
    let mut bytes = 0;
    let fits = values.iter().rev().take_while(|value| {
        bytes += stub::announced_len(value);
        bytes <= BYTES_MAX
    });
    fits.count().max(1).min(values.len())
}

/// The header; an error where the reply says why there is none.
fn parse_header(
    conversation: &ConversationKey,
    header: &[u8],
    next: &mut impl FnMut() -> Result<Value, HotError>,
) -> Result<Header, HotError> {
    if header == b"corrupt" {
        return Err(corrupt(conversation, read::<String>(next()?)?));
    }
    Header::parse(header).ok_or_else(|| corrupt(conversation, "the header cannot be read"))
}

fn parse_page(conversation: &ConversationKey, reply: Vec<Value>) -> Result<RawPage, HotError> {
    if reply.is_empty() {
        return Ok(RawPage::EMPTY);
    }
    let mut reply = reply.into_iter();
    let mut next = || reply.next().ok_or_else(|| HotError::Refused("read_page: short reply".into()));
    let Header { marks, checked_in, .. } = parse_header(conversation, &read::<Vec<u8>>(next()?)?, &mut next)?;
    let first_readable = Some(read(next()?)?).filter(|seq| *seq > 0);
    let looked_to = read(next()?)?;
    let first: u64 = read(next()?)?;
    let mut values = Vec::new();
    for chunk in reply {
        for value in read::<Vec<Value>>(chunk)? {
            values.push(read(value)?);
        }
    }
    Ok(RawPage { marks, first_readable, looked_to, checked_in, first, values })
}
