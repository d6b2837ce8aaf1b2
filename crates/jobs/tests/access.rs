//! Access control of jobs: owners, accounts with their managers' settings, and tokens that people
//! created.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod fixtures;

use jobs::{
    AccessLevel, AccountChange, AccountKey, Filter, JobRecord, Limits, NewToken, NodeShare, Reader,
    Registry, RegistryError, Role, Users, Window,
};
use model::{ClusterId, DeviceId, JobEvent, JobFacts, JobId, JobKey, JobState, Timestamp};
use std::path::Path;

const T0: i64 = 1_767_657_600;

fn at(second: i64) -> Timestamp {
    Timestamp::from_seconds(T0 + second)
}

fn key(cluster: &str, id: i64) -> JobKey {
    JobKey { cluster: ClusterId::new(cluster).unwrap(), id: JobId::new(id).unwrap() }
}

fn device(name: &str) -> DeviceId {
    DeviceId::new(name).unwrap()
}

fn open(dir: &Path) -> Registry {
    Registry::open(&dir.join("jobs.sqlite"), Limits::default(), Users::default).unwrap()
}

fn job(registry: &Registry, id: i64, uid: u32, start: i64, stop: Option<i64>) {
    let event = JobEvent {
        key: key("slurm", id),
        display_id: id.to_string().into(),
        device: DeviceId::new("n1").unwrap(),
        user: None,
        uid: Some(uid),
        start: at(start),
        stop: stop.map(at),
        monitor: None,
        oom_kills: Vec::new(),
    };
    assert_eq!(registry.apply(&[event], at(5000)).unwrap().rejected, 0);
}

/// Sets the account of a job as a scheduler's record does.
fn on_account(dir: &Path, id: i64, account: &str) {
    let db = rusqlite::Connection::open(dir.join("jobs.sqlite")).unwrap();
    let got = "UPDATE runs SET account = ?2, record_uid = uid WHERE id = ?1";
    db.execute(got, rusqlite::params![id, account]).unwrap();
}

fn seen(registry: &Registry, reader: Reader) -> (Vec<i64>, Vec<i64>, Vec<AccessLevel>) {
    let listed = registry.list(&Filter { reader, ..Filter::default() }).unwrap();
    let mut listed: Vec<i64> = listed.iter().map(|listed| listed.job.key.id.get()).collect();
    listed.sort_unstable();
    let ids = |window| {
        let periods = registry.intervals(&window).unwrap();
        let mut ids: Vec<i64> = periods.iter().map(|period| period.key.id.get()).collect();
        ids.sort_unstable();
        ids
    };
    let all = ids(Window { reader, ..Window::default() });
    // The query by device, for few jobs, returns the same.
    let device = DeviceId::new("n1").ok();
    assert_eq!(ids(Window { reader, device: device.clone(), ..Window::default() }), all);
    let on_n1 = registry.list(&Filter { reader, device, ..Filter::default() }).unwrap();
    assert_eq!(on_n1.len(), listed.len());
    let each = [1, 2, 3].map(|id| registry.sees(reader, &key("slurm", id)).unwrap());
    (listed, all, each.to_vec())
}

