//! Random histories on real Redis and SQLite, compared after every step with a model that is obviously right: a list of
//! what was acknowledged. A failing case shrinks to a short list of steps.

mod support;

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use qim_core::{Compression, ConversationKey, PayloadForm, RetentionClass, UnixMillis, stub};
use qim_store::TieredMessageStore;
use qim_store::hot::{Draft, Marks};
use qim_store::tiered::{Position, PullRequest, TieredDraft};
use support::*;

const CONVERSATIONS: usize = 3;
/// A retry is made of what can be read still, or of what is younger than this: both are always recognised.
const SURELY_HOT: Duration = Duration::from_hours(24 * 6);

/// Every so many messages have a payload that is kept in pieces.
const LARGE_EACH: u32 = 16;
const LARGE_BYTES: usize = 20_000;

#[derive(Debug, Clone)]
enum Step {
    /// New messages of one class, as many hours old.
    Send {
        conversation: usize,
        class: RetentionClass,
        count: usize,
        hours_old: u32,
    },
    /// A message that was sent before, together with a new one.
    Resend {
        conversation: usize,
        which: prop::sample::Index,
    },
    Advance(Duration),
    Collect,
    Copy {
        conversation: usize,
    },
    Trim {
        conversation: usize,
    },
    Maintain,
    /// From here on commits pack with another dictionary.
    Train,
    /// From here on commits are those of a writer that stores payloads like this.
    Restart(Compression),
}

fn any_step() -> impl Strategy<Value = Step> {
    let conversation = 0..CONVERSATIONS;
    let class = prop::sample::select(RetentionClass::ALL.to_vec());
    let times = [MS, SECOND, HOUR, HOUR * 23, DAY, DAY * 6, DAY * 8];
    prop_oneof![
        4 => (conversation.clone(), class, 1..40_usize, prop::sample::select(vec![0, 0, 0, 1, 23, 200, 700]))
            .prop_map(|(conversation, class, count, hours_old)| Step::Send { conversation, class, count, hours_old }),
        2 => (conversation.clone(), any::<prop::sample::Index>())
            .prop_map(|(conversation, which)| Step::Resend { conversation, which }),
        3 => prop::sample::select(times.to_vec()).prop_map(Step::Advance),
        2 => Just(Step::Collect),
        3 => conversation.clone().prop_map(|conversation| Step::Copy { conversation }),
        3 => conversation.prop_map(|conversation| Step::Trim { conversation }),
        1 => Just(Step::Maintain),
        1 => Just(Step::Train),
        1 => prop::sample::select(vec![Compression::Off, Compression::Zstd]).prop_map(Step::Restart),
    ]
}

/// What was acknowledged.
struct Acknowledged {
    draft: Draft,
    created_at: UnixMillis,
    expires_at: Option<UnixMillis>,
}

impl Acknowledged {
    fn is_alive(&self, now: UnixMillis) -> bool {
        self.expires_at.is_none_or(|expires_at| now < expires_at)
    }
}

struct World {
    tiers: Tiers,
    now: UnixMillis,
    next_id: u32,
    /// By conversation; the seq is the place, from 1.
    model: Vec<Vec<Acknowledged>>,
    marks: Vec<Marks>,
    earliest: Vec<u64>,
}

impl World {
    fn new() -> Self {
        let model = (0..CONVERSATIONS).map(|_| Vec::new()).collect();
        let (marks, earliest) = (vec![Marks::NEW; CONVERSATIONS], vec![0; CONVERSATIONS]);
        Self { tiers: tiers(), now: NOW, next_id: 0, model, marks, earliest }
    }

    fn store(&self) -> &TieredMessageStore {
        &self.tiers.store
    }

    fn new_draft(&mut self, class: RetentionClass, created_at: UnixMillis) -> Draft {
        self.next_id += 1;
        let mut draft = draft(&format!("id-{}", self.next_id), class, created_at);
        if self.next_id.is_multiple_of(LARGE_EACH) {
            draft.payload = noise(self.next_id, LARGE_BYTES);
        }
        draft
    }

