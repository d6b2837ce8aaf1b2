//! psutil beside the agent on the same machine: each of FrUCToSA's 20 sensors matches jobmeter's metrics.
//!
//! The formulas of docs/reference/mapping.md compute the sensors. psutil's value must lie in the interval of
//! the agent's readings before and after it.

use crate::common::programs::{self, output, program};
use crate::node::formula::{Interval, Reading, compute, total};
use crate::repository::layers::repository;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// Maximum number of attempts until a sensor must agree: gauges rise and fall between two readings.
const TRIES: usize = 40;
/// Time between the two readings of a counter.
const BETWEEN: Duration = Duration::from_millis(1500);

/// jobmeter's equivalent of a field.
#[derive(Clone, Debug)]
enum Ours {
    Is(String),
    Grows(String),
    Label(String, String),
    Nothing(String),
}

/// Returns the equivalent of each sensor's fields from the mapping page.
fn mapping() -> BTreeMap<(String, String), Ours> {
    let page = std::fs::read_to_string(repository().join("docs/reference/mapping.md")).unwrap();
    let (_, ours) = page.split_once("## FrUCToSA\n").unwrap();
    let mut sensor = "";
    let mut all = BTreeMap::new();
    for line in ours.lines() {
        if let Some(name) = line.strip_prefix("### ") {
            sensor = name;
        }
        let Some((theirs, ours)) = line.strip_prefix("| `").and_then(|it| it.split_once("` | "))
        else {
            continue;
        };
        let ours = ours.strip_suffix(" |").unwrap();
        let words: Vec<&str> = ours.split('`').collect();
        let of = match words[..] {
            ["", formula, ""] => Ours::Is(formula.to_owned()),
            ["growth: ", formula, ""] => Ours::Grows(formula.to_owned()),
            ["label ", label, " of ", metric, ""] => {
                Ours::Label(metric.to_owned(), label.to_owned())
            }
            _ => Ours::Nothing(ours.strip_prefix("nothing: ").expect(line).to_owned()),
        };
        all.insert((sensor.to_owned(), theirs.to_owned()), of);
    }
    all
}

/// A running psutil process.
struct Beside {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Beside {
    /// Starts psutil, and returns the fields of each sensor too.
    fn start() -> (Self, Value) {
        let mut python = Command::new(repository().join("target/python/bin/python"));
        python.arg(repository().join("tests/node/sensors.py"));
        let mut child = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut psutil = Self { child, stdin, stdout: BufReader::new(stdout) };
        let fields = psutil.line();
        (psutil, fields)
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("psutil says `{line}`"))
    }

