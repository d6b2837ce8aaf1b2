//! The operations of the HTTP API: path, parameters, body and response of each. The server's routes, its check of
//! parameter names and the OpenAPI document are derived from this single declaration.

use crate::param::{Form, Param, param};
use crate::{
    Account, AccountChange, AuditEntry, Available, ChangeReceipt, CreatedToken, Device,
    Disagreement, End, Ended, Explanation, FlushNow, Gap, Health, Job, JobReport, Last, Mark, Me,
    MetricInfo, MetricsRow, NewRow, NewToken, NewUserRow, Node, PollerPromotions, PollerRequest,
    Promote, Promoted, PromotedRow, Range, Ready, Registered, Scheduler, SeriesInfo, Set,
    SetChange, SqlQuery, Token,
};
use schemars::{Schema, SchemaGenerator};

/// Generates the schema of a type and of the types that it uses.
pub(crate) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// A method of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Queries.
    Get,
    /// Queries with a body, or changes something.
    Post,
    /// Ends or removes something.
    Delete,
}

/// Callers that an operation accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Everyone.
    Anyone,
    /// Senders of batches: agents, users, administrators.
    Senders,
    /// Readers: users, staff, administrators.
    Readers,
    /// Readers, and tokens of scope `jobs`, which report jobs.
    JobReporters,
    /// Readers, and tokens of scope `push`, which insert metrics.
    Pushers,
}

/// The body of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Body {
    /// No body.
    None,
    /// A JSON object.
    Json(SchemaOf),
    /// The parameters, as a JSON object or a form.
    Params,
    /// Frames of `proto/batch.proto`.
    Frames,
    /// Rows: a JSON object or a list of them, or CSV. The schema is that of a row.
    Rows(SchemaOf),
}

/// The body of an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ResponseBody {
    /// JSON.
    Json(SchemaOf),
    /// Rows: an array of objects in JSON, or CSV, by the header Accept.
    Rows(SchemaOf),
    /// This document.
    Document,
    /// The text format of Prometheus.
    Text,
    /// An `Answer` of `proto/batch.proto`.
    Acks,
}

/// The declaration of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About {
    pub(crate) summary: &'static str,
    pub(crate) access: Access,
    pub(crate) params: &'static [Param],
    pub(crate) body: Body,
    pub(crate) answer: ResponseBody,
    /// Statuses besides those that follow from the rest.
    pub(crate) more: &'static [u16],
}

