//! Scheduler records together with node reports.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod fixtures;

use fixtures::{
    DAY, at, device, event, exited, key, of_account, of_user, open, record, seconds, shape, share,
    waiting, with,
};
use jobs::{
    Filter, IngestStats, JobName, JobRecord, Limits, RecordUpdate, Registry, Resources, Users,
    Window,
};
use model::{ClusterId, JobFacts, JobId, JobKey, JobState};
use proptest::prelude::*;

#[test]
fn a_record_is_stored_and_a_duplicate_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let given = record(7, 100, Some(900), &["n1", "pdu-1"]);
    let stats = registry.ingest(std::slice::from_ref(&given), at(1000)).unwrap();
    assert_eq!(stats, IngestStats { new: 1, ..IngestStats::default() });
    let again = registry.ingest(std::slice::from_ref(&given), at(2000)).unwrap();
    assert_eq!(again, IngestStats { known: 1, ..IngestStats::default() });
    drop(registry);

    let registry = open(&dir);
    let whole = registry.whole(&key(7)).unwrap().unwrap();
    let job = &whole.job;
    assert_eq!((job.state, job.start, job.stop), (JobState::Ended, Some(at(100)), Some(at(900))));
    assert_eq!((job.facts.user.as_deref(), job.facts.uid), (Some("alice"), Some(1000)));
    assert_eq!((&*job.display_id, job.facts.account.as_deref()), ("7", Some("physics")));
    assert_eq!(
        (job.facts.project.as_deref(), job.facts.queue.as_deref()),
        (Some("waves"), Some("long"))
    );
    assert_eq!(
        (job.facts.name.as_deref(), job.facts.state_word.as_deref()),
        (Some("solve"), Some("COMPLETED"))
    );
    assert_eq!((job.submit, &job.facts.types), (Some(at(95)), &given.facts.types));
    assert_eq!(
        (&job.facts.requested, &job.facts.used),
        (&given.facts.requested, &given.facts.used)
    );
    assert_eq!((whole.nodes, whole.steps), (given.nodes, given.steps));
    let places: Vec<_> = whole.allocations.iter().map(|a| a.device.as_str()).collect();
    assert_eq!(places, ["n1", "pdu-1"]);
    assert_eq!(registry.running().unwrap(), 0);
}

#[test]
fn a_job_waits_runs_and_ends() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    registry.ingest(&[waiting(7, 95)], at(96)).unwrap();
    let queue = || Some("long".to_owned());
    assert_eq!(shape(&registry, 7), [(JobState::Waiting, None, None, queue(), vec![])]);
    assert_eq!(registry.running().unwrap(), 0);
    let of = |state| {
        let filter = Filter { state: Some(state), ..Filter::default() };
        registry.list(&filter).unwrap().len()
    };
    assert_eq!([JobState::Waiting, JobState::Running, JobState::Ended].map(of), [1, 0, 0]);

    registry.ingest(&[record(7, 100, None, &["n1", "n2"])], at(101)).unwrap();
    let places = vec!["n1 100-...".to_owned(), "n2 100-...".to_owned()];
    assert_eq!(shape(&registry, 7), [(JobState::Running, Some(100), None, queue(), places)]);
    assert_eq!([JobState::Waiting, JobState::Running, JobState::Ended].map(of), [0, 1, 0]);

    // The node with a visit has precedence; the other node has no agent.
    registry.apply(&[event(7, "n1", 102, None)], at(103)).unwrap();
    let places = vec!["n1 102-...".to_owned(), "n2 100-...".to_owned()];
    assert_eq!(shape(&registry, 7), [(JobState::Running, Some(102), None, queue(), places)]);
    assert_eq!(registry.running().unwrap(), 1);

    registry.apply(&[event(7, "n1", 102, Some(300))], at(301)).unwrap();
    let places = vec!["n1 102-300".to_owned(), "n2 100-300".to_owned()];
    assert_eq!(shape(&registry, 7), [(JobState::Ended, Some(102), Some(300), queue(), places)]);

    // A late correction.
    let failed = JobRecord {
        state: JobState::Failed,
        ..with(record(7, 90, Some(299), &["n1", "n2", "n3"]), exited(137))
    };
    let failed = JobRecord { submit: at(95), ..failed };
    let stats = registry.ingest(&[failed], at(9000)).unwrap();
    assert_eq!(stats, IngestStats { changed: 1, ..IngestStats::default() });
    let places = ["n1 102-300", "n2 90-299", "n3 90-299"].map(str::to_owned).to_vec();
    assert_eq!(shape(&registry, 7), [(JobState::Failed, Some(102), Some(300), queue(), places)]);
    assert_eq!(of(JobState::Failed), 1);
}

