//! A source with 1000 readings per second, beside others with one.

use crate::{Agent, alone, program, until};
use model::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;

const SECONDS: i64 = 6;

/// Samples of a metric with these labels: timestamps and values.
fn samples(agent: &Agent, metric: &str, labels: &str) -> BTreeMap<Timestamp, f64> {
    let mut found = BTreeMap::new();
    for batch in agent.server.posts().iter().flat_map(|post| &post.batches) {
        let mut samples = batch.index.iter().zip(&batch.values);
        for tick in &batch.ticks {
            for (index, value) in samples.by_ref().take(usize::try_from(tick.samples).unwrap()) {
                let entry = batch.table.entries.get(usize::try_from(*index).unwrap()).unwrap();
                if *entry.metric.name == *metric && entry.labels.as_str() == labels {
                    found.insert(tick.at, *value);
                }
            }
        }
    }
    found
}

#[test]
fn a_thousand_readings_a_second_disturb_no_other_source_and_make_no_more_batches() {
    let _alone = alone();
    // Another test covers the throttling of such a source.
    let arguments = [
        &["--period", "1s", "--sources-uptime-period", "1ms", "--source-percent-max", "100"][..],
        &["--sources-agent-period", "1s"],
    ];
    let agent = Agent::start(program(), &arguments.concat());
    let load = || samples(&agent, "load_1m", "{}");
    until("so many seconds", Duration::from_secs(60), || {
        i64::try_from(load().len()).unwrap() > SECONDS
    });
    // The first second includes the opening of every source.
    let load: Vec<Timestamp> = load().into_keys().skip(1).collect();
    let (first, last) = (*load.first().unwrap(), *load.last().unwrap());
    let seconds = last.since(first) / Timestamp::SECOND;
    let ticks: Vec<i64> = load.iter().map(|at| at.0.div_euclid(Timestamp::SECOND)).collect();
    assert!(ticks.windows(2).all(|pair| pair[1] == pair[0] + 1), "a tick is missing: {ticks:?}");

    let batches: Vec<Timestamp> = agent
        .server
        .posts()
        .iter()
        .flat_map(|post| &post.batches)
        .filter_map(|batch| Some(batch.ticks.last()?.at))
        .filter(|at| (first..=last).contains(at))
        .collect();
    let most = usize::try_from(seconds + 1).unwrap();
    assert!(batches.len() <= most, "{} batches in {seconds} s", batches.len());

    let uptime = samples(&agent, "uptime_seconds", "{}");
    let read = uptime.range(first..last).count();
    let missed = samples(&agent, "agent_source_missed_ticks_total", r#"{"source": "uptime"}"#);
    let missed: Vec<f64> = missed.range(first..=last).map(|(_, missed)| *missed).collect();
    let missed = missed.last().unwrap() - missed.first().unwrap();
    let due = seconds * 1000;
    println!(
        "{due} ticks due in {seconds} s: {read} read, {missed} missed, {} batches",
        batches.len()
    );
    assert!(read > 0);
    // Each tick is read or counted as missed. At the edges of the seconds a few may belong to either side.
    let reported = read as f64 + missed;
    // On a busy machine one tick may be up to 1 s late. Its missed ticks are then counted after the edge.
    let slack = 0.05 * due as f64 + 1000.0;
    assert!((reported - due as f64).abs() <= slack, "{reported} of {due} ticks are reported");
}
