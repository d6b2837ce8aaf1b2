//! Tests the answers for `/api/v1` and for SQL tables.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod lab;

use jobs::{Filter, JobName, Reader, Registration};
use lab::{DAY, Lab, TestSeries, at, device, key};
use model::{Cause, Gap, JobKey, Kind, Origin, Timestamp, Unit};
use query::{
    AvailableFilter, QueryContext, QueryError, RangeQuery, Rate, RowQuery, Settings, View,
};
use std::collections::BTreeSet;
use storage::{JobSelector, Selector};

fn context(reader: Reader) -> QueryContext {
    QueryContext::new(reader, at(7200.0))
}

fn all() -> QueryContext {
    context(Reader::Everything)
}

fn second(time: f64) -> f64 {
    time - Timestamp::from_seconds(DAY).seconds()
}

fn of_device(name: &str) -> Selector {
    Selector { devices: Some(BTreeSet::from([device(name)])), ..Selector::default() }
}

/// A local job from second 100 to 120, with samples attributed to it, to another job, and to no job.
fn measured_job(lab: &Lab) -> JobKey {
    let registration = Registration {
        uid: 1000,
        user: None,
        name: Some("demo".into()),
        device: device("n1"),
        start: at(100.0),
        is_verified: false,
    };
    let job = lab.registry.register_local(&registration).unwrap();
    let counter = |metric, samples| TestSeries {
        metric,
        kind: Kind::Counter,
        unit: Unit::Seconds,
        job: Some(job.clone()),
        start: Some(100.0),
        samples,
        ..TestSeries::default()
    };
    let gauge =
        |metric, samples| TestSeries { kind: Kind::Gauge, start: None, ..counter(metric, samples) };
    lab.put(&[
        counter("cgroup_cpu_seconds_total", &[(105.0, 4.0), (110.0, 9.0), (120.3, 20.0)]),
        counter("cgroup_cpu_user_seconds_total", &[(105.0, 3.0), (120.3, 15.0)]),
        counter("cgroup_page_faults_total", &[(120.3, 100.0)]),
        counter("cgroup_page_faults_major_total", &[(120.3, 10.0)]),
        TestSeries {
            labels: &[("disk", "sda")],
            ..counter("cgroup_io_read_bytes_total", &[(120.3, 512.0)])
        },
        TestSeries {
            labels: &[("disk", "sdb")],
            ..counter("cgroup_io_read_bytes_total", &[(120.3, 88.0)])
        },
        gauge("cgroup_memory_bytes", &[(105.0, 10.0), (115.0, 30.0)]),
        gauge("cgroup_memory_peak_bytes", &[(105.0, 11.0), (115.0, 35.0)]),
        // Samples of another job, and node samples.
        TestSeries {
            job: Some(key("local", 99)),
            ..counter("cgroup_cpu_seconds_total", &[(105.0, 77.0)])
        },
        TestSeries { samples: &[(105.0, 1.0)], ..TestSeries::default() },
    ]);
    lab.registry.end_local(job.id, at(120.0), Some(0)).unwrap();
    lab.put_gap(Gap {
        origin: Origin::new("lab").unwrap(),
        device: device("n1"),
        source: "".into(),
        from: at(110.0),
        to: at(112.0),
        cause: Cause::MissedTicks,
        detail: "".into(),
    });
    job
}

