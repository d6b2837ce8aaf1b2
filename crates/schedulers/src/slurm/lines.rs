//! Slurm's text output, for programs without JSON: `squeue --format` and `sacct --parsable2`.
//! The separators are random, because names and comments may contain any text.

use super::job::{share, used};
use super::parsed_job::{Exit, ParseErrors, ParsedJob, Part, STEPS_MAX, cut, devices, key, types};
use super::{state, tres};
use jobs::{JobRecord, Resources, Step};
use model::{ClusterId, JobFacts, JobState, Timestamp};
use std::hash::{BuildHasher, Hasher, RandomState};

/// The separators before each job and between its fields.
#[derive(Debug)]
pub(super) struct Marks {
    record: String,
    field: String,
}

impl Marks {
    /// Random separators of this process, from the seed of its hash tables.
    pub(super) fn random() -> Self {
        let secret = RandomState::new().build_hasher().finish();
        Self { record: format!("|R{secret:x}|"), field: format!("|F{secret:x}|") }
    }

    #[cfg(test)]
    pub(super) fn recorded() -> Self {
        Self { record: "|R|".to_owned(), field: "|F|".to_owned() }
    }

    /// squeue's format: ID, display ID, state, user, uid, account, partition, submission, start, end, nodes,
    /// number of nodes and cpus, limit, accelerators, name, comment.
    pub(super) fn squeue_format(&self) -> String {
        let fields = [
            "%A", "%i", "%T", "%u", "%U", "%a", "%P", "%V", "%S", "%e", "%N", "%D", "%C", "%l",
            "%b", "%j", "%k",
        ];
        format!("{}{}", self.record, fields.join(&self.field))
    }

    /// sacct's separator.
    pub(super) fn delimiter(&self) -> &str {
        &self.field
    }
}

/// sacct's fields. The last two hold no user text, so a line break after them ends a record.
pub(super) const SACCT_FIELDS: &str = "JobName,Comment,JobIDRaw,JobID,Cluster,User,UID,Account,\
    Partition,Submit,Start,End,TimelimitRaw,NodeList,ReqTRES,AllocTRES,ExitCode,TotalCPU,MaxRSS,State";
const SACCT_COUNT: usize = 20;

/// The jobs of squeue's text.
pub(super) fn of_squeue(
    text: &str,
    marks: &Marks,
    cluster: &ClusterId,
    parse_errors: &mut ParseErrors,
) -> Vec<ParsedJob> {
    let records = text.split(marks.record.as_str()).filter(|record| !record.trim().is_empty());
    records
        .filter_map(|record| {
            let fields: Vec<&str> = record.trim_end_matches('\n').split(&marks.field).collect();
            let job = squeue_job(&fields, cluster);
            job.map_err(|what| parse_errors.add(what)).ok()
        })
        .collect()
}

fn squeue_job(fields: &[&str], cluster: &ClusterId) -> Result<ParsedJob, String> {
    let [
        id,
        display_id,
        word,
        user,
        uid,
        account,
        queue,
        submit,
        start,
        end,
        nodes,
        node_count,
        cpus,
        limit,
        gres,
        name,
        comment,
    ] = *fields
    else {
        return Err(format!("squeue wrote a job with {} fields", fields.len()));
    };
    let head = Head::read(id, word, submit, nodes, cluster)?;
    let start = moment(start).filter(|_| head.has_started());
    let stop = moment(end).filter(|_| head.state.is_over());
    let requested = Resources {
        nodes: node_count.parse().ok(),
        cpus: cpus.parse().ok(),
        gpus: requested_gpus(gres, node_count),
        wall_seconds: limit_seconds(limit),
        ..Resources::default()
    };
    let given = Resources { nodes: requested.nodes, cpus: requested.cpus, ..Resources::default() };
    let given = if start.is_some() { given } else { Resources::default() };
    let part = Part::from_display_id(display_id);
    Ok(ParsedJob {
        record: JobRecord {
            display_id: part.display_id,
            start,
            stop,
            facts: JobFacts {
                user: some(user),
                uid: uid.parse().ok(),
                account: some(account),
                name: some(name),
                queue: some(queue),
                part_of: part.of,
                array_index: part.index,
                types: types(comment),
                requested,
                used: used(given, start, stop),
                ..head.facts()
            },
            ..head.record()
        },
        cluster_name: Box::default(),
    })
}

