//! Redis without qim: the smallest commit there is, and the layout of a key for each record.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use async_trait::async_trait;
use redis::Script;
use redis::aio::MultiplexedConnection;

use crate::corpus::{Batch, Message};
use crate::load::{Commits, Pages};

const WEEK_SECS: u64 = 7 * 24 * 60 * 60;
const MONTH_MS: u64 = 30 * 24 * 60 * 60 * 1000;
const PAGE: isize = 50;

/// One script call for each commit, a plain client, no gRPC. A page is one range of a list.
#[derive(Clone)]
pub(crate) struct RawRedis {
    connection: MultiplexedConnection,
    script: Arc<Script>,
}

/// String, two ZSET entries and a dedupe key for each record.
#[derive(Clone)]
pub(crate) struct AdrLayout {
    connection: MultiplexedConnection,
    script: Arc<Script>,
}

impl RawRedis {
    pub(crate) fn new(connection: MultiplexedConnection) -> Self {
        Self { connection, script: Arc::new(Script::new(include_str!("../lua/raw_commit.lua"))) }
    }

    /// Commits records that are encoded already. Answers the seq of the first.
    pub(crate) async fn commit_encoded(
        &self,
        conversation: &str,
        records: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<i64> {
        let mut call = self.script.key(format!("c:{conversation}"));
        call.key(format!("i:{conversation}")).key("index").arg(conversation).arg(now_ms());
        for (id, record) in records {
            call.arg(id).arg(record);
        }
        let first: i64 = call.invoke_async(&mut self.connection.clone()).await?;
        ensure!(first > 0, "an id of {conversation} is known");
        Ok(first)
    }
}

impl AdrLayout {
    pub(crate) fn new(connection: MultiplexedConnection) -> Self {
        Self { connection, script: Arc::new(Script::new(include_str!("../lua/adr_commit.lua"))) }
    }
}

#[async_trait]
impl Commits for RawRedis {
    async fn commit(&self, batch: Batch) -> Result<()> {
        let records: Vec<_> = batch.messages.iter().map(encode).collect();
        self.commit_encoded(&batch.conversation, &records).await.map(|_| ())
    }
}

#[async_trait]
impl Commits for AdrLayout {
    async fn commit(&self, batch: Batch) -> Result<()> {
        let now = now_ms();
        let mut call = self.script.key(format!("m:{}", batch.conversation));
        call.key("msghistorygc").arg(now).arg(now + MONTH_MS).arg(WEEK_SECS);
        for message in &batch.messages {
            let (_, record) = encode(message);
            // The id as clients send it: a key made of it is text.
            call.arg(format!("{:032x}", message.id)).arg(record);
        }
        let _first: i64 = call.invoke_async(&mut self.connection.clone()).await?;
        Ok(())
    }
}

#[async_trait]
impl Pages for RawRedis {
    async fn newest(&self, conversation: Arc<str>) -> Result<usize> {
        let mut command = redis::cmd("LRANGE");
        command.arg(format!("c:{conversation}")).arg(-PAGE).arg(-1);
        let records: Vec<Vec<u8>> = command.query_async(&mut self.connection.clone()).await?;
        Ok(records.len())
    }
}

/// Id, and a record of dates, sender, id and payload: what any layout has to keep.
pub(crate) fn encode(message: &Message) -> (Vec<u8>, Vec<u8>) {
    let id = message.id.to_be_bytes();
    let now = now_ms();
    let mut record = Vec::with_capacity(34 + message.sender.len() + message.payload.len());
    record.extend_from_slice(&now.to_be_bytes());
    record.extend_from_slice(&(now + MONTH_MS).to_be_bytes());
    record.push(u8::try_from(message.sender.len()).unwrap_or(u8::MAX));
    record.extend_from_slice(message.sender.as_bytes());
    record.extend_from_slice(&id);
    record.extend_from_slice(&message.payload);
    (id.to_vec(), record)
}

pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