#[test]
fn what_an_accounts_members_see_is_what_its_managers_allow() {
    use AccessLevel::{All, Listed, Nothing};
    let dir = tempfile::tempdir().unwrap();
    let registry = open(dir.path());
    for (id, uid) in [(1, 1000), (2, 2000), (3, 3000)] {
        job(&registry, id, uid, 10, None);
    }
    on_account(dir.path(), 1, "physics");
    on_account(dir.path(), 2, "physics");
    on_account(dir.path(), 3, "biology");
    let physics: AccountKey = "slurm:physics".parse().unwrap();
    let got = registry.account(&physics).unwrap().unwrap();
    assert_eq!(got.users, [(1000, Role::Scheduler), (2000, Role::Scheduler)]);
    let ann = || seen(&registry, Reader::User(1000));
    let own = (vec![1], vec![1], vec![All, Nothing, Nothing]);
    assert_eq!(ann(), own, "nothing, as long as nobody says otherwise");

    let allow = |sees, users| {
        let change = AccountChange { members_see: Some(sees), users };
        registry.change_account(&physics, &change).unwrap()
    };
    allow(Listed, vec![]);
    assert_eq!(ann(), (vec![1, 2], vec![1], vec![All, Listed, Nothing]));
    allow(All, vec![]);
    assert_eq!(ann(), (vec![1, 2], vec![1, 2], vec![All, All, Nothing]));
    // Users outside the account, or in another cluster's account of that name, have no access through it.
    let other: AccountKey = "oar:biology".parse().unwrap();
    let change = AccountChange { members_see: Some(All), users: vec![(1000, Role::Member)] };
    registry.change_account(&other, &change).unwrap();
    assert_eq!(ann().0, [1, 2]);
    assert_eq!(seen(&registry, Reader::User(9)), (vec![], vec![], vec![Nothing; 3]));
    assert_eq!(seen(&registry, Reader::Nodes), (vec![], vec![], vec![Nothing; 3]));
    let everything = (vec![1, 2, 3], vec![1, 2, 3], vec![All; 3]);
    assert_eq!(seen(&registry, Reader::Everything), everything);
    // A manager has access to all jobs, regardless of the members' access. A removed user stays removed.
    allow(Nothing, vec![(9, Role::Manager)]);
    assert_eq!((ann(), seen(&registry, Reader::Tenant(9)).1), (own, vec![1, 2]));
    allow(All, vec![(1000, Role::Removed)]);
    job(&registry, 1, 1000, 10, Some(20));
    on_account(dir.path(), 1, "physics");
    assert_eq!(ann().0, [1]);
    assert_eq!(registry.accounts(Some(1000)).unwrap().len(), 1, "only the other one is left");
}

#[test]
fn a_number_that_was_given_twice_is_seen_for_the_time_of_ones_own_run() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(dir.path());
    job(&registry, 1, 1000, 10, Some(100));
    job(&registry, 1, 2000, 1000, None);
    let ann = registry.runs_seen(Reader::User(1000), &key("slurm", 1)).unwrap();
    assert_eq!(ann.on(&device("n1")), (vec![(at(10), Some(at(100)))], false));
    let bob = registry.runs_seen(Reader::User(2000), &key("slurm", 1)).unwrap();
    assert_eq!(bob.on(&device("n1")), (vec![(at(1000), None)], false));
    assert!(registry.runs_seen(Reader::Everything, &key("slurm", 1)).unwrap().every);
    assert_eq!(registry.sees(Reader::User(1000), &key("slurm", 1)).unwrap(), AccessLevel::Nothing);
}

#[test]
fn who_registers_a_job_himself_joins_no_account_by_it() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(dir.path());
    let job = jobs::Registration {
        uid: 1000,
        user: None,
        name: None,
        device: DeviceId::new("n1").unwrap(),
        start: at(0),
        is_verified: false,
    };
    registry.register_local(&job).unwrap();
    let db = rusqlite::Connection::open(dir.path().join("jobs.sqlite")).unwrap();
    db.execute("UPDATE runs SET account = 'physics'", []).unwrap();
    assert_eq!(registry.accounts(None).unwrap(), []);
}

#[test]
fn names_of_accounts() {
    let fine: AccountKey = "oar:my project:x".parse().unwrap();
    assert_eq!((&*fine.name, fine.to_string()), ("my project:x", "oar:my project:x".to_owned()));
    for wrong in ["physics", "slurm:", ":x", "slurm:a\nb", &format!("a:{}", "x".repeat(101))] {
        assert!(wrong.parse::<AccountKey>().is_err(), "{wrong:?}");
    }
}

