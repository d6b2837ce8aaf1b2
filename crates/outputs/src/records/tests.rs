//! Records of portions: what they have, and that each is there once.

use crate::portion::{Row, rows, slice_of};
use crate::records::layout::Layout;
use crate::records::taking::{LeftOut, Records};
use crate::row::read_line;
use colmet::backends::{BACKENDS, EVENTS};
use colmet::names;
use colmet::record::{Record, Value};
use config::{JobChoice, OutputConfig, OutputStart};
use model::{ClusterId, DeviceId, JobId, JobKey, Kind, Labels, Series, Timestamp, Unit};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use storage::{SeriesInfo, TimeSlice};

const S: i64 = Timestamp::SECOND;

fn layout(options: &[(&'static str, &str)]) -> Layout {
    let given = [("cluster", "oar"), ("perf_counters", "instructions,cache_misses,page_faults")];
    let all = given.iter().chain(options).map(|(name, text)| (*name, (*text).to_owned()));
    let config = OutputConfig {
        name: "file".into(),
        kind: "file",
        metrics: Vec::new(),
        devices: None,
        jobs: JobChoice::All,
        every: None,
        from: OutputStart::All,
        options: all.collect::<BTreeMap<_, _>>(),
    };
    Layout::of(&config).unwrap()
}

/// Later than each sample.
const NOW: Timestamp = Timestamp(i64::MAX);

fn records() -> Records {
    Records::new(layout(&[]))
}

/// A series such as `n1 rapl_package_joules_total oar:7 package=0`.
fn series(text: &str) -> Arc<SeriesInfo> {
    let mut words = text.split(' ');
    let device = DeviceId::new(words.next().unwrap()).unwrap();
    let metric = Arc::from(words.next().unwrap());
    let (mut job, mut labels) = (None, Labels::default());
    for word in words {
        if let Some((cluster, id)) = word.split_once(':') {
            let id = JobId::new(id.parse().unwrap()).unwrap();
            job = Some(JobKey { cluster: ClusterId::new(cluster).unwrap(), id });
        } else {
            let (name, value) = word.split_once('=').unwrap();
            labels = labels.with(name, value).unwrap();
        }
    }
    let series = Series { device, metric, job, labels };
    Arc::new(SeriesInfo { series, unit: Unit::Count, kind: Kind::Gauge, divisor: 1 })
}

/// Samples: series, second, value. Counters began at 0.
fn slice(samples: &[(&str, i64, f64)]) -> TimeSlice {
    let all: Vec<_> = samples.iter().map(|(text, at, value)| (series(text), *at, *value)).collect();
    slice_of(all.iter().map(|(series, at, value)| Row {
        series,
        at: at * S,
        value: *value,
        start: if series.series.metric.ends_with("_total") { 0 } else { TimeSlice::NO_START },
    }))
}

/// Records in short form: host, backend, job, second.
fn heads(records: &[Record]) -> Vec<String> {
    let head = |of: &Record| {
        format!("{} {} {} {}", of.host, of.backend.id.replace("_default", ""), of.job, of.at.0 / S)
    };
    records.iter().map(head).collect()
}

/// The records after these samples, and those of the instants that are still open.
fn all(records: &mut Records, samples: &[(&str, i64, f64)]) -> Vec<Record> {
    let (mut all, _) = records.take(&slice(samples), None, NOW);
    all.extend(rest(records));
    all
}

fn rest(records: &mut Records) -> Vec<Record> {
    records.take(&slice(&[]), Some(Timestamp(i64::MAX)), NOW).0
}

fn sorted(mut records: Vec<Record>) -> Vec<Record> {
    records.sort_by_key(|of| (of.at, of.host.clone(), of.backend.id, of.job));
    records
}

fn number(record: &Record, column: &str) -> Option<f64> {
    record.get(column).and_then(Value::number)
}

fn restarted(records: &Records) -> Records {
    Records::with(layout(&[]), &records.kept().unwrap()).unwrap()
}

/// A node with a job, and what another cluster's job and a Colmet node report. Twelve seconds.
fn recorded() -> TimeSlice {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/outputs");
    let text = std::fs::read_to_string(folder.join("portion.json")).unwrap();
    let lines: Vec<_> = text.lines().map(|line| read_line(line).unwrap()).collect();
    let lines: Vec<_> =
        lines.into_iter().map(|(info, at, v, s)| (Arc::new(info), at, v, s)).collect();
    slice_of(lines.iter().map(|(series, at, value, start)| Row {
        series,
        at: *at,
        value: *value,
        start: *start,
    }))
}

/// `UPDATE_GOLDEN=1` rewrites the text; the difference is the user's view.
#[test]
fn a_recorded_portion_has_the_recorded_text() {
    let (found, left_out) = records().take(&recorded(), None, NOW);
    assert_eq!(left_out, LeftOut { jobs: 1, ..LeftOut::default() });
    let mut text = String::new();
    found.iter().for_each(|record| colmet::text::write(record, &|_| 0, &mut text));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/outputs/portion.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    for (number, (found, expected)) in (1..).zip(text.lines().zip(expected.lines())) {
        assert_eq!(found, expected, "line {number}");
    }
    assert!(text == expected, "the end differs");
}

/// Divided anywhere, within an instant too, and with a restart there, the records are the same.
#[test]
fn a_division_into_portions_changes_no_record() {
    let whole = recorded();
    let mut one = records();
    let (mut expected, _) = one.take(&whole, None, NOW);
    expected.extend(rest(&mut one));
    let expected = sorted(expected);
    assert!(expected.len() >= 8, "{:?}", heads(&expected));
    let count = whole.times.len();
    for cut in 0..=count {
        let mut divided = records();
        let (mut found, _) = divided.take(&slice_of(rows(&whole).take(cut)), None, NOW);
        let mut divided = restarted(&divided);
        found.extend(divided.take(&slice_of(rows(&whole).skip(cut)), None, NOW).0);
        found.extend(rest(&mut divided));
        assert_eq!(sorted(found), expected, "divided after {cut} of {count} samples");
    }
}

#[test]
fn late_samples_have_records_of_their_own() {
    let mut records = records();
    let load = |at| [("n1 cpu_user_seconds_total", at, at as f64), ("n1 load_1m", at, 0.5)];
    let (first, _) = records.take(&slice(&[load(100), load(105)].concat()), None, NOW);
    assert_eq!(heads(&first), ["n1 procstats 0 100"]);
    let (late, _) = records.take(&slice(&[load(90), load(95)].concat()), None, NOW);
    assert_eq!(heads(&late), ["n1 procstats 0 90", "n1 procstats 0 105"]);
    let (next, _) = records.take(&slice(&load(110)), None, NOW);
    assert_eq!(heads(&next), ["n1 procstats 0 95"]);
    for record in [&late[0], &next[0]] {
        let at = (record.at.0 / S) as f64;
        assert_eq!(number(record, "stat_cpu_user"), Some(at * 100.0));
        assert_eq!(number(record, "loadavg_1min"), Some(0.5));
    }
    assert_eq!(heads(&rest(&mut records)), ["n1 procstats 0 110"]);
}

#[test]
fn only_the_jobs_of_the_cluster_have_records() {
    let mut records = records();
    let name = "taskstats_voluntary_switches_total";
    let of = |job: &str| format!("n1 {name} {job}:7");
    let (oar, slurm, local) = (of("oar"), of("slurm"), of("local"));
    let both = [(&*oar, 10, 1.0), (&*slurm, 10, 2.0), (&*local, 10, 4.0)];
    let (none, left_out) = records.take(&slice(&both), None, NOW);
    assert_eq!((none, left_out), (Vec::new(), LeftOut { jobs: 2, ..LeftOut::default() }));
    let found = all(&mut records, &[(&oar, 20, 3.0), ("n1 uptime_seconds", 20, 1.0)]);
    assert_eq!(heads(&found), ["n1 taskstats 7 10", "n1 taskstats 7 20"]);
    assert_eq!(number(&found[0], "nvcsw"), Some(1.0));
    // A record has no values of jobs of the earlier cluster of the configuration.
    records.take(&slice(&[(&oar, 30, 4.0)]), None, NOW);
    let slurm_layout = layout(&[("cluster", "slurm")]);
    let mut other = Records::with(slurm_layout, &records.kept().unwrap()).unwrap();
    assert_eq!(all(&mut other, &[(&slurm, 30, 5.0)]).len(), 1);
}

#[test]
fn of_two_values_of_a_series_the_later_one_counts_also_in_a_later_portion() {
    let mut records = records();
    let power = |value| slice(&[("n1 exec_value_watts", 10, value)]);
    records.take(&power(150.0), None, NOW);
    records.take(&power(152.0), None, NOW);
    let found = all(&mut records, &[("n1 exec_value_watts", 15, 1.0)]);
    assert_eq!(number(&found[0], "average_power_consumption"), Some(152.0));
}

#[test]
fn a_sample_of_the_future_makes_no_node_old() {
    let mut records = records();
    let instructions = "n1 perf_instructions_total oar:7";
    let now = |second: i64| Timestamp(second * S);
    let mut found = Vec::new();
    for (second, value) in [(5, 1000.0), (10, 2000.0), (15, 3000.0)] {
        found.extend(records.take(&slice(&[(instructions, second, value)]), None, now(second)).0);
    }
    records.take(&slice(&[("pdu x_watts", 7200, 1.0), ("n2 load_1m", 7200, 1.0)]), None, now(16));
    found.extend(records.take(&slice(&[(instructions, 20, 4000.0)]), None, now(20)).0);
    found.extend(records.take(&slice(&[(instructions, 25, 5000.0)]), None, now(25)).0);
    let growths: Vec<Option<f64>> =
        found.iter().map(|record| number(record, "counter_1")).collect();
    assert_eq!(growths, [1000.0; 4].map(Some), "{:?}", heads(&found));
}

#[test]
fn rows_of_users_are_in_no_record() {
    let rows = [
        ("n1 colmet_rapl_counter_7_joules_total _user=1001", 10, 999.0),
        ("n1 rapl_package_joules_total package=0 _user=1001", 10, 999.0),
    ];
    let found = all(&mut records(), &rows);
    assert_eq!(found, []);
}

#[test]
fn a_job_without_samples_at_an_instant_has_no_record() {
    let name = |job| format!("n1 process_rss_bytes oar:{job}");
    let (seven, eight) = (name(7), name(8));
    let found = all(
        &mut records(),
        &[(&seven, 1, 1024.0), (&eight, 1, 2048.0), (&eight, 2, 2048.0), (&eight, 3, 4096.0)],
    );
    assert_eq!(
        heads(&found),
        [7, 8, 8, 8]
            .into_iter()
            .zip([1, 1, 2, 3])
            .map(|(job, at)| format!("n1 jobprocstats {job} {at}"))
            .collect::<Vec<_>>()
    );
    assert_eq!(number(&found[3], "VmRSS"), Some(4.0));
}

#[test]
fn nodes_name_the_jobs_with_samples_at_the_instant() {
    let found = all(
        &mut records(),
        &[
            ("n1 cpu_user_seconds_total", 1, 1.0),
            ("n1 cgroup_memory_bytes oar:9", 1, 1.0),
            ("n1 cgroup_memory_bytes oar:7", 1, 1.0),
            ("n1 cgroup_memory_bytes slurm:5", 1, 1.0),
            ("n2 cgroup_memory_bytes oar:4", 1, 1.0),
            ("n1 cpu_user_seconds_total", 2, 1.0),
            ("n1 taskstats_voluntary_switches_total oar:9", 2, 1.0),
        ],
    );
    let jobs = |at| {
        let of = |record: &&Record| record.at == Timestamp(at * S) && record.job == 0;
        found.iter().find(of).unwrap().get("involved_jobs").cloned()
    };
    assert_eq!(jobs(1), Some(Value::Text("[7, 9]".into())));
    assert_eq!(jobs(2), Some(Value::Text("[9]".into())));
}

#[test]
fn procstats_follows_cpu_and_takes_recent_values_of_others() {
    let mut samples = Vec::new();
    for at in 1..=20 {
        samples.push(("n1 cpu_user_seconds_total", at, 1.0));
    }
    // Every two seconds until 6.
    samples.extend([2, 4, 6].map(|at| ("n1 load_1m", at, at as f64)));
    let found = all(&mut records(), &samples);
    assert_eq!(found.len(), 20);
    let loads: Vec<_> = found.iter().map(|record| number(record, "loadavg_1min")).collect();
    let expected = |at: i64| match at {
        1 | 13.. => None,
        at => Some((at.min(6) / 2 * 2) as f64),
    };
    assert_eq!(loads, (1..=20).map(expected).collect::<Vec<_>>());
}

#[test]
fn power_is_the_first_of_program_dcmi_and_dell() {
    let (exec, dcmi, dell) =
        ("n1 exec_value_watts", "n1 ipmi_dcmi_power_mean_watts", "n1 ipmi_dell_power_watts");
    let found = all(
        &mut records(),
        &[
            (dell, 10, 3.0),
            (dcmi, 20, 2.0),
            (dell, 20, 3.0),
            (dcmi, 30, 2.0),
            (exec, 40, 1.0),
            // The records follow the program's instants now.
            (dcmi, 45, 2.0),
            (exec, 50, 1.5),
            (dcmi, 100, 2.5),
        ],
    );
    let power =
        |record: &Record| (record.at.0 / S, number(record, "average_power_consumption").unwrap());
    let found: Vec<_> = found.iter().map(power).collect();
    assert_eq!(found, [(10, 3.0), (20, 2.0), (30, 2.0), (40, 1.0), (50, 2.0), (100, 3.0)]);
}

#[test]
fn growth_counts_once_over_restarts_resets_and_late_samples() {
    let name = "n1 rapl_package_joules_total package=0";
    let mut one = records();
    let mut found = Vec::new();
    // The node began to count at 0, so the first sample has a growth. 0.1 is no double: a restart must restore its bits.
    for (at, joules) in [(10, 0.1), (20, 0.1), (40, 1.1), (30, 0.5), (50, 0.2), (60, 0.3)] {
        found.extend(one.take(&slice(&[(name, at, joules)]), None, NOW).0);
        one = restarted(&one);
    }
    found.extend(rest(&mut one));
    let growths: Vec<_> =
        found.iter().map(|record| (record.at.0 / S, number(record, "counter_1"))).collect();
    // The growth up to the late sample is in the record of 40. At 50 the counter was reset.
    let growths_of = [(10, 0.1), (20, 0.0), (40, 1.0), (50, 0.2), (60, 0.1)];
    assert_eq!(growths, growths_of.map(|(at, joules)| (at, Some(joules * 1e6))));
    // Another zone has other columns; a start long ago is no sample.
    let dram = "n1 rapl_dram_joules_total package=1";
    let found = all(&mut records(), &[(dram, 1000, 5.0), (dram, 1010, 7.0)]);
    assert_eq!(heads(&found), ["n1 RAPLstats 0 1010"]);
    assert_eq!(number(&found[0], "counter_11"), Some(2e6));
    assert_eq!(found[0].values.iter().flatten().count(), 2, "the growth and the jobs");
}

#[test]
fn perfhw_has_the_configured_events_in_their_order() {
    let events = "page_faults,cache_l1d,cpu_cycles,instructions,bus_cycles,branch_misses";
    let layout = layout(&[("perf_counters", events)]);
    assert_eq!(layout.events_left_out, 1);
    let mut records = Records::new(layout);
    let metrics = ["page_faults", "cache_l1d_read_access", "cpu_cycles", "branch_misses"];
    let names = metrics.map(|event| format!("n1 perf_{event}_total oar:7"));
    let samples = |at, times: f64| {
        let values = names.iter().zip([1.0, 2.0, 3.0, 4.0]);
        values.map(|(name, value)| (&**name, at, value * times)).collect::<Vec<_>>()
    };
    let found = all(&mut records, &[samples(10, 1.0), samples(20, 3.0)].concat());
    let last = found.last().unwrap();
    let counters = (1..=5).map(|n| number(last, &format!("counter_{n}"))).collect::<Vec<_>>();
    assert_eq!(counters, [Some(2.0), Some(4.0), Some(6.0), None, None]);
}

#[test]
fn what_a_record_lacks_is_printed_as_colmet_prints_it() {
    let found = all(
        &mut records(),
        &[
            ("n1 thermal_temperature_celsius zone=2", 1, 41.0),
            ("n1 cpu_user_seconds_total", 1, 2.0),
        ],
    );
    let mut text = String::new();
    found.iter().for_each(|record| colmet::text::write(record, &|_| 0, &mut text));
    for line in
        ["counter_3 : 41 (celsius)\n", "counter_1 : -1 (celsius)\n", "uptime_total : 0 (seconds)\n"]
    {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert_eq!(number(&found[1], "counter_1"), None);
    assert_eq!(number(&found[1], "counter_3"), Some(41.0));
}

#[test]
fn samples_that_came_through_colmet_leave_as_they_came() {
    for backend in BACKENDS.into_iter().filter(|backend| backend.is_of_python()) {
        let job = if backend.scope == colmet::equivalent::Scope::Job { " oar:7" } else { "" };
        let mut texts = Vec::new();
        for (column, number) in backend.columns.iter().zip(2_i32..) {
            if let Some(own) = names::own(backend, column) {
                let (first, second) =
                    if own.is_growth { (9, 9 + number) } else { (number, number) };
                let ours = [first, second].map(|theirs| own.scale.to_ours(f64::from(theirs)));
                texts.push((format!("n1 {}{job}", own.metric.name), ours));
            }
        }
        let at = |at, place: usize| {
            texts.iter().map(move |(name, ours)| (&**name, at, ours[place])).collect::<Vec<_>>()
        };
        let found = all(&mut records(), &[at(1000, 0), at(1010, 1)].concat());
        let last = found.last().unwrap();
        assert_eq!(last.backend, backend);
        for (column, expected) in backend.columns.iter().zip(2_i32..) {
            let found = number(last, column.row.theirs);
            let is_number = names::own(backend, column).is_some();
            assert_eq!(found, is_number.then_some(f64::from(expected)), "{}", column.row.theirs);
        }
    }
    assert!(!EVENTS.is_of_python());
}

#[test]
fn the_agents_samples_precede_colmets() {
    let ours = |at| ("n1 process_rss_bytes oar:7", at, 1024.0);
    let theirs = |at| ("n1 colmet_jobproc_vmrss_bytes oar:7", at, 2048.0);
    let of = |records: &[Record]| {
        let each = records.iter().map(|record| (record.at.0 / S, number(record, "VmRSS").unwrap()));
        each.collect::<Vec<_>>()
    };
    let mut records = records();
    // At the same instants, at others, and in an own batch after the agent's.
    let found = all(&mut records, &[ours(10), theirs(10), theirs(15), ours(20), theirs(25)]);
    assert_eq!(of(&found), [(10, 1.0), (20, 1.0)]);
    assert_eq!(of(&all(&mut records, &[theirs(11), theirs(20)])), []);
    // The agent has ended; another node has none.
    assert_eq!(of(&all(&mut records, &[theirs(1000)])), [(1000, 2.0)]);
    let other = ("n2 colmet_jobproc_vmrss_bytes oar:7", 10, 2048.0);
    assert_eq!(of(&all(&mut records, &[other])), [(10, 2.0)]);
}

#[test]
fn host_names_are_cut_and_get_the_domain() {
    let sample = [("n1.old.example", 1, 1.0)]
        .map(|(name, at, v)| (format!("{name} cpu_forks_total"), at, v));
    let samples = [(&*sample[0].0, sample[0].1, sample[0].2)];
    assert_eq!(heads(&all(&mut records(), &samples)), ["n1 procstats 0 1"]);
    let mut with = Records::new(layout(&[("domain", ".site.example.org")]));
    assert_eq!(heads(&all(&mut with, &samples)), ["n1.site.example.org procstats 0 1"]);
}

#[test]
fn of_two_values_of_an_instant_the_later_one_counts() {
    let twice = [("n1 cpu_forks_total", 1, 5.0), ("n1 cpu_forks_total", 1, 7.0)];
    let found = all(&mut records(), &twice);
    assert_eq!(number(&found[0], "stat_processes"), Some(7.0));
}

#[test]
fn an_instant_is_open_until_everything_before_it_was_delivered() {
    let mut records = records();
    let (none, _) = records.take(&slice(&[("n1 cpu_forks_total", 10, 1.0)]), None, NOW);
    assert_eq!(heads(&none), [""; 0]);
    let ended = |at| Some(Timestamp(at * S));
    assert_eq!(records.take(&slice(&[]), ended(10), NOW).0, []);
    let other = slice(&[("n2 cpu_forks_total", 10, 1.0)]);
    assert_eq!(heads(&records.take(&other, ended(11), NOW).0), ["n1 procstats 0 10"]);
    // A device that is silent for an hour is forgotten after its last record.
    let (found, _) = records.take(&slice(&[("n3 cpu_forks_total", 4000, 1.0)]), None, NOW);
    assert_eq!(heads(&found), ["n2 procstats 0 10"]);
    let kept = String::from_utf8(records.kept().unwrap()).unwrap();
    assert!(kept.contains("n3") && !kept.contains("n1") && !kept.contains("n2"), "{kept}");
}

#[test]
fn a_sample_after_the_end_of_its_instant_repeats_no_other() {
    let mut records = records();
    let package = |number| format!("n1 rapl_package_joules_total package={number}");
    let first = all(&mut records, &[(&package(0), 10, 2.0)]);
    let second = all(&mut records, &[(&package(1), 10, 3.0)]);
    let counters = |found: &[Record]| {
        let of = |record: &Record| ["counter_1", "counter_7"].map(|name| number(record, name));
        found.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(counters(&first), [[Some(2e6), None]]);
    assert_eq!(counters(&second), [[None, Some(3e6)]]);
}

#[test]
fn what_is_held_is_bounded_and_counted() {
    let mut records = records().holding(7);
    let names: Vec<_> = (0..50).map(|number| format!("n{number} cpu_forks_total")).collect();
    let at = |at| names.iter().map(|name| (&**name, at, 1.0)).collect::<Vec<_>>();
    // A device has three numbers: itself, the node, the sum. The third device does not fit with its sum.
    let (_, left_out) = records.take(&slice(&at(1)), None, NOW);
    assert_eq!(left_out, LeftOut { limit: 48, ..LeftOut::default() });
    let (found, _) = records.take(&slice(&at(2)), None, NOW);
    assert_eq!(heads(&found), ["n0 procstats 0 1", "n1 procstats 0 1"]);
    assert!(records.kept().unwrap().len() < 2000);
}

#[test]
fn a_damaged_text_is_an_error() {
    let mut records = records();
    records.take(&recorded(), None, NOW);
    let kept = records.kept().unwrap();
    assert!(Records::with(layout(&[]), kept.get(..kept.len() / 2).unwrap()).is_err());
}
