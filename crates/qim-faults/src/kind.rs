//! The kinds of faults: what happens, and to what.

use std::fmt;
use std::str::FromStr;

/// What a fault does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Effect {
    /// SIGKILL; started again when the fault is over.
    Kill,
    /// SIGSTOP, SIGCONT when it is over.
    Pause,
    /// Answers come late.
    Delay,
    /// Nothing goes through; what waited goes on when it is over.
    BlackHole,
    /// Connections are reset, old and new ones.
    Reset,
    /// Requests arrive, their answers do not.
    DropReplies,
    /// Somebody else holds the file's write lock.
    Lock,
    /// No room: of a disk, or below the memory limit.
    Full,
    /// The clock is an hour ahead.
    Ahead,
    /// The clock is an hour behind.
    Behind,
    /// Killed, and what it wrote in the last second is gone.
    CutTail,
    /// Killed, and everything it had is gone.
    Lose,
    /// A slot goes to another node.
    Move,
}

/// What a fault happens to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    /// A qim-writer.
    Writer,
    /// A qim-archiver.
    Archiver,
    /// The hot tier.
    Redis,
    /// The archive tier.
    Archive,
    /// Between the client and a writer.
    ClientLink,
    /// Between a writer and Redis.
    WriterRedisLink,
    /// Between an archiver and Redis.
    ArchiverRedisLink,
    /// Between a writer and a CQL archive.
    WriterArchiveLink,
    /// Between an archiver and a CQL archive.
    ArchiverArchiveLink,
}

/// One kind of fault, such as `kill-redis`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Kind {
    pub(crate) effect: Effect,
    pub(crate) target: Target,
}

/// Which archive the daemons use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Archive {
    /// One file.
    Sqlite,
    /// A CQL server.
    Cql,
}

/// What the hot tier is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Redis {
    /// One server.
    Single,
    /// A Redis Cluster of three primaries with a replica each.
    Cluster,
}

const EFFECTS: [(Effect, &str); 13] = [
    (Effect::Kill, "kill"),
    (Effect::Pause, "pause"),
    (Effect::Delay, "delay"),
    (Effect::BlackHole, "black-hole"),
    (Effect::Reset, "reset"),
    (Effect::DropReplies, "drop-replies"),
    (Effect::Lock, "lock"),
    (Effect::Full, "full"),
    (Effect::Ahead, "ahead"),
    (Effect::Behind, "behind"),
    (Effect::CutTail, "cut"),
    (Effect::Lose, "lose"),
    (Effect::Move, "move"),
];

const TARGETS: [(Target, &str); 9] = [
    (Target::Writer, "writer"),
    (Target::Archiver, "archiver"),
    (Target::Redis, "redis"),
    (Target::Archive, "archive"),
    (Target::ClientLink, "client-writer"),
    (Target::WriterRedisLink, "writer-redis"),
    (Target::ArchiverRedisLink, "archiver-redis"),
    (Target::WriterArchiveLink, "writer-archive"),
    (Target::ArchiverArchiveLink, "archiver-archive"),
];

const LINK_EFFECTS: [Effect; 4] = [Effect::Delay, Effect::BlackHole, Effect::Reset, Effect::DropReplies];

impl Kind {
    /// All that can happen with this archive and this Redis.
    pub(crate) fn all(archive: Archive, redis: Redis) -> Vec<Self> {
        let kind = |effect, target| Self { effect, target };
        let mut kinds = Vec::new();
        for target in [Target::Writer, Target::Archiver, Target::Redis] {
            kinds.extend([kind(Effect::Kill, target), kind(Effect::Pause, target)]);
        }
        let mut links = vec![Target::ClientLink];
        match redis {
            Redis::Single => links.extend([Target::WriterRedisLink, Target::ArchiverRedisLink]),
            // Its clients go where it tells them, all on the same way to each node; so do the replicas.
            Redis::Cluster => links.push(Target::Redis),
        }
        match archive {
            Archive::Sqlite => {
                kinds.extend([kind(Effect::Lock, Target::Archive), kind(Effect::Full, Target::Archive)]);
            }
            Archive::Cql => {
                kinds.extend([kind(Effect::Kill, Target::Archive), kind(Effect::Pause, Target::Archive)]);
                links.extend([Target::WriterArchiveLink, Target::ArchiverArchiveLink]);
            }
        }
        kinds.extend(links.iter().flat_map(|link| LINK_EFFECTS.map(|effect| kind(effect, *link))));
        kinds.push(kind(Effect::Full, Target::Redis));
        for target in [Target::Writer, Target::Archiver] {
            kinds.extend([kind(Effect::Ahead, target), kind(Effect::Behind, target)]);
        }
        kinds.extend([kind(Effect::CutTail, Target::Redis), kind(Effect::Lose, Target::Redis)]);
        if redis == Redis::Cluster {
            kinds.push(kind(Effect::Move, Target::Redis));
        }
        kinds
    }

    /// Whether Redis loses what it had acknowledged, or may lose it: on a cluster a replica that was behind takes over from
    /// a primary that does not answer.
    pub(crate) fn loses_data(self, redis: Redis) -> bool {
        match redis {
            Redis::Single => matches!(self.effect, Effect::CutTail | Effect::Lose),
            Redis::Cluster => {
                self.target == Target::Redis && !matches!(self.effect, Effect::Full | Effect::Move)
            }
        }
    }

    /// Whether what a writer remembers is gone.
    pub(crate) fn kills_a_writer(self) -> bool {
        (self.target, self.effect) == (Target::Writer, Effect::Kill)
    }

    /// Whether a daemon's clock is wrong meanwhile.
    pub(crate) fn moves_a_clock(self) -> bool {
        matches!(self.effect, Effect::Ahead | Effect::Behind)
    }

    /// Whether it is done to the process of a CQL server.
    pub(crate) fn needs_the_node(self) -> bool {
        self.target == Target::Archive && matches!(self.effect, Effect::Kill | Effect::Pause)
    }

    /// Whether the archive's disk has to be one that can be filled.
    pub(crate) fn fills_a_disk(self) -> bool {
        self == Self { effect: Effect::Full, target: Target::Archive }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let effect = EFFECTS.iter().find(|(effect, _)| *effect == self.effect).expect("all are listed").1;
        let target = TARGETS.iter().find(|(target, _)| *target == self.target).expect("all are listed").1;
        write!(f, "{effect}-{target}")
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let others = [(Archive::Cql, Redis::Single), (Archive::Sqlite, Redis::Cluster)];
        let usual = Self::all(Archive::Sqlite, Redis::Single);
        let all = usual.iter().copied().chain(others.into_iter().flat_map(|(a, r)| Self::all(a, r)));
        all.into_iter().find(|kind| kind.to_string() == name).ok_or_else(|| {
            let known: Vec<String> = usual.iter().map(ToString::to_string).collect();
            format!("no such kind of fault; there are {}", known.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_name_that_is_read_back_as_it() {
        let tiers = [
            (Archive::Sqlite, Redis::Single),
            (Archive::Cql, Redis::Single),
            (Archive::Sqlite, Redis::Cluster),
            (Archive::Cql, Redis::Cluster),
        ];
        for (archive, redis) in tiers {
            let kinds = Kind::all(archive, redis);
            for (i, kind) in kinds.iter().enumerate() {
                assert_eq!(kind.to_string().parse(), Ok(*kind));
                assert!(!kinds[..i].contains(kind), "{kind} is listed twice");
            }
        }
        assert!("kill-nothing".parse::<Kind>().is_err());
    }
}
