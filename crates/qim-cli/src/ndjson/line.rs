//! What a line says, and what is wrong with it.

use std::borrow::Cow;
use std::time::Duration;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use qim_core::{ConversationKey, InvalidId, RetentionClass, TenantId, UnixMillis, validate_id};
use qim_proto::v1;
use serde::Deserialize;
use serde_json::Value;

use crate::record::class_to_api;
use crate::time_args::parse_date;

/// A message of the file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    /// Where it belongs.
    pub(crate) conversation: ConversationKey,
    /// All of it but its date.
    pub(crate) message: v1::Message,
    /// How it is kept, which `message` says as a number.
    pub(crate) class: RetentionClass,
    /// When it was produced.
    pub(crate) date: Date,
}

/// When a message was produced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Date {
    /// `created_at`
    At(UnixMillis),
    /// `age_ms`: before the start of the import.
    Age(Duration),
}

impl Date {
    /// The date meant by an import that started then. `None`: before 1970.
    pub(crate) fn resolve(self, import_start: UnixMillis) -> Option<UnixMillis> {
        match self {
            Self::At(date) => Some(date),
            Self::Age(age) => {
                let age = u64::try_from(age.as_millis()).ok()?;
                import_start.get().checked_sub(age).map(UnixMillis::new)
            }
        }
    }
}

/// The fields, as they stand.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    #[serde(borrow)]
    tenant: Option<Cow<'a, str>>,
    #[serde(borrow)]
    conversation: Cow<'a, str>,
    sender: String,
    client_msg_id: String,
    #[serde(borrow)]
    class: Option<Cow<'a, str>>,
    content_type: Option<String>,
    body: Option<String>,
    #[serde(borrow)]
    payload_base64: Option<Cow<'a, str>>,
    created_at: Option<Value>,
    age_ms: Option<Value>,
}

impl Entry {
    /// Reads a line. `tenant` is meant where the line names none. The error is the reason, for people.
    pub(crate) fn parse(line: &[u8], tenant: &TenantId) -> Result<Self, String> {
        // A JSON array would be read as the fields in their order.
        if line.trim_ascii_start().first() != Some(&b'{') {
            return Err("is not a JSON object".to_owned());
        }
        let line: Line = serde_json::from_slice(line).map_err(|error| explain(&error))?;
        let tenant = match &line.tenant {
            Some(id) => TenantId::new(id).map_err(in_field("tenant"))?,
            None => tenant.clone(),
        };
        let conversation =
            ConversationKey::new(tenant, &line.conversation).map_err(in_field("conversation"))?;
        validate_id(&line.sender).map_err(in_field("sender"))?;
        validate_id(&line.client_msg_id).map_err(in_field("client_msg_id"))?;
        let class = line.class.as_deref().map_or(Ok(RetentionClass::Default), str::parse);
        let class = class.map_err(|error| format!("class {error}"))?;
        let content_type = line.content_type.unwrap_or_default();
        if !content_type.is_empty() {
            validate_id(&content_type).map_err(in_field("content_type"))?;
        }
        let message = v1::Message {
            sender: line.sender,
            client_msg_id: line.client_msg_id,
            retention_class: class_to_api(class),
            content_type,
            payload: payload(line.body, line.payload_base64.as_deref())?,
            first_sent_at_ms: None,
            created_at_ms: None,
        };
        Ok(Self { conversation, message, class, date: date(line.created_at, line.age_ms)? })
    }
}

fn payload(body: Option<String>, base64: Option<&str>) -> Result<Bytes, String> {
    // Padding may be left out, as many encoders do.
    const BASE64: GeneralPurpose = GeneralPurpose::new(
        &STANDARD,
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
    );
    match (body, base64) {
        (Some(body), None) => Ok(body.into()),
        (None, Some(text)) => {
            BASE64.decode(text).map(Bytes::from).map_err(|error| format!("payload_base64: {error}"))
        }
        (Some(_), Some(_)) => Err("has both body and payload_base64".to_owned()),
        (None, None) => Err("has neither body nor payload_base64".to_owned()),
    }
}

fn date(created_at: Option<Value>, age_ms: Option<Value>) -> Result<Date, String> {
    match (created_at, age_ms) {
        (Some(Value::String(text)), None) => {
            parse_date(&text).map(Date::At).map_err(|reason| format!("created_at {reason}"))
        }
        (Some(Value::Number(number)), None) => number
            .as_i64()
            .and_then(UnixMillis::checked)
            .map(Date::At)
            .ok_or_else(|| format!("created_at {number} is not a date in epoch milliseconds")),
        (Some(other), None) => Err(format!("created_at {other} is neither a text nor a number")),
        (None, Some(age)) => age
            .as_u64()
            .map(|age| Date::Age(Duration::from_millis(age)))
            .ok_or_else(|| format!("age_ms {age} is not a whole number of milliseconds, 0 or more")),
        (Some(_), Some(_)) => Err("has both created_at and age_ms".to_owned()),
        (None, None) => Err("has neither created_at nor age_ms".to_owned()),
    }
}

fn in_field(field: &'static str) -> impl Fn(InvalidId) -> String {
    move |error| format!("{field} {error}")
}

