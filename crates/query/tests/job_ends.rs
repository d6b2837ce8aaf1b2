//! Tests totals with origins and coverage, and local jobs that end without an end event.

mod lab;

use jobs::{Filter, JobName, JobRecord, Reader, Registration};
use lab::{DAY, Lab, TestSeries, at, device, key};
use model::{Cause, Gap, JobKey, JobState, Kind, Origin, Timestamp};
use query::{QueryContext, Settings};

fn second(time: f64) -> f64 {
    time - Timestamp::from_seconds(DAY).seconds()
}

fn context(reader: Reader) -> QueryContext {
    QueryContext::new(reader, at(7200.0))
}

fn all() -> QueryContext {
    context(Reader::Everything)
}

/// A job that is requeued at once has one record per run. Here the second run's cgroup exists already at the
/// last reading of the first run's counters.
#[test]
fn a_run_has_no_sample_of_the_runs_before_and_after_it() {
    let lab = Lab::new();
    let job = key("slurm", 5);
    let times = [(1000.0, 1004.0), (1004.5, 1008.0)];
    let records = times.map(|(start, stop)| JobRecord {
        start: Some(at(start)),
        stop: Some(at(stop)),
        ..JobRecord::new(job.clone(), at(start), JobState::Ended)
    });
    lab.registry.ingest(&records, at(7200.0)).unwrap();
    for (start, stop) in times {
        lab.job(&job, "n1", 1000, start, Some(stop));
    }
    let found = |metric, start, samples| TestSeries {
        device: "n1",
        metric,
        kind: if start == 0.0 { Kind::Gauge } else { Kind::Counter },
        job: Some(job.clone()),
        start: Some(start).filter(|start| *start > 0.0),
        samples,
        ..TestSeries::default()
    };
    let (cpu, peak) = ("cgroup_cpu_seconds_total", "cgroup_memory_peak_bytes");
    lab.put(&[
        found(cpu, 1000.0, &[(1002.0, 1.0), (1003.0, 3.0), (1004.6, 4.0)]),
        found(cpu, 1004.5, &[(1005.0, 0.5), (1008.0, 2.0)]),
        found(peak, 0.0, &[(1003.0, 9.0), (1008.0, 7.0)]),
    ]);
    let engine = lab.engine(Settings::default());
    let used = |by: f64| {
        let report = engine.job_report(&"5".parse().unwrap(), Some(at(by)), &all()).unwrap();
        (report.runs.len(), report.totals.cpu_seconds, report.totals.memory_peak_bytes)
    };
    assert_eq!(used(1000.0), (2, Some(4.0), Some(9.0)));
    assert_eq!(used(1005.0), (2, Some(2.0), Some(7.0)));
}

#[test]
fn totals_state_their_origins_and_the_nodes_that_they_cover() {
    let lab = Lab::new();
    let job = key("slurm", 5);
    for node in ["n1", "n2", "n3"] {
        lab.job(&job, node, 1000, 100.0, Some(1000.0));
    }
    let found = |device, metric, samples| TestSeries {
        device,
        metric,
        kind: if metric.ends_with("_total") { Kind::Counter } else { Kind::Gauge },
        job: Some(job.clone()),
        start: metric.ends_with("_total").then_some(100.0),
        samples,
        ..TestSeries::default()
    };
    let (cgroup, exits) = ("cgroup_cpu_seconds_total", "taskstats_cpu_run_virtual_seconds_total");
    lab.put(&[
        // The cgroup of n1 was removed before its last reading.
        found("n1", cgroup, &[(110.0, 5.0), (990.0, 50.0)]),
        found("n1", exits, &[(110.0, 5.0), (1000.0, 60.0)]),
        found("n1", "cgroup_unread_seconds", &[(1000.0, 0.5)]),
        found("n1", "taskstats_hiwater_rss_bytes", &[(1000.0, 4096.0)]),
        // n2 became unavailable, n3 never reported.
        found("n2", cgroup, &[(110.0, 5.0), (120.0, 6.0), (130.0, 7.0)]),
        // Without a previous reading and a start, the growth is unknown.
        TestSeries { start: None, ..found("n2", "cgroup_oom_kills_total", &[(130.0, 2.0)]) },
    ]);
    let report =
        lab.engine(Settings::default()).job_report(&"5".parse().unwrap(), None, &all()).unwrap();
    assert_eq!(report.totals.cpu_seconds, Some(67.0));
    let origin = |name: &str| report.origins.iter().find(|one| one.total == name).unwrap();
    assert_eq!(origin("cpu_seconds").origins, ["cgroup", "exits"]);
    assert_eq!(
        (report.totals.memory_peak_bytes, report.totals.unread_seconds),
        (Some(4096.0), Some(0.5))
    );
    assert_eq!(origin("memory_peak_bytes").note.as_deref(), Some("largest task"));
    let covers = report.coverage.text(|at| format!("{}", second(at)));
    assert_eq!(covers, "1 of 3 nodes; n2 silent since 130, n3 without samples");
    let line = |name: &str| report.metrics.iter().find(|line| line.metric == name).unwrap();
    assert_eq!((line(cgroup).devices, line(cgroup).increase), (2, Some(57.0)));
    assert_eq!(line("cgroup_oom_kills_total").increase, None, "not known is not 0");
    // A list shows the same usage for each job that is entirely visible to its reader.
    let listed = |reader| {
        let engine = lab.engine(Settings::default());
        engine.jobs_with_usage(&Filter::default(), &context(reader)).unwrap()
    };
    let all = listed(Reader::Everything);
    let usage = all.iter().find(|one| one.id == report.job.id).unwrap().usage.unwrap();
    assert_eq!(usage.cpu_seconds, report.totals.cpu_seconds);
    assert_eq!(usage.memory_peak_bytes, report.totals.memory_peak_bytes);
    assert!(listed(Reader::User(4242)).iter().all(|one| one.usage.is_none()));
}