#[test]
fn a_job_is_reported_from_what_was_counted_for_it() {
    let lab = Lab::new();
    let job = measured_job(&lab);
    let engine = lab.engine(Settings::default());
    let report = engine.job_report(&JobName::number(job.id), None, &all()).unwrap();
    assert_eq!((report.job.state.as_str(), report.job.user.as_deref()), ("ended", Some("alice")));
    assert_eq!(
        (report.job.name.as_deref(), report.job.devices),
        (Some("demo"), vec!["n1".to_owned()])
    );
    let totals = report.totals;
    assert_eq!(totals.wall_seconds, 20.0);
    assert_eq!(totals.cpu_seconds, Some(20.0), "from the start to the reading after the end");
    assert_eq!(totals.cores_used, Some(1.0));
    assert_eq!((totals.cpu_user_seconds, totals.cpu_system_seconds), (Some(15.0), None));
    assert_eq!((totals.minor_faults, totals.major_faults), (Some(90.0), Some(10.0)));
    assert_eq!((totals.io_read_bytes, totals.io_write_bytes), (Some(600.0), None));
    assert_eq!(totals.memory_peak_bytes, Some(35.0));
    assert_eq!(totals.throttled_seconds, None, "absent is not 0");
    let line = |name: &str| report.metrics.iter().find(|line| line.metric == name).unwrap().clone();
    let memory = line("cgroup_memory_bytes");
    assert_eq!((memory.average, memory.max, memory.increase), (Some(20.0), Some(30.0), None));
    assert_eq!((line("cgroup_cpu_seconds_total").samples, report.metrics.len()), (3, 7));
    assert_eq!((report.series.len(), report.gaps.len()), (8, 1));
    assert_eq!(report.gaps[0].cause, "missed ticks");

    let denied =
        engine.job_report(&JobName::number(job.id), None, &context(Reader::User(7))).unwrap_err();
    assert_eq!(denied.status(), 404, "as a job that does not exist");
    let unknown = engine.job_report(&"55".parse().unwrap(), None, &all()).unwrap_err();
    assert!(matches!(unknown, QueryError::UnknownJob(_)));
}

#[test]
fn only_the_newest_run_of_a_number_is_reported() {
    let lab = Lab::new();
    let job = key("slurm", 5);
    lab.job(&job, "n1", 1000, 100.0, Some(200.0));
    lab.job(&job, "n1", 1000, 400.0, Some(500.0));
    let run = |start, samples| TestSeries {
        metric: "cgroup_cpu_seconds_total",
        kind: Kind::Counter,
        job: Some(job.clone()),
        start: Some(start),
        samples,
        ..TestSeries::default()
    };
    lab.put(&[run(100.0, &[(150.0, 60.0), (199.0, 90.0)])]);
    lab.put(&[run(400.0, &[(450.0, 7.0), (499.0, 8.0)])]);
    let report =
        lab.engine(Settings::default()).job_report(&"5".parse().unwrap(), None, &all()).unwrap();
    assert_eq!((report.totals.cpu_seconds, report.totals.wall_seconds), (Some(8.0), 100.0));
}

#[test]
fn ranges_have_steps_missing_points_and_limits() {
    let lab = Lab::new();
    let counter: Vec<(f64, f64)> = (0..=600).map(|s| (f64::from(s), 2.0 * f64::from(s))).collect();
    let gauge: Vec<(f64, f64)> =
        (0..=600).filter(|s| !(200..400).contains(s)).map(|s| (f64::from(s), 5.0)).collect();
    lab.put(&[
        TestSeries {
            metric: "c_total",
            kind: Kind::Counter,
            unit: Unit::Seconds,
            samples: &counter,
            ..TestSeries::default()
        },
        TestSeries { metric: "g", samples: &gauge, ..TestSeries::default() },
        TestSeries {
            metric: "j",
            job: Some(key("slurm", 8)),
            samples: &[(100.0, 1.0)],
            ..TestSeries::default()
        },
    ]);
    lab.job(&key("slurm", 8), "n1", 1001, 5.0, None);
    let query = |step_us| RangeQuery {
        select: of_device("n1"),
        from: at(60.0),
        to: at(600.0),
        step_us,
        rate: Rate::Counters,
    };
    let engine = lab.engine(Settings::default());
    let range = engine.range(&query(60_000_000), &all()).unwrap();
    assert_eq!((range.series.len(), range.truncated, range.step_seconds), (3, false, 60.0));
    let c = &range.series[0];
    assert_eq!((c.series.metric.as_str(), c.value_unit.as_str()), ("c_total", "seconds/s"));
    assert_eq!(c.help, "The meaning of c_total.");
    assert_eq!(c.values, [Some(2.0); 10]);
    assert_eq!((second(c.times[0]), second(c.times[9])), (60.0, 600.0));
    let g = &range.series[1];
    assert_eq!(
        g.values,
        [
            Some(5.0),
            Some(5.0),
            Some(5.0),
            None,
            Some(5.0),
            Some(5.0),
            Some(5.0),
            Some(5.0),
            Some(5.0)
        ]
    );
    assert_eq!(range.series[2].series.job, Some(8));

    let raw = engine.range(&query(0), &all()).unwrap();
    assert_eq!((raw.series[0].times.len(), raw.series[0].values[0]), (541, Some(2.0)));
    assert_eq!(raw.series[1].values.iter().filter(|value| value.is_none()).count(), 1);

    let alice = engine.range(&query(0), &context(Reader::User(1000))).unwrap();
    assert_eq!(alice.series.len(), 2, "not somebody else's job");
    let few = lab.engine(Settings { series_max: 1, ..Settings::default() });
    let cut = few.range(&query(0), &all()).unwrap();
    assert_eq!((cut.series.len(), cut.truncated), (1, true));
    let few = lab.engine(Settings { points_max: 541, ..Settings::default() });
    let cut = few.range(&query(0), &all()).unwrap();
    assert_eq!((cut.series.len(), cut.truncated), (1, true));
    let cancelled = all();
    cancelled.cancel.cancel();
    assert!(matches!(engine.range(&query(0), &cancelled), Err(QueryError::Cancelled)));
}

