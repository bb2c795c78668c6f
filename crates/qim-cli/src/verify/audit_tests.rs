use std::time::Duration;

use qim_core::RetentionDays;

use super::super::retention::TenantRetention;
use super::*;
use crate::record::class_to_api;

const NOW: UnixMillis = UnixMillis::new(1_800_000_000_000);
const DAY: Duration = Duration::from_secs(86_400);

/// A record of the file and, as it should come back, of the store.
#[derive(Clone, Copy)]
struct Message {
    id: &'static str,
    body: &'static str,
    class: RetentionClass,
    date: UnixMillis,
    is_exact: bool,
}

fn message(id: &'static str, age: Duration) -> Message {
    Message { id, body: "body", class: RetentionClass::Default, date: NOW - age, is_exact: true }
}

impl Message {
    fn said(&self) -> Said<'_> {
        Said {
            sender: "s",
            client_msg_id: self.id,
            class: self.class,
            content_type: "",
            payload: self.body.as_bytes(),
        }
    }

    fn stored(self, seq: u64) -> v1::Record {
        v1::Record {
            seq,
            sender: "s".to_owned(),
            client_msg_id: self.id.to_owned(),
            retention_class: class_to_api(self.class),
            content_type: qim_core::DEFAULT_CONTENT_TYPE.to_owned(),
            payload: self.body.as_bytes().into(),
            created_at_ms: self.date.as_i64(),
            expires_at_ms: None,
            payload_encoding: v1::PayloadEncoding::Unspecified.into(),
        }
    }
}

/// Lines count from 1.
fn file(messages: &[Message]) -> Vec<Expected> {
    let of_line = |(line, message): (u32, &Message)| Expected {
        id: message.said().id(),
        date: message.date,
        digest: message.said().digest(),
        line,
        class: message.class,
        is_exact: message.is_exact,
    };
    (1..).zip(messages).map(of_line).collect()
}

fn audit_with(tenant: Option<TenantRetention>, messages: &[Message], stored: &[v1::Record]) -> Findings {
    let expected = file(messages);
    let rules = Rules::new(RetentionDays::new(30).unwrap(), tenant);
    let mut audit = Audit::new(&expected, &rules, NOW);
    for record in stored {
        audit.see(record);
    }
    audit.finish()
}

fn audit(messages: &[Message], stored: &[v1::Record]) -> Findings {
    audit_with(None, messages, stored)
}

/// (compared, missing, different, expired)
fn counts(findings: &Findings) -> (u64, u64, u64, u64) {
    (findings.compared, findings.missing, findings.different, findings.expired)
}

fn told(findings: &Findings) -> Vec<String> {
    findings.first().map(|(line, text)| format!("{line}: {text}")).collect()
}

#[test]
fn what_comes_back_as_it_was_is_compared_and_good() {
    let messages = [message("a", 3 * DAY), message("b", 2 * DAY), message("c", DAY)];
    let other = message("not of the file", DAY).stored(4);
    let stored = [messages[0].stored(1), messages[1].stored(2), messages[2].stored(3), other];
    let findings = audit(&messages, &stored);
    assert_eq!(counts(&findings), (3, 0, 0, 0));
    assert!(told(&findings).is_empty());
}

#[test]
fn an_absent_record_is_missing_or_has_expired_by_its_own_date() {
    let ephemeral = Message { class: RetentionClass::Ephemeral24h, ..message("e", 2 * DAY) };
    let hold = Message { class: RetentionClass::ComplianceHold, ..message("h", 99 * DAY) };
    let messages =
        [message("old", 31 * DAY), message("edge", 30 * DAY), message("young", DAY), ephemeral, hold];
    let findings = audit(&messages, &[]);
    assert_eq!(counts(&findings), (0, 2, 0, 3));
    assert_eq!(told(&findings), ["3: is missing", "5: is missing"]);
}

#[test]
fn a_record_of_a_tenants_own_class_is_only_missed_where_its_retention_is_known() {
    let messages = [Message { class: RetentionClass::TenantCustom, ..message("t", 99 * DAY) }];
    assert_eq!(counts(&audit(&messages, &[])), (0, 0, 0, 1));
    assert_eq!(counts(&audit(&messages, &[messages[0].stored(1)])), (1, 0, 0, 0));
    let days = |days| Some(TenantRetention::Days(RetentionDays::new(days).unwrap()));
    assert_eq!(counts(&audit_with(Some(TenantRetention::Never), &messages, &[])), (0, 1, 0, 0));
    assert_eq!(counts(&audit_with(days(90), &messages, &[messages[0].stored(1)])), (1, 0, 1, 0));
}

#[test]
fn an_expired_record_must_not_be_there() {
    let messages = [message("old", 31 * DAY)];
    let findings = audit(&messages, &[messages[0].stored(1)]);
    assert_eq!(counts(&findings), (1, 0, 1, 0));
    assert!(told(&findings)[0].contains("should have expired"));
    let edge = [message("edge", 30 * DAY + SLACK)];
    assert_eq!(counts(&audit(&edge, &[edge[0].stored(1)])), (1, 0, 0, 0));
}

