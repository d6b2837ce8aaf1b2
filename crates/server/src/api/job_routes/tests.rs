//! Tests of the job routes.

use super::*;

#[test]
fn states_are_declared() {
    assert_eq!(api::JOB_STATES, JobState::ALL.map(JobState::word));
}

#[test]
fn places_in_lists() {
    let place = |text| place(text).map(|place| (place.key.to_string(), place.start.0)).ok();
    let result = Some(("slurm:7".to_owned(), 1_767_657_600_250_001));
    assert_eq!(place("slurm:7@1767657600.250001"), result);
    assert_eq!(place("slurm:7@2026-01-06T00:00:00.250001+00:00"), result);
    for wrong in ["", "slurm:7", "7@5", "slurm:7@", "slurm:x@5", "slurm:7@-5", "slurm:7@nan"] {
        assert_eq!(place(wrong), None, "{wrong}");
    }
}

#[test]
fn names_of_jobs() {
    assert!(checked_name("make -j2 é".to_owned()).is_ok());
    assert!(checked_name("x".repeat(201)).is_err());
    assert!(checked_name("a\u{1b}[31m".to_owned()).is_err());
}