#[test]
fn lists_show_what_their_reader_may_see() {
    let lab = Lab::new();
    lab.put(&[
        TestSeries {
            labels: &[("cpu", "3")],
            samples: &[(7150.0, 4.0), (7195.0, f64::NAN)],
            ..TestSeries::default()
        },
        TestSeries {
            metric: "c_total",
            kind: Kind::Counter,
            job: Some(key("slurm", 8)),
            samples: &[(7190.0, 2.0)],
            ..TestSeries::default()
        },
        TestSeries {
            device: "n10",
            labels: &[("_device_alias", "n2")],
            samples: &[(7180.0, 1.0)],
            ..TestSeries::default()
        },
        TestSeries { device: "n9", samples: &[(100.0, 1.0)], ..TestSeries::default() },
    ]);
    lab.job(&key("slurm", 8), "n1", 1001, 5.0, None);
    let engine = lab.engine(Settings::default());
    let alice = context(Reader::User(1000));
    let (from, to) = (at(0.0), at(7200.0));
    let series = engine.series(&of_device("n1"), from, to, &all()).unwrap();
    assert_eq!((series.len(), series[0].job, series[0].kind.as_str()), (2, Some(8), "counter"));
    assert_eq!(series[1].labels["cpu"], "3");
    assert_eq!(engine.series(&of_device("n1"), from, to, &alice).unwrap().len(), 1);
    let few = lab.engine(Settings { series_max: 1, ..Settings::default() });
    assert_eq!(few.series(&of_device("n1"), from, to, &all()).unwrap_err().status(), 413);
    // The first series are available, regardless of the total number.
    let first =
        |most| few.first_series(&of_device("n1"), (from, to), most, &all()).map(|all| all.len());
    assert_eq!((first(1).unwrap(), first(2).unwrap_err().status()), (1, 413));

    let last = engine.last(&of_device("n1"), &all()).unwrap();
    assert_eq!((last.len(), last[0].value, last[1].value), (2, Some(2.0), None));
    assert_eq!(second(last[1].time), 7195.0);
    assert_eq!(engine.last(&of_device("n1"), &alice).unwrap().len(), 1);

    let listed = engine.jobs(&Filter::default(), &all()).unwrap();
    assert_eq!((listed.len(), listed[0].devices.as_slice()), (1, &["n1".to_owned()][..]));
    assert!(engine.jobs(&Filter::default(), &alice).unwrap().is_empty());
    let others = Filter { uid: Some(1001), ..Filter::default() };
    assert!(engine.jobs(&others, &alice).unwrap().is_empty());

    let names: Vec<String> = engine.catalogue().into_iter().map(|metric| metric.name).collect();
    assert_eq!(names, ["c_total", "load_1m"]);

    let seen = |devices: Option<&[_]>, job: Option<&str>, context: &QueryContext| {
        let job: Option<JobName> = job.map(|job| job.parse().unwrap());
        let only = AvailableFilter { devices: devices.map(<[_]>::to_vec), job };
        let list = engine.available_metrics(at(7200.0), &only, context).unwrap();
        list.into_iter().map(|(device, metric)| format!("{device} {metric}")).collect::<Vec<_>>()
    };
    assert_eq!(seen(None, None, &all()), ["n1 c_total", "n1 load_1m", "n10 load_1m", "n2 load_1m"]);
    assert_eq!(seen(None, None, &alice), ["n1 load_1m", "n10 load_1m", "n2 load_1m"]);
    assert_eq!(seen(Some(&[device("n2")]), None, &all()), ["n2 load_1m"]);
    assert_eq!(seen(None, Some("8"), &all()), ["n1 c_total", "n1 load_1m"]);
}