#[test]
fn every_changed_field_is_a_difference() {
    let good = message("a", DAY);
    let changes: [fn(&mut v1::Record); 4] = [
        |record| record.payload = "bodY".into(),
        |record| record.content_type = "text/x".to_owned(),
        |record| record.retention_class = class_to_api(RetentionClass::ComplianceHold),
        |record| record.retention_class = 99,
    ];
    for change in changes {
        let mut stored = good.stored(1);
        change(&mut stored);
        assert_eq!(counts(&audit(&[good], &[stored])), (1, 0, 1, 0));
    }
    let mut sender = good.stored(1);
    sender.sender = "t".to_owned();
    assert_eq!(counts(&audit(&[good], &[sender])), (0, 1, 0, 0));
}

#[test]
fn a_date_may_only_have_moved_to_that_of_the_record_before() {
    let messages = [message("a", 2 * DAY), message("b", 3 * DAY)];
    let mut moved = messages[1].stored(2);
    moved.created_at_ms = messages[0].date.as_i64();
    assert_eq!(counts(&audit(&messages, &[messages[0].stored(1), moved.clone()])), (2, 0, 0, 0));
    for wrong in [1, -1] {
        let mut record = moved.clone();
        record.created_at_ms += wrong;
        let findings = audit(&messages, &[messages[0].stored(1), record]);
        assert_eq!(counts(&findings), (2, 0, 1, 0));
        assert!(told(&findings)[0].starts_with("2: seq 2 is dated "), "{:?}", told(&findings));
    }
    let mut earlier = messages[0].stored(1);
    earlier.created_at_ms -= 1;
    assert_eq!(counts(&audit(&messages[..1], &[earlier])), (1, 0, 1, 0));
}

#[test]
fn a_date_may_have_moved_to_that_of_a_record_that_has_expired_since() {
    let gone = Message { class: RetentionClass::Ephemeral24h, ..message("gone", 2 * DAY) };
    let messages = [gone, message("b", 3 * DAY)];
    let mut moved = messages[1].stored(2);
    moved.created_at_ms = gone.date.as_i64();
    assert_eq!(counts(&audit(&messages, &[moved.clone()])), (1, 0, 0, 1));
    moved.created_at_ms += 1;
    assert_eq!(counts(&audit(&messages, &[moved])), (1, 0, 1, 1));
}

#[test]
fn a_record_that_was_moved_later_also_expires_later() {
    let messages = [message("a", 29 * DAY), message("b", 31 * DAY)];
    let mut moved = messages[1].stored(2);
    moved.created_at_ms = messages[0].date.as_i64();
    assert_eq!(counts(&audit(&messages, &[messages[0].stored(1), moved])), (2, 0, 0, 0));
}

#[test]
fn an_age_gives_the_latest_date_that_a_record_can_have() {
    let messages = [Message { is_exact: false, ..message("a", 2 * DAY) }];
    let mut stored = messages[0].stored(2);
    stored.created_at_ms -= 3_600_000;
    assert_eq!(counts(&audit(&messages, &[stored.clone()])), (1, 0, 0, 0));
    // Dated by the import instead of the age, behind a record that is not.
    stored.created_at_ms = NOW.as_i64() - 3_600_000;
    let before = message("not of the file", 2 * DAY).stored(1);
    assert_eq!(counts(&audit(&messages, &[before, stored])), (1, 0, 1, 0));
}

#[test]
fn records_must_stand_in_the_order_of_the_file() {
    let messages = [message("a", DAY), message("b", DAY), message("c", DAY)];
    let stored = [messages[1].stored(1), messages[2].stored(2), messages[0].stored(3)];
    let findings = audit(&messages, &stored);
    assert_eq!(counts(&findings), (3, 0, 1, 0));
    assert_eq!(told(&findings), ["1: seq 3 stands behind the record of line 3"]);
}

#[test]
fn a_record_must_not_be_stored_twice() {
    let messages = [message("a", DAY)];
    let findings = audit(&messages, &[messages[0].stored(1), messages[0].stored(2), messages[0].stored(3)]);
    assert_eq!(counts(&findings), (1, 0, 1, 0));
    assert_eq!(told(&findings), ["1: is stored twice, as seq 1 and seq 2"]);
}

#[test]
fn a_line_that_repeats_a_message_is_compared_with_the_first_ones_record() {
    let first = message("a", 2 * DAY);
    let again = Message { date: NOW - DAY, ..first };
    let other_body = Message { body: "other", ..first };
    assert_eq!(counts(&audit(&[first, again], &[first.stored(1)])), (2, 0, 0, 0));
    assert_eq!(counts(&audit(&[first, other_body], &[first.stored(1)])), (2, 0, 1, 0));
    assert_eq!(counts(&audit(&[first, again], &[])), (0, 2, 0, 0));
    // The first had expired when it came: the second was stored.
    let expired = Message { date: NOW - 40 * DAY, ..first };
    assert_eq!(counts(&audit(&[expired, again], &[again.stored(1)])), (1, 0, 0, 1));
}
