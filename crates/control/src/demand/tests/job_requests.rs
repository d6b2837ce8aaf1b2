//! Promotions that jobs request in their environment or in their record.

use super::*;

/// A scheduler record of a job on two nodes, with its submission words.
fn record(id: i64, state: JobState, types: &[&str]) -> JobRecord {
    let share = |name: &str| NodeShare {
        device: DeviceId::new(name).unwrap(),
        cpus: None,
        cpu_list: "".into(),
        gpus: None,
        gpu_list: "".into(),
        memory_bytes: None,
    };
    let key = JobKey { cluster: ClusterId::new("oar").unwrap(), id: JobId::new(id).unwrap() };
    let mut record = JobRecord::new(key, at(0), state);
    (record.start, record.stop) = (Some(at(10)), (state == JobState::Ended).then_some(at(100)));
    record.nodes = vec![share("n2"), share("n1")];
    let facts = &mut record.facts;
    (facts.user, facts.uid, facts.queue) = (Some("alice".into()), Some(1000), Some("gpu".into()));
    facts.types = Some(types.iter().map(|word| (*word).into()).collect());
    facts.requested = Resources { wall_seconds: Some(3600.0), ..Resources::default() };
    record
}

/// Makes promotions follow the known jobs.
fn follow(demand: &DemandStore, registry: &Registry, now: Timestamp) -> FromJobs {
    let facts = registry.running_jobs().unwrap();
    demand.follow(&wanted(&facts, &[]), |_| true, now).unwrap()
}

/// A node report of a job, with its environment request.
fn seen(id: i64, node: &str, monitor: Option<&str>, stop: Option<Timestamp>) -> JobEvent {
    JobEvent {
        key: JobKey { cluster: ClusterId::new("oar").unwrap(), id: JobId::new(id).unwrap() },
        display_id: id.to_string().into(),
        device: DeviceId::new(node).unwrap(),
        user: None,
        uid: Some(1000),
        start: at(10),
        stop,
        monitor: monitor.map(Into::into),
        oom_kills: Vec::new(),
    }
}

#[test]
fn a_job_with_a_request_in_its_environment_has_the_metrics_until_it_ends() {
    let (dir, demand) = open(DemandLimits::default());
    let file = dir.path().join("jobs.sqlite");
    let registry = Registry::open(&file, Limits::default(), Users::default).unwrap();
    let follow = |now| follow(&demand, &registry, now);
    let requested = |event: JobEvent| registry.apply(&[event], at(20)).unwrap().requested;
    // The agent reports the job before it reads the job's processes.
    let news = [seen(7, "n1", None, None), seen(7, "n2", None, None), seen(8, "n1", None, None)];
    assert_eq!(registry.apply(&news, at(20)).unwrap().requested, 0);
    assert_eq!(follow(at(20)), moved(0, 0));
    assert_eq!(requested(seen(7, "n1", Some("perf_.*"), None)), 1);
    assert_eq!(follow(at(21)), moved(1, 0));
    // The same request from another node or a duplicate is the same promotion. A later, different value is
    // ignored.
    assert_eq!(requested(seen(7, "n2", Some("perf_.*"), None)), 1);
    assert_eq!(requested(seen(7, "n2", Some("perf_.*"), None)), 0);
    assert_eq!(requested(seen(7, "n2", Some("net_.*"), None)), 0);
    assert_eq!(follow(at(22)), moved(0, 0));
    let held = demand.held(at(22)).unwrap().0.promotions.remove(0);
    assert_eq!((held.nodes.as_str(), &*held.metric), ("n1,n2", "perf_.*"));
    assert_eq!((held.origin, held.job.as_deref()), (PromotionOrigin::Job, Some("oar:7")));
    // The scheduler's submission words count as well. Requests from nodes that the record does not name are
    // ignored.
    let types = ["monitor=bmc_.*"];
    registry.ingest(&[record(7, JobState::Running, &types)], at(23)).unwrap();
    assert_eq!(follow(at(23)), moved(1, 0));
    assert_eq!(requested(seen(7, "n9", Some(".*"), None)), 0);
    let metrics = |now| {
        let mut all: Vec<_> =
            demand.held(now).unwrap().0.promotions.iter().map(|one| one.metric.clone()).collect();
        all.sort();
        all
    };
    follow(at(24));
    assert_eq!(metrics(at(24)), ["bmc_.*".into(), "perf_.*".into()]);
    // A promotion that a person ended remains ended. The others end with the job.
    let number = demand.held(at(24)).unwrap().0.promotions[0].number;
    assert!(demand.demote(number, "alice", at(25)).unwrap());
    assert_eq!(follow(at(26)).began, 0);
    registry.ingest(&[record(7, JobState::Ended, &types)], at(101)).unwrap();
    let ends = ["n1", "n2", "n9"].map(|node| seen(7, node, None, Some(at(100))));
    registry.apply(&ends, at(102)).unwrap();
    follow(at(102));
    assert_eq!(metrics(at(103)), []);
}

