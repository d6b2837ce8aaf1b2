//! Lists and allocations found by indexes, compared with a full scan.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod fixtures;

use fixtures::{at, device, event, key, open, record, waiting};
use jobs::{
    AccessLevel, AccountChange, Filter, Interval, JobRecord, ListPosition, Listed, Reader,
    Registration, Registry, Role, Window,
};
use model::{DeviceId, Job, JobEvent, JobId, JobKey, JobState, Timestamp};
use proptest::prelude::*;
use proptest::sample::select;
use std::cmp::Reverse;

/// A time after all reports.
const NOW: i64 = 50_000_000;
const NODES: [&str; 4] = ["n1", "n2", "n3", "pdu"];

/// Times that differ by less than a minute, by hours, or by months, in seconds.
fn second() -> impl Strategy<Value = i64> {
    prop_oneof![0_i64..30, 0_i64..3000, 0_i64..2_000_000].prop_map(|second| second * 10)
}

fn long() -> impl Strategy<Value = i64> {
    select(vec![0, 20, 64, 65, 300, 4096, 20_000, 70_000, 1_500_000, 5_000_000, 18_000_000])
}

fn a_record() -> impl Strategy<Value = JobRecord> {
    let who = (select(vec![None, Some(1000), Some(2000)]), 0..3_u8, 0..3_u8, 0..2_u8);
    let what = (0..5_u8, proptest::collection::btree_set(0_usize..4, 0..4));
    (1_i64..6, second(), long(), who, what).prop_map(
        |(id, start, long, (uid, account, project, queue), (state, nodes))| {
            let nodes: Vec<&str> =
                nodes.iter().filter_map(|node| NODES.get(*node)).copied().collect();
            let stop = (state > 1).then_some(start + long);
            let mut given = record(id, start, stop, &nodes);
            // A waiting job, and one that was cancelled before its start, may already have nodes.
            match state {
                0 => given = JobRecord { nodes: given.nodes, ..waiting(id, start - 5) },
                3 => given.start = None,
                4 => given.state = JobState::Failed,
                _ => {}
            }
            given.facts.uid = uid;
            given.facts.user =
                uid.map(|uid| if uid == 1000 { "alice".into() } else { "2000".into() });
            let of =
                |words: [&str; 2], place: u8| words.get(usize::from(place)).map(|w| (*w).into());
            given.facts.account = of(["physics", "biology"], account);
            given.facts.project = of(["waves", "cells"], project);
            given.facts.queue = of(["long", "short"], queue);
            given.facts.name = Some(format!("solve-{}", id % 3).into());
            given
        },
    )
}

fn an_event() -> impl Strategy<Value = JobEvent> {
    (
        1_i64..6,
        select(NODES[..3].to_vec()),
        second(),
        long(),
        any::<bool>(),
        select(vec![None, Some(1000), Some(2000)]),
    )
        .prop_map(|(id, node, start, long, ended, uid)| {
            let stop = ended.then_some(start + 3 + long);
            JobEvent { uid, ..event(id, node, start + 3, stop) }
        })
}

fn readers() -> impl Strategy<Value = Reader> {
    select(vec![
        Reader::Everything,
        Reader::Everything,
        Reader::User(1000),
        Reader::Tenant(2000),
        Reader::User(3000),
        Reader::Nodes,
    ])
}

fn maybe<T: Clone + std::fmt::Debug + 'static>(words: Vec<T>) -> impl Strategy<Value = Option<T>> {
    prop_oneof![4 => Just(None), 1 => select(words).prop_map(Some)]
}

fn time() -> impl Strategy<Value = Option<Timestamp>> {
    prop_oneof![2 => Just(None), 3 => second().prop_map(|second| Some(at(second)))]
}

fn a_filter() -> impl Strategy<Value = Filter> {
    let texts = |words: [&str; 2]| maybe(words.map(str::to_owned).to_vec());
    let of = (
        texts(["physics", "biology"]),
        texts(["waves", "cells"]),
        texts(["long", "short"]),
        texts(["solve-1", "solve-2"]),
    );
    let who = (
        maybe(vec![1, 2]),
        maybe(vec!["alice", "2000", "1000", "nobody"]),
        maybe(vec![1000, 2000]),
    );
    let place =
        (maybe(JobState::ALL.to_vec()), maybe(NODES.to_vec()), maybe(vec!["slurm", "local"]));
    (readers(), of, who, place, (time(), time())).prop_map(
        |(
            reader,
            (account, project, queue, name),
            (id, user, uid),
            (state, node, cluster),
            (from, to),
        )| {
            Filter {
                reader,
                id: id.map(|id| JobId::new(id).unwrap()),
                state,
                cluster: cluster.map(|cluster| model::ClusterId::new(cluster).unwrap()),
                user: user.map(str::to_owned),
                uid,
                account,
                project,
                queue,
                name,
                device: node.map(device),
                part_of: None,
                from,
                to,
                after: None,
                limit: None,
            }
        },
    )
}

