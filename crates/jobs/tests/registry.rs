//! Public interface of the registry: node reports, local jobs, queries.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use jobs::{
    Applied, Filter, JobName, Limits, Registration, Registry, RegistryError, Users, Window,
};
use model::{ClusterId, DeviceId, JobEvent, JobId, JobKey, JobState, Timestamp};
use proptest::prelude::*;

const DAY: i64 = 1_767_657_600; // 2026-01-06

fn at(second: i64) -> Timestamp {
    Timestamp::from_seconds(DAY + second)
}

fn device(name: &str) -> DeviceId {
    DeviceId::new(name).unwrap()
}

fn key(cluster: &str, id: i64) -> JobKey {
    JobKey { cluster: ClusterId::new(cluster).unwrap(), id: JobId::new(id).unwrap() }
}

fn event(cluster: &str, id: i64, node: &str, start: i64, stop: Option<i64>) -> JobEvent {
    JobEvent {
        key: key(cluster, id),
        display_id: id.to_string().into(),
        device: device(node),
        user: None,
        uid: Some(1000),
        start: at(start),
        stop: stop.map(at),
        monitor: None,
        oom_kills: Vec::new(),
    }
}

fn users() -> Users {
    Users::parse(b"alice:x:1000:1000::/home/alice:/bin/sh\n")
}

fn open(dir: &tempfile::TempDir) -> Registry {
    Registry::open(&dir.path().join("registry.sqlite"), Limits::default(), users).unwrap()
}

fn registration(uid: u32, node: &str, start: i64) -> Registration {
    let name = Some("demo".into());
    Registration {
        uid,
        user: None,
        name,
        device: device(node),
        start: at(start),
        is_verified: false,
    }
}

/// Start, stop and devices of the runs of a job, in seconds of the day.
fn shape(registry: &Registry, key: &JobKey) -> Vec<(i64, Option<i64>, Vec<String>)> {
    let seconds = |at: Timestamp| at.0 / Timestamp::SECOND - DAY;
    let run = |job: model::Job| {
        let start = job.start.unwrap();
        let places = registry.allocations(key, start).unwrap();
        let place = |a: model::Allocation| format!("{} {}", a.device, seconds(a.start));
        let places = places.into_iter().map(place).collect();
        (seconds(start), job.stop.map(seconds), places)
    };
    registry.runs(key).unwrap().into_iter().map(run).collect()
}

#[test]
fn a_job_starts_and_ends_and_duplicates_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let (start, end) = (event("oar", 7, "n1", 10, None), event("oar", 7, "n1", 10, Some(90)));
    let began = registry.apply(std::slice::from_ref(&start), at(11)).unwrap();
    assert_eq!(began, Applied { began: 1, ..Applied::default() });
    let job = registry.job(&start.key).unwrap().unwrap();
    assert_eq!((job.state, job.facts.user.as_deref()), (JobState::Running, Some("alice")));
    assert_eq!(registry.running().unwrap(), 1);

    let ended = registry.apply(std::slice::from_ref(&end), at(91)).unwrap();
    assert_eq!(ended, Applied { ended: 1, ..Applied::default() });
    let again = registry.apply(&[start.clone(), end, start.clone()], at(95)).unwrap();
    assert_eq!(again, Applied { known: 3, ..Applied::default() });
    drop(registry);

    let registry = open(&dir);
    let job = registry.job(&start.key).unwrap().unwrap();
    assert_eq!((job.state, job.stop), (JobState::Ended, Some(at(90))));
    assert_eq!(registry.running().unwrap(), 0);
}

#[test]
fn a_job_known_by_its_users_name_is_that_users() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let oar = |id, user: &str| JobEvent {
        user: Some(user.into()),
        uid: None,
        ..event("oar", id, "n1", 10, None)
    };
    registry.apply(&[oar(7, "alice"), oar(8, "nobody-known")], at(20)).unwrap();
    let own = Filter { uid: Some(1000), ..Filter::default() };
    let jobs: Vec<_> = registry.list(&own).unwrap().into_iter().map(|job| job.job.key).collect();
    assert_eq!(jobs, [key("oar", 7)]);
    assert_eq!(registry.job(&key("oar", 8)).unwrap().unwrap().facts.uid, None);
}

