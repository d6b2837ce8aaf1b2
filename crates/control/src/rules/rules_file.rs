//! The rules file named by `promotions.rules`: promotions for jobs and nodes, and actions on values beyond
//! a bound.
//!
//! ```toml
//! [[rule]]
//! name = "power"
//! metric = "ipmi_.*"
//! nodes = "gpu-*"
//! queues = ["deep"]
//!
//! [[when]]
//! name = "hot"
//! metric = "hwmon_temperature_celsius"
//! labels = { chip = "coretemp" }
//! above = 95
//! back = 90
//! for = "30s"
//! flush = "cpu"
//! promote = "perf_.*"
//! promote_for = "10m"
//! again_after = "1h"
//! ```

use super::expression;
use super::value_rule::{Threshold, ValueRule};
use crate::demand::Rule;
use model::setting::show_duration;
use model::{ClusterId, Labels, Metric, NodeList};
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::time::Duration;
use toml::de::{DeTable, DeValue};

const BYTES_MAX: u64 = 1 << 20;
const RULES_MAX: usize = 1000;
/// Maximum length of a value rule's name, which appears in marks and in the audit log, in bytes.
const NAME_BYTES_MAX: usize = 100;
/// Keys of a rule.
const KEYS: [&str; 9] =
    ["name", "metric", "nodes", "clusters", "users", "accounts", "projects", "queues", "jobs"];

/// Keys of a value rule.
const WHEN_KEYS: [&str; 13] = [
    "name",
    "metric",
    "labels",
    "nodes",
    "jobs",
    "above",
    "below",
    "back",
    "for",
    "flush",
    "promote",
    "promote_for",
    "again_after",
];
/// Default duration of a promotion, and default pause of a rule on a node after it fired.
const REST: Duration = Duration::from_secs(600);
/// Maximum of `for` and `again_after`.
const DAY: Duration = Duration::from_secs(86_400);

/// The rules of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    /// Rules that promote metrics automatically.
    pub promoting: Vec<Rule>,
    /// Value rules.
    pub when: Vec<ValueRule>,
}

/// An error in the rules.
#[derive(Debug, thiserror::Error)]
pub struct RuleError {
    /// Line in the file, from 1; `None` if the file cannot be read.
    pub line: Option<usize>,
    /// The problem.
    pub what: String,
}

/// `line 3: rule `hot`: ...`.
impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

/// Reads the valid rules, and all errors of the others. `most` limits the duration of their promotions.
pub fn read(path: &Path, most: Duration) -> (Rules, Vec<RuleError>) {
    match config::read_small(path, BYTES_MAX).and_then(config::as_text) {
        Ok(text) => parse(&text, most),
        Err(error) => {
            let error = RuleError { line: None, what: error.to_string() };
            (Rules::default(), vec![error])
        }
    }
}

fn parse(text: &str, most: Duration) -> (Rules, Vec<RuleError>) {
    let (mut rules, mut errors) = (Rules::default(), Errors { text, errors: Vec::new() });
    let (table, wrong) = DeTable::parse_recoverable(text);
    for error in wrong {
        let at = error.span().unwrap_or_default().start;
        errors.push(at, error.message().replace('\n', ", "));
    }
    for (key, value) in table.get_ref() {
        let (name, list) = (&**key.get_ref(), value.get_ref().as_array());
        let Some(list) = list.filter(|_| matches!(name, "rule" | "when")) else {
            let what = format!("`{name}` is unknown; a rule begins with [[rule]] or [[when]]");
            errors.push(key.span().start, what);
            continue;
        };
        if list.len() > RULES_MAX {
            errors.push(key.span().start, format!("more than {RULES_MAX} rules"));
            continue;
        }
        for value in list.iter() {
            let Some(table) = value.get_ref().as_table() else {
                let what = "a rule begins with [[rule]] or [[when]]".to_owned();
                errors.push(value.span().start, what);
                continue;
            };
            let entry = Entry::new(table, value.span().start, &mut errors);
            if name == "rule" {
                rules.promoting.extend(entry.read(read_rule));
            } else {
                rules.when.extend(entry.read(|entry| read_when(entry, most)));
            }
        }
    }
    // The server remembers by name when and how often a rule fired, so names must be unique.
    let mut names: BTreeSet<&str> = rules.promoting.iter().map(|rule| &*rule.name).collect();
    for twice in rules.when.iter().filter(|when| !names.insert(&when.name)) {
        let what = format!("another rule is named `{}` like one of [[when]]", twice.name);
        errors.errors.push(RuleError { line: None, what });
    }
    (rules, errors.errors)
}

/// The errors of a text.
struct Errors<'a> {
    text: &'a str,
    errors: Vec<RuleError>,
}

