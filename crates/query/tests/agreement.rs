//! SQL's rows and `get_metrics` tell the same, from memory and from blocks, whatever the slices.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod lab;

use jobs::Reader;
use lab::{Lab, Told, at, device, key};
use model::Kind;
use proptest::prelude::*;
use query::{Asker, Format, GetMetrics, Questions, RowQuestion, Settings, View};
use serde_json::Value;
use std::collections::BTreeSet;
use store::JobSelector;

/// Place among devices, metric, job, alias, and seconds of the samples.
type Fact = (usize, usize, usize, usize, Vec<u8>);

const DEVICES: [&str; 3] = ["a", "b", "c"];
const METRICS: [&str; 2] = ["m", "n_total"];
const ALIASES: [&str; 3] = ["", "a", "z"];

fn fill(facts: &[Fact]) -> Lab {
    let lab = Lab::new();
    for (i, (place, metric, job, alias, seconds)) in facts.iter().enumerate() {
        let alias = ALIASES[*alias];
        let labels = [("_device_alias", alias)];
        let samples: Vec<(f64, f64)> =
            seconds.iter().map(|second| (f64::from(*second), (i + 1) as f64)).collect();
        let counter = *metric == 1;
        lab.put(&[Told {
            device: DEVICES[*place],
            metric: METRICS[*metric],
            kind: if counter { Kind::Counter } else { Kind::Gauge },
            job: (*job > 0).then(|| key("local", i64::try_from(*job).unwrap())),
            labels: if alias.is_empty() { &[] } else { &labels },
            samples: &samples,
            ..Told::default()
        }]);
        if i == facts.len() / 2 {
            lab.store.flush().unwrap();
        }
    }
    lab
}

/// Device, time, metric, labels and value of each row, sorted.
fn by_rows(questions: &Questions, name: &str) -> Vec<String> {
    let question = RowQuestion {
        view: View::ByDevice,
        devices: Some(BTreeSet::from([device(name)])),
        metrics: None,
        job: JobSelector::Any,
        from: at(0.0),
        to: at(300.0),
        summary: false,
    };
    let asker = Asker::new(Reader::Everything, at(7200.0));
    let mut rows = Vec::new();
    for batch in questions.rows(&question, &asker).unwrap() {
        let batch = batch.unwrap();
        for row in 0..batch.len() {
            let line = batch.line(row).unwrap();
            let at = model::Timestamp(batch.times[row]);
            let value = batch.values[row];
            rows.push(format!("{at} {} {} {value} {}", line.device, line.metric, line.labels));
        }
    }
    rows.sort();
    rows
}

fn by_get_metrics(questions: &Questions, name: &str) -> Vec<String> {
    let pairs = [("devices", name), ("start_time", "2026-01-06"), ("end_time", "2026-01-06T00:05")];
    let asker = Asker::new(Reader::Everything, at(7200.0));
    let question = GetMetrics::from_pairs(pairs).unwrap();
    let answer = questions.get_metrics(&question, Format::Json, &asker).unwrap();
    let text = answer.map(Result::unwrap).collect::<Vec<_>>().concat();
    let rows: Vec<Value> = serde_json::from_slice(&text).unwrap();
    let times: Vec<&str> = rows.iter().filter_map(|row| row["timestamp"].as_str()).collect();
    assert!(times.is_sorted(), "ascending by time");
    // The labels' own text, which a parser would reorder.
    let text = String::from_utf8_lossy(&text).into_owned();
    let labels = text.split("\"labels\":").skip(1).map(|rest| {
        let end = rest.find("}, \n").or_else(|| rest.find("}]")).unwrap_or(0);
        rest.split_at(end).0.to_owned()
    });
    let word = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let mut lines: Vec<String> = rows
        .iter()
        .zip(labels)
        .map(|(row, labels)| {
            let (time, name, metric) =
                (word(row, "timestamp"), word(row, "device_id"), word(row, "metric_id"));
            format!("{time} {name} {metric} {} {labels}", row["value"])
        })
        .collect();
    lines.sort();
    lines
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn both_ways_tell_the_same(
        facts in proptest::collection::vec(
            (0_usize..3, 0_usize..2, 0_usize..3, 0_usize..3,
             proptest::collection::btree_set(0_u8..40, 0..12).prop_map(|set| set.into_iter().collect())),
            1..9,
        ),
        slice_rows in 1_usize..50,
    ) {
        let lab = fill(&facts);
        let questions = lab.questions(Settings { slice_rows, ..Settings::default() });
        for name in ["a", "z"] {
            prop_assert_eq!(by_rows(&questions, name), by_get_metrics(&questions, name));
        }
    }
}