/// The agent is killed 6 s into a job of 60 s, and starts again after the job.
#[test]
fn totals_of_a_job_that_outlives_its_agent_are_lower_bounds() {
    let lab = Lab::new();
    let (missed, whole) = (key("slurm", 5), key("slurm", 6));
    lab.job(&missed, "n1", 1000, 100.0, Some(106.0));
    lab.job(&whole, "n1", 1000, 100.0, Some(300.0));
    let found = |job: &JobKey, samples| TestSeries {
        device: "n1",
        metric: "cgroup_cpu_seconds_total",
        kind: Kind::Counter,
        job: Some(job.clone()),
        start: Some(100.0),
        samples,
        ..TestSeries::default()
    };
    lab.put(&[
        found(&missed, &[(102.0, 1.0), (105.0, 5.0)]),
        found(&whole, &[(102.0, 1.0), (105.0, 5.0), (170.0, 60.0), (299.0, 99.0)]),
        TestSeries {
            device: "n1",
            metric: "cgroup_unread_seconds",
            kind: Kind::Gauge,
            job: Some(whole.clone()),
            samples: &[(300.0, 0.0)],
            ..TestSeries::default()
        },
    ]);
    lab.put_gap(Gap {
        origin: Origin::new("lab").unwrap(),
        device: device("n1"),
        source: "".into(),
        from: at(106.0),
        to: at(160.0),
        cause: Cause::AgentDown,
        detail: "".into(),
    });
    let engine = lab.engine(Settings::default());
    let report = engine.job_report(&"5".parse().unwrap(), None, &all()).unwrap();
    let note = |report: &api::JobReport, total: &str| {
        let origin = report.origins.iter().find(|origin| origin.total == total);
        origin.and_then(|origin| origin.note.clone())
    };
    let down = Some("at least: no agent ran for 54 s".to_owned());
    assert_eq!((note(&report, "cpu_seconds"), note(&report, "wall_seconds")), (down.clone(), down));
    assert_eq!(report.totals.unread_seconds, Some(54.0));
    let report = engine.job_report(&"6".parse().unwrap(), None, &all()).unwrap();
    assert_eq!((note(&report, "cpu_seconds"), report.totals.unread_seconds), (None, Some(0.0)));
    let listed = engine.jobs_with_usage(&Filter::default(), &all()).unwrap();
    let bounds = |id| {
        let usage = listed.iter().find(|job| job.id == id).unwrap().usage.unwrap();
        (usage.cpu_at_least, usage.memory_peak_at_least, usage.wall_at_least)
    };
    assert_eq!((bounds(5), bounds(6)), ((true, false, true), (false, false, false)));
}

