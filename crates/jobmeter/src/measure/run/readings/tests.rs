//! Tests of the totals from a run's readings.

use super::*;

#[test]
fn values_of_one_metric_are_summed_over_labels() {
    let mut last = BTreeMap::new();
    for (name, labels, value) in [
        ("a", "{}", 1.0),
        ("io", "{\"device\": \"sda\"}", 2.0),
        ("io", "{\"device\": \"sdb\"}", 3.0),
        ("iox", "{}", 9.0),
    ] {
        last.insert((name.to_owned(), labels.to_owned()), value);
    }
    assert_eq!(sum(&last, "io"), Some(5.0));
    assert_eq!(sum(&last, "i"), None);
}

#[test]
fn an_oom_kill_is_noted_once() {
    let mut sink = Sink::new(DeviceId::new("n1").unwrap());
    let job = JobCgroup {
        key: JobKey { cluster: model::ClusterId::local(), id: model::JobId::new(1).unwrap() },
        display_id: "1".into(),
        user: None,
        uid: None,
        dirs: Vec::new(),
        created: Timestamp(0),
        populated: true,
        directories_max: cgroups::USER_DIRECTORIES_MAX,
    };
    let kill = model::OomKill {
        at: Timestamp(5_000_000),
        pid: 7,
        uid: None,
        task: "tail".into(),
        task_bytes: Some(1 << 20),
        limit_bytes: None,
    };
    sink.oom_kill(&job, kill);
    let mut kills = Vec::new();
    note_kills(&sink, &mut kills);
    note_kills(&sink, &mut kills);
    assert_eq!(kills.len(), 1);
    assert_eq!((&*kills[0].device, &*kills[0].task, kills[0].time), ("n1", "tail", 5.0));
}

#[test]
fn a_smaller_last_reading_takes_nothing_away() {
    let mut sink = Sink::new(DeviceId::new("n1").unwrap());
    let mut last = BTreeMap::new();
    for value in [2.0, 5.0, 3.0] {
        sink.begin(Timestamp(0));
        sink.of_device().counter(&tree::CPU, &[], value, Timestamp(0));
        keep_last(&sink, &mut last);
    }
    assert_eq!(sum(&last, &tree::CPU.name), Some(5.0));
}

#[test]
fn all_numbers_include_the_same_processes() {
    let cgroup = Totals {
        cpu_seconds: Some(0.1),
        cpu_user_seconds: Some(0.0),
        memory_peak_bytes: Some(2e6),
        minor_faults: None,
        ..Totals::default()
    };
    let ended = Usage {
        user_us: 1_500_000,
        system_us: 500_000,
        max_rss_kib: 65_536,
        minor_faults: 7,
        ..Usage::default()
    };
    assert!(has_left(&cgroup, ended), "2 s that no cgroup of the job has");
    let faults = Totals { minor_faults: Some(100.0), ..Totals::default() };
    let many = Usage { minor_faults: 90_000, ..Usage::default() };
    assert!(has_left(&faults, many) && !has_left(&faults, Usage::default()));
    let little = Totals { cpu_seconds: Some(1.99), ..cgroup.clone() };
    assert!(has_left(&little, ended), "10 ms of a nested run");
    let whole = Totals { cpu_seconds: Some(1.999), ..cgroup.clone() };
    assert!(!has_left(&whole, ended));
    let totals = with_ended(whole, ended, 0.0);
    assert_eq!((totals.cpu_seconds, totals.cpu_user_seconds), (Some(2.0), Some(1.5)));
    assert_eq!(totals.memory_peak_bytes, Some(2e6), "what was charged, within its limit");
    let missed = Totals { memory_peak_bytes: None, ..cgroup.clone() };
    assert_eq!(with_ended(missed, ended, 0.0).memory_peak_bytes, Some(67_108_864.0));
    assert_eq!(totals.minor_faults, None, "what no cgroup and no source counts is not known");
    // The cgroup has counted more: it includes a process that was not waited for.
    let less = Usage { user_us: 50_000, max_rss_kib: 2200, ..Usage::default() };
    let totals = with_ended(cgroup, less, 0.0);
    assert_eq!((totals.cpu_seconds, totals.cpu_user_seconds), (Some(0.1), Some(0.0)));
    assert_eq!(totals.memory_peak_bytes, Some(2e6), "the start of any program");
}

#[test]
fn the_end_of_a_task_is_no_switch_of_the_command() {
    let counted = |switches| Totals {
        cpu_seconds: Some(0.5),
        voluntary_switches: Some(switches),
        ..Totals::default()
    };
    let ended = Usage { user_us: 500_000, voluntary_switches: 201, ..Usage::default() };
    let of = |switches| with_ended(counted(switches), ended, 201.0).voluntary_switches;
    assert_eq!(of(401.0), Some(201.0), "200 threads that ended");
    assert_eq!(of(903.0), Some(903.0), "children whose usage the kernel dropped");
}

