use std::time::Duration;

use crate::eventually::eventually;
use crate::ports::free_port;
use crate::redis_server::RedisServer;
use crate::resp::Reply;

const SLOTS: usize = 16_384;
/// Gossip between nodes takes seconds; on a loaded machine, some more.
const JOIN_TIMEOUT: Duration = Duration::from_secs(60);

/// A Redis Cluster of real servers without replicas.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
}

impl RedisCluster {
    /// Starts so many nodes with an equal part of the slots each, and waits until all of them agree.
    pub fn start(nodes: usize) -> Self {
        let buses: Vec<String> = (0..nodes).map(|_| free_port().to_string()).collect();
        let start = |bus: &String| {
            let options = RedisServer::options().arg("cluster-enabled", "yes").arg("cluster-port", bus);
            options.arg("cluster-node-timeout", "2000").start()
        };
        let cluster = Self { nodes: buses.iter().map(start).collect() };
        cluster.join(&buses);
        cluster
    }

    /// `redis-cluster://127.0.0.1:PORT,…`.
    pub fn url(&self) -> String {
        let nodes: Vec<String> = self.nodes.iter().map(|node| node.addr().to_string()).collect();
        format!("redis-cluster://{}", nodes.join(","))
    }

    /// Its servers.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    fn join(&self, buses: &[String]) {
        let first = self.nodes[0].addr();
        for (i, node) in self.nodes.iter().enumerate() {
            let (from, to) = (SLOTS * i / self.nodes.len(), SLOTS * (i + 1) / self.nodes.len() - 1);
            expect_ok(node, &["CLUSTER", "ADDSLOTSRANGE", &from.to_string(), &to.to_string()]);
            if i > 0 {
                expect_ok(
                    node,
                    &["CLUSTER", "MEET", &first.ip().to_string(), &first.port().to_string(), &buses[0]],
                );
            }
        }
        let known = format!("cluster_known_nodes:{}\r\n", self.nodes.len());
        for node in &self.nodes {
            eventually(JOIN_TIMEOUT, "the cluster agrees on its slots", || {
                let Reply::Text(info) = node.command(&["CLUSTER", "INFO"]) else { return false };
                info.contains("cluster_state:ok\r\n") && info.contains(&known)
            });
        }
    }
}

fn expect_ok(node: &RedisServer, command: &[&str]) {
    assert_eq!(node.command(command), Reply::Text("OK".to_owned()), "{command:?}");
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
}
