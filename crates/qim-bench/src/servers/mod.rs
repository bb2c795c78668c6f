//! What is measured runs here: each server a process of its own on the loopback, gone when its owner is dropped.

pub(crate) mod cql;
pub(crate) mod daemon;
pub(crate) mod postgres;
pub(crate) mod process;
pub(crate) mod redis;