#[test]
fn records_are_found_by_device_and_time() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let records = [record(7, 100, Some(900), &["n1", "bmc-1"]), record(8, 500, None, &["n1"])];
    registry.ingest(&records, at(1000)).unwrap();
    registry.apply(&[event(7, "n1", 101, Some(899))], at(1000)).unwrap();
    let intervals = |window: Window| {
        let intervals = registry.intervals(&window).unwrap();
        let one = |interval: jobs::Interval| {
            let stop = interval.stop.map_or("...".to_owned(), |stop| seconds(stop).to_string());
            format!("{} {} {}-{stop}", interval.key.id, interval.device, seconds(interval.start))
        };
        intervals.into_iter().map(one).collect::<Vec<_>>()
    };
    assert_eq!(intervals(Window::default()), ["7 bmc-1 100-900", "7 n1 101-899", "8 n1 500-..."]);
    let on = |name| Window { device: Some(device(name)), ..Window::default() };
    assert_eq!(intervals(on("bmc-1")), ["7 bmc-1 100-900"]);
    let late = Window { from: Some(at(900)), ..on("n1") };
    assert_eq!(intervals(late), ["8 n1 500-..."]);
    let early = Window { to: Some(at(100)), job: Some(key(7)), ..Window::default() };
    assert_eq!(intervals(early), ["7 bmc-1 100-900"]);
    assert_eq!(intervals(Window { uid: Some(4), ..Window::default() }), [""; 0]);
    let listed = registry.list(&Filter { device: Some(device("bmc-1")), ..Filter::default() });
    let listed = listed.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].devices, [device("bmc-1"), device("n1")]);
}

#[test]
fn the_share_of_a_device_stands_beside_the_allocation() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let mut given = record(7, 100, Some(900), &["n1", "bmc-1"]);
    (given.nodes[0].gpus, given.nodes[1].cpus) = (Some(2), None);
    // The scheduler reuses the job ID with more cores.
    let mut again = record(7, 2000, None, &["n1"]);
    again.nodes[0].cpus = Some(16);
    registry.ingest(&[given, again], at(2001)).unwrap();
    let seen = [event(7, "n1", 101, Some(899)), event(7, "n1", 2000, None)];
    // No scheduler reports job 8. The record of job 7 does not name n2, so that visit is in no run.
    let untold = [event(8, "n1", 500, None), event(7, "n2", 102, Some(899))];
    registry.apply(&seen, at(2001)).unwrap();
    registry.apply(&untold, at(2001)).unwrap();
    let shares = |shares| {
        let intervals = registry.intervals(&Window { shares, ..Window::default() }).unwrap();
        let one = |interval: jobs::Interval| {
            let share = (interval.share.cpus, interval.share.gpus, interval.share.memory_bytes);
            (interval.key.id.get(), interval.device.to_string(), seconds(interval.start), share)
        };
        intervals.into_iter().map(one).collect::<Vec<_>>()
    };
    let (none, memory) = ((None, None, None), Some(1 << 30));
    let (bmc, n1) = ("bmc-1".to_owned(), "n1".to_owned());
    let expected = [
        (7, bmc, 100, (None, None, memory)),
        (7, n1.clone(), 101, (Some(4), Some(2), memory)),
        (8, n1.clone(), 500, none),
        (7, n1, 2000, (Some(16), None, memory)),
    ];
    assert_eq!(shares(true), expected);
    assert_eq!(shares(false), expected.map(|(id, device, start, _)| (id, device, start, none)));
}