impl Errors<'_> {
    /// Adds an error at this byte of the text.
    fn push(&mut self, at: usize, what: String) {
        let before = self.text.as_bytes().iter().take(at);
        let line = Some(before.filter(|byte| **byte == b'\n').count() + 1);
        self.errors.push(RuleError { line, what });
    }
}

/// A rule while it is read.
struct Entry<'a, 'b> {
    table: &'a DeTable<'a>,
    name: &'a str,
    /// Its place in the text.
    at: usize,
    errors: &'a mut Errors<'b>,
}

impl<'a, 'b> Entry<'a, 'b> {
    fn new(table: &'a DeTable<'a>, at: usize, errors: &'a mut Errors<'b>) -> Self {
        let name = table.get("name").and_then(|name| name.get_ref().as_str()).unwrap_or_default();
        Self { table, name, at, errors }
    }

    /// Reads a rule; `None` if it has errors.
    fn read<T>(mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let before = self.errors.errors.len();
        let rule = read(&mut self);
        rule.filter(|_| self.errors.errors.len() == before)
    }

    /// Reads the value of a key, if the rule has the key.
    fn get<T>(
        &mut self,
        key: &str,
        read: impl FnOnce(&str, &'a DeValue<'a>) -> Result<T, String>,
    ) -> Option<T> {
        let value = self.table.get(key)?;
        let read = read(key, value.get_ref());
        read.map_err(|what| self.wrong_at(value.span().start, &what)).ok()
    }

    /// Reads the value of a key that each rule has.
    fn must<T>(
        &mut self,
        key: &str,
        read: impl FnOnce(&str, &'a DeValue<'a>) -> Result<T, String>,
    ) -> Option<T> {
        if !self.has(key) {
            self.wrong(&format!("it has no `{key}`"));
        }
        self.get(key, read)
    }

    fn has(&self, key: &str) -> bool {
        self.table.get(key).is_some()
    }