fn a_window() -> impl Strategy<Value = Window> {
    (
        readers(),
        maybe(vec![1, 2, 3]),
        maybe(vec![1000, 2000]),
        maybe(NODES.to_vec()),
        (time(), time()),
    )
        .prop_map(|(reader, id, uid, node, (from, to))| Window {
            reader,
            job: id.map(key),
            uid,
            device: node.map(device),
            from,
            to,
            shares: false,
        })
}

/// Creates a registry with these reports and two local jobs.
fn filled(
    dir: &tempfile::TempDir,
    given: &[Result<JobRecord, JobEvent>],
    members: AccessLevel,
) -> Registry {
    let registry = open(dir);
    for one in given {
        match one {
            Ok(record) => drop(registry.ingest(std::slice::from_ref(record), at(NOW)).unwrap()),
            Err(event) => drop(registry.apply(std::slice::from_ref(event), at(NOW)).unwrap()),
        }
    }
    for start in [7, 70_007] {
        let job = Registration {
            uid: 1000,
            user: None,
            name: Some("solve-1".into()),
            device: device("n1"),
            start: at(start),
            is_verified: true,
        };
        let job = registry.register_local(&job).unwrap();
        if start == 7 {
            registry.end_local(job.id, at(5000), Some(3)).unwrap();
        }
    }
    let change = |members_see, users| AccountChange { members_see: Some(members_see), users };
    let physics = "slurm:physics".parse().unwrap();
    registry.change_account(&physics, &change(members, vec![(3000, Role::Member)])).unwrap();
    let biology = "slurm:biology".parse().unwrap();
    let manager = vec![(3000, Role::Manager), (1000, Role::Member)];
    registry.change_account(&biology, &change(AccessLevel::Nothing, manager)).unwrap();
    registry
}

fn place(job: &Job) -> (Reverse<Timestamp>, JobKey) {
    (Reverse(job.start.or(job.submit).unwrap()), job.key.clone())
}

/// Tests whether a job matches the fields of [`Filter`].
fn passes(registry: &Registry, filter: &Filter, Listed { job, devices }: &Listed) -> bool {
    let is = |wanted: &Option<String>, is: &Option<Box<str>>| {
        wanted.as_deref().is_none_or(|wanted| is.as_deref() == Some(wanted))
    };
    let Reverse(start) = place(job).0;
    let number = job.facts.uid.map(|uid| uid.to_string());
    let user = filter.user.as_deref();
    registry.sees_run(filter.reader, job).unwrap() >= AccessLevel::Listed
        && filter.id.is_none_or(|id| job.key.id == id)
        && filter.state.is_none_or(|state| job.state == state)
        && filter.cluster.as_ref().is_none_or(|cluster| job.key.cluster == *cluster)
        && user.is_none_or(|user| {
            job.facts.user.as_deref() == Some(user) || number.as_deref() == Some(user)
        })
        && filter.uid.is_none_or(|uid| job.facts.uid == Some(uid))
        && is(&filter.account, &job.facts.account)
        && is(&filter.project, &job.facts.project)
        && is(&filter.queue, &job.facts.queue)
        && is(&filter.name, &job.facts.name)
        && filter.device.as_ref().is_none_or(|device| devices.contains(device))
        && filter.from.is_none_or(|from| job.stop.is_none_or(|stop| stop >= from))
        && filter.to.is_none_or(|to| start <= to)
}

/// Returns the allocations of all jobs, by job.
fn every_allocation(registry: &Registry) -> Vec<(Job, Interval)> {
    let mut intervals = Vec::new();
    for job in registry.every_run(&Filter::default()).unwrap() {
        let Some(run_start) = job.start else { continue };
        for interval in registry.allocations(&job.key, run_start).unwrap() {
            let (key, uid) = (job.key.clone(), job.facts.uid);
            let model::Allocation { device, start, stop, .. } = interval;
            let share = jobs::Share::default();
            intervals
                .push((job.clone(), Interval { key, uid, run_start, device, start, stop, share }));
        }
    }
    intervals
}

