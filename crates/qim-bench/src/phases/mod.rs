//! The phases. In each of them subject and floors take turns, run by run.

mod archive;
mod commit;
mod gc;
mod growth;
mod history;
mod idle;
mod import;
mod memory;
mod pull;
mod rss;

use std::sync::Arc;

use anyhow::Result;
use futures::{StreamExt, TryStreamExt, stream};
use qim_proto::v1::RetentionClass;

use crate::bench::Bench;
use crate::floors::redis::now_ms;
use crate::load::Load;
use crate::options::PhaseName;
use crate::report::Report;
use crate::subject::Unary;

/// Requests under way while data is loaded.
const FILL_IN_FLIGHT: usize = 16;
const HOUR_MS: i64 = 60 * 60 * 1000;

/// Measures one phase.
pub(crate) async fn measure(bench: &Bench, phase: PhaseName) -> Result<Report> {
    match phase {
        PhaseName::Memory => memory::measure(bench).await,
        PhaseName::Commit => commit::measure(bench).await,
        PhaseName::Pull => pull::measure(bench).await,
        PhaseName::Archive => archive::measure(bench).await,
        PhaseName::Gc => gc::measure(bench).await,
        PhaseName::Idle => idle::measure(bench).await,
        PhaseName::Import => import::measure(bench).await,
        PhaseName::Growth => growth::measure(bench).await,
        PhaseName::Rss => rss::measure(bench).await,
        PhaseName::All => unreachable!("it stands for the others"),
    }
}

/// As many requests as go.
fn full_load(bench: &Bench, in_flight: usize) -> Load {
    Load { in_flight, warm_up: bench.scale.warm_up, window: bench.scale.window, rate: None }
}

/// Conversations to load: their names start with a prefix, each gets so many messages in one request.
#[derive(Debug, Clone, Copy)]
struct Fill<'a> {
    prefix: &'a str,
    conversations: usize,
    messages: usize,
    created_at_ms: i64,
    class: RetentionClass,
}

impl Fill<'_> {
    /// Of class default, dated so long ago.
    fn aged(prefix: &str, conversations: usize, messages: usize, age_ms: i64) -> Fill<'_> {
        let created_at_ms = epoch_ms() - age_ms;
        Fill { prefix, conversations, messages, created_at_ms, class: RetentionClass::Default }
    }

    fn name(&self, index: usize) -> Arc<str> {
        format!("{}-{index}", self.prefix).into()
    }

    /// By `Import`.
    async fn load(self, bench: &Bench, client: &Unary) -> Result<()> {
        stream::iter(0..self.conversations)
            .map(Ok::<_, anyhow::Error>)
            .try_for_each_concurrent(FILL_IN_FLIGHT, |index| {
                let batch = bench.corpus.batch(self.name(index), index * self.messages, self.messages);
                client.import(batch, self.created_at_ms, self.class)
            })
            .await
    }

    fn total(&self) -> f64 {
        crate::load::as_f64(self.conversations * self.messages)
    }
}

/// Runs a commit for each of the conversations, some at a time.
async fn each_conversation<F>(conversations: usize, commit: impl Fn(usize) -> F) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    stream::iter(0..conversations).map(commit).buffer_unordered(FILL_IN_FLIGHT).try_collect().await
}

fn epoch_ms() -> i64 {
    i64::try_from(now_ms()).unwrap_or(i64::MAX)
}
