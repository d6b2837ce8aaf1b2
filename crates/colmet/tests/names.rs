//! Names of columns as metrics, and the way back.
#![expect(clippy::unwrap_used, reason = "tests end at the first surprise")]

use colmet::backends::{
    BACKENDS, Backend, Column, ColumnType, EVENTS, IPMIPOWER, JOBPROC, MEMORY, NVIDIA, PERFHW,
    PROCSTATS, RAPL, TASKSTATS, TEMPERATURE,
};
use colmet::counter_names::{Counter, CounterNames, Zone};
use colmet::formula::Selector;
use colmet::names::{Samples, Stored, column_of, computed, own, returned, stored};
use colmet::record::Value;
use model::{Kind, Metric, Unit};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn column(backend: &'static Backend, name: &str) -> &'static Column {
    backend.columns.iter().find(|column| column.row.theirs == name).unwrap()
}

/// How a column is stored without names of counters and without an agent.
fn plain(backend: &'static Backend, name: &str) -> Stored {
    stored(backend, column(backend, name), &CounterNames::none(&RAPL), false).unwrap()
}

fn all() -> impl Iterator<Item = (&'static Backend, &'static Column)> {
    BACKENDS.into_iter().flat_map(|backend| backend.columns.iter().map(move |it| (backend, it)))
}

#[test]
fn values_of_the_same_meaning_have_names_of_ours() {
    for (backend, name, metric, theirs, ours) in [
        (&TASKSTATS, "cpu_delay_total", "taskstats_cpu_delay_seconds_total", 1500, 1.5e-6),
        (&TASKSTATS, "coremem", "taskstats_coremem_byte_seconds_total", 1_000_000, 1_048_576.0),
        (&PROCSTATS, "meminfo_memtotal", "memory_total_bytes", 3, 3072.0),
        (&PROCSTATS, "stat_cpu_guest", "cpu_steal_seconds_total", 250, 2.5),
        (&MEMORY, "total_rss", "cgroup_memory_anon_bytes", 7, 7.0),
        (&EVENTS, "task_clock", "perf_task_clock_seconds_total", 2_000_000_000, 2.0),
        (&IPMIPOWER, "average_power_consumption", "exec_value_watts", 250, 250.0),
    ] {
        let stored = plain(backend, name);
        assert_eq!(stored.metric.name, metric);
        assert_eq!(stored.value(&Value::Unsigned(theirs)), Some(ours), "{name}");
        assert_eq!(stored.is_growth, backend == &EVENTS, "{name}");
        assert!(stored.metric.assumed && stored.labels.is_empty());
    }
    let begin = plain(&TASKSTATS, "ac_btime");
    assert_eq!((begin.metric.unit, begin.metric.kind), (Unit::Seconds, Kind::Gauge));
    assert_eq!(plain(&TASKSTATS, "cpu_delay_total").metric.divisor, 1_000_000_000);
}

#[test]
fn values_of_another_meaning_have_names_of_their_own() {
    for (backend, name, metric, kind, value) in [
        (&JOBPROC, "rchar", "colmet_jobproc_rchar_bytes", Kind::Gauge, 5.0),
        (&JOBPROC, "syscr", "colmet_jobproc_syscr", Kind::Gauge, 5.0),
        (&JOBPROC, "VmRSS", "colmet_jobproc_vmrss_bytes", Kind::Gauge, 5120.0),
        (&NVIDIA, "utilization-gpu", "colmet_nvidia_utilization_gpu_ratio", Kind::Gauge, 0.05),
        (&NVIDIA, "memory-free", "colmet_nvidia_memory_free_bytes", Kind::Gauge, 5_242_880.0),
        (&PERFHW, "counter_1", "colmet_perfhw_counter_1_total", Kind::Counter, 5.0),
        (&RAPL, "counter_1", "colmet_rapl_counter_1_joules_total", Kind::Counter, 5e-6),
        (&RAPL, "counter_2", "colmet_rapl_counter_2_joules", Kind::Gauge, 5e-6),
        (&TEMPERATURE, "counter_6", "colmet_temperature_counter_6_celsius", Kind::Gauge, 5.0),
        (&MEMORY, "cache", "colmet_memory_cache_bytes", Kind::Gauge, 5.0),
        (&MEMORY, "pgfault", "colmet_memory_pgfault_total", Kind::Counter, 5.0),
    ] {
        let stored = plain(backend, name);
        assert_eq!((&*stored.metric.name, stored.metric.kind), (metric, kind));
        assert_eq!(stored.value(&Value::Signed(5)), Some(value), "{name}");
        assert!(!stored.metric.assumed && stored.metric.help.contains(';'), "{stored:?}");
    }
    for (backend, count) in [(&JOBPROC, 10), (&NVIDIA, 7)] {
        let columns = backend.columns.iter();
        let own =
            columns.filter(|it| plain(backend, it.row.theirs).metric.name.starts_with("colmet_"));
        assert_eq!(own.count(), count);
    }
    let help = plain(&JOBPROC, "rchar").metric.help;
    assert_eq!(
        help,
        "`rchar` of Colmet's jobprocstats_default; not the same as ours: Colmet counts a process once for each of its \
         threads, and the value falls when a process ends."
    );
    assert_eq!(plain(&PERFHW, "counter_1").value(&Value::Signed(-5)), None);
    let jobs = column(&PROCSTATS, "involved_jobs");
    assert_eq!(stored(&PROCSTATS, jobs, &CounterNames::none(&RAPL), false), None);
}

#[test]
fn files_of_the_host_name_its_counters() {
    let package = |text: &str| text.into();
    let rapl = CounterNames::of(
        &RAPL,
        [
            Counter::Energy(Zone::Package, package("package-1")),
            Counter::Range(Zone::Package, package("package-1")),
            Counter::NotSupported,
        ],
    );
    let events = CounterNames::of(&PERFHW, [Counter::Event(1), Counter::Nothing]);
    let zones = CounterNames::of(&TEMPERATURE, [Counter::Temperature(4, "acpitz".into())]);
    let name = |names: &CounterNames, backend, counter: &str, has_agent| {
        let stored = stored(backend, column(backend, counter), names, has_agent)?;
        Some((stored.metric.name.into_owned(), stored.labels.as_str().to_owned()))
    };
    let pair = |metric: &str, labels: &str| Some((metric.to_owned(), labels.to_owned()));
    for (names, backend, counter, has_agent, expected) in [
        (
            &rapl,
            &RAPL,
            "counter_1",
            false,
            pair("rapl_package_joules_total", r#"{"package": "1"}"#),
        ),
        (&rapl, &RAPL, "counter_1", true, pair("colmet_rapl_counter_1_joules_total", "{}")),
        (&rapl, &RAPL, "counter_2", false, pair("colmet_rapl_counter_2_joules", "{}")),
        (&rapl, &RAPL, "counter_3", false, None),
        (&rapl, &RAPL, "counter_5", false, pair("colmet_rapl_counter_5_joules_total", "{}")),
        (&events, &PERFHW, "counter_1", false, pair("perf_instructions_total", "{}")),
        (&events, &PERFHW, "counter_1", true, pair("colmet_perfhw_instructions_total", "{}")),
        (&events, &PERFHW, "counter_2", false, None),
        (&events, &PERFHW, "counter_3", false, pair("colmet_perfhw_counter_3_total", "{}")),
        (
            &zones,
            &TEMPERATURE,
            "counter_1",
            false,
            pair("thermal_temperature_celsius", r#"{"type": "acpitz", "zone": "4"}"#),
        ),
        (
            &zones,
            &TEMPERATURE,
            "counter_1",
            true,
            pair("colmet_temperature_counter_1_celsius", "{}"),
        ),
    ] {
        assert_eq!(name(names, backend, counter, has_agent), expected, "{counter} {has_agent}");
    }
}

/// Beside an agent, no value has a name of ours, so nothing is counted twice.
#[test]
fn every_column_has_a_metric_of_its_own() {
    let mut names = BTreeSet::new();
    let none = CounterNames::none(&RAPL);
    for (backend, column) in all() {
        let Some(own) = own(backend, column) else {
            assert_eq!(column.kind, ColumnType::Text);
            continue;
        };
        let metric = &own.metric;
        assert_eq!(stored(backend, column, &none, true).as_ref(), Some(&own), "{metric:?}");
        metric.check().unwrap();
        assert!(metric.name.starts_with("colmet_") && names.insert(metric.name.clone()));
        let assumed = Metric::assumed(&metric.name).unwrap();
        assert_eq!((assumed.unit, assumed.kind), (metric.unit, metric.kind), "{metric:?}");
        let (found, place) = column_of(&metric.name).unwrap();
        assert_eq!((found, place.row.theirs), (backend, column.row.theirs));
    }
    assert_eq!(column_of("cpu_user_seconds_total").map(|(backend, _)| backend), None);
}

#[test]
fn columns_are_computed_from_samples() {
    let value = |selector: Selector<'_>| match (selector.metric, selector.label) {
        ("memory_total_bytes", None) => Some(4096.0),
        ("ipmi_dell_power_watts", None) => Some(120.4),
        ("nvidia_memory_size_bytes", None) => Some(8e9),
        _ => None,
    };
    let growth = |selector: Selector<'_>| match (selector.metric, selector.label) {
        ("perf_cache_misses_total", None) => Some(17.0),
        ("rapl_dram_joules_total", Some(("package", "1"))) => Some(0.25),
        _ => None,
    };
    let samples = Samples { value: &value, growth: &growth };
    let events = [column(&EVENTS, "instructions"), column(&EVENTS, "cache_misses")];
    for (backend, name, expected) in [
        (&PROCSTATS, "meminfo_memtotal", Some(Value::Unsigned(4))),
        (&PROCSTATS, "meminfo_memfree", None),
        (&PROCSTATS, "involved_jobs", None),
        // The program of the site and DCMI have no value.
        (&IPMIPOWER, "average_power_consumption", Some(Value::Signed(120))),
        (&NVIDIA, "memory-total", Some(Value::Signed(7629))),
        (&NVIDIA, "memory-free", None),
        (&RAPL, "counter_11", Some(Value::Signed(250_000))),
        (&RAPL, "counter_12", None),
        (&PERFHW, "counter_1", None),
        (&PERFHW, "counter_2", Some(Value::Signed(17))),
        (&PERFHW, "counter_3", None),
    ] {
        assert_eq!(computed(column(backend, name), &events, samples), expected, "{name}");
    }
}

proptest! {
    /// Whole numbers below 2^50 leave as they arrived, under names of ours and under their own.
    #[test]
    fn values_leave_as_they_arrived(number in 0_u64..1 << 50, short in any::<u32>()) {
        let none = CounterNames::none(&RAPL);
        for (backend, column) in all() {
            let value = match column.kind {
                ColumnType::Unsigned => Value::Unsigned(number),
                ColumnType::UnsignedShort => Value::Unsigned(short.into()),
                ColumnType::Signed => Value::Signed(number.cast_signed()),
                ColumnType::Float => Value::Float(short as f32),
                ColumnType::Text => continue,
            };
            let own = own(backend, column).unwrap().value(&value).unwrap();
            prop_assert_eq!(returned(backend, column, own), Some(value.clone()));
            let stored = stored(backend, column, &none, false).unwrap();
            if stored.metric.assumed {
                let ours = stored.value(&value).unwrap();
                let sample = |selector: Selector<'_>| {
                    (selector.metric == stored.metric.name).then_some(ours)
                };
                let samples = Samples { value: &sample, growth: &sample };
                prop_assert_eq!(computed(column, &[], samples), Some(value));
            }
        }
    }
}
