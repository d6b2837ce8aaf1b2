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

use crate::control::expression;
use crate::control::value_rule::{Beyond, When};
use jobs::Rule;
use model::{ClusterId, Labels, Metric, NodeList};
use std::collections::BTreeSet;
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
pub(crate) struct Rules {
    /// Rules that promote metrics automatically.
    pub(crate) promoting: Vec<Rule>,
    /// Value rules.
    pub(crate) when: Vec<When>,
}

/// Reads the rules; `most` limits the duration of their promotions.
pub(crate) fn read(path: &Path, most: Duration) -> Result<Rules, String> {
    let about = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if about.len() > BYTES_MAX {
        return Err(format!("longer than {BYTES_MAX} bytes"));
    }
    parse(&std::fs::read_to_string(path).map_err(|error| error.to_string())?, most)
}

fn parse(text: &str, most: Duration) -> Result<Rules, String> {
    let table = DeTable::parse(text).map_err(|error| error.to_string().trim().to_owned())?;
    let mut rules = Rules::default();
    for (key, value) in table.get_ref() {
        let (key, list) = (&**key.get_ref(), value.get_ref().as_array());
        let list = list.filter(|_| matches!(key, "rule" | "when"));
        let list = list.ok_or_else(|| {
            format!("`{key}` is unknown; a rule begins with [[rule]] or [[when]]")
        })?;
        if list.len() > RULES_MAX {
            return Err(format!("more than {RULES_MAX} rules"));
        }
        for rule in list.iter() {
            let rule = rule.get_ref().as_table();
            let rule = rule.ok_or("a rule begins with [[rule]] or [[when]]")?;
            if key == "rule" {
                rules.promoting.push(read_rule(rule)?);
            } else {
                rules.when.push(read_when(rule, most)?);
            }
        }
    }
    // The server remembers by name when and how often a rule fired, so names must be unique.
    let mut names: BTreeSet<&str> = rules.promoting.iter().map(|rule| &*rule.name).collect();
    match rules.when.iter().find(|when| !names.insert(&when.name)) {
        Some(twice) => Err(format!("another rule is named `{}` like one of [[when]]", twice.name)),
        None => Ok(rules),
    }
}

fn read_when(table: &DeTable<'_>, most: Duration) -> Result<When, String> {
    let name = table.get("name").and_then(|name| name.get_ref().as_str()).unwrap_or_default();
    when_of(table, most).map_err(|why| format!("rule `{name}`: {why}"))
}

fn when_of(table: &DeTable<'_>, most: Duration) -> Result<When, String> {
    known(table, &WHEN_KEYS)?;
    let get = |key: &str| table.get(key).map(toml::Spanned::get_ref);
    let word = |key: &str| get(key).map(|value| text(key, value)).transpose();
    let bound = |key: &str| get(key).map(|value| number(key, value)).transpose();
    let named = word("name")?.zip(word("metric")?);
    let (name, metric) = named.ok_or("a rule has a `name` and a `metric`")?;
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(model::is_unprintable) {
        return Err(format!(
            "a name has 1 to {NAME_BYTES_MAX} bytes, and only printable characters"
        ));
    }
    Metric::check_name(metric).map_err(|error| error.to_string())?;
    let beyond = match (bound("above")?, bound("below")?) {
        (Some(bound), None) => Beyond::Above(bound),
        (None, Some(bound)) => Beyond::Below(bound),
        _ => return Err("it has either `above` or `below`".to_owned()),
    };
    let (flush, promote) = (word("flush")?, word("promote")?);
    if flush.is_none() && promote.is_none() {
        return Err("it has `flush`, `promote` or both".to_owned());
    }
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if flush.is_some_and(|word| word.is_empty() || !word.bytes().all(is_word)) {
        return Err(format!("`flush` must be a source name; source names match {}", api::WORD));
    }
    let checked = promote.map_or(Ok(()), expression::check);
    checked.map_err(|why| why.replacen("`metric`", "`promote`", 1))?;
    let nodes = word("nodes")?.map(NodeList::new).transpose();
    let jobs = get("jobs").map_or(Some(false), DeValue::as_bool);
    let Times { lasts, promote_for, again } = Times::of(table, most)?;
    Ok(When {
        name: name.into(),
        metric: metric.into(),
        labels: get("labels").map_or(Ok(Vec::new()), labels)?,
        nodes: nodes.map_err(|error| error.to_string())?,
        jobs: jobs.ok_or("`jobs` is true or false")?,
        back: back(beyond, bound("back")?)?,
        beyond,
        lasts_us: micros(lasts),
        flush: flush.map(Into::into),
        promote: promote.map(Into::into),
        promote_us: micros(promote_for),
        again_us: micros(again),
    })
}

