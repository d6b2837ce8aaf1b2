//! The parameters of operations: those of query strings and bodies, and those of paths.

use crate::param::{Form, Param, param};

/// Largest number of jobs in one list.
pub const JOBS_MAX: u32 = 100_000;
/// Largest number of devices in one list.
pub const DEVICES_MAX: u32 = 10_000;
/// Largest number of audit entries in one list.
pub const AUDIT_LINES_MAX: u32 = 10_000;

pub(crate) const DEVICES: Param = param("device", Form::Devices, "Only of these devices.");
pub(crate) const METRICS: Param = param("metric", Form::Metrics, "Only of these metrics.");
pub(crate) const JOB: Param = param(
    "job",
    Form::JobOrNone,
    "Only series attributed to this job, `[CLUSTER:]ID`; `none`: only node samples.",
);
pub(crate) const CLUSTER: Param =
    param("cluster", Form::Cluster, "The cluster of the job, where its name gives none.");
pub(crate) const RUN: Param = param(
    "start",
    Form::Time,
    "For a reused job ID: the latest run that had started by then. Whole seconds or milliseconds include runs that \
         started within them.",
);
pub(crate) const LABELS: Param =
    param("labels", Form::Labels, "Only with these labels; null: only without that label.");
pub(crate) const START: Param = param(
    "start",
    Form::Time,
    "Start, inclusive: seconds since 1970, RFC 3339, `14:49`, `yesterday`, or `1h30m` before now.",
);
pub(crate) const END: Param = param("end", Form::Time, "End, inclusive. Default: now.");
pub(crate) const SERIES_LIMIT: Param = param(
    "limit",
    Form::Count,
    "Return at most this many series, the first ones. Without it, too many series are an error.",
);
pub(crate) const STEP: Param = param(
    "step",
    Form::Step,
    "Seconds between two points, or a duration such as `30s`; at most a year. 0, the default: every sample.",
);
pub(crate) const TOTALS: Param = param(
    "totals",
    Form::Truth,
    "With each series its totals over exactly the requested range: integral, mean, minimum, maximum, increase.",
);
/// Metrics of a report.
pub(crate) const NODE_METRICS: Param = param(
    "metric",
    Form::Metrics,
    "Totals of these metrics of the job's devices, during its allocations: `node_metrics`.",
);
pub(crate) const RATE: Param = param("rate", Form::Truth, "Counters as rates per second.");

/// Parameters of rows in PostgREST's form.
pub(crate) const ROWS: &[Param] = &[
    param(
        "select",
        Form::Text,
        "Columns of the result: `[NAME:]COLUMN[->>LABEL][::TYPE]`, with commas between them. Default: all.",
    ),
    param(
        "order",
        Form::Text,
        "Columns that determine the order: `COLUMN[.asc|.desc][.nullsfirst|.nullslast]`, with commas between them.",
    ),
    param("limit", Form::Rows, "Largest number of rows."),
    param("offset", Form::Rows, "Number of rows to omit at the beginning."),
    param("and", Form::Text, "Conditions that all hold: `(COLUMN.OPERATOR.VALUE,or(…),…)`."),
    param("or", Form::Text, "Conditions of which at least one holds."),
    param(
        "conditions",
        Form::Conditions,
        "Conditions that all hold: a parameter `COLUMN=OPERATOR.VALUE` for each, such as `value=gt.5`.",
    ),
];

