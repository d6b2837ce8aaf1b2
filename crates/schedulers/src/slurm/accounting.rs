//! The accounting's jobs as JSON: `sacct --json` and `GET /slurmdb/vX/jobs`, which have the same format.

use super::job::{share, used};
use super::json::{List, Number, Object, Text, TextList, ignored, skip_all};
use super::parsed_job::{
    Exit, ParseErrors, ParsedJob, Part, STEPS_MAX, cut, devices, instant, key, types,
};
use super::state;
use super::tres::{self, Tres};
use jobs::{JobRecord, Resources, Step};
use model::{ClusterId, JobFacts, JobState};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// A job; fields that a version lacks are missing.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Job {
    job_id: Number,
    cluster: Text,
    account: Text,
    user: Text,
    name: Text,
    partition: Text,
    nodes: Text,
    comment: Object<Comment>,
    array: Object<Array>,
    het: Object<Het>,
    state: Object<Current>,
    exit_code: Exit,
    time: Object<Times>,
    tres: Object<JobTres>,
    steps: List<JobStep>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Comment {
    job: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Array {
    job_id: Number,
    task_id: Number,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Het {
    job_id: Number,
    job_offset: Number,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Current {
    current: TextList,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Times {
    submission: Number,
    start: Number,
    end: Number,
    limit: Number,
    total: Object<Cpu>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Cpu {
    seconds: Number,
    microseconds: Number,
}

impl Cpu {
    fn seconds(&self) -> Option<f64> {
        let seconds = self.seconds.0.filter(|seconds| *seconds >= 0)?;
        Some(seconds as f64 + self.microseconds.0.unwrap_or(0) as f64 / 1e6)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct JobTres {
    allocated: List<Tres>,
    requested: List<Tres>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct JobStep {
    step: Object<StepName>,
    state: TextList,
    exit_code: Exit,
    time: Object<Times>,
    tres: Object<StepTres>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StepName {
    id: StepId,
    name: Text,
}

/// `batch`, `0`, `"5.0"`, or an object with it as `step_id`.
#[derive(Debug, Default)]
struct StepId(Box<str>);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StepTres {
    /// Slurm's word for used resources.
    requested: Object<Most>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Most {
    max: List<Tres>,
}

impl Job {
    /// The parts that the registry stores.
    pub(super) fn parse(
        self,
        cluster: &ClusterId,
        parse_errors: &mut ParseErrors,
    ) -> Option<ParsedJob> {
        let Some(key) = key(cluster, self.job_id.positive()) else {
            parse_errors.add("a job of the accounting has no ID".to_owned());
            return None;
        };
        let id = key.id;
        let words = &self.state.0.current.0;
        let Some((mut state, state_word)) = state::state(words.iter().map(|word| &**word)) else {
            parse_errors.add(format!("job {id}: unknown state {words:?}"));
            return None;
        };
        let time = &self.time.0;
        // A run after which the job was queued again: the run is over.
        if state == JobState::Waiting && instant(time.end).is_some() {
            state = JobState::Failed;
        }
        let Some(submit) = instant(time.submission) else {
            parse_errors.add(format!("job {id}: submission time missing"));
            return None;
        };
        let nodes = devices(&self.nodes.0).unwrap_or_else(|error| {
            parse_errors.add(format!("job {id}: its nodes: {error}"));
            Vec::new()
        });
        let has_started = state != JobState::Waiting && !nodes.is_empty();
        let start = instant(time.start).filter(|_| has_started);
        let stop = instant(time.end).filter(|_| state.is_over());
        let (array, het) = (&self.array.0, &self.het.0);
        let part = Part::of(array.job_id, array.task_id, het.job_id, het.job_offset);
        let mut requested = tres::of_list(&self.tres.0.requested.0);
        requested.wall_seconds = time.limit.small().map(|minutes| f64::from(minutes) * 60.0);
        let steps = self.steps.0.len();
        if steps > STEPS_MAX {
            parse_errors
                .add(format!("job {id}: it has {steps} steps; the first {STEPS_MAX} are kept"));
        }
        let record = JobRecord {
            submit,
            display_id: part.display_id,
            state,
            start,
            stop,
            facts: JobFacts {
                user: self.user.some().map(cut),
                account: self.account.some().map(cut),
                name: self.name.some().map(cut),
                exit_code: self.exit_code.of_failed(state == JobState::Failed && has_code(words)),
                queue: self.partition.some().map(cut),
                state_word: Some(state_word),
                part_of: part.of,
                array_index: part.index,
                types: types(&self.comment.0.job.0),
                requested,
                used: self.used(start, stop),
                ..JobFacts::default()
            },
            nodes: nodes.into_iter().map(share).collect(),
            steps: self.steps.0.iter().take(STEPS_MAX).map(step).collect(),
            key,
        };
        Some(ParsedJob { record, cluster_name: self.cluster.0 })
    }

    fn used(&self, start: Option<model::Timestamp>, stop: Option<model::Timestamp>) -> Resources {
        let mut used = used(tres::of_list(&self.tres.0.allocated.0), start, stop);
        // The job's own sum is 0 in 22.05; use the sum of its steps.
        let of_steps = self.steps.0.iter().filter_map(|step| step.time.0.total.0.seconds());
        let of_steps = of_steps.reduce(|sum, one| sum + one);
        let of_job = self.time.0.total.0.seconds();
        used.cpu_seconds = match (of_steps, of_job) {
            (Some(steps), Some(job)) => Some(steps.max(job)),
            (cpu_seconds, None) => cpu_seconds,
            // A job without steps ran nothing that Slurm could have counted.
            (None, Some(job)) => Some(job).filter(|job| *job > 0.0),
        };
        let memory = |step: &JobStep| {
            let most = step.tres.0.requested.0.max.0.iter().find(|tres| &*tres.kind.0 == "mem")?;
            u64::try_from(most.count.0?).ok()
        };
        used.memory_bytes = self.steps.0.iter().filter_map(memory).max();
        used
    }
}

/// Whether the state implies that the job ended with its own non-zero exit code.
fn has_code(words: &[Box<str>]) -> bool {
    words.iter().any(|word| &**word == "FAILED")
}

fn step(step: &JobStep) -> Step {
    let state = state::state(step.state.0.iter().map(|word| &**word));
    let is_over = state.as_ref().is_some_and(|(state, _)| state.is_over());
    Step {
        id: step.step.0.id.0.clone(),
        name: cut(step.step.0.name.0.clone()),
        state_word: state.map_or_else(Box::default, |(_, word)| word),
        start: instant(step.time.0.start),
        stop: instant(step.time.0.end).filter(|_| is_over),
        exit_code: step.exit_code.of_failed(has_code(&step.state.0)).filter(|_| is_over),
    }
}

struct StepIdVisitor;

impl<'de> Visitor<'de> for StepIdVisitor {
    type Value = StepId;

    ignored! { visit_bool: bool, visit_f64: f64 }

    fn visit_str<E>(self, text: &str) -> Result<StepId, E> {
        Ok(StepId(text.rsplit_once('.').map_or(text, |(_, step)| step).into()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<StepId, E> {
        Ok(StepId(number.to_string().into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<StepId, E> {
        Ok(StepId(number.to_string().into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<StepId, A::Error> {
        skip_all(seq)?;
        Ok(StepId::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<StepId, A::Error> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Object {
            step_id: Text,
        }
        Ok(StepId(Object::deserialize(MapAccessDeserializer::new(map))?.step_id.0))
    }
}

impl<'de> Deserialize<'de> for StepId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StepIdVisitor)
    }
}
