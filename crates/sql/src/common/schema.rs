//! Tables and their columns. `docs/reference/tables.md` describes their meaning.

use Column::{Number, Text, Time, Value};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use model::{FactColumn, FactKind, JobFacts};
use query::View;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

/// The tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Table {
    Metrics,
    MetricsByDevice,
    MetricsByJob,
    MetricsSummary,
    MetricsByDeviceSummary,
    MetricsByJobSummary,
    NodetimePerJob,
    NodetimeByJob,
    Jobs,
    Allocations,
    Gaps,
    CounterStarts,
    Marks,
    Devices,
    PromotedMetrics,
    Catalogue,
    /// The rows of a function of Kwollect.
    GetMetrics,
    AvailableMetrics,
    /// What a job used, by the site's own statements, which read `jobmetrics`.
    GetJobMetrics,
    JobMetrics,
}

/// Kind of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// A time.
    Time,
    /// A text. The labels are JSON text.
    Text,
    /// A whole number.
    Number,
    /// A number.
    Value,
}

impl Table {
    pub(crate) const ALL: [Self; 16] = [
        Self::Metrics,
        Self::MetricsByDevice,
        Self::MetricsByJob,
        Self::MetricsSummary,
        Self::MetricsByDeviceSummary,
        Self::MetricsByJobSummary,
        Self::NodetimePerJob,
        Self::NodetimeByJob,
        Self::Jobs,
        Self::Allocations,
        Self::Gaps,
        Self::CounterStarts,
        Self::Marks,
        Self::Devices,
        Self::PromotedMetrics,
        Self::Catalogue,
    ];

    /// Functions whose rows are a table.
    pub(crate) const FUNCTIONS: [Self; 3] =
        [Self::GetMetrics, Self::AvailableMetrics, Self::GetJobMetrics];

    /// All tables and functions, in a fixed order.
    pub(crate) fn every() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().chain(Self::FUNCTIONS).chain([Self::JobMetrics])
    }

    /// Names of a function's parameters, in their order.
    pub(crate) const fn parameters(self) -> &'static [&'static str] {
        match self {
            Self::GetMetrics => GET_METRICS_PARAMETERS,
            Self::AvailableMetrics => &["at", "params"],
            Self::GetJobMetrics => &["job_id", "cluster"],
            _ => &[],
        }
    }

    /// Name of the table.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Metrics => "metrics",
            Self::MetricsByDevice => "metrics_by_device",
            Self::MetricsByJob => "metrics_by_job",
            Self::MetricsSummary => "metrics_summary",
            Self::MetricsByDeviceSummary => "metrics_by_device_summary",
            Self::MetricsByJobSummary => "metrics_by_job_summary",
            Self::NodetimePerJob => "nodetime_per_job",
            Self::NodetimeByJob => "nodetime_by_job",
            Self::Jobs => "jobs",
            Self::Allocations => "allocations",
            Self::Gaps => "gaps",
            Self::CounterStarts => "counter_starts",
            Self::Marks => "marks",
            Self::Devices => "devices",
            Self::PromotedMetrics => "promoted_metrics",
            Self::Catalogue => "catalogue",
            Self::GetMetrics => "get_metrics",
            Self::AvailableMetrics => "available_metrics",
            Self::GetJobMetrics => "get_job_metrics",
            Self::JobMetrics => "jobmetrics",
        }
    }

    /// View of a table of samples or of 5-minute summaries. The flag is set for summaries.
    pub(crate) const fn view(self) -> Option<(View, bool)> {
        match self {
            Self::Metrics => Some((View::Metrics, false)),
            Self::MetricsByDevice => Some((View::ByDevice, false)),
            Self::MetricsByJob => Some((View::ByJob, false)),
            Self::MetricsSummary => Some((View::Metrics, true)),
            Self::MetricsByDeviceSummary => Some((View::ByDevice, true)),
            Self::MetricsByJobSummary => Some((View::ByJob, true)),
            _ => None,
        }
    }

    /// Columns with name, kind and nullability.
    pub(crate) fn columns(self) -> Columns {
        match self {
            Self::Metrics
            | Self::MetricsByDevice
            | Self::MetricsSummary
            | Self::MetricsByDeviceSummary => METRICS,
            Self::MetricsByJob | Self::MetricsByJobSummary => METRICS_BY_JOB,
            Self::NodetimePerJob | Self::NodetimeByJob => NODETIME,
            Self::Jobs => &JOBS,
            Self::Allocations => ALLOCATIONS,
            Self::Gaps => GAPS,
            Self::CounterStarts => COUNTER_STARTS,
            Self::Marks => MARKS,
            Self::Devices => DEVICES,
            Self::PromotedMetrics => PROMOTED_METRICS,
            Self::Catalogue => CATALOGUE,
            Self::GetMetrics | Self::JobMetrics => GET_METRICS,
            Self::AvailableMetrics => AVAILABLE_METRICS,
            Self::GetJobMetrics => GET_JOB_METRICS,
        }
    }

    /// Columns as the engine's schema, with times in a zone.
    pub(crate) fn schema(self, zone: &Arc<str>) -> SchemaRef {
        let field = |(name, column, nullable): &(&str, Column, bool)| {
            let data_type = match column {
                Time => DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::clone(zone))),
                Text => DataType::Utf8View,
                Number => DataType::Int64,
                Value => DataType::Float64,
            };
            match *name {
                "labels" | "get_job_metrics" | "warnings" => json_field(name, data_type, *nullable),
                _ => Field::new(*name, data_type, *nullable),
            }
        };
        Arc::new(Schema::new(self.columns().iter().map(field).collect::<Vec<_>>()))
    }
}