pub(crate) const JOBS: &[Param] = &[
    param("state", Form::JobState, "Only jobs in this state."),
    param("cluster", Form::Cluster, "Only jobs of this cluster."),
    param("part_of", Form::Number, "Only parts of the array, or heterogeneous job, of this ID."),
    param("user", Form::Text, "Only jobs of this user: login name or user ID."),
    param("account", Form::Text, "Only jobs on this account: `NAME` or `CLUSTER:NAME`."),
    param("project", Form::Text, "Only jobs of this project."),
    param("queue", Form::Text, "Only jobs of this queue or partition."),
    param("name", Form::Text, "Only jobs of this name."),
    param("device", Form::ListedDevice, "Only jobs that have or had this device."),
    param("start", Form::Time, "Only jobs that ran at or after this time."),
    param("end", Form::Time, "Only jobs that ran at or before this time."),
    param(
        "after",
        Form::Place,
        "Only jobs listed after this one: `CLUSTER:ID@START` of the last one received, where `START` is its \
         `start`, or its `submit` where it has not started.",
    ),
    param(
        "limit",
        Form::Entries(JOBS_MAX),
        "Largest number of jobs, from 1 to 100000. Default: 1000.",
    ),
    param(
        "usage",
        Form::Truth,
        "Adds `usage` to each job whose samples the caller may read; at most 1000 jobs.",
    ),
];
pub(crate) const LISTED_DEVICES: &[Param] = &[
    DEVICES,
    param("node", Form::ListedDevice, "Only devices that feed this node."),
    param(
        "search",
        Form::Text,
        "Only devices with this text in their name, their address or the name of a node that they feed.",
    ),
    param("failing", Form::Truth, "Only devices that fail, and those of a poller that is silent."),
    param(
        "after",
        Form::ListedDevice,
        "Only devices listed after this one: the last one received.",
    ),
    param(
        "limit",
        Form::Entries(DEVICES_MAX),
        "Largest number of devices, from 1 to 10000. Default: 1000.",
    ),
];
pub(crate) const GET_METRICS: &[Param] = &[
    param("job_id", Form::Job, "Samples attributed to this job, and node samples of its devices."),
    param("cluster", Form::ClusterOrEmpty, "The cluster of the job, where its name gives none."),
    param(
        "nodes",
        Form::Texts,
        "Of these devices. One of `nodes`, `devices` and `job_id` is required.",
    ),
    param("devices", Form::Texts, "Of these devices."),
    param("metrics", Form::Texts, "Only of these metrics."),
    param(
        "start_time",
        Form::TimeOrEmpty,
        "Start. Default: the job's start, or five minutes before the end.",
    ),
    param(
        "end_time",
        Form::TimeOrEmpty,
        "End. Default: the job's end, or five minutes after the start, or now.",
    ),
    param("summary", Form::Truth, "Rollups of five minutes instead of samples."),
    param(
        "as_rate",
        Form::TruthOrAuto,
        "Values as rates per second; `auto`: only those of counters.",
    ),
];
pub(crate) const GET_JOB_METRICS: &[Param] = &[
    param("job_id", Form::Job, "The job; required."),
    param("cluster", Form::ClusterOrEmpty, "The cluster of the job, where its name gives none."),
];

pub(crate) const AVAILABLE: &[Param] = &[
    param("at", Form::Time, "In the minute before this time. Default: now."),
    param(
        "params",
        Form::Narrowing,
        "`devices`: only these devices; `job_id`: only the devices of this job.",
    ),
];

pub(crate) const GAPS: &[Param] =
    &[param("device", Form::ListedDevice, "Only of this device."), START, END];

pub(crate) const AUDIT: &[Param] = &[
    param(
        "actor",
        Form::Text,
        "Only of this user, by name or user ID, or of this token: `token 7`.",
    ),
    param("action", Form::Text, "Only actions that contain this text: `/tokens`, `POST`."),
    param("job", Form::JobOrAll, "Only of this job: `[CLUSTER:]ID`; `*`: of no particular job."),
    START,
    END,
    param(
        "limit",
        Form::Entries(AUDIT_LINES_MAX),
        "Largest number of entries, from 1 to 10000. Default: 1000.",
    ),
];

/// A time range that an output sends again.
pub(super) const FILL: &[Param] =
    &[START, END, param("job", Form::Job, "Only samples of this job: `[CLUSTER:]ID`.")];

/// The number in a path.
const PATH_CHANGE: Param = param("change", Form::Number, "The ID of the change.");
/// The promotion in a path.
const PATH_PROMOTION: Param = param("promotion", Form::Number, "The ID of the promotion.");

/// The job in a path.
pub(crate) const PATH_JOB: Param = param("id", Form::Job, "The job: `[CLUSTER:]ID`.");

/// The token in a path.
const PATH_TOKEN: Param = param("token", Form::Count, "The ID of the token.");
/// The account in a path.
const PATH_ACCOUNT: Param = param("account", Form::Account, "The account: `CLUSTER:NAME`.");
const PATH_NODE: Param = param("node", Form::Device, "The node.");
const PATH_POLLER: Param = param("poller", Form::Device, "The poller's name.");
const PATH_OUTPUT: Param = param("output", Form::Text, "The output's name.");
/// The table in a path.
const PATH_TABLE: Param = param("table", Form::Table, "The table.");

/// Parameters that occur in paths.
pub(crate) const PATH_PARTS: [Param; 9] = [
    PATH_JOB,
    PATH_CHANGE,
    PATH_PROMOTION,
    PATH_TOKEN,
    PATH_ACCOUNT,
    PATH_NODE,
    PATH_POLLER,
    PATH_OUTPUT,
    PATH_TABLE,
];
