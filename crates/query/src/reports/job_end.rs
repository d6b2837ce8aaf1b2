//! How a job ended, from all available sources.

use jobs::DeviceKill;
use model::{Job, Timestamp};

/// Slurm's states of a job that exceeded its time limit.
const TIME_LIMIT: [&str; 2] = ["TIMEOUT", "DEADLINE"];
/// Slurm's state of a job that was killed because it ran out of memory.
const OUT_OF_MEMORY: &str = "OUT_OF_MEMORY";
/// Scheduler states without information beyond the exit code.
const PLAIN: [&str; 5] = ["COMPLETED", "COMPLETING", "FAILED", "Terminated", "Error"];
/// Exit codes of a command that a signal ended: 128 + the signal number.
const SIGNALLED: std::ops::RangeInclusive<i32> = 129..=128 + 64;

/// Maximum time from an OOM kill to the end of the job that it caused, if only the kill states the end. Other tasks
/// clean up meanwhile; a job that continues for longer did not end by the kill.
const LIVED_ON: i64 = 5 * Timestamp::SECOND;

/// How a job ended; `last_kill`: the last time the kernel killed a task of the job. `None`: the job runs, or the cause
/// is unknown.
pub fn how_it_ended(job: &Job, last_kill: Option<Timestamp>) -> Option<api::JobEnd> {
    if !job.state.is_over() {
        return None;
    }
    let word = job.facts.state_word.as_deref().unwrap_or_default();
    let end = |cause: &str, detail: String| Some(api::JobEnd { cause: cause.to_owned(), detail });
    let is_good = job.facts.exit_code == Some(0);
    let is_known = job.facts.exit_code.is_some() || !word.is_empty();
    let lived_on = |kill| !is_known && job.stop.is_some_and(|stop| stop.since(kill) > LIVED_ON);
    let was_killed = last_kill.is_some_and(|kill| !lived_on(kill));
    if word == OUT_OF_MEMORY || was_killed && !is_good {
        return end("oom kill", word.to_owned());
    }
    if TIME_LIMIT.contains(&word) {
        return end("time limit", word.to_owned());
    }
    if !word.is_empty() && !PLAIN.contains(&word) {
        return end("scheduler", word.to_owned());
    }
    match job.facts.exit_code? {
        0 => end("completed", String::new()),
        code if SIGNALLED.contains(&code) => end("signal", (code - 128).to_string()),
        code => end("exit code", code.to_string()),
    }
}

/// The time of the last kill.
pub(crate) fn last_kill(kills: &[DeviceKill]) -> Option<Timestamp> {
    kills.iter().map(|killed| killed.kill.at).max()
}

/// OOM kills in the format of `/api/v1`.
pub(crate) fn oom_kills(kills: Vec<DeviceKill>) -> Vec<api::OomKill> {
    let one = |DeviceKill { device, kill }: DeviceKill| api::OomKill {
        device: device.to_string(),
        time: kill.at.seconds(),
        task: kill.task.into(),
        pid: kill.pid,
        uid: kill.uid,
        task_bytes: kill.task_bytes,
        limit_bytes: kill.limit_bytes,
    };
    kills.into_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{ClusterId, DeviceId, JobFacts, JobId, JobKey, JobState, OomKill, Timestamp};

    fn job(state: JobState, word: Option<&str>, exit_code: Option<i32>) -> Job {
        Job {
            key: JobKey { cluster: ClusterId::local(), id: JobId::new(1).unwrap() },
            display_id: "1".into(),
            state,
            submit: None,
            start: Some(Timestamp(0)),
            stop: None,
            facts: JobFacts { state_word: word.map(Into::into), exit_code, ..JobFacts::default() },
        }
    }

    fn killed() -> DeviceKill {
        let (at, task) = (Timestamp(1_500_000), "solve".into());
        let kill =
            OomKill { at, pid: 7, uid: None, task, task_bytes: Some(9), limit_bytes: Some(8) };
        DeviceKill { device: DeviceId::new("n1").unwrap(), kill }
    }

    #[test]
    fn each_cause() {
        let cause = |word: Option<&str>, code: Option<i32>, kills: &[DeviceKill]| {
            let end = how_it_ended(&job(JobState::Failed, word, code), last_kill(kills))?;
            Some(format!("{} {}", end.cause, end.detail))
        };
        let kills = [killed()];
        for (word, code, kills, expected) in [
            (None, Some(137), &kills[..], "oom kill "),
            (None, None, &kills, "oom kill "),
            (Some("OUT_OF_MEMORY"), Some(137), &[], "oom kill OUT_OF_MEMORY"),
            (Some("TIMEOUT"), Some(0), &[], "time limit TIMEOUT"),
            (Some("CANCELLED"), Some(143), &[], "scheduler CANCELLED"),
            (Some("FAILED"), Some(139), &[], "signal 11"),
            (Some("FAILED"), Some(3), &[], "exit code 3"),
            // The kernel killed a step; the batch script continued.
            (Some("COMPLETED"), Some(0), &kills, "completed "),
        ] {
            assert_eq!(cause(word, code, kills).as_deref(), Some(expected), "{word:?} {code:?}");
        }
        assert_eq!(cause(None, None, &[]), None, "not known");
        let runs = job(JobState::Running, None, None);
        assert_eq!(how_it_ended(&runs, Some(Timestamp(1))), None, "it is not over");
    }

    #[test]
    fn a_job_that_goes_on_after_a_kill_did_not_end_by_it() {
        let cause = |stop: i64, code: Option<i32>| {
            let stop = Some(Timestamp(stop * Timestamp::SECOND));
            let job = Job { stop, ..job(JobState::Ended, None, code) };
            how_it_ended(&job, last_kill(&[killed()])).map(|end| end.cause)
        };
        assert_eq!(cause(3, None).as_deref(), Some("oom kill"));
        assert_eq!(cause(10, None), None);
        assert_eq!(cause(10, Some(0)).as_deref(), Some("completed"));
        assert_eq!(cause(10, Some(137)).as_deref(), Some("oom kill"));
    }

    #[test]
    fn a_kill_has_its_node_time_task_size_and_limit() {
        let kill = oom_kills(vec![killed()]).remove(0);
        assert_eq!((kill.device.as_str(), kill.time, kill.task.as_str()), ("n1", 1.5, "solve"));
        assert_eq!((kill.task_bytes, kill.limit_bytes), (Some(9), Some(8)));
    }
}
