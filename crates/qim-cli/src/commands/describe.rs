use std::time::Duration;

use qim_proto::v1;
use serde::Serialize;

use super::pull::show_gap;
use super::tell;
use crate::cli::DescribeArgs;
use crate::failure::Failure;
use crate::output::{Output, printable};
use crate::session::Session;
use crate::time_args::show_date;

/// The answer, field by field.
#[derive(Serialize)]
struct Description<'a> {
    exists: bool,
    last_conversation_seq: u64,
    earliest_available_conversation_seq: u64,
    hot_floor_seq: u64,
    archived_seq: u64,
    hot_records: u64,
    hot_bytes: u64,
    archived_records: u64,
    last_created_at_ms: i64,
    shard: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    set_aside: Option<&'a str>,
    archive_unavailable: bool,
    gaps: Vec<Gap>,
}

/// Seqs whose records are lost.
#[derive(Serialize)]
struct Gap {
    from: u64,
    to: u64,
    noticed_at_ms: i64,
}

/// Prints what the server knows about a conversation; also about one that does not exist.
pub(crate) async fn run(session: &Session, args: &DescribeArgs, output: &mut Output) -> Result<(), Failure> {
    let link = session.link(Duration::ZERO)?;
    let request = v1::DescribeRequest { tenant: session.tenant(), conversation: args.conversation.clone() };
    let answer =
        link.call(&request, async |mut client, request| client.describe(request).await, tell).await?;
    let description = answer.map_err(|status| link.refused(&status))?;
    if output.is_json() { output.json(&Description::from(&description)) } else { print(&description, output) }
}

fn print(description: &v1::DescribeResponse, output: &mut Output) -> Result<(), Failure> {
    if !description.exists {
        return output.line("nothing was ever committed here");
    }
    let mut pairs = vec![
        ("last seq", description.last_conversation_seq.to_string()),
        ("earliest available", description.earliest_available_conversation_seq.to_string()),
        ("hot floor", description.hot_floor_seq.to_string()),
        ("archived up to", description.archived_seq.to_string()),
        ("hot records", format!("{} ({} bytes)", description.hot_records, description.hot_bytes)),
        ("archived records", description.archived_records.to_string()),
        ("last created", show_date(description.last_created_at_ms)),
        ("shard", description.shard.to_string()),
    ];
    if let Some(reason) = &description.set_aside {
        pairs.push(("set aside", printable(reason)));
    }
    if description.archive_unavailable {
        pairs.push(("archive", "unavailable: the numbers speak of the hot tier only".to_owned()));
    }
    for gap in &description.gaps {
        pairs.push(("lost", format!("{}, noticed {}", show_gap(gap), show_date(gap.noticed_at_ms))));
    }
    output.pairs(&pairs)
}

impl<'a> From<&'a v1::DescribeResponse> for Description<'a> {
    fn from(response: &'a v1::DescribeResponse) -> Self {
        Self {
            exists: response.exists,
            last_conversation_seq: response.last_conversation_seq,
            earliest_available_conversation_seq: response.earliest_available_conversation_seq,
            hot_floor_seq: response.hot_floor_seq,
            archived_seq: response.archived_seq,
            hot_records: response.hot_records,
            hot_bytes: response.hot_bytes,
            archived_records: response.archived_records,
            last_created_at_ms: response.last_created_at_ms,
            shard: response.shard,
            set_aside: response.set_aside.as_deref(),
            archive_unavailable: response.archive_unavailable,
            gaps: response.gaps.iter().map(Gap::from).collect(),
        }
    }
}

impl From<&v1::Gap> for Gap {
    fn from(gap: &v1::Gap) -> Self {
        Self { from: gap.from, to: gap.to, noticed_at_ms: gap.noticed_at_ms }
    }
}