/// The jobs of sacct's text, each followed by its steps.
pub(super) fn of_sacct(
    text: &str,
    marks: &Marks,
    cluster: &ClusterId,
    parse_errors: &mut ParseErrors,
) -> Vec<ParsedJob> {
    let mut all: Vec<ParsedJob> = Vec::new();
    for line in whole_lines(text, &marks.field) {
        let fields: Vec<&str> = line.split(marks.field.as_str()).collect();
        let id = fields.get(2).copied().unwrap_or_default();
        let read = match id.split_once('.') {
            None => sacct_job(&fields, cluster).map(|job| all.push(job)),
            Some((job, step)) => sacct_step(&fields, job, step, all.last_mut()),
        };
        if let Err(what) = read {
            parse_errors.add(what);
        }
    }
    all
}

/// Joins lines until a record has all its separators: a line break within a field belongs to the record.
fn whole_lines<'a>(text: &'a str, field: &str) -> Vec<&'a str> {
    let (mut lines, mut rest) = (Vec::new(), text);
    let mut from = 0;
    while let Some(at) = rest.get(from..).and_then(|text| text.find('\n')) {
        let (line, tail) = rest.split_at(from + at);
        let tail = tail.get(1..).unwrap_or_default();
        if line.matches(field).count() + 1 < SACCT_COUNT && !tail.is_empty() {
            from += at + 1;
            continue;
        }
        lines.push(line);
        (rest, from) = (tail, 0);
    }
    if !rest.trim().is_empty() {
        lines.push(rest);
    }
    lines
}

fn sacct_job(fields: &[&str], cluster: &ClusterId) -> Result<ParsedJob, String> {
    let [
        name,
        comment,
        id,
        display_id,
        cluster_name,
        user,
        uid,
        account,
        queue,
        submit,
        start,
        end,
        limit,
        nodes,
        requested,
        given,
        exit,
        cpu,
        _,
        word,
    ] = *fields
    else {
        return Err(format!("sacct wrote a job with {} fields", fields.len()));
    };
    let mut head = Head::read(id, word, submit, nodes, cluster)?;
    // A run after which the job was queued again: the run is over.
    if head.state == JobState::Waiting && moment(end).is_some() {
        head.state = JobState::Failed;
    }
    let start = moment(start).filter(|_| head.has_started());
    let stop = moment(end).filter(|_| head.state.is_over());
    let minutes: Option<u32> = limit.parse().ok();
    let part = Part::from_display_id(display_id);
    let cpu_seconds = cpu_seconds(cpu);
    Ok(ParsedJob {
        record: JobRecord {
            display_id: part.display_id,
            start,
            stop,
            facts: JobFacts {
                user: some(user),
                uid: uid.parse().ok(),
                account: some(account),
                name: some(name),
                exit_code: Exit::of_text(exit).0.filter(|_| head.state.is_over()),
                queue: some(queue),
                part_of: part.of,
                array_index: part.index,
                types: types(comment),
                requested: Resources {
                    wall_seconds: minutes.map(|minutes| f64::from(minutes) * 60.0),
                    ..tres::of_text(requested)
                },
                used: Resources { cpu_seconds, ..used(tres::of_text(given), start, stop) },
                ..head.facts()
            },
            ..head.record()
        },
        cluster_name: cluster_name.into(),
    })
}

