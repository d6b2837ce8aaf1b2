//! The output `graphite`, carbon-cache and graphite-web: Carbon is stopped and killed under a stream of samples, and afterwards
//! graphite-web shows each value of FrUCToSA that the store has, without a gap.

mod pickles;
mod site;

use crate::graphite::site::{Graphite, S, Sample, Site, now, wait_for};
use colmet::equivalent::Ours;
use colmet::formula::{Formula, Selector as Operand};
use colmet::fructosa::GROUPS;
use model::Timestamp;
use outputs::OutputState;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use storage::{Selector, Storage};

/// Every metric of FrUCToSA's sensors, with the labels of a node; not those of jobs.
fn metrics() -> Vec<(&'static str, Vec<(&'static str, &'static str)>)> {
    let mut all = BTreeMap::new();
    for group in GROUPS.iter().filter(|group| group.name != "Users") {
        for metric in
            group.rows.iter().flat_map(|row| row.ours.formulas()).flat_map(Formula::metrics)
        {
            let labels = match group.name {
                "CPUPercent" => vec![("cpu", "0")],
                "DiskUsage" => vec![("mount", "/")],
                "NetIFStats" => vec![("interface", "eth0.100")],
                "SensorsTemperatures" => vec![("chip", "k10 temp"), ("sensor", "temp1")],
                "SensorsFans" => vec![("chip", "nct"), ("device", "nct.1"), ("sensor", "fan1")],
                _ => Vec::new(),
            };
            all.insert(metric, labels);
        }
    }
    all.into_iter().collect()
}

/// FrUCToSA's own paths, by its manual: A sensor and its keys.
const PATHS: &[(&str, &str)] = &[
    ("CPUPercent", "0"),
    (
        "VirtualMemory",
        "total available percent used free active inactive buffers cached shared slab",
    ),
    ("CPUTimes", "user nice system idle iowait irq softirq steal guest guest_nice"),
    ("CPUTimesPercent", "user nice system idle iowait irq softirq steal guest guest_nice"),
    ("CPUCount", ""),
    // psutil always returns 0 as `syscalls`: there is no such metric.
    ("CPUStats", "ctx_switches interrupts soft_interrupts"),
    ("CPUFreq", "current min max"),
    ("SwapMemory", "total used free percent sin sout"),
    ("DiskUsage", "total used free percent"),
    (
        "DiskIOCounters",
        "read_count write_count read_bytes write_bytes read_time write_time read_merged_count write_merged_count busy_time",
    ),
    (
        "NetIOCounters",
        "bytes_sent bytes_recv packets_sent packets_recv errin errout dropin dropout",
    ),
    ("SensorsBattery", "percent secsleft power_plugged"),
    ("BootTime", ""),
    // Numbers that FrUCToSA sends in lists, which Carbon rejects.
    ("NetIFStats", "eth0_100.isup eth0_100.duplex eth0_100.speed eth0_100.mtu"),
    ("SensorsTemperatures", "k10_temp.temp1.current"),
    ("SensorsFans", "nct.nct_1.fan1.current"),
];

fn paths() -> Vec<String> {
    let each = PATHS.iter().flat_map(|(sensor, keys)| {
        let path = move |key: &str| {
            format!("site.n1.{sensor}{}{key}", if key.is_empty() { "" } else { "." })
        };
        keys.split(' ').map(path)
    });
    each.collect()
}

/// What the store's samples are as values of FrUCToSA: of each path, its values by second.
fn expected(store: &dyn Storage) -> BTreeMap<String, BTreeMap<i64, f64>> {
    let mut samples: BTreeMap<(String, i64), f64> = BTreeMap::new();
    let all = (Timestamp(0), Timestamp(i64::MAX));
    for chunk in store.snapshot().scan(&Selector::default(), all.0, all.1) {
        let chunk = chunk.unwrap();
        for (at, value, _) in chunk.rows().filter(|_| chunk.series.series.job.is_none()) {
            samples.insert((chunk.series.series.metric.to_string(), at.0 / S), value);
        }
    }
    let seconds: BTreeSet<i64> = samples.keys().map(|(_, second)| *second).collect();
    let mut values: BTreeMap<String, BTreeMap<i64, f64>> = BTreeMap::new();
    let known: BTreeMap<&str, Vec<String>> = PATHS
        .iter()
        .map(|(sensor, _)| {
            let prefix = format!("site.n1.{sensor}");
            let is_of = |path: &String| *path == prefix || path.starts_with(&format!("{prefix}."));
            (*sensor, paths().into_iter().filter(is_of).collect())
        })
        .collect();
    for group in GROUPS.iter().filter(|group| known.contains_key(group.name)) {
        for row in group.rows.iter().filter(|row| !row.ours.formulas().is_empty()) {
            let key = if row.theirs == "N" { "0" } else { row.theirs };
            let ends = |path: &&String| path.ends_with(&format!(".{key}")) || key == "value";
            let path = known[group.name].iter().find(ends).unwrap();
            for second in &seconds {
                let of = |operand: Operand<'_>, at| {
                    samples.get(&(operand.metric.to_owned(), at)).copied()
                };
                let value = |operand: Operand<'_>| match row.ours {
                    Ours::Grows(_) => Some(of(operand, *second)? - of(operand, second - 1)?),
                    _ => of(operand, *second),
                };
                if let Some(value) = row.ours.formulas()[0].compute("0", &value) {
                    values.entry(path.clone()).or_default().insert(*second, value);
                }
            }
        }
    }
    values
}

