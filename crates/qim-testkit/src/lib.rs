//! What the tests share: real servers on free loopback ports, daemons as processes, a clock that stands still, a proxy that
//! breaks connections, and a model of what a conversation has to look like. There are no mocks.
//!
//! Everything is blocking and ends with its owner, so that it serves tests with and without a runtime. What goes wrong
//! here is a panic with what the test's author needs to know.

mod authority;
mod clock;
mod cql;
mod daemon;
mod dictionary;
mod eventually;
mod fault_proxy;
mod http;
mod model;
mod ports;
mod process;
mod redis_cluster;
mod redis_server;
mod resp;
mod samples;
mod slot_migration;

pub use authority::{Authority, PemFiles};
pub use clock::FakeClock;
pub use cql::{SecureCql, cql_keyspace_url, cql_url};
pub use daemon::{Daemon, Ended, Launch};
pub use dictionary::dictionary;
pub use eventually::{eventually, eventually_async};
pub use fault_proxy::{FaultMode, FaultProxy};
pub use http::{HttpAnswer, http_get};
pub use model::{ConversationModel, ModelCommit};
pub use nix::sys::signal::Signal;
pub use ports::free_port;
pub use redis_cluster::{ClusterOptions, RedisCluster};
pub use redis_server::{AppendOnlyFile, RedisOptions, RedisServer};
pub use resp::Reply;
pub use samples::Samples;
pub use slot_migration::SlotMigration;
