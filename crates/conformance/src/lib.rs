//! What every store of samples must do, as checks that any store runs: a batch is kept once, what is late
//! counts, what is missing is a gap, windows are those of their samples, and what goes goes for a reason.
//!
//! The rules are decided in `docs/decisions` (0003, 0006, 0010, 0011, 0012); each check is named for the
//! rule it proves, and is the shortest way to read it. Nothing here knows files, tables or threads of a
//! store: those have tests of their own beside it. For development alone; no program contains it.
//!
//! A store joins by implementing [`Subject`], and has every check as a test of its own by
//!
//! ```ignore
//! conformance::suite!(Embedded);
//! ```

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a check fails")]

mod answers;
mod gaps;
mod job_windows;
mod once;
mod refused;
mod retention;
mod rollups;
mod sender;
mod stages;
mod subject;

pub use answers::*;
pub use gaps::*;
pub use job_windows::{JOB_WINDOW_US, Stay, job_windows};
pub use once::*;
pub use refused::*;
pub use retention::*;
pub use rollups::*;
pub use sender::{S, Sender, Spec, T0, device, job, spec};
pub use subject::{Clock, Outcome, Question, Rules, Sample, Subject, Which, Window};

/// Every check as a test of the store that is named.
#[macro_export]
macro_rules! suite {
    ($subject:ty) => {
        $crate::suite! { $subject:
            a_batch_is_kept_once
            batches_come_in_any_order
            boots_and_origins_number_their_batches_apart
            a_clock_that_is_wrong_makes_no_duplicate
            two_values_of_one_instant_are_both_kept
            what_a_boot_sent_before_it_was_silent_for_long_is_too_late_and_what_is_new_is_taken
            samples_come_by_series_and_time
            values_come_back_bit_for_bit
            bounds_of_a_question_are_inclusive
            questions_choose_devices_metrics_jobs_and_labels
            a_start_is_told_with_its_samples_and_is_no_part_of_the_series
            the_last_value_is_the_newest_whatever_came_later
            a_series_that_fell_silent_has_no_last_value
            what_a_metric_means_is_told_as_its_first_sender_said
            questions_see_each_sample_once_while_the_store_works
            an_impossible_instant_costs_its_samples_alone
            a_metric_keeps_its_meaning
            series_beyond_a_limit_cost_themselves
            a_gap_that_is_told_is_kept
            gaps_of_one_kind_that_overlap_are_one
            an_agent_that_was_down_was_so_since_its_last_sample
            missing_batches_are_a_gap_until_they_come
            what_a_sender_says_of_missing_batches_stands_for_them
            windows_are_those_of_their_samples_in_whatever_batches_they_came
            growth_energy_and_seconds_are_the_same_over_any_partition
            a_late_sample_counts_in_its_window
            of_one_instant_the_last_sample_counts
            between_samples_ten_minutes_apart_nothing_is_known
            what_is_no_number_spoils_the_sum_alone
            a_question_has_the_windows_that_begin_within_it
            what_is_settled_takes_no_late_sample_and_stays
            what_is_just_in_time_is_taken
            old_samples_go_and_their_windows_stay
            old_windows_go_and_longer_ones_stay
            a_clock_that_is_ahead_lets_nothing_go
        }
    };
    ($subject:ty: $($check:ident)+) => {
        $(
            #[test]
            fn $check() {
                $crate::$check::<$subject>();
            }
        )+
    };
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn every_check_is_in_the_suite() {
        let read = |name: &str| {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(name);
            std::fs::read_to_string(path).unwrap()
        };
        let (_, list) = include_str!("lib.rs").split_once("$crate::suite! {").unwrap();
        let (list, _) = list.split_once('}').unwrap();
        let listed: BTreeSet<&str> = list.split_whitespace().skip(1).collect();
        let files = ["once", "answers", "refused", "gaps", "rollups", "retention"];
        let text: String = files.iter().map(|name| read(&format!("{name}.rs"))).collect();
        let checks = text.lines().filter_map(|line| line.strip_prefix("pub fn "));
        let checks: BTreeSet<&str> =
            checks.map(|line| line.split(['<', '(']).next().unwrap()).collect();
        assert_eq!(checks, listed);
    }
}
