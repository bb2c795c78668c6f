//! What the clients know: of each message what was sent and answered, and of each page what it showed. Times are
//! milliseconds since 1970 by the clock of this machine.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::load::{self, Class};

const DAY_MS: i64 = 86_400_000;

/// Everything that was sent and seen in a run.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Ledger {
    /// By number.
    pub(crate) messages: BTreeMap<u32, Sent>,
    pub(crate) reads: Vec<Read>,
    /// Answers that a healthy qim never gives, whatever happens around it.
    pub(crate) oddities: Vec<Oddity>,
}

/// One message.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Sent {
    pub(crate) conversation: usize,
    pub(crate) class: Class,
    pub(crate) bytes: usize,
    /// The date it was imported with; `None`: appended.
    pub(crate) imported_as: Option<i64>,
    pub(crate) attempts: Vec<Attempt>,
}

/// One time that it was sent.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Attempt {
    pub(crate) sent_ms: i64,
    pub(crate) done_ms: i64,
    pub(crate) body: Body,
    pub(crate) outcome: Outcome,
}

/// Which of its two bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum Body {
    /// That of its first sending.
    Own,
    /// Another one, which has to be refused.
    Other,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) enum Outcome {
    Acknowledged {
        seq: u64,
        dates: Option<Dates>,
    },
    /// An import that came too late.
    Expired,
    /// The id belongs to another body.
    AlreadyExists,
    /// Surely not committed.
    Refused(String),
    /// Committed or not.
    Unknown(String),
}

/// The dates of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Dates {
    pub(crate) created_ms: i64,
    /// `None`: never.
    pub(crate) expires_ms: Option<i64>,
}

/// One page.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Read {
    pub(crate) conversation: usize,
    pub(crate) sent_ms: i64,
    pub(crate) done_ms: i64,
    /// It says what is readable from here …
    pub(crate) from: u64,
    /// … to below this.
    pub(crate) below: u64,
    pub(crate) earliest: u64,
    pub(crate) last: u64,
    /// Then `earliest` speaks of the hot tier only.
    pub(crate) archive_unavailable: bool,
    pub(crate) records: Vec<Seen>,
    /// What qim says was lost: from, to, both included.
    pub(crate) gaps: Vec<(u64, u64)>,
    /// After everything had recovered.
    pub(crate) is_final: bool,
}

/// A record on a page.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Seen {
    pub(crate) seq: u64,
    /// `None`: it has an id that nobody sent.
    pub(crate) number: Option<u32>,
    /// `None`: it has a body that nobody sent.
    pub(crate) body: Option<Body>,
    pub(crate) dates: Dates,
}

/// An answer that must not be.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Oddity {
    pub(crate) at_ms: i64,
    pub(crate) conversation: usize,
    pub(crate) said: String,
}

impl Class {
    /// How long a record of this class lives; `None`: for ever.
    pub(crate) fn retention_ms(self) -> Option<i64> {
        match self {
            Self::Ephemeral => Some(DAY_MS),
            Self::Default => Some(DAY_MS * i64::try_from(load::RETENTION_DAYS).expect("a few days")),
            Self::Hold => None,
        }
    }
}

impl Sent {
    /// Where it was acknowledged with its own body, and when that was known.
    pub(crate) fn acknowledged(&self) -> impl Iterator<Item = (u64, i64)> {
        self.attempts.iter().filter_map(|attempt| match (&attempt.outcome, attempt.body) {
            (Outcome::Acknowledged { seq, .. }, Body::Own) => Some((*seq, attempt.done_ms)),
            _ => None,
        })
    }

    /// Whether something may have been committed, and nobody said so.
    pub(crate) fn is_unknown(&self) -> bool {
        let unknown = |attempt: &Attempt| matches!(attempt.outcome, Outcome::Unknown(_));
        self.acknowledged().next().is_none()
            && self.attempts.iter().any(unknown)
            && self.attempts.iter().all(|attempt| attempt.outcome != Outcome::Expired)
    }

    /// The dates that it was given, where an answer told them.
    pub(crate) fn told_dates(&self) -> Option<Dates> {
        self.attempts.iter().find_map(|attempt| match &attempt.outcome {
            Outcome::Acknowledged { dates, .. } => *dates,
            _ => None,
        })
    }

    /// It lives at least until then. A record is dated no earlier than it says, and an appended one when it was sent, by
    /// a clock that is `skew_ms` wrong at most.
    pub(crate) fn lives_until(&self, skew_ms: i64) -> i64 {
        if let Some(dates) = self.told_dates() {
            return dates.expires_ms.unwrap_or(i64::MAX);
        }
        let sent = || self.attempts.iter().map(|attempt| attempt.sent_ms).min().unwrap_or(0) - skew_ms;
        let created = self.imported_as.unwrap_or_else(sent);
        self.class.retention_ms().map_or(i64::MAX, |retention| created + retention)
    }
}

/// The id of a message, and back.
pub(crate) fn client_msg_id(number: u32) -> String {
    format!("m{number}")
}

pub(crate) fn number_of(client_msg_id: &str) -> Option<u32> {
    client_msg_id.strip_prefix('m')?.parse().ok()
}

/// The bytes of a body: they follow from the number, and differ between the two. Half of the messages compress well.
pub(crate) fn payload(number: u32, bytes: usize, body: Body) -> Vec<u8> {
    let head = format!("{body:?} body of {number}: ").into_bytes();
    let mut state = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let noise = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_be_bytes()[3]
    });
    let words = b"and so on, as people say, ".iter().copied().cycle();
    if number.is_multiple_of(2) && bytes < 1_000 {
        head.into_iter().chain(words.take(bytes)).collect()
    } else {
        head.into_iter().chain(noise.take(bytes)).collect()
    }
}
