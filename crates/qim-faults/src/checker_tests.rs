//! A ledger in which all is well, and what the checker makes of it once something is not.

use super::*;
use crate::ledger::{Attempt, Dates, Oddity};
use crate::load::Class;

const DAY_MS: i64 = 86_400_000;
const NOW: i64 = 1_800_000_000_000;
const DATES: Dates = Dates { created_ms: NOW, expires_ms: Some(NOW + 30 * DAY_MS) };

fn attempt(at: i64, outcome: Outcome) -> Attempt {
    Attempt { sent_ms: at, done_ms: at + 5, body: Body::Own, outcome }
}

fn acknowledged(seq: u64, dates: Option<Dates>) -> Outcome {
    Outcome::Acknowledged { seq, dates }
}

fn sent(attempts: Vec<Attempt>) -> Sent {
    Sent { conversation: 0, class: Class::Default, bytes: 1, imported_as: None, attempts }
}

fn seen(seq: u64) -> Seen {
    Seen { seq, number: u32::try_from(seq).ok(), body: Some(Body::Own), dates: DATES }
}

fn read(at: i64, records: Vec<Seen>) -> Read {
    let last = 3;
    let earliest = records.first().map_or(last + 1, |seen| seen.seq);
    Read {
        conversation: 0,
        sent_ms: at,
        done_ms: at + 5,
        from: 1,
        below: last + 1,
        earliest,
        last,
        archive_unavailable: false,
        records,
        gaps: Vec::new(),
        is_final: true,
    }
}

/// Messages 1 to 3 at seqs 1 to 3, and one final page of them.
fn well() -> Ledger {
    let messages = (1..=3)
        .map(|number| (number, sent(vec![attempt(NOW, acknowledged(number.into(), Some(DATES)))])))
        .collect();
    Ledger { messages, reads: vec![read(NOW + 100, vec![seen(1), seen(2), seen(3)])], oddities: Vec::new() }
}

fn breaches(ledger: &Ledger) -> Vec<(Breach, u64)> {
    breaches_but(ledger, &Excuses::default())
}

fn breaches_but(ledger: &Ledger, excuses: &Excuses) -> Vec<(Breach, u64)> {
    check(ledger, excuses).into_iter().map(|violation| (violation.breach, violation.seq)).collect()
}

#[test]
fn a_run_in_which_all_is_well_has_no_breach() {
    assert_eq!(breaches(&well()), []);
}

#[test]
fn an_acknowledged_message_that_the_last_page_has_not_is_lost_unless_a_gap_may_name_it() {
    let mut ledger = well();
    ledger.reads[0].records.remove(1);
    let breaches_but_gaps =
        |ledger: &Ledger| breaches_but(ledger, &Excuses { gaps: true, ..Excuses::default() });
    assert_eq!(breaches_but_gaps(&ledger), [(Breach::Lost, 2)]);
    ledger.reads[0].gaps.push((2, 2));
    assert_eq!(breaches_but_gaps(&ledger), []);
    assert_eq!(breaches(&ledger), [(Breach::Lost, 2)], "nothing excuses it");
    // It was there before it was lost.
    ledger.reads.push(Read { is_final: false, ..read(NOW + 50, vec![seen(1), seen(2), seen(3)]) });
    assert_eq!(breaches_but_gaps(&ledger), []);
    ledger.reads[1].sent_ms = NOW + 200;
    assert_eq!(breaches_but_gaps(&ledger), [(Breach::FalseGap, 2)]);
}

#[test]
fn a_page_above_a_gap_need_not_name_it() {
    let mut ledger = well();
    ledger.reads = vec![
        Read { gaps: vec![(1, 2)], ..read(NOW + 100, vec![seen(3)]) },
        Read { from: 3, ..read(NOW + 150, vec![seen(3)]) },
    ];
    assert_eq!(breaches_but(&ledger, &Excuses { gaps: true, ..Excuses::default() }), []);
}

