//! Attacks on the registry by a node with an agent's token, and by a client with the token of one
//! cluster's jobs.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod fixtures;

use fixtures::{at, device, event, key, of_user, open, record, seconds, with};
use jobs::{
    AccessLevel, AccountChange, AccountKey, JobName, JobRecord, Limits, Reader, RecordUpdate,
    Registration, Registry, RegistryError, UnresolvedUser, Users, Window,
};
use model::{ClusterId, JobEvent, JobFacts, JobId, JobKey};

/// User ID of the attacker.
const MALLORY: u32 = 65_533;

fn of(uid: u32, id: i64, node: &str, start: i64) -> JobEvent {
    JobEvent { uid: Some(uid), ..event(id, node, start, None) }
}

fn oar(id: i64) -> JobKey {
    JobKey { cluster: ClusterId::new("oar").unwrap(), id: JobId::new(id).unwrap() }
}

/// User, start and devices of the runs of a job.
fn runs(registry: &Registry, id: i64) -> Vec<(Option<u32>, i64, Vec<String>)> {
    let one = |job: model::Job| {
        let start = job.start.unwrap();
        let places = registry.allocations(&key(id), start).unwrap().into_iter();
        (job.facts.uid, seconds(start), places.map(|place| place.device.to_string()).collect())
    };
    registry.runs(&key(id)).unwrap().into_iter().map(one).collect()
}

fn sees(registry: &Registry, key: &JobKey) -> AccessLevel {
    registry.sees_any(Reader::User(MALLORY), key).unwrap()
}

#[test]
fn a_nodes_word_on_a_user_makes_no_member_of_an_account() {
    let physics: AccountKey = "slurm:physics".parse().unwrap();
    for nodes in [&[][..], &["n1", "n9"]] {
        for node_first in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let registry = open(&dir);
            registry.ingest(&[record(601, 100, None, &["n2"])], at(200)).unwrap();
            let change = AccountChange { members_see: Some(AccessLevel::All), users: vec![] };
            registry.change_account(&physics, &change).unwrap();
            let nobodys = JobRecord {
                facts: JobFacts { user: None, uid: None, ..record(602, 100, None, nodes).facts },
                ..record(602, 100, None, nodes)
            };
            let lie = of(MALLORY, 602, "n1", 101);
            if node_first {
                registry.apply(std::slice::from_ref(&lie), at(200)).unwrap();
            }
            registry.ingest(std::slice::from_ref(&nobodys), at(200)).unwrap();
            registry.apply(&[lie], at(200)).unwrap();
            let people = || {
                let people = registry.account(&physics).unwrap().unwrap().users;
                people.into_iter().map(|(uid, _)| uid).collect::<Vec<_>>()
            };
            assert_eq!(people(), [1000], "{nodes:?} {node_first}");
            assert_eq!(sees(&registry, &key(601)), AccessLevel::Nothing);
            // The record's own user ID creates a member, and a corrected record removes the membership.
            let of_2000 = JobRecord {
                facts: JobFacts { uid: Some(2000), ..nobodys.facts.clone() },
                ..nobodys.clone()
            };
            registry.ingest(&[of_2000], at(300)).unwrap();
            assert_eq!(people(), [1000, 2000]);
            registry.ingest(&[nobodys], at(400)).unwrap();
            assert_eq!(people(), [1000]);
        }
    }
}