/// The agent of one node is dead while the job runs.
#[test]
fn totals_of_a_running_job_name_its_silent_nodes() {
    let lab = Lab::new();
    let job = key("slurm", 5);
    for node in ["n1", "n2", "n3"] {
        lab.job(&job, node, 1000, 100.0, None);
    }
    let found = |device, metric, samples| TestSeries {
        device,
        metric,
        kind: if metric.ends_with("_total") { Kind::Counter } else { Kind::Gauge },
        job: Some(job.clone()),
        start: metric.ends_with("_total").then_some(100.0),
        samples,
        ..TestSeries::default()
    };
    let cpu = "cgroup_cpu_seconds_total";
    lab.put(&[
        found("n1", cpu, &[(110.0, 5.0), (7199.0, 50.0)]),
        found("n2", cpu, &[(110.0, 5.0), (120.0, 6.0), (130.0, 7.0)]),
        // The job has no process on n3, so that no sample is missing.
        found("n3", cpu, &[(110.0, 5.0), (120.0, 6.0)]),
        found("n3", "cgroup_tasks", &[(110.0, 1.0), (120.0, 0.0)]),
    ]);
    let engine = lab.engine(Settings::default());
    let report = engine.job_report(&"5".parse().unwrap(), None, &all()).unwrap();
    let silent: Vec<&str> = report.coverage.silent.iter().map(|node| &*node.device).collect();
    assert_eq!((report.coverage.nodes, silent), (2, vec!["n2"]));
    let noted = |total: &str| {
        let origin = report.origins.iter().find(|origin| origin.total == total);
        origin.and_then(|origin| origin.note.clone()).unwrap_or_default()
    };
    let since = at(130.0);
    assert_eq!(noted("cpu_seconds"), format!("at least: n2 silent since {since}"));
    assert_eq!(noted("cores_used"), noted("cpu_seconds"));
    let listed = engine.jobs_with_usage(&Filter::default(), &all()).unwrap();
    assert!(listed[0].usage.unwrap().cpu_at_least);
}

/// The scheduler removes the cgroup before the last reading.
#[test]
fn a_job_without_a_last_reading_is_listed_with_lower_bounds() {
    let lab = Lab::new();
    let short = key("slurm", 5);
    lab.job(&short, "n1", 1000, 100.0, Some(100.1));
    let cpu = TestSeries {
        device: "n1",
        metric: "cgroup_cpu_seconds_total",
        kind: Kind::Counter,
        job: Some(short.clone()),
        start: Some(100.0),
        samples: &[(100.0, 0.0)],
        ..TestSeries::default()
    };
    let gauge = |metric, samples| TestSeries {
        device: "n1",
        metric,
        job: Some(short.clone()),
        samples,
        ..TestSeries::default()
    };
    let peak = gauge("cgroup_memory_peak_bytes", &[(100.0, 4096.0)]);
    lab.put(&[cpu, peak, gauge("cgroup_unread_seconds", &[(101.0, 0.04)])]);
    let listed = lab.engine(Settings::default()).jobs_with_usage(&Filter::default(), &all());
    let usage = listed.unwrap()[0].usage.unwrap();
    assert_eq!((usage.cpu_seconds, usage.memory_peak_bytes), (Some(0.0), Some(4096.0)));
    assert!(usage.cpu_at_least && usage.memory_peak_at_least && !usage.wall_at_least, "{usage:?}");
}

#[test]
fn local_jobs_without_a_sign_of_life_end_with_the_last_one() {
    let lab = Lab::new();
    let registration = |start| Registration {
        uid: 1000,
        user: None,
        name: None,
        device: device("n1"),
        start: at(start),
        is_verified: true,
    };
    let job = |start| lab.registry.register_local(&registration(start)).unwrap();
    let [silent, empty, alive, never] = [job(100.0), job(101.0), job(102.0), job(103.0)];
    let found = |metric, key: &JobKey, samples| TestSeries {
        metric,
        job: Some(key.clone()),
        samples,
        ..TestSeries::default()
    };
    lab.put(&[
        found("cgroup_memory_bytes", &silent, &[(200.0, 1.0), (300.0, 1.0)]),
        TestSeries {
            kind: Kind::Counter,
            start: Some(100.0),
            ..found("cgroup_cpu_seconds_total", &silent, &[(200.0, 1.0), (300.0, 9.0)])
        },
        // `jobmeter run` was killed: its cgroup still exists, without a process.
        found("cgroup_tasks", &empty, &[(200.0, 3.0), (400.0, 1.0), (7000.0, 0.0)]),
        found("cgroup_tasks", &alive, &[(200.0, 3.0), (7000.0, 1.0)]),
    ]);
    let engine = lab.engine(Settings::default());
    let minutes = |minutes: i64| minutes * 60 * Timestamp::SECOND;
    let ended = engine.end_silent_jobs(minutes(30), at(7200.0)).unwrap();
    let wanted = [(silent.clone(), at(300.0)), (empty, at(400.0)), (never, at(103.0))];
    assert_eq!(ended, wanted);
    assert_eq!(engine.end_silent_jobs(minutes(30), at(7200.0)).unwrap(), []);
    let report = |key: &JobKey| engine.job_report(&JobName::number(key.id), None, &all()).unwrap();
    let job = report(&silent).job;
    assert_eq!((&*job.state, job.state_word.as_deref()), ("ended", Some("NO SIGN OF LIFE")));
    assert_eq!(job.stop.map(second), Some(300.0));
    let notes = |key: &JobKey| {
        let origins = report(key).origins;
        let noted = origins.into_iter().filter_map(|origin| Some((origin.total, origin.note?)));
        noted.collect::<Vec<_>>()
    };
    let note = |total: &str, note: &str| (total.to_owned(), note.to_owned());
    let last_sign = "at least: up to the last sign of life";
    let wanted = [
        note("wall_seconds", last_sign),
        note("cpu_seconds", last_sign),
        note("memory_peak_bytes", &format!("charged to the cgroup; {last_sign}")),
        note("cores_used", "up to the last sign of life"),
    ];
    assert_eq!(notes(&silent), wanted);
    assert_eq!(report(&alive).job.state, "running");
    // A reported end replaces the guess.
    lab.registry.end_local(silent.id, at(310.0), Some(0)).unwrap();
    let job = report(&silent).job;
    assert_eq!((job.stop.map(second), job.state_word), (Some(310.0), None));
    let unseen = "at least: the end was not observed";
    let wanted = [
        note("cpu_seconds", unseen),
        note("memory_peak_bytes", &format!("charged to the cgroup; {unseen}")),
        note("cores_used", unseen),
    ];
    assert_eq!(notes(&silent), wanted);
}