#[test]
fn a_request_in_the_environment_survives_a_recomputation_and_is_not_the_next_jobs() {
    let (dir, _demand) = open(DemandLimits::default());
    let file = dir.path().join("jobs.sqlite");
    let registry = Registry::open(&file, Limits::default(), Users::default).unwrap();
    registry.apply(&[seen(7, "n1", Some(""), None)], at(20)).unwrap();
    // A late report of an earlier visit rewrites all visits of the job.
    let earlier = JobEvent { start: at(5), ..seen(7, "n2", None, None) };
    registry.apply(&[earlier], at(21)).unwrap();
    let monitor = || registry.running_jobs().unwrap().remove(0).monitor;
    assert_eq!(monitor(), ["".into()]);
    let ends = [seen(7, "n1", None, Some(at(30))), {
        JobEvent { start: at(5), ..seen(7, "n2", None, Some(at(30))) }
    }];
    registry.apply(&ends, at(31)).unwrap();
    registry.apply(&[JobEvent { start: at(500), ..seen(7, "n1", None, None) }], at(501)).unwrap();
    assert_eq!(monitor(), [] as [Box<str>; 0]);
    let mut local = seen(9, "n1", Some(""), None);
    local.key.cluster = ClusterId::local();
    assert_eq!(registry.apply(&[local], at(502)).unwrap().requested, 0, "its user asks himself");
}

#[test]
fn a_request_in_the_environment_is_not_that_of_another_users_job_of_the_id() {
    let (dir, _demand) = open(DemandLimits::default());
    let file = dir.path().join("jobs.sqlite");
    let registry = Registry::open(&file, Limits::default(), Users::default).unwrap();
    // The node disappeared without reporting the end.
    registry.apply(&[seen(7, "n5", Some(".*"), None)], at(20)).unwrap();
    let others =
        |monitor| JobEvent { uid: Some(2000), start: at(500), ..seen(7, "n1", monitor, None) };
    registry.apply(&[others(None)], at(501)).unwrap();
    let requested = || -> Vec<_> {
        let facts = registry.running_jobs().unwrap();
        facts.into_iter().map(|job| (job.facts.uid, job.monitor)).collect()
    };
    assert!(requested().iter().any(|(uid, _)| *uid == Some(2000)));
    assert!(requested().iter().all(|(_, monitor)| monitor.is_empty()), "{:?}", requested());
    registry.apply(&[others(Some("net_.*"))], at(502)).unwrap();
    let of_now = requested().into_iter().find(|(_, monitor)| !monitor.is_empty());
    assert_eq!(of_now, Some((Some(2000), vec!["net_.*".into()])));
}

#[test]
fn a_job_with_a_request_in_its_record_has_the_metrics_until_it_ends() {
    let (dir, demand) = open(DemandLimits::default());
    let file = dir.path().join("jobs.sqlite");
    let registry = Registry::open(&file, Limits::default(), Users::default).unwrap();
    let follow = |now| follow(&demand, &registry, now);
    let types = ["besteffort", "monitor=perf_.*"];
    let waits = record(7, JobState::Waiting, &types);
    let silent = record(8, JobState::Running, &["besteffort"]);
    registry.ingest(&[waits, silent], at(5)).unwrap();
    assert_eq!(follow(at(5)), moved(0, 0));
    registry.ingest(&[record(7, JobState::Running, &types)], at(11)).unwrap();
    assert_eq!(follow(at(11)), moved(1, 0));
    let held = demand.held(at(12)).unwrap().0.promotions.remove(0);
    assert_eq!((held.nodes.as_str(), &*held.metric, &*held.by), ("n1,n2", "perf_.*", "alice"));
    assert_eq!(held.job.as_deref(), Some("oar:7"));
    assert!(held.until > Some(at(3610)), "its limit, and a little more");
    registry.ingest(&[record(7, JobState::Ended, &types)], at(101)).unwrap();
    assert_eq!(follow(at(101)), moved(0, 1));
    assert!(demand.held(at(102)).unwrap().0.promotions.is_empty());
}
