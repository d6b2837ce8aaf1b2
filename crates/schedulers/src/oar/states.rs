//! OAR's job states and exit codes.

use model::JobState;

/// The states of jobs that are not over, as the database and the REST API write them.
pub(crate) const OPEN: [&str; 10] = [
    "Waiting",
    "Hold",
    "toLaunch",
    "toError",
    "toAckReservation",
    "Launching",
    "Running",
    "Suspended",
    "Resuming",
    "Finishing",
];

/// The states of jobs that are over.
pub(crate) const OVER: [&str; 2] = ["Terminated", "Error"];

/// The state of a job by OAR's word. `assigned`: whether it has or had nodes. `None`: not an OAR state.
pub(crate) fn state(word: &str, assigned: bool, exit_code: Option<i32>) -> Option<JobState> {
    Some(match word {
        "Waiting" | "Hold" | "toLaunch" | "toAckReservation" => JobState::Waiting,
        // The job's cgroup exists from its launch until it has finished.
        "Launching" | "Running" | "Suspended" | "Resuming" | "Finishing" => JobState::Running,
        "toError" if assigned => JobState::Running,
        "toError" => JobState::Waiting,
        "Terminated" if exit_code.is_none_or(|code| code == 0) => JobState::Ended,
        "Terminated" | "Error" => JobState::Failed,
        _ => return None,
    })
}

/// The exit code, or 128 plus the signal, from a status of wait(2): OAR stores the raw status.
pub(crate) fn exit_code(status: i64) -> Option<i32> {
    let status = u16::try_from(status).ok()?;
    let (code, signal) = (status >> 8, status & 0x7f);
    Some(i32::from(if signal == 0 { code } else { 128 + signal }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_has_a_state() {
        for word in OPEN.into_iter().chain(OVER) {
            assert!(state(word, true, None).is_some(), "{word}");
        }
        assert_eq!(state("Terminated", true, Some(0)), Some(JobState::Ended));
        assert_eq!(state("Terminated", true, None), Some(JobState::Ended));
        assert_eq!(state("Terminated", true, Some(3)), Some(JobState::Failed));
        assert_eq!(state("toError", false, None), Some(JobState::Waiting));
        assert_eq!(state("toError", true, None), Some(JobState::Running));
        assert_eq!(state("running", true, None), None);
    }

    #[test]
    fn statuses_of_wait() {
        assert_eq!(exit_code(0), Some(0));
        assert_eq!(exit_code(3 << 8), Some(3));
        assert_eq!(exit_code(9), Some(137));
        // Killed, with a core dump.
        assert_eq!(exit_code(0x80 | 11), Some(139));
        assert_eq!((exit_code(-1), exit_code(1 << 16)), (None, None));
    }
}
