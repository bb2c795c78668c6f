use std::net::SocketAddr;
use std::time::Duration;

use crate::eventually::eventually;
use crate::fault_proxy::FaultProxy;
use crate::redis_server::{RedisOptions, RedisServer};
use crate::resp::{self, Reply};
use crate::slot_migration::SlotMigration;

const SLOTS: usize = 16_384;
/// Gossip between nodes takes seconds; on a loaded machine, some more.
const AGREEMENT_TIMEOUT: Duration = Duration::from_secs(60);
const AT_ONCE: Duration = Duration::from_millis(300);
/// How long a node may be silent before the others take it for dead.
const NODE_TIMEOUT_MS: &str = "2000";

/// How a [`RedisCluster`] is started.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    primaries: usize,
    replicas: usize,
    has_links: bool,
    node: RedisOptions,
}

/// A Redis Cluster of real servers, with or without replicas. One that was killed comes back with all that it
/// acknowledged (`appendfsync always`: with `everysec` a kill may lose two seconds).
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
    /// Before each node, or none.
    links: Vec<FaultProxy>,
    primaries: usize,
}

/// What a node of the cluster says of one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) id: String,
    addr: SocketAddr,
    is_primary: bool,
    slots: Vec<(u16, u16)>,
}

impl RedisCluster {
    /// Starts so many primaries with an equal part of the slots each, and waits until all of them agree.
    pub fn start(primaries: usize) -> Self {
        Self::options(primaries).start()
    }

    /// The same with one replica for each primary, linked to it.
    pub fn start_with_replicas(primaries: usize) -> Self {
        Self::options(primaries).replicas().start()
    }

    /// To be started with something special.
    pub fn options(primaries: usize) -> ClusterOptions {
        let node = RedisServer::options().append_only().arg("appendfsync", "always");
        let node = node.cluster_node().arg("cluster-node-timeout", NODE_TIMEOUT_MS);
        // A part of it serves on where another part is gone, as careful operators have it.
        let node = node.arg("cluster-require-full-coverage", "no").arg("repl-diskless-sync-delay", "0");
        // However old its data is: on a busy machine a replica that was held would be too old for ever.
        let node = node.arg("cluster-replica-validity-factor", "0");
        ClusterOptions { primaries, replicas: 0, has_links: false, node }
    }

    /// `redis-cluster://127.0.0.1:PORT,…`.
    pub fn url(&self) -> String {
        let nodes: Vec<String> = (0..self.nodes.len()).map(|i| self.announced(i).to_string()).collect();
        format!("redis-cluster://{}", nodes.join(","))
    }

    /// Its servers: the first primaries, then their replicas in the same order.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// What clients and replicas of a node go through, where it was asked for.
    pub fn link(&self, node: usize) -> Option<&FaultProxy> {
        self.links.get(node)
    }

    /// The primary that has the slot of this key now.
    pub fn primary_of(&self, key: &str) -> &RedisServer {
        &self.nodes[self.primary_of_slot(self.slot_of(key))]
    }

    /// Which node has the slots now that this one of the first primaries had at the beginning.
    pub fn primary_of_part(&self, part: usize) -> usize {
        self.primary_of_slot(self.slots_of_part(part).0)
    }

    fn primary_of_slot(&self, slot: u16) -> usize {
        let owner = self.owner(slot).expect("some primary has every slot");
        (0..self.nodes.len()).find(|i| self.announced(*i) == owner.addr).expect("it is one of ours")
    }

    /// The first and the last one.
    fn slots_of_part(&self, part: usize) -> (u16, u16) {
        let slot = |part: usize| SLOTS * part / self.primaries;
        let narrow = |slot: usize| u16::try_from(slot).expect("there are few");
        (narrow(slot(part)), narrow(slot(part + 1) - 1))
    }

    /// Where others go to find this node.
    fn announced(&self, node: usize) -> SocketAddr {
        self.link(node).map_or_else(|| self.nodes[node].addr(), FaultProxy::addr)
    }

