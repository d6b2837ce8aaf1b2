//! Golden test: every source reads every recorded machine over two ticks, and the result must equal
//! `testdata/golden/<machine>.txt`: metric, device, job, labels, time, start and value of each sample,
//! and the errors of sources and their parts.
//!
//! `UPDATE_GOLDEN=1 cargo test -p sources --test golden` rewrites the files; the difference is the user's
//! view of a change.

#![expect(clippy::unwrap_used, reason = "a failure here fails the test")]

mod hosts;

use hosts::{Setting, SourceRun};
use model::Gap;
use sources::SinkCounts;
use std::collections::BTreeSet;
use std::fs;

#[test]
fn recorded_machines_give_the_golden_lines() {
    let hosts = hosts::hosts();
    assert!(hosts.iter().any(|host| host == "bare-6.18"), "{hosts:?}");
    let differences: Vec<_> = hosts.iter().filter_map(|host| compare(host)).collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Compares a machine, or rewrites its file; returns the difference as text.
fn compare(host: &str) -> Option<String> {
    let found = lines(hosts::read(host, &[]));
    let path = hosts::testdata().join("golden").join(format!("{host}.txt"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, found.join("\n") + "\n").unwrap();
        return None;
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    let golden: Vec<_> = golden.lines().map(str::to_owned).collect();
    (found != golden).then(|| difference(host, &golden, &found))
}

fn difference(host: &str, golden: &[String], found: &[String]) -> String {
    let (old, new): (BTreeSet<_>, BTreeSet<_>) = (golden.iter().collect(), found.iter().collect());
    let gone = old.difference(&new).map(|line| format!("- {line}"));
    let come = new.difference(&old).map(|line| format!("+ {line}"));
    let mut lines: Vec<_> = gone.chain(come).collect();
    lines.sort_by_key(|line| line.split_once(' ').map(|(_, line)| line.to_owned()));
    let count = lines.len();
    lines.truncate(40);
    format!(
        "testdata/golden/{host}.txt: {count} lines differ (- golden, + now), the first of them:\n{}\n\
         if this is intended: UPDATE_GOLDEN=1 cargo test -p sources --test golden",
        lines.join("\n")
    )
}

fn lines(runs: Vec<SourceRun>) -> Vec<String> {
    let mut lines = Vec::new();
    for SourceRun { spec, mut sink, rejections } in runs {
        lines.extend(rejections.iter().map(|rejection| format!("# {}: {rejection}", spec.name)));
        let SinkCounts { implausible, .. } = sink.counts();
        assert_eq!(sink.counts().all(), implausible, "samples of {} were rejected", spec.name);
        if implausible > 0 {
            lines.push(format!("# {}: {implausible} impossible values", spec.name));
        }
        lines.extend(sink.take_gaps().into_iter().map(
            |Gap { source, from, to, cause, detail, .. }| {
                format!("# {source}: gap from {from} to {to}, {}: {detail}", cause.words())
            },
        ));
        lines.extend(sink.samples().map(|(entry, at, value)| {
            let job = entry.job.as_ref().map_or("-".to_owned(), ToString::to_string);
            let start = entry.start.map_or("-".to_owned(), |start| start.to_string());
            let (name, device, labels) = (&entry.metric.name, &entry.device, &entry.labels);
            format!("{name} {device} {job} {labels} {at} {start} {value}")
        }));
    }
    lines.sort();
    lines
}

/// The values of a metric at the second tick, by labels.
fn second_tick(host: &str, settings: &[Setting], metric: &str) -> Vec<(String, f64)> {
    let runs = hosts::read(host, settings);
    let samples = runs.iter().flat_map(|run| run.sink.samples());
    let second = hosts::FIRST_TICK.plus(hosts::PERIOD_US);
    let mut values: Vec<_> = samples
        .filter(|(entry, at, _)| entry.metric.name == metric && *at == second)
        .map(|(entry, _, value)| (entry.labels.to_string(), value))
        .collect();
    values.sort_by(|a, b| a.0.cmp(&b.0));
    values
}

#[test]
fn beyond_the_limit_of_sockets_states_are_left_out_without_an_error() {
    let (all, none) = ([], [("sockets", "states_max", "0")]);
    for (settings, readings) in [(&all[..], 0.0), (&none[..], 2.0)] {
        let uncounted = second_tick("cluster-node", settings, "sockets_tcp_uncounted_states_total");
        assert_eq!(uncounted, [("{}".to_owned(), readings)]);
        let states = second_tick("cluster-node", settings, "sockets_tcp_in_state");
        assert_eq!(states.is_empty(), readings > 0.0);
    }
    let runs = hosts::read("cluster-node", &none);
    assert!(!runs.iter().any(|run| run.rejections.iter().any(|why| why.contains("states"))));
}

fn labels(values: &[(String, f64)]) -> Vec<&str> {
    values.iter().map(|(labels, _)| labels.as_str()).collect()
}

#[test]
fn single_processors_add_up_to_the_total() {
    let settings = [("cpu", "cores", "true")];
    for host in ["bare-4.18", "bare-6.18"] {
        let all = second_tick(host, &settings, "cpu_user_seconds_total");
        let cores = second_tick(host, &settings, "cpu_core_user_seconds_total");
        assert!(cores.len() >= 2, "{host}");
        let sum: f64 = cores.iter().map(|(_, seconds)| seconds).sum();
        // The kernel rounds each processor's ticks down separately.
        assert!((all[0].1 - sum).abs() <= 0.01 * cores.len() as f64, "{host}: {all:?} {cores:?}");
    }
    assert!(second_tick("bare-6.18", &[], "cpu_core_user_seconds_total").is_empty());
}

#[test]
fn options_choose_disks() {
    let shown = |settings: &[Setting]| {
        let values = second_tick("bare-4.18", settings, "disk_reads_total");
        labels(&values).join(" ")
    };
    assert_eq!(shown(&[]), r#"{"disk": "sda"} {"disk": "sdb"} {"disk": "sdc"} {"disk": "sdd"}"#);
    let settings = [("disk", "include", "sda*,dm-0")];
    assert_eq!(
        shown(&settings),
        r#"{"disk": "dm-0"} {"disk": "sda"} {"disk": "sda1"} {"disk": "sda2"}"#
    );
    let settings = [("disk", "exclude", "sdb,dm*,sr0,loop*,sdc")];
    assert_eq!(shown(&settings), r#"{"disk": "sda"} {"disk": "sdd"}"#);
}

#[test]
fn an_include_that_matches_nothing_is_reported() {
    let reported = |host: &str, settings: &[Setting]| -> Vec<String> {
        let runs = hosts::read(host, settings);
        let all = runs.iter().flat_map(|run| run.rejections.clone());
        all.filter(|why| why.contains("part include")).collect()
    };
    for (source, host, some) in [
        ("disk", "bare-4.18", "sda,nosuch"),
        ("network", "bare-4.18", "l*"),
        ("mounts", "cluster-node", "/*"),
    ] {
        assert!(reported(host, &[]).is_empty(), "{source}");
        assert!(reported(host, &[(source, "include", some)]).is_empty(), "{source}");
        let wrong = reported(host, &[(source, "include", "nosuch*")]);
        assert!(!wrong.is_empty(), "{source}");
        assert!(wrong[0].contains("absent: ") && wrong[0].contains("`include`"), "{wrong:?}");
    }
}

#[test]
fn options_choose_interfaces() {
    let shown = |settings: &[Setting]| {
        let values = second_tick("bare-4.18", settings, "network_received_bytes_total");
        labels(&values).join(" ").replace(r#"{"interface": "#, "").replace('}', "")
    };
    assert_eq!(shown(&[]), r#""eno1" "eno2""#);
    let with_virtual = [("network", "virtual", "true")];
    assert_eq!(shown(&with_virtual), r#""bond0" "docker0" "eno1" "eno2""#);
    assert_eq!(shown(&[("network", "include", "lo,bond*")]), r#""bond0" "lo""#);
}

#[test]
fn options_are_named_as_a_reason_only_if_one_is_set() {
    let why = |host: &str, settings: &[Setting], name: &str| {
        let runs = hosts::read(host, settings);
        let run = runs.into_iter().find(|run| run.spec.name == name).unwrap();
        run.rejections.first().cloned().unwrap_or_default()
    };
    let hint = "that the options choose";
    for (name, option, value) in [
        ("infiniband", "include", "mthca*"),
        ("lustre", "prefix", "none"),
        ("interfaces", "include", "none"),
        ("filesystem", "types", "none"),
        ("hwmon", "exclude", "none"),
        ("thermal", "exclude", "none"),
    ] {
        let set = why("laptop-v2", &[(name, option, value)], name);
        assert!(set.ends_with(hint), "{name}: {set}");
        let unset = why("laptop-v2", &[], name);
        assert!(unset.contains("absent: ") && !unset.contains("choose"), "{name}: {unset}");
    }
    // An option that selects no mounts is not named as a reason.
    let targets = why("laptop-v2", &[("lustre", "targets", "false")], "lustre");
    assert!(targets.ends_with("no mount of Lustre"), "{targets}");
}

#[test]
fn options_select_parts_of_a_cluster_node() {
    let shown = |settings: &[Setting], metric: &str| {
        let values = second_tick("cluster-node", settings, metric);
        labels(&values).iter().map(|labels| (*labels).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(shown(&[], "lustre_reads_total").len(), 2);
    let home = shown(&[("lustre", "prefix", "home,other")], "lustre_reads_total");
    assert_eq!(home, [r#"{"client": "ffff880012345000", "filesystem": "home"}"#]);
    assert_eq!(shown(&[("lustre", "targets", "false")], "lustre_requests_total").len(), 0);
    assert_eq!(shown(&[("infiniband", "include", "mlx5_*")], "infiniband_active").len(), 2);
    assert_eq!(shown(&[("nfs", "exclude", "/mnt/*")], "nfs_requests_total").len(), 1);
    assert_eq!(shown(&[("interfaces", "virtual", "true")], "interfaces_up").len(), 2);
    assert_eq!(shown(&[("interfaces", "include", "lo")], "interfaces_up").len(), 1);
    assert_eq!(shown(&[("sockets", "states", "false")], "sockets_tcp_in_state").len(), 0);
    assert_eq!(shown(&[("sockets", "states_max", "9")], "sockets_tcp_in_state").len(), 0);
    assert_eq!(shown(&[], "users_session_since_seconds").len(), 0);
    let sessions = shown(&[("users", "sessions", "true")], "users_session_since_seconds");
    assert_eq!(
        sessions[1],
        r#"{"host": "login1", "user": "user1", "process": "4800", "terminal": "pts/1"}"#
    );
}

#[test]
fn parts_add_up_to_the_total_metric() {
    for (settings, whole, part) in [
        (("softirqs", "cores", "true"), "softirqs_served_total", "softirqs_core_served_total"),
        (("schedstat", "cores", "true"), "schedstat_slices_total", "schedstat_core_slices_total"),
        (("nfs", "operations", "true"), "nfs_requests_total", "nfs_operation_requests_total"),
    ] {
        let sum = |settings: &[Setting], metric| -> f64 {
            second_tick("cluster-node", settings, metric).iter().map(|(_, value)| value).sum()
        };
        assert_eq!(sum(&[settings], whole), sum(&[settings], part), "{whole}");
        assert!(sum(&[settings], whole) > 0.0, "{whole}");
        assert_eq!(sum(&[], part), 0.0, "{part} without its option");
    }
}

#[test]
fn options_select_sensors_of_the_bmc() {
    let shown = |settings: &[Setting]| {
        let values = second_tick("bmc", settings, "ipmi_temperature_celsius");
        values.iter().map(|(labels, value)| format!("{labels} {value:.1}")).collect::<Vec<_>>()
    };
    let inlet = r#"{"number": "1", "sensor": "Inlet Temp"} -3.0"#;
    assert_eq!(shown(&[]), [inlet, r#"{"number": "3", "sensor": "Front F"} 21.7"#]);
    assert_eq!(shown(&[("ipmi", "include", "*Temp, 12V")]), [inlet]);
    assert_eq!(shown(&[("ipmi", "exclude", "Front*")]), [inlet]);
}

#[test]
fn a_mount_without_a_recorded_reply_gives_no_sample_and_no_error() {
    let values = second_tick("bare-4.18", &[], "filesystem_size_bytes");
    let expected = [
        r#"{"type": "ext4", "mount": "/boot"}"#,
        r#"{"type": "ext4", "mount": "/scratch"}"#,
        r#"{"type": "xfs", "mount": "/"}"#,
    ];
    assert_eq!(labels(&values), expected);
}

/// Samples of these perf events on the machine `perf-intel` at the second tick: metrics with their labels and
/// jobs.
fn counted(events: &'static str) -> Vec<String> {
    let runs = hosts::read("perf-intel", &[("perf", "events", events)]);
    let second = hosts::FIRST_TICK.plus(hosts::PERIOD_US);
    let perf = runs.iter().filter(|run| run.spec.name == "perf");
    let samples = perf.flat_map(|run| run.sink.samples()).filter(|(_, at, _)| *at == second);
    let line = |(entry, _, value): (&model::SeriesEntry, _, f64)| {
        let job = entry.job.as_ref().map_or("-".to_owned(), ToString::to_string);
        format!("{} {job} {} {value}", entry.metric.name, entry.labels)
    };
    let mut lines: Vec<_> = samples.map(line).collect();
    lines.sort();
    lines
}

#[test]
fn counters_are_summed_over_processors_and_scaled_to_the_whole_time() {
    // Node: each of four processors counts 30e9 instructions, then 15e9 in half of the time. Job 12: two
    // processors, the second time in half of the time. Job 13: its tasks, all the time.
    let expected = [
        "perf_cpu_cycles_total - {} 140000000000",
        "perf_cpu_cycles_total oar:12 {} 16000000000",
        "perf_cpu_cycles_total oar:13 {} 12000000000",
        "perf_descriptors - {} 20",
        "perf_instructions_total - {} 240000000000",
        "perf_instructions_total oar:12 {} 24000000000",
        "perf_instructions_total oar:13 {} 16000000000",
        "perf_running_ratio - {\"event\": \"cpu_cycles\"} 1",
        "perf_running_ratio - {\"event\": \"instructions\"} 0.5",
        "perf_running_ratio oar:12 {\"event\": \"cpu_cycles\"} 1",
        "perf_running_ratio oar:12 {\"event\": \"instructions\"} 0.5",
        "perf_running_ratio oar:13 {\"event\": \"cpu_cycles\"} 1",
        "perf_running_ratio oar:13 {\"event\": \"instructions\"} 1",
        "perf_uncounted_jobs - {} 0",
    ];
    assert_eq!(counted("cpu_cycles,instructions"), expected);
    // An event without running time is unknown, and adds nothing.
    let misses = counted("cache_l1d_read_miss");
    assert!(misses.contains(&"perf_cache_l1d_read_miss_total - {} 20000".to_owned()), "{misses:?}");
    let ratio = "perf_running_ratio - {\"event\": \"cache_l1d_read_miss\"} 0";
    assert!(misses.contains(&ratio.to_owned()), "{misses:?}");
}

#[test]
fn events_of_pmus_have_the_unit_of_their_files() {
    let lines = counted(
        "power/energy-pkg/,uncore_imc/cas_count_read/,cpu/event=0x2e,umask=0x41/,page_faults",
    );
    for expected in [
        // 2 sockets with 2^32 * 100 steps of 2^-32 J.
        "perf_event_joules_total - {\"event\": \"power/energy-pkg/\"} 200",
        // 16384 steps are 1 MiB: 200 and 400 MiB on each of 2 sockets.
        "perf_event_bytes_total - {\"event\": \"uncore_imc/cas_count_read/\"} 1258291200",
        "perf_event_total - {\"event\": \"cpu/event=0x2e,umask=0x41/\"} 72000",
        "perf_event_total oar:12 {\"event\": \"cpu/event=0x2e,umask=0x41/\"} 4000",
        "perf_page_faults_total oar:12 {} 2000",
    ] {
        assert!(lines.iter().any(|line| line == expected), "{expected}\n{}", lines.join("\n"));
    }
    // An uncore PMU cannot count for a job.
    assert!(!lines.iter().any(|line| line.contains("oar") && line.contains("imc")));
    let by_names = "page_faults,cpu/cache-misses/,uncore_imc/cas_count_read/,power/energy-pkg/";
    let by_names: Vec<_> = counted(by_names)
        .iter()
        .map(|line| line.replace("cpu/cache-misses/", "cpu/event=0x2e,umask=0x41/"))
        .collect();
    assert_eq!(lines, by_names);
}

#[test]
fn a_misspelt_event_is_broken_and_a_missing_pmu_is_absent() {
    let events =
        "instructions,cpu/cach-misses/,uncore_ymc/cas_count_read/,amd_df/event=1/,bus_cycles";
    let runs = hosts::read("perf-intel", &[("perf", "events", events)]);
    let perf = runs.iter().find(|run| run.spec.name == "perf").unwrap();
    let expected = "tick 1: part events: broken: cpu/cach-misses/: the PMU has no event or field `cach-misses`; \
                                    did you mean `cache-misses`?; this machine has no PMU `uncore_ymc`, and no PMU of this \
                                    name is known; did you mean `uncore_imc`?; absent: this machine has no PMU `amd_df`; bus_cycles: no PMU \
                    of this machine counts it";
    assert!(perf.rejections.iter().any(|text| text == expected), "{:#?}", perf.rejections);
    assert!(perf.sink.samples().any(|(it, ..)| it.metric.name == "perf_instructions_total"));
}

#[test]
fn jobs_beyond_the_descriptor_limit_are_reported() {
    let settings = [("events", "instructions"), ("node", "false"), ("descriptors_max", "0")];
    let settings = settings.map(|(option, value)| ("perf", option, value));
    let runs = hosts::read("perf-intel", &settings);
    let perf = runs.iter().find(|run| run.spec.name == "perf").unwrap();
    let begin = "tick 1: part jobs: broken: job oar:12: needs 4 descriptors, but 0 of 0 are left";
    let text = perf.rejections.iter().find(|text| text.starts_with(begin)).unwrap();
    assert!(text.ends_with("; further jobs: 1"), "{text}");
}

#[test]
fn without_powercap_the_pmu_provides_the_energy() {
    let values = second_tick("perf-intel", &[], "rapl_package_joules_total");
    let package = |number| (format!(r#"{{"package": "{number}"}}"#), 100.0);
    assert_eq!(values, [package(0), package(1)]);
}

#[test]
fn memory_traffic_counts_per_group_since_the_first_reading() {
    let values = second_tick("perf-intel", &[], "resctrl_memory_bytes_total");
    let of =
        |group, cache, bytes| (format!(r#"{{"cache": "{cache}", "group": "{group}"}}"#), bytes);
    let mut expected = [
        of("default", "00", 2e10),
        of("default", "01", 4e10),
        of("batch", "00", 2e10),
        // A reset.
        of("batch", "01", 0.0),
    ];
    expected.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(values, expected);
    // An unavailable value is not 0.
    let values = second_tick("perf-intel", &[], "resctrl_memory_local_bytes_total");
    assert!(!labels(&values).contains(&r#"{"cache": "00", "group": "batch"}"#), "{values:?}");
    assert_eq!(values.len(), 3);
}