/// Metadata of a field whose texts are JSON.
const JSON_METADATA: &str = "json";

/// A field whose texts are JSON.
pub(crate) fn json_field(name: &str, kind: DataType, nullable: bool) -> Field {
    let metadata = HashMap::from([(JSON_METADATA.to_owned(), String::new())]);
    Field::new(name, kind, nullable).with_metadata(metadata)
}

/// Whether the texts of a field are JSON.
pub fn is_json(field: &Field) -> bool {
    field.metadata().contains_key(JSON_METADATA)
}

/// Parameters of Kwollect's `get_metrics` in its order, and our `cluster`.
const GET_METRICS_PARAMETERS: &[&str] = &[
    "job_id",
    "nodes",
    "devices",
    "metrics",
    "start_time",
    "end_time",
    "summary",
    "as_rate",
    "cluster",
];

/// Name, kind and nullability of columns.
type Columns = &'static [(&'static str, Column, bool)];

const METRICS: Columns = &[
    ("timestamp", Time, false),
    ("device_id", Text, false),
    ("metric_id", Text, false),
    ("value", Value, true),
    ("labels", Text, true),
    ("job_id", Number, true),
    ("cluster", Text, true),
];

const GET_METRICS: Columns = &[
    ("timestamp", Time, false),
    ("device_id", Text, false),
    ("metric_id", Text, false),
    ("value", Value, true),
    ("labels", Text, true),
];

const AVAILABLE_METRICS: Columns = &[("device_id", Text, false), ("metric_id", Text, false)];

const GET_JOB_METRICS: Columns = &[("get_job_metrics", Text, false), ("warnings", Text, true)];

const METRICS_BY_JOB: Columns = &[
    ("timestamp", Time, false),
    ("device_id", Text, false),
    ("metric_id", Text, false),
    ("value", Value, true),
    ("labels", Text, true),
    ("start_time", Time, true),
    ("stop_time", Time, true),
    ("job_id", Number, false),
    ("cluster", Text, false),
];

const NODETIME: Columns = &[
    ("job_id", Number, false),
    ("start_time", Time, false),
    ("stop_time", Time, true),
    ("node", Text, false),
    ("cluster", Text, false),
];

