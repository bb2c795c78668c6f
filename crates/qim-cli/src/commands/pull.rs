use std::time::Duration;

use qim_proto::v1;
use qim_proto::v1::pull_request::Position;

use super::tell;
use crate::cli::PullArgs;
use crate::failure::Failure;
use crate::link::Link;
use crate::output::Output;
use crate::record::print_page;
use crate::session::Session;

/// What the server gives at once.
const PAGE_RECORDS_MAX: u32 = 500;

/// Prints up to `--limit` records, from as many pages as that takes.
pub(crate) async fn run(session: &Session, args: &PullArgs, output: &mut Output) -> Result<(), Failure> {
    let link = session.link(Duration::ZERO)?;
    let backwards = args.before.is_some();
    let mut position = match (args.after, args.before, args.from) {
        (_, Some(seq), _) => Position::BeforeSeq(seq),
        (_, _, Some(time)) => Position::FromTimeMs(time.resolve(session.clock.now()).as_i64()),
        (seq, None, None) => Position::AfterSeq(seq.unwrap_or_default()),
    };
    let mut pages = Vec::new();
    let mut left = args.limit;
    while left > 0 {
        let page = page(&link, &request(session, &args.conversation, position, left)).await?;
        tell_limits(&page);
        left = left.saturating_sub(u32::try_from(page.records.len()).unwrap_or(u32::MAX));
        // Pages read backwards come newest first; they are printed oldest first.
        if backwards {
            pages.push(page.records);
        } else {
            print_page(&page.records, output)?;
        }
        if !page.has_more {
            break;
        }
        position = next_position(position, page.next_seq)?;
    }
    pages.iter().rev().try_for_each(|records| print_page(records, output))
}

/// A request for a page of `left` records, or as many as a page can hold.
pub(super) fn request(
    session: &Session,
    conversation: &str,
    position: Position,
    left: u32,
) -> v1::PullRequest {
    v1::PullRequest {
        tenant: session.tenant(),
        conversation: conversation.to_owned(),
        position: Some(position),
        limit: left.min(PAGE_RECORDS_MAX),
        fail_on_expired: false,
        accept_zstd: false,
    }
}

/// One page.
pub(super) async fn page(link: &Link, request: &v1::PullRequest) -> Result<v1::PullResponse, Failure> {
    let answer = link.call(request, async |mut client, request| client.pull(request).await, tell).await?;
    answer.map_err(|status| link.refused(&status))
}

fn tell_limits(page: &v1::PullResponse) {
    if page.archive_unavailable {
        tell("the archive is unavailable: older records may be missing here");
    }
    for gap in &page.gaps {
        tell(&format!("the records of {} are lost", show_gap(gap)));
    }
}

/// The seqs of a gap.
pub(super) fn show_gap(gap: &v1::Gap) -> String {
    if gap.from == gap.to { format!("seq {}", gap.from) } else { format!("seqs {} to {}", gap.from, gap.to) }
}

/// Goes on in the same direction. A page that leads nowhere would be read for ever.
fn next_position(position: Position, next_seq: u64) -> Result<Position, Failure> {
    let stuck = || Failure::Refused(format!("the server's pages do not lead on from seq {next_seq}"));
    match position {
        Position::AfterSeq(seq) if next_seq > seq => Ok(Position::AfterSeq(next_seq)),
        Position::FromTimeMs(_) => Ok(Position::AfterSeq(next_seq)),
        Position::BeforeSeq(seq) if next_seq < seq => Ok(Position::BeforeSeq(next_seq)),
        Position::AfterSeq(_) | Position::BeforeSeq(_) => Err(stuck()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_lead_on_in_one_direction_or_end() {
        assert_eq!(next_position(Position::AfterSeq(5), 9).unwrap(), Position::AfterSeq(9));
        assert_eq!(next_position(Position::BeforeSeq(9), 5).unwrap(), Position::BeforeSeq(5));
        assert_eq!(next_position(Position::FromTimeMs(1), 0).unwrap(), Position::AfterSeq(0));
        assert!(next_position(Position::AfterSeq(5), 5).is_err());
        assert!(next_position(Position::BeforeSeq(5), 5).is_err());
    }
}
