//! Lines of wattmeters mean what they mean to kwollector-wattmetre 1.3.1, read by its own functions.

use crate::{oracle, seed};
use pollers::wattmeter::{LineVersion, PortValue, parse};
use std::collections::BTreeMap;

/// Generated files of 25 lines.
const FILES: usize = 200;

/// An instant and the values of ports, as Python prints them.
type Entry = (String, BTreeMap<usize, String>);

#[test]
fn lines_mean_what_they_mean_to_kwollector_wattmetre() {
    let (seed, dir) = (seed(), tempfile::tempdir().unwrap());
    let mut compared = 0;
    for (number, line) in oracle("wattmeter.py", &seed, FILES, dir.path()).iter().enumerate() {
        let text = std::fs::read_to_string(dir.path().join(number.to_string())).unwrap();
        let version = if number % 2 == 0 { LineVersion::V2 } else { LineVersion::V3 };
        let theirs: Vec<Option<Entry>> = serde_json::from_str(line).unwrap();
        assert_eq!(text.split_terminator('\n').count(), theirs.len());
        for (line, theirs) in text.split_terminator('\n').zip(&theirs) {
            let mut values = Vec::new();
            let at = parse(version, line.as_bytes(), &mut values);
            let context = format!("seed {seed}, file {number}: {line}");
            match (at, theirs) {
                (Ok(at), Some((instant, ports))) => {
                    let difference = at.seconds() - instant.parse::<f64>().unwrap();
                    assert!(difference.abs() <= 1e-6, "{context}");
                    compared += equal(&values, ports, &context);
                }
                // Ours rejects an impossible time, which theirs sends to the database.
                (Err(_), Some((instant, _))) => {
                    let seconds: f64 = instant.parse().unwrap();
                    assert!(!(0.0..9e12).contains(&seconds), "{context}");
                }
                // Theirs drops a line with one value that is no number.
                (Ok(_), None) => assert!(
                    values.contains(&PortValue::Bad)
                        || values.iter().all(|value| *value == PortValue::Missing),
                    "{context}"
                ),
                (Err(_), None) => {}
            }
        }
    }
    println!("{FILES} files of lines: {compared} values are equal");
    assert!(compared > FILES * 25, "{compared}");
}

/// Compares the values of a line. Returns how many are powers.
fn equal(ours: &[PortValue], theirs: &BTreeMap<usize, String>, context: &str) -> usize {
    assert!(theirs.keys().all(|port| *port < ours.len()), "{context}");
    let mut powers = 0;
    for (port, value) in ours.iter().enumerate() {
        let their_value = theirs.get(&port).map(|text| text.parse::<f64>().unwrap());
        match value {
            PortValue::Watts(watts) => {
                assert_eq!(Some(*watts), their_value, "{context}");
                powers += 1;
            }
            PortValue::Missing => assert!(their_value.is_none_or(f64::is_nan), "{context}"),
            PortValue::Bad => {
                let is_no_power = |value: f64| value.is_infinite() || value < 0.0;
                assert!(their_value.is_some_and(is_no_power), "{context}");
            }
        }
    }
    powers
}
