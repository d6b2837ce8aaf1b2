//! Statements of the queries for Grafana's PostgreSQL datasource, with its macros and variables.
//!
//! They use the names of a database of Kwollect, and the tables `catalogue` and `gaps`. So they run on the server's
//! port for PostgreSQL, with each store, and on a database that has these names.

use crate::declaration::{Choice, Devices, Part, Query, Samples, Values};
use crate::units;
use model::{Kind, Unit};

/// A statement of a panel.
pub(crate) struct Statement {
    /// Its name within the panel.
    pub(crate) name: &'static str,
    pub(crate) text: String,
    /// Whether its rows are lines over time: columns `time`, `metric` or one per line, and values.
    pub(crate) is_series: bool,
}

/// Name of the statement with samples.
const RAW: &str = "samples";
/// Name of the statement with windows of five minutes.
pub(crate) const SUMMARY: &str = "summary";
/// Name of the statement with the unit of a panel's lines, in the column of the same name.
pub(crate) const UNIT: &str = "unit";

/// Whether the time range is longer than half an hour.
const IS_LONG: &str = "($__unixEpochTo() - $__unixEpochFrom() > 1800)";

/// The largest number of gaps in a list.
const GAPS_MAX: u32 = 1000;
/// The largest number of jobs in a list.
const JOBS_MAX: u32 = 1000;

/// The labels of a series.
const LABELS: &str = "labels - '_metric_scrape_time'";

/// Longest distance of samples, in seconds, between which power is a line.
const DISTANCE_MAX: u32 = 600;

/// The statements of a panel.
pub(crate) fn statements(query: Query) -> Vec<Statement> {
    let table = |text| vec![Statement { name: "rows", text, is_series: false }];
    match query {
        Query::Series(samples) => {
            let unit = unit_of_metric(samples.metrics);
            vec![
                Statement { name: RAW, text: series(samples, false), is_series: true },
                Statement { name: SUMMARY, text: series(samples, true), is_series: true },
                Statement { name: UNIT, text: unit, is_series: false },
            ]
        }
        Query::Sum(samples) => {
            vec![Statement { name: SUMMARY, text: sum(samples), is_series: true }]
        }
        Query::Latest(samples) => table(latest(samples)),
        Query::Energy(samples, parts) => table(energy(samples, parts)),
        Query::Gaps(devices) => table(gaps(devices)),
        Query::JobTimes => table(format!(
            "SELECT min(start_time) AS start,\n  \
               extract(epoch FROM max(coalesce(stop_time, now())) - min(start_time)) AS duration,\n  \
               count(DISTINCT node) AS nodes\n\
             FROM nodetime_by_job WHERE job_id = {}",
            job()
        )),
        Query::JobNodes => table(format!(
            "SELECT node, start_time AS start, stop_time AS stop,\n  \
               extract(epoch FROM coalesce(stop_time, now()) - start_time) AS duration\n\
             FROM nodetime_by_job WHERE job_id = {} ORDER BY 1, 2",
            job()
        )),
        Query::JobFigures => {
            table(format!("SELECT {JOB_FIGURES} FROM api.{JOB_FIGURES}(job_id => {})", job()))
        }
    }
}

/// The column with the figures of a job.
pub(crate) const JOB_FIGURES: &str = "get_job_metrics";