/// The parser's reason with the column alone: the line is named by whoever knows its number.
fn explain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    match text.strip_suffix(&position) {
        Some(reason) if error.is_data() => reason.to_owned(),
        Some(reason) => format!("is not JSON: {reason} at column {}", error.column()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Entry, String> {
        Entry::parse(line.as_bytes(), &TenantId::default())
    }

    /// A good line with its last fields given.
    fn line(rest: &str) -> String {
        format!(r#"{{"conversation":"c","sender":"s","client_msg_id":"i",{rest}}}"#)
    }

    #[test]
    fn a_line_with_all_fields_is_read() {
        let entry = parse(&line(
            r#""tenant":"acme","class":"ephemeral_24h","content_type":"text/x","body":"h\u00e9\ud83d\ude00","created_at":5"#,
        ))
        .unwrap();
        assert_eq!(entry.conversation.to_string(), "acme/c");
        assert_eq!(entry.class, RetentionClass::Ephemeral24h);
        assert_eq!(entry.message.content_type, "text/x");
        assert_eq!(entry.message.payload, "hé😀".as_bytes());
        assert_eq!(entry.date, Date::At(UnixMillis::new(5)));
    }

    #[test]
    fn a_payload_may_be_base64_with_or_without_padding() {
        for text in ["/wA=", "/wA"] {
            let entry = parse(&line(&format!(r#""payload_base64":"{text}","age_ms":0"#))).unwrap();
            assert_eq!(entry.message.payload, &b"\xff\x00"[..]);
        }
        assert!(
            parse(&line(r#""payload_base64":"_wA","age_ms":0"#)).unwrap_err().starts_with("payload_base64")
        );
    }

    #[test]
    fn a_date_is_a_text_a_number_or_an_age() {
        let at = |rest| parse(&line(&format!(r#""body":"",{rest}"#))).map(|entry| entry.date);
        let noon = Date::At(UnixMillis::new(1_800_000_000_000));
        assert_eq!(at(r#""created_at":"2027-01-15T08:00:00Z""#), Ok(noon));
        assert_eq!(at(r#""created_at":"1800000000000""#), Ok(noon));
        assert_eq!(at(r#""created_at":1800000000000"#), Ok(noon));
        assert_eq!(at(r#""age_ms":1500"#), Ok(Date::Age(Duration::from_millis(1500))));
        for bad in [
            r#""created_at":"soon""#,
            r#""created_at":-1"#,
            r#""created_at":1.5"#,
            r#""created_at":99999999999999999999"#,
            r#""created_at":true"#,
            r#""age_ms":-1"#,
            r#""age_ms":"5""#,
            r#""age_ms":1,"created_at":1"#,
            r#""class":null"#,
        ] {
            assert!(at(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_age_counts_from_the_start_of_the_import() {
        let start = UnixMillis::new(10_000);
        assert_eq!(Date::Age(Duration::from_secs(4)).resolve(start), Some(UnixMillis::new(6_000)));
        assert_eq!(Date::Age(Duration::from_secs(11)).resolve(start), None);
    }

    #[test]
    fn every_kind_of_bad_line_is_told_by_its_reason() {
        let long = "x".repeat(129);
        let body = r#""body":"b","age_ms":1"#;
        for (bad, reason) in [
            (String::new(), "is not a JSON object"),
            (r#"["default","c","s","i"]"#.to_owned(), "is not a JSON object"),
            ("{".to_owned(), "is not JSON: EOF while parsing an object at column 1"),
            (format!("{} x", line(body)), "is not JSON: trailing characters"),
            (line(r#""body":"b","age_ms":1,"extra":1"#), "unknown field `extra`"),
            (line(r#""body":"b","body":"c","age_ms":1"#), "duplicate field `body`"),
            (
                r#"{"conversation":"c","sender":"s","body":"b","age_ms":1}"#.to_owned(),
                "missing field `client_msg_id`",
            ),
            (line(r#""body":"b","payload_base64":"","age_ms":1"#), "has both body and payload_base64"),
            (line(r#""age_ms":1"#), "has neither body nor payload_base64"),
            (line(r#""body":"b""#), "has neither created_at nor age_ms"),
            (line(r#""body":7,"age_ms":1"#), "invalid type: integer `7`, expected a string"),
            (line(&format!(r#""class":"Default",{body}"#)), "class \"Default\" is not a retention class"),
            (line(&format!(r#""content_type":"{long}",{body}"#)), "content_type has 129 bytes"),
            (line(&format!(r#""tenant":"a\nb",{body}"#)), "tenant holds the control character U+000A"),
            (line(r#""body":"\ud800","age_ms":1"#), "is not JSON"),
            (line(r#""body":"\udc00","age_ms":1"#), "is not JSON"),
            (line(r#""body":"\ud800\u0041","age_ms":1"#), "is not JSON"),
        ] {
            let error = parse(&bad).unwrap_err();
            assert!(error.starts_with(reason), "{bad}: {error}");
        }
        let not_utf8 = [line(r#""body":"#).as_bytes(), b"\"\xff\",\"age_ms\":1}"].concat();
        assert!(Entry::parse(&not_utf8, &TenantId::default()).is_err());
    }

    #[test]
    fn ids_over_the_limits_are_told_with_their_field() {
        for (field, value) in
            [("conversation", ""), ("sender", "\\u0000"), ("client_msg_id", &"x".repeat(129))]
        {
            let good = line(r#""body":"b","age_ms":1"#);
            let start = good.find(&format!("\"{field}\":\"")).unwrap() + field.len() + 4;
            let bad = format!("{}{value}{}", &good[..start], &good[start + 1..]);
            assert!(parse(&bad).unwrap_err().starts_with(field), "{bad}");
        }
    }

    #[test]
    fn the_tenant_of_the_command_line_is_meant_where_the_line_names_none() {
        let acme = TenantId::new("acme").unwrap();
        let good = line(r#""body":"b","age_ms":1"#);
        assert_eq!(Entry::parse(good.as_bytes(), &acme).unwrap().conversation.to_string(), "acme/c");
        let named = line(r#""tenant":"other","body":"b","age_ms":1"#);
        assert_eq!(Entry::parse(named.as_bytes(), &acme).unwrap().conversation.to_string(), "other/c");
    }
}