/// Adds a step to the job before it.
fn sacct_step(
    fields: &[&str],
    job: &str,
    step: &str,
    job_before: Option<&mut ParsedJob>,
) -> Result<(), String> {
    let record = job_before.map(|job| &mut job.record);
    let Some(record) = record.filter(|record| record.key.id.to_string() == job) else {
        return Err(format!("sacct wrote step {step} of job {job} without the job"));
    };
    let [name, .., start, end, _, _, _, _, exit, _, memory, word] = *fields else {
        return Err(format!("sacct wrote a step with {} fields", fields.len()));
    };
    let memory = memory.parse::<u64>().ok().or_else(|| tres::memory(memory));
    let used = &mut record.facts.used;
    used.memory_bytes = used.memory_bytes.max(memory);
    if record.steps.len() == STEPS_MAX {
        return Err(format!("job {job}: it has more steps; the first {STEPS_MAX} are kept"));
    }
    let state = state::state([word]);
    let is_over = state.as_ref().is_some_and(|(state, _)| state.is_over());
    record.steps.push(Step {
        id: step.into(),
        name: cut(name.into()),
        state_word: state.map_or_else(Box::default, |(_, word)| word),
        start: moment(start),
        stop: moment(end).filter(|_| is_over),
        exit_code: Exit::of_text(exit).0.filter(|_| is_over),
    });
    Ok(())
}

/// The fields that both texts write in the same way.
struct Head {
    key: model::JobKey,
    state: JobState,
    word: Box<str>,
    submit: Timestamp,
    nodes: Vec<model::DeviceId>,
}

impl Head {
    fn read(
        id: &str,
        word: &str,
        submit: &str,
        nodes: &str,
        cluster: &ClusterId,
    ) -> Result<Self, String> {
        let short: String = id.chars().take(20).collect();
        let key = key(cluster, id.parse().ok()).ok_or(format!("`{short}` is not a job ID"))?;
        let (state, word) = state::state([word]).ok_or(format!("job {id}: unknown state"))?;
        let submit = moment(submit);
        let submit = submit.ok_or(format!("job {id}: submission time missing"))?;
        let nodes = devices(nodes).map_err(|error| format!("job {id}: its nodes: {error}"))?;
        Ok(Self { key, state, word, submit, nodes })
    }

    fn has_started(&self) -> bool {
        state::has_started(self.state, !self.nodes.is_empty())
    }

    fn facts(&self) -> JobFacts {
        JobFacts { state_word: Some(self.word.clone()), ..JobFacts::default() }
    }

    fn record(self) -> JobRecord {
        JobRecord {
            nodes: self.nodes.into_iter().map(share).collect(),
            ..JobRecord::new(self.key, self.submit, self.state)
        }
    }
}

fn some(text: &str) -> Option<Box<str>> {
    let text = text.trim();
    let is_set = !matches!(text, "" | "(null)" | "N/A");
    is_set.then(|| cut(text.into()))
}

/// `2026-11-21T12:33:59`: the programs run with `TZ=UTC`.
fn moment(text: &str) -> Option<Timestamp> {
    // A bare number would be seconds.
    text.contains('T').then(|| Timestamp::parse(text).ok())?
}

/// `1-02:00:00`, `5:00`: days, hours, minutes, seconds; leading parts may be missing.
fn limit_seconds(text: &str) -> Option<f64> {
    let (days, clock) = text.split_once('-').map_or((None, text), |(d, rest)| (Some(d), rest));
    let mut seconds = 0.0;
    for part in clock.split(':') {
        seconds = seconds * 60.0 + f64::from(part.parse::<u32>().ok()?);
    }
    let days = days.map_or(Some(0), |days| days.parse::<u32>().ok())?;
    Some(seconds + f64::from(days) * 86_400.0)
}

/// `1-02:00:00`, `00:01.928`: as [`limit_seconds`], with an optional fraction of a second.
fn cpu_seconds(text: &str) -> Option<f64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_digits = fraction.bytes().all(|byte| byte.is_ascii_digit());
    let fraction: f64 = format!("0.{fraction}").parse().ok().filter(|_| is_digits)?;
    Some(limit_seconds(whole)? + fraction)
}

/// `gres:gpu:1` or `gres/gpu:tesla:2` of each node.
fn requested_gpus(gres: &str, nodes: &str) -> Option<u32> {
    let gres = gres.strip_prefix("gres").and_then(|rest| rest.strip_prefix([':', '/']))?;
    let mut fields = gres.split(':');
    let is_gpu = fields.next() == Some("gpu");
    // A type without a count requests one.
    let count = fields.next_back().map_or(Some(1), |count| count.parse().ok()).unwrap_or(1_u32);
    let nodes: u32 = nodes.parse().ok()?;
    count.checked_mul(nodes).filter(|_| is_gpu)
}