#[test]
fn a_name_reported_for_one_cluster_takes_over_no_job_of_another() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let daves = |key: JobKey| JobRecord {
        key,
        facts: JobFacts {
            user: Some("dave".into()),
            account: None,
            ..record(1, 100, None, &["n2"]).facts
        },
        ..record(1, 100, None, &["n2"])
    };
    let push = |name: &str, uid| {
        let pushed = RecordUpdate {
            start: Some(at(150)),
            facts: JobFacts { user: Some(name.into()), uid: Some(uid), ..JobFacts::default() },
            ..RecordUpdate::new(key(i64::from(uid)))
        };
        registry.ingest_updates(vec![pushed], at(200)).unwrap()
    };
    registry.ingest(&[daves(oar(7))], at(110)).unwrap();
    push("dave", MALLORY);
    // Before and after: by records, by nodes, and by the server's look-up of user IDs.
    registry.ingest(&[daves(oar(8))], at(210)).unwrap();
    let by_node =
        JobEvent { key: oar(9), user: Some("dave".into()), uid: None, ..event(9, "n2", 100, None) };
    registry.apply(&[by_node], at(210)).unwrap();
    for user in registry.users_without_id(None, 9).unwrap().names {
        assert_eq!(registry.user_id_of(&user).unwrap(), None, "{user:?}");
    }
    for id in [7, 8, 9] {
        assert_eq!(registry.owner(&oar(id)).unwrap(), None);
        assert_eq!(sees(&registry, &oar(id)), AccessLevel::Nothing, "{id}");
    }
    // In its own cluster, a pushed user ID replaces none of the scheduler or of the name service.
    let erin = with(
        record(10, 100, None, &[]),
        JobFacts { user: Some("erin".into()), uid: Some(3000), ..JobFacts::default() },
    );
    registry.ingest(&[erin], at(300)).unwrap();
    push("erin", MALLORY + 1);
    registry.number_user("frank", 4000, at(300)).unwrap();
    push("frank", MALLORY + 2);
    let number = |cluster: &str, name: &str| {
        let cluster = ClusterId::new(cluster).unwrap();
        registry.user_id_of(&UnresolvedUser { name: name.into(), cluster }).unwrap()
    };
    assert_eq!((number("slurm", "erin"), number("oar", "erin")), (Some(3000), None));
    assert_eq!((number("slurm", "frank"), number("oar", "frank")), (Some(4000), Some(4000)));
    // The scheduler corrects its own user IDs, and the name service corrects all.
    let erin = with(
        record(11, 100, None, &[]),
        JobFacts { user: Some("erin".into()), uid: Some(3001), ..JobFacts::default() },
    );
    registry.ingest(&[erin], at(400)).unwrap();
    assert_eq!(number("slurm", "erin"), Some(3001));
    assert_eq!(registry.number_user("dave", 5000, at(400)).unwrap(), 3);
    assert_eq!((number("slurm", "dave"), number("oar", "dave")), (Some(5000), Some(5000)));
    assert_eq!(registry.owner(&oar(7)).unwrap(), Some(5000));
}

#[test]
fn many_names_of_one_node_keep_no_others_name_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let named = |id, node: &str, name: String| JobEvent {
        user: Some(name.into()),
        uid: None,
        ..event(id, node, 10, Some(15))
    };
    let flood: Vec<_> = (0..4200).map(|n| named(1000 + n, "n1", format!("!{n:05}"))).collect();
    registry.apply(&flood, at(20)).unwrap();
    registry.apply(&[named(1, "n2", "zoe".to_owned())], at(20)).unwrap();
    let recorded = with(record(2, 10, None, &[]), of_user("yves"));
    registry.ingest(&[recorded], at(20)).unwrap();
    // The server's look-up rounds: a page each, of which the first 16 names are looked up.
    let (mut last, mut requested) = (None, Vec::new());
    for _ in 0..2 {
        let page = registry.users_without_id(last.as_ref(), 4096).unwrap();
        requested.extend(page.names.into_iter().take(16).map(|user| user.name.to_string()));
        last = page.last;
    }
    assert_eq!(last, None, "it begins anew");
    assert_eq!(requested.get(16).map(String::as_str), Some("yves"), "a scheduler's first");
    assert!(requested.contains(&"zoe".to_owned()), "{requested:?}");
    // Within one page, the nodes alternate.
    let all = registry.users_without_id(None, 10_000).unwrap();
    let first: Vec<_> = all.names.iter().take(3).map(|user| &*user.name).collect();
    assert_eq!((first, all.names.len()), (vec!["yves", "!00000", "zoe"], 4202));
}

#[test]
fn no_node_makes_the_name_of_a_recorded_job_ambiguous() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let task = JobRecord {
        display_id: "100_1".into(),
        ..with(
            record(101, 10, None, &["n2"]),
            JobFacts { part_of: Some(100), array_index: Some(1), ..JobFacts::default() },
        )
    };
    registry.ingest(&[task], at(20)).unwrap();
    let with_display_id =
        |key: JobKey| JobEvent { key, display_id: "100_1".into(), ..event(1, "n1", 10, None) };
    registry.apply(&[with_display_id(key(7777)), with_display_id(oar(7777))], at(20)).unwrap();
    let resolve = |text: &str, reader| {
        registry.resolve_seen(&text.parse::<JobName>().unwrap(), reader).unwrap()
    };
    for reader in [Reader::Everything, Reader::User(1000)] {
        assert_eq!(resolve("100_1", reader), key(101));
        assert_eq!(resolve("slurm:100_1", reader), key(101));
        assert_eq!(resolve("oar:100_1", reader), oar(7777), "no record has it there");
    }
}

