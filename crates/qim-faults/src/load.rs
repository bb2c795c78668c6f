//! What the clients of a run do: a pure function of its seed.

use rand::RngExt;
use rand::rngs::StdRng;
use serde::Serialize;

/// Clients at once, each with requests of its own.
pub(crate) const CLIENTS: usize = 4;
/// The conversations of a run; [`messages`] says what is in each.
pub(crate) const CONVERSATIONS: usize = 8;
const REQUESTS: usize = 40;
const PAUSE_MS: std::ops::Range<u64> = 20..140;
const SECOND_MS: u64 = 1_000;
const DAY_MS: u64 = 86_400_000;
/// `QIM_DEFAULT_HISTORY_RETENTION_DAYS` and `QIM_HOT_WINDOW` of the daemons.
pub(crate) const RETENTION_DAYS: u64 = 30;
/// In days.
pub(crate) const HOT_WINDOW_DAYS: u64 = 7;
/// More than 16 KiB are kept in pieces.
const LARGE_BYTES: usize = 20_000;

/// The requests of each client, in their order.
pub(crate) type Load = Vec<Vec<Request>>;

/// How long a message is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum Class {
    /// 24 hours.
    Ephemeral,
    /// 30 days.
    Default,
    /// For ever.
    Hold,
}

/// A message to send. Its number makes its id and its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) number: u32,
    pub(crate) class: Class,
    pub(crate) bytes: usize,
}

/// One step of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) pause_ms: u64,
    pub(crate) act: Act,
}

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Act {
    /// New messages: by Import where they have an age, else by Append.
    Send { conversation: usize, age_ms: Option<u64>, messages: Vec<Message> },
    /// The messages of an earlier request once more: of the last one, the one before it, …
    Resend { back: usize },
    /// One of them with another body.
    Conflict { back: usize },
    /// The whole conversation, in pages.
    Read { conversation: usize, forwards: bool, limit: u32 },
    /// Its marks.
    Describe { conversation: usize },
}

pub(crate) fn plan(random: &mut StdRng) -> Load {
    let mut next_number = 0;
    let mut clients: Load = vec![Vec::new(); CLIENTS];
    for step in 0..REQUESTS {
        for client in &mut clients {
            let pause_ms = random.random_range(PAUSE_MS);
            client.push(Request { pause_ms, act: act(step, &mut next_number, random) });
        }
    }
    clients
}

fn act(step: usize, next_number: &mut u32, random: &mut StdRng) -> Act {
    let conversation = random.random_range(0..CONVERSATIONS);
    let back = random.random_range(0..6);
    match random.random_range(0..20) {
        0..11 => messages(conversation, step, next_number, random),
        11..13 => Act::Resend { back },
        13 => Act::Conflict { back },
        14..19 => Act::Read {
            conversation,
            forwards: random.random_range(0..3) > 0,
            limit: [3, 20, 100, 500][random.random_range(0..4)],
        },
        _ => Act::Describe { conversation },
    }
}

/// Each conversation lives another life: see the arms.
fn messages(conversation: usize, step: usize, next_number: &mut u32, random: &mut StdRng) -> Act {
    let soon = random.random_range(1_000..6_000);
    let count = if random.random_range(0..8) == 0 { 60 } else { random.random_range(1..12) };
    let (age_ms, class) = match conversation {
        // Expires within the run, long out of the hot window.
        0 => (Some(RETENTION_DAYS * DAY_MS - soon), Class::Default),
        // Expires within the run, in Redis.
        1 => (Some(DAY_MS - soon), Class::Ephemeral),
        // Is trimmed as soon as it is copied.
        2 => (Some(8 * DAY_MS), Class::Default),
        // Leaves the hot window within the run.
        3 => (Some(HOT_WINDOW_DAYS * DAY_MS - soon), Class::Default),
        // Begins in the archive, goes on with what expires soon, and ends as ordinary chat.
        4 if step < REQUESTS / 3 => (Some(8 * DAY_MS), Class::Default),
        4 if step < REQUESTS * 2 / 3 => (Some(DAY_MS - soon), Class::Ephemeral),
        // Held, and soon out of Redis.
        5 => (Some(8 * DAY_MS - SECOND_MS), Class::Hold),
        6 => (None, [Class::Ephemeral, Class::Default, Class::Hold][random.random_range(0..3)]),
        _ => (None, Class::Default),
    };
    let mut message = || {
        *next_number += 1;
        let large = conversation >= 6 && random.random_range(0..40) == 0;
        let bytes = if large { LARGE_BYTES } else { random.random_range(0..300) };
        Message { number: *next_number, class, bytes }
    };
    let messages = (0..count).map(|_| message()).collect();
    Act::Send { conversation, age_ms, messages }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn every_message_has_a_number_of_its_own_and_every_conversation_gets_some() {
        let load = plan(&mut StdRng::seed_from_u64(7));
        let sent = load.iter().flatten().filter_map(|request| match &request.act {
            Act::Send { conversation, messages, .. } => Some((*conversation, messages)),
            _ => None,
        });
        let mut numbers = Vec::new();
        let mut seen = [false; CONVERSATIONS];
        for (conversation, messages) in sent {
            seen[conversation] = true;
            numbers.extend(messages.iter().map(|message| message.number));
        }
        assert_eq!(seen, [true; CONVERSATIONS]);
        let count = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), count);
    }
}
