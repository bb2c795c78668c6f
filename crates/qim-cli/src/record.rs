//! Records and classes between the API, JSON and people.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use qim_core::{DEFAULT_CONTENT_TYPE, RetentionClass};
use qim_proto::v1;
use serde::Serialize;
use unicode_width::UnicodeWidthStr;

use crate::failure::Failure;
use crate::output::{Output, pad, printable};
use crate::time_args::show_date;

/// The class as the API numbers it.
pub(crate) fn class_to_api(class: RetentionClass) -> i32 {
    let class = match class {
        RetentionClass::Ephemeral24h => v1::RetentionClass::Ephemeral24h,
        RetentionClass::Default => v1::RetentionClass::Default,
        RetentionClass::ComplianceHold => v1::RetentionClass::ComplianceHold,
        RetentionClass::TenantCustom => v1::RetentionClass::TenantCustom,
    };
    class as i32
}

/// `None` for a number that this version does not know.
pub(crate) fn class_from_api(number: i32) -> Option<RetentionClass> {
    Some(match v1::RetentionClass::try_from(number).ok()? {
        v1::RetentionClass::Unspecified | v1::RetentionClass::Default => RetentionClass::Default,
        v1::RetentionClass::Ephemeral24h => RetentionClass::Ephemeral24h,
        v1::RetentionClass::ComplianceHold => RetentionClass::ComplianceHold,
        v1::RetentionClass::TenantCustom => RetentionClass::TenantCustom,
    })
}

/// Prints a page.
pub(crate) fn print_page(records: &[v1::Record], output: &mut Output) -> Result<(), Failure> {
    if output.is_json() {
        return records.iter().try_for_each(|record| output.json(&JsonRecord::from(record)));
    }
    let seq_width = records.iter().map(|record| record.seq.to_string().len()).max().unwrap_or_default();
    let senders: Vec<String> = records.iter().map(|record| printable(&record.sender)).collect();
    let sender_width = senders.iter().map(|sender| sender.width()).max().unwrap_or_default();
    for (record, sender) in records.iter().zip(&senders) {
        let date = show_date(record.created_at_ms);
        let head = format!("{:>seq_width$}  {date}  {}  ", record.seq, pad(sender, sender_width));
        // The further lines of a body stand below its first.
        let indent = format!("\n{}", " ".repeat(head.width()));
        output.line(format_args!("{head}{}{}", remarks(record), body(record).replace('\n', &indent)))?;
    }
    Ok(())
}

/// What is not as usual about a record.
fn remarks(record: &v1::Record) -> String {
    let class = class_from_api(record.retention_class);
    let mut remarks = String::new();
    if class != Some(RetentionClass::Default) {
        let name = class.map_or_else(|| record.retention_class.to_string(), |class| class.to_string());
        remarks = format!("[{name}] ");
    }
    if record.content_type != DEFAULT_CONTENT_TYPE {
        remarks = format!("{remarks}[{}] ", printable(&record.content_type));
    }
    remarks
}

fn body(record: &v1::Record) -> String {
    match str::from_utf8(&record.payload) {
        Ok(text) => text.split('\n').map(printable).collect::<Vec<_>>().join("\n"),
        Err(_) => format!("({} bytes)", record.payload.len()),
    }
}

#[derive(Serialize)]
struct JsonRecord<'a> {
    seq: u64,
    sender: &'a str,
    client_msg_id: &'a str,
    retention_class: &'static str,
    content_type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    created_at_ms: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at_ms: Option<i64>,
}

impl<'a> From<&'a v1::Record> for JsonRecord<'a> {
    fn from(record: &'a v1::Record) -> Self {
        let body = str::from_utf8(&record.payload).ok();
        Self {
            seq: record.seq,
            sender: &record.sender,
            client_msg_id: &record.client_msg_id,
            retention_class: class_from_api(record.retention_class).map_or("unknown", RetentionClass::name),
            content_type: &record.content_type,
            body,
            payload_base64: body.is_none().then(|| STANDARD.encode(&record.payload)),
            created_at_ms: record.created_at_ms,
            expires_at_ms: record.expires_at_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(payload: &'static [u8]) -> v1::Record {
        v1::Record {
            seq: 7,
            sender: "alice".to_owned(),
            client_msg_id: "id-1".to_owned(),
            retention_class: v1::RetentionClass::Ephemeral24h as i32,
            content_type: DEFAULT_CONTENT_TYPE.to_owned(),
            payload: payload.into(),
            created_at_ms: 5,
            expires_at_ms: None,
            payload_encoding: v1::PayloadEncoding::Unspecified.into(),
        }
    }

    #[test]
    fn a_payload_is_a_body_when_it_is_utf8_and_base64_when_not() {
        let text = serde_json::to_value(JsonRecord::from(&record("é".as_bytes()))).unwrap();
        assert_eq!(text["body"], "é");
        assert_eq!(text["retention_class"], "ephemeral_24h");
        assert!(text.get("payload_base64").is_none() && text.get("expires_at_ms").is_none());
        let binary = serde_json::to_value(JsonRecord::from(&record(b"\xff\x00"))).unwrap();
        assert_eq!(binary["payload_base64"], "/wA=");
        assert!(binary.get("body").is_none());
    }

    #[test]
    fn classes_lead_to_the_api_and_back() {
        for class in RetentionClass::ALL {
            assert_eq!(class_from_api(class_to_api(class)), Some(class));
        }
        assert_eq!(class_from_api(0), Some(RetentionClass::Default));
        assert_eq!(class_from_api(9), None);
    }
}
