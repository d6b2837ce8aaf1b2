//! The views and functions that people use, in the order of their dependencies.

use crate::found::{Found, Made, Relation};
use crate::sql::{literal, name};

/// The statements that create the tables of the schema jobmeter. They change nothing that exists.
pub const TABLES: &str = include_str!("../sql/tables.sql");
/// The partition of all rows that have none of their own.
pub(crate) const DEFAULT_PARTITION: &str =
    "CREATE TABLE jobmeter.metrics_default PARTITION OF public.metrics DEFAULT";
/// What the views and functions use, and what reads no samples.
pub(crate) const HELPERS: &str = include_str!("../sql/helpers.sql");
/// Upgrades the rollups of the first version of the schema.
pub(crate) const PARTITION_ROLLUPS: &str = include_str!("../sql/partition_rollups.sql");
/// Views that the others use.
pub(crate) const WINDOWS: &str = include_str!("../sql/windows.sql");
const NODETIME: &str = include_str!("../sql/nodetime.sql");
const NODETIME_OF_SERVER: &str = include_str!("../sql/nodetime_of_server.sql");
const NODETIME_OF_SITE: &str = include_str!("../sql/nodetime_of_site.sql");
const SUMMARY: &str = include_str!("../sql/summary.sql");
const BY_DEVICE: &str = include_str!("../sql/by_device.sql");
const BY_DEVICE_SUMMARY: &str = include_str!("../sql/by_device_summary.sql");
const BY_JOB: &str = include_str!("../sql/by_job.sql");
const METRICS: &str = include_str!("../sql/metrics.sql");
const CATALOGUE: &str = include_str!("../sql/catalogue.sql");
const GAPS: &str = include_str!("../sql/gaps.sql");
const FUNCTIONS: &str = include_str!("../sql/functions.sql");
const PROMOTIONS: &str = include_str!("../sql/promotions.sql");

/// The statements that create `metrics`, with partitions by time or as a single table.
pub(crate) fn metrics(has_partitions: bool) -> String {
    let by = if has_partitions { " PARTITION BY RANGE (timestamp)" } else { "" };
    let default = if has_partitions { DEFAULT_PARTITION } else { "" };
    format!("{}{default}", METRICS.replace("{partitions}", by))
}

/// The columns of Kwollect's relations. Those that jobmeter adds come after them.
const SAMPLE: [&str; 5] = ["timestamp", "device_id", "metric_id", "value", "labels"];
const JOB: [&str; 3] = ["start_time", "stop_time", "job_id"];
const NODETIME_COLUMNS: [&str; 4] = ["job_id", "start_time", "stop_time", "node"];

/// The windows of a continuous aggregate, and those with an alias.
const AGGREGATE: (&str, &str) = (
    "(SELECT *, jobmeter.micros(timestamp) AS at_us FROM metrics_summary) AS windows",
    "(SELECT timestamp, labels->>'_device_alias' AS alias, device_id, metric_id, value, labels, \
     jobmeter.micros(timestamp) AS at_us FROM metrics_summary WHERE labels ? '_device_alias') AS aliased",
);

/// What an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A view of the schema public.
    View,
    /// A function of the schema api, by its signature.
    Function,
}

impl Kind {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::View => "view",
            Self::Function => "function",
        }
    }
}

/// A view or function that jobmeter makes.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) kind: Kind,
    /// The view's name, or the function's signature, both with the schema.
    pub(crate) name: &'static str,
    /// The statement that makes or replaces a view, or makes a function.
    text: String,
    /// Kwollect's columns of a view.
    pub(crate) columns: Vec<&'static str>,
    /// Whether it has more columns than Kwollect's.
    pub(crate) is_wider: bool,
}

impl Object {
    /// The statement that makes it. A view of the same columns may exist.
    pub(crate) fn create(&self) -> String {
        self.text.clone()
    }

    /// Whether another object has this name, with whatever parameters.
    pub(crate) fn is_named(&self, other: &str) -> bool {
        self.name.split('(').next() == other.split('(').next()
    }

    /// Whether it is a function that takes the place of functions with this signature's name.
    pub(crate) fn replaces(&self, signature: &str) -> bool {
        self.kind == Kind::Function && self.is_named(signature)
    }

    /// The name without its schema and parameters.
    pub(crate) fn bare_name(&self) -> &'static str {
        let name = self.name.split_once('.').map_or(self.name, |(_, name)| name);
        name.split_once('(').map_or(name, |(name, _)| name)
    }
}

fn view(
    name: &'static str,
    text: String,
    columns: impl IntoIterator<Item = &'static str>,
) -> Object {
    Object { kind: Kind::View, name, text, columns: columns.into_iter().collect(), is_wider: false }
}

