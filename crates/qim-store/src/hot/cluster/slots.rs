//! Which node of a cluster has which slot, as nodes tell it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use redis::Value;

const SLOTS: u16 = 16_384;

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Address {
    pub(super) host: Arc<str>,
    pub(super) port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl Address {
    /// From `HOST:PORT`, as MOVED and ASK name a node; `asked` is the one that does. `None`: it does not know the host.
    pub(super) fn told(text: &str, asked: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Self::of(host, port.parse().ok()?, asked)
    }

    /// No host is that of the node which tells, `?` one that it does not know.
    fn of(host: &str, port: u16, asked: &Self) -> Option<Self> {
        match host {
            "?" => None,
            "" => Some(Self { host: asked.host.clone(), port }),
            host => Some(Self { host: host.into(), port }),
        }
    }

    /// From an entry of `CLUSTER SLOTS`.
    fn parse(node: &Value, asked: &Self) -> Option<Self> {
        let Value::Array(fields) = node else { return None };
        let [host, Value::Int(port), ..] = &fields[..] else { return None };
        let host = match host {
            Value::BulkString(host) => std::str::from_utf8(host).ok()?,
            Value::Nil => "",
            _ => return None,
        };
        Self::of(host, u16::try_from(*port).ok()?, asked)
    }
}

/// The slot of a key: of its hash tag, where it has one.
pub(super) fn slot_of(key: &[u8]) -> u16 {
    let tag = || {
        let behind = &key[key.iter().position(|byte| *byte == b'{')? + 1..];
        let tag = &behind[..behind.iter().position(|byte| *byte == b'}')?];
        (!tag.is_empty()).then_some(tag)
    };
    crc16(tag().unwrap_or(key)) % SLOTS
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    let shift = |crc: u16, _| if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
    bytes.iter().fold(0, |crc, byte| (0..8).fold(crc ^ u16::from(*byte) << 8, shift))
}

/// What `CLUSTER SLOTS` says, and what was heard of single slots since. Two are equal when they name the same primaries.
#[derive(Debug, Clone, Default)]
pub(super) struct SlotMap {
    /// By the first slot of a range: its last one, and its primary.
    ranges: BTreeMap<u16, (u16, Address)>,
    /// Goes before `ranges`.
    moved: HashMap<u16, Address>,
    replicas: BTreeSet<Address>,
}

impl PartialEq for SlotMap {
    fn eq(&self, other: &Self) -> bool {
        (&self.ranges, &self.moved) == (&other.ranges, &other.moved)
    }
}

impl SlotMap {
    /// `None`: it is no answer to `CLUSTER SLOTS`. A range whose primary has no known address is left out.
    pub(super) fn parse(reply: &Value, asked: &Address) -> Option<Self> {
        let Value::Array(entries) = reply else { return None };
        let mut map = Self::default();
        for entry in entries {
            let Value::Array(fields) = entry else { return None };
            let [Value::Int(first), Value::Int(last), primary, replicas @ ..] = &fields[..] else {
                return None;
            };
            let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
            if let Some(primary) = Address::parse(primary, asked) {
                map.ranges.insert(first, (last, primary));
            }
            map.replicas.extend(replicas.iter().filter_map(|replica| Address::parse(replica, asked)));
        }
        Some(map)
    }

    /// The node that has the slot; `None`: none is known to.
    pub(super) fn primary_of(&self, slot: u16) -> Option<&Address> {
        let in_range = || {
            let (_, (last, primary)) = self.ranges.range(..=slot).next_back()?;
            (slot <= *last).then_some(primary)
        };
        self.moved.get(&slot).or_else(in_range)
    }

    /// One slot has another node than before.
    pub(super) fn set(&mut self, slot: u16, primary: Address) {
        self.moved.insert(slot, primary);
    }

    /// All nodes that have slots.
    pub(super) fn primaries(&self) -> BTreeSet<&Address> {
        self.ranges.values().map(|(_, primary)| primary).chain(self.moved.values()).collect()
    }

    /// Those, and their replicas.
    pub(super) fn nodes(&self) -> BTreeSet<&Address> {
        self.primaries().into_iter().chain(&self.replicas).collect()
    }

    /// What most of them say.
    pub(super) fn of_most(told: &[Self]) -> Option<&Self> {
        told.iter().max_by_key(|map| told.iter().filter(|other| other == map).count())
    }
}

#[cfg(test)]
#[path = "slots_tests.rs"]
mod tests;