    fn request(&mut self) -> Value {
        writeln!(self.stdin).unwrap();
        self.line()
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Reads the device's metrics with one tick of the agent.
fn read(settings: &Path) -> Reading {
    let mut agent = programs::agent();
    agent.args(["--once", "--print", "--spool", "none", "--config"]).arg(settings);
    let (code, out, errors) = output(&mut agent);
    assert_eq!(code, 0, "{errors}");
    let mut reading = Reading::new();
    for line in out.lines().filter(|line| !line.starts_with('#')) {
        let parts: Vec<&str> = line.split('\t').collect();
        let [metric, _, "-", labels, _, _, value] = parts[..] else { continue };
        let series = (serde_json::from_str(labels).unwrap(), value.parse().unwrap());
        reading.entry(metric.to_owned()).or_default().push(series);
    }
    assert!(reading.len() > 100, "{out}");
    reading
}

/// Two responses of psutil, each with the agent's readings before and after it.
struct Round {
    before: [Reading; 2],
    psutil_values: [Value; 2],
    after: [Reading; 2],
}

impl Round {
    fn make(psutil: &mut Beside, settings: &Path) -> Self {
        let mut once = || {
            let before = read(settings);
            let psutil_values = psutil.request();
            (before, psutil_values, read(settings))
        };
        let (before_1, psutil_1, after_1) = once();
        std::thread::sleep(BETWEEN);
        let (before_2, psutil_2, after_2) = once();
        Self {
            before: [before_1, before_2],
            psutil_values: [psutil_1, psutil_2],
            after: [after_1, after_2],
        }
    }

    /// Returns the interval of a metric at psutil's second reading. A gauge may exceed the agent's two
    /// readings, so the interval is wider by its largest change between any two readings.
    fn value(&self, metric: &str, label: Option<(&str, &str)>) -> Option<Interval> {
        let at = |reading: &Reading| total(reading, metric, label);
        let (before, after) = (at(&self.before[1])?, at(&self.after[1])?);
        let looks = [at(&self.before[0])?, at(&self.after[0])?, before, after];
        let steps = looks.windows(2).map(|pair| (pair[0] - pair[1]).abs());
        let moved = steps.fold(0.0, f64::max);
        Some(Interval(before.min(after) - moved, before.max(after) + moved))
    }

    /// Returns the interval of a metric's increase between psutil's two readings.
    fn growth(&self, metric: &str, label: Option<(&str, &str)>) -> Option<Interval> {
        let at = |reading: &Reading| total(reading, metric, label);
        let least = at(&self.before[1])? - at(&self.after[0])?;
        let most = at(&self.after[1])? - at(&self.before[0])?;
        Some(Interval(least, most))
    }

    /// Checks a field of a sensor with numbers; the error describes the difference.
    fn number(&self, sensor: &str, field: &str, ours: &Ours) -> Result<(), String> {
        let psutil_values = &self.psutil_values[1][sensor];
        let found = |formula: &str, grows: bool| {
            if grows {
                compute(formula, &|metric, label| self.growth(metric, label))
            } else {
                compute(formula, &|metric, label| self.value(metric, label))
            }
        };
        let each: Vec<(f64, Option<Interval>)> = match ours {
            Ours::Grows(formula) if field == "N" => {
                let cores = psutil_values.as_object().unwrap().iter();
                let of = |(core, psutil_values): (&String, &Value)| {
                    let formula = formula.replace("\"N\"", &format!("\"{core}\""));
                    (psutil_values.as_f64().unwrap(), found(&formula, true))
                };
                cores.map(of).collect()
            }
            Ours::Is(formula) | Ours::Grows(formula) => {
                let found = found(formula, matches!(ours, Ours::Grows(_)));
                match psutil_values[field].as_f64() {
                    Some(psutil_values) => vec![(psutil_values, found)],
                    // If psutil has no value, this machine has none for jobmeter either.
                    None if found.is_none() => vec![],
                    None => return Err(format!("psutil has none, we {found:?}")),
                }
            }
            Ours::Label(..) | Ours::Nothing(_) => vec![],
        };
        each.into_iter()
            .try_for_each(|(psutil_values, found)| agrees(psutil_values, found, sensor, field))
    }

    /// Checks that a list has as many entries of each state as a metric counts. Other programs open and close
    /// sockets meanwhile, so each count is an interval.
    fn counts(&self, metric: &str, label: &str, psutil_values: &[Value]) -> Result<(), String> {
        let ours = self.after[1].get(metric).map_or(&[][..], Vec::as_slice);
        let states = ours
            .iter()
            .map(|(labels, _)| text(&labels[label]))
            .chain(psutil_values.iter().map(text));
        for state in states.collect::<BTreeSet<_>>() {
            let count = psutil_values.iter().filter(|entry| text(entry) == state).count() as f64;
            let found = self.value(metric, Some((label, &state))).unwrap_or(Interval(0.0, 0.0));
            if !(found.0..=found.1).contains(&count) {
                return Err(format!("{state}: psutil {count}, we {found:?}"));
            }
        }
        Ok(())
    }

    /// Checks that the entries of a list equal jobmeter's series, in any order.
    fn list(&self, sensor: &str, field: &str, ours: &Ours) -> Result<(), String> {
        let psutil_values = self.psutil_values[1][sensor][field].as_array().unwrap();
        match ours {
            Ours::Label(metric, label) if metric.ends_with("_in_state") => {
                self.counts(metric, label, psutil_values)
            }
            Ours::Label(metric, label) => {
                let series = self.after[1].get(metric).map_or(&[][..], Vec::as_slice);
                let mut found: Vec<String> =
                    series.iter().map(|(labels, _)| text(&labels[label])).collect();
                let mut psutil_values: Vec<String> = psutil_values.iter().map(text).collect();
                found.sort();
                psutil_values.sort();
                if found == psutil_values {
                    Ok(())
                } else {
                    Err(format!("psutil {psutil_values:?}, we {found:?}"))
                }
            }
            Ours::Is(formula) => {
                let metric = formula.split_whitespace().find(|word| word.contains('_')).unwrap();
                let series = self.after[1].get(metric).map_or(&[][..], Vec::as_slice);
                let one =
                    |value: f64| compute(formula, &|_, _| Some(Interval(value, value))).unwrap().0;
                let mut found: Vec<f64> = series.iter().map(|(_, value)| one(*value)).collect();
                let mut psutil_values: Vec<f64> =
                    psutil_values.iter().filter_map(Value::as_f64).collect();
                found.sort_by(f64::total_cmp);
                psutil_values.sort_by(f64::total_cmp);
                // psutil returns zero if Linux has no value.
                let missing = psutil_values.len().saturating_sub(found.len());
                let zeroes = psutil_values.iter().take_while(|value| **value == 0.0).count();
                psutil_values.drain(..missing.min(zeroes));
                // A sensor may change by one step between the two readings: 1 °C, 1 rpm, 1 MHz.
                let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 0.02 * b.abs() + 1.0;
                let same = found.len() == psutil_values.len()
                    && found.iter().zip(&psutil_values).all(near);
                if same { Ok(()) } else { Err(format!("psutil {psutil_values:?}, we {found:?}")) }
            }
            Ours::Grows(_) | Ours::Nothing(_) => Ok(()),
        }
    }
}

/// Returns a label's value in psutil's format.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Checks that a number lies in its interval. psutil rounds percentages to tenths and truncates milliseconds.
/// Its doubles may differ in the last bit.
fn agrees(
    psutil_values: f64,
    found: Option<Interval>,
    sensor: &str,
    field: &str,
) -> Result<(), String> {
    let slack = match (sensor, field) {
        ("CPUPercent" | "CPUTimesPercent", _) | (_, "percent") => 0.05 + 1e-9,
        (_, "read_time" | "write_time" | "busy_time") => 1.0,
        _ => psutil_values.abs() * 1e-9,
    };
    match found {
        Some(Interval(least, most)) if (least - slack..=most + slack).contains(&psutil_values) => {
            Ok(())
        }
        // psutil returns zero if Linux has no value, and for 0 / 0.
        None | Some(Interval(f64::INFINITY, _)) if psutil_values == 0.0 => Ok(()),
        other => Err(format!("psutil {psutil_values}, we {other:?}")),
    }
}

#[test]
fn every_sensor_of_psutil_equals_our_metrics() {
    let mapping = mapping();
    let (mut psutil, fields) = Beside::start();
    // Completeness: the page has exactly psutil's fields.
    let theirs = fields.as_object().unwrap().iter().flat_map(|(sensor, fields)| {
        let of = move |field: &Value| (sensor.clone(), field.as_str().unwrap().to_owned());
        fields.as_array().unwrap().iter().map(of)
    });
    let mut theirs: Vec<(String, String)> = theirs.collect();
    theirs.sort();
    assert_eq!(mapping.keys().cloned().collect::<Vec<_>>(), theirs);
    assert_eq!(fields.as_object().unwrap().len(), 20);

    let dir = tempfile::tempdir().unwrap();
    let settings = dir.path().join("agent.toml");
    let mut text = "[sources.cpu]\ncores = true\n".to_owned();
    for source in ["network", "interfaces"] {
        let (_, listed, _) = output(Command::new(program("jobmeter")).args(["sources", source]));
        if listed.starts_with(source) {
            text.push_str(&format!("[sources.{source}]\ninclude = [\"*\"]\n"));
        }
    }
    std::fs::write(&settings, text).unwrap();
    // psutil's first response covers an unknown time for fields that it computes between two responses.
    psutil.request();
    let mut open = mapping.clone();
    let mut differ = Vec::new();
    let (mut compared, mut passed_over) = (0, Vec::new());
    for _ in 0..TRIES {
        let round = Round::make(&mut psutil, &settings);
        differ.clear();
        open.retain(|(sensor, field), ours| {
            if let Ours::Nothing(why) = ours {
                passed_over.push(format!("{sensor}.{field}: {why}"));
                return false;
            }
            let is_list = round.psutil_values[1][sensor]
                .as_object()
                .is_some_and(|psutil_values| psutil_values.values().all(Value::is_array));
            let result = if is_list {
                round.list(sensor, field, ours)
            } else {
                round.number(sensor, field, ours)
            };
            match result {
                Ok(()) => compared += 1,
                Err(why) => {
                    differ.push(format!("{sensor}.{field}: {why}"));
                    return true;
                }
            }
            false
        });
        if open.is_empty() {
            break;
        }
    }
    println!("{compared} fields agree; not compared:\n  {}", passed_over.join("\n  "));
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    assert!(compared >= 55, "{compared}");
}
