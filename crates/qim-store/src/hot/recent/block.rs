use std::mem;
use std::time::{Duration, Instant};

use bytes::{Buf, BufMut};
use memmap2::{Mmap, MmapMut};
use qim_core::{ConversationKey, UnixMillis};

use super::super::fingerprint::Fingerprint;
use super::super::group::{EncodedMessage, Job};
use super::super::keys::{ConversationKeys, ShardKeys};
use super::super::pieces::stub_for;

/// A block is full with so many bytes.
const BYTES: usize = 256 * 1024;
/// It takes no more when it is so old, so that what is in it is of about the same age.
const AGE: Duration = Duration::from_secs(1);

/// Jobs that were acknowledged one after the other, in one piece of memory: to keep one is to copy it, and to let go of
/// thousands is next to nothing, for the allocator as well. They are kept and let go together.
pub(super) struct Block {
    /// For each job the seq of its first message, its shard, storage id and number of messages, and for each of those when
    /// to collect it (0: never) and its record; texts and records behind their lengths.
    jobs: Memory,
    messages: u64,
    begun: Instant,
    /// When the last one was acknowledged.
    pub(super) at: Instant,
    /// The latest time of a job, by the clock of its writer or of Redis, whichever was later.
    pub(super) now: UnixMillis,
}

/// Where the bytes of a block are.
enum Memory {
    /// It may grow.
    Open(Vec<u8>),
    /// It may not, and is small.
    Closed(Box<[u8]>),
    /// It may not, and has pages of its own, which the system has back at once when it is let go. Blocks are the most that
    /// a writer keeps; in the heap, they would leave holes between what lives longer, and it would stay as large as it ever
    /// was.
    Mapped(Mmap),
}

impl Memory {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Open(bytes) => bytes,
            Self::Closed(bytes) => bytes,
            Self::Mapped(bytes) => bytes,
        }
    }

    fn close(self) -> Self {
        let Self::Open(bytes) = self else { return self };
        // Where there are no more pages to be had the heap has to do.
        let mapped = (bytes.len() >= BYTES).then(|| map(&bytes).ok()).flatten();
        mapped.map_or_else(|| Self::Closed(bytes.into()), Self::Mapped)
    }
}

fn map(bytes: &[u8]) -> std::io::Result<Mmap> {
    let mut pages = MmapMut::map_anon(bytes.len())?;
    pages.copy_from_slice(bytes);
    pages.make_read_only()
}

impl Block {
    pub(super) fn new() -> Self {
        let begun = Instant::now();
        Self { jobs: Memory::Open(Vec::new()), messages: 0, begun, at: begun, now: UnixMillis::EPOCH }
    }

    /// Whether the next job needs another block.
    pub(super) fn is_full(&self) -> bool {
        self.bytes() >= BYTES || self.begun.elapsed() > AGE
    }

    /// It takes no more jobs from now on.
    pub(super) fn close(&mut self) {
        self.jobs = mem::replace(&mut self.jobs, Memory::Open(Vec::new())).close();
    }

    pub(super) fn push(&mut self, first: u64, job: &Job) {
        let Memory::Open(jobs) = &mut self.jobs else { unreachable!("the last block is open") };
        jobs.put_u64(first);
        jobs.put_u16(job.keys.shard.0);
        put_slice(jobs, job.keys.id.as_bytes());
        jobs.put_u16(u16::try_from(job.messages.len()).expect("at most 512 messages"));
        for message in &job.messages {
            jobs.put_u64(message.collect_at.map_or(0, UnixMillis::get));
            put_slice(jobs, &message.record);
        }
        self.messages += job.messages.len() as u64;
        self.at = Instant::now();
        self.now = self.now.max(job.now);
    }

    pub(super) fn bytes(&self) -> usize {
        self.jobs.bytes().len()
    }

    pub(super) fn messages(&self) -> u64 {
        self.messages
    }

    /// Its jobs, each with the seq of its first message, as they were acknowledged.
    pub(super) fn jobs(&self) -> impl Iterator<Item = (u64, Job)> {
        let mut rest = self.jobs.bytes();
        std::iter::from_fn(move || rest.has_remaining().then(|| get_job(&mut rest, self.now)))
    }
}

fn put_slice(out: &mut Vec<u8>, bytes: &[u8]) {
    out.put_u32(u32::try_from(bytes.len()).expect("a record is less than 4 GiB"));
    out.put_slice(bytes);
}