#[test]
fn nodes_are_alive_or_silent_and_busy() {
    let lab = Lab::new();
    let busy: Vec<(f64, f64)> =
        (0..60).map(|i| (7080.0 + 2.0 * f64::from(i), 3.0 * f64::from(i))).collect();
    let cpu = |metric| TestSeries {
        metric,
        kind: Kind::Counter,
        unit: Unit::Seconds,
        samples: &busy,
        ..TestSeries::default()
    };
    let now = |metric, value: &'static [(f64, f64)]| TestSeries {
        metric,
        samples: value,
        ..TestSeries::default()
    };
    lab.put(&[
        cpu("cpu_user_seconds_total"),
        cpu("cpu_idle_seconds_total"),
        now("cpu_online", &[(7198.0, 4.0)]),
        now("memory_total_bytes", &[(7198.0, 100.0)]),
        now("memory_available_bytes", &[(7198.0, 60.0)]),
    ]);
    lab.job(&key("slurm", 8), "n1", 1001, 5.0, None);
    lab.job(&key("slurm", 7), "n1", 1001, 5.0, Some(9.0));
    let engine = lab.engine(Settings::default());
    let nodes = engine.nodes(&all()).unwrap();
    let node = &nodes[0];
    assert_eq!((nodes.len(), node.device.as_str(), node.alive), (1, "n1", true));
    assert_eq!((node.period_seconds, node.cpu_cores, node.series), (Some(2.0), Some(4.0), 5));
    assert_eq!((node.memory_bytes, node.memory_used_bytes), (Some(100.0), Some(40.0)));
    assert_eq!(node.cpu_cores_used, Some(1.5));
    assert_eq!(node.jobs, ["slurm:8"]);
    assert!(engine.nodes(&context(Reader::User(1000))).unwrap()[0].jobs.is_empty());
    let later = QueryContext::new(Reader::Everything, at(7207.0));
    assert!(!engine.nodes(&later).unwrap()[0].alive, "three periods of 2 s have passed");
}

/// Records may name more nodes than the registry lists at once.
#[test]
fn jobs_on_nodes_without_an_agent_hide_no_node() {
    let lab = Lab::of_rows(3);
    lab.put_of("n1", "n1");
    lab.job(&key("slurm", 8), "n1", 1001, 5.0, None);
    for id in 10..20 {
        lab.job(&key("slurm", id), &format!("other{id}"), 1001, 5.0, None);
    }
    let nodes = lab.engine(Settings::default()).nodes(&all()).unwrap();
    assert_eq!((nodes.len(), nodes[0].jobs.clone()), (1, vec!["slurm:8".to_owned()]));
}

#[test]
fn what_a_run_sends_makes_no_node_and_none_alive() {
    let lab = Lab::new();
    lab.put_of("n1", "n1");
    lab.put_of("n1/run-3", "n1");
    lab.put_of("made-up/run-4", "made-up");
    lab.put_of("n1", "pdu");
    lab.put_of("n1", "n5");
    lab.job(&key("slurm", 7), "n5", 1001, 5.0, Some(9.0));
    let engine = lab.engine(Settings::default());
    let nodes = engine.nodes(&all()).unwrap();
    let names: Vec<&str> = nodes.iter().map(|node| node.device.as_str()).collect();
    assert_eq!(names, ["n1", "n5"], "a node has an agent, or a scheduler gave it to a job");
}

