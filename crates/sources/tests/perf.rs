//! The source `perf` on this machine: a known load in a cgroup that the test creates, compared with `perf stat`
//! and the kernel's other counters.
//!
//! It needs root and a kernel that permits mounting version 1's hierarchy `perf_event`; elsewhere it prints a
//! message and passes. The mount takes the controller from version 2, so tests run one at a time.

#![expect(clippy::disallowed_methods, reason = "waits for real processes")]
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a failure here fails the test"
)]

mod perf_ground;

use cgroups::{Hierarchies, Hierarchy, Jobs};
use kernel::Root;
use kernel::allocations::{CountingAllocator, on_this_thread};
use model::Timestamp;
use perf_ground::{
    Group, Mounted, Observer, alone, assert_close, counters_open, now, of_job, of_node, run,
};
use sources::{Context, PartState, SourceError};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Child;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Events that a virtual machine without a PMU counts.
const SOFTWARE: &str = "task_clock,page_faults,page_faults_min,context_switches,cpu_migrations";

/// About 1 s of short processes, and the memory that they touch.
const LOAD: &str = "i=0; while [ $i -lt 400 ]; do i=$((i+1)); head -c 300000 /dev/zero | tail -c 1; done >/dev/null";

/// The same in few processes: inherited counters miss the end of each process, a cgroup's counters do not.
const LONG_LOAD: &str = "i=0; while [ $i -lt 500000 ]; do i=$((i+1)); done; \
    for n in 1 2 3; do head -c 100000000 /dev/zero | tail -c 100000000 >/dev/null; done";

/// Processes of that load: the shell, and two for each of three pipes.
const PROCESSES: f64 = 7.0;
/// Context switches per process that only one of two counters has. `perf stat` counts the shell from its
/// program's start, the cgroup from its joining; only the cgroup counts the last switch of a process. One of
/// these per process, and the same again if other processes use the processor meanwhile.
const SWITCHES_EACH: f64 = 4.0;
/// Page faults of a shell before it joins its cgroup: program and libraries cause about 100; twice that here.
const JOINING_FAULTS: f64 = 200.0;
/// Milliseconds of processor time of a shell before it joins: 1 to 5 were observed.
const JOINING_MS: f64 = 20.0;

/// Runs the load in a job under `perf stat`; returns its values by the names of its events, or `None` without
/// the program.
fn perf_stat(group: &Group) -> Option<BTreeMap<String, f64>> {
    let report = tempfile::NamedTempFile::new().unwrap();
    let events = "task-clock,page-faults,minor-faults,context-switches,cpu-migrations";
    let script = group.joined(LONG_LOAD);
    let mut arguments = vec!["stat", "-x", ";", "-o", report.path().to_str().unwrap()];
    arguments.extend(["-e", events, "--", "sh", "-c", &script]);
    if let Err(error) = run("perf", &arguments) {
        eprintln!("not run: perf stat, of Debian's linux-perf: {error}");
        return None;
    }
    let text = fs::read_to_string(report.path()).unwrap();
    let fields = |line: &str| {
        let fields: Vec<_> = line.split(';').collect();
        Some(((*fields.get(2)?).to_owned(), fields.first()?.parse().ok()?))
    };
    Some(text.lines().filter_map(fields).collect())
}

/// Compares the same load in a job, counted by the source and by `perf stat`.
fn agrees_with_perf_stat(group: &Group) {
    let Some(mut observer) = Observer::counting(SOFTWARE) else { return };
    observer.tick(&group.jobs());
    assert_eq!(observer.part("jobs"), PartState::Ok);
    let Some(stat) = perf_stat(group) else { return };
    let run = observer.tick(&group.jobs());
    let job = |metric: &str| of_job(&run, metric);
    // Milliseconds.
    let clock = job("task_clock_seconds_total") * 1e3;
    assert_close("task_clock", clock, stat["task-clock"], (0.01, JOINING_MS));
    let faults = (0.01, JOINING_FAULTS);
    assert_close("page_faults", job("page_faults_total"), stat["page-faults"], faults);
    assert_close("minor", job("page_faults_min_total"), stat["minor-faults"], faults);
    let switches = (0.01, PROCESSES * SWITCHES_EACH);
    assert_close("switches", job("context_switches_total"), stat["context-switches"], switches);
    let migrations = (job("cpu_migrations_total"), stat["cpu-migrations"]);
    assert!(
        (migrations.0 - migrations.1).abs() <= 0.01 * migrations.1 + 2.0 * PROCESSES,
        "{migrations:?}"
    );
    assert!(of_node(&run, "page_faults_total") >= job("page_faults_total"));
}