#[test]
fn a_node_that_names_another_user_enters_no_recorded_run() {
    for lie_first in [false, true] {
        for named in [&[][..], &["n1", "n2"]] {
            let dir = tempfile::tempdir().unwrap();
            let registry = open(&dir);
            let lie =
                JobEvent { monitor: Some("evil_.*".into()), ..of(MALLORY, 7, "n1", 7000 - 3000) };
            let apply = |event: &JobEvent| {
                registry.apply(std::slice::from_ref(event), at(7100)).unwrap();
            };
            let ingest = || registry.ingest(&[record(7, 7000, None, named)], at(7050)).unwrap();
            if lie_first {
                apply(&lie);
            }
            ingest();
            apply(&of(1000, 7, "n2", 7001));
            apply(&lie);
            let honest = |runs: Vec<(Option<u32>, i64, Vec<String>)>| {
                let start = runs.iter().find(|run| run.0 == Some(1000)).unwrap().1;
                assert_eq!(start, 7001, "{runs:?}");
                // A node that the record names is listed for its time.
                let unseen = runs.iter().any(|run| run.0 == Some(1000) && run.2.len() > 1);
                assert_eq!(unseen, named.len() > 1, "{runs:?}");
            };
            honest(runs(&registry, 7));
            for job in registry.running_jobs().unwrap() {
                assert!(job.facts.uid != Some(1000) || job.monitor.is_empty(), "{job:?}");
            }
            assert_eq!(sees(&registry, &key(7)), AccessLevel::Nothing);
        }
    }
}

#[test]
fn a_request_by_environment_counts_of_the_owners_visits() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    registry.ingest(&[record(7, 100, None, &[])], at(110)).unwrap();
    let requesting_event = |uid, node: &str, metric: &str| JobEvent {
        uid,
        monitor: Some(metric.into()),
        ..event(7, node, 101, None)
    };
    // The record names no nodes, so n1 joins the job. Its request does not count.
    registry
        .apply(
            &[
                requesting_event(None, "n1", "evil_.*"),
                requesting_event(Some(1000), "n2", "perf_\u{202e}.*\u{1b}"),
            ],
            at(110),
        )
        .unwrap();
    let facts = registry.running_jobs().unwrap();
    assert_eq!((facts.len(), &facts[0].monitor), (1, &vec!["perf_ .* ".into()]));
}

#[test]
fn a_node_that_names_another_user_splits_no_run_without_a_record() {
    let honest = [of(1000, 7, "n2", 100), of(1000, 7, "n3", 120)];
    let silent = JobEvent { uid: None, ..of(0, 7, "n4", 130) };
    let lie = of(MALLORY, 7, "n1", 110);
    let orders: [[&JobEvent; 4]; 3] = [
        [&honest[0], &lie, &honest[1], &silent],
        [&honest[0], &honest[1], &silent, &lie],
        [&lie, &silent, &honest[1], &honest[0]],
    ];
    for order in orders {
        let dir = tempfile::tempdir().unwrap();
        let registry = open(&dir);
        for event in order {
            registry.apply(std::slice::from_ref(event), at(200)).unwrap();
        }
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let expected =
            [(Some(1000), 100, names(&["n2", "n3", "n4"])), (Some(MALLORY), 110, names(&["n1"]))];
        assert_eq!(runs(&registry, 7), expected);
        // The end of one run does not end the other.
        registry.apply(&[JobEvent { stop: Some(at(190)), ..lie.clone() }], at(200)).unwrap();
        let jobs = registry.runs(&key(7)).unwrap();
        assert_eq!((jobs[0].stop, jobs[1].stop), (None, Some(at(190))));
    }
}

