//! What can be asked of the server, each with its path, its parameters and its answer: one declaration for
//! the server's routes, for its check of parameters' names, and for the OpenAPI document.

use crate::param::{Form, Param, param};
use crate::{
    Account, AccountChange, AuditLine, Available, Disagreement, End, Ended, Explanation, FlushNow,
    Gap, Health, Job, JobReport, Last, MadeToken, Mark, Me, MetricInfo, MetricsRow, NewToken, Node,
    Numbered, Promote, Promoted, PromotedRow, Range, Ready, Registered, Scheduler, SeriesInfo, Set,
    SetChange, SqlQuestion, Token,
};
use schemars::{Schema, SchemaGenerator};

/// Makes the schema of a type, and the definitions that it needs.
pub(crate) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// A method of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Asks.
    Get,
    /// Asks with a body, or changes something.
    Post,
    /// Ends something.
    Delete,
}

/// Who may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Everyone.
    Anyone,
    /// Who sends batches: an agent, a user, an administrator.
    Senders,
    /// Who may read: a user, an administrator.
    Readers,
    /// The same, and who tells of schedulers' jobs.
    Tellers,
}

/// What a request's body is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Body {
    /// There is none.
    None,
    /// A JSON object.
    Json(SchemaOf),
    /// The parameters, as a JSON object or a form.
    Params,
    /// Frames of `proto/batch.proto`.
    Frames,
}

/// What an answer is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    /// JSON.
    Json(SchemaOf),
    /// Rows: an array of objects in JSON, or CSV, by the header Accept.
    Rows(SchemaOf),
    /// This document.
    Document,
    /// Prometheus's text.
    Text,
    /// An `Answer` of `proto/batch.proto`.
    Acks,
}

/// What is declared of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About {
    pub(crate) summary: &'static str,
    pub(crate) access: Access,
    pub(crate) params: &'static [Param],
    pub(crate) body: Body,
    pub(crate) answer: Answer,
    /// Statuses besides those that follow from the rest.
    pub(crate) more: &'static [u16],
}