#[test]
fn an_end_before_its_start_is_an_end_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let first = registry.apply(&[event("oar", 7, "n1", 10, Some(90))], at(95)).unwrap();
    assert_eq!((first.began, first.ended), (1, 1));
    registry.apply(&[event("oar", 7, "n1", 10, None)], at(96)).unwrap();
    assert_eq!(shape(&registry, &key("oar", 7)), [(10, Some(90), vec!["n1 10".to_owned()])]);
    // The clock was set back between start and end.
    registry.apply(&[event("oar", 8, "n1", 50, Some(20))], at(60)).unwrap();
    assert_eq!(shape(&registry, &key("oar", 8)), [(50, Some(50), vec!["n1 50".to_owned()])]);
}

#[test]
fn a_number_that_runs_again_is_another_run() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let first = [event("slurm", 7, "n1", 10, Some(600)), event("slurm", 7, "n2", 12, Some(601))];
    let second = [event("slurm", 7, "n1", 800, None), event("slurm", 7, "n3", 801, None)];
    registry.apply(&second, at(900)).unwrap();
    registry.apply(&first, at(901)).unwrap();
    let runs = shape(&registry, &key("slurm", 7));
    assert_eq!(runs[0], (10, Some(601), vec!["n1 10".to_owned(), "n2 12".to_owned()]));
    assert_eq!(runs[1], (800, None, vec!["n1 800".to_owned(), "n3 801".to_owned()]));
    assert_eq!(registry.job(&key("slurm", 7)).unwrap().unwrap().start, Some(at(800)));
}

#[test]
fn impossible_times_and_too_many_visits_are_rejected_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits { visits_per_job_max: 2, visits_max: 3, ..Limits::default() };
    let registry = Registry::open(&dir.path().join("r.sqlite"), limits, users).unwrap();
    let rejected = |events: &[JobEvent]| registry.apply(events, at(100)).unwrap().rejected;
    assert_eq!(rejected(&[event("oar", 1, "n1", -DAY + 5, None)]), 1);
    assert_eq!(rejected(&[event("oar", 1, "n1", 200_000, None)]), 1);
    let nodes: Vec<JobEvent> = ["a", "b", "c"].map(|node| event("oar", 1, node, 10, None)).to_vec();
    assert_eq!(rejected(&nodes), 1, "three visits of one job");
    assert_eq!(rejected(&[event("oar", 2, "d", 10, None), event("oar", 3, "e", 10, None)]), 1);
    let full = registry.register_local(&registration(1, "a", 20));
    assert!(matches!(full, Err(RegistryError::Full(3))));
}

#[test]
fn local_jobs_have_numbers_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    // A node reports an ID without a registration, after the loss of a data directory.
    registry.apply(&[event("local", 2, "n9", 1, Some(2))], at(3)).unwrap();
    let first = registry.register_local(&registration(1000, "n1", 10)).unwrap();
    let second = registry.register_local(&registration(1001, "n1", 11)).unwrap();
    assert_eq!((first.id.get(), second.id.get()), (1, 3));
    assert_eq!(
        registry.local_jobs_of(&device("n1")).unwrap(),
        [(first.id, 1000), (second.id, 1001)]
    );
    assert_eq!(registry.local_jobs_of(&device("n2")).unwrap(), []);

    registry.end_local(first.id, at(20), Some(3)).unwrap();
    let job = registry.job(&first).unwrap().unwrap();
    assert_eq!(
        (job.state, job.facts.exit_code, job.stop),
        (JobState::Failed, Some(3), Some(at(20)))
    );
    assert_eq!(
        (job.facts.name.as_deref(), job.facts.user.as_deref()),
        (Some("demo"), Some("alice"))
    );
    assert_eq!(registry.job(&second).unwrap().unwrap().facts.user.as_deref(), Some("1001"));
    drop(registry);

    let registry = open(&dir);
    let third = registry.register_local(&registration(1000, "n1", 30)).unwrap();
    assert_eq!(third.id.get(), 4, "numbers are never given twice");
    let unknown = registry.end_local(JobId::new(99).unwrap(), at(40), None);
    assert!(matches!(unknown, Err(RegistryError::Unknown(_))));
    assert!(registry.end_local(JobId::new(2).unwrap(), at(40), None).is_err(), "not registered");
}

