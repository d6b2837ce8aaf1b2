//! Slurm's words for what a job is doing (`src/common/slurm_protocol_defs.c`, `job_state_string`).

use model::JobState;

/// States in which Slurm ends a job: what is asked of the accounting.
pub(super) const OVER: &str = "BF,CA,CD,DL,F,NF,OOM,PR,RQ,RV,TO";

/// The state of Slurm's words: the state itself, and what is told beside it, such as `COMPLETING`. Older
/// versions tell one word, which is then the one beside it. `None`: a word that is not known.
pub(super) fn state<'a>(words: impl IntoIterator<Item = &'a str>) -> Option<(JobState, Box<str>)> {
    let mut told: Option<(JobState, &str)> = None;
    for word in words {
        // `CANCELLED by 1000` is the accounting's.
        let word = word.split_whitespace().next()?;
        let state = of_word(word)?;
        // A job whose processes are being ended is on its nodes yet; one that is queued again waits.
        let wins = match told {
            None => true,
            Some((JobState::Running, _)) => state != JobState::Running && !state.is_over(),
            Some((JobState::Waiting, _)) => false,
            Some(_) => !state.is_over(),
        };
        if wins {
            told = Some((state, word));
        }
    }
    told.map(|(state, word)| (state, word.into()))
}

/// Whether a job that the controller tells of has started: one that ended without nodes never did.
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
            let told = state(words.iter().copied());
            assert_eq!(told, Some((state_of, word.into())), "{words:?}");
        }
        for words in [&[][..], &[""], &["DANCING"], &["RUNNING", "DANCING"]] {
            assert_eq!(state(words.iter().copied()), None, "{words:?}");
        }
    }
}
