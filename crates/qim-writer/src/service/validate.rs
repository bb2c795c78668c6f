use std::time::Duration;

use qim_core::{ConversationKey, DEFAULT_CONTENT_TYPE, TenantId, UnixMillis, validate_id};
use qim_proto::v1;
use qim_store::hot::Draft;
use qim_store::tiered::TieredDraft;
use tonic::Status;
use tonic_types::FieldViolation;

use super::{convert, status};

/// Messages in one request.
pub(super) const MESSAGES_MAX: usize = 500;
/// A message from the future would date all that follow it in its conversation: allowed is what clocks differ by.
const CLOCK_SKEW: Duration = Duration::from_mins(1);
/// A retry whose client's clock is right is not refused by a writer whose own is an hour behind.
const RETRY_CLOCK_SKEW: Duration = Duration::from_mins(61);

/// All that is wrong with a request, found in one go.
#[derive(Default)]
pub(super) struct Faults(Vec<FieldViolation>);

impl Faults {
    pub(super) fn add(&mut self, field: impl Into<String>, description: impl Into<String>) {
        // A batch that is wrong throughout is not listed message by message.
        if self.0.len() < 20 {
            self.0.push(FieldViolation::new(field, description));
        }
    }

    pub(super) fn into_result(self) -> Result<(), Status> {
        if self.0.is_empty() { Ok(()) } else { Err(status::invalid(self.0)) }
    }

    pub(super) fn conversation(&mut self, tenant: &str, conversation: &str) -> Option<ConversationKey> {
        let tenant = TenantId::new(tenant).map_err(|error| self.add("tenant", error.to_string())).ok();
        let checked = validate_id(conversation).map_err(|error| self.add("conversation", error.to_string()));
        checked.ok().and_then(|()| ConversationKey::new(tenant?, conversation).ok())
    }
}

/// What a batch is for: which dates its messages must and must not carry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Append,
    Import,
}

/// A valid batch.
pub(super) struct Batch {
    pub(super) conversation: ConversationKey,
    pub(super) drafts: Vec<TieredDraft>,
    /// Where each draft stands in the request.
    pub(super) positions: Vec<usize>,
}

/// What a batch came as.
pub(super) struct RawBatch {
    pub(super) tenant: String,
    pub(super) conversation: String,
    pub(super) messages: Vec<v1::Message>,
}

/// Checks everything about a batch that can be checked without asking a store.
pub(super) fn batch(
    raw: RawBatch,
    kind: Kind,
    payload_bytes_max: usize,
    now: UnixMillis,
) -> Result<Batch, Status> {
    let mut faults = Faults::default();
    let conversation = faults.conversation(&raw.tenant, &raw.conversation);
    let count = raw.messages.len();
    if count == 0 || count > MESSAGES_MAX {
        faults.add("messages", format!("has {count} messages; allowed are 1 to {MESSAGES_MAX}"));
        faults.into_result()?;
        unreachable!("there is a fault");
    }
    let check = MessageCheck { kind, payload_bytes_max, now };
    let mut drafts = Vec::with_capacity(count);
    for (index, message) in raw.messages.into_iter().enumerate() {
        drafts.extend(check.message(&mut faults, index, message));
    }
    faults.into_result()?;
    assert_eq!(drafts.len(), count, "a message without a fault has a draft");
    let positions = (0..count).collect();
    Ok(Batch { conversation: conversation.expect("no fault was found"), drafts, positions })
}

struct MessageCheck {
    kind: Kind,
    payload_bytes_max: usize,
    now: UnixMillis,
}

impl MessageCheck {
    fn message(&self, faults: &mut Faults, index: usize, message: v1::Message) -> Option<TieredDraft> {
        let field = |name: &str| format!("messages[{index}].{name}");
        for (name, id) in [("sender", &message.sender), ("client_msg_id", &message.client_msg_id)] {
            if let Err(error) = validate_id(id) {
                faults.add(field(name), error.to_string());
            }
        }
        if !message.content_type.is_empty()
            && let Err(error) = validate_id(&message.content_type)
        {
            faults.add(field("content_type"), error.to_string());
        }
        if message.payload.len() > self.payload_bytes_max {
            let (len, max) = (message.payload.len(), self.payload_bytes_max);
            faults.add(
                field("payload"),
                format!("has {len} bytes; allowed are at most {max} (QIM_PAYLOAD_BYTES_MAX)"),
            );
        }
        let class = convert::class(message.retention_class);
        if class.is_none() {
            let number = message.retention_class;
            faults.add(
                field("retention_class"),
                format!("{number} is not a retention class; allowed are 0 to 4"),
            );
        }
        let first_sent_at =
            self.date(faults, || field("first_sent_at_ms"), message.first_sent_at_ms, RETRY_CLOCK_SKEW);
        let created_at = self.created_at(faults, || field("created_at_ms"), message.created_at_ms);
        let content_type = if message.content_type.is_empty() {
            DEFAULT_CONTENT_TYPE.to_owned()
        } else {
            message.content_type
        };
        let draft = Draft {
            sender: message.sender,
            client_msg_id: message.client_msg_id,
            class: class?,
            content_type,
            payload: message.payload,
            created_at: created_at?,
        };
        Some(TieredDraft { draft, first_sent_at })
    }

    /// The name of the field is made only where it is told.
    fn created_at(
        &self,
        faults: &mut Faults,
        field: impl Fn() -> String,
        millis: Option<i64>,
    ) -> Option<UnixMillis> {
        match (self.kind, millis) {
            (Kind::Append, None) => Some(self.now),
            (Kind::Append, Some(_)) => {
                faults.add(field(), "is set; only Import takes it, Append dates messages itself");
                None
            }
            (Kind::Import, None) => {
                faults.add(field(), "is missing; Import needs the date at which the message was produced");
                None
            }
            (Kind::Import, Some(_)) => self.date(faults, field, millis, CLOCK_SKEW),
        }
    }

    fn date(
        &self,
        faults: &mut Faults,
        field: impl Fn() -> String,
        millis: Option<i64>,
        skew: Duration,
    ) -> Option<UnixMillis> {
        let millis = millis?;
        let date = UnixMillis::checked(millis).filter(|date| *date <= self.now + skew);
        if date.is_none() {
            let now = self.now;
            faults.add(field(), format!("{millis} is not a date from 0 to now ({now}), in ms since 1970"));
        }
        date
    }
}