#[test]
fn local_jobs_of_an_older_folder_pass_the_numbers_that_a_database_knows() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    assert_eq!(registry.last_local().unwrap(), 0);
    assert!(registry.pass_local(JobId::new(41).unwrap()).unwrap());
    assert!(!registry.pass_local(JobId::new(7).unwrap()).unwrap());
    let next = registry.register_local(&registration(1000, "n1", 10)).unwrap();
    assert_eq!((next.id.get(), registry.last_local().unwrap()), (42, 42));
}

#[test]
fn an_agent_is_queried_about_jobs_without_an_end() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let given = [
        event("oar", 8, "n1", 5, None),
        event("oar", 7, "n1", 1, Some(4)),
        event("slurm", 7, "n1", 2, None),
        event("slurm", 7, "n2", 3, None),
    ];
    registry.apply(&given, at(6)).unwrap();
    // A registered local job may run without a cgroup.
    registry.register_local(&registration(1000, "n1", 6)).unwrap();
    let open = registry.open_jobs_of(&device("n1")).unwrap();
    assert_eq!(open, [(key("slurm", 7), at(2)), (key("oar", 8), at(5))]);
    registry.apply(&[event("slurm", 7, "n1", 2, Some(9))], at(10)).unwrap();
    assert_eq!(registry.open_jobs_of(&device("n1")).unwrap(), [(key("oar", 8), at(5))]);
}

#[test]
fn a_local_job_with_a_killed_command_ends_with_its_cgroup() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let job = registry.register_local(&registration(1000, "n1", 10)).unwrap();
    let id = job.id.get();
    // Another node cannot change the job.
    let elsewhere = registry.apply(&[event("local", id, "n2", 11, Some(12))], at(12)).unwrap();
    assert_eq!(elsewhere.rejected, 1);
    registry.apply(&[event("local", id, "n1", 11, None)], at(12)).unwrap();
    assert_eq!(registry.local_jobs_of(&device("n1")).unwrap().len(), 1);
    let end = registry.apply(&[event("local", id, "n1", 11, Some(40))], at(41)).unwrap();
    assert_eq!(end.ended, 1);
    assert_eq!(shape(&registry, &job), [(10, Some(40), vec!["n1 10".to_owned()])]);
    assert_eq!(registry.local_jobs_of(&device("n1")).unwrap(), []);
    // The later report of the command adds its exit code and does not change the end.
    registry.end_local(job.id, at(45), Some(0)).unwrap();
    let ended = registry.job(&job).unwrap().unwrap();
    assert_eq!(
        (ended.stop, ended.facts.exit_code, ended.state),
        (Some(at(40)), Some(0), JobState::Ended)
    );
}

#[test]
fn names_are_resolved_or_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let local = registry.register_local(&registration(1000, "n1", 10)).unwrap();
    let resolve = |text: &str| registry.resolve(&text.parse::<JobName>().unwrap());
    assert_eq!(resolve("1").unwrap(), local);
    registry.apply(&[event("slurm", 1, "n1", 20, None)], at(30)).unwrap();
    assert_eq!(
        resolve("1").unwrap_err().to_string(),
        "1 is ambiguous: local:1 and slurm:1; add the cluster"
    );
    assert_eq!(resolve("local:1").unwrap(), local);
    assert_eq!(resolve("slurm:1").unwrap(), key("slurm", 1));
    registry.apply(&[event("oar", 1, "n1", 20, None)], at(30)).unwrap();
    let error = resolve("1").unwrap_err().to_string();
    assert_eq!(error, "1 is ambiguous: local:1 and oar:1 and slurm:1; add the cluster");
    let mut task = event("slurm", 130, "n1", 20, None);
    task.display_id = "123_4".into();
    registry.apply(&[task], at(30)).unwrap();
    assert_eq!(resolve("123_4").unwrap(), key("slurm", 130));
    assert_eq!(resolve("slurm:123_4").unwrap(), key("slurm", 130));
    assert!(matches!(resolve("oar:123_4"), Err(RegistryError::Unknown(_))));
    assert!(matches!(resolve("77"), Err(RegistryError::Unknown(_))));
}

