//! The processes of a run: Redis, daemons, the archive, and a proxy on each way between them.

mod archive_site;
mod clock;
mod conductor;
mod inflict;
mod redis_site;

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use qim_testkit::{Daemon, FaultProxy, Launch};

use crate::kind::{Effect, Target};
use crate::load::{HOT_WINDOW_DAYS, RETENTION_DAYS};
use crate::schedule::{Fault, Schedule};

pub(crate) use archive_site::{ArchiveSite, can_mount};
pub(crate) use clock::faketime_library;
pub(crate) use conductor::{Conductor, Happened};

use clock::DaemonClock;
use redis_site::RedisSite;

/// Few, so that a run's daemons have little to do beside it.
const SHARDS: u16 = 4;
/// Shorter than most faults, so that daemons feel them.
const REDIS_TIMEOUT: &str = "700ms";
const ARCHIVE_TIMEOUT: &str = "1s";

const START_TIMEOUT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);

/// A daemon and its ways to the others.
struct Member {
    daemon: Daemon,
    redis_link: Option<FaultProxy>,
    archive_link: Option<FaultProxy>,
    client_link: Option<FaultProxy>,
    clock: Option<DaemonClock>,
}

/// Everything that runs in a run. Ends with it.
pub(crate) struct Fleet {
    writers: Vec<Member>,
    archivers: Vec<Member>,
    redis: RedisSite,
    archive: ArchiveSite,
}

impl Fleet {
    /// Starts everything in this directory, and waits until it is ready.
    pub(crate) fn start(dir: &Path, schedule: &Schedule, archive: ArchiveSite) -> Result<Self> {
        // With `everysec` a killed Redis loses what it had not written while it waited for its disk.
        let sync = if schedule.loses_data() { "everysec" } else { "always" };
        let redis = RedisSite::start(schedule.redis, sync);
        if archive.server().is_some() {
            redis.begin_lineages(SHARDS)?;
        }
        let mut fleet = Self { writers: Vec::new(), archivers: Vec::new(), redis, archive };
        for i in 0..schedule.writers {
            let member = fleet.member(dir, schedule, Target::Writer, i)?;
            fleet.writers.push(member);
        }
        for i in 0..schedule.archivers {
            let member = fleet.member(dir, schedule, Target::Archiver, i)?;
            fleet.archivers.push(member);
        }
        fleet.await_ready()?;
        Ok(fleet)
    }

    /// On a busy machine a daemon may give up its start: as under a service manager, it tries again.
    fn await_ready(&self) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        for (name, daemon) in self.daemons() {
            while !daemon.try_get("/readyz").is_ok_and(|answer| answer.status == 200) {
                if daemon.ended().is_some() {
                    daemon.respawn();
                }
                ensure!(Instant::now() < deadline, "{name} is not ready:\n{}", daemon.stderr());
                thread::sleep(POLL);
            }
        }
        Ok(())
    }

    fn member(&self, dir: &Path, schedule: &Schedule, role: Target, instance: usize) -> Result<Member> {
        let is_writer = role == Target::Writer;
        let redis_link = self.redis.new_link();
        let archive_link = self.archive.server().map(FaultProxy::start);
        let launch = if is_writer {
            Launch::writer().env("QIM_GC_INTERVAL", "300ms")
        } else {
            Launch::archiver().env("QIM_COPY_DELAY", format!("{}ms", schedule.copy_delay_ms))
        };
        let mut launch = launch
            .env("QIM_REDIS_URL", self.redis.url(redis_link.as_ref()))
            .env("QIM_ARCHIVE_URL", self.archive.url(archive_link.as_ref().map(FaultProxy::addr)))
            .env("QIM_SHARDS", SHARDS.to_string())
            .env("QIM_REDIS_TIMEOUT", REDIS_TIMEOUT)
            .env("QIM_ARCHIVE_TIMEOUT", ARCHIVE_TIMEOUT)
            .env("QIM_HOT_WINDOW", format!("{HOT_WINDOW_DAYS}d"))
            .env("QIM_DEFAULT_HISTORY_RETENTION_DAYS", RETENTION_DAYS.to_string());
        let moves_its_clock = |fault: &Fault| {
            matches!(fault.kind.effect, Effect::Ahead | Effect::Behind)
                && (fault.kind.target, fault.instance) == (role, instance)
        };
        let mut clock = None;
        if schedule.faults.iter().any(moves_its_clock) {
            let moved = DaemonClock::new(&dir.join(format!("clock-{is_writer}-{instance}")))?;
            launch =
                moved.environment().into_iter().fold(launch, |launch, (name, value)| launch.env(name, value));
            clock = Some(moved);
        }
        let daemon = launch.start_detached();
        let grpc = daemon.grpc_url();
        let grpc = grpc.strip_prefix("http://").expect("its own address").parse()?;
        let client_link = is_writer.then(|| FaultProxy::start(grpc));
        Ok(Member { daemon, redis_link, archive_link, client_link, clock })
    }

    /// Where clients find the writers.
    pub(crate) fn writer_urls(&self) -> Vec<String> {
        let links = self.writers.iter().filter_map(|writer| writer.client_link.as_ref());
        links.map(|link| format!("http://{}", link.addr())).collect()
    }

    /// All daemons, with what they are called here.
    pub(crate) fn daemons(&self) -> impl Iterator<Item = (String, &Daemon)> {
        let name = |role: &str, i: usize| format!("{role} {i}");
        let writers =
            self.writers.iter().enumerate().map(move |(i, member)| (name("writer", i), &member.daemon));
        let archivers =
            self.archivers.iter().enumerate().map(move |(i, member)| (name("archiver", i), &member.daemon));
        writers.chain(archivers)
    }

    /// What was found damaged, over all shards: each field and what is said of it.
    pub(crate) fn set_aside(&self) -> Vec<String> {
        let key = |shard| format!("qim:{{{shard}}}:setaside");
        let replies = (0..SHARDS).map(|shard| self.redis.node_of(shard).command(&["HGETALL", &key(shard)]));
        replies
            .flat_map(|reply| reply.texts().into_iter().map(str::to_owned).collect::<Vec<_>>())
            .map(|text| text.replace('\0', " seq "))
            .collect()
    }

    /// Ends everything now, so that nothing is left when the process ends without further ado.
    pub(crate) fn end(&self) {
        for (_, daemon) in self.daemons() {
            daemon.kill9();
        }
        self.redis.end();
        self.archive.close();
    }
}
