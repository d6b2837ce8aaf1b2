//! Slurm's job states (`src/common/slurm_protocol_defs.c`, `job_state_string`).

use model::JobState;

/// States of ended jobs: the filter of accounting queries.
pub(super) const OVER: &str = "BF,CA,CD,DL,F,NF,OOM,PR,RQ,RV,TO";

/// The state by Slurm's words, and the deciding word itself, such as `COMPLETING`. Older versions write one
/// word. `None`: unknown word.
pub(super) fn state<'a>(words: impl IntoIterator<Item = &'a str>) -> Option<(JobState, Box<str>)> {
    let mut found: Option<(JobState, &str)> = None;
    for word in words {
        // The accounting writes `CANCELLED by 1000`.
        let word = word.split_whitespace().next()?;
        let state = of_word(word)?;
        // A completing job still occupies its nodes; a requeued one waits.
        let wins = match found {
            None => true,
            Some((JobState::Running, _)) => state != JobState::Running && !state.is_over(),
            Some((JobState::Waiting, _)) => false,
            Some(_) => !state.is_over(),
        };
        if wins {
            found = Some((state, word));
        }
    }
    found.map(|(state, word)| (state, word.into()))
}

/// Whether a job of the controller has started: one that ended without nodes never did.
pub(super) const fn has_started(state: JobState, has_nodes: bool) -> bool {
    match state {
        JobState::Waiting => false,
        JobState::Running => true,
        JobState::Ended | JobState::Failed => has_nodes,
    }
}

fn of_word(word: &str) -> Option<JobState> {
    Some(match word {
        "PENDING" | "REQUEUED" | "REQUEUE_FED" | "REQUEUE_HOLD" | "RESV_DEL_HOLD"
        | "SPECIAL_EXIT" => JobState::Waiting,
        "RUNNING" | "COMPLETING" | "CONFIGURING" | "POWER_UP_NODE" | "RESIZING" | "SIGNALING"
        | "STAGE_OUT" | "STOPPED" | "SUSPENDED" | "EXPEDITING" => JobState::Running,
        "COMPLETED" => JobState::Ended,
        "BOOT_FAIL" | "CANCELLED" | "DEADLINE" | "FAILED" | "LAUNCH_FAILED" | "NODE_FAIL"
        | "OUT_OF_MEMORY" | "PREEMPTED" | "RECONFIG_FAIL" | "REVOKED" | "TIMEOUT" => {
            JobState::Failed
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_every_version() {
        for (words, state_of, word) in [
            (&["RUNNING"][..], JobState::Running, "RUNNING"),
            (&["COMPLETING"], JobState::Running, "COMPLETING"),
            (&["COMPLETED", "COMPLETING"], JobState::Running, "COMPLETING"),
            (&["FAILED", "COMPLETING"], JobState::Running, "COMPLETING"),
            (&["RUNNING", "CONFIGURING"], JobState::Running, "RUNNING"),
            (&["PENDING", "REQUEUED"], JobState::Waiting, "PENDING"),
            (&["NODE_FAIL", "REQUEUED"], JobState::Waiting, "REQUEUED"),
            (&["SUSPENDED"], JobState::Running, "SUSPENDED"),
            (&["OUT_OF_MEMORY"], JobState::Failed, "OUT_OF_MEMORY"),
            (&["CANCELLED by 1000"], JobState::Failed, "CANCELLED"),
            (&["COMPLETED"], JobState::Ended, "COMPLETED"),
        ] {
            let found = state(words.iter().copied());
            assert_eq!(found, Some((state_of, word.into())), "{words:?}");
        }
        for words in [&[][..], &[""], &["DANCING"], &["RUNNING", "DANCING"]] {
            assert_eq!(state(words.iter().copied()), None, "{words:?}");
        }
    }
}
