//! Faults: how each begins and ends.

use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use nix::sys::signal::Signal;
use qim_testkit::{FaultMode, FaultProxy, Reply};

use super::clock::STEP_MS;
use super::{Fleet, Member, SHARDS};
use crate::kind::{Effect, Kind, Target};
use crate::schedule::Fault;

const DELAY: Duration = Duration::from_millis(300);
/// Far less than an empty Redis takes.
const NO_MEMORY: &str = "100kb";

impl Fleet {
    /// The fault begins. `appended`: how long the append-only file was a second ago.
    pub(super) fn inflict(&self, fault: &Fault, appended: u64) -> Result<()> {
        let Kind { effect, target } = fault.kind;
        if target == Target::Redis {
            self.redis.aim_at(fault.instance);
        }
        match (effect, target) {
            (Effect::Kill | Effect::Lose, Target::Redis) => self.redis.target().kill(),
            (Effect::Kill, Target::Archive) => self.archive.signal_node("KILL")?,
            (Effect::Kill, _) => self.member_of(fault)?.daemon.kill9(),
            (Effect::Pause, Target::Redis) => self.redis.target().pause(),
            (Effect::Pause, Target::Archive) => self.archive.signal_node("STOP")?,
            (Effect::Pause, _) => self.member_of(fault)?.daemon.signal(Signal::SIGSTOP),
            (Effect::Delay, _) => self.link(fault)?.set(FaultMode::Delay(DELAY)),
            (Effect::BlackHole, _) => self.link(fault)?.set(FaultMode::BlackHole),
            (Effect::Reset, _) => self.link(fault)?.set(FaultMode::Reset),
            (Effect::DropReplies, _) => self.link(fault)?.set(FaultMode::DropReplies),
            (Effect::Lock, _) => self.archive.lock()?,
            (Effect::Full, Target::Archive) => self.archive.fill()?,
            (Effect::Full, _) => self.set_memory_limit(NO_MEMORY)?,
            (Effect::Ahead, _) => self.set_clock(fault, STEP_MS)?,
            (Effect::Behind, _) => self.set_clock(fault, -STEP_MS)?,
            (Effect::CutTail, _) => {
                let redis = self.redis.target();
                let now = redis.append_only_bytes();
                redis.kill_and_cut(appended.min(now));
            }
            (Effect::Lose, _) => bail!("only Redis can be lost"),
            (Effect::Move, _) => self.redis.begin_move(SHARDS)?,
        }
        Ok(())
    }

    /// The fault is over.
    pub(super) fn lift(&self, fault: &Fault) -> Result<()> {
        let Kind { effect, target } = fault.kind;
        match (effect, target) {
            (Effect::Kill | Effect::CutTail, Target::Redis) => self.redis.target().restart(),
            (Effect::Kill, Target::Archive) => self.archive.start_node()?,
            (Effect::Kill, _) => self.member_of(fault)?.daemon.respawn(),
            (Effect::Pause, Target::Redis) => self.redis.target().resume(),
            (Effect::Pause, Target::Archive) => self.archive.signal_node("CONT")?,
            (Effect::Pause, _) => self.member_of(fault)?.daemon.signal(Signal::SIGCONT),
            (Effect::Delay | Effect::BlackHole | Effect::Reset | Effect::DropReplies, _) => {
                self.link(fault)?.set(FaultMode::Pass);
            }
            (Effect::Lock, _) => self.archive.unlock(),
            (Effect::Full, Target::Archive) => self.archive.make_room()?,
            (Effect::Full, _) => self.set_memory_limit("0")?,
            (Effect::Ahead | Effect::Behind, _) => self.set_clock(fault, 0)?,
            (Effect::CutTail, _) => bail!("only Redis has a tail"),
            (Effect::Lose, _) => self.redis.target().restart_empty(),
            (Effect::Move, _) => self.redis.finish_move(fault.instance)?,
        }
        Ok(())
    }

    /// How long the append-only file is of what this fault is to happen to.
    pub(super) fn appended(&self, fault: &Fault) -> u64 {
        self.redis.primary_of_part(fault.instance).append_only_bytes()
    }

    fn member_of(&self, fault: &Fault) -> Result<&Member> {
        let members = match fault.kind.target {
            Target::Writer | Target::ClientLink | Target::WriterRedisLink | Target::WriterArchiveLink => {
                &self.writers
            }
            Target::Archiver | Target::ArchiverRedisLink | Target::ArchiverArchiveLink => &self.archivers,
            Target::Redis | Target::Archive => bail!("{} is of no daemon", fault.kind),
        };
        members.get(fault.instance).ok_or_else(|| anyhow!("there is no daemon {}", fault.instance))
    }

    fn link(&self, fault: &Fault) -> Result<&FaultProxy> {
        let link = match fault.kind.target {
            Target::WriterRedisLink | Target::ArchiverRedisLink => self.member_of(fault)?.redis_link.as_ref(),
            Target::WriterArchiveLink | Target::ArchiverArchiveLink => {
                self.member_of(fault)?.archive_link.as_ref()
            }
            Target::ClientLink => self.member_of(fault)?.client_link.as_ref(),
            Target::Redis => self.redis.link(),
            Target::Writer | Target::Archiver | Target::Archive => None,
        };
        link.ok_or_else(|| anyhow!("{} has no link", fault.kind))
    }

    fn set_clock(&self, fault: &Fault, ahead_ms: i64) -> Result<()> {
        let clock = self.member_of(fault)?.clock.as_ref();
        clock.ok_or_else(|| anyhow!("it has no clock of its own"))?.set_ms(ahead_ms)
    }

    fn set_memory_limit(&self, limit: &str) -> Result<()> {
        match self.redis.target().command(&["CONFIG", "SET", "maxmemory", limit]) {
            Reply::Error(error) => bail!("maxmemory {limit}: {error}"),
            _ => Ok(()),
        }
    }
}
