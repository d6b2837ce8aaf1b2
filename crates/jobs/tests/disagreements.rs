//! Disagreements between schedulers and nodes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod fixtures;

use fixtures::{at, device, event, exited, key, open, record, seconds, with};
use jobs::{AgentPresence, JobRecord};
use model::{DeviceId, JobState};

#[test]
fn disagreements_of_scheduler_and_nodes_are_listed() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let check = |second: i64, reporting: &[&str]| {
        let presence = |device: &DeviceId| match device.as_str() {
            name if reporting.contains(&name) => AgentPresence::Reporting,
            "n4" => AgentPresence::Never,
            _ => AgentPresence::Unknown,
        };
        let found = registry.disagreements(at(second), presence).unwrap();
        let one = |d: jobs::Disagreement| {
            format!("{} {} {} {}", d.key.id, d.device, d.difference.word(), seconds(d.since))
        };
        found.into_iter().map(one).collect::<Vec<_>>()
    };
    let all = ["n1", "n2", "n3"];
    registry.apply(&[event(1, "n1", 100, None)], at(101)).unwrap();
    assert_eq!(check(1000, &all), [""; 0], "nobody tells of this cluster's jobs");

    let mut bobs = record(5, 100, None, &["n1"]);
    (bobs.facts.user, bobs.facts.uid) = (Some("bob".into()), Some(2000));
    let records = [
        record(2, 100, None, &["n1", "n2", "pdu-1"]),
        record(3, 100, Some(300), &["n1"]),
        record(4, 100, None, &["n2"]),
        bobs,
        record(6, 100, None, &["n1"]),
        record(7, 100, None, &["n4"]),
    ];
    registry.ingest(&records, at(400)).unwrap();
    let events = [
        event(2, "n1", 100, None),
        event(3, "n1", 100, None),
        event(4, "n3", 100, None),
        event(5, "n1", 100, None),
        event(6, "n1", 100, Some(500)),
    ];
    registry.apply(&events, at(510)).unwrap();
    assert_eq!(
        check(600, &all),
        [
            "1 n1 not_known 100",
            "2 n2 not_seen 100",
            "3 n1 not_running 300",
            "4 n2 not_seen 100",
            "4 n3 other_node 100",
            "5 n1 other_user 100",
            "6 n1 not_seen 500",
            "7 n4 no_agent 100",
        ]
    );
    // Without an agent's reports, a missing cgroup proves nothing. Recent reports may still be on their
    // way.
    let silent = check(600, &["n1"]);
    assert!(!silent.iter().any(|line| line.contains("n2 not_seen")), "{silent:?}");
    assert_eq!(check(559, &all).len(), 7, "the end of 6 is not a minute old");
    assert_eq!(check(155, &all), [""; 0]);
    // Scheduler and nodes agree again.
    registry.ingest(&[record(6, 100, Some(500), &["n1"])], at(600)).unwrap();
    registry.apply(&[event(3, "n1", 100, Some(310))], at(600)).unwrap();
    let left = check(700, &all);
    assert!(!left.iter().any(|line| line.starts_with('3') || line.starts_with('6')), "{left:?}");
}

#[test]
fn a_job_that_its_record_ended_is_over_though_one_of_its_nodes_is_silent() {
    for record_first in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let registry = open(&dir);
        let ended = JobRecord {
            state: JobState::Failed,
            ..with(record(7, 100, Some(105), &["n1", "n2"]), exited(1))
        };
        let seen = [event(7, "n1", 100, Some(105)), event(7, "n2", 101, None)];
        if record_first {
            registry.ingest(std::slice::from_ref(&ended), at(106)).unwrap();
        }
        registry.apply(&seen, at(106)).unwrap();
        registry.ingest(std::slice::from_ref(&ended), at(106)).unwrap();
        let whole = || registry.whole(&key(7)).unwrap().unwrap();
        let facts = || {
            let job = whole().job;
            (job.state, job.start, job.stop, job.facts.exit_code)
        };
        assert_eq!(facts(), (JobState::Failed, Some(at(100)), Some(at(105)), Some(1)));
        let stops = || whole().allocations.iter().map(|interval| interval.stop).collect::<Vec<_>>();
        assert_eq!(stops(), [Some(at(105)), Some(at(105))]);
        assert_eq!(registry.running().unwrap(), 0);
        // The server asks the agent when it is back, and its answer counts as usual.
        assert_eq!(registry.open_jobs_of(&device("n2")).unwrap(), [(key(7), at(101))]);
        registry.apply(&[event(7, "n2", 101, Some(108))], at(900)).unwrap();
        assert_eq!(stops(), [Some(at(105)), Some(at(108))]);
        assert_eq!(facts(), (JobState::Failed, Some(at(100)), Some(at(108)), Some(1)));
    }
}
