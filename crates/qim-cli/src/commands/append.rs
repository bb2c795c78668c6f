use std::io::Read;

use bytes::Bytes;
use qim_proto::v1;
use serde::Serialize;

use super::tell;
use crate::cli::AppendArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::record::class_to_api;
use crate::session::Session;
use crate::time_args::show_date;

/// The answer, with the id: the caller may have left it to us.
#[derive(Serialize)]
struct Appended {
    seq: u64,
    duplicate: bool,
    client_msg_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_at_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at_ms: Option<i64>,
}

/// Commits one message. Tried again with the same id where the server is unavailable or the answer is lost, which
/// commits it once.
pub(crate) async fn run(session: &Session, args: &AppendArgs, output: &mut Output) -> Result<(), Failure> {
    let link = session.link(args.give_up)?;
    let client_msg_id = args.id.clone().unwrap_or_else(|| format!("{:032x}", rand::random::<u128>()));
    let message = v1::Message {
        sender: args.sender.clone(),
        client_msg_id: client_msg_id.clone(),
        retention_class: class_to_api(args.class),
        content_type: args.content_type.clone().unwrap_or_default(),
        payload: payload(&args.body)?,
        // A retry that comes late is then looked for in the archive, too.
        first_sent_at_ms: Some(session.clock.now().as_i64()),
        created_at_ms: None,
    };
    let request = v1::AppendRequest {
        tenant: session.tenant(),
        conversation: args.conversation.clone(),
        messages: vec![message],
    };
    let answer = link.call(&request, async |mut client, request| client.append(request).await, tell).await?;
    let response = answer.map_err(|status| link.refused(&status))?;
    let [committed] = response.results.as_slice() else {
        return Err(Failure::Refused(format!("the server answered {} results", response.results.len())));
    };
    print(committed, client_msg_id, output)
}

fn payload(body: &str) -> Result<Bytes, Failure> {
    if body != "-" {
        return Ok(Bytes::copy_from_slice(body.as_bytes()));
    }
    let mut payload = Vec::new();
    std::io::stdin()
        .read_to_end(&mut payload)
        .map_err(|error| Failure::Usage(format!("cannot read stdin: {error}")))?;
    Ok(payload.into())
}

fn print(committed: &v1::Committed, client_msg_id: String, output: &mut Output) -> Result<(), Failure> {
    if output.is_json() {
        return output.json(&Appended {
            seq: committed.seq,
            duplicate: committed.duplicate,
            client_msg_id,
            created_at_ms: committed.created_at_ms,
            expires_at_ms: committed.expires_at_ms,
        });
    }
    let state = if committed.duplicate { "  (committed before)" } else { "" };
    let expires = match (committed.expires_at_ms, committed.created_at_ms) {
        (Some(at), _) => show_date(at),
        (None, Some(_)) => "never by itself".to_owned(),
        (None, None) => "has expired".to_owned(),
    };
    output.pairs(&[
        ("seq", format!("{}{state}", committed.seq)),
        ("id", client_msg_id),
        ("created", committed.created_at_ms.map_or_else(|| "has expired".to_owned(), show_date)),
        ("expires", expires),
    ])
}
