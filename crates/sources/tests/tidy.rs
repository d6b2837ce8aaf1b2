//! Rules for every source: files and words, names, units, help texts, options.

use cgroups::Jobs;
use kernel::Root;
use model::{DeviceId, Kind, Metric, Timestamp, Unit};
use sources::{Context, Open, Options, SOURCES, Sink, SourceSpec};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

#[test]
fn files_in_list_and_listed_sources_are_the_same() {
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/list");
    let mut stems: Vec<_> = fs::read_dir(list)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .map(|file| file.trim_end_matches(".rs").to_owned())
        .collect();
    let mut names: Vec<_> = SOURCES.iter().map(|spec| spec.name.to_owned()).collect();
    stems.sort();
    stems.dedup();
    names.sort();
    assert_eq!(stems, names, "files of src/list/ (left) and words of list.rs (right)");
}

#[test]
fn every_metric_follows_the_naming_rules() {
    let wrong: Vec<_> = SOURCES
        .iter()
        .flat_map(|spec| spec.metrics.iter().filter_map(|metric| faults(spec.name, metric)))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_naming_rules_reject_bad_names() {
    for (unit, kind, name) in [
        (Unit::Seconds, Kind::Counter, "cpu_user_seconds"),
        (Unit::Seconds, Kind::Gauge, "cpu_user_seconds_total"),
        (Unit::Seconds, Kind::Counter, "cpu_user_total"),
        (Unit::Seconds, Kind::Counter, "cpu_seconds_user_total"),
        (Unit::Seconds, Kind::Counter, "cpu_byte_seconds_total"),
        (Unit::Count, Kind::Counter, "cpu_user_seconds_total"),
        (Unit::Bytes, Kind::Gauge, "memory_free_bytes"),
        (Unit::Count, Kind::Gauge, "cpu"),
        (Unit::Count, Kind::Gauge, "cpu_Online"),
        (Unit::Count, Kind::Gauge, "cpu__online"),
    ] {
        let metric = match kind {
            Kind::Counter => Metric::counter(name, unit, "A help."),
            Kind::Gauge => Metric::gauge(name, unit, "A help."),
        };
        assert!(faults("cpu", &metric).is_some(), "{name}");
    }
    let good = Metric::counter("cpu_user_seconds_total", Unit::Seconds, "A help.");
    assert_eq!(faults("cpu", &good), None);
    assert!(faults("cpu", &good.clone().steps(0)).is_some());
    for help in ["", "no capital.", "No full stop", "Two  blanks."] {
        let metric = Metric::gauge("cpu_online", Unit::Count, help);
        assert!(faults("cpu", &metric).is_some(), "{help:?}");
    }
}

/// The violated rules of a metric, as text.
fn faults(source: &str, metric: &Metric) -> Option<String> {
    let mut faults = Vec::new();
    let name = &*metric.name;
    let bare = name.strip_suffix("_total");
    if bare.is_some() != (metric.kind == Kind::Counter) {
        faults.push("ends in _total if and only if it is a counter");
    }
    let bare = bare.unwrap_or(name);
    match bare.strip_prefix(source).and_then(|rest| rest.strip_prefix('_')) {
        None => faults.push("begins with the source's name and _"),
        Some(rest) if unit_at_the_end(rest) != metric.unit => {
            faults.push("ends, but for _total, in the word of its unit and of no other");
        }
        Some(_) => {}
    }
    let ok = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if !name.chars().all(ok) || name.contains("__") {
        faults.push("is of small letters, digits and single _");
    }
    if metric.check().is_err() {
        faults.push("has a name and a divisor within bounds");
    }
    if !is_sentence(&metric.help) {
        faults.push("has a help that is a sentence");
    }
    (!faults.is_empty()).then(|| format!("{name}: a metric {}", faults.join("; ")))
}

/// The unit at the end of a name: the longest match, because `byte_seconds` also ends in `seconds`.
fn unit_at_the_end(rest: &str) -> Unit {
    let ends = |unit: &Unit| {
        let word = unit.word();
        !word.is_empty() && (rest == word || rest.ends_with(&format!("_{word}")))
    };
    Unit::ALL.into_iter().filter(ends).max_by_key(|unit| unit.word().len()).unwrap_or(Unit::Count)
}

fn is_sentence(help: &str) -> bool {
    let begins = help.starts_with(|c: char| c.is_uppercase() || c.is_ascii_digit());
    begins && help.ends_with('.') && !help.contains("  ") && !help.contains('\n')
}

#[test]
fn no_metric_is_declared_twice() {
    let mut owners: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for spec in SOURCES {
        for metric in spec.metrics {
            owners.entry(&*metric.name).or_default().push(spec.name);
        }
    }
    owners.retain(|_, owners| owners.len() > 1);
    assert!(owners.is_empty(), "{owners:?}");
}

#[test]
fn every_source_declares_its_reads_and_costs_and_valid_options() {
    for spec in SOURCES {
        let SourceSpec { name, help, reads, cost, metrics, options, .. } = spec;
        assert!(is_sentence(help), "{name}: the help is a sentence");
        assert!(!reads.is_empty() && !cost.is_empty() && !metrics.is_empty(), "{name}");
        let mut names: Vec<_> = options.iter().map(|option| option.name).collect();
        for option in *options {
            let at = format!("{name}.{}", option.name);
            assert!(option.name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{at}");
            assert_eq!(option.kind.check(option.default), Ok(()), "{at}: the default");
            assert!(is_sentence(option.help), "{at}: the help is a sentence");
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), options.len(), "{name}: an option is declared twice");
    }
}

#[test]
fn only_exec_starts_processes() {
    let starts = ["kernel::child_program", "std::process::Command", "process::Command"];
    let mut found = Vec::new();
    let mut left = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            // Tests may start processes.
            let code = text.split("#[cfg(test)]").next().unwrap();
            let is_test = path.components().any(|part| part.as_os_str() == "tests")
                || path.file_stem().is_some_and(|stem| stem == "tests");
            let words = || code.split(|c: char| !(c.is_ascii_alphanumeric() || "_:".contains(c)));
            let does = |start: &str| {
                words().any(|word| word == start || word.starts_with(&format!("{start}::")))
            };
            if !is_test && starts.iter().any(|start| does(start)) {
                found.push(path.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap().to_owned());
            }
        }
    }
    assert_eq!(found, [Path::new("src/list/exec.rs")]);
}

/// The golden test checks this on recorded machines.
#[test]
fn every_sample_of_the_live_machine_is_of_a_declared_metric() {
    let root = Root::live().unwrap();
    let (now, boot, jobs) = (Timestamp::YEAR_2000, Timestamp(0), Jobs::default());
    let cx =
        Context { root: &root, now, boot, jobs: &jobs, budget_us: 1_000_000, is_between: false };
    for spec in SOURCES {
        let options = Options::defaults(spec.options);
        let mut sink = Sink::of_source(spec, DeviceId::new("node-1").unwrap());
        let Ok(mut source) = (spec.open)(&Open { root: &root, options: &options, boot }) else {
            continue;
        };
        if source.collect(&cx, &mut sink).is_ok() {
            for (entry, ..) in sink.samples() {
                let declared = spec.metrics.iter().any(|metric| **metric == *entry.metric);
                assert!(declared, "{} is not declared by {}", entry.metric.name, spec.name);
            }
        }
    }
}
