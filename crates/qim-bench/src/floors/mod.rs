//! What qim is measured against, in the same run.

use std::sync::Arc;

use crate::corpus::Corpus;

pub(crate) mod cql;
pub(crate) mod postgres;
pub(crate) mod redis;
pub(crate) mod sqlite;
pub(crate) mod thin_server;

/// A row of an archive.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) conversation: Arc<str>,
    pub(crate) seq: i64,
    pub(crate) expires_at: i64,
    pub(crate) record: Arc<[u8]>,
}

/// Rows of so many conversations of so many messages, in order, with the payloads of the corpus.
pub(crate) fn rows(corpus: &Corpus, conversations: usize, messages: usize) -> Vec<Row> {
    let expires_at = i64::try_from(redis::now_ms()).unwrap_or_default() + 30 * 24 * 60 * 60 * 1000;
    let mut rows = Vec::with_capacity(conversations * messages);
    for index in 0..conversations {
        let conversation: Arc<str> = format!("page-{index}").into();
        let batch = corpus.batch(conversation.clone(), index * messages, messages);
        for (seq, message) in (1..).zip(&batch.messages) {
            let record = redis::encode(message).1.into();
            rows.push(Row { conversation: conversation.clone(), seq, expires_at, record });
        }
    }
    rows
}
