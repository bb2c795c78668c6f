//! What happens in a run and when: a pure function of its seed.

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use crate::kind::{Effect, Kind, Redis, Target};
use crate::load::{self, Load};

/// How long the load goes on.
pub(crate) const LOAD_MS: u64 = 4_000;
/// No fault is in force after this, so that a run sees work between the faults and its end.
const FAULTS_END_MS: u64 = 3_600;
const FAULTS_PER_RUN: usize = 3;
/// Faults of one target are this far apart.
const REST_MS: u64 = 100;
/// Some faults are only felt once they outlast a call's deadline, others by a moment. Three of the longest of one target
/// would not fit into a run: the last of those is as short as it has to be.
const LENGTHS_MS: [u64; 5] = [100, 300, 700, 1_200, 1_700];
/// No daemon has more siblings.
pub(crate) const INSTANCES_MAX: usize = 2;
/// Of a Redis Cluster; each has a replica.
pub(crate) const PRIMARIES: usize = 3;

/// A fault, from when to when it is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    /// Which of the writers or archivers, of their links, or of the parts of a cluster; 0 where there is one only.
    pub(crate) instance: usize,
    /// Since the start of the load.
    pub(crate) start_ms: u64,
    pub(crate) end_ms: u64,
}

/// All that a seed decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Schedule {
    pub(crate) seed: u64,
    pub(crate) redis: Redis,
    pub(crate) writers: usize,
    pub(crate) archivers: usize,
    /// `QIM_COPY_DELAY` of the archivers.
    pub(crate) copy_delay_ms: u64,
    /// In the order of their starts.
    pub(crate) faults: Vec<Fault>,
    pub(crate) load: Load,
}

impl Schedule {
    /// From seed 1 on, so many seeds in a row as it takes share all kinds given out among them; the next ones share them in
    /// another order, so that in time every kind meets every other.
    pub(crate) fn new(seed: u64, kinds: &[Kind], redis: Redis) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let writers = random.random_range(1..=INSTANCES_MAX);
        let archivers = random.random_range(1..=INSTANCES_MAX);
        let copy_delay_ms = [0, 0, 500, 2_000][random.random_range(0..4)];
        let chosen = share(seed, kinds).into_iter().map(|kind| {
            let instances = match kind.target {
                target if target.is_of_writers() => writers,
                Target::Archive => 1,
                Target::Redis if redis == Redis::Single => 1,
                Target::Redis => PRIMARIES,
                _ => archivers,
            };
            (
                kind,
                if instances == 1 && kind.target.is_a_server() {
                    0
                } else {
                    random.random_range(0..instances)
                },
            )
        });
        let chosen: Vec<(Kind, usize)> = chosen.collect();
        let faults = loop {
            if let Some(faults) = place_all(&chosen, &mut random) {
                break faults;
            }
        };
        let load = load::plan(&mut random);
        Self { seed, redis, writers, archivers, copy_delay_ms, faults, load }
    }

    /// Whether Redis may lose something that it acknowledged.
    pub(crate) fn loses_data(&self) -> bool {
        self.has(|kind| kind.loses_data(self.redis))
    }

    /// Whether any fault is of such a kind.
    pub(crate) fn has(&self, is: impl Fn(Kind) -> bool) -> bool {
        self.faults.iter().any(|fault| is(fault.kind))
    }
}

/// The kinds of one run.
fn share(seed: u64, kinds: &[Kind]) -> Vec<Kind> {
    let shares = kinds.len().div_ceil(FAULTS_PER_RUN).max(1) as u64;
    let (round, share) = (seed.wrapping_sub(1) / shares, seed.wrapping_sub(1) % shares);
    let mut kinds = kinds.to_vec();
    kinds.shuffle(&mut StdRng::seed_from_u64(round));
    let first = usize::try_from(share).expect("less than the kinds") * FAULTS_PER_RUN;
    let count = FAULTS_PER_RUN.min(kinds.len());
    kinds.into_iter().cycle().skip(first).take(count).collect()
}

