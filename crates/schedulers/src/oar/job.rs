//! A job as OAR reports it, by database or REST API.

use super::node_shares::NodeShares;
use super::requested::Requested;
use super::states;
use jobs::JobRecord;
use model::{ClusterId, JobFacts, JobId, JobKey, JobState, Resources, Timestamp};

/// A job as OAR reports it: times in seconds since 1970, 0 for never.
#[derive(Clone, Debug, Default)]
pub(crate) struct OarJob {
    pub(crate) id: i64,
    /// The ID of its array's first job; 0 if unknown.
    pub(crate) array_id: i64,
    pub(crate) array_index: Option<i64>,
    /// Whether its array has other jobs. Every OAR job belongs to an array, mostly alone.
    pub(crate) in_array: bool,
    pub(crate) user: String,
    pub(crate) project: String,
    pub(crate) name: String,
    pub(crate) queue: String,
    pub(crate) state: String,
    /// As returned by wait(2).
    pub(crate) exit_code: Option<i64>,
    pub(crate) submission: i64,
    pub(crate) start: i64,
    pub(crate) stop: i64,
    /// Whether nodes were assigned.
    pub(crate) assigned: bool,
    /// Seconds; 0 if unknown.
    pub(crate) walltime: i64,
    pub(crate) types: Vec<Box<str>>,
    pub(crate) requested: Requested,
    pub(crate) nodes: NodeShares,
}

impl OarJob {
    /// Converts it to a record.
    ///
    /// # Errors
    /// A field is impossible.
    pub(crate) fn record(self, cluster: &ClusterId) -> Result<JobRecord, String> {
        let id = JobId::new(self.id).ok_or_else(|| format!("{} is not a valid job ID", self.id))?;
        let exit_code = self.exit_code.and_then(states::exit_code);
        let state = states::state(&self.state, self.assigned, exit_code);
        let state = state.ok_or_else(|| {
            let word: String = self.state.chars().take(40).collect();
            format!("job {id}: `{word}` is not an OAR state", id = self.id)
        })?;
        let submit = time(self.submission)
            .ok_or_else(|| format!("job {}: submission time missing", self.id))?;
        let over = state.is_over();
        let stop = time(self.stop).filter(|_| over);
        // A reservation that never started carries its planned start.
        let began = |start: &Timestamp| self.assigned && stop.is_none_or(|stop| *start <= stop);
        let start = time(self.start).filter(|_| state != JobState::Waiting).filter(began);
        let wall_seconds = start.zip(stop).map(|(start, stop)| stop.since(start) as f64 / 1e6);
        let walltime = (self.walltime > 0).then_some(self.walltime as f64);
        let array = self.in_array && self.array_id > 0;
        let text = |text: String| (!text.is_empty()).then(|| text.into_boxed_str());
        Ok(JobRecord {
            key: JobKey { cluster: cluster.clone(), id },
            submit,
            display_id: self.id.to_string().into(),
            state,
            start,
            stop,
            facts: JobFacts {
                user: text(self.user),
                name: text(self.name),
                exit_code: exit_code.filter(|_| over),
                project: text(self.project),
                queue: text(self.queue),
                state_word: Some(self.state.into()),
                part_of: array.then_some(self.array_id),
                array_index: self.array_index.filter(|_| array),
                types: Some(self.types),
                requested: self.requested.resources(walltime),
                used: Resources { wall_seconds, ..Resources::default() },
                ..JobFacts::default()
            },
            nodes: self.nodes.shares(),
            steps: Vec::new(),
        })
    }
}

/// A time in seconds; 0 means none.
fn time(seconds: i64) -> Option<Timestamp> {
    let micros = seconds.checked_mul(Timestamp::SECOND)?;
    (seconds > 0).then_some(Timestamp(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> OarJob {
        OarJob {
            id: 7,
            array_id: 6,
            array_index: Some(2),
            in_array: true,
            state: "Running".to_owned(),
            submission: 1_700_000_000,
            start: 1_700_000_010,
            assigned: true,
            walltime: 300,
            ..OarJob::default()
        }
    }

    fn record(job: OarJob) -> JobRecord {
        job.record(&ClusterId::new("oar").unwrap()).unwrap()
    }

    #[test]
    fn a_running_array_element() {
        let running = record(job());
        assert_eq!((running.facts.part_of, running.facts.array_index), (Some(6), Some(2)));
        assert_eq!(running.start, Some(Timestamp(1_700_000_010_000_000)));
        assert_eq!(running.facts.requested.wall_seconds, Some(300.0));
        assert_eq!(
            (running.facts.exit_code, running.facts.used.wall_seconds, running.stop),
            (None, None, None)
        );
        let alone = record(OarJob { in_array: false, ..job() });
        assert_eq!((alone.facts.part_of, alone.facts.array_index), (None, None));
    }

    #[test]
    fn a_completed_job() {
        let over = OarJob { state: "Terminated".to_owned(), stop: 1_700_000_030, ..job() };
        let failed = record(OarJob { exit_code: Some(256), ..over.clone() });
        assert_eq!((failed.state, failed.facts.exit_code), (JobState::Failed, Some(1)));
        assert_eq!(failed.facts.used.wall_seconds, Some(20.0));
        assert_eq!(record(over.clone()).state, JobState::Ended);
        // A reservation that was cancelled before it started.
        let never = OarJob { state: "Error".to_owned(), start: 1_800_000_000, ..over };
        assert_eq!(record(never).start, None);
        let waits = OarJob { state: "Waiting".to_owned(), ..job() };
        assert_eq!(record(waits).start, None);
    }

    #[test]
    fn impossible_fields_are_rejected() {
        let cluster = ClusterId::new("oar").unwrap();
        for bad in [
            OarJob { id: 0, ..job() },
            OarJob { state: "Gone".to_owned(), ..job() },
            OarJob { submission: 0, ..job() },
            OarJob { submission: i64::MAX, ..job() },
        ] {
            assert!(bad.clone().record(&cluster).is_err(), "{bad:?}");
        }
    }
}
