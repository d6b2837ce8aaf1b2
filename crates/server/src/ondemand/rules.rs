//! The rules of promotions, from the file that `promotions.rules` names:
//!
//! ```toml
//! [[rule]]
//! name = "power"
//! metric = "ipmi_.*"
//! nodes = "gpu-*"
//! queues = ["deep"]
//! ```

use super::expression;
use jobs::Rule;
use model::{ClusterId, NodeList};
use std::path::Path;
use toml::de::{DeTable, DeValue};

const BYTES_MAX: u64 = 1 << 20;
const RULES_MAX: usize = 1000;
/// What a rule may say.
const KEYS: [&str; 9] =
    ["name", "metric", "nodes", "clusters", "users", "accounts", "projects", "queues", "jobs"];

/// Reads the rules; else why the file has none.
pub(crate) fn read(path: &Path) -> Result<Vec<Rule>, String> {
    let about = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if about.len() > BYTES_MAX {
        return Err(format!("longer than {BYTES_MAX} bytes"));
    }
    parse(&std::fs::read_to_string(path).map_err(|error| error.to_string())?)
}

fn parse(text: &str) -> Result<Vec<Rule>, String> {
    let table = DeTable::parse(text).map_err(|error| error.to_string().trim().to_owned())?;
    let mut rules = Vec::new();
    for (key, value) in table.get_ref() {
        let list = value.get_ref().as_array().filter(|_| key.get_ref() == "rule");
        let list = list.ok_or_else(|| {
            format!("`{}` is unknown; a rule begins with [[rule]]", key.get_ref())
        })?;
        if list.len() > RULES_MAX {
            return Err(format!("more than {RULES_MAX} rules"));
        }
        for rule in list.iter() {
            let rule = rule.get_ref().as_table().ok_or("a rule begins with [[rule]]")?;
            rules.push(read_rule(rule)?);
        }
    }
    Ok(rules)
}

fn read_rule(table: &DeTable<'_>) -> Result<Rule, String> {
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
            other => {
                let meant =
                    config::nearest(other, KEYS).map(|near| format!("; is `{near}` meant?"));
                let meant = meant.unwrap_or_default();
                return Err(format!("a rule has no `{other}`{meant}"));
            }
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
            "rule `{name}`: it says neither on which `nodes` nor for which jobs; `jobs = true`: for all"
        ));
    }
    Ok(rule)
}

fn text<'a>(key: &str, value: &'a DeValue<'_>) -> Result<&'a str, String> {
    value.as_str().ok_or_else(|| format!("`{key}` is a text"))
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
        let rules = parse(text).unwrap();
        assert_eq!(rules.len(), 3);
        assert!(!rules[0].is_of_jobs() && rules[1].is_of_jobs() && rules[2].is_of_jobs());
        assert_eq!(parse("").unwrap(), []);
        for (bad, why) in [
            ("[[rule]]\nname = \"a\"\n", "metric"),
            ("[[rule]]\nname = \"a\"\nmetric = \"(\"\nnodes = \"n1\"\n", "at byte 1"),
            ("[[rule]]\nname = \"a\"\nmetric = \"x\"\nnodes = \"n[\"\n", "list of nodes"),
            ("[[rule]]\nname = \"a\"\nmetric = \"x\"\n", "`jobs = true`"),
            ("[[rule]]\nname = \"a\"\nmetric = \"x\"\nqueue = \"q\"\n", "queue"),
        ] {
            let error = parse(bad).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
