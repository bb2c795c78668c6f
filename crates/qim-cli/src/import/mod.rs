//! `qim import`: a file of messages into their conversations.
//!
//! Lines wait in a window of bounded size until there are enough of one conversation for a good batch, or the window
//! is full. Each conversation has at most one batch under way, which keeps its order; batches of different
//! conversations overtake each other, on one stream. A batch whose answer is lost is sent again as it was: the server
//! knows its messages by their ids.

mod delivery;
mod stream;
mod tally;
mod window;

use std::rc::Rc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use qim_core::{TenantId, UnixMillis};
use serde::Serialize;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::cli::ImportArgs;
use crate::failure::Failure;
use crate::link::Link;
use crate::ndjson::{Input, ParsedLine, Source};
use crate::output::Output;
use crate::progress::Progress;
use crate::session::Session;

use delivery::{Delivered, deliver};
use stream::ImportStream;
use tally::Tally;
use window::{Pending, Take, Window};

/// When no line has come for so long, those that wait are sent in whatever batches they make.
const STALL: Duration = Duration::from_millis(100);

/// Imports the file. Ends with the counts, also where it gives up on the server.
pub(crate) async fn run(session: &Session, args: &ImportArgs, output: &mut Output) -> Result<(), Failure> {
    let began = Instant::now();
    let tenant =
        TenantId::new(&session.tenant()).map_err(|error| Failure::Usage(format!("--tenant {error}")))?;
    let link = session.link(args.give_up)?;
    let input = Input::open(&args.file, tenant)?;
    let progress = Rc::new(Progress::new("imported", input.bytes));
    let mut import = Import {
        start: session.clock.now(),
        link: Rc::new(link),
        stream: Rc::default(),
        concurrency: usize::from(args.concurrency),
        input,
        window: Window::default(),
        tally: Tally::new(Source::new(&args.file)),
        progress,
        read_bytes: 0,
        done_bytes: 0,
    };
    let driven = import.drive().await;
    let Import { tally, progress, .. } = import;
    tally.finish(&progress);
    drop(progress);
    print(&tally, began.elapsed(), output)?;
    driven?;
    match tally.failed() {
        0 => Ok(()),
        failed => Err(Failure::Found(format!("{failed} of {} messages were not imported", tally.total()))),
    }
}

struct Import {
    start: UnixMillis,
    link: Rc<Link>,
    stream: Rc<ImportStream>,
    concurrency: usize,
    input: Input,
    window: Window,
    tally: Tally,
    progress: Rc<Progress>,
    /// How much of the file has been read, and how much of it has an outcome.
    read_bytes: u64,
    done_bytes: u64,
}

impl Import {
    /// To the end of the file, or to an error that ends the import.
    async fn drive(&mut self) -> Result<(), Failure> {
        let mut under_way = FuturesUnordered::new();
        let (mut reading, mut stalled) = (true, false);
        let mut second = interval(Duration::from_secs(1));
        second.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let take = if stalled || !reading || self.window.is_full() { Take::Any } else { Take::Full };
            while under_way.len() < self.concurrency
                && let Some(batch) = self.window.take(take)
            {
                let (link, stream) = (Rc::clone(&self.link), Rc::clone(&self.stream));
                under_way.push(deliver(link, stream, Rc::clone(&self.progress), batch));
            }
            if !reading && under_way.is_empty() {
                assert!(self.window.is_empty(), "with nothing under way, whatever waits is taken");
                return Ok(());
            }
            tokio::select! {
                Some(delivered) = under_way.next(), if !under_way.is_empty() => self.delivered(&delivered?),
                chunk = self.input.next_chunk(), if reading && !self.window.is_full() => match chunk? {
                    Some(lines) => {
                        self.admit(lines);
                        stalled = false;
                    }
                    None => reading = false,
                },
                () = sleep(STALL), if reading && !stalled && !self.window.is_empty() => stalled = true,
                _ = second.tick() => self.progress.show(),
            }
        }
    }

    fn admit(&mut self, lines: Vec<ParsedLine>) {
        for line in lines {
            let file_bytes = line.end - std::mem::replace(&mut self.read_bytes, line.end);
            let pending =
                line.entry.and_then(|entry| Pending::new(line.number, file_bytes, entry, self.start));
            match pending {
                Ok((conversation, pending)) => self.window.push(&conversation, pending),
                Err(reason) => {
                    self.tally.fail(line.number, &reason, &self.progress);
                    self.done(file_bytes);
                }
            }
        }
    }

    fn delivered(&mut self, delivered: &Delivered) {
        self.window.release(&delivered.conversation, delivered.memory_bytes);
        self.tally.add(delivered, &self.progress);
        self.done(delivered.file_bytes);
    }

    fn done(&mut self, file_bytes: u64) {
        self.done_bytes += file_bytes;
        self.progress.advance(self.done_bytes);
        self.progress.count(self.tally.total());
    }
}

/// The result: always the same fields.
#[derive(Serialize)]
struct Counts {
    committed: u64,
    duplicate: u64,
    expired: u64,
    failed: u64,
    seconds: f64,
}

fn print(tally: &Tally, took: Duration, output: &mut Output) -> Result<(), Failure> {
    let seconds = f64::from(u32::try_from(took.as_millis()).unwrap_or(u32::MAX)) / 1000.0;
    let counts = Counts {
        committed: tally.committed(),
        duplicate: tally.duplicate(),
        expired: tally.expired(),
        failed: tally.failed(),
        seconds,
    };
    if output.is_json() {
        return output.json(&counts);
    }
    output.numbers(&[
        ("committed", counts.committed.to_string()),
        ("duplicate", counts.duplicate.to_string()),
        ("expired", counts.expired.to_string()),
        ("failed", counts.failed.to_string()),
        ("seconds", format!("{seconds:.3}")),
    ])
}
