//! Ownership of jobs: a fact of a run, not of its job ID. Login names and user IDs that the machine
//! lacks.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod fixtures;

use fixtures::{at, event, key, of_user, open, record, seconds, with};
use jobs::{AccessLevel, Filter, IngestStats, Reader, RecordUpdate, Registry, Reporter};
use model::{DeviceId, JobEvent, JobFacts, JobState, Timestamp};
use proptest::prelude::*;

fn of(uid: u32, node: &str, start: i64, stop: Option<i64>) -> JobEvent {
    JobEvent { uid: Some(uid), ..event(7, node, start, stop) }
}

/// Start, user ID and devices of the runs of job 7.
fn runs_with_users(registry: &Registry) -> Vec<(Option<i64>, Option<u32>, Vec<String>)> {
    let one = |job: model::Job| {
        let places = job.start.map(|start| registry.allocations(&key(7), start).unwrap());
        let places = places.unwrap_or_default().into_iter();
        (
            job.start.map(seconds),
            job.facts.uid,
            places.map(|place| place.device.to_string()).collect(),
        )
    };
    registry.runs(&key(7)).unwrap().into_iter().map(one).collect()
}

fn nameless(registry: &Registry) -> Vec<String> {
    let page = registry.users_without_id(None, 9).unwrap();
    page.names.iter().map(|user| user.name.to_string()).collect()
}

fn listed(registry: &Registry, uid: u32) -> usize {
    let filter = Filter { reader: Reader::User(uid), ..Filter::default() };
    registry.list(&filter).unwrap().len()
}

#[test]
fn a_number_given_again_is_the_next_users() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    registry.apply(&[of(1000, "n1", 100, Some(900))], at(901)).unwrap();
    registry.apply(&[of(65534, "n1", 90_000, None)], at(90_001)).unwrap();
    let n1 = || vec!["n1".to_owned()];
    let runs = [(Some(100), Some(1000), n1()), (Some(90_000), Some(65534), n1())];
    assert_eq!(runs_with_users(&registry), runs);
    assert_eq!((listed(&registry, 1000), listed(&registry, 65534)), (1, 1));
    assert_eq!(registry.sees(Reader::User(65534), &key(7)).unwrap(), AccessLevel::All);
    let seen = registry.runs_seen(Reader::User(1000), &key(7)).unwrap();
    let n1_seen = seen.on(&DeviceId::new("n1").unwrap());
    assert_eq!(n1_seen.0, [(at(100), Some(at(900)))]);
    // A late report of the first run joins that run and recomputes all runs.
    registry.apply(&[of(1000, "n2", 110, Some(800))], at(90_010)).unwrap();
    let both = vec!["n1".to_owned(), "n2".to_owned()];
    let runs = [(Some(100), Some(1000), both), (Some(90_000), Some(65534), n1())];
    assert_eq!(runs_with_users(&registry), runs);
    // With a correct record there is no disagreement.
    let given = with(
        record(7, 90_000, None, &["n1"]),
        JobFacts { user: Some("nobody".into()), uid: Some(65534), ..JobFacts::default() },
    );
    registry.ingest(&[given], at(90_020)).unwrap();
    assert_eq!(registry.disagreements(at(91_000), |_| jobs::AgentPresence::Reporting).unwrap(), []);
}

#[test]
fn a_named_node_opens_no_other_time_of_a_recorded_run() {
    let own = |uid: u32, start, stop, nodes: &[&str]| {
        with(
            record(7, start, stop, nodes),
            JobFacts { user: Some(uid.to_string().into()), uid: Some(uid), ..JobFacts::default() },
        )
    };
    let n1 = DeviceId::new("n1").unwrap();
    // The time ranges in which user 2000 reads the ID on n1, where user 1000 had a job with this ID before.
    let reads =
        |registry: &Registry| registry.runs_seen(Reader::User(2000), &key(7)).unwrap().on(&n1).0;
    let past = of(2000, "n2", 150, None);
    let day = 24 * 3600;
    for (clock, earliest) in
        [(0, 899_940), (-day / 2, 899_940 - day / 2), (-899_850, 899_940 - day)]
    {
        let dir = tempfile::tempdir().unwrap();
        let registry = open(&dir);
        registry.apply(&[of(1000, "n1", 100, Some(900))], at(901)).unwrap();
        registry.ingest(&[own(1000, 100, Some(900), &["n1"])], at(902)).unwrap();
        registry.ingest(&[own(2000, 900_000, None, &["n1", "n2"])], at(900_001)).unwrap();
        registry.apply(&[of(2000, "n1", 900_002, None)], at(900_003)).unwrap();
        let clock_us = clock * Timestamp::SECOND;
        registry
            .apply_by(std::slice::from_ref(&past), at(900_010), (Reporter::Agent, clock_us))
            .unwrap();
        assert_eq!(reads(&registry), [(at(earliest), None)], "{clock}");
        // The lying node still reports after the end of the job.
        registry.apply(&[of(2000, "n1", 900_002, Some(905_000))], at(905_001)).unwrap();
        registry.ingest(&[own(2000, 900_000, Some(905_000), &["n1", "n2"])], at(905_002)).unwrap();
        let latest = 905_060 + (900_000 - 60 - earliest);
        assert_eq!(reads(&registry), [(at(earliest), Some(at(latest)))], "{clock}");
    }
}