/// The objects for a database as it was found.
pub(crate) fn objects(found: &Found) -> Vec<Object> {
    let mut all = Vec::new();
    if !found.is_of_site("nodetime_by_job") {
        let text = match found.is_of_site("nodetime_per_job") {
            true => {
                "CREATE OR REPLACE VIEW nodetime_by_job AS SELECT job_id, start_time, stop_time, node FROM nodetime_per_job;\n"
            }
            false => NODETIME,
        };
        all.push(view("public.nodetime_by_job", text.to_owned(), NODETIME_COLUMNS));
    }
    if !found.is_of_site("nodetime_per_job") {
        let text = "CREATE OR REPLACE VIEW nodetime_per_job AS SELECT * FROM nodetime_by_job;\n";
        all.push(view("public.nodetime_per_job", text.to_owned(), NODETIME_COLUMNS));
    }
    let is_aggregate = found.has_aggregate();
    if !is_aggregate {
        all.push(view("public.metrics_summary", SUMMARY.to_owned(), SAMPLE));
    }
    let (windows, aliased) = match is_aggregate {
        true => AGGREGATE,
        false => ("jobmeter.node_windows", "jobmeter.alias_windows"),
    };
    let by_device_summary =
        BY_DEVICE_SUMMARY.replace("{windows}", windows).replace("{aliased}", aliased);
    all.push(view("public.catalogue", CATALOGUE.to_owned(), ["name", "unit", "kind", "help"]));
    let of_gaps = ["device_id", "source", "from_time", "to_time", "cause", "detail"];
    all.push(view("public.gaps", GAPS.to_owned(), of_gaps));
    // The views by job read which node a job had.
    let by_device = format!("{}{BY_DEVICE}", nodetime(found));
    for (suffix, margin, by_device, by_job, text) in [
        ("", "10 seconds", "public.metrics_by_device", "public.metrics_by_job", by_device),
        (
            "_summary",
            "5 minutes",
            "public.metrics_by_device_summary",
            "public.metrics_by_job_summary",
            by_device_summary,
        ),
    ] {
        all.push(view(by_device, text, SAMPLE));
        let text = BY_JOB.replace("{suffix}", suffix).replace("{margin}", margin);
        let by_job = view(by_job, text, SAMPLE.into_iter().chain(JOB));
        all.push(Object { is_wider: true, ..by_job });
    }
    functions(found, &mut all);
    all
}

fn functions(found: &Found, all: &mut Vec<Object>) {
    let function = |name, text: &str| Object {
        kind: Kind::Function,
        name,
        text: text.to_owned(),
        columns: Vec::new(),
        is_wider: false,
    };
    let names = [
        "api.get_metrics(integer, text, text, text, text, text, boolean, jobmeter.rate)",
        "api.available_metrics(timestamp with time zone, jsonb)",
        "api.insert_metrics(text, text, timestamp with time zone, double precision, jsonb)",
        "api.get_job_metrics(integer)",
    ];
    // The file has the functions in this order.
    let texts = FUNCTIONS.split("\nCREATE FUNCTION").skip(1);
    all.extend(
        names
            .into_iter()
            .zip(texts)
            .map(|(name, text)| function(name, &format!("CREATE FUNCTION{text}"))),
    );
    if !found.has_function("api.update_promoted_metrics()")
        || found.is_made("api.update_promoted_metrics()")
    {
        all.push(function("api.update_promoted_metrics()", PROMOTIONS));
    }
}

/// The view by which the others read which node a job had.
fn nodetime(found: &Found) -> &'static str {
    if found.has_own_nodetime() { NODETIME_OF_SITE } else { NODETIME_OF_SERVER }
}

/// The statement that records the version.
pub(crate) fn recorded_version() -> String {
    format!(
        "INSERT INTO jobmeter.setup (version) VALUES ({0}) ON CONFLICT (is_one) DO UPDATE SET version = {0};\n",
        crate::VERSION
    )
}

/// Records an object that jobmeter makes, or what it replaces.
pub(crate) fn record(kind: &str, object: &str, restore: Option<&str>) -> String {
    let restore = restore.map_or("NULL".to_owned(), literal);
    format!(
        "INSERT INTO jobmeter.objects (kind, name, restore) VALUES ({}, {}, {restore}) ON CONFLICT (kind, name) DO NOTHING",
        literal(kind),
        literal(object)
    )
}

/// Adds what a setup makes to what an interrupted one made.
pub(crate) fn add_made(made: &mut Vec<Made>, kind: &str, what: &str, undo: Option<String>) {
    let known = made.iter_mut().find(|(of, name, _)| (of.as_str(), name.as_str()) == (kind, what));
    match (known, undo) {
        (Some((.., Some(before))), Some(undo)) if *before != undo => {
            *before = format!("{before}; {undo}");
        }
        (Some(_), _) => {}
        (None, undo) => made.push((kind.to_owned(), what.to_owned(), undo)),
    }
}

/// The statements that bring a view back, also without the right that `grants` gives.
pub(crate) fn restored(object: &Object, before: &Relation, reader: &str) -> String {
    let Relation { definition, grants, .. } = before;
    if object.is_wider {
        return format!("DROP VIEW {}; {definition} {grants}", object.name);
    }
    let ends = [format!(" TO {reader}"), format!(" TO {}", name(reader))];
    let is_given = grants.split(';').any(|one| {
        one.trim_start().starts_with("GRANT SELECT ") && ends.iter().any(|end| one.ends_with(end))
    });
    if is_given {
        return format!("{definition} {grants}");
    }
    format!("{definition} REVOKE SELECT ON {} FROM {}; {grants}", object.name, name(reader))
}