#[test]
fn a_page_before_the_end_without_it_is_a_false_gap_unless_it_was_not_acknowledged_then() {
    let mut ledger = well();
    ledger.reads.push(Read { is_final: false, ..read(NOW + 50, vec![seen(1), seen(3)]) });
    assert_eq!(breaches(&ledger), [(Breach::FalseGap, 2)]);
    ledger.messages.get_mut(&2).unwrap().attempts[0].done_ms = NOW + 60;
    assert_eq!(breaches(&ledger), []);
}

#[test]
fn a_message_of_unknown_outcome_may_be_there_or_not() {
    let mut ledger = well();
    ledger.messages.insert(4, sent(vec![attempt(NOW, Outcome::Unknown("reset".to_owned()))]));
    assert_eq!(breaches(&ledger), []);
    let with_it = vec![seen(1), seen(2), seen(3), Seen { seq: 4, ..seen(4) }];
    ledger.reads.push(Read { last: 4, below: 5, ..read(NOW + 200, with_it) });
    assert_eq!(breaches(&ledger), []);
}

#[test]
fn a_retry_with_another_seq_and_a_record_at_another_seq_are_duplicates() {
    let mut ledger = well();
    let message = ledger.messages.get_mut(&2).unwrap();
    message.attempts.push(attempt(NOW + 20, acknowledged(9, None)));
    ledger.reads.clear();
    assert_eq!(breaches(&ledger), [(Breach::Duplicated, 9)]);

    let mut ledger = well();
    ledger.reads[0].records.push(Seen { seq: 4, ..seen(2) });
    assert_eq!(breaches(&ledger), [(Breach::Duplicated, 4)]);
}

#[test]
fn another_body_under_a_living_id_is_a_breach_and_under_a_dead_one_is_not() {
    let mut ledger = well();
    let taken = Attempt { body: Body::Other, ..attempt(NOW + 20, acknowledged(2, None)) };
    ledger.messages.get_mut(&2).unwrap().attempts.push(taken);
    assert_eq!(breaches(&ledger), [(Breach::Duplicated, 2)]);
    ledger.messages.get_mut(&2).unwrap().attempts[1].done_ms = NOW + 31 * DAY_MS;
    assert_eq!(breaches(&ledger), []);
    let refused = attempt(NOW + 30, Outcome::AlreadyExists);
    ledger.messages.get_mut(&3).unwrap().attempts.push(refused);
    assert_eq!(breaches(&ledger), [(Breach::Duplicated, 3)]);
}

#[test]
fn two_messages_under_one_seq_and_a_record_that_nobody_sent_are_reuse() {
    let mut ledger = well();
    ledger.messages.insert(7, sent(vec![attempt(NOW, acknowledged(3, Some(DATES)))]));
    assert_eq!(breaches(&ledger), [(Breach::SeqReused, 3)]);
    for wrong in [Seen { number: None, ..seen(2) }, Seen { body: None, ..seen(2) }] {
        let mut ledger = well();
        ledger.reads[0].records[1] = wrong;
        assert_eq!(breaches(&ledger), [(Breach::SeqReused, 2)]);
    }
}

/// All three messages expire at this moment.
fn expiring(at: i64) -> Ledger {
    let dates = Dates { created_ms: at - 30 * DAY_MS, expires_ms: Some(at) };
    let mut ledger = well();
    for sent in ledger.messages.values_mut() {
        for attempt in &mut sent.attempts {
            let Outcome::Acknowledged { dates: told, .. } = &mut attempt.outcome else { continue };
            *told = Some(dates);
        }
    }
    ledger.reads.iter_mut().flat_map(|read| &mut read.records).for_each(|seen| seen.dates = dates);
    ledger
}

#[test]
fn a_record_is_not_read_from_its_date_on_and_need_not_be_missed_then() {
    let mut ledger = expiring(NOW + 100);
    let expected = [1, 2, 3].map(|seq| (Breach::ExpiredRead, seq));
    assert_eq!(breaches(&ledger), expected);
    ledger.reads[0].sent_ms -= 1;
    assert_eq!(breaches(&ledger), []);
    ledger.reads[0].records.clear();
    ledger.reads[0].earliest = 4;
    assert_eq!(breaches(&ledger), []);
}