    /// Begins to move the slot of this key to another node, or takes over where that was begun; see [`SlotMigration`].
    pub fn migrate_slot_of<'a>(
        &'a self,
        key: &str,
        to: &'a RedisServer,
    ) -> Result<SlotMigration<'a>, String> {
        SlotMigration::begin(self, self.slot_of(key), self.primary_of(key), to)
    }

    /// Waits until all nodes that run say that the cluster is whole, and all replicas among them follow a primary.
    pub fn await_whole(&self) {
        eventually(AGREEMENT_TIMEOUT, "the cluster is whole", || self.running().all(is_settled));
    }

    /// Waits until the replicas of this primary have all that it has, so that its death loses nothing.
    pub fn await_replicated(&self, primary: &RedisServer) {
        // WAIT counts the writes of its own connection only, so the offsets have to be compared.
        eventually(AGREEMENT_TIMEOUT, "the replica has caught up", || {
            let info = info(primary, "replication");
            let offset = info.lines().find_map(|line| line.strip_prefix("master_repl_offset:"));
            let replica = info.lines().find(|line| line.starts_with("slave0:"));
            let caught_up = |offset: &str| replica.is_some_and(|r| r.contains(&format!("offset={offset},")));
            offset.is_some_and(|offset| caught_up(offset.trim()))
        });
    }

    /// What the nodes say of this one.
    pub(crate) fn member(&self, node: &RedisServer) -> Member {
        let own = self.nodes.iter().position(|other| other.addr() == node.addr()).expect("it is one of ours");
        let addr = self.announced(own);
        let member = self.members().into_iter().find(|member| member.addr == addr);
        member.unwrap_or_else(|| panic!("{addr} is not in the cluster"))
    }

    fn slot_of(&self, key: &str) -> u16 {
        let node = self.running().next().expect("a node runs");
        u16::try_from(node.command(&["CLUSTER", "KEYSLOT", key]).integer()).expect("a slot")
    }

    /// A node that takes a slot in does not learn of a fail-over where that comes from.
    fn owner(&self, slot: u16) -> Option<Member> {
        let has = |member: &Member| member.slots.iter().any(|(from, to)| (*from..=*to).contains(&slot));
        self.views().flatten().find(|member| member.is_primary && has(member))
    }

    fn members(&self) -> Vec<Member> {
        self.views().next().expect("a node runs")
    }

    /// As each node has it that answers at once: some may be paused.
    fn views(&self) -> impl Iterator<Item = Vec<Member>> {
        let answers = |node: &&RedisServer| resp::command_within(node.addr(), &["PING"], AT_ONCE).is_ok();
        self.nodes.iter().filter(answers).map(|node| {
            let Reply::Text(lines) = node.command(&["CLUSTER", "NODES"]) else { panic!("no list of nodes") };
            lines.lines().map(Member::parse).collect()
        })
    }

    fn running(&self) -> impl Iterator<Item = &RedisServer> {
        self.nodes.iter().filter(|node| resp::command(node.addr(), &["PING"]).is_ok())
    }

    fn join(&self) {
        let (first, primaries) = (&self.nodes[0], self.primaries);
        for (i, node) in self.nodes.iter().enumerate() {
            // As `redis-cli --cluster create` does: where two have the same, one takes another later, and a replica that has
            // not heard of that when its primary dies is never elected.
            ok(node, &["CLUSTER", "SET-CONFIG-EPOCH", &(i + 1).to_string()]).expect("it is new");
            if i < primaries {
                let (from, to) = self.slots_of_part(i);
                ok(node, &["CLUSTER", "ADDSLOTSRANGE", &from.to_string(), &to.to_string()])
                    .expect("it is taken");
            }
            if i > 0 {
                let (ip, port) = (first.addr().ip().to_string(), first.addr().port().to_string());
                let bus = first.bus_port().expect("it is a node").to_string();
                ok(node, &["CLUSTER", "MEET", &ip, &port, &bus]).expect("it is taken");
            }
        }
        let known = format!("cluster_known_nodes:{}\r\n", self.nodes.len());
        eventually(AGREEMENT_TIMEOUT, "the nodes know each other", || {
            self.nodes.iter().all(|node| cluster_info(node).contains(&known))
        });
        for (primary, replica) in self.nodes.iter().zip(&self.nodes[primaries..]) {
            let id = self.member(primary).id;
            eventually(AGREEMENT_TIMEOUT, "the replica knows its primary", || {
                replica.command(&["CLUSTER", "REPLICATE", &id]) == Reply::Text("OK".to_owned())
            });
        }
        self.await_whole();
        let slots = |node: &RedisServer| cluster_info(node).contains("cluster_slots_ok:16384\r\n");
        eventually(AGREEMENT_TIMEOUT, "all agree on the slots", || self.nodes.iter().all(slots));
    }
}

impl ClusterOptions {
    /// One for each primary.
    #[must_use]
    pub fn replicas(self) -> Self {
        Self { replicas: self.primaries, ..self }
    }

    /// Clients and replicas reach each node through a proxy, at the address that the cluster tells them.
    #[must_use]
    pub fn behind_proxies(self) -> Self {
        Self { has_links: true, ..self }
    }

    /// A directive of each node's redis.conf, and its value.
    #[must_use]
    pub fn arg(self, directive: &str, value: &str) -> Self {
        Self { node: self.node.arg(directive, value), ..self }
    }

    /// Starts it, and waits until all nodes agree.
    pub fn start(self) -> RedisCluster {
        let (mut nodes, mut links) = (Vec::new(), Vec::new());
        for _ in 0..self.primaries + self.replicas {
            if self.has_links {
                let (node, link) = self.node.clone().start_behind_proxy();
                nodes.push(node);
                links.push(link);
            } else {
                nodes.push(self.node.clone().start());
            }
        }
        let cluster = RedisCluster { nodes, links, primaries: self.primaries };
        cluster.join();
        cluster
    }
}

