//! What can happen to a deployment, one thing after the other.

use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::{Index, select};
use qim_core::{Compression, RetentionClass};

use crate::support::Fault;
use crate::support::{DAY, HOUR, MS, SECOND};

pub(crate) const CONVERSATIONS: usize = 3;
/// How far a clock may be put back. Writers ask the archive about retries so much before the window ends.
pub(crate) const BACK_MAX: Duration = Duration::from_mins(59);

/// What becomes of Redis.
#[derive(Debug, Clone)]
pub(crate) enum Loss {
    /// It is emptied.
    All,
    /// It is killed, and starts from its file as it was after this one of the steps so far.
    Since(Index),
}

#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// New messages of one class, as many hours old: an append, or an import.
    Send {
        conversation: usize,
        class: RetentionClass,
        count: usize,
        hours_old: u32,
    },
    /// A message that was sent before, together with a new one.
    Resend {
        conversation: usize,
        which: Index,
    },
    /// A message that was sent before, with another body, behind a new one.
    Conflict {
        conversation: usize,
        which: Index,
    },
    /// A new message of which the answer is lost, and which is sent again.
    SendUnanswered {
        conversation: usize,
        class: RetentionClass,
    },
    Advance(Duration),
    /// The clock goes back.
    Rewind(Duration),
    Collect,
    Copy {
        conversation: usize,
    },
    Trim {
        conversation: usize,
    },
    /// The archiver ends at one of its calls to the archive, or just behind it.
    CrashedCopy {
        conversation: usize,
        at: Fault,
    },
    CrashedTrim {
        conversation: usize,
        at: Fault,
    },
    /// An archiver wakes up that slept through its lease, and goes on beside the one that has it now.
    StaleArchiver {
        conversation: usize,
    },
    /// From here on.
    Archive(Fault),
    Maintain,
    /// From here on commits pack with another dictionary.
    Train,
    /// From here on commits are those of a further writer, which stores payloads like this. Those before it live on.
    AnotherWriter(Compression),
    /// Redis loses data while its writers live, which put it back. A message is sent until it is taken.
    Lose {
        conversation: usize,
        loss: Loss,
    },
    Seek {
        conversation: usize,
        hours_ago: u32,
    },
    Describe {
        conversation: usize,
    },
}

/// A loss in one of so many steps: commits wait for 3 s after each.
const LOSS_EACH: u32 = 250;

pub(crate) fn any_step() -> impl Strategy<Value = Step> {
    let kind = prop_oneof![Just(Loss::All), any::<Index>().prop_map(Loss::Since)];
    let loses = (0..CONVERSATIONS, kind).prop_map(|(conversation, loss)| Step::Lose { conversation, loss });
    prop_oneof![LOSS_EACH - 1 => usual_step(), 1 => loses]
}

fn usual_step() -> impl Strategy<Value = Step> {
    let conversation = || 0..CONVERSATIONS;
    let class = || select(RetentionClass::ALL.to_vec());
    let index = any::<Index>;
    let hours_old = select(vec![0, 0, 0, 1, 23, 200, 700, 719]);
    let forwards = select(vec![MS, SECOND, HOUR, HOUR * 23, DAY, DAY * 6, DAY * 8, DAY * 31]);
    let crash = || (0..4_usize, any::<bool>()).prop_map(|(after, is_done)| Fault::Once { after, is_done });
    let archive = select(vec![Fault::Down, Fault::Slow, Fault::None, Fault::None]);
    prop_oneof![
        8 => (conversation(), class(), 1..40_usize, hours_old)
            .prop_map(|(conversation, class, count, hours_old)| Step::Send { conversation, class, count, hours_old }),
        4 => (conversation(), index()).prop_map(|(conversation, which)| Step::Resend { conversation, which }),
        2 => (conversation(), index()).prop_map(|(conversation, which)| Step::Conflict { conversation, which }),
        2 => (conversation(), class()).prop_map(|(conversation, class)| Step::SendUnanswered { conversation, class }),
        6 => forwards.prop_map(Step::Advance),
        1 => select(vec![MS, SECOND, BACK_MAX]).prop_map(Step::Rewind),
        4 => Just(Step::Collect),
        6 => conversation().prop_map(|conversation| Step::Copy { conversation }),
        6 => conversation().prop_map(|conversation| Step::Trim { conversation }),
        3 => (conversation(), crash()).prop_map(|(conversation, at)| Step::CrashedCopy { conversation, at }),
        3 => (conversation(), crash()).prop_map(|(conversation, at)| Step::CrashedTrim { conversation, at }),
        2 => conversation().prop_map(|conversation| Step::StaleArchiver { conversation }),
        3 => archive.prop_map(Step::Archive),
        2 => Just(Step::Maintain),
        1 => Just(Step::Train),
        1 => select(vec![Compression::Off, Compression::Zstd]).prop_map(Step::AnotherWriter),
        2 => (conversation(), select(vec![0, 1, 24, 170, 700]))
            .prop_map(|(conversation, hours_ago)| Step::Seek { conversation, hours_ago }),
        2 => conversation().prop_map(|conversation| Step::Describe { conversation }),
    ]
}