#[test]
fn lists_and_intervals_are_filtered() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let mut bobs = event("oar", 2, "n2", 100, None);
    bobs.uid = Some(2000);
    let events = [event("oar", 1, "n1", 10, Some(50)), bobs, event("oar", 3, "n1", 40, Some(200))];
    registry.apply(&events, at(300)).unwrap();
    let ids = |filter: Filter| {
        let listed = registry.list(&filter).unwrap();
        listed.iter().map(|listed| listed.job.key.id.get()).collect::<Vec<_>>()
    };
    let all = Filter::default;
    assert_eq!(ids(all()), [2, 3, 1]);
    assert_eq!(ids(Filter { state: Some(JobState::Running), ..all() }), [2]);
    assert_eq!(ids(Filter { state: Some(JobState::Ended), ..all() }), [3, 1]);
    assert_eq!(ids(Filter { user: Some("alice".to_owned()), ..all() }), [3, 1]);
    assert_eq!(ids(Filter { user: Some("2000".to_owned()), ..all() }), [2]);
    assert_eq!(ids(Filter { uid: Some(2000), ..all() }), [2]);
    assert_eq!(ids(Filter { device: Some(device("n1")), ..all() }), [3, 1]);
    assert_eq!(ids(Filter { from: Some(at(60)), to: Some(at(90)), ..all() }), [3]);
    assert_eq!(ids(Filter { limit: Some(1), ..all() }), [2]);
    assert_eq!(ids(Filter { cluster: Some(ClusterId::local()), ..all() }), []);

    assert_eq!(registry.every_run(&all()).unwrap().len(), 3);
    assert_eq!(registry.keys_of(JobId::new(2).unwrap()).unwrap(), [key("oar", 2)]);
    let limits = Limits { rows_max: 2, ..Limits::default() };
    let narrow = Registry::open(&dir.path().join("registry.sqlite"), limits, users).unwrap();
    assert!(matches!(narrow.every_run(&all()), Err(RegistryError::TooMany(2))));
    assert!(matches!(narrow.intervals(&Window::default()), Err(RegistryError::TooMany(2))));
    assert_eq!(narrow.list(&all()).unwrap().len(), 2, "a list is cut");

    let intervals = |window: Window| registry.intervals(&window).unwrap();
    assert_eq!(intervals(Window::default()).len(), 3);
    let on_n1 =
        intervals(Window { device: Some(device("n1")), from: Some(at(60)), ..Window::default() });
    assert_eq!((on_n1.len(), on_n1[0].key.id.get(), on_n1[0].stop), (1, 3, Some(at(200))));
    assert_eq!(intervals(Window { job: Some(key("oar", 2)), ..Window::default() })[0].stop, None);
    assert_eq!(intervals(Window { uid: Some(2000), ..Window::default() }).len(), 1);
    assert_eq!(intervals(Window { to: Some(at(20)), ..Window::default() }).len(), 1);
}