#[test]
fn rows_by_job_follow_each_jobs_allocation_strictly() {
    let lab = Lab::new();
    let samples: Vec<(f64, f64)> = (0..100).map(|s| (f64::from(s), 1.0)).collect();
    lab.put(&[
        TestSeries { samples: &samples, ..TestSeries::default() },
        TestSeries {
            metric: "c_total",
            job: Some(key("a", 1)),
            samples: &[(10.0, 1.0), (21.0, 2.0)],
            ..TestSeries::default()
        },
    ]);
    lab.job(&key("a", 1), "n1", 1000, 10.0, Some(20.0));
    lab.job(&key("b", 2), "n1", 1000, 15.0, Some(30.0));
    lab.job(&key("c", 3), "n2", 1000, 15.0, None);
    let engine = lab.engine(Settings::default());
    let count = |job: JobSelector, from: f64, to: f64| {
        let (view, devices, metrics) = (View::ByJob, None, None);
        let query =
            RowQuery { view, devices, metrics, job, from: at(from), to: at(to), summary: false };
        let rows = engine.rows(&query, &all()).unwrap();
        rows.map(|batch| {
            let batch = batch.unwrap();
            let counted =
                (0..batch.len()).filter(|row| batch.line(*row).unwrap().labels.contains("_job_id"));
            (batch.len(), counted.count())
        })
        .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    };
    assert_eq!(
        count(JobSelector::Is(key("a", 1)), 0.0, 99.0),
        (9 + 2, 2),
        "bounds excluded, but for its own"
    );
    assert_eq!(count(JobSelector::Is(key("b", 2)), 0.0, 99.0), (14, 0));
    assert_eq!(count(JobSelector::Is(key("b", 2)), 20.0, 24.0), (5, 0));
    assert_eq!(count(JobSelector::Any, 0.0, 99.0), (9 + 14 + 2, 2));
    assert_eq!(count(JobSelector::Is(key("c", 3)), 0.0, 99.0), (0, 0));
    assert_eq!(count(JobSelector::None, 0.0, 99.0), (0, 0));
}

#[test]
fn of_a_number_that_was_given_again_each_user_reads_his_own_run() {
    let lab = Lab::new();
    let job = key("slurm", 9);
    lab.job(&job, "n1", 1000, 100.0, Some(200.0));
    lab.job(&job, "n1", 2000, 3000.0, Some(3100.0));
    let engine = lab.engine(Settings::default());
    let name = "9".parse().unwrap();
    let wall = |by: Option<f64>, reader| {
        let report = engine.job_report(&name, by.map(at), &context(reader));
        let found = |report: api::JobReport| (report.job.uid, report.job.start.map(second));
        report.map(found).map_err(|error| error.status())
    };
    let (first, second) = ((Some(1000), Some(100.0)), (Some(2000), Some(3000.0)));
    assert_eq!(wall(None, Reader::User(1000)), Ok(first));
    assert_eq!(wall(None, Reader::User(2000)), Ok(second));
    assert_eq!(wall(None, Reader::User(3000)), Err(404));
    assert_eq!(wall(None, Reader::Everything), Ok(second));
    assert_eq!(wall(Some(100.0), Reader::Everything), Ok(first));
    assert_eq!(wall(Some(2999.0), Reader::Everything), Ok(first));
    assert_eq!(wall(Some(99.0), Reader::Everything), Err(404));
    assert_eq!(wall(Some(100.0), Reader::User(2000)), Err(404));
    // Every run visible to the reader, newest first, regardless of the requested run.
    let runs = |by: Option<f64>, reader| {
        let report = engine.job_report(&name, by.map(at), &context(reader)).unwrap();
        let time = |at: Option<f64>| at.map(self::second);
        let found = |run: api::Run| (time(run.start), time(run.stop), run.state);
        report.runs.into_iter().map(found).collect::<Vec<_>>()
    };
    let of_first = (Some(100.0), Some(200.0), "ended".to_owned());
    let of_second = (Some(3000.0), Some(3100.0), "ended".to_owned());
    assert_eq!(runs(None, Reader::User(1000)), std::slice::from_ref(&of_first));
    assert_eq!(runs(None, Reader::Everything), [of_second.clone(), of_first.clone()]);
    assert_eq!(runs(Some(100.0), Reader::Everything), [of_second, of_first]);
    // Operations on the job need permission for its newest run.
    assert!(engine.job_key(&name, &context(Reader::User(1000))).is_err());
    assert!(engine.job_seen(&name, &context(Reader::User(1000))).is_ok());
}

