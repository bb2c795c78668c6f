use crate::redis_cluster::{RedisCluster, ok};
use crate::redis_server::RedisServer;
use crate::resp::Reply;

/// Keys moved by one MIGRATE.
const KEYS_AT_ONCE: &str = "10";
const MIGRATE_TIMEOUT_MS: &str = "10000";

/// A slot on its way from one node to another, as `redis-cli --cluster reshard` moves it. Until it is finished the
/// node it leaves answers ASK for each key that it has not got any more, and TRYAGAIN where it has some of a call's
/// keys only. Errors are what a node said: one that is no primary takes no slots.
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
    ) -> Result<Self, String> {
        let (slot, id) = (slot.to_string(), |node: &RedisServer| cluster.member(node).id);
        // A node that takes a slot in, while a replica takes over where that comes from, knows of nobody who has it.
        ok(to, &["CLUSTER", "SETSLOT", &slot, "NODE", &id(from)])?;
        ok(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(from)])?;
        ok(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(to)])?;
        Ok(Self { cluster, slot, from, to })
    }

    /// Moves one key.
    pub fn move_key(&self, key: &str) -> Result<(), String> {
        self.migrate(&[key])
    }

    /// Moves some of the keys that are still there; `false` where there was none.
    pub fn move_some(&self) -> Result<bool, String> {
        let reply = self.from.command(&["CLUSTER", "GETKEYSINSLOT", &self.slot, KEYS_AT_ONCE]);
        let keys = reply.texts();
        if !keys.is_empty() {
            self.migrate(&keys)?;
        }
        Ok(!keys.is_empty())
    }

    /// Moves all keys that are left, and then the slot.
    pub fn finish(self) -> Result<(), String> {
        while self.move_some()? {}
        let id = self.cluster.member(self.to).id;
        // First where it goes, so that nobody answers that the other one has it.
        ok(self.to, &["CLUSTER", "SETSLOT", &self.slot, "NODE", &id])?;
        ok(self.from, &["CLUSTER", "SETSLOT", &self.slot, "NODE", &id])
    }

    fn migrate(&self, keys: &[&str]) -> Result<(), String> {
        let (ip, port) = (self.to.addr().ip().to_string(), self.to.addr().port().to_string());
        // A key that is in both is one that a primary had moved before it died, and its replica has still: the slot is its.
        let command =
            [&["MIGRATE", &ip, &port, "", "0", MIGRATE_TIMEOUT_MS, "REPLACE", "KEYS"], keys].concat();
        let reply = self.from.command(&command);
        let is_done = matches!(&reply, Reply::Text(text) if text == "OK" || text == "NOKEY");
        if is_done { Ok(()) } else { Err(format!("{command:?}: {reply:?}")) }
    }
}