#[test]
fn a_cgroups_counters_agree_with_perf_stat_in_both_versions() {
    let _alone = alone();
    let Some(mounted) = Mounted::new() else { return };
    if let Some(group) = Group::new(&mounted.path(), Hierarchy::PerfEvent, 1) {
        agrees_with_perf_stat(&group);
    }
    drop(mounted);
    let hierarchies = Hierarchies::read(&Root::live().unwrap()).unwrap();
    let unified =
        hierarchies.mounts().iter().find(|it| it.hierarchies.contains(&Hierarchy::Unified));
    let Some(unified) = unified.filter(|_| {
        !hierarchies.mounts().iter().any(|it| it.hierarchies.contains(&Hierarchy::PerfEvent))
    }) else {
        return eprintln!("not run: version 2 is not mounted, or version 1 has perf_event");
    };
    let mount = Path::new("/").join(&unified.path);
    let Some(group) = Group::new(&mount, Hierarchy::Unified, 2) else { return };
    wait_for_version_2(&group);
    agrees_with_perf_stat(&group);
}

/// Waits until version 2 has the controller: the kernel returns it with a delay.
fn wait_for_version_2(group: &Group) {
    let is_counted = || {
        let mut observer = Observer::counting("dummy")?;
        observer.tick(&group.jobs());
        Some(observer.part("jobs") == PartState::Ok)
    };
    for _ in 0..200 {
        if is_counted() != Some(false) {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("the controller perf_event does not come back to version 2");
}

#[test]
fn the_nodes_switches_are_those_of_proc_stat() {
    let _alone = alone();
    let Some(mut observer) = Observer::counting("context_switches,cpu_clock") else { return };
    let switches = || {
        let text = fs::read_to_string("/proc/stat").unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("ctxt ")).unwrap();
        line.parse::<f64>().unwrap()
    };
    let jobs = Jobs::default();
    // Other processes switch, and time passes, while the counters are read: read both before and after.
    let looked = |observer: &mut Observer| {
        let before = (switches(), kernel::clock::monotonic_us());
        let run = observer.tick(&jobs);
        (before, run, (switches(), kernel::clock::monotonic_us()))
    };
    let (before, first, after) = looked(&mut observer);
    run("sh", &["-c", LOAD]).unwrap();
    let (before_again, again, after_again) = looked(&mut observer);
    let grown = |metric: &str| of_node(&again, metric) - of_node(&first, metric);
    let within = |what: &str, found: f64, least: f64, most: f64| {
        let middle = f64::midpoint(least, most);
        assert_close(what, found, middle, (0.01, (most - least) / 2.0));
    };
    let [least, most] = [before_again.0 - after.0, after_again.0 - before.0];
    within("switches", grown("context_switches_total"), least, most);
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    let cpus = kernel::pmu::cpus(&online).unwrap().len() as f64;
    let [least, most] =
        [before_again.1 - after.1, after_again.1 - before.1].map(|us| us as f64 / 1e6 * cpus);
    within("cpu_clock", grown("cpu_clock_seconds_total"), least, most);
}

#[test]
fn a_pmu_of_sysfs_counts_by_its_own_event_names() {
    let _alone = alone();
    if !Path::new("/sys/bus/event_source/devices/msr/events/tsc").exists() {
        return eprintln!("not run: this machine has no PMU msr");
    }
    let Some(mut observer) = Observer::counting("msr/tsc/,msr/event=0x0/,cpu_cycle_s/x/,dummy")
    else {
        return;
    };
    let jobs = Jobs::default();
    observer.tick(&jobs);
    let steps = |observer: &Observer| -> Vec<(String, f64)> {
        let samples =
            observer.sink.samples().filter(|(it, ..)| it.metric.name == "perf_event_total");
        samples.map(|(entry, _, value)| (entry.labels.to_string(), value)).collect()
    };
    let (before, began) = (steps(&observer), kernel::clock::monotonic_us());
    std::thread::sleep(Duration::from_millis(200));
    observer.tick(&jobs);
    let (after, us) = (steps(&observer), (kernel::clock::monotonic_us() - began) as f64);
    assert_eq!(after.len(), 2, "{after:?}");
    assert_eq!(after[0].0, r#"{"event": "msr/tsc/"}"#);
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    let cpus = kernel::pmu::cpus(&online).unwrap().len() as f64;
    let mhz = (after[0].1 - before[0].1) / us / cpus;
    assert!((500.0..10_000.0).contains(&mhz), "{mhz} MHz");
    // The two are read one after the other, on a busy machine tens of milliseconds apart.
    let between = 50_000.0 * mhz * cpus;
    let same = after[1].1 - before[1].1;
    assert_close("the same by its number", same, mhz * us * cpus, (0.05, between));
    let PartState::Not(missing) = observer.part("events") else { panic!("an unknown PMU") };
    let why = "this machine has no PMU `cpu_cycle_s`, and no PMU of this name is known";
    assert_eq!(missing, SourceError::broken(why));
}

/// Page faults of a process and of the children that it waited for, by the kernel's account.
fn faults_of(pid: u32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<_> = text.rsplit_once(')').unwrap().1.split_ascii_whitespace().collect();
    fields[7..11].iter().map(|count| count.parse::<f64>().unwrap()).sum()
}

/// Lets a shell that waits for input continue, and waits until it is done.
fn step(shell: &mut Child, done: &Path) {
    use std::io::Write;
    fs::remove_file(done).ok();
    shell.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    while !done.exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_job_without_a_cgroup_for_counters_is_counted_by_its_processes() {
    let _alone = alone();
    let mount = Path::new("/sys/fs/cgroup/cpuacct");
    let Some(group) = Group::new(mount, Hierarchy::Cpuacct, 3) else { return };
    let Some(mut observer) = Observer::counting("page_faults,task_clock") else { return };
    let done = tempfile::tempdir().unwrap();
    let done = |name: &str| done.path().join(name);
    let script = |name: &str| {
        let touch = format!("touch {}", done(name).display());
        format!("while read line; do {LOAD}; {touch}; done")
    };
    let jobs = group.jobs();
    let idle = counters_open();
    let mut first = group.start(&script("first"));
    let run = observer.tick(&jobs);
    assert!(of_job(&run, "page_faults_total") < 1000.0);
    let PartState::Not(error) = observer.part("jobs") else { panic!("by its processes") };
    assert!(error.to_string().starts_with("absent: job local:3 has no cgroup"), "{error}");

    let before = faults_of(first.id());
    step(&mut first, &done("first"));
    let run = observer.tick(&jobs);
    let of_first = faults_of(first.id()) - before;
    // When the kernel sets up a new program's arguments, it counts one fault for the process but
    // not for perf: one per program.
    assert_close("inherited", of_job(&run, "page_faults_total"), of_first, (0.015, JOINING_FAULTS));

    // A process that joins from elsewhere is followed from its discovery, and counts once.
    let mut second = group.start(&script("second"));
    let pid = second.id().to_string();
    while !fs::read_to_string(group.path.join("cgroup.procs")).unwrap().lines().any(|it| it == pid)
    {
        std::thread::sleep(Duration::from_millis(1));
    }
    let began = of_job(&observer.tick(&jobs), "page_faults_total");
    let before = faults_of(second.id());
    step(&mut second, &done("second"));
    let open = counters_open();
    let run = observer.tick(&jobs);
    let of_second = faults_of(second.id()) - before;
    assert_close(
        "newcomer",
        of_job(&run, "page_faults_total") - began,
        of_second,
        (0.015, JOINING_FAULTS),
    );
    // The children of the process are counted with it.
    assert_eq!(counters_open(), open);

    // Counts of ended processes remain, and their descriptors close.
    for shell in [&mut first, &mut second] {
        drop(shell.stdin.take());
        shell.wait().unwrap();
    }
    let last = observer.tick(&jobs);
    assert!(of_job(&last, "page_faults_total") >= of_job(&run, "page_faults_total"));
    observer.tick(&Jobs::default());
    drop(observer);
    assert_eq!(counters_open(), idle);
}

#[test]
fn a_job_that_ends_is_read_once_more_and_closed() {
    let _alone = alone();
    let Some(mounted) = Mounted::new() else { return };
    let Some(group) = Group::new(&mounted.path(), Hierarchy::PerfEvent, 4) else { return };
    let Some(mut observer) = Observer::counting("page_faults") else { return };
    observer.tick(&Jobs::default());
    let idle = counters_open();
    let run = observer.tick(&group.jobs());
    let of_job_alone = counters_open() - idle;
    assert!(of_job_alone > 0);
    assert_eq!(of_node(&run, "descriptors"), counters_open() as f64);
    group.start(LOAD).wait().unwrap();
    let mut ended = group.job.clone();
    ended.dirs.clear();
    drop(group);
    observer.sink.sealed();
    observer.ended(&Jobs::new(vec![ended], Vec::new()));
    let value = observer.sink.samples().map(|(_, _, value)| value).next().unwrap();
    assert!(value > 10_000.0, "{value}");
    assert_eq!(counters_open(), idle);
}

#[test]
fn a_job_that_lives_between_two_ticks_is_counted_from_its_discovery() {
    let _alone = alone();
    let Some(mounted) = Mounted::new() else { return };
    let Some(group) = Group::new(&mounted.path(), Hierarchy::PerfEvent, 9) else { return };
    let Some(mut observer) = Observer::counting("page_faults") else { return };
    observer.tick(&Jobs::default());
    let idle = counters_open();
    let discovered = now();
    observer.drain(&group.jobs());
    assert!(counters_open() > idle, "open before the first tick");
    group.start(LOAD).wait().unwrap();
    let mut ended = group.job.clone();
    ended.dirs.clear();
    drop(group);
    observer.ended(&Jobs::new(vec![ended], Vec::new()));
    let mut samples = observer.sink.samples();
    let (entry, _, value) = samples.find(|(entry, ..)| entry.job.is_some()).unwrap();
    // The shell joins before anything else: nothing is missing.
    assert!(value > 10_000.0, "{value}");
    assert!(entry.start.unwrap() >= discovered, "the start shows the begin of the count");
    assert_eq!(counters_open(), idle);
}

#[test]
fn a_followed_job_is_counted_from_its_discovery() {
    let _alone = alone();
    let mount = Path::new("/sys/fs/cgroup/cpuacct");
    let Some(group) = Group::new(mount, Hierarchy::Cpuacct, 10) else { return };
    let Some(mut observer) = Observer::counting("page_faults") else { return };
    observer.tick(&Jobs::default());
    let idle = counters_open();
    let mut shell = group.start(&format!("read line; {LOAD}; exec sleep 60"));
    observer.drain(&group.jobs());
    assert!(counters_open() > idle, "its first process is followed before the first tick");
    shell.kill().unwrap();
    shell.wait().unwrap();
    observer.tick(&Jobs::default());
    assert_eq!(counters_open(), idle);
}

#[test]
fn counters_beyond_the_limit_are_reported_and_not_opened() {
    let _alone = alone();
    let Some(mounted) = Mounted::new() else { return };
    let Some(group) = Group::new(&mounted.path(), Hierarchy::PerfEvent, 5) else { return };
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    let cpus = kernel::pmu::cpus(&online).unwrap().len();
    let max = (2 * cpus + 1).to_string();
    let settings = [("events", "page_faults,dummy"), ("descriptors_max", &*max)];
    let Ok(mut observer) = Observer::open(&settings) else { return eprintln!("not run") };
    let run = observer.tick(&group.jobs());
    assert_eq!(of_node(&run, "descriptors"), 2.0 * cpus as f64);
    assert_eq!(of_node(&run, "uncounted_jobs"), 1.0);
    assert!(!run.contains_key(&("perf_page_faults_total".to_owned(), true)));
    let PartState::Not(error) = observer.part("jobs") else { panic!("beyond the limit") };
    let expected = format!(
        "broken: job local:5: needs {} descriptors, but 1 of {max} are left; raise descriptors_max or LimitNOFILE, or count fewer events",
        2 * cpus
    );
    assert_eq!(error.to_string(), expected);
}

#[test]
fn another_list_of_events_opens_new_counters() {
    let _alone = alone();
    let Some(mut observer) = Observer::counting("page_faults,context_switches") else { return };
    observer.tick(&Jobs::default());
    run("sh", &["-c", LOAD]).unwrap();
    let before = of_node(&observer.tick(&Jobs::default()), "page_faults_total");
    let Some(mut observer) = Observer::counting("context_switches,page_faults") else { return };
    let run = observer.tick(&Jobs::default());
    assert!(of_node(&run, "page_faults_total") < before / 2.0);
    let opened = observer.opened;
    let begins = |(entry, ..): (&model::SeriesEntry, _, _)| entry.start.unwrap() >= opened;
    assert!(observer.sink.samples().filter(|(entry, ..)| entry.start.is_some()).all(begins));
}

#[test]
fn the_steady_state_allocates_nothing() {
    let _alone = alone();
    let mount = Path::new("/sys/fs/cgroup/cpuacct");
    let Some(mounted) = Mounted::new() else { return };
    let Some(group) = Group::new(&mounted.path(), Hierarchy::PerfEvent, 6) else { return };
    let Some(followed) = Group::new(mount, Hierarchy::Cpuacct, 7) else { return };
    let mut shells = [&group, &followed].map(|group| group.start("exec sleep 60"));
    let Some(mut observer) = Observer::counting(&format!("{SOFTWARE},msr/tsc/,r01c2")) else {
        return;
    };
    let jobs = Jobs::new(vec![group.job.clone(), followed.job.clone()], Vec::new());
    let mut counts = Vec::new();
    for _ in 0..20 {
        let now = now();
        observer.sink.begin(now);
        let (root, boot) = (&observer.root, Timestamp(0));
        let cx = Context { root, now, boot, jobs: &jobs, budget_us: 1_000_000, is_between: false };
        let before = on_this_thread();
        observer.source.collect(&cx, &mut observer.sink).unwrap();
        counts.push(on_this_thread() - before);
        assert!(observer.sink.len() > 15, "{}", observer.sink.len());
        observer.sink.sealed();
    }
    for shell in &mut shells {
        shell.kill().unwrap();
        shell.wait().unwrap();
    }
    assert!(counts[3..].iter().all(|count| *count == 0), "{counts:?}");
}

/// `CARGO_PROFILE_DEV_OPT_LEVEL=3 cargo test -p sources --test perf -- --ignored --nocapture`
#[test]
#[ignore = "prints measurements; asserts nothing, as a busy machine would fail it"]
fn processor_time_of_a_reading() {
    const TICKS: u64 = 2000;
    let _alone = alone();
    let Some(mounted) = Mounted::new() else { return };
    let Some(group) = Group::new(&mounted.path(), Hierarchy::PerfEvent, 8) else { return };
    for (jobs, target) in [(Jobs::default(), "the node"), (group.jobs(), "the node and a job")] {
        for events in ["page_faults", SOFTWARE, "msr/tsc/"] {
            let Some(mut observer) = Observer::counting(events) else { return };
            observer.tick(&jobs);
            let (root, now, boot) = (&observer.root, now(), Timestamp(0));
            let cx =
                Context { root, now, boot, jobs: &jobs, budget_us: 1_000_000, is_between: false };
            let start = kernel::clock::thread_cpu_us();
            for _ in 0..TICKS {
                observer.sink.begin(now);
                observer.source.collect(&cx, &mut observer.sink).unwrap();
                observer.sink.sealed();
            }
            let us = (kernel::clock::thread_cpu_us() - start) as f64 / TICKS as f64;
            eprintln!("{target}, {events}: {us:.1} µs with {} descriptors", counters_open());
        }
    }
}