#[test]
fn each_run_of_a_number_has_its_own_record() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let mut second = record(7, 800, None, &["n1"]);
    second.facts.queue = Some("short".into());
    registry.apply(&[event(7, "n1", 801, None), event(7, "n1", 101, Some(600))], at(900)).unwrap();
    registry
        .ingest(&[second, record(7, 100, Some(601), &["n1"]), waiting(7, 2000)], at(900))
        .unwrap();
    let runs = shape(&registry, 7);
    let facts: Vec<_> =
        runs.iter().map(|(state, start, _, q, _)| (*state, *start, q.as_deref())).collect();
    assert_eq!(
        facts,
        [
            (JobState::Ended, Some(101), Some("long")),
            (JobState::Running, Some(801), Some("short")),
            (JobState::Waiting, None, Some("long")),
        ]
    );
    assert_eq!(registry.resolve(&"7".parse::<JobName>().unwrap()).unwrap(), key(7));
}

#[test]
fn steps_that_come_and_go_are_one_run_where_a_record_has_one_run() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let steps = [event(7, "n1", 100, Some(110)), event(7, "n1", 400, Some(420))];
    registry.apply(&steps, at(1000)).unwrap();
    assert_eq!(shape(&registry, 7).len(), 2);
    registry.ingest(&[record(7, 99, Some(900), &["n1"])], at(1000)).unwrap();
    let one = |stop| {
        let runs = shape(&registry, 7);
        assert_eq!((runs.len(), runs[0].1, runs[0].2), (1, Some(100), Some(stop)));
        assert_eq!(runs[0].4.len(), if stop == 420 { 2 } else { 3 });
    };
    one(420);
    registry.apply(&[event(7, "n1", 700, None), event(7, "n1", 700, Some(710))], at(1000)).unwrap();
    one(710);
    // The record was wrong: the second visit has no record.
    let mut short = record(7, 99, Some(120), &["n1"]);
    short.submit = at(94);
    registry.ingest(&[short], at(1000)).unwrap();
    assert_eq!(shape(&registry, 7).len(), 3);
}

#[test]
fn the_scheduler_names_the_user_and_without_it_the_node() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    registry.apply(&[event(7, "n1", 100, None)], at(101)).unwrap();
    let without_user = JobRecord {
        facts: JobFacts { user: None, ..record(7, 100, None, &["n1"]).facts },
        ..record(7, 100, None, &["n1"])
    };
    registry.ingest(&[without_user], at(102)).unwrap();
    assert_eq!(registry.job(&key(7)).unwrap().unwrap().facts.uid, Some(1000));
    let other = with(
        record(7, 100, None, &["n1"]),
        JobFacts { user: Some("bob".into()), uid: Some(2000), ..JobFacts::default() },
    );
    registry.ingest(&[other], at(103)).unwrap();
    let job = registry.job(&key(7)).unwrap().unwrap();
    assert_eq!((job.facts.user.as_deref(), job.facts.uid), (Some("bob"), Some(2000)));
    assert_eq!(registry.owner(&key(7)).unwrap(), Some(2000));
}

#[test]
fn impossible_values_are_rejected_and_long_ones_are_cut() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits { records_max: 2, visits_per_job_max: 2, ..Limits::default() };
    let registry = Registry::open(&dir.path().join("r.sqlite"), limits, Users::default).unwrap();
    let ingest = |record: JobRecord| registry.ingest(&[record], at(1000)).unwrap();
    let rejected = IngestStats { rejected: 1, ..IngestStats::default() };
    assert_eq!(ingest(record(1, -DAY, None, &[])), rejected);
    assert_eq!(ingest(record(1, 200_000, None, &[])), rejected);
    let local = JobKey { cluster: ClusterId::local(), id: JobId::new(1).unwrap() };
    assert_eq!(ingest(JobRecord { key: local, ..record(1, 100, None, &[]) }), rejected);
    for seconds in [f64::NAN, f64::INFINITY, -1.0] {
        let used = Resources { cpu_seconds: Some(seconds), ..Resources::default() };
        assert_eq!(
            ingest(with(record(1, 100, None, &[]), JobFacts { used, ..JobFacts::default() })),
            rejected
        );
    }
    let long = with(
        record(1, 100, None, &["a", "b", "c"]),
        JobFacts { name: Some("ä\n".repeat(1000).into()), ..JobFacts::default() },
    );
    assert_eq!(ingest(long), IngestStats { new: 1, cut: 1, ..IngestStats::default() });
    let whole = registry.whole(&key(1)).unwrap().unwrap();
    assert_eq!(whole.nodes.len(), 2);
    let name = whole.job.facts.name.unwrap();
    assert!(name.len() <= 1024 && name.starts_with("ä ä "), "{name}");
    assert_eq!(ingest(record(2, 100, None, &[])).new, 1);
    assert_eq!(ingest(record(3, 100, None, &[])), rejected, "full");
    assert_eq!(
        ingest(record(2, 100, Some(200), &[])).changed,
        1,
        "what is known is kept up to date"
    );
}

