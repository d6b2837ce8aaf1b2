//! The controller's jobs as JSON: `squeue --json` and `GET /slurm/vX/jobs`, which have the same format.

use super::json::{List, Number, Object, Text, TextList};
use super::parsed_job::{Exit, ParseErrors, ParsedJob, Part, cut, devices, instant, key, types};
use super::{state, tres};
use jobs::{JobRecord, NodeShare, Resources};
use model::{ClusterId, JobFacts};
use serde::Deserialize;

/// A job; fields that a version lacks are missing.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Job {
    job_id: Number,
    cluster: Text,
    array_job_id: Number,
    array_task_id: Number,
    het_job_id: Number,
    het_job_offset: Number,
    user_name: Text,
    user_id: Number,
    account: Text,
    name: Text,
    partition: Text,
    job_state: TextList,
    submit_time: Number,
    start_time: Number,
    end_time: Number,
    time_limit: Number,
    exit_code: Exit,
    comment: Text,
    nodes: Text,
    tres_req_str: Text,
    tres_alloc_str: Text,
    gres_detail: TextList,
    job_resources: Object<JobResources>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct JobResources {
    /// v0.0.37 to v0.0.39.
    allocated_nodes: List<Node>,
    /// An object from v0.0.40; a text before.
    nodes: Object<Nodes>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Nodes {
    allocation: List<Node>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Node {
    nodename: Text,
    name: Text,
    cpus_used: Number,
    cpus: Object<Cpus>,
    memory_allocated: Number,
    memory: Object<Memory>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Cpus {
    count: Number,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Memory {
    allocated: Number,
}

impl Job {
    /// The parts that the registry stores.
    pub(super) fn parse(
        self,
        cluster: &ClusterId,
        parse_errors: &mut ParseErrors,
    ) -> Option<ParsedJob> {
        let Some(key) = key(cluster, self.job_id.positive()) else {
            parse_errors.add("a job of the controller has no ID".to_owned());
            return None;
        };
        let id = key.id;
        let words = self.job_state.0.iter().map(|word| &**word);
        let Some((state, state_word)) = state::state(words) else {
            parse_errors.add(format!("job {id}: unknown state {:?}", self.job_state.0));
            return None;
        };
        let Some(submit) = instant(self.submit_time) else {
            parse_errors.add(format!("job {id}: submission time missing"));
            return None;
        };
        let nodes = self.shares().unwrap_or_else(|error| {
            parse_errors.add(format!("job {id}: its nodes: {error}"));
            Vec::new()
        });
        let is_over = state.is_over();
        let has_started = state::has_started(state, !nodes.is_empty());
        // Before a job starts, this is Slurm's planned start.
        let start = instant(self.start_time).filter(|_| has_started);
        // While a job runs, this is the end of its time limit.
        let stop = instant(self.end_time).filter(|_| is_over);
        let part =
            Part::of(self.array_job_id, self.array_task_id, self.het_job_id, self.het_job_offset);
        let mut requested = tres::of_text(&self.tres_req_str.0);
        requested.wall_seconds = self.time_limit.small().map(|minutes| f64::from(minutes) * 60.0);
        let record = JobRecord {
            key,
            submit,
            display_id: part.display_id,
            state,
            start,
            stop,
            facts: JobFacts {
                user: self.user_name.some().map(cut),
                uid: self.user_id.small(),
                account: self.account.some().map(cut),
                name: self.name.some().map(cut),
                exit_code: self.exit_code.0.filter(|_| is_over),
                queue: self.partition.some().map(cut),
                state_word: Some(state_word),
                part_of: part.of,
                array_index: part.index,
                types: types(&self.comment.0),
                requested,
                used: used(tres::of_text(&self.tres_alloc_str.0), start, stop),
                ..JobFacts::default()
            },
            nodes,
            steps: Vec::new(),
        };
        Some(ParsedJob { record, cluster_name: self.cluster.0 })
    }

    /// The job's share of each node. The controller reports all of it while the job runs.
    fn shares(&self) -> Result<Vec<NodeShare>, String> {
        let devices = devices(&self.nodes.0)?;
        let resources = &self.job_resources.0;
        let details = [&resources.allocated_nodes, &resources.nodes.0.allocation];
        let mut shares: Vec<NodeShare> = devices.into_iter().map(share).collect();
        for (at, share) in shares.iter_mut().enumerate() {
            // One text for each node, in the order of the list.
            if let Some(gres) = self.gres_detail.0.get(at) {
                (share.gpus, share.gpu_list) = tres::gpus(gres);
            }
            let detail = details.iter().find_map(|list| {
                // Usually in the order of the list; otherwise search for the node.
                list.0.get(at).filter(|node| node.is_of(share)).or_else(|| {
                    let is_short = list.0.len() <= SEARCHED_MAX;
                    list.0.iter().filter(|_| is_short).find(|node| node.is_of(share))
                })
            });
            if let Some(node) = detail {
                // 0 while the job ends.
                let cpus = [node.cpus_used, node.cpus.0.count];
                share.cpus = cpus.iter().find_map(|cpus| cpus.small().filter(|cpus| *cpus > 0));
                let memory = [node.memory_allocated, node.memory.0.allocated];
                share.memory_bytes = memory.into_iter().find_map(tres::mebibytes);
            }
        }
        Ok(shares)
    }
}

/// Most nodes of a job among which a node out of order is searched.
const SEARCHED_MAX: usize = 1000;

impl Node {
    fn is_of(&self, share: &NodeShare) -> bool {
        let name = if self.nodename.0.is_empty() { &self.name.0 } else { &self.nodename.0 };
        name.split('.').next() == Some(share.device.as_str())
    }
}

/// A node without further data.
pub(super) fn share(device: model::DeviceId) -> NodeShare {
    NodeShare {
        device,
        cpus: None,
        cpu_list: Box::default(),
        gpus: None,
        gpu_list: Box::default(),
        memory_bytes: None,
    }
}

/// The allocated resources as used ones: Slurm allocates them exclusively to one job.
/// Memory is an exception: only the accounting reports how much was used.
pub(super) fn used(
    given: Resources,
    start: Option<model::Timestamp>,
    stop: Option<model::Timestamp>,
) -> Resources {
    let wall_seconds = start.zip(stop).map(|(start, stop)| stop.since(start) as f64 / 1e6);
    Resources { memory_bytes: None, wall_seconds, ..given }
}