/// The durations of a value rule.
struct Times {
    lasts: Duration,
    promote_for: Duration,
    again: Duration,
}

impl Times {
    fn of(table: &DeTable<'_>, most: Duration) -> Result<Self, String> {
        let time = |key: &str, default: Duration| {
            table.get(key).map_or(Ok(default), |value| span(key, value.get_ref()))
        };
        let least = Duration::from_secs(1);
        let lasts = time("for", Duration::ZERO)?;
        let promote_for = time("promote_for", REST.min(most))?;
        let again = time("again_after", REST)?;
        if lasts > DAY || !(least..=DAY).contains(&again) {
            return Err("`for` is a day at most, `again_after` a second to a day".to_owned());
        }
        if !(least..=most).contains(&promote_for) {
            return Err(format!("`promote_for` is a second to {} s", most.as_secs()));
        }
        Ok(Self { lasts, promote_for, again })
    }
}

/// Returns the value that resets a rule: `back`, or the bound itself by default.
fn back(beyond: Beyond, back: Option<f64>) -> Result<f64, String> {
    match (beyond, back) {
        (Beyond::Above(bound) | Beyond::Below(bound), None) => Ok(bound),
        (Beyond::Above(bound), Some(back)) if back <= bound => Ok(back),
        (Beyond::Below(bound), Some(back)) if back >= bound => Ok(back),
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

fn span(key: &str, value: &DeValue<'_>) -> Result<Duration, String> {
    let time = value.as_str().and_then(config::parse_duration);
    time.ok_or_else(|| format!("`{key}` must be a duration such as \"30s\" or \"10m\""))
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// Rejects unknown keys.
fn known(table: &DeTable<'_>, keys: &[&'static str]) -> Result<(), String> {
    for (key, _) in table {
        let key = &**key.get_ref();
        if !keys.contains(&key) {
            let meant = config::nearest(key, keys.iter().copied());
            let meant = meant.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            return Err(format!("unknown key `{key}` of a rule{meant}"));
        }
    }
    Ok(())
}

fn read_rule(table: &DeTable<'_>) -> Result<Rule, String> {
    known(table, &KEYS)?;
    let mut rule = Rule::default();
    for (key, value) in table {
        let (key, value) = (&**key.get_ref(), value.get_ref());
        match key {
            "name" => rule.name = text(key, value)?.into(),
            "metric" => rule.metric = text(key, value)?.into(),
            "nodes" => {
                let nodes = NodeList::new(text(key, value)?);
                rule.nodes = Some(nodes.map_err(|error| error.to_string())?);
            }
            "clusters" => {
                let clusters = texts(key, value)?.into_iter().map(ClusterId::new);
                rule.clusters =
                    clusters.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
            }
            "users" => rule.users = boxed(texts(key, value)?),
            "accounts" => rule.accounts = boxed(texts(key, value)?),
            "projects" => rule.projects = boxed(texts(key, value)?),
            "queues" => rule.queues = boxed(texts(key, value)?),
            "jobs" => {
                let truth = value.as_bool();
                rule.jobs = truth.ok_or("`jobs` is true or false")?;
            }
            // `known` has rejected all other keys.
            _ => {}
        }
    }
    checked(rule)
}

fn checked(rule: Rule) -> Result<Rule, String> {
    let name = &rule.name;
    if name.is_empty() || rule.metric.is_empty() {
        return Err(format!("rule `{name}`: a rule has a `name` and a `metric`"));
    }
    expression::check(&rule.metric).map_err(|why| format!("rule `{name}`: {why}"))?;
    if !rule.is_of_jobs() && rule.nodes.is_none() {
        return Err(format!(
            "rule `{name}`: it selects neither nodes nor jobs; set `nodes`, or `jobs = true` for \
             all jobs"
        ));
    }
    Ok(rule)
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
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_and_checked() {
        let text = "[[rule]]\nname = \"a\"\nmetric = \"ipmi_.*\"\nnodes = \"gpu-*\"\n\
                    [[rule]]\nname = \"b\"\nmetric = \"x\"\nclusters = [\"oar\"]\nqueues = [\"q\"]\n\
                    [[rule]]\nname = \"c\"\nmetric = \"x\"\njobs = true\n";
        let rules = parse(text, DAY).unwrap().promoting;
        assert_eq!(rules.len(), 3);
        assert!(!rules[0].is_of_jobs() && rules[1].is_of_jobs() && rules[2].is_of_jobs());
        assert_eq!(parse("", DAY).unwrap(), Rules::default());
        for (bad, why) in [
            ("[[rule]]\nname = \"a\"\n", "metric"),
            ("[[rule]]\nname = \"a\"\nmetric = \"(\"\nnodes = \"n1\"\n", "at byte 1"),
            ("[[rule]]\nname = \"a\"\nmetric = \"x\"\nnodes = \"n[\"\n", "list of nodes"),
            ("[[rule]]\nname = \"a\"\nmetric = \"x\"\n", "`jobs = true`"),
            ("[[rule]]\nname = \"a\"\nmetric = \"x\"\nqueue = \"q\"\n", "queue"),
        ] {
            let error = parse(bad, DAY).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn rules_about_values_are_read_and_checked() {
        let hot = "[[when]]\nname = \"hot\"\nmetric = \"hwmon_temperature_celsius\"\n";
        let text = format!(
            "{hot}labels = {{ chip = \"core\", sensor = \"1\" }}\nnodes = \"gpu-*\"\nabove = 95\n\
             back = 90.5\nfor = \"30s\"\nflush = \"cpu\"\npromote = \"perf_.*\"\npromote_for = \"5m\"\n\
             again_after = \"1h\"\n[[when]]\nname = \"idle\"\nmetric = \"load_1m\"\nbelow = 1_000\n\
             flush = \"load\"\n[[rule]]\nname = \"a\"\nmetric = \"x\"\njobs = true\n"
        );
        let Rules { promoting, when } = parse(&text, DAY).unwrap();
        assert_eq!((promoting.len(), when.len()), (1, 2));
        let [first, second] = &when[..] else { panic!("{when:?}") };
        assert_eq!((first.beyond, first.back), (Beyond::Above(95.0), 90.5));
        assert_eq!((second.beyond, second.back), (Beyond::Below(1000.0), 1000.0));
        assert_eq!((first.lasts_us, first.promote_us), (30_000_000, 300_000_000));
        assert_eq!((first.again_us, second.again_us), (3_600_000_000, 600_000_000));
        assert_eq!(first.labels.len(), 2);
        assert_eq!((first.flush.as_deref(), second.promote.as_deref()), (Some("cpu"), None));
        for (more, why) in [
            ("flush = \"cpu\"", "`above` or `below`"),
            ("above = 1\nbelow = 2\nflush = \"cpu\"", "`above` or `below`"),
            ("above = 1", "`flush`, `promote`"),
            ("above = \"1\"\nflush = \"cpu\"", "`above` must be a number"),
            ("above = nan\nflush = \"cpu\"", "`above` must be a number"),
            ("above = 1\nback = 2\nflush = \"cpu\"", "`back`"),
            ("above = 1\nflush = \"CPU 7\"", "`flush` must be a source name"),
            ("above = 1\npromote = \"a(\"", "`promote` is not a regular expression"),
            ("above = 1\nflush = \"cpu\"\nfor = 30", "`for` must be a duration"),
            ("above = 1\nflush = \"cpu\"\nfor = \"2d\"", "a day at most"),
            ("above = 1\npromote = \"a\"\npromote_for = \"2d\"", "`promote_for`"),
            ("above = 1\nflush = \"cpu\"\nnodes = \"n[\"", "list of nodes"),
            ("above = 1\nflush = \"cpu\"\nlabels = { a = 1 }", "must be a string"),
            ("above = 1\nflush = \"cpu\"\nabowe = 1", "did you mean `above`?"),
        ] {
            let error = parse(&format!("{hot}{more}\n"), DAY).unwrap_err();
            assert!(error.contains(why) && error.contains("rule `hot`"), "{more}: {error}");
        }
        let twice = format!("{hot}above = 1\nflush = \"cpu\"\n").repeat(2);
        assert!(parse(&twice, DAY).unwrap_err().contains("named `hot`"));
    }
}
