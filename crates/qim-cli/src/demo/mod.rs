//! `qim demo`: chat that looks like chat, for trying and measuring.
//!
//! Everything follows from the seed, so that two measurements are of the same messages.

mod plan;
mod random;
mod text;
mod words;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use qim_core::RetentionClass;
use serde::Serialize;

use crate::cli::DemoArgs;
use crate::failure::Failure;
use crate::output::Output;

use plan::{Plan, Slot};
use random::Random;
use text::{Writer, body_bytes};

/// Decides the number of conversations where it is not given: what six weeks of chat have in the mean.
const MESSAGES_PER_CONVERSATION: u32 = 20;
/// Of a hundred conversations so many belong to these tenants; the others to the default one.
const TENANTS: [(&str, u64); 3] = [("harbor", 8), ("meadow", 5), ("lantern", 2)];
/// Of a thousand messages so many are of these classes; the others of class default.
const CLASSES: [(RetentionClass, u64); 3] = [
    (RetentionClass::Ephemeral24h, 60),
    (RetentionClass::ComplianceHold, 15),
    (RetentionClass::TenantCustom, 15),
];
/// Of a thousand messages so many are not text.
const BINARY_PER_THOUSAND: u64 = 5;

/// One line.
#[derive(Debug, Serialize)]
struct DemoMessage<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<&'static str>,
    conversation: &'a str,
    sender: String,
    client_msg_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    age_ms: u32,
}

/// Prints the messages, oldest first.
pub(crate) fn run(args: &DemoArgs, output: &mut Output) -> Result<(), Failure> {
    let conversations = args.conversations.unwrap_or(args.messages / MESSAGES_PER_CONVERSATION).max(1);
    let mut chat = Chat::new(args.seed, args.messages, conversations);
    while let Some(slot) = chat.slots.next() {
        output.json(&chat.message(slot))?;
    }
    Ok(())
}

struct Chat {
    slots: std::vec::IntoIter<Slot>,
    random: Random,
    conversations: Vec<Conversation>,
    writers: Vec<Writer>,
}

struct Conversation {
    name: String,
    tenant: Option<&'static str>,
    members: Vec<String>,
    language: usize,
}

impl Chat {
    fn new(seed: u64, messages: u32, conversations: u32) -> Self {
        let mut random = Random::new(seed);
        let slots = Plan { messages, conversations }.slots(&mut random);
        let conversations = (0..conversations).map(|_| Conversation::new(&mut random)).collect();
        Self { slots: slots.into_iter(), random, conversations, writers: Writer::all() }
    }

    fn message(&mut self, slot: Slot) -> DemoMessage<'_> {
        let random = &mut self.random;
        let conversation = &self.conversations[slot.conversation as usize];
        let writer = &self.writers[conversation.language];
        let is_binary = random.below(1000) < BINARY_PER_THOUSAND;
        let bytes = body_bytes(random);
        let payload: Option<Vec<u8>> =
            is_binary.then(|| (0..bytes).map(|_| random.next().to_be_bytes()[0]).collect());
        DemoMessage {
            tenant: conversation.tenant,
            conversation: &conversation.name,
            sender: random.pick(&conversation.members).clone(),
            client_msg_id: format!("{:016x}{:016x}", random.next(), random.next()),
            class: random.share(1000, &CLASSES).map(RetentionClass::name),
            content_type: is_binary.then_some("application/octet-stream"),
            body: (!is_binary).then(|| writer.write(bytes, random)),
            payload_base64: payload.map(|payload| STANDARD.encode(payload)),
            age_ms: slot.age_ms,
        }
    }
}

impl Conversation {
    fn new(random: &mut Random) -> Self {
        // Mostly two people, sometimes a group.
        let members = if random.below(10) < 7 { 2 } else { 3 + random.below(6) };
        Self {
            name: format!("conv-{:016x}", random.next()),
            tenant: random.share(100, &TENANTS),
            members: (0..members).map(|_| format!("u-{:08x}", random.next() >> 32)).collect(),
            language: Writer::draw(random),
        }
    }
}

#[cfg(test)]
#[path = "demo_tests.rs"]
mod tests;