#[test]
fn a_start_on_many_nodes_costs_a_row_each() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let node = |n: i64, stop| event("slurm", 9, &format!("n{n}"), 10 + n % 7, stop);
    let starts: Vec<JobEvent> = (0..3000).map(|n| node(n, None)).collect();
    let ends: Vec<JobEvent> = (0..3000).map(|n| node(n, Some(900 + n % 5))).collect();
    assert_eq!(registry.apply(&starts, at(20)).unwrap().began, 3000);
    assert_eq!(registry.apply(&ends, at(950)).unwrap().ended, 3000);
    let runs = shape(&registry, &key("slurm", 9));
    assert_eq!((runs.len(), runs[0].0, runs[0].1, runs[0].2.len()), (1, 10, Some(904), 3000));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The registry's content depends on the reports, not on their order or number. The fast paths agree
    /// with a full recomputation.
    #[test]
    fn any_order_gives_the_same_registry(
        facts in proptest::collection::vec((0_usize..3, 0_i64..40, 0_i64..30, 0_u8..3), 1..12),
        order in proptest::collection::vec(0_usize..24, 0..40),
    ) {
        let nodes = ["a", "b", "c"];
        let mut events = Vec::new();
        for (node, start, long, given) in &facts {
            let (start, long) = (start * 20, long * 20);
            if *given != 1 { events.push(event("slurm", 5, nodes[*node], start, None)); }
            if *given != 0 { events.push(event("slurm", 5, nodes[*node], start, Some(start + long))); }
        }
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (one, other) = (open(&one), open(&other));
        one.apply(&events, at(5000)).unwrap();
        // Some events first and one by one, then all in reverse order.
        for place in order {
            if let Some(event) = events.get(place) {
                other.apply(std::slice::from_ref(event), at(5000)).unwrap();
            }
        }
        events.reverse();
        other.apply(&events, at(5000)).unwrap();
        prop_assert_eq!(shape(&one, &key("slurm", 5)), shape(&other, &key("slurm", 5)));
        let (a, b) = (one.intervals(&Window::default()).unwrap(), other.intervals(&Window::default()).unwrap());
        prop_assert_eq!(a, b);
    }
}

#[test]
fn a_registered_job_is_on_a_device_once_its_agent_saw_it() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let job = registry.register_local(&registration(1000, "n1", 10)).unwrap();
    let here = Registration { is_verified: true, ..registration(1000, "n1", 20) };
    let believed = registry.register_local(&here).unwrap();
    registry.apply(&[event("oar", 7, "n1", 1, Some(4))], at(30)).unwrap();
    let seconds = |at: Timestamp| at.0 / Timestamp::SECOND - DAY;
    let verified = |registry: &Registry| {
        let intervals =
            registry.verified(&Window { uid: Some(1000), ..Window::default() }).unwrap();
        let one = |interval: &jobs::Interval| {
            (interval.key.clone(), seconds(interval.start), interval.stop.map(seconds))
        };
        intervals.iter().map(one).collect::<Vec<_>>()
    };
    let oar = (key("oar", 7), 1, Some(4));
    let all = || registry.intervals(&Window::default()).unwrap().len();
    assert_eq!(all(), 3, "where its user says it is, is reported as before");
    assert_eq!(verified(&registry), [oar.clone(), (believed.clone(), 20, None)]);
    let id = job.id.get();
    // A report of another node, and a duplicate.
    registry.apply(&[event("local", id, "n2", 11, Some(12))], at(31)).unwrap();
    assert_eq!(verified(&registry).len(), 2);
    for _ in 0..2 {
        registry.apply(&[event("local", id, "n1", 12, None)], at(31)).unwrap();
    }
    assert_eq!(verified(&registry)[1], (job.clone(), 12, None));
    // The user reports an end in the future; the node reports the real end.
    registry.end_local(job.id, at(9000), None).unwrap();
    assert_eq!(verified(&registry)[1], (job.clone(), 12, Some(9000)));
    registry.apply(&[event("local", id, "n1", 12, Some(40))], at(41)).unwrap();
    registry.apply(&[event("local", id, "n1", 12, Some(50))], at(51)).unwrap();
    assert_eq!(verified(&registry)[1], (job, 12, Some(40)));
    registry.end_local(believed.id, at(60), None).unwrap();
    assert_eq!(verified(&registry)[2], (believed, 20, Some(60)));
}

#[test]
fn rules_promote_for_local_jobs_where_an_agent_saw_them() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let job = registry.register_local(&registration(1000, "n1", 10)).unwrap();
    let nodes = || registry.running_jobs().unwrap()[0].nodes.clone();
    assert_eq!(nodes(), []);
    registry.apply(&[event("local", job.id.get(), "n1", 12, None)], at(13)).unwrap();
    assert_eq!(nodes(), [device("n1")]);
}