#[test]
fn a_named_node_moves_no_time_of_a_recorded_run() {
    let job = |registry: &Registry| {
        let job = registry.job(&key(7)).unwrap().unwrap();
        (job.start, job.stop, job.state)
    };
    let honest = |stop| of(2000, "n2", 900_002, stop);
    let lies = [
        of(2000, "n1", 5, None),
        of(2000, "n1", 900_001, None),
        of(2000, "n1", 900_001, Some(990_000)),
        of(2000, "n1", 899_500, Some(990_000)),
    ];
    let nodes = ["n1", "n2"];
    let own = |stop| {
        with(record(7, 900_000, stop, &nodes), JobFacts { uid: Some(2000), ..JobFacts::default() })
    };
    for lie in &lies {
        for record_comes_last in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let registry = open(&dir);
            let ingest = |stop| registry.ingest(&[own(stop)], at(995_000)).unwrap();
            if !record_comes_last {
                ingest(None);
            }
            registry.apply(&[honest(None)], at(900_003)).unwrap();
            registry.apply(std::slice::from_ref(lie), at(995_000)).unwrap();
            if record_comes_last {
                ingest(None);
            }
            let (start, stop, state) = job(&registry);
            let start = start.unwrap();
            assert!(start >= at(899_940), "{lie:?} moves the start to {start}");
            assert_eq!((stop, state), (None, JobState::Running), "{lie:?}");
            registry.apply(&[honest(Some(905_000))], at(905_001)).unwrap();
            ingest(Some(905_001));
            let (start, stop, state) = job(&registry);
            assert!(start.unwrap() >= at(899_940), "{lie:?}");
            assert_eq!((stop, state), (Some(at(905_001)), JobState::Ended), "{lie:?}");
            // The false times apply only to the lying node's own allocation, which its samples show.
            let intervals = registry.allocations(&key(7), start.unwrap()).unwrap();
            assert_eq!(
                intervals.iter().filter(|interval| interval.device.as_str() == "n1").count(),
                1
            );
        }
    }
    // Node times within 1 min of the record count: nodes observe the first and the last process.
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    registry.ingest(&[own(Some(905_000))], at(905_100)).unwrap();
    registry.apply(&[of(2000, "n1", 899_980, Some(905_030))], at(905_100)).unwrap();
    let times = (Some(at(899_980)), Some(at(905_030)), JobState::Ended);
    assert_eq!(job(&registry), times);
}

#[test]
fn a_start_in_the_future_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let future = of(1000, "n2", 3600, None);
    assert_eq!(registry.apply(std::slice::from_ref(&future), at(100)).unwrap().rejected, 1);
    // The node's clock is an hour ahead, so by that clock the event is current.
    let clock_us = 3500 * Timestamp::SECOND;
    assert_eq!(
        registry.apply_by(&[future], at(100), (Reporter::Agent, clock_us)).unwrap().began,
        1
    );
}

#[test]
fn one_user_does_not_join_the_run_of_another_with_a_lost_end() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    registry.apply(&[of(1000, "n1", 100, None)], at(101)).unwrap();
    registry.apply(&[of(2000, "n2", 5000, None), of(2000, "n3", 5001, None)], at(5002)).unwrap();
    let two = vec!["n2".to_owned(), "n3".to_owned()];
    let runs = [(Some(100), Some(1000), vec!["n1".to_owned()]), (Some(5000), Some(2000), two)];
    assert_eq!(runs_with_users(&registry), runs);
}

