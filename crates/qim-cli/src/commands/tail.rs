use std::time::Duration;

use qim_proto::v1::pull_request::Position;

use super::pull::{page, request};
use crate::cli::TailArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::record::print_page;
use crate::session::Session;

/// How often the server is asked for what is new.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How much is asked for at once.
const PAGE_RECORDS: u32 = 500;

/// Prints the newest records and then each new one, until Ctrl-C, which is how it ends well. Once it has begun it
/// bears any outage: the records are there when the server is back.
pub(crate) async fn run(session: &Session, args: &TailArgs, output: &mut Output) -> Result<(), Failure> {
    tokio::select! {
        done = follow(session, args, output) => done,
        signal = tokio::signal::ctrl_c() => signal.map_err(Failure::Output),
    }
}

async fn follow(session: &Session, args: &TailArgs, output: &mut Output) -> Result<(), Failure> {
    let link = session.link(Duration::ZERO)?;
    let newest = request(session, &args.conversation, Position::BeforeSeq(u64::MAX), args.limit);
    let newest = page(&link, &newest).await?;
    print_page(&newest.records, output)?;
    output.flush()?;
    let mut seen = newest.records.last().map_or(newest.last_conversation_seq, |record| record.seq);
    let link = link.with_patience(Duration::MAX);
    loop {
        let request = request(session, &args.conversation, Position::AfterSeq(seen), PAGE_RECORDS);
        let page = page(&link, &request).await?;
        print_page(&page.records, output)?;
        output.flush()?;
        // Never back: an empty page of a server that was just emptied must not print everything again.
        seen = seen.max(page.records.last().map_or(page.next_seq, |record| record.seq));
        if !page.has_more {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}
