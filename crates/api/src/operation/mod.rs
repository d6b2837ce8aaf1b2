//! The operations of the HTTP API: path, parameters, body and response of each. The server's routes, its check of
//! parameter names and the OpenAPI document are derived from this single declaration.

mod params;

pub use params::{AUDIT_LINES_MAX, DEVICES_MAX, JOBS_MAX};
pub(crate) use params::{PATH_JOB, PATH_PARTS, ROWS};

use crate::param::Param;
use crate::{
    Account, AccountChange, AuditEntry, Available, ChangeReceipt, CreatedToken, Device,
    Disagreement, End, Ended, Explanation, FlushNow, ForgottenPoller, Gap, Health, Job, JobReport,
    Last, Mark, Me, MetricInfo, MetricsRow, NewRow, NewToken, NewUserRow, Node, Output, OutputFill,
    OutputSetAside, Poller, PollerPromotions, PollerRequest, Promote, Promoted, PromotedRow, Range,
    Ready, Registered, Scheduler, SeriesInfo, Set, SetChange, SqlQuery, Token,
};
use params::{
    AUDIT, AVAILABLE, CLUSTER, DEVICES, END, FILL, GAPS, GET_JOB_METRICS, GET_METRICS, JOB, JOBS,
    LABELS, LISTED_DEVICES, METRICS, NODE_METRICS, RATE, RUN, SERIES_LIMIT, START, STEP, TOTALS,
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
    /// Whether the query string may also have [`ROWS`], in PostgREST's form.
    pub(crate) rows: bool,
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
        params: GET_METRICS, rows: true, answer: ResponseBody::Rows(|g| g.subschema_for::<Vec<MetricsRow>>()), more: &[404],
    }
    /// The same with the parameters in the body.
    PostGetMetrics Post "/rpc/get_metrics" {
        params: GET_METRICS, body: Body::Params, rows: true,
        answer: ResponseBody::Rows(|g| g.subschema_for::<Vec<MetricsRow>>()), more: &[404],
    }
    /// Kwollect's `available_metrics`: devices and their metrics.
    AvailableMetrics Get "/rpc/available_metrics" {
        params: AVAILABLE, rows: true, answer: ResponseBody::Rows(|g| g.subschema_for::<Vec<Available>>()), more: &[404],
    }
    /// The same with the parameters in the body.
    PostAvailableMetrics Post "/rpc/available_metrics" {
        params: AVAILABLE, body: Body::Params, rows: true,
        answer: ResponseBody::Rows(|g| g.subschema_for::<Vec<Available>>()), more: &[404],
    }
    /// Kwollect's `get_job_metrics`: what a job used, by the site's statements (the setting `jobmetrics_requests`). One
    /// object; a value is null if its statement has no row or fails. The header X-Jobmeter-Warning names the statements
    /// that failed.
    GetJobMetrics Get "/rpc/get_job_metrics" {
        params: GET_JOB_METRICS, answer: ResponseBody::Rows(any_object), more: &[404],
    }
    /// The same with the parameters in the body.
    PostGetJobMetrics Post "/rpc/get_job_metrics" {
        params: GET_JOB_METRICS, body: Body::Params, answer: ResponseBody::Rows(any_object), more: &[404],
    }
    /// Rows of a table of SQL, in PostgREST's form: a parameter `COLUMN=OPERATOR.VALUE` for each condition.
    RestTable Get "/rest/{table}" { rows: true, answer: ResponseBody::Rows(any_rows), more: &[404] }
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
    /// Pollers and feeds that sent a batch within 7 days, by name, with the errors in their description files.
    Pollers Get "/api/v1/pollers" {
        answer: ResponseBody::Json(|g| g.subschema_for::<Vec<Poller>>()),
    }
    /// Removes the devices of an ended or silent poller or feed from the list until it sends again; for administrators.
    /// Their samples remain until retention deletes them.
    ForgetPoller Delete "/api/v1/pollers/{poller}" {
        answer: ResponseBody::Json(|g| g.subschema_for::<ForgottenPoller>()), more: &[404, 409],
    }
    /// Schedulers that the server polls for jobs, with the state of each poller.
    Schedulers Get "/api/v1/schedulers" { answer: ResponseBody::Json(|g| g.subschema_for::<Vec<Scheduler>>()) }
    /// Outputs: other systems that receive samples, with the state of each; for administrators and staff.
    Outputs Get "/api/v1/outputs" { answer: ResponseBody::Json(|g| g.subschema_for::<Vec<Output>>()) }
    /// Makes an output send a time range again, from what the store has; for administrators. The answer comes once the range
    /// is queued: `Outputs` shows how far it is. A receiver that has the samples receives them twice, unless its kind
    /// prevents it.
    FillOutput Post "/api/v1/outputs/{output}/fill" {
        params: FILL, answer: ResponseBody::Json(|g| g.subschema_for::<OutputFill>()), more: &[404, 409],
    }
    /// Makes an output send again what its receiver rejected and the output has set aside; for administrators.
    RetryOutput Post "/api/v1/outputs/{output}/retry" {
        answer: ResponseBody::Json(|g| g.subschema_for::<OutputSetAside>()), more: &[404],
    }
    /// Jobs, newest first.
    Jobs Get "/api/v1/jobs" { params: JOBS, answer: ResponseBody::Json(|g| g.subschema_for::<Vec<Job>>()) }
    /// Disagreements between schedulers and nodes about present jobs; for administrators and staff.
    JobsCheck Get "/api/v1/jobs/check" { answer: ResponseBody::Json(|g| g.subschema_for::<Vec<Disagreement>>()) }
    /// What a job used.
    Report Get "/api/v1/jobs/{id}" {
        params: &[CLUSTER, RUN, NODE_METRICS], answer: ResponseBody::Json(|g| g.subschema_for::<JobReport>()), more: &[404],
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
        params: &[DEVICES, METRICS, JOB, CLUSTER, LABELS, START, END, STEP, RATE, TOTALS],
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

/// One object with any keys.
fn any_object(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({"type": "object"})
}

/// Rows of the columns that a statement or a table has.
pub(crate) fn any_rows(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({"type": "array", "items": {"type": "object"}})
}

impl Operation {
    /// Its parameters, those of the path apart.
    pub const fn params(self) -> &'static [Param] {
        self.about().params
    }

    /// Whether it changes nothing: pages of other origins may send it.
    pub const fn only_reads(self) -> bool {
        matches!(self.method(), Method::Get)
            || matches!(self, Self::PostGetMetrics | Self::PostAvailableMetrics | Self::Sql)
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
            rows: false,
            body: Body::None,
            answer: ResponseBody::Text,
            more: &[],
        }
    }
}