macro_rules! operations {
    ($($(#[doc = $doc:literal])+ $name:ident $method:ident $path:literal $about:tt)*) => {
        /// What can be asked of the server.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Operation { $($(#[doc = $doc])+ $name,)* }

        impl Operation {
            /// Every operation.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Its method.
            pub const fn method(self) -> Method {
                match self { $(Self::$name => Method::$method,)* }
            }

            /// Its path; what is a name in it stands in braces.
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

/// Most jobs of one list.
pub const JOBS_MAX: u32 = 100_000;
/// Most lines of one list of the audit.
pub const AUDIT_LINES_MAX: u32 = 10_000;

const DEVICES: Param = param("device", Form::Devices, "Only of these devices.");
const METRICS: Param = param("metric", Form::Metrics, "Only of these metrics.");
const JOB: Param = param(
    "job",
    Form::JobOrNone,
    "Only what was counted for this job, `[CLUSTER:]ID`; `none`: for no job.",
);
const CLUSTER: Param =
    param("cluster", Form::Cluster, "The cluster of the job, where its name gives none.");
const RUN: Param = param(
    "start",
    Form::Time,
    "Of a number that was given again: the newest run that had started by then, to the second.",
);
const LABELS: Param =
    param("labels", Form::Labels, "Only with these labels; null: only without that label.");
const START: Param = param(
    "start",
    Form::Time,
    "From when, inclusive: seconds since 1970, RFC 3339, `14:49`, `yesterday`, or `1h30m` before now.",
);
const END: Param = param("end", Form::Time, "Until when, inclusive; now when left out.");
const SERIES_LIMIT: Param = param(
    "limit",
    Form::Count,
    "Only the first series, at most this many; without it, too many series are an error.",
);
const STEP: Param = param(
    "step",
    Form::Step,
    "Seconds between two points, or a time such as `30s`, at most a year; 0, as when left out: every sample.",
);
const RATE: Param = param("rate", Form::Truth, "Counters as growth per second.");

const JOBS: &[Param] = &[
    param("state", Form::JobState, "Only jobs in this state."),
    param("cluster", Form::Cluster, "Only jobs of this cluster."),
    param(
        "part_of",
        Form::Number,
        "Only parts of the array, or heterogeneous job, of this number.",
    ),
    param("user", Form::Text, "Only jobs of this user: a login name, or a number."),
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
        "Only jobs listed after this one: `CLUSTER:ID@START` of the last that was told, where `START` is its \
         `start`, or its `submit` where it has not started.",
    ),
    param("limit", Form::Entries(JOBS_MAX), "Most jobs, from 1 to 100000; 1000 when left out."),
    param(
        "usage",
        Form::Truth,
        "Adds `usage` to each job that the caller sees all of; at most 1000 jobs.",
    ),
];
const GET_METRICS: &[Param] = &[
    param("job_id", Form::Job, "What was counted for this job, and on its devices for none."),
    param("cluster", Form::ClusterOrEmpty, "The cluster of the job, where its name gives none."),
    param("nodes", Form::Texts, "Of these devices; this, `devices` or `job_id` must be given."),
    param("devices", Form::Texts, "Of these devices."),
    param("metrics", Form::Texts, "Only of these metrics."),
    param(
        "start_time",
        Form::TimeOrEmpty,
        "From when; the job's start, or five minutes before the end.",
    ),
    param(
        "end_time",
        Form::TimeOrEmpty,
        "Until when; the job's end, or five minutes after the start, or now.",
    ),
    param("summary", Form::Truth, "Rollups of five minutes instead of samples."),
    param("as_rate", Form::TruthOrAuto, "Values as growth per second; `auto`: those of counters."),
];
const AVAILABLE: &[Param] = &[
    param("at", Form::Time, "In the minute before this time; now when left out."),
    param("params", Form::Narrowing, "`devices`: only these; `job_id`: only those of this job."),
];

const GAPS: &[Param] = &[param("device", Form::Device, "Only of this device."), START, END];

const AUDIT: &[Param] = &[
    param("who", Form::Text, "Only of this user, by name or number, or this token: `token 7`."),
    param("what", Form::Text, "Only what has this in its method or path: `/tokens`, `POST`."),
    param("job", Form::JobOrAll, "Only of this job: `[CLUSTER:]ID`; `*`: of no one job."),
    START,
    END,
    param(
        "limit",
        Form::Entries(AUDIT_LINES_MAX),
        "Most lines, from 1 to 10000; 1000 when left out.",
    ),
];

/// The number in a path.
const PATH_NUMBER: Param = param("number", Form::Number, "The number that it was given.");

/// The job in a path.
pub(crate) const PATH_JOB: Param = param("id", Form::Job, "The job: `[CLUSTER:]ID`.");

/// The token in a path.
const PATH_TOKEN: Param = param("token", Form::Count, "The token's number.");
/// The account in a path.
const PATH_ACCOUNT: Param = param("account", Form::Account, "The account: `CLUSTER:NAME`.");

/// The node in a path.
const PATH_NODE: Param = param("node", Form::Device, "The node.");

/// Every part of a path that stands for something.
pub(crate) const PATH_PARTS: [Param; 5] =
    [PATH_JOB, PATH_NUMBER, PATH_TOKEN, PATH_ACCOUNT, PATH_NODE];

operations! {
    /// What agents send: frames one after another; one ack for each in the answer.
    Batches Post "/v1/batches" {
        access: Access::Senders, body: Body::Frames, answer: Answer::Acks, more: &[503, 507],
    }
    /// Kwollect's `get_metrics`: samples of devices, or of a job and its devices.
    GetMetrics Get "/rpc/get_metrics" {
        params: GET_METRICS, answer: Answer::Rows(|g| g.subschema_for::<Vec<MetricsRow>>()), more: &[404],
    }
    /// The same with the parameters in the body.
    PostGetMetrics Post "/rpc/get_metrics" {
        params: GET_METRICS, body: Body::Params,
        answer: Answer::Rows(|g| g.subschema_for::<Vec<MetricsRow>>()), more: &[404],
    }
    /// Kwollect's `available_metrics`: devices and their metrics.
    AvailableMetrics Get "/rpc/available_metrics" {
        params: AVAILABLE, answer: Answer::Rows(|g| g.subschema_for::<Vec<Available>>()), more: &[404],
    }
    /// The same with the parameters in the body.
    PostAvailableMetrics Post "/rpc/available_metrics" {
        params: AVAILABLE, body: Body::Params,
        answer: Answer::Rows(|g| g.subschema_for::<Vec<Available>>()), more: &[404],
    }
    /// This document.
    OpenApi Get "/api/v1/openapi.json" { access: Access::Anyone, answer: Answer::Document }
    /// Whether requests are answered.
    Ready Get "/api/v1/ready" {
        access: Access::Anyone, answer: Answer::Json(|g| g.subschema_for::<Ready>()), more: &[503],
    }
    /// The server's health.
    Health Get "/api/v1/health" { answer: Answer::Json(|g| g.subschema_for::<Health>()) }
    /// The nodes that report, or did.
    Nodes Get "/api/v1/nodes" { answer: Answer::Json(|g| g.subschema_for::<Vec<Node>>()) }
    /// Removes a node that sends no more from the list until it sends again; for administrators. Its samples stay as
    /// long as any.
    ForgetNode Delete "/api/v1/nodes/{node}" {
        answer: Answer::Json(|g| g.subschema_for::<Node>()), more: &[404, 409],
    }
    /// The schedulers that are asked for their jobs, and how that goes.
    Schedulers Get "/api/v1/schedulers" {
        answer: Answer::Json(|g| g.subschema_for::<Vec<Scheduler>>()),
    }
    /// Jobs, the newest first.
    Jobs Get "/api/v1/jobs" { params: JOBS, answer: Answer::Json(|g| g.subschema_for::<Vec<Job>>()) }
    /// Where schedulers and nodes disagree about the jobs of now, for administrators and staff.
    JobsCheck Get "/api/v1/jobs/check" {
        answer: Answer::Json(|g| g.subschema_for::<Vec<Disagreement>>()),
    }
    /// What a job used.
    Report Get "/api/v1/jobs/{id}" {
        params: &[CLUSTER, RUN], answer: Answer::Json(|g| g.subschema_for::<JobReport>()), more: &[404],
    }
    /// A local job of the caller begins; or, with `cluster` and `id`, what an administrator, or a token
    /// of scope `jobs`, says of a scheduler's job.
    Register Post "/api/v1/jobs" {
        access: Access::Tellers, body: Body::Json(crate::told::posted),
        answer: Answer::Json(|g| g.subschema_for::<Registered>()), more: &[507],
    }
    /// A local job has ended, or, where an administrator or a token of scope `jobs` says so, any; to the
    /// latter only what became of the job is told.
    End Post "/api/v1/jobs/{id}/end" {
        access: Access::Tellers, params: &[CLUSTER], body: Body::Json(|g| g.subschema_for::<End>()),
        answer: Answer::Json(|g| g.subschema_for::<Ended>()), more: &[404, 409],
    }
    /// Series with samples in the interval, a day when left out.
    Series Get "/api/v1/series" {
        params: &[DEVICES, METRICS, JOB, CLUSTER, LABELS, START, END, SERIES_LIMIT],
        answer: Answer::Json(|g| g.subschema_for::<Vec<SeriesInfo>>()), more: &[404],
    }
    /// Points of series in the interval, five minutes when left out.
    Range Get "/api/v1/range" {
        params: &[DEVICES, METRICS, JOB, CLUSTER, LABELS, START, END, STEP, RATE],
        answer: Answer::Json(|g| g.subschema_for::<Range>()), more: &[404],
    }
    /// The newest value of each living series.
    Last Get "/api/v1/last" {
        params: &[DEVICES, METRICS, JOB, CLUSTER, LABELS],
        answer: Answer::Json(|g| g.subschema_for::<Vec<Last>>()), more: &[404],
    }
    /// Where series with samples in the interval, a day when left out, come from: source, period, errors, gaps; of a
    /// hundred series at most.
    Explain Get "/api/v1/explain" {
        params: &[DEVICES, METRICS, JOB, CLUSTER, LABELS, START, END],
        answer: Answer::Json(|g| g.subschema_for::<Vec<Explanation>>()), more: &[404],
    }
    /// Every metric known.
    Catalogue Get "/api/v1/catalogue" { answer: Answer::Json(|g| g.subschema_for::<Vec<MetricInfo>>()) }
    /// What is missing in the interval, a day when left out.
    Gaps Get "/api/v1/gaps" {
        params: GAPS,
        answer: Answer::Json(|g| g.subschema_for::<Vec<Gap>>()),
    }
    /// One SELECT, or EXPLAIN of one.
    Sql Post "/api/v1/sql" {
        body: Body::Json(|g| g.subschema_for::<SqlQuestion>()), answer: Answer::Rows(any_rows),
    }
    /// Changes of agents' settings that hold; for administrators and staff.
    Settings Get "/api/v1/settings" { answer: Answer::Json(|g| g.subschema_for::<Vec<SetChange>>()) }
    /// Changes settings of nodes for a time; for administrators.
    Set Post "/api/v1/settings" {
        body: Body::Json(|g| g.subschema_for::<Set>()),
        answer: Answer::Json(|g| g.subschema_for::<Numbered>()), more: &[507],
    }
    /// Ends a change of settings before its time; for administrators.
    Undo Delete "/api/v1/settings/{number}" {
        answer: Answer::Json(|g| g.subschema_for::<Numbered>()), more: &[404],
    }
    /// Asks nodes for what a burst kept; for administrators.
    Flush Post "/api/v1/flushes" {
        body: Body::Json(|g| g.subschema_for::<FlushNow>()),
        answer: Answer::Json(|g| g.subschema_for::<Numbered>()), more: &[507],
    }
    /// Optional metrics that are collected: all of them for administrators and staff, his own for a user.
    Promotions Get "/api/v1/promotions" {
        answer: Answer::Json(|g| g.subschema_for::<Vec<Promoted>>()),
    }
    /// Collects optional metrics: administrators anywhere, a user on the nodes of his running jobs and for
    /// their time.
    Promote Post "/api/v1/promotions" {
        body: Body::Json(|g| g.subschema_for::<Promote>()),
        answer: Answer::Json(|g| g.subschema_for::<Vec<Promoted>>()), more: &[404, 507],
    }
    /// Ends a promotion before its time.
    Demote Delete "/api/v1/promotions/{number}" {
        answer: Answer::Json(|g| g.subschema_for::<Numbered>()), more: &[404],
    }
    /// What was asked of nodes in the interval, a day when left out: the newest ten thousand, the oldest
    /// first. A user is told of the nodes that he sees at that time, and of what was asked for his own jobs.
    Marks Get "/api/v1/marks" {
        params: &[DEVICES, START, END], answer: Answer::Json(|g| g.subschema_for::<Vec<Mark>>()),
    }
    /// Kwollect's `update_promoted_metrics`: promotions follow the jobs that run at once; gives every
    /// promotion that holds. For administrators.
    UpdatePromotedMetrics Post "/rpc/update_promoted_metrics" {
        body: Body::Params, answer: Answer::Rows(|g| g.subschema_for::<Vec<PromotedRow>>()), more: &[404],
    }
    /// Who asks, and what he sees.
    Me Get "/api/v1/me" { answer: Answer::Json(|g| g.subschema_for::<Me>()) }
    /// Tokens that people made: the caller's; for administrators and staff, all.
    Tokens Get "/api/v1/tokens" { answer: Answer::Json(|g| g.subschema_for::<Vec<Token>>()) }
    /// Makes a token, which is told this once.
    MakeToken Post "/api/v1/tokens" {
        body: Body::Json(|g| g.subschema_for::<NewToken>()),
        answer: Answer::Json(|g| g.subschema_for::<MadeToken>()),
    }
    /// Ends a token, from this answer on.
    RevokeToken Post "/api/v1/tokens/{token}/revoke" {
        answer: Answer::Json(|g| g.subschema_for::<Token>()), more: &[404],
    }
    /// Accounts: the caller's; for administrators and staff, all.
    Accounts Get "/api/v1/accounts" { answer: Answer::Json(|g| g.subschema_for::<Vec<Account>>()) }
    /// What an account's members see of each other's jobs, and who they are.
    ChangeAccount Post "/api/v1/accounts/{account}" {
        body: Body::Json(|g| g.subschema_for::<AccountChange>()),
        answer: Answer::Json(|g| g.subschema_for::<Account>()), more: &[404],
    }
    /// Deletes an account with its members and permissions; for administrators. The next job that a scheduler reports
    /// of it creates it again, without what people said of it.
    DeleteAccount Delete "/api/v1/accounts/{account}" {
        answer: Answer::Json(|g| g.subschema_for::<Account>()), more: &[404],
    }
    /// Who changed something, and who that may read everything read of others' jobs: the newest lines of the
    /// interval, a day when left out, the oldest first. For administrators and staff.
    Audit Get "/api/v1/audit" {
        params: AUDIT, answer: Answer::Json(|g| g.subschema_for::<Vec<AuditLine>>()), more: &[404],
    }
    /// The server's own state for Prometheus.
    Metrics Get "/metrics" { answer: Answer::Text }
}

/// Rows of columns that the question names.
fn any_rows(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({"type": "array", "items": {"type": "object"}})
}

impl Operation {
    /// Its parameters, those of the path apart.
    pub const fn params(self) -> &'static [Param] {
        self.about().params
    }

    /// Who may ask.
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
            answer: Answer::Text,
            more: &[],
        }
    }
}