fn token(hash: u8, uid: Option<u32>) -> NewToken {
    NewToken {
        hash: [hash; 32],
        scope: "read:1000".into(),
        uid,
        note: "".into(),
        made: at(0),
        made_by: "uid 0".into(),
        expires: at(100),
    }
}

#[test]
fn tokens_are_stored_until_they_end_and_listed_for_a_while() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(dir.path());
    let first = registry.store_token(&token(1, Some(1000))).unwrap();
    let second = registry.store_token(&token(2, None)).unwrap();
    registry.note_use(&[(first, at(50)), (first, at(20))]).unwrap();
    registry.revoke_token(second, at(30)).unwrap();
    drop(registry);
    let registry = open(dir.path());
    let got = registry.tokens(None).unwrap();
    assert_eq!((got[0].id, got[1].id), (second, first));
    assert_eq!((got[1].used, got[1].revoked), (Some(at(50)), None));
    assert!(got[1].is_good(at(99)) && !got[1].is_good(at(100)) && !got[0].is_good(at(31)));
    assert_eq!(registry.tokens(Some(1000)).unwrap(), got[1..]);
    let later = NewToken { made: at(91 * 86_400), expires: at(92 * 86_400), ..token(3, None) };
    let third = registry.store_token(&later).unwrap();
    assert!(third > second, "no number is given twice");
    assert_eq!(registry.tokens(None).unwrap().len(), 1);
}

#[test]
fn one_user_has_so_many_tokens_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(dir.path());
    let mut last = 0;
    for hash in 0..32 {
        last = registry.store_token(&token(hash, Some(1000))).unwrap();
    }
    let rejected = registry.store_token(&token(40, Some(1000))).unwrap_err();
    assert!(matches!(rejected, RegistryError::TooManyOf(32, _)), "{rejected}");
    registry.store_token(&token(41, Some(2000))).unwrap();
    registry.revoke_token(last, at(1)).unwrap();
    registry.store_token(&token(42, Some(1000))).unwrap();
}

/// A record of a job on an account.
fn record(id: i64, user: &str, account: &str, (start, stop): (i64, Option<i64>)) -> JobRecord {
    let share = |device: &str| NodeShare {
        device: DeviceId::new(device).unwrap(),
        cpus: None,
        cpu_list: "".into(),
        gpus: None,
        gpu_list: "".into(),
        memory_bytes: None,
    };
    let state = if stop.is_some() { JobState::Ended } else { JobState::Running };
    JobRecord {
        display_id: id.to_string().into(),
        start: Some(at(start)),
        stop: stop.map(at),
        nodes: vec![share("n1"), share("pdu-1")],
        facts: JobFacts {
            user: Some(user.into()),
            account: Some(account.into()),
            ..JobFacts::default()
        },
        ..JobRecord::new(key("slurm", id), at(start - 5), state)
    }
}

