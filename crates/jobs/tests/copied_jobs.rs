//! Which jobs a copy of the registry receives.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod fixtures;

use fixtures::{at, key, record};
use jobs::{CopyScope, CopyStep, Limits, Registry, Users};
use std::collections::BTreeMap;
use std::path::Path;

fn open(path: &Path) -> Registry {
    let registry = Registry::open(path, Limits::default(), Users::default).unwrap();
    registry.record_changes().unwrap();
    registry
}

/// A copy, as another database has it: the state words and numbers of allocations by job.
type Copy = BTreeMap<i64, Vec<(&'static str, usize)>>;

fn apply(step: &CopyStep, copy: &mut Copy) {
    match &step.scope {
        CopyScope::Keys(keys) => keys.iter().for_each(|key| drop(copy.remove(&key.id.get()))),
        CopyScope::Range(after, last) => copy.retain(|id, _| {
            after.as_ref().is_some_and(|after| *id <= after.id.get())
                || last.as_ref().is_some_and(|last| *id > last.id.get())
        }),
    }
    for run in &step.runs {
        let rows = copy.entry(run.job.key.id.get()).or_default();
        rows.push((run.job.state.word(), run.allocations.len()));
    }
}

/// Copies until nothing is left. Returns the number of jobs in the steps.
fn copy_all(registry: &Registry, copy: &mut Copy) -> usize {
    let mut jobs = 0;
    loop {
        let step = registry.copy_step().unwrap();
        if step.is_empty() {
            return jobs;
        }
        jobs += step.runs.len();
        apply(&step, copy);
        registry.copied(&step).unwrap();
    }
}

#[test]
fn only_changed_jobs_are_copied_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.sqlite");
    let registry = open(&path);
    let records: Vec<_> = (1..=1200).map(|id| record(id, 100, None, &["n1", "n2"])).collect();
    registry.ingest(&records, at(101)).unwrap();
    let mut copy = Copy::new();
    assert_eq!(copy_all(&registry, &mut copy), 2400, "a walk, then the changes before it");
    assert_eq!((copy.len(), &*copy[&7]), (1200, &[("running", 2)][..]));
    registry.ingest(&[record(7, 100, Some(150), &["n1"])], at(151)).unwrap();
    assert_eq!(copy_all(&registry, &mut copy), 1);
    assert_eq!(copy[&7], [("ended", 1)]);
    registry.ingest(&[record(7, 100, Some(150), &["n1"])], at(152)).unwrap();
    assert_eq!(copy_all(&registry, &mut copy), 0, "a duplicate changes nothing");
    // What changes between two processes of the server is lost to none.
    registry.ingest(&[record(8, 100, Some(160), &[])], at(161)).unwrap();
    drop(registry);
    let registry = open(&path);
    assert_eq!(copy_all(&registry, &mut copy), 1);
    assert_eq!(copy[&8], [("ended", 0)]);
}

#[test]
fn events_of_nodes_are_changes() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir.path().join("jobs.sqlite"));
    let mut copy = Copy::new();
    copy_all(&registry, &mut copy);
    let event = |device: &str, stop: Option<i64>| model::JobEvent {
        key: key(7),
        display_id: "7".into(),
        device: fixtures::device(device),
        user: None,
        uid: Some(1000),
        start: at(100),
        stop: stop.map(at),
        monitor: None,
        oom_kills: Vec::new(),
    };
    for (events, expected) in [
        (vec![event("n1", None)], ("running", 1)),
        (vec![event("n2", None)], ("running", 2)),
        (vec![event("n1", Some(150)), event("n2", Some(160))], ("ended", 2)),
    ] {
        registry.apply(&events, at(200)).unwrap();
        assert_eq!(copy_all(&registry, &mut copy), 1);
        assert_eq!(copy[&7], [expected]);
    }
}

#[test]
fn a_change_during_a_step_is_copied_by_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir.path().join("jobs.sqlite"));
    let mut copy = Copy::new();
    copy_all(&registry, &mut copy);
    registry.ingest(&[record(7, 100, None, &["n1"])], at(101)).unwrap();
    let step = registry.copy_step().unwrap();
    registry.ingest(&[record(7, 100, Some(150), &["n1"])], at(151)).unwrap();
    apply(&step, &mut copy);
    registry.copied(&step).unwrap();
    assert_eq!(copy[&7], [("running", 1)]);
    assert_eq!(copy_all(&registry, &mut copy), 1);
    assert_eq!(copy[&7], [("ended", 1)]);
}

#[test]
fn a_copy_begins_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.sqlite");
    let registry = open(&path);
    registry.ingest(&[record(7, 100, None, &["n1"])], at(101)).unwrap();
    let mut copy = Copy::new();
    copy_all(&registry, &mut copy);
    let before = registry.copy_step().unwrap().number;
    registry.restart_copy().unwrap();
    let step = registry.copy_step().unwrap();
    assert!(step.is_first && step.number > before + 1, "{step:?}");
    // The database has jobs of another registry.
    let mut copy = Copy::from([(3, vec![("ended", 1)]), (9, vec![("ended", 1)])]);
    copy_all(&registry, &mut copy);
    assert_eq!(copy.keys().copied().collect::<Vec<_>>(), [7]);
    // A server with another store changed jobs meanwhile.
    drop(registry);
    let other = Registry::open(&path, Limits::default(), Users::default).unwrap();
    other.forget_copy().unwrap();
    other.ingest(&[record(8, 100, None, &["n1"])], at(101)).unwrap();
    drop(other);
    let registry = open(&path);
    assert!(registry.copy_step().unwrap().is_first);
    copy_all(&registry, &mut copy);
    assert_eq!(copy.keys().copied().collect::<Vec<_>>(), [7, 8]);
}

#[test]
fn a_job_with_many_allocations_ends_a_step() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir.path().join("jobs.sqlite"));
    copy_all(&registry, &mut Copy::new());
    let nodes: Vec<String> = (0..15_000).map(|n| format!("n{n}")).collect();
    let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
    let records: Vec<_> = (1..=3).map(|id| record(id, 100, None, &nodes)).collect();
    registry.ingest(&records, at(101)).unwrap();
    let step = registry.copy_step().unwrap();
    assert_eq!(step.runs.len(), 2);
    registry.copied(&step).unwrap();
    assert_eq!(registry.copy_step().unwrap().runs.len(), 1);
}
