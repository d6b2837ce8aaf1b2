//! Records, events and a registry for tests.

#![allow(dead_code, reason = "each test uses a part of it")]

use jobs::{Limits, NodeShare, Record, Registry, Resources, Step, Users};
use model::{ClusterId, DeviceId, JobEvent, JobId, JobKey, JobState, Timestamp};

pub(crate) const DAY: i64 = 1_767_657_600; // 2026-01-06

/// Downgrades a file from version 7 to version 3.
pub(crate) const TO_THE_THIRD: &str = "
DROP INDEX runs_open; DROP INDEX runs_failed; DROP INDEX runs_cluster; DROP INDEX runs_uid;
DROP INDEX runs_user; DROP INDEX runs_account; DROP INDEX runs_project; DROP INDEX runs_queue;
DROP INDEX runs_name; DROP INDEX runs_time; DROP INDEX runs_uid_time; DROP INDEX runs_account_time;
DROP INDEX visits_device; DROP INDEX visits_time; DROP INDEX shares_device; DROP INDEX shares_time;
ALTER TABLE runs DROP COLUMN class; ALTER TABLE visits DROP COLUMN class;
ALTER TABLE shares DROP COLUMN class; ALTER TABLE runs DROP COLUMN project;
ALTER TABLE runs DROP COLUMN queue; ALTER TABLE runs DROP COLUMN told_start;
ALTER TABLE runs DROP COLUMN told_stop; DROP TABLE spans;
CREATE INDEX runs_open ON runs (start) WHERE stop IS NULL;
CREATE INDEX runs_uid ON runs (uid, start);
CREATE INDEX runs_account ON runs (account, start) WHERE account IS NOT NULL;
CREATE INDEX runs_cluster_account ON runs (cluster, account, start) WHERE account IS NOT NULL;
CREATE INDEX visits_device ON visits (device, start);
CREATE INDEX shares_device ON shares (device, start);
DROP TRIGGER member_told; DROP TRIGGER member_told_later; DROP TRIGGER member_untold;
ALTER TABLE runs DROP COLUMN record_uid;
DROP TABLE names; DROP INDEX runs_unnumbered; DROP INDEX records_part_of;
ALTER TABLE visits DROP COLUMN spelling; ALTER TABLE visits DROP COLUMN user;
ALTER TABLE visits DROP COLUMN uid; ALTER TABLE visits DROP COLUMN clock_us;
ALTER TABLE runs DROP COLUMN clock_us; ALTER TABLE records DROP COLUMN guessed;
DROP TABLE stopped; DROP TABLE proven; DROP TABLE forgotten_nodes; ALTER TABLE account_users DROP COLUMN runs;
ALTER TABLE account_users DROP COLUMN last;
CREATE TRIGGER member_told AFTER INSERT ON runs BEGIN SELECT 1; END;
CREATE TRIGGER member_told_later AFTER INSERT ON runs BEGIN SELECT 1; END;
DROP INDEX visits_monitor; ALTER TABLE visits DROP COLUMN monitor;
PRAGMA user_version = 3;
";

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_seconds(DAY + second)
}

pub(crate) fn seconds(at: Timestamp) -> i64 {
    at.0 / Timestamp::SECOND - DAY
}

pub(crate) fn device(name: &str) -> DeviceId {
    DeviceId::new(name).unwrap()
}

pub(crate) fn key(id: i64) -> JobKey {
    JobKey { cluster: ClusterId::new("slurm").unwrap(), id: JobId::new(id).unwrap() }
}

pub(crate) fn share(name: &str) -> NodeShare {
    NodeShare {
        device: device(name),
        cpus: Some(4),
        cpu_list: "0-3".into(),
        gpus: None,
        gpu_list: Box::default(),
        memory_bytes: Some(1 << 30),
    }
}

/// A job that ran from `start` to `stop` on these nodes.
pub(crate) fn record(id: i64, start: i64, stop: Option<i64>, nodes: &[&str]) -> Record {
    Record {
        key: key(id),
        submit: at(start - 5),
        spelling: Box::default(),
        part_of: None,
        array_index: None,
        user: Some("alice".into()),
        uid: None,
        account: Some("physics".into()),
        project: Some("waves".into()),
        name: Some("solve".into()),
        queue: Some("long".into()),
        state: if stop.is_some() { JobState::Ended } else { JobState::Running },
        state_word: if stop.is_some() { "COMPLETED".into() } else { "RUNNING".into() },
        start: Some(at(start)),
        stop: stop.map(at),
        exit_code: None,
        types: vec!["besteffort".into(), "monitor=perf_.*".into()],
        requested: Resources { cpus: Some(8), wall_seconds: Some(3600.0), ..Resources::default() },
        used: Resources { memory_bytes: Some(5), ..Resources::default() },
        nodes: nodes.iter().map(|name| share(name)).collect(),
        steps: vec![Step {
            id: "batch".into(),
            name: "solve".into(),
            state_word: "RUNNING".into(),
            start: Some(at(start)),
            stop: None,
            exit_code: None,
        }],
    }
}

pub(crate) fn waiting(id: i64, submit: i64) -> Record {
    Record {
        submit: at(submit),
        state: JobState::Waiting,
        state_word: "PENDING".into(),
        start: None,
        steps: Vec::new(),
        ..record(id, submit + 5, None, &[])
    }
}

pub(crate) fn event(id: i64, node: &str, start: i64, stop: Option<i64>) -> JobEvent {
    JobEvent {
        key: key(id),
        spelling: id.to_string().into(),
        device: device(node),
        user: None,
        uid: Some(1000),
        start: at(start),
        stop: stop.map(at),
        monitor: None,
        oom_kills: Vec::new(),
    }
}

pub(crate) fn open(dir: &tempfile::TempDir) -> Registry {
    let users = || Users::parse(b"alice:x:1000:1000::/home/alice:/bin/sh\n");
    Registry::open(&dir.path().join("registry.sqlite"), Limits::default(), users).unwrap()
}

pub(crate) type Shape = Vec<(JobState, Option<i64>, Option<i64>, Option<String>, Vec<String>)>;

/// State, start, stop, queue and devices with their times, for the runs of a job.
pub(crate) fn shape(registry: &Registry, id: i64) -> Shape {
    let run = |job: model::Job| {
        let places = job.start.map(|start| registry.allocations(&key(id), start).unwrap());
        let place = |a: model::Allocation| {
            let stop = a.stop.map_or("...".to_owned(), |stop| seconds(stop).to_string());
            format!("{} {}-{stop}", a.device, seconds(a.start))
        };
        let places = places.unwrap_or_default().into_iter().map(place).collect();
        let queue = job.queue.map(String::from);
        (job.state, job.start.map(seconds), job.stop.map(seconds), queue, places)
    };
    registry.runs(&key(id)).unwrap().into_iter().map(run).collect()
}