    async fn step(&mut self, step: &Step) {
        match step {
            Step::Send { conversation, class, count, hours_old } => {
                let created_at = self.now - HOUR * *hours_old;
                let drafts: Vec<_> = (0..*count).map(|_| self.new_draft(*class, created_at)).collect();
                self.send(*conversation, drafts.into_iter().map(|draft| (draft, None)).collect()).await;
            }
            Step::Resend { conversation, which } => self.resend(*conversation, which).await,
            Step::Advance(time) => self.now = self.now + *time,
            Step::Collect => _ = collect_all(self.store().hot(), self.now).await,
            Step::Copy { conversation } if self.model[*conversation].is_empty() => {}
            Step::Copy { conversation } => copy_all(self.store(), &key(*conversation), self.now).await,
            Step::Trim { conversation } => _ = trim_all(self.store(), &key(*conversation), self.now).await,
            Step::Maintain => {
                while self.store().archive().maintain(self.now).await.unwrap().more {}
                self.store().maintain_dictionaries(self.now).await.unwrap();
            }
            Step::Train => {
                let words = format!("body of id-{}", self.next_id);
                self.store().add_dictionary(words.into(), self.now).await.unwrap();
                self.store().refresh_dictionaries().await.unwrap();
            }
            Step::Restart(compression) => {
                let url = format!("sqlite:{}", self.tiers.dir.path().join("archive.db").display());
                let hot = connect(&self.tiers.redis).with_compression(*compression);
                self.tiers.store = TieredMessageStore::with_trim(hot, open_archive(&url), WINDOW);
                self.store().refresh_dictionaries().await.unwrap();
            }
        }
    }

    async fn resend(&mut self, conversation: usize, which: &prop::sample::Index) {
        let known: Vec<usize> = (0..self.model[conversation].len())
            .filter(|i| {
                let sent = &self.model[conversation][*i];
                sent.is_alive(self.now) || self.now < sent.created_at + SURELY_HOT
            })
            .collect();
        if known.is_empty() {
            return;
        }
        let again = known[which.index(known.len())];
        let draft = self.model[conversation][again].draft.clone();
        let new = self.new_draft(RetentionClass::Default, self.now);
        self.send(conversation, vec![(draft, Some(again)), (new, None)]).await;
    }

    /// Sends drafts, some of which were acknowledged before as the given place.
    async fn send(&mut self, conversation: usize, drafts: Vec<(Draft, Option<usize>)>) {
        let batch: Vec<_> = drafts
            .iter()
            .map(|(draft, _)| TieredDraft { draft: draft.clone(), first_sent_at: Some(draft.created_at) })
            .collect();
        let answers = self.store().commit(&key(conversation), &batch, self.now).await.unwrap();
        for ((draft, known), answer) in drafts.into_iter().zip(answers) {
            let log = &mut self.model[conversation];
            if let Some(place) = known {
                assert_eq!((answer.seq, answer.duplicate), (place as u64 + 1, true), "{draft:?}");
                continue;
            }
            assert_eq!((answer.seq, answer.duplicate), (log.len() as u64 + 1, false), "no gap, no seq twice");
            let dates = answer.dates.expect("a new record has dates");
            let before = log.last().map_or(UnixMillis::EPOCH, |last| last.created_at);
            assert_eq!(dates.created_at, draft.created_at.max(before), "dates never go back");
            let expected =
                thirty_days().expires_at(draft.class, key(conversation).tenant(), dates.created_at);
            assert_eq!(dates.expires_at, expected);
            log.push(Acknowledged { draft, created_at: dates.created_at, expires_at: dates.expires_at });
        }
    }