fn get_slice<'a>(from: &mut &'a [u8]) -> &'a [u8] {
    let len = from.get_u32() as usize;
    let (bytes, rest) = from.split_at(len);
    *from = rest;
    bytes
}

fn get_job(from: &mut &[u8], now: UnixMillis) -> (u64, Job) {
    let first = from.get_u64();
    let shard = ShardKeys(from.get_u16());
    let id = String::from_utf8(get_slice(from).to_vec()).expect("a storage id");
    let conversation = ConversationKey::from_storage_id(&id).expect("a storage id");
    let count = from.get_u16();
    let messages = (0..count).map(|_| {
        let collect_at = Some(UnixMillis::new(from.get_u64())).filter(|date| *date != UnixMillis::EPOCH);
        let record = get_slice(from).to_vec();
        EncodedMessage {
            collect_at,
            stub: stub_for(&conversation, &record),
            fingerprint: Fingerprint::of(&record),
            record,
        }
    });
    let messages = messages.collect();
    (first, Job { keys: ConversationKeys { shard, id }, now, floor: None, messages })
}

#[cfg(test)]
mod tests {
    use qim_core::{RetentionClass, TenantId, codec};

    use super::*;

    fn job(name: &str, payloads: &[Vec<u8>]) -> Job {
        let conversation = ConversationKey::new(TenantId::new("acme").unwrap(), name).unwrap();
        let messages = payloads.iter().enumerate().map(|(i, payload)| {
            let payload = qim_core::StoredPayload::raw(payload.clone().into());
            let fields = codec::Fields {
                sender: "ada",
                client_msg_id: &format!("id-{i}"),
                class: RetentionClass::Default,
                created_at: UnixMillis::new(7),
                expires_at: Some(UnixMillis::new(9)),
                content_type: "text/plain",
                payload: &payload,
            };
            let record = codec::encode(&conversation, fields);
            EncodedMessage {
                collect_at: (i % 2 == 0).then_some(UnixMillis::new(9)),
                stub: stub_for(&conversation, &record),
                fingerprint: Fingerprint::of(&record),
                record,
            }
        });
        let keys = ConversationKeys { shard: ShardKeys(3), id: conversation.storage_id() };
        Job { keys, now: UnixMillis::new(8), floor: Some(4), messages: messages.collect() }
    }

    #[test]
    fn jobs_come_back_as_they_were_acknowledged() {
        let jobs = [job("c", &[b"one".to_vec(), vec![7; BYTES]]), job("d", &[Vec::new()])];
        let mut block = Block::new();
        block.push(1, &jobs[0]);
        block.push(u64::MAX >> 16, &jobs[1]);
        assert_eq!((block.messages(), block.now), (3, UnixMillis::new(8)));
        let mut small = Block::new();
        small.push(7, &jobs[1]);
        for block in [&mut block, &mut small] {
            let before = block.bytes();
            block.close();
            assert_eq!(block.bytes(), before);
        }
        assert!(matches!((&block.jobs, &small.jobs), (Memory::Mapped(_), Memory::Closed(_))));
        assert_eq!(small.jobs().next().unwrap().1.keys, jobs[1].keys);
        let back: Vec<(u64, Job)> = block.jobs().collect();
        assert_eq!(back.iter().map(|(first, _)| *first).collect::<Vec<_>>(), [1, u64::MAX >> 16]);
        for (job, (_, back)) in jobs.iter().zip(&back) {
            assert_eq!(job.keys, back.keys);
            for (message, back) in job.messages.iter().zip(&back.messages) {
                assert_eq!(message.record, back.record);
                assert_eq!(message.stub, back.stub);
                assert_eq!(message.fingerprint, back.fingerprint);
                assert_eq!(message.collect_at, back.collect_at);
            }
        }
        assert!(back[0].1.messages[1].stub.is_some(), "a large one is in pieces");
    }

    #[test]
    fn a_block_is_full_with_many_bytes() {
        let (mut block, job) = (Block::new(), job("c", &[vec![7; 1000]]));
        let mut pushed = 0;
        while !block.is_full() {
            block.push(pushed, &job);
            pushed += 1;
        }
        assert!((BYTES..BYTES + 2000).contains(&block.bytes()) || block.begun.elapsed() > AGE);
        assert_eq!(block.messages(), pushed);
    }
}
