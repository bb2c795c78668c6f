use std::path::Path;

use qim_core::dictionary::{Corpus, Trained, train};
use qim_core::{ConversationKey, RetentionClass, TenantId};
use qim_store::tiered::AddDictionaryError;
use serde::Serialize;

use super::deployment;
use super::gain::{Gain, HeldOut};
use crate::cli::TrainArgs;
use crate::failure::Failure;
use crate::ndjson::Input;
use crate::output::Output;
use crate::session::Session;

/// What stands for the deployment itself in the place of a file.
const LIVE: &str = "live";

/// What was trained, for programs.
#[derive(Debug, Serialize)]
struct Report {
    /// Absent where it was not stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u32>,
    messages: usize,
    unreadable: u64,
    phrases: usize,
    dictionary_bytes: usize,
    held_out_messages: usize,
    held_out_bytes: usize,
    bytes_without: usize,
    bytes_with: usize,
}

/// Messages to train on, and some to measure on.
#[derive(Default)]
struct Texts {
    corpus: Corpus,
    held_out: HeldOut,
    unreadable: u64,
}

impl Texts {
    fn push(&mut self, conversation: &ConversationKey, sender: &str, payload: &[u8]) {
        if !self.held_out.takes(conversation, payload) {
            self.corpus.push(conversation, sender, payload);
        }
    }
}

pub(super) async fn run(session: &Session, args: &TrainArgs, output: &mut Output) -> Result<(), Failure> {
    let is_live = args.from.as_os_str() == LIVE;
    // Opened first, so that nobody waits for a training that cannot be stored.
    let store = if is_live || !args.dry_run { Some(deployment::open(session).await?) } else { None };
    let mut texts = Texts::default();
    match &store {
        Some(store) if is_live => {
            let take = |conversation: &ConversationKey, sender: &str, payload: &[u8]| {
                texts.push(conversation, sender, payload);
            };
            store.hot().sample(session.clock.now(), take).await.map_err(deployment::hot)?;
        }
        _ => read_file(&mut texts, &args.from, session).await?,
    }
    let Texts { corpus, held_out, unreadable } = texts;
    let messages = corpus.len();
    let Trained { dictionary, phrases } =
        train(corpus).map_err(|error| Failure::Found(format!("no dictionary was made: {error}")))?;
    let gain = held_out.measure(&dictionary).map_err(|error| Failure::Found(error.to_string()))?;
    if !gain.is_useful() {
        let (without, with) = (gain.ratio(gain.without_bytes), gain.ratio(gain.with_bytes));
        return Err(Failure::Found(format!(
            "no dictionary was stored: payloads would take {with:.3} of their length with it, and take {without:.3} \
             without"
        )));
    }
    let id = match store {
        Some(store) if !args.dry_run => {
            let added = store.add_dictionary(dictionary.clone(), session.clock.now()).await;
            Some(added.map_err(|error| match error {
                AddDictionaryError::Dictionary(error) => Failure::Refused(error.to_string()),
                AddDictionaryError::Tier(error) => deployment::tier(&error),
            })?)
        }
        _ => None,
    };
    let report = Report {
        id,
        messages,
        unreadable,
        phrases: phrases.len(),
        dictionary_bytes: dictionary.len(),
        held_out_messages: gain.messages,
        held_out_bytes: gain.payload_bytes,
        bytes_without: gain.without_bytes,
        bytes_with: gain.with_bytes,
    };
    print(&report, gain, output)
}

/// A record that never expires is not learnt from: its text would stay for ever in what is made of it.
async fn read_file(texts: &mut Texts, path: &Path, session: &Session) -> Result<(), Failure> {
    let tenant = TenantId::new(session.global.tenant.as_deref().unwrap_or(TenantId::default().as_str()))
        .map_err(|error| Failure::Usage(format!("--tenant {error}")))?;
    let mut input = Input::open(path, tenant)?;
    while let Some(lines) = input.next_chunk().await? {
        for line in lines {
            match line.entry {
                Ok(entry)
                    if matches!(entry.class, RetentionClass::Default | RetentionClass::Ephemeral24h) =>
                {
                    texts.push(&entry.conversation, &entry.message.sender, &entry.message.payload);
                }
                Ok(_) => {}
                Err(_) => texts.unreadable += 1,
            }
        }
    }
    Ok(())
}

fn print(report: &Report, gain: Gain, output: &mut Output) -> Result<(), Failure> {
    if output.is_json() {
        return output.json(report);
    }
    let dictionary = match report.id {
        Some(id) => format!("{id}"),
        None => "not stored (--dry-run)".to_owned(),
    };
    output.pairs(&[
        ("dictionary", dictionary),
        ("messages looked at", report.messages.to_string()),
        ("phrases admitted", report.phrases.to_string()),
        ("bytes", report.dictionary_bytes.to_string()),
        ("messages held out", report.held_out_messages.to_string()),
        ("stored without it", format!("{:.3} of the payload", gain.ratio(gain.without_bytes))),
        ("stored with it", format!("{:.3} of the payload", gain.ratio(gain.with_bytes))),
    ])?;
    if report.unreadable > 0 {
        output.line(format_args!("{} lines are no messages and were passed over", report.unreadable))?;
    }
    if report.id.is_some() {
        output.line("Writers that compress use it from their next refresh on (QIM_DICTIONARY_REFRESH).")?;
    }
    Ok(())
}