/// Compares the values of each path; the first difference is an error.
fn compare(
    found: &BTreeMap<String, BTreeMap<i64, f64>>,
    expected: &BTreeMap<String, BTreeMap<i64, f64>>,
) -> Result<(), String> {
    for (path, values) in expected {
        let found = found.get(path).ok_or_else(|| format!("{path} is missing"))?;
        let wrong = values.iter().find(|(second, value)| {
            let found = found.get(second).copied().unwrap_or(f64::INFINITY);
            (found - **value).abs() > 1e-9 * value.abs()
        });
        if let Some((second, value)) = wrong {
            let missing = values.keys().filter(|second| !found.contains_key(second)).count();
            let is = found.get(second);
            return Err(format!(
                "{path} at {second} is {is:?}, not {value}; {missing} are missing"
            ));
        }
    }
    Ok(())
}

#[test]
fn carbon_is_stopped_and_killed_and_no_path_has_a_gap() {
    const TICKS: i64 = 5;
    let mut site = Site::new();
    let graphite = Graphite::new(site.dir.path().join("graphite"));
    let _web = graphite.web();
    let config = format!(
        "[outputs.graphite]\naddress = \"127.0.0.1:{}\"\ntree = \"fructosa\"\nprefix = \"site\"\nresend = \"10m\"\n",
        graphite.ports[1]
    );
    site.apply(&config);
    let metrics = metrics();
    let begin = now().0 / S - 2000;
    let mut second = begin;
    let mut stream = |site: &mut Site, times: i64| {
        for _ in 0..times {
            let mut samples: Vec<Sample<'_>> = Vec::new();
            for at in second..second + TICKS {
                for (place, (metric, labels)) in (1..).zip(&metrics) {
                    // Counters grow by another amount each second, gauges change.
                    let value =
                        f64::from(place) * 1000.0 + (at - begin) as f64 * f64::from(place % 7 + 1);
                    samples.push((metric, labels, None, at * S, value));
                }
                samples.push(("cpu_user_seconds_total", &[], Some(7), at * S, 1e9));
            }
            site.store("n1.example.org", &samples);
            second += TICKS;
            std::thread::sleep(Duration::from_millis(200));
        }
    };
    let mut carbon = graphite.carbon();
    stream(&mut site, 10);
    for signal in ["TERM", "KILL", "KILL", "TERM", "KILL"] {
        // It receives points, and has not written all of them.
        wait_for("Carbon receives", || {
            let status = &site.outputs.status()[0];
            let is_sending = status.state == OutputState::Working && status.behind == Some(0);
            if is_sending { Ok(()) } else { Err(format!("{status:?}")) }
        });
        stream(&mut site, 5);
        carbon.end(signal);
        stream(&mut site, 5);
        carbon = graphite.carbon();
        if signal == "TERM" {
            stream(&mut site, 3);
            site.restart_outputs(&config);
        }
    }
    stream(&mut site, 5);
    let expected = expected(&*site.store);
    let mut names: Vec<&String> = expected.keys().collect();
    let mut all = paths();
    all.sort();
    names.sort();
    assert_eq!(names, all.iter().collect::<Vec<_>>());
    let targets: [String; 5] =
        std::array::from_fn(|deep| format!("site.n1{}", ".*".repeat(deep + 1)));
    let targets = targets.each_ref().map(String::as_str);
    // graphite-web misses a point that Carbon writes to a file between its two reads, of the file and of Carbon's cache.
    let found = wait_for("graphite-web", || {
        let found = graphite.render(&targets, (begin, second - 1))?;
        compare(&found, &expected).map(|()| found)
    });
    let status = &site.outputs.status()[0];
    assert!(status.resent > 0, "{status:?}");
    // Some of them without our formulas: the whole, its parts, and units.
    let at = |path: &str| found[&format!("site.n1.{path}")][&(second - 1)];
    let memory = ["total", "available", "used"].map(|key| at(&format!("VirtualMemory.{key}")));
    assert!((memory[0] - memory[1] - memory[2]).abs() < 1e-6, "{memory:?}");
    let times = ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"];
    let percent: f64 = times.iter().map(|key| at(&format!("CPUTimesPercent.{key}"))).sum();
    assert!((percent - 100.0).abs() < 1e-9, "{percent}");
    drop(carbon);
}
