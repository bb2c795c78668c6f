//! The hot tier of a run, and which of its servers a fault happens to.

use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, bail};
use qim_testkit::{FaultProxy, RedisCluster, RedisServer, SlotMigration};

use crate::kind::Redis;
use crate::schedule::PRIMARIES;

/// A replica takes over within two or three of them: within the longest faults, and not within the short ones.
const NODE_TIMEOUT_MS: &str = "500";

/// How long nodes that have just started refuse slots at most.
const MOVE_PATIENCE: Duration = Duration::from_secs(8);
const MOVE_RETRY: Duration = Duration::from_millis(100);

/// The Redis of a run.
pub(super) enum RedisSite {
    Single(RedisServer),
    Cluster {
        cluster: RedisCluster,
        /// The node that the fault in force happens to: it may not be the primary any more when that ends.
        aim: AtomicUsize,
        /// The shard whose slot is on its way there, if one is.
        moving: AtomicU16,
    },
}

impl RedisSite {
    pub(super) fn start(redis: Redis, sync: &str) -> Self {
        match redis {
            Redis::Single => {
                let options = RedisServer::options().append_only().arg("appendfsync", sync);
                Self::Single(options.arg("maxmemory-policy", "noeviction").start())
            }
            Redis::Cluster => {
                let options = RedisCluster::options(PRIMARIES).replicas().behind_proxies();
                let options = options.arg("appendfsync", sync).arg("maxmemory-policy", "noeviction");
                let cluster = options.arg("cluster-node-timeout", NODE_TIMEOUT_MS).start();
                Self::Cluster { cluster, aim: AtomicUsize::new(0), moving: AtomicU16::new(0) }
            }
        }
    }

    /// For a daemon of its own; clients of a cluster all go where it tells them.
    pub(super) fn new_link(&self) -> Option<FaultProxy> {
        match self {
            Self::Single(server) => Some(FaultProxy::start(server.addr())),
            Self::Cluster { .. } => None,
        }
    }

    /// As the daemon behind this link takes it.
    pub(super) fn url(&self, link: Option<&FaultProxy>) -> String {
        match (self, link) {
            (Self::Single(_), Some(link)) => format!("redis://{}", link.addr()),
            (Self::Single(server), None) => server.url(),
            (Self::Cluster { cluster, .. }, _) => cluster.url(),
        }
    }

    /// A fault begins, and happens to the one who is the primary of this part now.
    pub(super) fn aim_at(&self, part: usize) {
        if let Self::Cluster { cluster, aim, .. } = self {
            aim.store(cluster.primary_of_part(part), Ordering::SeqCst);
        }
    }

    /// The server that the fault in force happens to.
    pub(super) fn target(&self) -> &RedisServer {
        match self {
            Self::Single(server) => server,
            Self::Cluster { cluster, aim, .. } => &cluster.nodes()[aim.load(Ordering::SeqCst)],
        }
    }

    /// The slot of some shard begins to go to where the fault is aimed at, with some of its keys.
    pub(super) fn begin_move(&self, shards: u16) -> Result<()> {
        let Self::Cluster { moving, .. } = self else { bail!("one server has all slots") };
        let is_elsewhere = |shard: &u16| self.node_of(*shard).addr() != self.target().addr();
        let shard = (0..shards).find(is_elsewhere).context("all shards are there already")?;
        moving.store(shard, Ordering::SeqCst);
        // From here on it has begun, whether or not any keys could be moved: a node may have started just now.
        let _ = self.migration()?.move_some();
        Ok(())
    }

    /// The rest of it goes there, or, as an administrator would have it, to whoever is the primary of this part by now.
    pub(super) fn finish_move(&self, part: usize) -> Result<()> {
        let until = Instant::now() + MOVE_PATIENCE;
        loop {
            self.aim_at(part);
            match self.migration().and_then(|migration| migration.finish().map_err(Error::msg)) {
                // The one that it leaves died when it was to hear of that.
                Err(_) if self.is_moved() => return Ok(()),
                Err(_) if Instant::now() < until => thread::sleep(MOVE_RETRY),
                done => return done,
            }
        }
    }

    fn is_moved(&self) -> bool {
        let Self::Cluster { moving, .. } = self else { return false };
        self.node_of(moving.load(Ordering::SeqCst)).addr() == self.target().addr()
    }

    fn migration(&self) -> Result<SlotMigration<'_>> {
        let Self::Cluster { cluster, moving, .. } = self else { bail!("one server has all slots") };
        let tag = format!("{{{}}}", moving.load(Ordering::SeqCst));
        cluster.migrate_slot_of(&tag, self.target()).map_err(Error::msg)
    }

    /// What is before that one.
    pub(super) fn link(&self) -> Option<&FaultProxy> {
        match self {
            Self::Single(_) => None,
            Self::Cluster { cluster, aim, .. } => cluster.link(aim.load(Ordering::SeqCst)),
        }
    }

    /// The server that is the primary of this part now.
    pub(super) fn primary_of_part(&self, part: usize) -> &RedisServer {
        match self {
            Self::Single(server) => server,
            Self::Cluster { cluster, .. } => &cluster.nodes()[cluster.primary_of_part(part)],
        }
    }

    /// The server that has this shard now.
    pub(super) fn node_of(&self, shard: u16) -> &RedisServer {
        match self {
            Self::Single(server) => server,
            Self::Cluster { cluster, .. } => cluster.primary_of(&format!("{{{shard}}}")),
        }
    }

    /// The keyspace of the archive has had other runs, so that a Redis without lineages would pass for one that lost
    /// everything.
    pub(super) fn begin_lineages(&self, shards: u16) -> Result<()> {
        let lanes = match self {
            Self::Single(server) => vec![(server, "qim:lineage".to_owned())],
            Self::Cluster { .. } => {
                (0..shards).map(|shard| (self.node_of(shard), format!("qim:{{{shard}}}:lineage"))).collect()
            }
        };
        for (server, key) in lanes {
            let info = server.command(&["INFO", "replication"]).texts().concat();
            let id = info.lines().find_map(|line| line.strip_prefix("master_replid:"));
            let id = id.context("Redis has an id")?.trim();
            server.command(&["SET", &key, &format!("1 0 {id} {:016x}", rand::random::<u64>())]);
        }
        Ok(())
    }

    /// Ends it now.
    pub(super) fn end(&self) {
        match self {
            Self::Single(server) => server.kill(),
            Self::Cluster { cluster, .. } => cluster.nodes().iter().for_each(RedisServer::kill),
        }
    }
}
