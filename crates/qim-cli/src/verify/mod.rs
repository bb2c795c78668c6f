//! `qim verify`: is every record of a file in the store, exactly as the file has it?
//!
//! The file is read once; of each record a digest stays. Then each of its conversations is read whole, and every
//! record that comes is compared with what was kept.

mod audit;
mod findings;
mod ledger;
mod retention;

use futures::StreamExt;
use qim_core::{ConversationKey, TenantId, UnixMillis};
use qim_proto::v1;
use qim_proto::v1::pull_request::Position;
use serde::Serialize;
use tonic::Status;

use crate::cli::VerifyArgs;
use crate::failure::Failure;
use crate::link::Link;
use crate::ndjson::{Input, Source};
use crate::output::Output;
use crate::progress::Progress;
use crate::session::Session;
use crate::time_args::When;

use audit::Audit;
use findings::Findings;
use ledger::Ledger;
use retention::Rules;
pub(crate) use retention::TenantRetention;

/// How many lines that are no records are told one by one.
const UNREADABLE_TOLD_MAX: u64 = 20;
/// What is read at once.
const PAGE_RECORDS: u32 = 500;

/// Compares the file with the store. Ends with the counts.
pub(crate) async fn run(session: &Session, args: &VerifyArgs, output: &mut Output) -> Result<(), Failure> {
    let rules = Rules::new(session.retention_days(args.retention_days)?, args.tenant_retention);
    let tenant =
        TenantId::new(&session.tenant()).map_err(|error| Failure::Usage(format!("--tenant {error}")))?;
    let link = session.link(args.give_up)?;
    let source = Source::new(&args.file);
    let imported_at = args.imported_at.map(|when: When| when.resolve(session.clock.now()));
    let ledger = read(session, Input::open(&args.file, tenant)?, &source, imported_at).await?;

    let mut findings = Findings::default();
    let progress = Progress::new("compared", Some(ledger.records));
    let mut second = tokio::time::interval(std::time::Duration::from_secs(1));
    let audits = ledger.conversations.iter().map(|(conversation, expected)| {
        let audit = Audit::new(expected, &rules, session.clock.now());
        audit_conversation(&link, &progress, conversation, audit)
    });
    let mut audits = futures::stream::iter(audits).buffer_unordered(usize::from(args.concurrency));
    loop {
        tokio::select! {
            audited = audits.next() => match audited {
                Some(more) => {
                    findings.add(more?);
                    progress.advance(findings.total());
                    progress.count(findings.total());
                }
                None => break,
            },
            _ = second.tick() => progress.show(),
        }
    }
    drop(audits);
    drop(progress);
    print(&findings, ledger.unreadable, &source, output)
}

async fn read(
    session: &Session,
    mut input: Input,
    source: &Source,
    imported_at: Option<UnixMillis>,
) -> Result<Ledger, Failure> {
    let progress = Progress::new("read", input.bytes);
    let mut ledger = Ledger::new(imported_at.unwrap_or_else(|| session.clock.now()));
    while let Some(lines) = input.next_chunk().await? {
        for line in lines {
            progress.advance(line.end);
            if let Err(reason) = line.entry.and_then(|entry| ledger.enter(line.number, &entry)) {
                ledger.unreadable += 1;
                if ledger.unreadable <= UNREADABLE_TOLD_MAX {
                    progress.say(&format!("{source}:{}: {reason}", line.number));
                }
            }
        }
        progress.count(ledger.records);
        progress.show();
    }
    ledger.close();
    Ok(ledger)
}

/// Reads a conversation from its first record to its last.
async fn audit_conversation(
    link: &Link,
    progress: &Progress,
    conversation: &ConversationKey,
    mut audit: Audit<'_>,
) -> Result<Findings, Failure> {
    let mut after = 0;
    loop {
        let request = v1::PullRequest {
            tenant: conversation.tenant().as_str().to_owned(),
            conversation: conversation.conversation().to_owned(),
            position: Some(Position::AfterSeq(after)),
            limit: PAGE_RECORDS,
            fail_on_expired: false,
            accept_zstd: false,
        };
        let page = link.call(&request, pull_from_both_tiers, |text| progress.tell(text)).await?;
        let page = page.map_err(|status| link.refused(&status))?;
        let misordered =
            || Failure::Refused(format!("{conversation}: the server's pages are out of order at {after}"));
        let mut last = after;
        for record in &page.records {
            if record.seq <= last {
                return Err(misordered());
            }
            last = record.seq;
            audit.see(record);
        }
        if !page.has_more {
            return Ok(audit.finish());
        }
        if page.next_seq <= after || page.next_seq < last {
            return Err(misordered());
        }
        after = page.next_seq;
    }
}

/// A page of which the archive's part could not be read says nothing about what is missing: as good as no answer.
async fn pull_from_both_tiers(
    mut client: crate::client::History,
    request: tonic::Request<v1::PullRequest>,
) -> Result<tonic::Response<v1::PullResponse>, Status> {
    let response = client.pull(request).await?;
    if response.get_ref().archive_unavailable {
        return Err(Status::unavailable("the archive is unavailable"));
    }
    Ok(response)
}

/// The result. `unreadable` is there only when it is not 0: lines that are no records.
#[derive(Debug, Serialize)]
struct Counts {
    compared: u64,
    missing: u64,
    different: u64,
    expired: u64,
    #[serde(skip_serializing_if = "is_zero")]
    unreadable: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn print(findings: &Findings, unreadable: u64, source: &Source, output: &mut Output) -> Result<(), Failure> {
    for (line, text) in findings.first() {
        eprintln!("{source}:{line}: {text}");
    }
    if findings.untold() > 0 {
        eprintln!("{source}: and {} more", findings.untold());
    }
    let &Findings { compared, missing, different, expired, .. } = findings;
    if output.is_json() {
        output.json(&Counts { compared, missing, different, expired, unreadable })?;
    } else {
        let all = [
            ("compared", compared),
            ("missing", missing),
            ("different", different),
            ("expired", expired),
            ("unreadable", unreadable),
        ];
        let shown = if unreadable == 0 { &all[..4] } else { &all[..] };
        output.numbers(&shown.iter().map(|(name, n)| (*name, n.to_string())).collect::<Vec<_>>())?;
    }
    match (missing + different, unreadable) {
        (0, 0) => Ok(()),
        (0, _) => Err(Failure::Found(format!("{unreadable} lines are no records"))),
        _ => Err(Failure::Found(format!("{missing} records are missing and {different} are different"))),
    }
}