#[test]
fn visits_of_one_job_to_one_device_are_bounded_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let events: Vec<_> = (0..1030).map(|n| of(1000, 7, "n1", 100 * n)).collect();
    let applied = registry.apply(&events, at(200_000)).unwrap();
    assert_eq!((applied.began, applied.rejected), (1024, 6));
    // Reports of another node of the job, and of known visits, are still accepted.
    let more =
        [of(1000, 7, "n2", 102_000), JobEvent { stop: Some(at(50)), ..of(1000, 7, "n1", 0) }];
    let applied = registry.apply(&more, at(200_000)).unwrap();
    assert_eq!((applied.began, applied.ended, applied.rejected), (1, 1, 0));
    // Strays count too.
    registry.ingest(&[record(8, 0, None, &["n2"])], at(200_000)).unwrap();
    let strays: Vec<_> = (0..1030).map(|n| of(1000, 8, "n1", 100 * n)).collect();
    assert_eq!(registry.apply(&strays, at(200_000)).unwrap().rejected, 6);
    assert_eq!(registry.apply(&strays[1029..], at(200_000)).unwrap().rejected, 1);
}

/// A registry with room for 64 visits: 32 for all, and a share of 4 in the other half.
fn small(dir: &tempfile::TempDir) -> Registry {
    let limits = Limits { visits_max: 64, ..Limits::default() };
    Registry::open(&dir.path().join("registry.sqlite"), limits, Users::default).unwrap()
}

#[test]
fn one_nodes_visits_leave_space_for_others() {
    let dir = tempfile::tempdir().unwrap();
    let registry = small(&dir);
    let apply = |node: &str, ids: std::ops::Range<i64>| {
        let events: Vec<_> = ids.map(|id| of(1000, id, node, 10)).collect();
        let applied = registry.apply(&events, at(20)).unwrap();
        (applied.began, applied.rejected)
    };
    assert_eq!(apply("n1", 100..200), (32, 68));
    assert_eq!(apply("n2", 200..210), (4, 6));
    assert_eq!(apply("n3", 300..303), (3, 0));
    // A job that the scheduler gave to the node needs no share, a job of another node does.
    registry.ingest(&[record(1, 10, None, &["n1"]), record(2, 10, None, &["n9"])], at(20)).unwrap();
    assert_eq!(apply("n1", 1..3), (1, 1));
    // Events of known visits are accepted.
    let ended = JobEvent { stop: Some(at(15)), ..of(1000, 100, "n1", 10) };
    assert_eq!(registry.apply(&[ended], at(20)).unwrap().ended, 1);
}

#[test]
fn one_users_local_jobs_leave_space_for_others_and_for_their_node() {
    let dir = tempfile::tempdir().unwrap();
    let registry = small(&dir);
    let run = |uid| {
        let (device, start) = (device("n1"), at(10));
        let job = Registration { uid, user: None, name: None, device, start, is_verified: false };
        let key = registry.register_local(&job)?;
        registry.end_local(key.id, at(11), Some(0))
    };
    let runs = |uid| (0..100).take_while(|_| run(uid).is_ok()).count();
    assert_eq!(runs(MALLORY), 32);
    let rejected = run(MALLORY).unwrap_err();
    assert!(matches!(rejected, RegistryError::FullForUser { uid: MALLORY, max: 4 }), "{rejected}");
    assert_eq!(runs(1000), 4);
    let events: Vec<_> = (0..4).map(|id| of(1000, 100 + id, "n1", 10)).collect();
    assert_eq!(registry.apply(&events, at(20)).unwrap().began, 4);
}

#[test]
fn one_nodes_running_jobs_are_bounded_and_fail_no_query_of_others() {
    let dir = tempfile::tempdir().unwrap();
    // Queries fail beyond 12 rows.
    let limits = Limits { open_visits_max: 8, rows_max: 12, ..Limits::default() };
    let path = dir.path().join("registry.sqlite");
    let registry = Registry::open(&path, limits, Users::default).unwrap();
    let apply = |node: &str, ids: std::ops::Range<i64>| {
        let events: Vec<_> = ids.map(|id| of(1000, id, node, 10)).collect();
        let applied = registry.apply(&events, at(20)).unwrap();
        (applied.began, applied.rejected)
    };
    assert_eq!(apply("n1", 100..120), (8, 12));
    assert_eq!(apply("n2", 200..202), (2, 0));
    // Of a job that the scheduler gave to the node, and of a visit that has ended.
    registry.ingest(&[record(1, 10, None, &["n1"])], at(20)).unwrap();
    assert_eq!(apply("n1", 1..2), (1, 0));
    let over = JobEvent { stop: Some(at(12)), ..of(1000, 300, "n1", 10) };
    assert_eq!(registry.apply(&[over], at(20)).unwrap().rejected, 0);
    let now = Window { from: Some(at(20)), to: Some(at(20)), ..Window::default() };
    assert_eq!(registry.intervals(&now).unwrap().len(), 11);
    assert_eq!(registry.running_jobs().unwrap().len(), 11);
    // Each end makes room for another one.
    let ends = JobEvent { stop: Some(at(18)), ..of(1000, 100, "n1", 10) };
    registry.apply(&[ends], at(20)).unwrap();
    assert_eq!(apply("n1", 400..402), (0, 2), "the recorded one counts, too");
    let ends = JobEvent { stop: Some(at(18)), ..of(1000, 101, "n1", 10) };
    registry.apply(&[ends], at(20)).unwrap();
    assert_eq!(apply("n1", 400..402), (1, 1));
}

