use crate::redis_cluster::{RedisCluster, expect_ok};
use crate::redis_server::RedisServer;
use crate::resp::Reply;

/// Keys moved by one MIGRATE.
const KEYS_AT_ONCE: &str = "10";
const MIGRATE_TIMEOUT_MS: &str = "10000";

/// A slot on its way from one node to another, as `redis-cli --cluster reshard` moves it. Until it is finished the
/// node it leaves answers ASK for each key that it has not got any more, and TRYAGAIN where it has some of a call's
/// keys only.
#[derive(Debug)]
#[must_use = "a slot that is on its way serves badly: finish it"]
pub struct SlotMigration<'a> {
    cluster: &'a RedisCluster,
    slot: String,
    from: &'a RedisServer,
    to: &'a RedisServer,
}

impl<'a> SlotMigration<'a> {
    pub(crate) fn begin(
        cluster: &'a RedisCluster,
        slot: u16,
        from: &'a RedisServer,
        to: &'a RedisServer,
    ) -> Self {
        let (slot, id) = (slot.to_string(), |node: &RedisServer| cluster.member(node.addr()).id);
        expect_ok(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(from)]);
        expect_ok(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(to)]);
        Self { cluster, slot, from, to }
    }

    /// Moves one key.
    pub fn move_key(&self, key: &str) {
        self.migrate(&[key]);
    }

    /// Moves some of the keys that are still there; `false` where there was none.
    pub fn move_some(&self) -> bool {
        let reply = self.from.command(&["CLUSTER", "GETKEYSINSLOT", &self.slot, KEYS_AT_ONCE]);
        let keys = reply.texts();
        if !keys.is_empty() {
            self.migrate(&keys);
        }
        !keys.is_empty()
    }

    /// Moves all keys that are left, and then the slot.
    pub fn finish(self) {
        while self.move_some() {}
        let id = self.cluster.member(self.to.addr()).id;
        // First where it goes, so that nobody answers that the other one has it.
        expect_ok(self.to, &["CLUSTER", "SETSLOT", &self.slot, "NODE", &id]);
        expect_ok(self.from, &["CLUSTER", "SETSLOT", &self.slot, "NODE", &id]);
    }

    fn migrate(&self, keys: &[&str]) {
        let (ip, port) = (self.to.addr().ip().to_string(), self.to.addr().port().to_string());
        let command = [&["MIGRATE", &ip, &port, "", "0", MIGRATE_TIMEOUT_MS, "KEYS"], keys].concat();
        let reply = self.from.command(&command);
        let is_done = matches!(&reply, Reply::Text(text) if text == "OK" || text == "NOKEY");
        assert!(is_done, "{command:?}: {reply:?}");
    }
}