#[test]
fn members_are_the_users_of_recorded_jobs() {
    let dir = tempfile::tempdir().unwrap();
    let users = || Users::parse(b"ann:x:1000:1000::/:/bin/sh\nbob:x:2000:2000::/:/bin/sh\n");
    let path = dir.path().join("jobs.sqlite");
    let registry = Registry::open(&path, Limits::default(), users).unwrap();
    // A node reported one of the jobs before the scheduler did. The other nodes have no agent.
    job(&registry, 2, 2000, 100, None);
    let got = [
        record(1, "ann", "physics", (100, Some(200))),
        record(2, "bob", "physics", (100, None)),
        record(3, "bob", "biology", (300, None)),
    ];
    assert_eq!(registry.ingest(&got, at(5000)).unwrap().new, 3);
    let physics: AccountKey = "slurm:physics".parse().unwrap();
    let people = registry.account(&physics).unwrap().unwrap().users;
    assert_eq!(people, [(1000, Role::Scheduler), (2000, Role::Scheduler)]);

    let periods = |uid| {
        let window = Window { reader: Reader::Tenant(uid), ..Window::default() };
        let periods = registry.intervals(&window).unwrap();
        let all = periods.iter().map(|period| format!("{} {}", period.device, period.key.id.get()));
        let all: Vec<String> = all.collect();
        // The query by device returns the same.
        for name in ["n1", "pdu-1"] {
            let device = DeviceId::new(name).ok();
            let one = registry.intervals(&Window { device, ..window.clone() }).unwrap();
            let here = all.iter().filter(|period| period.starts_with(&format!("{name} ")));
            assert_eq!(one.len(), here.count(), "{name}");
        }
        all
    };
    assert_eq!(periods(1000), ["n1 1", "pdu-1 1"]);
    assert_eq!(periods(2000), ["n1 2", "n1 3", "pdu-1 2", "pdu-1 3"]);
    assert_eq!(periods(3000), [""; 0]);
    let change = AccountChange { members_see: Some(AccessLevel::All), users: vec![] };
    registry.change_account(&physics, &change).unwrap();
    assert_eq!(periods(1000), ["n1 1", "n1 2", "pdu-1 1", "pdu-1 2"]);
    // She has no access to another account's job.
    let seen = [1, 2, 3].map(|id| registry.sees(Reader::User(1000), &key("slurm", id)).unwrap());
    assert_eq!(seen, [AccessLevel::All, AccessLevel::All, AccessLevel::Nothing]);
}

#[test]
fn a_job_that_waits_is_seen_by_its_own_and_was_nowhere() {
    let dir = tempfile::tempdir().unwrap();
    let users = || Users::parse(b"ann:x:1000:1000::/:/bin/sh\n");
    let registry =
        Registry::open(&dir.path().join("jobs.sqlite"), Limits::default(), users).unwrap();
    let mut waiting = record(1, "ann", "physics", (100, None));
    (waiting.state, waiting.start) = (JobState::Waiting, None);
    registry.ingest(&[waiting], at(5000)).unwrap();
    let ann = registry.runs_seen(Reader::Tenant(1000), &key("slurm", 1)).unwrap();
    assert_eq!(ann.elsewhere(), (vec![], true));
    let bob = registry.runs_seen(Reader::Tenant(2000), &key("slurm", 1)).unwrap();
    assert_eq!(bob.elsewhere(), (vec![], false));
    let window = Window { reader: Reader::Tenant(1000), ..Window::default() };
    assert_eq!(registry.intervals(&window).unwrap(), []);
}