    /// Rejects unknown keys.
    fn known(&mut self, keys: &[&'static str]) {
        for (key, _) in self.table {
            let (name, at) = (&**key.get_ref(), key.span().start);
            if !keys.contains(&name) {
                let meant = config::nearest(name, keys.iter().copied());
                let meant =
                    meant.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
                self.wrong_at(at, &format!("a rule has no `{name}`{meant}"));
            }
        }
    }

    fn wrong(&mut self, what: &str) {
        self.wrong_at(self.at, what);
    }

    fn wrong_at(&mut self, at: usize, what: &str) {
        self.errors.push(at, format!("rule `{}`: {what}", self.name));
    }
}

fn read_when(entry: &mut Entry<'_, '_>, most: Duration) -> Option<ValueRule> {
    entry.known(&WHEN_KEYS);
    let name = entry.must("name", name_of);
    let metric = entry.must("metric", |key, value| {
        let metric = text(key, value)?;
        Metric::check_name(metric).map_err(|error| error.to_string())?;
        Ok(metric)
    });
    let bounds = (entry.get("above", number), entry.get("below", number));
    let beyond = match bounds {
        (Some(bound), None) => Some(Threshold::Above(bound)),
        (None, Some(bound)) => Some(Threshold::Below(bound)),
        _ => None,
    };
    if entry.has("above") == entry.has("below") {
        entry.wrong("it has either `above` or `below`");
    }
    if !entry.has("flush") && !entry.has("promote") {
        entry.wrong("it has `flush`, `promote` or both");
    }
    let back = entry.get("back", |key, value| match beyond {
        Some(beyond) => back(beyond, number(key, value)?),
        None => number(key, value),
    });
    let flush = entry.get("flush", source_word);
    let promote = entry.get("promote", |key, value| {
        let promote = text(key, value)?;
        let checked = expression::check(promote);
        checked.map_err(|why| why.replacen("`metric`", "`promote`", 1))?;
        Ok(promote)
    });
    let nodes = entry.get("nodes", nodes);
    let jobs = entry.get("jobs", truth).unwrap_or(false);
    let labels = entry.get("labels", |_, value| labels(value)).unwrap_or_default();
    let second = Duration::from_secs(1);
    let lasts = entry.get("for", |key, value| span(key, value, Duration::ZERO, DAY));
    let promote_for = entry.get("promote_for", |key, value| span(key, value, second, most));
    let again = entry.get("again_after", |key, value| span(key, value, second, DAY));
    let beyond = beyond?;
    let (Threshold::Above(bound) | Threshold::Below(bound)) = beyond;
    Some(ValueRule {
        name: name?.into(),
        metric: metric?.into(),
        labels,
        nodes,
        jobs,
        back: back.unwrap_or(bound),
        beyond,
        lasts_us: micros(lasts.unwrap_or_default()),
        flush: flush.map(Into::into),
        promote: promote.map(Into::into),
        promote_us: micros(promote_for.unwrap_or(REST.min(most))),
        again_us: micros(again.unwrap_or(REST)),
    })
}

fn name_of<'a>(key: &str, value: &'a DeValue<'_>) -> Result<&'a str, String> {
    let name = text(key, value)?;
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(model::is_unprintable) {
        return Err(format!(
            "a name has 1 to {NAME_BYTES_MAX} bytes, and only printable characters"
        ));
    }
    Ok(name)
}

fn source_word<'a>(key: &str, value: &'a DeValue<'_>) -> Result<&'a str, String> {
    let word = text(key, value)?;
    if !model::is_word(word) {
        let pattern = model::WORD;
        return Err(format!("`{key}` must be a source name; source names match {pattern}"));
    }
    Ok(word)
}

/// Checks the value that resets a rule; the default is the bound itself.
fn back(beyond: Threshold, back: f64) -> Result<f64, String> {
    match beyond {
        Threshold::Above(bound) if back <= bound => Ok(back),
        Threshold::Below(bound) if back >= bound => Ok(back),
        _ => Err("`back` must not be greater than `above` or less than `below`".to_owned()),
    }
}

/// Names and values of the labels that a series must have.
type Named = Vec<(Box<str>, Box<str>)>;

fn labels(value: &DeValue<'_>) -> Result<Named, String> {
    let table = value.as_table().ok_or("`labels` must be a table such as { cpu = \"0\" }")?;
    let mut labels = Vec::new();
    for (key, value) in table {
        let (key, value) = (&**key.get_ref(), text(key.get_ref(), value.get_ref())?);
        Labels::new([(key, value)]).map_err(|error| error.to_string())?;
        labels.push((key.into(), value.into()));
    }
    Ok(labels)
}

fn number(key: &str, value: &DeValue<'_>) -> Result<f64, String> {
    let number = match value {
        DeValue::Integer(number) => number.to_string().parse::<f64>().ok(),
        DeValue::Float(number) => number.to_string().parse::<f64>().ok(),
        _ => None,
    };
    number.filter(|number| number.is_finite()).ok_or_else(|| format!("`{key}` must be a number"))
}

/// Reads a time within these limits.
fn span(key: &str, value: &DeValue<'_>, min: Duration, max: Duration) -> Result<Duration, String> {
    let time = value.as_str().and_then(config::parse_duration);
    let time =
        time.ok_or_else(|| format!("`{key}` must be a duration such as \"30s\" or \"10m\""))?;
    if !(min..=max).contains(&time) {
        let from =
            if min.is_zero() { String::new() } else { format!(" from {}", show_duration(min)) };
        return Err(format!("`{key}` must be a duration{from} up to {}", show_duration(max)));
    }
    Ok(time)
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

fn read_rule(entry: &mut Entry<'_, '_>) -> Option<Rule> {
    entry.known(&KEYS);
    let mut list = |key: &str| boxed(entry.get(key, texts).unwrap_or_default());
    let (users, accounts) = (list("users"), list("accounts"));
    let (projects, queues) = (list("projects"), list("queues"));
    let name = entry.must("name", name_of);
    let metric = entry.must("metric", |key, value| {
        let metric = text(key, value)?;
        expression::check(metric)?;
        Ok(metric)
    });
    let clusters = entry.get("clusters", |key, value| {
        let clusters = texts(key, value)?.into_iter().map(ClusterId::new);
        clusters.collect::<Result<_, _>>().map_err(|error| error.to_string())
    });
    let rule = Rule {
        nodes: entry.get("nodes", nodes),
        jobs: entry.get("jobs", truth).unwrap_or(false),
        clusters: clusters.unwrap_or_default(),
        name: name?.into(),
        metric: metric?.into(),
        users,
        accounts,
        projects,
        queues,
    };
    if !rule.is_of_jobs() && rule.nodes.is_none() {
        entry
            .wrong("it selects neither nodes nor jobs; set `nodes`, or `jobs = true` for all jobs");
    }
    Some(rule)
}

fn nodes(key: &str, value: &DeValue<'_>) -> Result<NodeList, String> {
    NodeList::new(text(key, value)?).map_err(|error| error.to_string())
}

fn truth(key: &str, value: &DeValue<'_>) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| format!("`{key}` is true or false"))
}

fn text<'a>(key: &str, value: &'a DeValue<'_>) -> Result<&'a str, String> {
    value.as_str().ok_or_else(|| format!("`{key}` must be a string"))
}

fn texts<'a>(key: &str, value: &'a DeValue<'_>) -> Result<Vec<&'a str>, String> {
    let array = value.as_array().map(|array| array.iter().map(|value| value.get_ref().as_str()));
    let texts: Option<Vec<&str>> = array.and_then(Iterator::collect);
    texts.ok_or_else(|| format!("`{key}` is a list of texts"))
}

fn boxed(texts: Vec<&str>) -> Vec<Box<str>> {
    texts.into_iter().map(Into::into).collect()
}

#[cfg(test)]
mod tests;
