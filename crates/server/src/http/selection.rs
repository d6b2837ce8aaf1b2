//! Parses the series selection and the time range of `/api/v1` queries.

use crate::common::http_error::HttpError;
use crate::http::params::Params;
use jobs::JobName;
use model::{ClusterId, DeviceId, Labels, Metric, Timestamp};
use query::{QueryContext, QueryEngine, QueryError, parse_time};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use storage::{JobSelector, LabelMatch, Selector};

/// Maximum number of names in a list, and of labels in a selection.
const NAMES_MAX: usize = 10_000;

/// A parsed selection whose job is not resolved yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    select: Selector,
    job: Option<JobName>,
}

/// A time range; both ends are inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
}

/// Parses `metric`, a list of full names.
pub(crate) fn metrics(params: &Params) -> Result<Option<BTreeSet<Arc<str>>>, HttpError> {
    let Some(metrics) = params.text("metric")? else { return Ok(None) };
    let metric = |name| {
        let why = |error| format!("{error}; write full names, as listed by /api/v1/catalogue");
        Metric::check_name(name).map_err(|error| wrong(why(error)))?;
        Ok::<_, HttpError>(Arc::from(name))
    };
    Ok(Some(list(&metrics)?.map(metric).collect::<Result<_, _>>()?))
}

impl Selection {
    /// Parses `device`, `metric` (comma-separated lists), `job` (`[CLUSTER:]ID`, or `none` for node
    /// samples), `cluster`, and `labels` (a JSON object; null means without that label).
    pub(crate) fn of(params: &Params) -> Result<Self, HttpError> {
        let mut selection = Self::default();
        if let Some(devices) = params.text("device")? {
            selection.select.devices = Some(listed_devices(&devices)?);
        }
        selection.select.metrics = metrics(params)?;
        match params.text("job")?.as_deref() {
            None => {
                if params.text("cluster")?.is_some() {
                    return Err(HttpError::malformed("`cluster` needs `job`"));
                }
            }
            Some("none") => {
                selection.select.job = JobSelector::None;
                params
                    .text("cluster")?
                    .map(|name| ClusterId::new(&name))
                    .transpose()
                    .map_err(wrong)?;
            }
            Some(name) => selection.job = Some(job(name, params)?),
        }
        if let Some(labels) = params.json("labels")? {
            selection.select.labels = label_matches(labels)?;
        }
        Ok(selection)
    }

    /// Resolves the job if it is visible to this caller, and returns the selection.
    pub(crate) fn resolve(
        self,
        engine: &QueryEngine,
        context: &QueryContext,
    ) -> Result<Selector, QueryError> {
        let mut select = self.select;
        if let Some(name) = &self.job {
            select.job = JobSelector::Is(engine.job_seen(name, context)?);
        }
        Ok(select)
    }
}

/// Parses a job name; `cluster` supplies the cluster if the name has none.
pub(crate) fn job(name: &str, params: &Params) -> Result<JobName, HttpError> {
    let mut name: JobName = name.parse().map_err(wrong)?;
    if let Some(cluster) = params.text("cluster")? {
        let cluster = ClusterId::new(&cluster).map_err(wrong)?;
        if name.cluster.as_ref().is_some_and(|named| *named != cluster) {
            return Err(HttpError::malformed("`job` and `cluster` name different clusters"));
        }
        name.cluster = Some(cluster);
    }
    Ok(name)
}

fn label_matches(labels: Value) -> Result<Vec<LabelMatch>, HttpError> {
    let Value::Object(labels) = labels else {
        return Err(HttpError::malformed("`labels` must be an object such as {\"cpu\": \"0\"}"));
    };
    if labels.len() > NAMES_MAX {
        return Err(HttpError::malformed(format!("more than {NAMES_MAX} labels")));
    }
    let one = |(key, value): (String, Value)| {
        // Reject keys and values that no series can have, instead of searching for them.
        Labels::new([(&*key, value.as_str().unwrap_or_default())]).map_err(wrong)?;
        match value {
            Value::String(value) => Ok(LabelMatch::Is { key, value }),
            Value::Null => Ok(LabelMatch::Absent(key)),
            _ => Err(HttpError::malformed(format!(
                "the label `{key}` must be a string, or null for \
                                                 none"
            ))),
        }
    };
    labels.into_iter().map(one).collect()
}

/// Splits comma-separated names.
pub(crate) fn list(text: &str) -> Result<impl Iterator<Item = &str>, HttpError> {
    let names = || text.split(',').map(str::trim).filter(|name| !name.is_empty());
    if names().nth(NAMES_MAX).is_some() {
        return Err(HttpError::malformed(format!("more than {NAMES_MAX} names")));
    }
    Ok(names())
}

