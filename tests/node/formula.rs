//! Evaluates the formulas of docs/reference/mapping.md on two readings of the metrics.
//!
//! Each metric is the interval between its two values, and so is the result. A value in that interval agrees
//! within the time skew of the readings.

use std::collections::BTreeMap;

/// A series: its labels as JSON, and its value.
pub(crate) type Series = (serde_json::Value, f64);
/// The device's series, by metric.
pub(crate) type Reading = BTreeMap<String, Vec<Series>>;

/// Smallest and largest possible value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Interval(pub(crate) f64, pub(crate) f64);

impl Interval {
    fn of(ends: &[f64]) -> Self {
        let least = ends.iter().copied().fold(f64::INFINITY, f64::min);
        Self(least, ends.iter().copied().fold(f64::NEG_INFINITY, f64::max))
    }

    fn with(self, other: Self, sign: u8) -> Self {
        let ends = |of: fn(f64, f64) -> f64| {
            let (a, b) = (self, other);
            Self::of(&[of(a.0, b.0), of(a.0, b.1), of(a.1, b.0), of(a.1, b.1)])
        };
        match sign {
            b'+' => ends(|a, b| a + b),
            b'-' => ends(|a, b| a - b),
            b'*' => ends(|a, b| a * b),
            _ => ends(|a, b| a / b),
        }
    }
}

/// Returns the interval of a metric, with a label if the formula names one.
type Metrics<'a> = &'a dyn Fn(&str, Option<Label<'_>>) -> Option<Interval>;
/// A label's name and value.
type Label<'a> = (&'a str, &'a str);

/// Computes a formula; `value` returns the interval of a metric, with a label if the formula names one.
/// `None` if one of the metrics has no value.
pub(crate) fn compute(formula: &str, value: Metrics<'_>) -> Option<Interval> {
    let mut rest = formula;
    let result = sum(&mut rest, value);
    assert_eq!(rest.trim(), "", "{formula} is no formula");
    result
}

fn sum(rest: &mut &str, value: Metrics<'_>) -> Option<Interval> {
    chain(rest, b"+-", &mut |rest| chain(rest, b"*/", &mut |rest| atom(rest, value)))
}

fn chain(
    rest: &mut &str,
    signs: &[u8],
    next: &mut dyn FnMut(&mut &str) -> Option<Interval>,
) -> Option<Interval> {
    let mut result = next(rest);
    loop {
        *rest = rest.trim_start();
        let Some(sign) = rest.bytes().next().filter(|sign| signs.contains(sign)) else {
            return result;
        };
        *rest = rest.split_at(1).1;
        let other = next(rest);
        result = result.zip(other).map(|(a, b)| a.with(b, sign));
    }
}

fn atom(rest: &mut &str, value: Metrics<'_>) -> Option<Interval> {
    *rest = rest.trim_start();
    if let Some(inner) = rest.strip_prefix('(') {
        *rest = inner;
        let result = sum(rest, value);
        *rest = rest.trim_start().strip_prefix(')').expect("a closing parenthesis");
        return result;
    }
    let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
    let (word, after) = rest.split_at(end);
    assert!(!word.is_empty(), "a number or a metric is missing before `{rest}`");
    *rest = after;
    if let Ok(number) = word.parse::<f64>() {
        return Some(Interval(number, number));
    }
    let Some(braced) = after.strip_prefix('{') else { return value(word, None) };
    let (label, after) = braced.split_once("\"}").expect("a label ends");
    *rest = after;
    value(word, Some(label.split_once("=\"").expect("a label has a value")))
}

/// Sums a metric's series in a reading; `None` if it has none.
pub(crate) fn total(reading: &Reading, metric: &str, label: Option<Label<'_>>) -> Option<f64> {
    let is = |labels: &serde_json::Value| label.is_none_or(|(name, text)| labels[name] == text);
    let series = reading.get(metric)?.iter().filter(|(labels, _)| is(labels));
    let values: Vec<f64> = series.map(|(_, value)| *value).collect();
    (!values.is_empty()).then(|| values.iter().sum())
}

#[test]
fn formulas_are_computed_with_intervals() {
    let value = |metric: &str, label: Option<Label<'_>>| match (metric, label) {
        ("a", None) => Some(Interval(1.0, 2.0)),
        ("b", Some(("cpu", "0"))) => Some(Interval(10.0, 10.0)),
        _ => None,
    };
    let of = |formula| compute(formula, &value);
    assert_eq!(of("a + 2 * 3 - 1"), Some(Interval(6.0, 7.0)));
    assert_eq!(of("100 * (a - 1) / b{cpu=\"0\"}"), Some(Interval(0.0, 10.0)));
    assert_eq!(of("b{cpu=\"0\"} - a - a"), Some(Interval(6.0, 8.0)));
    assert_eq!(of("a + c"), None);
}