#[test]
fn the_mean_of_a_gauge_holds_its_last_value_until_the_last_process_ended() {
    let lab = Lab::new();
    let job = key("slurm", 5);
    for node in ["n1", "n2"] {
        lab.job(&job, node, 1000, 100.0, Some(102.0));
    }
    let gauge = |device, metric, samples| TestSeries {
        device,
        metric,
        kind: Kind::Gauge,
        job: Some(job.clone()),
        samples,
        ..TestSeries::default()
    };
    lab.put(&[
        // Read at a tick, and again after the last process ended.
        gauge("n1", "cgroup_memory_bytes", &[(101.0, 200.0), (101.875, 4.0)]),
        gauge("n1", "cgroup_memory_anon_bytes", &[(100.0, 100.0), (101.0, 200.0), (102.0, 0.0)]),
        gauge("n1", "cgroup_tasks", &[(101.0, 3.0), (101.875, 0.0)]),
        // On the other node, no process had ended at the last reading.
        gauge("n2", "cgroup_memory_file_bytes", &[(100.0, 0.0), (101.0, 100.0), (102.0, 0.0)]),
        gauge("n2", "cgroup_tasks", &[(100.0, 0.0), (102.0, 3.0)]),
    ]);
    let report =
        lab.engine(Settings::default()).job_report(&"5".parse().unwrap(), None, &all()).unwrap();
    let average =
        |name: &str| report.metrics.iter().find(|line| line.metric == name).unwrap().average;
    assert_eq!(average("cgroup_memory_bytes"), Some(200.0));
    assert_eq!(average("cgroup_memory_anon_bytes"), Some(175.0));
    assert_eq!(average("cgroup_memory_file_bytes"), Some(50.0));
}

#[test]
fn a_gauge_that_was_read_only_after_the_last_process_has_no_value_of_the_job() {
    let lab = Lab::new();
    let job = key("slurm", 5);
    lab.job(&job, "n1", 1000, 100.0, Some(102.0));
    let gauge = |metric, samples| TestSeries {
        metric,
        kind: Kind::Gauge,
        job: Some(job.clone()),
        samples,
        ..TestSeries::default()
    };
    lab.put(&[
        gauge("cgroup_memory_bytes", &[(101.875, 4.0)]),
        gauge("cgroup_memory_limit_bytes", &[(101.875, 64.0)]),
        gauge("cgroup_memory_anon_bytes", &[(101.0, 7.0)]),
        gauge("cgroup_tasks", &[(101.875, 0.0)]),
        gauge("taskstats_hiwater_rss_bytes", &[(101.875, 32.0)]),
    ]);
    let report =
        lab.engine(Settings::default()).job_report(&"5".parse().unwrap(), None, &all()).unwrap();
    let line = |name: &str| {
        let line = report.metrics.iter().find(|line| line.metric == name).unwrap();
        (line.average, line.max)
    };
    assert_eq!(line("cgroup_memory_bytes"), (None, None));
    assert_eq!(line("cgroup_memory_limit_bytes"), (Some(64.0), Some(64.0)));
    assert_eq!(line("cgroup_memory_anon_bytes"), (Some(7.0), Some(7.0)));
    // The remaining pages are not the peak.
    assert_eq!(report.totals.memory_peak_bytes, Some(32.0));
}
