//! Requests and responses of `/api/v1` as JSON. The server that writes them and the command that reads them share
//! this definition: operations, their parameters, and the types of bodies. [`openapi()`] describes all of it as an
//! OpenAPI document.
//!
//! Times are numbers: seconds since 1970 with a fraction. An unknown value is `null`, never 0 or -1. Reading
//! ignores unknown keys, so that an older command can read from a newer server.

mod access;
mod demand;
mod job;
mod job_report;
mod nodes;
mod openapi;
mod operation;
mod param;
mod reported;
mod rows;
mod samples;
mod text;
mod time;
mod totals;

pub use access::{
    Account, AccountChange, AccountUser, AuditEntry, CreatedToken, Me, NewToken, Token,
};
pub use demand::{
    ChangeReceipt, ChangedBurst, ChangedSource, FlushNow, FlushOn, Mark, PollerFlush, PollerPeriod,
    PollerPromotion, PollerPromotions, PollerRejection, PollerRequest, Promote, Promoted,
    PromotedRow, Set, SetBurst, SetChange, SetRejection, SetShortened, SetSource, SetSuperseded,
    WORD,
};
pub use job::{Job, JobUpdate, NodeShare, Resources, Step, Usage};
pub use job_report::{
    Allocation, Disagreement, End, Ended, JobEnd, JobReport, MetricTotal, NodeMetric, OomKill,
    Register, Registered, Run, SeriesRef, Totals,
};
pub use nodes::{
    COLMET, Device, DeviceState, EntryError, EntryErrors, FED_PROTOCOL, ForgottenPoller, Gap,
    Health, MetricInfo, Node, Output, OutputFill, OutputFillState, OutputGap, OutputSetAside,
    OutputState, POLLED_PROTOCOLS, Poller, PollerState, Problem, Ready, RestrictedSource,
    Scheduler, SchedulerState, SettingRejection, SourceError,
};
pub use openapi::openapi;
pub use operation::{AUDIT_LINES_MAX, Access, DEVICES_MAX, JOBS_MAX, Method, Operation};
pub use param::{COUNT_MAX, Form, JOB_STATES, NUMBER_MAX, Param, TABLES};
pub use reported::{
    AT_LEAST, LEFT_PROCESSES, LOST_CHILDREN, PEAK_AT_LEAST, PEAK_AT_LIMIT, PEAK_CHARGED,
    PEAK_OF_PROCESSES, PEAK_OF_TASK, REPORTED, RESERVATIONS, Reported, Reservation,
};
pub use rows::{Available, JobText, MetricsRow, NewRow, NewUserRow, RowTime, Value};
pub use samples::{
    Explanation, Last, LastError, Range, RangeSeries, Sender, SeriesInfo, SeriesTotals, SqlQuery,
    TIME_COLUMNS,
};
pub use text::columns::{MORE, columns};
pub use text::csv::{csv_cell, csv_text};
pub use text::json::to_json;
pub use text::unique_keys::unique_keys;
pub use time::{TimeError, parse_time, parse_zone};
pub use totals::{Coverage, SilentNode, TotalOrigin};