/// Devices of a list, as lists show their names. A name in double quotes may have commas and blanks; a quote within it is
/// written twice.
pub(crate) fn listed_devices(text: &str) -> Result<BTreeSet<DeviceId>, HttpError> {
    let mut devices = BTreeSet::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (name, after) = match quoted(rest) {
            Some((name, after)) => (name, after),
            None => {
                let (name, after) = rest.split_once(',').unwrap_or((rest, ""));
                (name.trim().to_owned(), after)
            }
        };
        rest = after.trim_start();
        if !name.is_empty() {
            devices.insert(DeviceId::listed(&name).map_err(wrong)?);
        }
        if devices.len() > NAMES_MAX {
            return Err(HttpError::malformed(format!("more than {NAMES_MAX} names")));
        }
    }
    Ok(devices)
}

/// A name in double quotes up to the next comma or the end, with the text after it. `None`: the quotes are of the name.
fn quoted(text: &str) -> Option<(String, &str)> {
    let (mut name, mut rest) = (String::new(), text.strip_prefix('"')?);
    loop {
        let (part, after) = rest.split_once('"')?;
        name.push_str(part);
        match after.strip_prefix('"') {
            Some(more) => {
                name.push('"');
                rest = more;
            }
            None => {
                let after = after.trim_start();
                let after = if after.is_empty() { "" } else { after.strip_prefix(',')? };
                return Some((name, after));
            }
        }
    }
}

pub(crate) fn wrong(error: impl std::fmt::Display) -> HttpError {
    HttpError::malformed(error.to_string())
}

impl Span {
    /// Parses `start` and `end`, both inclusive. The default end is now; the default start is `default_us`
    /// before the end.
    pub(crate) fn of(
        params: &Params,
        engine: &QueryEngine,
        now: Timestamp,
        default_us: i64,
    ) -> Result<Self, HttpError> {
        let time = |name| {
            let text = params.text(name)?;
            let parse = |text: String| parse_time(&text, now, &engine.settings().zone);
            Ok::<_, HttpError>(text.map(parse).transpose()?)
        };
        let to = time("end")?.unwrap_or(now);
        let from = time("start")?.unwrap_or(to.plus(-default_us));
        if from > to {
            return Err(HttpError::malformed("`start` is after `end`"));
        }
        Ok(Self { from, to })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection(query: &str) -> Result<Selection, HttpError> {
        Selection::of(&Params::of_query(Some(query)).unwrap())
    }

    #[test]
    fn selections() {
        let all = selection("").unwrap();
        assert_eq!((all.select, all.job), (Selector::default(), None));
        let some = selection(
            "device=n1,%20n2,&metric=load_1m&job=none&labels=%7B%22cpu%22:%220%22,%22x%22:null%7D",
        );
        let select = some.unwrap().select;
        assert_eq!(select.devices.unwrap().len(), 2);
        assert_eq!(select.job, JobSelector::None);
        let cpu = LabelMatch::Is { key: "cpu".to_owned(), value: "0".to_owned() };
        assert_eq!(select.labels, [cpu, LabelMatch::Absent("x".to_owned())]);
        for query in ["job=slurm:7", "job=7&cluster=slurm", "job=slurm:7&cluster=slurm"] {
            let job = selection(query).unwrap().job.unwrap();
            assert_eq!(job.to_string(), "slurm:7");
        }
    }

    #[test]
    fn devices_are_named_as_listed() {
        let names = |text: &str| -> Vec<String> {
            listed_devices(text).unwrap().iter().map(ToString::to_string).collect()
        };
        assert_eq!(names("n1, n2,,"), ["n1", "n2"]);
        assert_eq!(
            names("a/b,-x,\"a,b\" , \"say \"\"hi\"\"\""),
            ["-x", "a,b", "a/b", "say \"hi\""]
        );
        assert_eq!(names("\"a,b\"c"), ["\"a", "b\"c"]);
        assert!(listed_devices(&"x".repeat(20_000)).is_err());
    }

    #[test]
    fn an_invalid_selection_is_rejected() {
        for query in [
            "job=x",
            "cluster=slurm",
            "job=slurm:7&cluster=oar",
            "job=7&cluster=a%20b",
            "job=none&cluster=a%20b",
            "device=a%00b",
            "labels=1",
            "labels=%7B%22cpu%22:0%7D",
            "labels=%7B",
            "labels=%7B%22%22:null%7D",
            "metric=load*",
        ] {
            assert_eq!(selection(query).unwrap_err().status, 400, "{query}");
        }
    }
}