fn order(interval: &Interval) -> (DeviceId, Timestamp, JobKey, Timestamp) {
    (interval.device.clone(), interval.start, interval.key.clone(), interval.run_start)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_indexes_find_is_what_a_scan_finds(
        given in proptest::collection::vec(prop_oneof![a_record().prop_map(Ok), an_event().prop_map(Err)], 0..24),
        members in select(AccessLevel::ALL.to_vec()),
        filters in proptest::collection::vec(a_filter(), 12),
        windows in proptest::collection::vec(a_window(), 12),
        page in 1_usize..5,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let registry = filled(&dir, &given, members);
        let all = registry.list(&Filter::default()).unwrap();
        for filter in &filters {
            let mut scanned: Vec<_> = all.iter().filter(|one| passes(&registry, filter, one)).cloned().collect();
            for one in &mut scanned {
                let granted = registry.granted(filter.reader, &one.job).unwrap();
                one.devices.retain(|device| granted.has(device));
            }
            scanned.sort_by_key(|one| place(&one.job));
            prop_assert_eq!(&registry.list(filter).unwrap(), &scanned, "{:?}", filter);
            let runs: Vec<Job> = scanned.iter().map(|one| one.job.clone()).collect();
            prop_assert_eq!(&registry.every_run(filter).unwrap(), &runs);
            // Paging returns the same list.
            let (mut paged, mut after) = (Vec::new(), None);
            loop {
                let one = Filter { after: after.take(), limit: Some(page), ..filter.clone() };
                let listed = registry.list(&one).unwrap();
                let Some(last) = listed.last() else { break };
                let (Reverse(start), key) = place(&last.job);
                after = Some(ListPosition { start, key });
                prop_assert!(listed.len() <= page);
                paged.extend(listed);
            }
            prop_assert_eq!(&paged, &scanned, "in pages of {}: {:?}", page, filter);
        }
        let intervals = every_allocation(&registry);
        for window in &windows {
            let owner = window.reader.uid().or(window.uid).map_or(Reader::Everything, Reader::User);
            let within = |(job, interval): &&(Job, Interval)| {
                registry.sees_run(window.reader, job).unwrap() == AccessLevel::All
                    // Without an owner in the record, a node grants only its own device.
                    && registry.granted(owner, job).unwrap().has(&interval.device)
                    && window.job.as_ref().is_none_or(|key| interval.key == *key)
                    && window.uid.is_none_or(|uid| interval.uid == Some(uid))
                    && window.device.as_ref().is_none_or(|device| interval.device == *device)
                    && window.from.is_none_or(|from| interval.stop.is_none_or(|stop| stop >= from))
                    && window.to.is_none_or(|to| interval.start <= to)
            };
            let mut scanned: Vec<Interval> = intervals.iter().filter(within).map(|(_, interval)| interval.clone()).collect();
            scanned.sort_by_key(order);
            let mut found = registry.intervals(window).unwrap();
            found.sort_by_key(order);
            prop_assert_eq!(found, scanned, "{:?}", window);
        }
    }
}

#[test]
fn who_is_shown_many_accounts_has_them_all_listed() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    for id in 1..=40 {
        let mut given = record(id, 10 * id, Some(10 * id + 5), &["n1"]);
        (given.facts.uid, given.facts.account) = (Some(2000), Some(format!("account{id}").into()));
        registry.ingest(&[given], at(NOW)).unwrap();
    }
    let mut listed = Vec::new();
    for id in 1..=40 {
        let account = format!("slurm:account{id}").parse().unwrap();
        let change = AccountChange { members_see: None, users: vec![(3000, Role::Manager)] };
        registry.change_account(&account, &change).unwrap();
        let reader = Reader::User(3000);
        let from = Some(at(105));
        listed.push(registry.list(&Filter { reader, ..Filter::default() }).unwrap().len());
        let recent = registry.list(&Filter { reader, from, ..Filter::default() }).unwrap().len();
        assert_eq!(recent, usize::try_from((id - 9).max(0)).unwrap());
    }
    assert_eq!(listed, (1..=40).collect::<Vec<usize>>());
}