#[test]
fn within_a_run_the_first_report_counts() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let silent = |node, start| JobEvent { uid: None, ..of(0, node, start, None) };
    registry.apply(&[silent("n1", 100)], at(101)).unwrap();
    registry.apply(&[of(1000, "n2", 105, None)], at(106)).unwrap();
    registry.apply(&[silent("n3", 110)], at(111)).unwrap();
    let three = ["n1", "n2", "n3"].map(str::to_owned).to_vec();
    assert_eq!(runs_with_users(&registry), [(Some(100), Some(1000), three.clone())]);
    assert_eq!(registry.job(&key(7)).unwrap().unwrap().facts.user.as_deref(), Some("alice"));
    // The same visit again, with facts that were missing before.
    registry.apply(&[of(1000, "n1", 100, Some(300))], at(301)).unwrap();
    assert_eq!(runs_with_users(&registry), [(Some(100), Some(1000), three)]);
    let intervals = registry.allocations(&key(7), at(100)).unwrap();
    assert_eq!(intervals[0].stop, Some(at(300)));
}

#[test]
fn another_user_has_another_number() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let update = |changes: RecordUpdate| registry.ingest_updates(vec![changes], at(200)).unwrap();
    let who = || {
        let job = registry.job(&key(7)).unwrap().unwrap();
        (job.facts.user.map(String::from), job.facts.uid)
    };
    let new = || RecordUpdate::new(key(7));
    update(RecordUpdate {
        start: Some(at(100)),
        facts: JobFacts { user: Some("ldapann".into()), uid: Some(5555), ..JobFacts::default() },
        ..new()
    });
    assert_eq!(who(), (Some("ldapann".to_owned()), Some(5555)));
    update(RecordUpdate { facts: of_user("ldapann"), ..new() });
    assert_eq!(who().1, Some(5555), "the same one");
    update(RecordUpdate { facts: of_user("alice"), ..new() });
    assert_eq!(who(), (Some("alice".to_owned()), Some(1000)));
    update(RecordUpdate { facts: of_user("stranger"), ..new() });
    assert_eq!(who(), (Some("stranger".to_owned()), None));
    // A user ID alone names another user, whose login name is unknown.
    update(RecordUpdate { facts: of_user("alice"), ..new() });
    update(RecordUpdate { facts: JobFacts { uid: Some(77), ..JobFacts::default() }, ..new() });
    assert_eq!(who(), (Some("77".to_owned()), Some(77)));
    assert_eq!(registry.runs(&key(7)).unwrap().len(), 1);
}

#[test]
fn another_users_start_is_another_job_and_the_first_has_no_reported_end() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let update = |changes: RecordUpdate| registry.ingest_updates(vec![changes], at(9000)).unwrap();
    let started = |user: &str, start| RecordUpdate {
        start: Some(at(start)),
        facts: of_user(user),
        ..RecordUpdate::new(key(7))
    };
    update(RecordUpdate {
        facts: JobFacts { account: Some("physics".into()), ..started("alice", 100).facts },
        ..started("alice", 100)
    });
    let stats = update(started("games", 5000));
    assert_eq!(stats, IngestStats { new: 1, ..IngestStats::default() });
    let facts = |job: model::Job| {
        (
            job.facts.user.unwrap().to_string(),
            job.facts.uid,
            job.facts.account,
            job.state,
            job.stop.map(seconds),
        )
    };
    let runs: Vec<_> = registry.runs(&key(7)).unwrap().into_iter().map(facts).collect();
    let first =
        ("alice".to_owned(), Some(1000), Some("physics".into()), JobState::Ended, Some(5000));
    assert_eq!(runs, [first, ("games".to_owned(), None, None, JobState::Running, None)]);
    // An earlier start is a correction of the same job.
    update(started("games", 4990));
    assert_eq!(registry.runs(&key(7)).unwrap().len(), 2);
}