#[test]
fn times_agree_with_the_state() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let given = |record: JobRecord, received| {
        registry.ingest(std::slice::from_ref(&record), at(received)).unwrap();
        let job = registry.job(&record.key).unwrap().unwrap();
        (job.start.map(seconds), job.stop.map(seconds))
    };
    // A scheduler's estimate of the start.
    let guess = JobRecord { start: Some(at(5000)), ..waiting(1, 95) };
    assert_eq!(given(guess, 100), (None, None));
    let planned = JobRecord { stop: Some(at(5000)), ..record(2, 100, None, &[]) };
    assert_eq!(given(planned, 200), (Some(100), None));
    let over = JobRecord { stop: None, ..record(3, 100, Some(200), &[]) };
    assert_eq!(given(over.clone(), 300), (Some(100), Some(300)));
    assert_eq!(given(over, 400), (Some(100), Some(300)), "the first to say so counts");
    let backwards = record(4, 100, Some(50), &[]);
    assert_eq!(given(backwards, 300), (Some(100), Some(100)));
    let never = JobRecord { start: None, stop: Some(at(150)), ..record(5, 100, Some(150), &[]) };
    assert_eq!(given(never, 300), (None, Some(150)));
}

#[test]
fn a_job_is_reported_piece_by_piece() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let update = |changes: RecordUpdate, received| {
        registry.ingest_updates(vec![changes], at(received)).unwrap();
        registry.whole(&key(7)).unwrap().unwrap()
    };
    let new = || RecordUpdate::new(key(7));
    let whole = update(RecordUpdate { facts: of_user("alice"), ..new() }, 10);
    assert_eq!((whole.job.state, whole.job.submit), (JobState::Waiting, Some(at(10))));
    let started = RecordUpdate { start: Some(at(20)), nodes: Some(vec![share("n1")]), ..new() };
    let whole = update(started.clone(), 21);
    assert_eq!((whole.job.state, whole.job.start), (JobState::Running, Some(at(20))));
    assert_eq!((whole.job.facts.uid, whole.allocations.len()), (Some(1000), 1));
    let whole = update(RecordUpdate { facts: of_account("physics"), ..new() }, 22);
    assert_eq!((whole.job.state, whole.nodes.len()), (JobState::Running, 1));
    let ended = RecordUpdate { stop: Some(at(90)), facts: exited(3), ..new() };
    let whole = update(ended, 91);
    assert_eq!((whole.job.state, whole.job.stop), (JobState::Failed, Some(at(90))));
    // A correction.
    let whole = update(RecordUpdate { start: Some(at(15)), ..new() }, 100);
    assert_eq!((whole.job.state, whole.job.start), (JobState::Failed, Some(at(15))));
    assert_eq!(registry.runs(&key(7)).unwrap().len(), 1);
    // The scheduler reuses the job ID.
    let whole = update(RecordUpdate { start: Some(at(500)), ..new() }, 501);
    assert_eq!((whole.job.state, whole.job.facts.account), (JobState::Running, None));
    assert_eq!(registry.runs(&key(7)).unwrap().len(), 2);
    // An update of the first submission, by its time.
    let first = RecordUpdate { submit: Some(at(10)), facts: of_account("chemistry"), ..new() };
    update(first, 600);
    let runs = registry.runs(&key(7)).unwrap();
    assert_eq!((runs.len(), runs[0].facts.account.as_deref()), (2, Some("chemistry")));
}