/// A user loses access to an account when their jobs move to another account, or when their last job
/// there is too old.
#[test]
fn who_has_left_an_account_sees_no_more_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let users = || Users::parse(b"ann:x:1000:1000::/:/bin/sh\nbob:x:2000:2000::/:/bin/sh\n");
    let registry =
        Registry::open(&dir.path().join("jobs.sqlite"), Limits::default(), users).unwrap();
    let day = 86_400;
    let got = [
        record(1, "ann", "physics", (100, Some(200))),
        record(2, "ann", "physics", (day, Some(day + 100))),
        record(3, "bob", "physics", (100, None)),
    ];
    registry.ingest(&got, at(2 * day)).unwrap();
    let physics: AccountKey = "slurm:physics".parse().unwrap();
    let allow = |users| {
        let change = AccountChange { members_see: Some(AccessLevel::All), users };
        registry.change_account(&physics, &change).unwrap();
    };
    allow(vec![]);
    let ann = || registry.sees(Reader::User(1000), &key("slurm", 3)).unwrap();
    let people = || registry.account(&physics).unwrap().unwrap().users;
    assert_eq!(ann(), AccessLevel::All);

    // One of her two jobs moves to another account, then the other.
    registry.ingest(&[record(2, "ann", "biology", (day, Some(day + 100)))], at(2 * day)).unwrap();
    assert_eq!(ann(), AccessLevel::All);
    registry.ingest(&[record(1, "ann", "biology", (100, Some(200)))], at(2 * day)).unwrap();
    assert_eq!((ann(), people()), (AccessLevel::Nothing, vec![(2000, Role::Scheduler)]));
    // The job moves back.
    registry.ingest(&[record(1, "ann", "physics", (100, Some(200)))], at(2 * day)).unwrap();
    assert_eq!(ann(), AccessLevel::All);

    // Her last job there began earlier; Bob's is older and still runs.
    assert_eq!(registry.leave_accounts(at(100)).unwrap(), 0);
    assert_eq!(registry.leave_accounts(at(101)).unwrap(), 1);
    assert_eq!((ann(), people()), (AccessLevel::Nothing, vec![(2000, Role::Scheduler)]));
    // Her next job makes her a member again, also after a correction of an older job.
    registry.ingest(&[record(4, "ann", "physics", (2 * day, None))], at(3 * day)).unwrap();
    registry.ingest(&[record(1, "ann", "biology", (100, Some(200)))], at(3 * day)).unwrap();
    assert_eq!(ann(), AccessLevel::All);
    registry.ingest(&[record(4, "ann", "physics", (2 * day, Some(3 * day)))], at(3 * day)).unwrap();

    // Members added by people stay, and removed users stay removed.
    allow(vec![(1000, Role::Member)]);
    registry.ingest(&[record(4, "ann", "biology", (2 * day, Some(3 * day)))], at(3 * day)).unwrap();
    assert_eq!(registry.leave_accounts(at(9 * day)).unwrap(), 1, "she leaves biology");
    assert_eq!(ann(), AccessLevel::All);
    allow(vec![(1000, Role::Removed)]);
    registry.ingest(&[record(5, "ann", "physics", (4 * day, None))], at(4 * day)).unwrap();
    assert_eq!(ann(), AccessLevel::Nothing);
}

/// A node report of the job slurm:1.
fn reported(node: &str, user: Option<&str>, uid: Option<u32>, start: i64) -> JobEvent {
    JobEvent {
        key: key("slurm", 1),
        display_id: "1".into(),
        device: device(node),
        user: user.map(Into::into),
        uid,
        start: at(start),
        stop: None,
        monitor: None,
        oom_kills: Vec::new(),
    }
}

/// Returns the nodes on which a user reads the job slurm:1: by its samples, by its allocations, and by
/// its report.
fn read_on(registry: &Registry, uid: u32) -> [Vec<&'static str>; 3] {
    let reader = Reader::User(uid);
    let nodes = ["n1", "n2", "n3"];
    let seen = registry.runs_seen(reader, &key("slurm", 1)).unwrap();
    let by_samples = nodes.into_iter().filter(|node| !seen.on(&device(node)).0.is_empty());
    let periods = registry.intervals(&Window { reader, ..Window::default() }).unwrap();
    let of_job = Window { job: Some(key("slurm", 1)), uid: Some(uid), ..Window::default() };
    let spans = registry.spans(&of_job).unwrap();
    let by_allocations = nodes.into_iter().filter(|node| {
        let found = periods.iter().any(|period| period.device == device(node));
        assert_eq!(found, spans.contains_key(&device(node)), "{node}");
        found
    });
    let whole = registry.whole_seen(&key("slurm", 1), None, reader).unwrap();
    let allocations = whole.map(|whole| whole.allocations).unwrap_or_default();
    let by_report =
        nodes.into_iter().filter(|node| allocations.iter().any(|one| one.device == device(node)));
    [by_samples.collect(), by_allocations.collect(), by_report.collect()]
}