macro_rules! operations {
    ($($(#[doc = $doc:literal])+ $name:ident $method:ident $path:literal $about:tt)*) => {
        /// An operation of the HTTP API.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Operation { $($(#[doc = $doc])+ $name,)* }

        impl Operation {
            /// Every operation.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Its method.
            pub const fn method(self) -> Method {
                match self { $(Self::$name => Method::$method,)* }
            }

            /// Its path, with parameters in braces.
            pub const fn path(self) -> &'static str {
                match self { $(Self::$name => $path,)* }
            }

            pub(crate) const fn about(self) -> About {
                match self { $(Self::$name => operations!(@about ($($doc)+) $about),)* }
            }
        }
    };
    (@about ($($doc:literal)+) { $($field:ident: $value:expr),* $(,)? }) => {
        About { $($field: $value,)* ..About::of(concat!($($doc),+)) }
    };
}

/// Largest number of jobs in one list.
pub const JOBS_MAX: u32 = 100_000;
/// Largest number of devices in one list.
pub const DEVICES_MAX: u32 = 10_000;
/// Largest number of audit entries in one list.
pub const AUDIT_LINES_MAX: u32 = 10_000;

const DEVICES: Param = param("device", Form::Devices, "Only of these devices.");
const METRICS: Param = param("metric", Form::Metrics, "Only of these metrics.");
const JOB: Param = param(
    "job",
    Form::JobOrNone,
    "Only series attributed to this job, `[CLUSTER:]ID`; `none`: only node samples.",
);
const CLUSTER: Param =
    param("cluster", Form::Cluster, "The cluster of the job, where its name gives none.");
const RUN: Param = param(
    "start",
    Form::Time,
    "For a reused job ID: the latest run that had started by then. Whole seconds or milliseconds include runs that \
         started within them.",
);
const LABELS: Param =
    param("labels", Form::Labels, "Only with these labels; null: only without that label.");
const START: Param = param(
    "start",
    Form::Time,
    "Start, inclusive: seconds since 1970, RFC 3339, `14:49`, `yesterday`, or `1h30m` before now.",
);
const END: Param = param("end", Form::Time, "End, inclusive. Default: now.");
const SERIES_LIMIT: Param = param(
    "limit",
    Form::Count,
    "Return at most this many series, the first ones. Without it, too many series are an error.",
);
const STEP: Param = param(
    "step",
    Form::Step,
    "Seconds between two points, or a duration such as `30s`; at most a year. 0, the default: every sample.",
);
const RATE: Param = param("rate", Form::Truth, "Counters as rates per second.");

/// Parameters of rows in PostgREST's form, besides the conditions.
const ROWS: &[Param] = &[
    param(
        "select",
        Form::Text,
        "Columns of the result: `[ALIAS:]COLUMN[->>LABEL][::TYPE]`, with commas between them. Default: all.",
    ),
    param(
        "order",
        Form::Text,
        "Columns that determine the order: `COLUMN[.asc|.desc][.nullsfirst|.nullslast]`.",
    ),
    param("limit", Form::Text, "Largest number of rows."),
    param("offset", Form::Text, "Number of rows to leave out."),
    param("and", Form::Text, "Conditions that all hold: `(COLUMN.OPERATOR.VALUE,or(…))`."),
    param("or", Form::Text, "Conditions of which one holds."),
];

const JOBS: &[Param] = &[
    param("state", Form::JobState, "Only jobs in this state."),
    param("cluster", Form::Cluster, "Only jobs of this cluster."),
    param("part_of", Form::Number, "Only parts of the array, or heterogeneous job, of this ID."),
    param("user", Form::Text, "Only jobs of this user: login name or user ID."),
    param("account", Form::Text, "Only jobs on this account: `NAME` or `CLUSTER:NAME`."),
    param("project", Form::Text, "Only jobs of this project."),
    param("queue", Form::Text, "Only jobs of this queue or partition."),
    param("name", Form::Text, "Only jobs of this name."),
    param("device", Form::Device, "Only jobs that have or had this device."),
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
const LISTED_DEVICES: &[Param] = &[
    DEVICES,
    param("node", Form::Device, "Only devices that feed this node."),
    param(
        "search",
        Form::Text,
        "Only devices with this text in their name, their address or the name of a node that they feed.",
    ),
    param("failing", Form::Truth, "Only devices that fail, and those of a poller that is silent."),
    param("after", Form::Device, "Only devices listed after this one: the last one received."),
    param(
        "limit",
        Form::Entries(DEVICES_MAX),
        "Largest number of devices, from 1 to 10000. Default: 1000.",
    ),
];
const GET_METRICS: &[Param] = &[
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
const AVAILABLE: &[Param] = &[
    param("at", Form::Time, "In the minute before this time. Default: now."),
    param(
        "params",
        Form::Narrowing,
        "`devices`: only these devices; `job_id`: only the devices of this job.",
    ),
];

const GAPS: &[Param] = &[param("device", Form::Device, "Only of this device."), START, END];

const AUDIT: &[Param] = &[
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

/// The node in a path.
const PATH_NODE: Param = param("node", Form::Device, "The node.");

/// Parameters that occur in paths.
pub(crate) const PATH_PARTS: [Param; 6] =
    [PATH_JOB, PATH_CHANGE, PATH_PROMOTION, PATH_TOKEN, PATH_ACCOUNT, PATH_NODE];

operations! {
    /// Accepts the batches of agents: frames in sequence. The answer has one ack for each.
    Batches Post "/v1/batches" {
        access: Access::Senders, body: Body::Frames, answer: ResponseBody::Acks, more: &[503, 507],
    }
    /// Promotions of the devices that a poller reads and of the nodes that these feed, and changed periods of the devices:
    /// for pollers and administrators. A request without names returns the version only, which differs after each change.
    /// The request reports which changes the poller has received, and what its own file rejects of them.
    PollerPromotions Post "/v1/poller/promotions" {
        access: Access::Senders, body: Body::Json(|g| g.subschema_for::<PollerRequest>()),
        answer: ResponseBody::Json(|g| g.subschema_for::<PollerPromotions>()),
    }
    /// Kwollect's `get_metrics`: samples of devices, or of a job and its devices.
    GetMetrics Get "/rpc/get_metrics" {
        params: GET_METRICS, answer: ResponseBody::Rows(|g| g.subschema_for::<Vec<MetricsRow>>()), more: &[404],
    }
    /// The same with the parameters in the body.
    PostGetMetrics Post "/rpc/get_metrics" {
        params: GET_METRICS, body: Body::Params,
        answer: ResponseBody::Rows(|g| g.subschema_for::<Vec<MetricsRow>>()), more: &[404],
    }
    /// Kwollect's `available_metrics`: devices and their metrics.
    AvailableMetrics Get "/rpc/available_metrics" {
        params: AVAILABLE, answer: ResponseBody::Rows(|g| g.subschema_for::<Vec<Available>>()), more: &[404],
    }
    /// The same with the parameters in the body.
    PostAvailableMetrics Post "/rpc/available_metrics" {
        params: AVAILABLE, body: Body::Params,
        answer: ResponseBody::Rows(|g| g.subschema_for::<Vec<Available>>()), more: &[404],
    }
    /// Rows of a table of SQL, in PostgREST's form: a parameter `COLUMN=OPERATOR.VALUE` for each condition.
    RestTable Get "/rest/{name}" {
        params: ROWS, answer: ResponseBody::Rows(|g| g.subschema_for::<Vec<serde_json::Map<String, serde_json::Value>>>()),
        more: &[206, 404, 406, 416],
    }
    /// This document.
    OpenApi Get "/api/v1/openapi.json" { access: Access::Anyone, answer: ResponseBody::Document }
    /// Reports whether the server answers requests.
    Ready Get "/api/v1/ready" {
        access: Access::Anyone, answer: ResponseBody::Json(|g| g.subschema_for::<Ready>()), more: &[503],
    }
    /// The server's health.
    Health Get "/api/v1/health" { answer: ResponseBody::Json(|g| g.subschema_for::<Health>()) }
    /// Known nodes, also those that no longer report.
    Nodes Get "/api/v1/nodes" { answer: ResponseBody::Json(|g| g.subschema_for::<Vec<Node>>()) }
    /// Removes a retired node from the list until it sends again; for administrators. Its samples remain until
    /// retention deletes them.
    ForgetNode Delete "/api/v1/nodes/{node}" {
        answer: ResponseBody::Json(|g| g.subschema_for::<Node>()), more: &[404, 409],
    }
    /// Devices that are no nodes, by name: a node has an agent, or a scheduler gives it to jobs. A device with several
    /// targets has an element for each.
    Devices Get "/api/v1/devices" {
        params: LISTED_DEVICES, answer: ResponseBody::Json(|g| g.subschema_for::<Vec<Device>>()),
    }
    /// Schedulers that the server polls for jobs, with the state of each poller.
    Schedulers Get "/api/v1/schedulers" {
        answer: ResponseBody::Json(|g| g.subschema_for::<Vec<Scheduler>>()),
    }
    /// Jobs, newest first.
    Jobs Get "/api/v1/jobs" { params: JOBS, answer: ResponseBody::Json(|g| g.subschema_for::<Vec<Job>>()) }
    /// Disagreements between schedulers and nodes about present jobs; for administrators and staff.
    JobsCheck Get "/api/v1/jobs/check" {
        answer: ResponseBody::Json(|g| g.subschema_for::<Vec<Disagreement>>()),
    }
    /// What a job used.
    Report Get "/api/v1/jobs/{id}" {
        params: &[CLUSTER, RUN], answer: ResponseBody::Json(|g| g.subschema_for::<JobReport>()), more: &[404],
    }
    /// Registers a local job of the caller. With `cluster` and `id`: updates a scheduler's job; for administrators and
    /// tokens of scope `jobs`.
    Register Post "/api/v1/jobs" {
        access: Access::JobReporters, body: Body::Json(crate::job_report::posted),
        answer: ResponseBody::Json(|g| g.subschema_for::<Registered>()), more: &[507],
    }
    /// Ends a local job of the caller; administrators and tokens of scope `jobs` may end any job. A token of scope `jobs`
    /// receives only the outcome.
    End Post "/api/v1/jobs/{id}/end" {
        access: Access::JobReporters, params: &[CLUSTER], body: Body::Json(|g| g.subschema_for::<End>()),
        answer: ResponseBody::Json(|g| g.subschema_for::<Ended>()), more: &[404, 409],
    }
    /// Series with samples in the interval. Default: the latest day.
    Series Get "/api/v1/series" {
        params: &[DEVICES, METRICS, JOB, CLUSTER, LABELS, START, END, SERIES_LIMIT],
        answer: ResponseBody::Json(|g| g.subschema_for::<Vec<SeriesInfo>>()), more: &[404],
    }
    /// Points of series in the interval. Default: the latest five minutes.
    Range Get "/api/v1/range" {
        params: &[DEVICES, METRICS, JOB, CLUSTER, LABELS, START, END, STEP, RATE],
        answer: ResponseBody::Json(|g| g.subschema_for::<Range>()), more: &[404],
    }
    /// The latest value of each active series.
    Last Get "/api/v1/last" {
        params: &[DEVICES, METRICS, JOB, CLUSTER, LABELS],
        answer: ResponseBody::Json(|g| g.subschema_for::<Vec<Last>>()), more: &[404],
    }
    /// The origin of series with samples in the interval (default: the latest day): source, period, errors and gaps; 100
    /// series at most.
    Explain Get "/api/v1/explain" {
        params: &[DEVICES, METRICS, JOB, CLUSTER, LABELS, START, END],
        answer: ResponseBody::Json(|g| g.subschema_for::<Vec<Explanation>>()), more: &[404],
    }
    /// All known metrics.
    Catalogue Get "/api/v1/catalogue" { answer: ResponseBody::Json(|g| g.subschema_for::<Vec<MetricInfo>>()) }
    /// Gaps in the interval. Default: the latest day.
    Gaps Get "/api/v1/gaps" {
        params: GAPS,
        answer: ResponseBody::Json(|g| g.subschema_for::<Vec<Gap>>()),
    }
    /// One SELECT, or EXPLAIN of one.
    Sql Post "/api/v1/sql" {
        body: Body::Json(|g| g.subschema_for::<SqlQuery>()), answer: ResponseBody::Rows(any_rows),
    }
    /// Changes of agents' settings in force; for administrators and staff.
    Settings Get "/api/v1/settings" { answer: ResponseBody::Json(|g| g.subschema_for::<Vec<SetChange>>()) }
    /// Changes settings of nodes for a time; for administrators.
    Set Post "/api/v1/settings" {
        body: Body::Json(|g| g.subschema_for::<Set>()),
        answer: ResponseBody::Json(|g| g.subschema_for::<ChangeReceipt>()), more: &[507],
    }
    /// Ends a change of settings before it expires; for administrators.
    Undo Delete "/api/v1/settings/{change}" {
        answer: ResponseBody::Json(|g| g.subschema_for::<ChangeReceipt>()), more: &[404],
    }
    /// Requests the samples that a burst keeps in the memory of nodes; for administrators.
    Flush Post "/api/v1/flushes" {
        body: Body::Json(|g| g.subschema_for::<FlushNow>()),
        answer: ResponseBody::Json(|g| g.subschema_for::<ChangeReceipt>()), more: &[507],
    }
    /// Promotions in force: all for administrators and staff, their own for users.
    Promotions Get "/api/v1/promotions" {
        answer: ResponseBody::Json(|g| g.subschema_for::<Vec<Promoted>>()),
    }
    /// Promotes optional metrics. Administrators may on any node; a user may on the nodes of their running jobs, until
    /// these end.
    Promote Post "/api/v1/promotions" {
        body: Body::Json(|g| g.subschema_for::<Promote>()),
        answer: ResponseBody::Json(|g| g.subschema_for::<Vec<Promoted>>()), more: &[404, 507],
    }
    /// Ends a promotion before it expires.
    Demote Delete "/api/v1/promotions/{promotion}" {
        answer: ResponseBody::Json(|g| g.subschema_for::<ChangeReceipt>()), more: &[404],
    }
    /// On-demand requests in the interval (default: the latest day): the latest 10 000, oldest first. A user receives
    /// those of nodes visible at that time and those for their own jobs.
    Marks Get "/api/v1/marks" {
        params: &[DEVICES, START, END], answer: ResponseBody::Json(|g| g.subschema_for::<Vec<Mark>>()),
    }
    /// Kwollect's `update_promoted_metrics`: aligns promotions with the running jobs at once and returns all promotions in
    /// force; for administrators, and for tokens of scope `push`, which receive no rows.
    UpdatePromotedMetrics Post "/rpc/update_promoted_metrics" {
        access: Access::Pushers, body: Body::Params, answer: ResponseBody::Rows(|g| g.subschema_for::<Vec<PromotedRow>>()), more: &[404],
    }
    /// Kwollect's `insert_metrics`: stores rows of any device, all of them or none, and returns them; for tokens of scope
    /// `push` and administrators.
    InsertMetrics Post "/rpc/insert_metrics" {
        access: Access::Senders, body: Body::Rows(|g| g.subschema_for::<NewRow>()),
        answer: ResponseBody::Rows(|g| g.subschema_for::<Vec<MetricsRow>>()), more: &[404, 422, 503, 507],
    }
    /// The same for a user, on the nodes of their running jobs. With `job_id`, the sample is attributed to that job. By the
    /// settings, also for callers without a token, on the node of their address: without `job_id`, and for any `device_id`.
    InsertUserMetrics Post "/rpc/insert_user_metrics" {
        access: Access::Senders, body: Body::Rows(|g| g.subschema_for::<NewUserRow>()),
        answer: ResponseBody::Rows(|g| g.subschema_for::<Vec<MetricsRow>>()), more: &[404, 422, 503, 507],
    }
    /// The caller and their permissions.
    Me Get "/api/v1/me" { answer: ResponseBody::Json(|g| g.subschema_for::<Me>()) }
    /// Tokens: the caller's; for administrators and staff, all.
    Tokens Get "/api/v1/tokens" { answer: ResponseBody::Json(|g| g.subschema_for::<Vec<Token>>()) }
    /// Creates a token. Only this answer contains it.
    MakeToken Post "/api/v1/tokens" {
        body: Body::Json(|g| g.subschema_for::<NewToken>()),
        answer: ResponseBody::Json(|g| g.subschema_for::<CreatedToken>()),
    }
    /// Revokes a token, effective from this answer on.
    RevokeToken Post "/api/v1/tokens/{token}/revoke" {
        answer: ResponseBody::Json(|g| g.subschema_for::<Token>()), more: &[404],
    }
    /// Accounts: the caller's; for administrators and staff, all.
    Accounts Get "/api/v1/accounts" { answer: ResponseBody::Json(|g| g.subschema_for::<Vec<Account>>()) }
    /// Changes the members of an account, and what they see of each other's jobs.
    ChangeAccount Post "/api/v1/accounts/{account}" {
        body: Body::Json(|g| g.subschema_for::<AccountChange>()),
        answer: ResponseBody::Json(|g| g.subschema_for::<Account>()), more: &[404],
    }
    /// Deletes an account with its members and permissions; for administrators. The next job that a scheduler reports
    /// under it creates it again, without the changes made here.
    DeleteAccount Delete "/api/v1/accounts/{account}" {
        answer: ResponseBody::Json(|g| g.subschema_for::<Account>()), more: &[404],
    }
    /// The audit log: changes, and reads of others' jobs by callers who may read everything. The latest entries of the
    /// interval (default: the latest day), oldest first; for administrators and staff.
    Audit Get "/api/v1/audit" {
        params: AUDIT, answer: ResponseBody::Json(|g| g.subschema_for::<Vec<AuditEntry>>()), more: &[404],
    }
    /// The server's own metrics for Prometheus.
    Metrics Get "/metrics" { answer: ResponseBody::Text }
}

/// The answer of SQL: rows of the columns that the statement names.
fn any_rows(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({"type": "array", "items": {"type": "object"}})
}

impl Operation {
    /// Its parameters, those of the path apart.
    pub const fn params(self) -> &'static [Param] {
        self.about().params
    }

    /// The callers that it accepts.
    pub const fn access(self) -> Access {
        self.about().access
    }
}

impl About {
    const fn of(summary: &'static str) -> Self {
        Self {
            summary,
            access: Access::Readers,
            params: &[],
            body: Body::None,
            answer: ResponseBody::Text,
            more: &[],
        }
    }
}
