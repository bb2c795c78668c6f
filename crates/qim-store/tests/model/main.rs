//! Random histories on real Redis and a real archive, compared after every step with a model that is obviously right
//! (qim-testkit's `ConversationModel`). A history that goes wrong shrinks to a short list of steps.
//!
//! More of them: scripts/soak.

mod check;
mod indexes;
mod loss;
mod step;
#[path = "../support/mod.rs"]
mod support;
mod world;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use proptest::arbitrary::any;
use proptest::collection::vec;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use qim_core::{Compression, RetentionClass};
use qim_store::ArchiveStore;
use tokio::runtime::Runtime;

use step::{Loss, Step, any_step};
use world::World;

const AT_ONCE: usize = 4;
const STEPS: std::ops::Range<usize> = 5..60;
const SHRINK_STEPS_MAX: u32 = 300;

/// What `scripts/soak` asks for; else the default.
fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// Runs the histories of so many seeds, each on the archive that `open` gives for its name.
fn run_seeds(seeds: u64, open: impl Fn(&str) -> Arc<dyn ArchiveStore> + Sync) {
    let runtime = Runtime::new().unwrap();
    let (first, seeds) = (variable("QIM_TEST_FIRST_SEED", 1), variable("QIM_TEST_SEEDS", seeds));
    let minutes = variable("QIM_TEST_MINUTES", u64::MAX / 60);
    let (began, next, run) = (Instant::now(), AtomicU64::new(first), AtomicU64::new(0));
    let is_over = || began.elapsed() >= Duration::from_secs(60 * minutes);
    let work = || {
        while !is_over() {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + seeds {
                return;
            }
            history(&runtime, seed, &open);
            run.fetch_add(1, Ordering::Relaxed);
        }
    };
    // They wait for disks and for each other's answers most of the time.
    thread::scope(|scope| (0..AT_ONCE).for_each(|_| _ = scope.spawn(work)));
    println!("{} histories, of the seeds from {first} on, in {:?}", run.into_inner(), began.elapsed());
}

/// The history of a seed; panics with the shortest one that goes wrong.
fn history(runtime: &Runtime, seed: u64, open: impl Fn(&str) -> Arc<dyn ArchiveStore>) {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config {
        cases: 1,
        max_shrink_iters: SHRINK_STEPS_MAX,
        failure_persistence: None,
        ..Config::default()
    };
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let attempt = Cell::new(0);
    let result = TestRunner::new_with_rng(config, random).run(
        &(any::<bool>(), vec(any_step(), STEPS)),
        |(is_forgetful, steps)| {
            let name = format!("s{seed}a{}", attempt.replace(attempt.get() + 1));
            one(runtime, World::new(open(&name), &name, is_forgetful), &steps)
        },
    );
    if let Err(error) = result {
        panic!("seed {seed}: {error}");
    }
}

fn one(runtime: &Runtime, world: impl Future<Output = World>, steps: &[Step]) -> Result<(), TestCaseError> {
    let run = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async {
            let mut world = world.await;
            for step in steps {
                world.step(step).await;
                world.check().await;
            }
        });
    }));
    run.map_err(|_| TestCaseError::fail("see the panic above"))
}

#[test]
fn every_history_reads_like_the_model_with_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    run_seeds(100, |name| {
        support::open_archive(&format!("sqlite:{}", dir.path().join(format!("{name}.db")).display()))
    });
}

#[test]
fn every_history_reads_like_the_model_with_a_cql_server() {
    // A keyspace for each: dictionaries have their numbers from Redis.
    let keyspace = |name: &str| format!("qim_model_{}_{name}", std::process::id());
    run_seeds(3, |name| support::open_archive(&qim_testkit::cql_keyspace_url(&keyspace(name))));
}

const LOSE: Step = Step::Lose { conversation: 0, loss: Loss::All };

fn send(conversation: usize, count: usize, hours_old: u32) -> Step {
    Step::Send { conversation, class: RetentionClass::Ephemeral24h, count, hours_old }
}

/// Of writers that remember next to nothing.
fn forgetful(steps: &[Step]) {
    let dir = tempfile::tempdir().unwrap();
    let archive = support::open_archive(&format!("sqlite:{}", dir.path().join("archive.db").display()));
    one(&Runtime::new().unwrap(), World::new(archive, "f", true), steps).unwrap();
}

/// Seed 840: the archive had nothing of them, and they were forgotten as archived.
#[test]
fn seqs_of_what_expired_before_its_copy_are_not_given_again_when_all_of_redis_is_lost() {
    forgetful(&[send(0, 4, 0), send(1, 4, 200), Step::Collect, LOSE]);
}

/// Nothing of them was collected, nor heard of by the archive, when they were trimmed.
#[test]
fn seqs_of_what_was_trimmed_while_the_archive_was_away_are_not_given_again_when_all_of_redis_is_lost() {
    let away = || Step::Archive(support::Fault::Down);
    let trim = || Step::Trim { conversation: 1 };
    forgetful(&[away(), send(1, 4, 200), trim(), send(0, 14, 0), LOSE]);
    forgetful(&[away(), send(1, 4, 200), Step::Collect, trim(), send(0, 14, 0), LOSE]);
}

/// Seed 1273: one writer put back the first ones, the other had forgotten the rest as archived, and the archive was away.
#[test]
fn what_one_writer_put_back_is_not_said_to_be_all_while_the_archive_cannot_be_asked() {
    let (another, down) = (Step::AnotherWriter(Compression::Off), Step::Archive(support::Fault::Down));
    forgetful(&[send(2, 2, 0), another, down, send(2, 14, 0), LOSE]);
}
