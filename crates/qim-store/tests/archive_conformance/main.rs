//! What every archive must do, shown on each implementation: `sqlite::CASE` on a file, `cql::CASE` on the server at
//! `QIM_TEST_CQL_URL`. What only one of them can do is shown in `sqlite_file` and `cql_server`.

mod backend;
mod cases;
mod cql_outage;
mod cql_server;
mod messages;
mod sqlite_file;

macro_rules! conformance {
    ($($module:ident :: { $($case:ident),+ $(,)? }),+ $(,)?) => {
        mod sqlite {
            $($(#[test] fn $case() { crate::backend::on_sqlite(crate::cases::$module::$case); })+)+
        }
        mod cql {
            $($(#[test] fn $case() { crate::backend::on_cql(crate::cases::$module::$case); })+)+
        }
    };
}

conformance! {
    puts::{
        an_unknown_conversation_is_empty,
        an_empty_put_does_nothing,
        a_record_comes_back_to_the_byte,
        a_repeated_put_changes_nothing,
        a_put_writes_only_what_is_missing,
        a_conflict_is_named_and_changes_nothing,
        a_put_at_another_date_is_a_conflict,
        the_largest_put_crosses_buckets,
        a_put_with_holes_between_its_seqs_is_read_back,
        conversations_and_tenants_do_not_mix,
        two_writers_of_the_same_records_leave_one_copy,
        what_one_program_puts_another_reads,
    },
    dates::{
        a13_a_record_is_served_until_the_millisecond_it_expires,
        a10_a_record_that_has_expired_is_never_readable,
        a10_a_late_copy_keeps_its_date,
        a11_a_held_record_is_served_for_ever,
        records_of_all_lives_lie_side_by_side,
        a_damaged_record_is_reported_and_not_served,
        a_damaged_frame_is_reported_and_not_served,
        a_record_of_another_conversation_is_reported_and_not_served,
        a_damaged_date_never_serves_a_record_past_its_own,
        a_damaged_date_never_serves_a_record_past_the_date,
        damaged_rows_count_towards_the_limit,
    },
    reads::{
        a_page_is_ascending_in_both_directions,
        a_read_crosses_buckets,
        a_page_has_at_most_three_mib,
        a_page_has_at_least_one_record,
        an_empty_range_has_no_records,
        every_record_is_reached_by_following_next,
        a_long_run_of_expired_records_is_passed,
        high_seqs_are_read,
    },
    gaps::{
        an_archive_on_which_a_deployment_began_is_not_empty,
        gaps_are_kept_in_order_and_raise_the_high_water_mark,
        rows_are_the_very_bytes_that_were_put,
    },
    marks::{
        marks_tell_date_and_digest,
        the_earliest_is_the_lowest_unexpired_record,
        a_held_record_at_the_start_stays_the_earliest,
        the_earliest_is_looked_for_inside_the_range,
        a_late_copy_below_the_earliest_becomes_the_earliest,
        the_high_water_mark_never_goes_down,
        the_high_water_mark_can_be_raised_without_a_record,
        an_expired_record_raises_the_high_water_mark,
        only_unexpired_records_are_counted,
    },
    client_ids::{
        a_client_id_leads_to_what_was_committed,
        client_ids_outlive_their_records,
        a_client_id_is_forgotten_after_ninety_days_but_not_before_its_record,
        the_later_of_two_commits_under_one_id_is_remembered,
        a_second_copy_of_some_records_forgets_no_client_id,
        five_hundred_client_ids_are_found_in_their_order,
        client_ids_of_high_seqs_are_found,
        a_conflict_leaves_client_ids_alone,
    },
    dictionaries::{
        a_dictionary_comes_back_to_the_byte_until_it_is_deleted,
        a_dictionary_is_never_replaced_and_its_date_never_goes_back,
        records_are_opened_with_the_dictionary_that_the_archive_has,
        a_record_without_its_dictionary_is_reported_and_not_served,
    },
}