#[test]
fn an_arrays_own_number_stands_for_its_parts() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let part = |id, index| JobRecord {
        display_id: format!("40_{index}").into(),
        ..with(
            record(id, 100, None, &["n1"]),
            JobFacts { part_of: Some(40), array_index: Some(index), ..JobFacts::default() },
        )
    };
    registry.ingest(&[part(41, 1), part(42, 2), record(43, 100, None, &[])], at(200)).unwrap();
    let parts = Filter { part_of: Some(40), ..Filter::default() };
    let mut ids: Vec<_> =
        registry.list(&parts).unwrap().iter().map(|listed| listed.job.key.id.get()).collect();
    ids.sort_unstable();
    assert_eq!(ids, [41, 42]);
    for name in ["40", "slurm:40"] {
        let error = registry.resolve(&name.parse::<JobName>().unwrap()).unwrap_err().to_string();
        assert!(error.contains("part_of=40"), "{error}");
    }
    let unknown = registry.resolve(&"oar:40".parse::<JobName>().unwrap()).unwrap_err();
    assert_eq!(unknown.to_string(), "there is no job oar:40");
    // Slurm gives the ID of the whole to one of its parts.
    registry.ingest(&[part(40, 3)], at(200)).unwrap();
    assert_eq!(registry.resolve(&"40".parse::<JobName>().unwrap()).unwrap(), key(40));
}

#[test]
fn a_late_exit_code_decides_how_the_job_ended() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let update = |changes: RecordUpdate| {
        registry.ingest_updates(vec![changes], at(500)).unwrap();
        registry.job(&key(7)).unwrap().unwrap().state
    };
    let new = || RecordUpdate::new(key(7));
    let code = |code| RecordUpdate { facts: exited(code), ..new() };
    assert_eq!(update(RecordUpdate { start: Some(at(10)), ..new() }), JobState::Running);
    assert_eq!(update(code(1)), JobState::Running, "of a step, it may be");
    assert_eq!(
        update(RecordUpdate { stop: Some(at(20)), facts: exited(0), ..new() }),
        JobState::Ended
    );
    assert_eq!(update(code(1)), JobState::Failed);
    assert_eq!(update(code(0)), JobState::Ended);
    // An explicit failure outweighs exit code 0, and unrelated updates keep it.
    assert_eq!(update(RecordUpdate { state: Some(JobState::Failed), ..new() }), JobState::Failed);
    assert_eq!(update(code(0)), JobState::Failed);
    assert_eq!(update(RecordUpdate { facts: of_account("x"), ..new() }), JobState::Failed);
    assert_eq!(update(code(3)), JobState::Failed);
    assert_eq!(update(RecordUpdate { state: Some(JobState::Ended), ..new() }), JobState::Ended);
    assert_eq!(update(RecordUpdate { facts: of_account("y"), ..new() }), JobState::Ended);
}

#[test]
fn a_submission_reported_later_is_the_same_jobs() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let update = |changes: RecordUpdate| registry.ingest_updates(vec![changes], at(500)).unwrap();
    let new = || RecordUpdate::new(key(7));
    let submitted = |second| RecordUpdate { submit: Some(at(second)), ..new() };
    let submits = || {
        let runs = registry.runs(&key(7)).unwrap();
        runs.iter().map(|job| job.submit.map(seconds).unwrap()).collect::<Vec<_>>()
    };
    update(RecordUpdate { start: Some(at(100)), facts: of_user("alice"), ..new() });
    update(submitted(90));
    assert_eq!(submits(), [90]);
    assert_eq!(registry.job(&key(7)).unwrap().unwrap().state, JobState::Running);
    // That time of submission was reported, so another time means another submission.
    update(RecordUpdate { stop: Some(at(60)), ..submitted(50) });
    assert_eq!(submits(), [50, 90]);
    // An update of a job that was over before, or of another user, is another submission too.
    let registry = open(&tempfile::tempdir().unwrap());
    let update = |changes: RecordUpdate| registry.ingest_updates(vec![changes], at(500)).unwrap();
    update(RecordUpdate { start: Some(at(100)), facts: of_user("alice"), ..new() });
    assert_eq!(update(RecordUpdate { stop: Some(at(60)), ..submitted(50) }).new, 1);
    assert_eq!(update(RecordUpdate { facts: of_user("bob"), ..submitted(90) }).new, 1);
}

