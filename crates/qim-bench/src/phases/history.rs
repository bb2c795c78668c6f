//! A history that goes all the way, committed, copied and trimmed: first a short one, then one many times as long.

use anyhow::{Context, Result};

use super::{Fill, HOUR_MS};
use crate::bench::Bench;
use crate::load::as_f64;
use crate::progress::watch;
use crate::servers::daemon::Daemon;
use crate::servers::process::rss_mib;
use crate::servers::redis::Redis;
use crate::subject::Unary;

/// What the daemons are told, so that a history of two hours ago is trimmed.
pub(super) const SETTINGS: [(&str, &str); 2] = [("QIM_HOT_WINDOW", "1h"), ("QIM_COPY_DELAY", "0s")];
const TRIMMED: &str = "qim_trimmed_records_total";

/// The daemons that a history went through, and where it is.
pub(super) struct Deployment {
    // Dropped from the top: the daemons end before their Redis.
    pub(super) archiver: Daemon,
    pub(super) writer: Daemon,
    pub(super) archive: String,
    pub(super) redis: Redis,
}

/// Of both lengths.
pub(super) struct Lengths {
    /// Messages of a conversation.
    pub(super) messages: usize,
    /// How many times as long the long one is.
    pub(super) times: usize,
}

/// Calls `begin` with the messages that come next, and `measure` with 0 when the short history has gone all the way, and
/// with 1 for the long one.
pub(super) async fn grow(
    bench: &Bench,
    Lengths { messages, times }: Lengths,
    begin: impl Fn(usize),
    mut measure: impl FnMut(usize, &Deployment) -> Result<()>,
) -> Result<()> {
    let (redis, archive) = (bench.redis()?, bench.sqlite_url());
    let writer = bench.writer(&redis, &archive, &SETTINGS)?;
    let archiver = bench.archiver(&redis, &archive, &SETTINGS)?;
    let deployment = Deployment { archiver, writer, archive, redis };
    let client = Unary::connect(&deployment.writer.url()).await?;
    let conversations = bench.scale.history / messages;
    let mut history = 0;
    for (index, prefix) in ["short", "long"].into_iter().enumerate() {
        let conversations = if index == 0 { conversations } else { conversations * (times - 1) };
        begin(conversations * messages);
        Fill::aged(prefix, conversations, messages, 2 * HOUR_MS).load(bench, &client).await?;
        history += conversations * messages;
        watch(&deployment.archiver, TRIMMED, as_f64(history)).await?;
        tokio::time::sleep(bench.scale.window).await;
        measure(index, &deployment)?;
    }
    Ok(())
}

pub(super) fn rss(daemon: &Daemon) -> Result<f64> {
    rss_mib(daemon.pid()).context("the daemon runs")
}