/// The statement with the values of a variable, in its first column.
pub(crate) fn values(values: Values) -> String {
    match values {
        Values::Devices => {
            format!("SELECT DISTINCT device_id FROM {} ORDER BY 1", available(Devices::All))
        }
        Values::DevicesWithPower => format!(
            "SELECT DISTINCT device_id FROM {} WHERE metric_id IN ({}) ORDER BY 1",
            available(Devices::All),
            quoted(Choice::Power)
        ),
        Values::Jobs => format!(
            "SELECT DISTINCT job_id FROM nodetime_by_job\n\
             WHERE start_time <= $__timeTo() AND (stop_time IS NULL OR stop_time >= $__timeFrom())\n\
             ORDER BY 1 DESC LIMIT {JOBS_MAX}"
        ),
        Values::Metrics(devices) => {
            format!("SELECT DISTINCT metric_id FROM {} ORDER BY 1", available(devices))
        }
        Values::PowerMetrics(devices) => format!(
            "SELECT DISTINCT metric_id FROM {}\n\
             WHERE metric_id IN (SELECT name FROM catalogue\n  \
               WHERE kind = '{}' AND unit = '{}' OR kind = '{}' AND unit = '{}')\n\
             ORDER BY 1",
            available(devices),
            Kind::Gauge.word(),
            Unit::Watts.word(),
            Kind::Counter.word(),
            Unit::Joules.word()
        ),
    }
}

/// The statement with the gaps of devices as marks in plots: `time`, `timeend`, `text`, `tags`.
pub(crate) fn gap_marks(devices: Devices) -> String {
    format!(
        "SELECT from_time AS time, to_time AS timeend, concat(device_id, ': ', cause) AS text, source AS tags\n{}",
        gaps_in_range(devices)
    )
}

/// Devices and metrics with samples at the end of the time range.
fn available(devices: Devices) -> String {
    let params = match devices {
        Devices::All => String::new(),
        Devices::Chosen => {
            let names = joined(Choice::Device, "\",\"");
            format!(", params => ('{{\"devices\": [\"' || {names} || '\"]}}')::jsonb")
        }
        Devices::OfJob => ", params => '{\"job_id\": \"${job}\"}'".to_owned(),
    };
    format!("api.available_metrics(at => to_timestamp($__unixEpochTo()){params})")
}

/// The values of a variable as one text. A name may have a quote, so they are texts of SQL first.
fn joined(choice: Choice, between: &str) -> String {
    format!("array_to_string(ARRAY[{}], '{between}')", quoted(choice))
}

/// The chosen job.
const fn job() -> &'static str {
    "'${job}'"
}

/// The values of a variable as texts of SQL.
fn quoted(choice: Choice) -> String {
    format!("${{{}:sqlstring}}", choice.name())
}

/// The condition on devices of a table without samples.
fn in_devices(devices: Devices) -> String {
    match devices {
        Devices::All => "true".to_owned(),
        Devices::Chosen => format!("device_id IN ({})", quoted(Choice::Device)),
        Devices::OfJob => {
            format!("device_id IN (SELECT node FROM nodetime_by_job WHERE job_id = {})", job())
        }
    }
}

/// Rows of samples from a time on, with a condition: an empty list of metrics means all of them to the function.
fn samples_from(samples: Samples, start: &str, more: &str) -> String {
    let devices = match samples.devices {
        Devices::OfJob => format!("job_id => {}", job()),
        Devices::Chosen | Devices::All => format!("devices => {}", joined(Choice::Device, ",")),
    };
    format!(
        "api.get_metrics({devices},\n  metrics => {},\n  \
           start_time => {start}, end_time => $__timeTo(){more})\n\
         WHERE metric_id IN ({})",
        joined(samples.metrics, ","),
        quoted(samples.metrics)
    )
}

fn series(samples: Samples, is_summary: bool) -> String {
    let (more, condition) = if is_summary {
        (", summary => true, as_rate => 'auto'", IS_LONG.to_owned())
    } else {
        (", as_rate => 'auto'", format!("NOT {IS_LONG}"))
    };
    format!(
        "SELECT timestamp AS time, concat_ws(' ', device_id, nullif(({LABELS})::text, '{{}}')) AS metric, value\n\
         FROM {} AND {condition}\nORDER BY 1",
        samples_from(samples, "$__timeFrom()", more)
    )
}

fn sum(samples: Samples) -> String {
    let rows = samples_from(samples, "$__timeFrom()", ", summary => true, as_rate => 'auto'");
    format!(
        "SELECT timestamp AS time, sum(value) AS sum\nFROM {rows}\nGROUP BY timestamp ORDER BY 1"
    )
}