#[test]
fn a_clock_that_was_wrong_is_allowed_for_to_the_millisecond() {
    let ledger = expiring(NOW + 60);
    let breaches = |skew_ms| breaches_but(&ledger, &Excuses { skew_ms, ..Excuses::default() }).len();
    assert_eq!((breaches(40), breaches(41)), (3, 0));
}

#[test]
fn what_went_at_its_date_and_came_back_was_resurrected() {
    let mut ledger = expiring(NOW + 50);
    ledger.reads.insert(0, Read { earliest: 4, records: Vec::new(), ..read(NOW + 60, Vec::new()) });
    let resurrected: Vec<_> =
        breaches(&ledger).into_iter().filter(|(breach, _)| *breach == Breach::Resurrected).collect();
    assert_eq!(resurrected, [1, 2, 3].map(|seq| (Breach::Resurrected, seq)));
}

#[test]
fn another_date_than_the_policy_gives_or_than_was_told_is_a_breach() {
    let mut ledger = well();
    ledger.reads[0].records[0].dates.expires_ms = None;
    assert_eq!(breaches(&ledger), [(Breach::ExpiredRead, 1)]);
    let later = Dates { created_ms: NOW + 1, expires_ms: Some(NOW + 1 + 30 * DAY_MS) };
    ledger.reads[0].records[0].dates = later;
    assert_eq!(breaches(&ledger), [(Breach::ExpiredRead, 1)]);
}

#[test]
fn a_false_start_and_a_false_end_are_false_gaps() {
    let mut ledger = well();
    ledger.reads[0].earliest = 2;
    assert_eq!(breaches(&ledger), [(Breach::FalseGap, 1)]);
    ledger.reads[0].archive_unavailable = true;
    assert_eq!(breaches(&ledger), []);
    let mut ledger = well();
    ledger.reads[0].last = 2;
    assert_eq!(breaches(&ledger), [(Breach::FalseGap, 3)]);
    let mut ledger = well();
    ledger.messages.clear();
    ledger.reads = vec![read(NOW + 10, Vec::new()), Read { last: 2, ..read(NOW + 20, Vec::new()) }];
    assert_eq!(breaches(&ledger), [(Breach::FalseGap, 2)]);
}

#[test]
fn a_named_gap_over_a_record_that_is_there_is_false() {
    let mut ledger = well();
    ledger.reads[0].gaps.push((3, 5));
    assert_eq!(breaches(&ledger), [(Breach::FalseGap, 3)]);
}

#[test]
fn what_nobody_had_been_told_of_may_be_seen_and_undone_where_redis_loses_data() {
    let mut ledger = well();
    // Seen at seq 3, lost, and acknowledged at seq 2 instead of another one that was not acknowledged either.
    ledger.messages.remove(&2);
    ledger.messages.insert(3, sent(vec![attempt(NOW + 300, acknowledged(2, Some(DATES)))]));
    ledger.reads[0].is_final = false;
    let moved = Seen { number: Some(3), ..seen(2) };
    ledger.reads[0].records.remove(1);
    ledger.reads.push(Read { last: 2, below: 3, ..read(NOW + 400, vec![seen(1), moved]) });
    let lost_at = |lost_ms| Excuses { losses_ms: vec![lost_ms], ..Excuses::default() };
    assert_eq!(breaches_but(&ledger, &lost_at(NOW + 200)), []);
    assert_ne!(breaches_but(&ledger, &lost_at(NOW + 350)), [], "it had been acknowledged");
    assert_ne!(breaches_but(&ledger, &lost_at(NOW + 50)), [], "it was seen after the loss");
}

#[test]
fn an_answer_that_must_not_be_is_told() {
    let mut ledger = well();
    ledger.oddities.push(Oddity { at_ms: NOW, conversation: 0, said: "DATA_LOSS".to_owned() });
    assert_eq!(breaches(&ledger), [(Breach::FalseGap, 0)]);
}