#[test]
fn a_short_command_has_no_more_processor_time_than_wall_time() {
    let read_after = Duration::from_millis(1);
    assert_eq!(within(0.0015, 0.0014, read_after), 0.0014);
    assert_eq!(within(0.0013, 0.0014, read_after), 0.0013);
    assert_eq!(
        within(0.0030, 0.0014, read_after),
        0.0030,
        "more than the time until the last reading"
    );
    assert_eq!(within(2.0, 1.0, Duration::from_secs(60)), 2.0, "two tasks");
}

#[test]
fn the_exact_times_of_ended_processes_count_without_the_costs_of_the_cgroup() {
    let counted = |cpu| Totals { cpu_seconds: Some(cpu), ..Totals::default() };
    let ended = Usage { user_us: 1_000, system_us: 500, ..Usage::default() };
    assert_eq!(with_ended(counted(0.0033), ended, 0.0).cpu_seconds, Some(0.0015));
    assert_eq!(with_ended(counted(0.0013), ended, 0.0).cpu_seconds, Some(0.0015));
    let reaped_by_the_kernel = with_ended(counted(0.0315), ended, 0.0).cpu_seconds;
    assert_eq!(reaped_by_the_kernel, Some(0.0315));
}

#[test]
fn what_the_process_used_before_the_command_is_not_the_commands() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("proc")).unwrap();
    let root = Root::recorded(dir.path()).unwrap();
    let device = DeviceId::new("n1").unwrap();
    let mut measure = Measure::open(&root, Timestamp(0), &device);
    for (name, value) in [
        ("cgroup_cpu_seconds_total", 0.003),
        ("cgroup_cpu_user_seconds_total", 0.0),
        ("cgroup_page_faults_total", 110.0),
        ("cgroup_page_faults_major_total", 1.0),
        ("taskstats_voluntary_switches_total", 4.0),
        ("taskstats_write_bytes_total", 9000.0),
        ("taskstats_cancelled_write_bytes_total", 5000.0),
    ] {
        measure.last.insert((name.to_owned(), "{}".to_owned()), value);
    }
    let in_cgroup = Usage { user_us: 500, system_us: 1500, minor_faults: 60, ..Usage::default() };
    let all = Usage { voluntary_switches: 3, minor_faults: 90, ..in_cgroup };
    measure.before = Before { all, in_cgroup };
    measure.set_ended(Usage { system_us: 1000, ..Usage::default() });
    let totals = measure.totals(Duration::from_millis(2), Duration::ZERO);
    assert!(totals.cpu_seconds.is_some_and(|cpu| (cpu - 0.001).abs() < 1e-9), "{totals:?}");
    assert_eq!(totals.cpu_user_seconds, Some(0.0), "never negative");
    assert_eq!((totals.minor_faults, totals.voluntary_switches), (Some(49.0), Some(1.0)));
    assert_eq!(totals.io_write_bytes, Some(4000.0), "without cancelled writes");
    let key = JobKey { cluster: model::ClusterId::local(), id: model::JobId::new(1).unwrap() };
    // The memory of jobmeter's own process must not count as the command's.
    measure.tree = Some(Tree::new(1, key, Timestamp(0)));
    measure.joined(Timestamp(0));
    assert_eq!(measure.tree.as_ref().map(|tree| tree.resident_bytes_max), Some(0.0));
    assert!(measure.own_sink.samples().next().is_none());
}

#[test]
fn the_last_reading_of_processes_is_sent_once() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("proc")).unwrap();
    let root = Root::recorded(dir.path()).unwrap();
    let mut measure = Measure::open(&root, Timestamp(0), &DeviceId::new("n1").unwrap());
    let key = JobKey { cluster: model::ClusterId::local(), id: model::JobId::new(1).unwrap() };
    measure.begin(&key, &JobDirs::default(), Timestamp(0));
    measure.collect(Timestamp(1));
    measure.end(&key, Timestamp(2));
    let samples = measure.own_sink.samples();
    let samples = samples.map(|(entry, at, _)| (entry.metric.name.to_string(), at));
    let mut samples: Vec<_> = samples.collect();
    samples.sort();
    let count = samples.len();
    samples.dedup();
    assert!(samples.contains(&(tree::CPU.name.to_string(), Timestamp(2))), "{samples:?}");
    assert_eq!(samples.len(), count, "one sample per series and instant");
}
