use qim_core::Dictionary;
use serde::Serialize;

use super::deployment;
use crate::failure::Failure;
use crate::output::Output;
use crate::session::Session;
use crate::time_args::show_date;

/// A dictionary, for programs.
#[derive(Debug, Serialize)]
struct Listed {
    id: u32,
    created_at_ms: i64,
    bytes: usize,
    needed_until_ms: i64,
    current: bool,
}

pub(super) async fn run(session: &Session, output: &mut Output) -> Result<(), Failure> {
    let store = deployment::open(session).await?;
    let all = store.hot().dictionaries().await.map_err(deployment::hot)?;
    let current = all.last().map(|dictionary| dictionary.id);
    if all.is_empty() && !output.is_json() {
        return output.line("No dictionary was trained: payloads are compressed each by itself.");
    }
    for listed in &all {
        let stored = store.hot().dictionary(listed.id).await.map_err(deployment::hot)?;
        let Some(stored) = stored else { continue };
        let dictionary = Dictionary::decode(listed.id, &stored)
            .map_err(|error| Failure::Found(format!("dictionary {}: {error}", listed.id)))?;
        let is_current = Some(listed.id) == current;
        if output.is_json() {
            output.json(&Listed {
                id: listed.id,
                created_at_ms: dictionary.created_at().as_i64(),
                bytes: dictionary.bytes().len(),
                needed_until_ms: listed.needed_until.as_i64(),
                current: is_current,
            })?;
        } else {
            output.line(format_args!(
                "{}  trained {}  {} bytes  needed until {}{}",
                listed.id,
                show_date(dictionary.created_at().as_i64()),
                dictionary.bytes().len(),
                show_date(listed.needed_until.as_i64()),
                if is_current { "  in use" } else { "" },
            ))?;
        }
    }
    Ok(())
}