#[test]
fn one_tokens_jobs_leave_capacity_for_others_and_ended_ones_are_not_counted() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits { records_max: 64, reported_open_max: 8, ..Limits::default() };
    let path = dir.path().join("registry.sqlite");
    let registry = Registry::open(&path, limits, Users::default).unwrap();
    let slurm = ClusterId::new("slurm").unwrap();
    let update = |key: JobKey| RecordUpdate { start: Some(at(10)), ..RecordUpdate::new(key) };
    let limited = |update: RecordUpdate, cluster: Option<&ClusterId>| {
        registry.ingest_limited(update, cluster, at(20)).unwrap().limited
    };
    let one = |id| limited(update(key(id)), Some(&slurm));
    assert_eq!((1..=10).map(one).sum::<u64>(), 2, "8 run");
    assert_eq!(limited(RecordUpdate::end(key(1), at(15), None), Some(&slurm)), 0);
    assert_eq!((one(9), one(10)), (0, 1));
    // Waiting jobs do not run, and fill the lower half of the registry only.
    let waiting = |id| limited(RecordUpdate::new(key(id)), Some(&slurm));
    assert_eq!((100..200).map(waiting).sum::<u64>(), 100 - (32 - 9));
    let other = |id| limited(RecordUpdate::new(oar(id)), Some(&oar(id).cluster));
    assert_eq!((1..=10).map(other).sum::<u64>(), 6, "another cluster has a sixteenth");
    assert_eq!(limited(RecordUpdate::new(oar(50)), None), 1, "a token without a cluster");
    registry.ingest(&[record(601, 10, None, &["n1"])], at(20)).unwrap();
    assert!(registry.job(&key(601)).unwrap().is_some(), "a scheduler");
}

#[test]
fn one_tokens_waiting_and_ended_jobs_have_a_budget_of_nodes() {
    let dir = tempfile::tempdir().unwrap();
    let limits =
        Limits { reported_writes_max: 20, reported_writes_per_hour: 3600, ..Limits::default() };
    let path = dir.path().join("registry.sqlite");
    let registry = Registry::open(&path, limits, Users::default).unwrap();
    let slurm = ClusterId::new("slurm").unwrap();
    let names: Vec<String> = (0..15).map(|n| format!("n{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let nodes = record(1, 10, None, &names).nodes;
    let waiting = |id| RecordUpdate { nodes: Some(nodes.clone()), ..RecordUpdate::new(key(id)) };
    let limited = |update: RecordUpdate, seconds| {
        registry.ingest_limited(update, Some(&slurm), at(seconds)).unwrap().limited
    };
    assert_eq!(limited(waiting(1), 20), 0);
    assert_eq!(limited(waiting(2), 20), 1);
    assert_eq!(limited(RecordUpdate::new(key(3)), 20), 0, "without nodes");
    // What is stored already costs little, and so does an end.
    assert_eq!(limited(waiting(1), 21), 1);
    assert_eq!(limited(RecordUpdate::end(key(1), at(21), None), 21), 0);
    assert_eq!(limited(waiting(2), 40), 0, "refilled");
    assert_eq!(registry.ingest_updates(vec![waiting(4), waiting(5)], at(40)).unwrap().new, 2);
}

#[test]
fn lists_of_processors_have_no_unprintable_characters() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let mut hostile = record(1, 10, None, &["n1"]);
    hostile.nodes[0].cpu_list = "0-3\u{1b}[2J".into();
    hostile.nodes[0].gpu_list = "0\u{202e}1".into();
    registry.ingest(&[hostile], at(20)).unwrap();
    let facts = registry.whole(&key(1)).unwrap().unwrap();
    let share = &facts.nodes[0];
    assert_eq!((&*share.cpu_list, &*share.gpu_list), ("0-3 [2J", "0 1"));
}