#[test]
fn an_end_before_the_start_is_rejected_unless_two_clocks_may_differ() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let update = |changes: RecordUpdate| registry.ingest_updates(vec![changes], at(900)).unwrap();
    let new = || RecordUpdate::new(key(7));
    let rejected = IngestStats { rejected: 1, backwards: 1, ..IngestStats::default() };
    let both = |start, stop| RecordUpdate { start: Some(at(start)), stop: Some(at(stop)), ..new() };
    assert_eq!(update(both(500, 400)), rejected);
    assert_eq!(registry.job(&key(7)).unwrap(), None);
    update(RecordUpdate { start: Some(at(500)), ..new() });
    assert_eq!(update(RecordUpdate { stop: Some(at(400)), ..new() }), rejected);
    assert_eq!(registry.job(&key(7)).unwrap().unwrap().state, JobState::Running);
    assert_eq!(update(RecordUpdate { stop: Some(at(499)), ..new() }).changed, 1);
    assert_eq!(registry.job(&key(7)).unwrap().unwrap().stop, Some(at(500)));
}

#[test]
fn a_registry_of_an_earlier_build_is_rejected_and_not_changed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("registry.sqlite");
    let old = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/stores/registry-1/jobs.sqlite");
    std::fs::copy(old, &path).unwrap();
    let opened = Registry::open(&path, Limits::default(), Users::default);
    let error = opened.map(|_| ()).unwrap_err().to_string();
    let expected = format!("{}: version 1 is older than 8", path.display());
    assert!(error.starts_with(&expected), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), std::fs::read(old).unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The registry's content depends on the visits and records, not on their order.
    #[test]
    fn any_order_of_visits_and_records_gives_the_same_registry(
        visits in proptest::collection::vec((0_usize..3, 0_i64..40, 0_i64..30, 0_u8..3), 1..8),
        spans in proptest::collection::vec(
            (0_i64..40, proptest::option::of(0_i64..30), 0_usize..4), 1..4),
        order in proptest::collection::vec(0_usize..24, 0..30),
    ) {
        let nodes = ["a", "b", "c"];
        let mut events = Vec::new();
        for (node, start, long, given) in &visits {
            let (start, long) = (start * 20, long * 20);
            if *given != 1 { events.push(event(5, nodes[*node], start, None)); }
            if *given != 0 { events.push(event(5, nodes[*node], start, Some(start + long))); }
        }
        let named: [&[&str]; 4] = [&["a", "b", "d"], &["a", "c"], &["d"], &[]];
        let of = |(start, long, devices): &(i64, Option<i64>, usize)| {
            record(5, start * 20, long.map(|long| (start + long) * 20), named[*devices])
        };
        let mut records: Vec<JobRecord> = spans.iter().map(of).collect();
        // The last record of a submission counts.
        records.sort_by_key(|record| record.submit);
        records.dedup_by_key(|record| record.submit);
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (one, other) = (open(&one), open(&other));
        one.apply(&events, at(5000)).unwrap();
        one.ingest(&records, at(5000)).unwrap();
        for place in order {
            if let Some(event) = events.get(place) {
                other.apply(std::slice::from_ref(event), at(5000)).unwrap();
            } else if let Some(record) = records.get(place % records.len()) {
                other.ingest(std::slice::from_ref(record), at(5000)).unwrap();
            }
        }
        events.reverse();
        records.reverse();
        other.ingest(&records, at(5000)).unwrap();
        other.apply(&events, at(5000)).unwrap();
        prop_assert_eq!(shape(&one, 5), shape(&other, 5));
        let all = |of: &Registry| of.intervals(&Window::default()).unwrap();
        prop_assert_eq!(all(&one), all(&other));
    }
}