#[test]
fn a_user_whom_the_machine_does_not_know_keeps_his_jobs() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let anns = |id, stop, uid| {
        with(
            record(id, 100, stop, &["n1"]),
            JobFacts { user: Some("ldapann".into()), uid, ..JobFacts::default() },
        )
    };
    registry.ingest(&[anns(7, None, Some(5555))], at(200)).unwrap();
    drop(registry);
    // After a restart, the accounting reports names alone: for the job that ran and for others.
    let registry = open(&dir);
    registry.ingest(&[anns(7, Some(900), None), anns(8, Some(900), None)], at(1000)).unwrap();
    assert_eq!(listed(&registry, 5555), 2);
    // Another scheduler's nodes report names alone, too.
    let oars = JobEvent { user: Some("ldapann".into()), uid: None, ..event(9, "n1", 2000, None) };
    registry.apply(&[oars], at(2001)).unwrap();
    assert_eq!(listed(&registry, 5555), 3);
    // A node's report of its own job does not affect other jobs.
    let given =
        |id, uid| JobEvent { user: Some("ldapbob".into()), uid, ..event(id, "n2", 50, None) };
    registry.apply(&[given(10, Some(6666)), given(11, None)], at(2001)).unwrap();
    assert_eq!(listed(&registry, 6666), 1);

    // A user without a known user ID is counted, and found once a user ID is reported.
    assert_eq!(nameless(&registry), ["ldapbob"]);
    let page = registry.users_without_id(None, 9).unwrap();
    assert_eq!(registry.jobs_without_id().unwrap(), 1);
    registry.ingest(&[with(anns(12, None, None), of_user("ldapbob"))], at(2002)).unwrap();
    assert_eq!(registry.jobs_without_id().unwrap(), 2);
    assert_eq!(registry.number_user("ldapbob", 6666, at(2003)).unwrap(), 2);
    assert_eq!((listed(&registry, 6666), registry.jobs_without_id().unwrap()), (3, 0));
    assert_eq!(registry.user_id_of(&page.names[0]).unwrap(), Some(6666));
    // The jobs stay theirs after a recomputation of their runs.
    registry.apply(&[JobEvent { start: at(20), ..given(11, None) }], at(2004)).unwrap();
    assert_eq!(listed(&registry, 6666), 3);
}

#[test]
fn a_node_with_a_wrong_clock_has_the_record_of_its_job() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let given = with(record(7, 1000, Some(1010), &["n1"]), of_user("alice"));
    registry.ingest(&[given], at(1100)).unwrap();
    let seen = JobEvent { uid: None, ..event(7, "n1", 1090, Some(1100)) };
    registry.apply_by(&[seen], at(1101), (Reporter::Agent, 90_000_000)).unwrap();
    // Times by the node's clock, as for its samples.
    assert_eq!(runs_with_users(&registry), [(Some(1090), Some(1000), vec!["n1".to_owned()])]);
    // The opposite offset, with the node's report first.
    let registry = open(&tempfile::tempdir().unwrap());
    let seen = JobEvent { uid: None, ..event(7, "n1", 910, Some(920)) };
    registry.apply_by(&[seen], at(1011), (Reporter::Agent, -90_000_000)).unwrap();
    registry.ingest(&[record(7, 1000, Some(1010), &["n1"])], at(1100)).unwrap();
    assert_eq!(runs_with_users(&registry).len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The owner of each run depends on the visits, not on the order of their arrival.
    #[test]
    fn any_order_gives_each_run_the_same_user(
        visits in proptest::collection::vec((0_usize..3, 0_i64..40, 0_i64..30, 0_u32..3), 1..9),
        order in proptest::collection::vec(0_usize..18, 0..30),
    ) {
        let nodes = ["a", "b", "c"];
        let mut events = Vec::new();
        for (node, start, long, user) in &visits {
            let (start, long) = (start * 20, long * 20);
            // One cgroup has one user.
            let known = events.iter().any(|e: &JobEvent| {
                e.device.as_str() == nodes[*node] && e.start == at(start)
            });
            if known { continue; }
            let uid = (*user > 0).then_some(1000 + user);
            for stop in [None, Some(start + long)] {
                events.push(JobEvent { uid, ..event(7, nodes[*node], start, stop) });
            }
        }
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (one, other) = (open(&one), open(&other));
        one.apply(&events, at(5000)).unwrap();
        for place in order {
            if let Some(event) = events.get(place) {
                other.apply(std::slice::from_ref(event), at(5000)).unwrap();
            }
        }
        events.reverse();
        other.apply(&events, at(5000)).unwrap();
        prop_assert_eq!(runs_with_users(&one), runs_with_users(&other));
    }
}

#[test]
fn an_end_in_the_future_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let ends = |stop| event(7, "n1", 100, Some(stop));
    assert_eq!(registry.apply(&[ends(1061)], at(1000)).unwrap().rejected, 1);
    assert_eq!(registry.job(&key(7)).unwrap(), None);
    assert_eq!(registry.apply(&[ends(1060)], at(1000)).unwrap().rejected, 0);
    // A node with a known clock offset of 1 h.
    let ahead = 3600 * Timestamp::SECOND;
    let of_n2 = event(8, "n2", 4000, Some(4500));
    assert_eq!(
        registry
            .apply_by(std::slice::from_ref(&of_n2), at(1000), (Reporter::Agent, ahead))
            .unwrap()
            .rejected,
        0
    );
    assert_eq!(registry.apply(&[of_n2], at(1000)).unwrap().rejected, 1);
}
