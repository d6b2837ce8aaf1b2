//! Rules for every store of samples, as checks that any store runs: a batch is stored once, late samples
//! count, missing ones are a gap, windows match their samples, and deletion follows the rules of retention.
//!
//! `docs/decisions` (0003, 0006, 0010, 0011, 0012, 0060) contains the rules. Each check is named for its rule, and
//! is the shortest description of it.
//! The checks know no files, tables or threads of a store: those have their own tests beside it. For
//! development alone; no program contains it.
//!
//! A store joins by implementing [`Subject`], mostly with the functions of [`of_storage`], and gets every check as a separate test by
//!
//! ```ignore
//! conformance::suite!(Embedded);
//! ```
//!
//! A store with followers implements [`Followed`], too, and gets their checks by `conformance::followers_suite!(Embedded)`.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a check fails")]

mod answers;
mod followers;
mod gaps;
mod job_windows;
pub mod of_storage;
mod once;
mod rejected;
mod retention;
mod rollups;
mod sender;
mod stages;
mod subject;
mod window_growth;

pub use answers::*;
pub use followers::*;
pub use gaps::*;
pub use job_windows::{JOB_WINDOW_US, JobAllocation, job_windows};
pub use once::*;
pub use rejected::*;
pub use retention::*;
pub use rollups::*;
pub use sender::{S, Sender, Spec, T0, device, job, spec};
pub use subject::{Clock, JobFilter, Outcome, Query, Rules, Sample, Subject, Window};
pub use window_growth::window_growth;

/// Every check as a test of the named store.
#[macro_export]
macro_rules! suite {
    ($subject:ty) => {
        $crate::suite! { $subject:
            a_batch_is_stored_once
            batches_arrive_in_any_order
            boots_and_origins_number_their_batches_apart
            a_wrong_clock_makes_no_duplicate
            two_values_of_one_instant_are_both_kept
            old_batches_of_an_idle_boot_are_rejected_and_new_ones_stored
            samples_come_by_series_and_time
            values_come_back_bit_for_bit
            bounds_of_a_query_are_inclusive
            queries_select_devices_metrics_jobs_and_labels
            starts_belong_to_samples_and_not_to_series
            the_last_value_is_the_newest_in_time
            an_idle_series_has_no_last_value
            a_metric_has_the_meaning_of_its_first_sender
            queries_see_each_sample_once_during_maintenance
            an_impossible_instant_rejects_its_samples_alone
            a_metric_keeps_its_meaning
            series_beyond_a_limit_are_rejected_alone
            reported_gaps_are_stored
            overlapping_gaps_of_one_kind_are_merged
            a_gap_of_downtime_starts_at_the_last_sample
            missing_batches_are_a_gap_until_they_arrive
            a_reported_gap_explains_missing_batches
            windows_do_not_depend_on_batches
            growth_energy_and_seconds_are_the_same_over_any_partition
            a_late_sample_counts_in_its_window
            of_one_instant_the_last_sample_counts
            samples_more_than_ten_minutes_apart_are_not_joined
            a_nan_affects_the_sum_alone
            a_query_returns_the_windows_that_begin_within_it
            settled_time_rejects_late_samples
            samples_at_the_settled_time_are_accepted
            old_samples_are_deleted_and_their_windows_remain
            old_windows_are_deleted_and_longer_ones_remain
            a_clock_that_is_ahead_deletes_nothing
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

/// Every check of followers as a test of the named store.
#[macro_export]
macro_rules! followers_suite {
    ($subject:ty) => {
        $crate::suite! { $subject:
            a_follower_receives_each_stored_sample_once
            only_a_confirmation_moves_a_position
            a_slice_is_confirmed_after_maintenance
            a_late_sample_is_delivered_when_it_is_stored
            two_values_of_one_instant_are_both_delivered
            a_slice_is_bounded
            rejected_samples_are_not_delivered
            reported_gaps_are_delivered_once
            a_new_follower_begins_at_the_requested_point
            deleted_samples_are_an_output_gap
            a_removed_follower_keeps_its_position_for_seven_days
            followers_are_bounded_and_independent
        }
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
        let lists = include_str!("lib.rs").split("$crate::suite! { $subject:\n").skip(1);
        let listed: BTreeSet<&str> =
            lists.flat_map(|list| list.split('}').next().unwrap().split_whitespace()).collect();
        let files = ["followers", "once", "answers", "rejected", "gaps", "rollups", "retention"];
        let text: String = files.iter().map(|name| read(&format!("{name}.rs"))).collect();
        let checks = text.lines().filter_map(|line| line.strip_prefix("pub fn "));
        let checks: BTreeSet<&str> =
            checks.map(|line| line.split(['<', '(']).next().unwrap()).collect();
        assert_eq!(checks, listed);
    }
}
