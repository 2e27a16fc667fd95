//! The written contract as cases that any store must pass, and one macro that makes tests of them.
//!
//! Owns the [`Harness`], builders of requests, and a case per promise. Must never know which store
//! it drives, and uses nothing that only tests have.
//!
//! ```text
//! fn harness() -> countersign::store::conformance::Harness { … }
//! countersign::conformance!(my_store, crate::harness);
//! ```

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // a case fails by panicking, as a test does

pub mod comes_again;
pub mod decisions;
pub mod events;
mod harness;
pub mod late;
pub mod leases;
pub mod race;
pub mod repeats;
pub mod upkeep;

pub use self::harness::{Call, Dial, Harness};

#[cfg(test)]
pub(in crate::store) use self::harness::{sqlite, twin};

/// Makes one `#[tokio::test]` per case, inside a module: `conformance!(name, path::to::harness)`,
/// where the function makes a `store::conformance::Harness` over an empty store. As
/// `conformance!(run harness)`, inside an `async fn`, it runs all of them one after the other.
#[macro_export]
macro_rules! conformance {
    ($module:ident, $make:path) => { $crate::conformance! { @list tests($module, $make) } };
    (run $make:expr) => { $crate::conformance! { @list run($make) } };
    (@list $to:ident($($with:tt)*)) => {
        $crate::conformance! { @$to $($with)*,
            race: [
                p3_sixty_four_confirms_one_claim, fifty_first_uses_of_one_key_make_one_draft, confirm_against_reject,
                confirm_against_withdrawal, at_the_boundary_each_draft_ends_once, one_of_many_takes_over,
                one_settles_of_many,
            ],
            comes_again: [
                while_it_lives_an_equal_call_joins, a_keyless_call_joins_whatever_key_the_earlier_had,
                another_key_never_joins, calls_taken_back_do_not_hide_an_earlier_answer, an_uncollected_result_is_kept_for_the_agent,
                a_collected_result_replays_for_its_window, a_window_of_zero_replays_only_what_was_not_collected,
                the_same_key_always_gets_the_stored_result, a_persons_no_is_remembered,
                the_same_key_keeps_a_persons_no, a_guards_no_is_not_remembered, what_never_ran_opens_a_new_draft,
                a_key_with_other_args_is_refused, the_key_lives_as_long_as_its_draft,
                an_overdue_draft_is_expired_by_the_call, sessions_are_added_and_bounded,
                a_live_draft_is_found_behind_later_ones, owners_agents_and_tenants_never_meet,
            ],
            decisions: [
                a_quorum_counts_principals_once, a_decision_key_answers_for_its_verb,
                what_changed_is_not_decided, what_is_decided_is_told_whatever_was_seen, a_refusal_keeps_its_mac, an_overdue_draft_cannot_be_decided, ends_are_ends,
                a_token_opens_before_and_after_use, unknown_drafts_are_not_found, words_are_bounded,
            ],
            repeats: [
                hold, decide, decide_after_a_take_over, vote, reject_and_withdraw, renew_and_mark, settle_and_resolve,
                take_over, again,
            ],
            leases: [
                p4_the_mark_is_given_once, a_lease_must_outlast_the_send_window, epochs_fence,
                take_over_waits_for_the_lease, p5_a_marked_draft_is_taken_over_as_verifying,
                before_the_mark_only_failure_can_be_settled, p6_no_receipt_no_success,
            ],
            late: [
                settles_what_is_open, cannot_tell_moves_nothing, changes_nothing_that_is_proved, is_no_answer_where_nothing_was_marked,
                keeps_the_first_and_the_latest_evidence, an_outcome_keeps_what_its_mac_covers, a_person_resolves, a_late_answer_resolves,
            ],
            upkeep: [
                collected_once, seen_once, limits_count_new_drafts_only, limits_are_per_owner,
                what_is_not_resolved_is_never_deleted, again_once_and_only_if_not_sent, again_answers_as_a_call_does, again_joins_what_is_live,
                pages_and_filters, long_bodies_make_short_pages, sweeps_find_their_work, counts_name_every_status, keys_are_those_of_the_first,
                a_wrong_clock_writes_nothing, nonsense_is_refused, check_answers,
            ],
            events: [
                one_event_per_transition_in_order, hints_follow_commits, pages, every_cursor_leads_to_the_rest,
                another_stores_cursor_begins_anew,
            ],
        }
    };
    (@tests $module:ident, $make:path, $($group:ident: [$($case:ident),* $(,)?]),* $(,)?) => {
        mod $module {
            $(mod $group {
                $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    let harness = $make();
                    $crate::store::conformance::$group::$case(&harness).await;
                })*
            })*
        }
    };
    (@run $make:expr, $($group:ident: [$($case:ident),* $(,)?]),* $(,)?) => {
        $($({
            let harness = $make();
            $crate::store::conformance::$group::$case(&harness).await;
        })*)*
    };
}