/// In the order of their starts; `None` where the first of one target leave no room for the last.
fn place_all(chosen: &[(Kind, usize)], random: &mut StdRng) -> Option<Vec<Fault>> {
    let mut faults = Vec::with_capacity(chosen.len());
    for (kind, instance) in chosen {
        faults.push(place(*kind, *instance, &faults, random)?);
    }
    faults.sort_by_key(|fault| fault.start_ms);
    Some(faults)
}

/// Where it does not meet another fault of the same target.
fn place(kind: Kind, instance: usize, others: &[Fault], random: &mut StdRng) -> Option<Fault> {
    // What is cut off is a second's work, which has to be done first.
    let earliest = if kind.effect == Effect::CutTail { 1_200 } else { 200 };
    let longest = random.random_range(0..LENGTHS_MS.len());
    let fits = |start: u64, length: u64| {
        start + length <= FAULTS_END_MS
            && others.iter().all(|other| {
                other.kind.target != kind.target
                    || start >= other.end_ms + REST_MS
                    || start + length + REST_MS <= other.start_ms
            })
    };
    let wanted = random.random_range(earliest..FAULTS_END_MS);
    LENGTHS_MS[..=longest].iter().rev().find_map(|length| {
        let start_ms = (wanted..FAULTS_END_MS).chain(earliest..wanted).find(|start| fits(*start, *length))?;
        Some(Fault { kind, instance, start_ms, end_ms: start_ms + length })
    })
}

impl Target {
    fn is_a_server(self) -> bool {
        matches!(self, Self::Redis | Self::Archive)
    }

    fn is_of_writers(self) -> bool {
        matches!(self, Self::Writer | Self::ClientLink | Self::WriterRedisLink | Self::WriterArchiveLink)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::kind::Archive;

    proptest! {
        #[test]
        fn a_seed_says_everything_and_its_faults_fit_into_the_run(seed: u64) {
            let redis = if seed.is_multiple_of(2) { Redis::Single } else { Redis::Cluster };
            let kinds = Kind::all(Archive::Cql, redis);
            let schedule = Schedule::new(seed, &kinds, redis);
            prop_assert_eq!(&schedule, &Schedule::new(seed, &kinds, redis));
            prop_assert!((1..=INSTANCES_MAX).contains(&schedule.writers));
            prop_assert_eq!(schedule.faults.len(), FAULTS_PER_RUN, "{:?}", schedule.faults);
            for (i, fault) in schedule.faults.iter().enumerate() {
                prop_assert!(fault.start_ms < fault.end_ms && fault.end_ms <= FAULTS_END_MS);
                let instances = match fault.kind.target {
                    target if target.is_of_writers() => schedule.writers,
                    Target::Redis if redis == Redis::Cluster => PRIMARIES,
                    Target::Redis | Target::Archive => 1,
                    _ => schedule.archivers,
                };
                prop_assert!(fault.instance < instances);
                for other in &schedule.faults[i + 1..] {
                    prop_assert!(other.start_ms >= fault.start_ms);
                    prop_assert!(other.kind.target != fault.kind.target || other.start_ms >= fault.end_ms);
                }
            }
        }

        #[test]
        fn as_many_runs_in_a_row_as_it_takes_have_every_kind(round in 0..1_000_000_u64) {
            let tiers = [
                (Archive::Sqlite, Redis::Single, 9),
                (Archive::Cql, Redis::Single, 12),
                (Archive::Sqlite, Redis::Cluster, 8),
            ];
            for (archive, redis, enough) in tiers {
                let kinds = Kind::all(archive, redis);
                let runs = round * enough + 1..=(round + 1) * enough;
                let seen: BTreeSet<Kind> = runs
                    .flat_map(|seed| Schedule::new(seed, &kinds, redis).faults)
                    .map(|fault| fault.kind)
                    .collect();
                prop_assert!(kinds.iter().all(|kind| seen.contains(kind)), "{:?}", seen);
            }
        }
    }

    #[test]
    fn another_seed_is_another_schedule() {
        let kinds = Kind::all(Archive::Sqlite, Redis::Single);
        let schedule = |seed| Schedule::new(seed, &kinds, Redis::Single);
        assert_ne!(schedule(1).faults, schedule(10).faults);
        assert_ne!(schedule(1).load, schedule(2).load);
    }
}