/// The table of jobs: columns of its own, and those of the facts in their order.
static JOBS: LazyLock<Vec<(&str, Column, bool)>> = LazyLock::new(|| {
    let mut columns =
        vec![("job_id", Number, false), ("cluster", Text, false), ("display_id", Text, false)];
    for FactColumn { name, kind } in JobFacts::columns() {
        let column = match kind {
            FactKind::Text => Text,
            FactKind::Integer => Number,
            FactKind::Real => Value,
        };
        match &**name {
            "user" => columns.push(("user_name", column, true)),
            "uid" => columns.push(("user_id", column, true)),
            name => columns.push((name, column, true)),
        }
        match &**name {
            "name" => columns.extend([
                ("state", Text, false),
                ("start_time", Time, true),
                ("stop_time", Time, true),
            ]),
            "state_word" => columns.push(("submit_time", Time, true)),
            _ => {}
        }
    }
    columns.extend([
        ("end_cause", Text, true),
        ("end_detail", Text, true),
        ("oom_kills", Number, true),
    ]);
    columns
});

const ALLOCATIONS: Columns = &[
    ("job_id", Number, false),
    ("job_start_time", Time, false),
    ("device_id", Text, false),
    ("start_time", Time, false),
    ("stop_time", Time, true),
    ("cluster", Text, false),
    ("cpus", Number, true),
    ("gpus", Number, true),
    ("memory_bytes", Number, true),
];

const GAPS: Columns = &[
    ("origin", Text, false),
    ("device_id", Text, false),
    ("source", Text, false),
    ("from_time", Time, false),
    ("to_time", Time, false),
    ("cause", Text, false),
    ("detail", Text, false),
];

const COUNTER_STARTS: Columns = &[
    ("timestamp", Time, false),
    ("device_id", Text, false),
    ("metric_id", Text, false),
    ("labels", Text, false),
    ("start_time", Time, false),
    ("job_id", Number, true),
    ("cluster", Text, true),
];

const MARKS: Columns = &[
    ("timestamp", Time, false),
    ("kind", Text, false),
    ("id", Number, false),
    ("nodes", Text, false),
    ("text", Text, false),
    ("actor", Text, true),
    ("job_id", Number, true),
    ("cluster", Text, true),
];

const DEVICES: Columns = &[
    ("device_id", Text, false),
    ("poller", Text, true),
    ("protocol", Text, true),
    ("address", Text, true),
    ("period_seconds", Value, true),
    ("state", Text, false),
    ("reason", Text, true),
    ("last_good_time", Time, true),
    ("aliases", Text, false),
];

const PROMOTED_METRICS: Columns = &[
    ("device_id", Text, false),
    ("metric_id", Text, false),
    ("id", Number, false),
    ("origin", Text, false),
    ("actor", Text, false),
    ("until_time", Time, true),
    ("job_id", Number, true),
    ("cluster", Text, true),
];

const CATALOGUE: Columns =
    &[("name", Text, false), ("unit", Text, false), ("kind", Text, false), ("help", Text, false)];

#[cfg(test)]
mod tests {
    use super::*;

    /// The manual names every table with all columns in order.
    #[test]
    fn the_manual_describes_every_column() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/tables.md");
        let manual = std::fs::read_to_string(path).unwrap();
        for table in Table::ALL {
            let names: Vec<String> =
                table.columns().iter().map(|column| format!("| `{}` |", column.0)).collect();
            let (_, section) = manual
                .split_once(&format!("## `{}`", table.name()))
                .or_else(|| manual.split_once(&format!(", `{}`\n", table.name())))
                .unwrap_or_else(|| panic!("{} is not in the manual", table.name()));
            let section = section.split("\n## ").next().unwrap();
            let mut rest = section;
            for name in names {
                let found = rest.split_once(&name);
                rest = found.unwrap_or_else(|| panic!("{}: no {name} in order", table.name())).1;
            }
        }
    }
}
