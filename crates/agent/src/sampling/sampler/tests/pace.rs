//! Tests of throttled sources: the report and the period.

use super::*;
use config::{ConfigFile, ConfigInputs, Raw};
use model::setting::{SourceState, SourceStatus};

/// Makes readings that each cost the given processor time.
fn readings(bench: &mut Bench, count: u32, cpu_us: i64) {
    for _ in 0..count {
        let generation = bench.sampler.generation;
        let mut read = bench.reading("first").make(&*bench.clock);
        read.cpu_us = cpu_us;
        bench.sampler.done(read, generation);
    }
}

#[test]
fn every_step_of_a_source_that_costs_too_much_is_reported_and_its_return() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("log");
    let flags = vec![("log.file".to_owned(), Raw::One(file.display().to_string()))];
    let given = ConfigInputs { file: ConfigFile::None, environment: &|_| None, flags };
    let log = crate::reading::plan::load(&given).unwrap().config.log;
    config::log::set(&log, || second(0)).unwrap();
    let mut plan = first_only();
    plan.source_percent_max = 10;
    let mut bench = Bench::new(&plan);

    // 900 ms per reading: with 16 s between two readings the source stays below a tenth of a processor.
    readings(&mut bench, 7, 900_000);
    assert_eq!(bench.sampler.source_errors(), []);
    readings(&mut bench, 1, 900_000);
    let slowed = |bench: &Bench| {
        let mut errors = bench.sampler.source_errors();
        let SourceStatus { source, state, reason } = errors.remove(0);
        assert_eq!((&*source, state, errors.len()), ("first", SourceState::Throttled, 0));
        reason
    };
    assert_eq!(
        slowed(&bench),
        "it uses more than 10 % of a processor; the agent reads it half as often, every 2 s"
    );
    readings(&mut bench, 100, 900_000);
    assert!(slowed(&bench).ends_with("reads it a sixteenth as often, every 16 s"));
    readings(&mut bench, 4 * 64, 1_000);
    assert_eq!(bench.sampler.source_errors(), []);
    assert_eq!(bench.sampler.entries[0].schedule.period_us(), Timestamp::SECOND);

    let text = std::fs::read_to_string(&file).unwrap();
    let wanted_jobs = text.lines().filter_map(|line| line.split_once("source first uses "));
    let more = "more than 10 % of a processor; the agent reads it";
    let less = "less processor time again; the agent reads it";
    let want = [
        format!("{more} half as often, every 2 s, until it uses less"),
        format!("{more} a quarter as often, every 4 s, until it uses less"),
        format!("{more} an eighth as often, every 8 s, until it uses less"),
        format!("{more} a sixteenth as often, every 16 s, until it uses less"),
        format!("{less} an eighth as often, every 8 s"),
        format!("{less} a quarter as often, every 4 s"),
        format!("{less} half as often, every 2 s"),
        format!("{less} as often as configured, every 1 s"),
    ];
    assert_eq!(wanted_jobs.map(|(_, wanted_jobs)| wanted_jobs).collect::<Vec<_>>(), want);
}

#[test]
fn the_agent_reports_its_own_metrics() {
    let mut plan = plan();
    plan.agent_metrics = Some(Duration::from_secs(2));
    let mut bench = Bench::new(&plan);
    bench.pass(4_500_000);
    let batches = bench.batches();
    let of_first = |metric: &str| {
        let samples = batches.iter().flat_map(Batch::samples);
        let mine = samples.filter(|(entry, ..)| {
            &*entry.metric.name == metric && entry.labels.as_str() == "{\"source\": \"first\"}"
        });
        mine.map(|(_, at, value)| (at.since(second(0)) / 1_000_000, value)).collect::<Vec<_>>()
    };
    assert_eq!(of_first("agent_source_reads_total"), [(0, 1.0), (2, 3.0), (4, 5.0)]);
    assert_eq!(of_first("agent_source_working"), [(0, 1.0), (2, 1.0), (4, 1.0)]);
    let known = crate::reading::agent_metrics::SPEC.metrics;
    for (entry, ..) in batches.iter().flat_map(Batch::samples) {
        let name = &entry.metric.name;
        let is_own = name.starts_with("agent_");
        assert!(!is_own || known.iter().any(|metric| metric.name == *name), "{name} is not listed");
    }
}
