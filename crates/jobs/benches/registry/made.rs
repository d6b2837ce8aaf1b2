//! Generated jobs for the benchmark.

use super::{BEGIN, NODES};
use jobs::{JobRecord, NodeShare, Resources, Step};
use model::{ClusterId, DeviceId, JobEvent, JobFacts, JobId, JobKey, JobState, Timestamp};

/// The random generator SplitMix64 by Sebastiano Vigna.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    pub(crate) fn seconds(&mut self, end: u64) -> i64 {
        i64::try_from(self.below(end)).unwrap()
    }
}

/// A generated job.
#[derive(Clone)]
pub(crate) struct Made {
    pub(crate) record: JobRecord,
    pub(crate) stop: Timestamp,
}

pub(crate) fn made(id: i64, submit: i64, random: &mut Random) -> Made {
    let at = |second| Timestamp::from_seconds(BEGIN + second);
    let start = submit + random.seconds(600);
    let stop = start + 60 + random.seconds(7200);
    let first = random.below(NODES);
    let nodes = (0..=random.below(4)).map(|n| NodeShare {
        device: DeviceId::new(&format!("node-{}", (first + n) % NODES)).unwrap(),
        cpus: Some(32),
        cpu_list: "0-31".into(),
        gpus: None,
        gpu_list: Box::default(),
        memory_bytes: Some(64 << 30),
    });
    // The first user has about a tenth of all jobs.
    let user = if random.below(10) == 0 { 0 } else { random.below(500) };
    let (queue, project) = (random.below(10_000), user % 100);
    let record = JobRecord {
        key: JobKey { cluster: ClusterId::new("slurm").unwrap(), id: JobId::new(id).unwrap() },
        submit: at(submit),
        display_id: Box::default(),
        state: JobState::Running,
        start: Some(at(start)),
        stop: None,
        nodes: nodes.collect(),
        steps: vec![Step {
            id: "batch".into(),
            name: "batch".into(),
            state_word: "RUNNING".into(),
            start: Some(at(start)),
            stop: None,
            exit_code: None,
        }],
        facts: JobFacts {
            user: Some(format!("user{user}").into()),
            uid: Some(u32::try_from(10_000 + user).unwrap()),
            account: Some(format!("account{}", user % 40).into()),
            project: Some(format!("project{project}").into()),
            name: Some(format!("solve-{}", id % 977).into()),
            queue: Some(match queue {
                0 => "rare".into(),
                1..1000 => "short".into(),
                _ => "long".into(),
            }),
            state_word: Some("RUNNING".into()),
            requested: Resources {
                cpus: Some(32),
                wall_seconds: Some(7200.0),
                ..Resources::default()
            },
            ..JobFacts::default()
        },
    };
    Made { record, stop: at(stop) }
}

impl Made {
    pub(crate) fn waiting(&self) -> JobRecord {
        let (state, state_word) = (JobState::Waiting, "PENDING".into());
        JobRecord {
            state,
            start: None,
            nodes: Vec::new(),
            facts: JobFacts { state_word: Some(state_word), ..self.record.facts.clone() },
            ..self.record.clone()
        }
    }

    pub(crate) fn ended(&self) -> JobRecord {
        let stop = Some(self.stop);
        // One job of 1009 fails.
        let (state, state_word, exit_code) = match self.record.key.id.get() % 1009 {
            0 => (JobState::Failed, "FAILED".into(), Some(1)),
            _ => (JobState::Ended, "COMPLETED".into(), Some(0)),
        };
        JobRecord {
            state,
            stop,
            facts: JobFacts {
                state_word: Some(state_word),
                exit_code,
                ..self.record.facts.clone()
            },
            ..self.record.clone()
        }
    }

    pub(crate) fn events(&self, ended: bool) -> impl Iterator<Item = JobEvent> {
        self.record.nodes.iter().map(move |share| JobEvent {
            key: self.record.key.clone(),
            display_id: self.record.key.id.to_string().into(),
            device: share.device.clone(),
            user: None,
            uid: self.record.facts.uid,
            start: self.record.start.unwrap(),
            stop: ended.then_some(self.stop),
            monitor: None,
            oom_kills: Vec::new(),
        })
    }
}