#[test]
fn slow_metrics_are_available_while_they_arrive() {
    let lab = Lab::new();
    let every = |seconds: f64, from: f64, to: f64| -> Vec<(f64, f64)> {
        let times = (0..100_000).map(|n| from + seconds * f64::from(n));
        times.take_while(|at| *at <= to).map(|at| (at, 1.0)).collect()
    };
    let (slow, hourly, ended) =
        (every(600.0, 30.0, 6630.0), every(3600.0, -50_000.0, 4000.0), every(5.0, 30.0, 4000.0));
    let aliased = every(900.0, 100.0, 6400.0);
    let series =
        |device, metric, samples| TestSeries { device, metric, samples, ..TestSeries::default() };
    lab.put(&[
        series("n1", "slow", &slow),
        series("n1", "hourly", &hourly),
        series("n1", "ended", &ended),
        series("n1", "once", &[(6000.0, 1.0)]),
        series("n1", "fast", &[(7190.0, 1.0), (7195.0, 1.0)]),
        TestSeries { labels: &[("_device_alias", "n2")], ..series("pdu", "aliased", &aliased) },
    ]);
    let seen = |engine: &query::QueryEngine, second, reader, devices: Option<&[&str]>| {
        let devices = devices.map(|names| names.iter().map(|name| device(name)).collect());
        let only = AvailableFilter { devices, job: None };
        let list = engine.available_metrics(at(second), &only, &context(reader)).unwrap();
        list.into_iter().map(|(device, metric)| format!("{device} {metric}")).collect::<Vec<_>>()
    };
    let engine = lab.engine(Settings::default());
    let check = |reader| {
        let seen = |second, devices| seen(&engine, second, reader, devices);
        let all = ["n1 fast", "n1 hourly", "n1 slow", "n2 aliased", "pdu aliased"];
        assert_eq!(seen(7200.0, None), all);
        assert_eq!(seen(7200.0, Some(&["n2"])), ["n2 aliased"]);
        // The last sample of `slow` is of 6630 s: its next one is due at 7230 s.
        assert!(seen(7290.0, Some(&["n1"])).contains(&"n1 slow".to_owned()));
        assert!(!seen(7291.0, Some(&["n1"])).contains(&"n1 slow".to_owned()));
        assert_eq!(seen(7660.0, None), ["n1 hourly"]);
        assert_eq!(seen(7661.0, None), [""; 0]);
        // At a time in the past, later samples count for nothing.
        assert_eq!(seen(3900.0, Some(&["n1"])), ["n1 ended", "n1 hourly", "n1 slow"]);
        assert_eq!(seen(-30_000.0, None), ["n1 hourly"]);
        assert_eq!(seen(50.0, Some(&["n1"])), ["n1 ended", "n1 hourly", "n1 slow"]);
        assert_eq!(
            seen(300.0, Some(&["n1"])),
            ["n1 ended", "n1 hourly"],
            "one sample has no period"
        );
    };
    check(Reader::Everything);
    check(Reader::Nodes);
    // From blocks and rollups, too.
    lab.store.flush().unwrap();
    check(Reader::User(7));
    // A tenant's job began at 5000 s: `slow` has a period in its time, `hourly` has none.
    lab.job(&key("slurm", 5), "n1", 1000, 5000.0, None);
    let tenants = seen(&engine, 7200.0, Reader::Tenant(1000), None);
    assert_eq!(tenants, ["n1 fast", "n1 slow"]);
    assert_eq!(seen(&engine, 7200.0, Reader::Tenant(9), None), [""; 0]);
}
