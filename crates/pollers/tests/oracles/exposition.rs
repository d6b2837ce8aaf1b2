//! Expositions mean what they mean to `prometheus_client`.

use crate::{oracle, seed};
use pollers::exposition::{Format, Line, Lines, Sample};
use serde_json::{Value, json};

/// Generated expositions.
const FILES: usize = 400;

#[test]
fn expositions_mean_what_they_mean_to_prometheus_client() {
    let (seed, dir) = (seed(), tempfile::tempdir().unwrap());
    let mut compared = 0;
    for (number, line) in oracle("exposition.py", &seed, FILES, dir.path()).iter().enumerate() {
        let text = std::fs::read_to_string(dir.path().join(number.to_string())).unwrap();
        let format = if number % 2 == 0 { Format::Text } else { Format::OpenMetrics };
        let context = format!("seed {seed}, file {number}:\n{text}");
        let mut lines = Lines::new(&text, format);
        let mut samples = Vec::new();
        for line in lines.by_ref() {
            match line.unwrap_or_else(|error| panic!("{error}: {context}")) {
                Line::Sample(sample) => samples.push(as_theirs(&sample)),
                Line::Type(..) | Line::Help(..) | Line::Unit(..) | Line::End => {}
            }
        }
        assert!(lines.is_complete(), "{context}");
        let theirs: Vec<Value> = serde_json::from_str(line).unwrap();
        let theirs: Vec<Value> = theirs.into_iter().map(with_numbers).collect();
        assert_eq!(samples, theirs, "{context}");
        compared += samples.len();
    }
    println!("{FILES} expositions: {compared} samples are equal");
    assert!(compared > FILES * 5, "{compared}");
}

fn as_theirs(sample: &Sample<'_>) -> Value {
    let labels: serde_json::Map<String, Value> =
        sample.labels.iter().map(|(key, value)| (key.to_string(), json!(value))).collect();
    let number = |value: f64| json!(value.to_string());
    json!([sample.name, labels, number(sample.value), sample.at.map(number)])
}

/// A sample of Python with its numbers as Rust prints them.
fn with_numbers(mut sample: Value) -> Value {
    for place in [2, 3] {
        let number = sample[place].as_str().map(|text| text.parse::<f64>().unwrap().to_string());
        sample[place] = json!(number);
    }
    sample
}
