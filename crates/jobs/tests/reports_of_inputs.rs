//! Visits that another monitoring system reports give nobody access to a node.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod fixtures;

use fixtures::{at, device, event, key, open, record, seconds};
use jobs::{JobRecord, Limits, Registry, Reporter, Users, Window};
use model::{JobEvent, JobFacts};

/// The user of the jobs, alice.
const UID: u32 = 1000;

/// A visit as an input reports it: without a user.
fn of_input(id: i64, node: &str, start: i64, stop: Option<i64>) -> JobEvent {
    JobEvent { uid: None, ..event(id, node, start, stop) }
}

/// The scheduler's record of a job of alice on some nodes.
fn of_alice(id: i64, start: i64, stop: Option<i64>, nodes: &[&str]) -> JobRecord {
    let record = record(id, start, stop, nodes);
    JobRecord { facts: JobFacts { uid: Some(UID), ..record.facts }, ..record }
}

type Times = Vec<(String, i64, Option<i64>)>;

/// Where alice's jobs are, and where they give her access.
fn allocated_and_granted(registry: &Registry) -> (Times, Times) {
    let window = Window { uid: Some(UID), ..Window::default() };
    let times = |intervals: Vec<jobs::Interval>| {
        let one = |one: jobs::Interval| {
            (one.device.to_string(), seconds(one.start), one.stop.map(seconds))
        };
        intervals.into_iter().map(one).collect()
    };
    (times(registry.intervals(&window).unwrap()), times(registry.verified(&window).unwrap()))
}

fn apply(registry: &Registry, event: JobEvent, reporter: Reporter) {
    let applied = registry.apply_by(&[event], at(1000), (reporter, 0)).unwrap();
    assert_eq!(applied.rejected, 0);
}

#[test]
fn a_visit_of_an_input_grants_what_the_record_states_only() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    registry.ingest(&[of_alice(7, 100, Some(200), &["n1", "n2"])], at(1000)).unwrap();
    let of_record: Times = vec![("n1".into(), 100, Some(200)), ("n2".into(), 100, Some(200))];
    assert_eq!(allocated_and_granted(&registry), (of_record.clone(), of_record.clone()));
    // On n1 the input states longer times; n3 is no node of the job.
    apply(&registry, of_input(7, "n1", 98, Some(202)), Reporter::Input);
    apply(&registry, of_input(7, "n3", 120, None), Reporter::Input);
    let (allocated, granted) = allocated_and_granted(&registry);
    assert_eq!(granted, of_record, "{allocated:?}");
    assert!(allocated.contains(&("n1".into(), 98, Some(202))), "{allocated:?}");
    // The end of n3 changes nothing, and its name stays unverified.
    apply(&registry, of_input(7, "n3", 120, Some(180)), Reporter::Input);
    assert_eq!(allocated_and_granted(&registry).1, of_record);
}

#[test]
fn a_visit_of_an_input_before_the_record_is_none_of_its_grants() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    apply(&registry, of_input(7, "n3", 120, None), Reporter::Input);
    assert_eq!(allocated_and_granted(&registry), (vec![], vec![]), "nobody is its owner");
    registry.ingest(&[of_alice(7, 100, None, &["n1"])], at(1000)).unwrap();
    assert_eq!(allocated_and_granted(&registry).1, [("n1".into(), 100, None)]);
}

#[test]
fn an_agent_confirms_a_visit_and_an_input_changes_none_of_an_agent() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    registry.ingest(&[of_alice(7, 100, None, &["n1"])], at(1000)).unwrap();
    apply(&registry, event(7, "n1", 100, Some(150)), Reporter::Agent);
    apply(&registry, of_input(7, "n1", 100, Some(900)), Reporter::Input);
    let one: Times = vec![("n1".into(), 100, Some(150))];
    assert_eq!(allocated_and_granted(&registry), (one.clone(), one));
    apply(&registry, of_input(8, "n2", 300, Some(350)), Reporter::Input);
    apply(&registry, event(8, "n2", 300, Some(350)), Reporter::Agent);
    let granted = allocated_and_granted(&registry).1;
    assert_eq!(granted.last(), Some(&("n2".into(), 300, Some(350))));
}

#[test]
fn rejected_visits_of_an_input_leave_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("registry.sqlite");
    let limits = Limits { visits_per_job_max: 2, ..Limits::default() };
    let registry = Registry::open(&path, limits, Users::default).unwrap();
    let events: Vec<JobEvent> = (0..20).map(|n| of_input(7, &format!("n{n}"), 100, None)).collect();
    let applied = registry.apply_by(&events, at(1000), (Reporter::Input, 0)).unwrap();
    assert_eq!((applied.began, applied.rejected), (2, 18));
    let db = jobs::open_to_read(&path).unwrap();
    let rows = |sql| db.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(rows("SELECT count(*) FROM visits_of_inputs"), 2);
    let n0 = device("n0");
    assert_eq!(registry.allocations(&key(7), at(100)).unwrap()[0].device, n0);
}