fn latest(samples: Samples) -> String {
    let start = "(to_timestamp($__unixEpochTo()) - interval '5 minutes')::text";
    format!(
        "SELECT device_id AS device, metric_id AS metric, labels, value, unit, timestamp AS time\n\
         FROM (SELECT device_id, metric_id, labels, value, timestamp,\n    \
             row_number() OVER (PARTITION BY device_id, metric_id, labels ORDER BY timestamp DESC) AS place\n  \
           FROM {}) AS newest\n\
         LEFT JOIN catalogue ON name = metric_id WHERE place = 1 ORDER BY 1, 2, 3",
        samples_from(samples, start, "")
    )
}

/// The integral of power: a line between two samples, unless they are far from each other.
fn energy(samples: Samples, parts: &[Part]) -> String {
    let more = format!(", summary => {IS_LONG}, as_rate => 'auto'");
    let rows = samples_from(samples, "$__timeFrom()", &more);
    let names: Vec<&str> = parts
        .iter()
        .map(|part| match part {
            Part::Device => "device_id AS device, ",
            Part::Metric => "metric_id AS metric, ",
        })
        .collect();
    let group = match parts.len() {
        0 => String::new(),
        1 => "\nGROUP BY 1 ORDER BY 2 DESC".to_owned(),
        _ => "\nGROUP BY 1, 2 ORDER BY 3 DESC".to_owned(),
    };
    format!(
        "SELECT {}sum(joules) / 3600000 AS \"energy (kWh)\", sum(joules) AS \"energy (J)\",\n  \
           sum(joules / nullif(seconds, 0)) AS \"mean power\", max(seconds) AS covered\n\
         FROM (SELECT device_id, metric_id, labels, sum(seconds) AS seconds,\n    \
             sum(seconds * (value + value_before) / 2) AS joules\n  \
           FROM (SELECT device_id, metric_id, labels, value, value_before,\n      \
               CASE WHEN distance <= {DISTANCE_MAX} THEN distance END AS seconds\n    \
             FROM (SELECT device_id, metric_id, {LABELS} AS labels, value, lag(value) OVER w AS value_before,\n        \
                 extract(epoch FROM timestamp - lag(timestamp) OVER w) AS distance\n      \
               FROM {rows}\n      \
               WINDOW w AS (PARTITION BY device_id, metric_id, {LABELS} ORDER BY timestamp)) AS steps) AS parts\n  \
           GROUP BY device_id, metric_id, labels) AS series{group}",
        names.concat()
    )
}

fn gaps_in_range(devices: Devices) -> String {
    format!(
        "FROM gaps WHERE {} AND from_time <= $__timeTo() AND to_time >= $__timeFrom()\n\
         ORDER BY from_time DESC LIMIT {GAPS_MAX}",
        in_devices(devices)
    )
}

fn gaps(devices: Devices) -> String {
    format!(
        "SELECT device_id AS device, source, from_time AS \"from\", to_time AS \"to\",\n  \
           extract(epoch FROM to_time - from_time) AS length, cause, detail\n{}",
        gaps_in_range(devices)
    )
}

/// Grafana's unit of the chosen metric, by the catalogue.
fn unit_of_metric(metric: Choice) -> String {
    let units = |kind: Kind| {
        let branch =
            |unit: Unit| format!("WHEN '{}' THEN '{}'", unit.word(), units::of_metric(kind, unit));
        let branches: Vec<String> = Unit::ALL.into_iter().map(branch).collect();
        format!("CASE unit {} END", branches.join(" "))
    };
    format!(
        "SELECT coalesce(max(CASE kind WHEN '{}' THEN {}\n  ELSE {} END), '{}') AS {UNIT}\n\
         FROM catalogue WHERE name IN ({})",
        Kind::Counter.word(),
        units(Kind::Counter),
        units(Kind::Gauge),
        units::PLAIN,
        quoted(metric)
    )
}