    /// Everything that a reader can see is what the model says, in both directions.
    async fn check(&mut self) {
        for conversation in 0..CONVERSATIONS {
            let (key, log) = (key(conversation), &self.model[conversation]);
            let alive: Vec<u64> =
                (1..).zip(log).filter(|(_, sent)| sent.is_alive(self.now)).map(|(seq, _)| seq).collect();
            let (seen, earliest) = self.read_all(&key, log).await;
            assert_eq!(seen, alive, "forwards");
            assert_eq!(
                earliest,
                alive.first().copied().unwrap_or(log.len() as u64 + 1),
                "earliest available"
            );
            assert!(earliest >= self.earliest[conversation], "the earliest never goes back");
            self.earliest[conversation] = earliest;
            let newest = self.pull(&key, Position::Before(u64::MAX)).await;
            let newest: Vec<u64> = newest.records.iter().map(|record| record.seq).collect();
            assert!(alive.ends_with(&newest) && newest.len() == alive.len().min(30), "backwards: {newest:?}");
            let marks = self.store().marks(&key, self.now).await.unwrap();
            let before = std::mem::replace(&mut self.marks[conversation], marks);
            assert!(marks.floor - 1 <= marks.archived && marks.archived <= marks.last, "{marks:?}");
            assert!(
                marks.floor >= before.floor && marks.archived >= before.archived && marks.last >= before.last
            );
            assert_eq!(marks.last, log.len() as u64);
        }
        self.check_pieces().await;
    }

    /// There are pieces for each stub and for nothing else.
    async fn check_pieces(&self) {
        let mut raw = raw(&self.tiers.redis).await;
        let keys = async |raw: &mut redis::aio::MultiplexedConnection, pattern: &str| -> Vec<String> {
            redis::cmd("KEYS").arg(pattern).query_async(raw).await.unwrap()
        };
        let mut stubs = 0;
        for list in keys(&mut raw, "qim:*:c:*").await {
            let values: Vec<Vec<u8>> =
                redis::cmd("LRANGE").arg(list).arg(0).arg(-1).query_async(&mut raw).await.unwrap();
            stubs += values.iter().filter(|value| stub::is_stub(value)).count();
        }
        assert_eq!(keys(&mut raw, "qim:*:l:*").await.len(), stubs);
    }

    async fn read_all(&self, key: &ConversationKey, log: &[Acknowledged]) -> (Vec<u64>, u64) {
        let (mut after, mut seen) = (0, Vec::new());
        loop {
            let page = self.pull(key, Position::After(after)).await;
            for record in &page.records {
                let sent = &log[usize::try_from(record.seq).unwrap() - 1];
                assert_eq!(record.payload, sent.draft.payload);
                assert_eq!(record.message().client_msg_id, sent.draft.client_msg_id);
                assert_eq!(
                    (record.encoded.created_at(), record.encoded.expires_at()),
                    (sent.created_at, sent.expires_at)
                );
                seen.push(record.seq);
            }
            if !page.has_more {
                return (seen, page.earliest_available);
            }
            assert!(page.next_seq > after, "a page goes forward");
            after = page.next_seq;
        }
    }

    async fn pull(&self, key: &ConversationKey, position: Position) -> qim_store::tiered::Page {
        let request = PullRequest { position, limit: 30, fail_on_expired: false, form: PayloadForm::Plain };
        self.store().pull(key, request, self.now).await.unwrap()
    }
}

fn key(conversation: usize) -> ConversationKey {
    support::conversation(&format!("c{conversation}"))
}

#[test]
fn every_history_reads_like_the_list_of_what_was_acknowledged() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    // For more: QIM_TEST_MODEL_CASES=1000 cargo test -p qim-store --test model
    let cases = std::env::var("QIM_TEST_MODEL_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(40);
    let config = Config { cases, max_shrink_iters: 200, failure_persistence: None, ..Config::default() };
    let steps = proptest::collection::vec(any_step(), 1..40);
    let result = TestRunner::new(config).run(&steps, |steps| {
        let run = std::panic::catch_unwind(|| {
            runtime.block_on(async {
                let mut world = World::new();
                for step in &steps {
                    world.step(step).await;
                    world.check().await;
                }
            });
        });
        run.map_err(|_| TestCaseError::fail("see above"))
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}