impl Member {
    /// A line of `CLUSTER NODES`.
    fn parse(line: &str) -> Self {
        let fields: Vec<&str> = line.split(' ').collect();
        let addr = fields[1].split('@').next().unwrap_or_default();
        let addr = addr.parse().unwrap_or_else(|error| panic!("{addr}: {error}"));
        let range = |text: &&str| {
            // A slot that is being moved stands in brackets.
            let (from, to) = text.split_once('-').unwrap_or((text, text));
            Some((from.parse().ok()?, to.parse().ok()?))
        };
        let is_primary = fields[2].split(',').any(|flag| flag == "master");
        Self { id: fields[0].into(), addr, is_primary, slots: fields[8..].iter().filter_map(range).collect() }
    }
}

fn is_settled(node: &RedisServer) -> bool {
    let replication = info(node, "replication");
    let follows = !replication.contains("role:slave") || replication.contains("master_link_status:up");
    follows && cluster_info(node).contains("cluster_state:ok\r\n")
}

fn info(node: &RedisServer, section: &str) -> String {
    match node.command(&["INFO", section]) {
        Reply::Text(info) => info,
        other => panic!("{other:?}"),
    }
}

fn cluster_info(node: &RedisServer) -> String {
    match node.command(&["CLUSTER", "INFO"]) {
        Reply::Text(info) => info,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn ok(node: &RedisServer, command: &[&str]) -> Result<(), String> {
    match node.command(command) {
        Reply::Text(text) if text == "OK" => Ok(()),
        other => Err(format!("{command:?}: {other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_has_a_node_and_every_node_knows_it() {
        let cluster = RedisCluster::start(3);
        assert_eq!(cluster.url().matches("127.0.0.1:").count(), 3);
        let answers: Vec<Reply> =
            cluster.nodes().iter().map(|node| node.command(&["SET", "key", "1"])).collect();
        let moved = |reply: &&Reply| matches!(reply, Reply::Error(error) if error.starts_with("MOVED "));
        assert_eq!(answers.iter().filter(moved).count(), 2, "{answers:?}");
    }

    #[test]
    fn a_slot_moves_with_its_keys() {
        let cluster = RedisCluster::start(2);
        let from = cluster.primary_of("{a}");
        for key in ["{a}1", "{a}2", "{a}3"] {
            ok(from, &["SET", key, "value"]).expect("it is taken");
        }
        let to = cluster.nodes().iter().find(|node| node.addr() != from.addr()).unwrap();
        let migration = cluster.migrate_slot_of("{a}", to).unwrap();
        migration.move_key("{a}2").unwrap();
        assert!(matches!(from.command(&["GET", "{a}2"]), Reply::Error(error) if error.starts_with("ASK ")));
        // As where a primary dies that has moved a key, and its replica has not heard of that.
        let port = to.addr().port().to_string();
        ok(from, &["MIGRATE", "127.0.0.1", &port, "{a}3", "0", "1000", "COPY"]).unwrap();
        migration.finish().unwrap();
        assert_eq!(cluster.primary_of("{a}").addr(), to.addr());
        for key in ["{a}1", "{a}2", "{a}3"] {
            assert_eq!(to.command(&["GET", key]), Reply::Text("value".to_owned()));
        }
    }

    #[test]
    fn behind_proxies_clients_are_told_the_addresses_of_those() {
        let cluster = RedisCluster::options(2).behind_proxies().start();
        assert_eq!([0, 1].map(|part| cluster.primary_of_part(part)), [0, 1]);
        let told = format!("{:?}", cluster.nodes()[1].command(&["CLUSTER", "SLOTS"]));
        for (i, node) in cluster.nodes().iter().enumerate() {
            let (link, own) = (cluster.link(i).unwrap().addr().port(), node.addr().port());
            assert!(
                told.contains(&format!("Int({link})")) && !told.contains(&format!("Int({own})")),
                "{told}"
            );
        }
    }

    #[test]
    fn a_replica_takes_the_place_of_a_primary_that_was_killed() {
        let cluster = RedisCluster::start_with_replicas(3);
        let primary = cluster.primary_of("key");
        ok(primary, &["SET", "key", "value"]).expect("it is taken");
        cluster.await_replicated(primary);
        primary.kill();
        let promoted = || cluster.primary_of("key").addr() != primary.addr();
        eventually(AGREEMENT_TIMEOUT, "another is the primary", promoted);
        assert_eq!(cluster.primary_of("key").command(&["GET", "key"]), Reply::Text("value".to_owned()));
        primary.restart();
        cluster.await_whole();
        assert_ne!(cluster.primary_of("key").addr(), primary.addr());
    }
}