#[test]
fn a_nodes_word_on_the_owner_opens_that_node_alone() {
    // On n2 the job is Alice's (1000). n1 claims that it is Bob's (2000), for each way in which n2 names
    // her.
    for (real_user, real_uid) in [(None, None), (Some("alice"), None), (None, Some(1000))] {
        for first in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let registry = open(dir.path());
            let real =
                [reported("n2", real_user, real_uid, 10), reported("n3", real_user, real_uid, 11)];
            let fake = [reported("n1", None, Some(2000), 12)];
            let (one, two) = if first { (&fake[..], &real[..]) } else { (&real[..], &fake[..]) };
            registry.apply(one, at(20)).unwrap();
            registry.apply(two, at(20)).unwrap();
            let bob = read_on(&registry, 2000);
            for way in &bob {
                assert!(!way.contains(&"n2") && !way.contains(&"n3"), "{real_user:?} {bob:?}");
            }
            assert_eq!(bob[0], ["n1"], "what n1 counted it may give to whom it likes");
            let listed = registry.list(&Filter { reader: Reader::User(2000), ..Filter::default() });
            assert_eq!(listed.unwrap()[0].devices, [device("n1")]);
            if real_uid.is_some() {
                let alice = vec!["n2", "n3"];
                assert_eq!(read_on(&registry, 1000), [alice.clone(), alice.clone(), alice]);
            }
        }
    }
}

#[test]
fn a_record_without_a_number_takes_none_from_a_node_for_others() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(dir.path());
    let got = JobRecord {
        facts: JobFacts { uid: None, ..record(1, "alice", "physics", (10, None)).facts },
        ..record(1, "alice", "physics", (10, None))
    };
    let got = JobRecord { nodes: Vec::new(), ..got };
    registry.ingest(&[got], at(20)).unwrap();
    registry.apply(&[reported("n1", None, Some(2000), 10)], at(20)).unwrap();
    registry.apply(&[reported("n2", Some("alice"), None, 10)], at(20)).unwrap();
    for way in read_on(&registry, 2000) {
        assert!(!way.contains(&"n2"), "{way:?}");
    }
    // The name service identifies Alice. The record grants her the whole run, which excludes n1.
    registry.number_user("alice", 1000, at(30)).unwrap();
    let [by_samples, by_allocations, by_report] = read_on(&registry, 1000);
    assert!(by_samples.contains(&"n2"));
    assert_eq!((by_allocations, by_report), (vec!["n2"], vec!["n2"]));
    for way in read_on(&registry, 2000) {
        assert_eq!(way, [""; 0], "what n1 said was believed as long as nobody knew who Alice is");
    }
}

/// 4100 registrations of one user, as a registry of an earlier version may hold them, hide no other
/// user's jobs.
#[test]
fn one_users_open_jobs_are_bounded_and_hide_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(dir.path());
    let register = |uid, node: &str| {
        let job = jobs::Registration {
            uid,
            user: None,
            name: None,
            device: device(node),
            start: at(10),
            is_verified: false,
        };
        registry.register_local(&job)
    };
    let first = register(2000, "n1").unwrap();
    let db = rusqlite::Connection::open(dir.path().join("jobs.sqlite")).unwrap();
    db.execute_batch(&format!(
        "BEGIN;
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4100)
         INSERT INTO runs (cluster, id, start, last_start, display_id, uid, registered)
             SELECT 'local', 1000 + i, {start}, {start}, 1000 + i, 1000, 1 FROM n;
         INSERT INTO visits (run, device, start)
             SELECT run, 'n1', start FROM runs WHERE uid = 1000;
         COMMIT;",
        start = at(20).0
    ))
    .unwrap();
    let last = register(3000, "n1").unwrap();
    let listed = registry.local_jobs_of(&device("n1")).unwrap();
    assert_eq!(listed.len(), 4096);
    for (key, uid) in [(first, 2000), (last, 3000)] {
        assert!(listed.contains(&(key.id, uid)), "{key} of {uid}");
    }
    let rejected = register(1000, "n1").unwrap_err();
    assert!(matches!(rejected, RegistryError::OpenLocal { uid: 1000, max: 512, .. }), "{rejected}");
    let elsewhere = register(1000, "n2").unwrap();
    assert!(registry.end_local(elsewhere.id, at(30), Some(0)).unwrap());
    assert!(!registry.end_local(elsewhere.id, at(40), Some(1)).unwrap(), "nothing changes");
}
