//! The request for each operation, what each caller gets, and a device that measures for a node.

use crate::tests::ingest::batch;
use api::Operation;
use model::{Batch, DeviceId, Labels, Metric, SeriesEntry, SeriesTable, Unit};
use std::sync::Arc;

/// Path suffix, body, and the status for each caller. A `+` means that the response contains a name with `bob`.
pub(super) type Case = (&'static str, &'static str, [&'static str; 12]);
/// The same for the callers before the senders of samples.
type ReaderCase = (&'static str, &'static str, [&'static str; 9]);

/// Data of bob's node: every authenticated reader gets a response. It is visible to guests, who have a node token.
const NODES: [&str; 9] = ["401", "403", "200+", "200", "200", "200+", "200+", "200+", "403"];
/// Data of bob's job: every authenticated reader gets a response.
const JOBS: [&str; 9] = ["401", "403", "200", "200", "200", "200+", "200+", "200+", "403"];
/// A query about bob's job by its ID.
const OF_BOB: [&str; 9] = ["401", "403", "404", "404", "404", "200+", "200+", "200+", "403"];
/// The same, with an answer without names.
const OF_JOB_METRICS: [&str; 9] = ["401", "403", "404", "404", "404", "200", "200", "200", "403"];
/// A change that bob and administrators may make.
const BOBS: [&str; 9] = ["401", "403", "403", "403", "403", "200+", "403", "200+", "403"];
/// The end of bob's job: for others the job does not exist.
const ENDS: [&str; 9] = ["401", "403", "404", "404", "404", "200+", "403", "200+", "403"];
const SENDERS: [&str; 9] = ["401", "200", "403", "200", "403", "200", "403", "200", "403"];
const POLLERS: [&str; 9] = ["401", "200", "403", "403", "403", "403", "403", "200", "403"];
const STAFF: [&str; 9] = ["401", "403", "403", "403", "403", "403", "200+", "200+", "403"];
const ADMINS: [&str; 9] = ["401", "403", "403", "403", "403", "403", "403", "200", "403"];
const REGISTERS: [&str; 9] = ["401", "403", "403", "200", "403", "200", "403", "403", "403"];
const STAFF_ALONE: [&str; 9] = ["401", "403", "403", "403", "403", "403", "200", "200", "403"];
/// A removal by administrators of something that does not exist.
const NOBODYS: [&str; 9] = ["401", "403", "403", "403", "403", "403", "403", "404", "403"];
const ANYONE: [&str; 9] = ["200"; 9];
/// Names of a poller.
const NAMES: &str = "{\"poller\": \"lab\", \"names\": [\"n1\"]}";
/// A row that a program inserts, and one of a user.
const ROW: &str = "{\"device_id\": \"n1\", \"metric_id\": \"inserted\"}";
const USERS_ROW: &str = "{\"device_id\": \"n1\", \"metric_id\": \"inserted_by_users\"}";
/// A change that users with a job on the node may make.
const USERS: [&str; 9] = ["401", "403", "403", "200", "403", "200", "403", "403", "403"];
const READERS: [&str; 9] = ["401", "403", "200", "200", "200", "200", "200", "200", "403"];

/// A sample of a device that measures for bob's node.
pub(super) fn meter() -> Batch {
    let mut meter = batch("meters", 0);
    let entry = SeriesEntry {
        metric: Arc::new(Metric::gauge("load_1m", Unit::Count, "Something.")),
        device: DeviceId::new("bobs-meter").unwrap(),
        job: None,
        labels: Labels::new([("_device_alias", "bobs-node")]).unwrap(),
        start: None,
    };
    meter.table = Arc::new(SeriesTable { entries: vec![entry] });
    meter
}

/// Returns the request for an operation, and what each caller gets.
pub(super) fn case(operation: Operation) -> Case {
    let (more, body, [a, b, c, d, e, f, g, h, i]) = reader_case(operation);
    // Tokens of the scopes `poller`, `push` and `colmet` read nothing.
    let [poller, push, colmet] = match operation {
        // The tokens of a poller and of Colmet may send batches, but not this one: its ack says so.
        Operation::Batches => ["200", "403", "200"],
        // Each as its own poller only.
        Operation::PollerPromotions => ["200", "403", "403"],
        Operation::InsertMetrics | Operation::UpdatePromotedMetrics => ["403", "200", "403"],
        Operation::OpenApi | Operation::Ready => ["200", "200", "200"],
        _ => ["403", "403", "403"],
    };
    (more, body, [a, b, c, d, e, f, g, h, i, poller, push, colmet])
}

/// Returns the request for an operation, with `access.nodes = own`: users see a node only while their job is there.
fn reader_case(operation: Operation) -> ReaderCase {
    let (body, job) = ("", "{\"job_id\": 2}");
    match operation {
        Operation::Batches => (body, body, SENDERS),
        Operation::PollerPromotions => (body, NAMES, POLLERS),
        Operation::GetMetrics => ("?nodes=n1,bobs-node", body, NODES),
        Operation::PostGetMetrics => (body, job, OF_BOB),
        Operation::AvailableMetrics => (body, body, NODES),
        Operation::PostAvailableMetrics => (body, "{\"params\": {\"job_id\": 2}}", OF_BOB),
        Operation::GetJobMetrics => ("?job_id=2", body, OF_JOB_METRICS),
        Operation::PostGetJobMetrics => (body, job, OF_JOB_METRICS),
        Operation::OpenApi | Operation::Ready => (body, body, ANYONE),
        Operation::Health | Operation::Metrics | Operation::Me => (body, body, READERS),
        Operation::Nodes | Operation::Devices => (body, body, NODES),
        Operation::ForgetNode => ("nobodys-node", body, NOBODYS),
        Operation::ForgetPoller => ("nobodys-poller", body, NOBODYS),
        Operation::Jobs | Operation::Accounts | Operation::Promotions => (body, body, JOBS),
        Operation::Report => ("slurm:2", body, OF_BOB),
        Operation::Register => (body, "{\"device\": \"n1\"}", REGISTERS),
        Operation::End => ("local:1", "{}", ENDS),
        Operation::JobsCheck | Operation::Outputs => (body, body, STAFF_ALONE),
        Operation::FillOutput | Operation::RetryOutput => ("copy", body, NOBODYS),
        Operation::Schedulers | Operation::Pollers => (body, body, READERS),
        Operation::Series
        | Operation::Range
        | Operation::Last
        | Operation::Gaps
        | Operation::Explain
        | Operation::Marks => (body, body, NODES),
        // The metrics that can be measured, not the measured values.
        Operation::Catalogue => {
            (body, body, ["401", "403", "200+", "200+", "200+", "200+", "200+", "200+", "403"])
        }
        Operation::RestTable => ("metrics_by_device", body, NODES),
        Operation::Sql => (body, "{\"query\": \"SELECT * FROM metrics_by_device\"}", NODES),
        Operation::Tokens => {
            (body, body, ["401", "403", "403", "200", "200", "200+", "200+", "200+", "403"])
        }
        Operation::MakeToken => {
            let scope = "{\"scope\": \"read\"}";
            (body, scope, ["401", "403", "403", "200", "403", "200", "403", "400", "403"])
        }
        Operation::RevokeToken => {
            ("1", body, ["401", "403", "403", "404", "403", "200+", "403", "200+", "403"])
        }
        Operation::ChangeAccount => ("slurm:bobs", "{\"members_see\": \"nothing\"}", BOBS),
        Operation::DeleteAccount => ("slurm:nobodys", body, NOBODYS),
        Operation::Settings | Operation::Audit => (body, body, STAFF),
        Operation::Set => {
            let set = "{\"nodes\": \"n1\", \"for_seconds\": 60, \"sources\": {\"load\": {\"enabled\": true}}}";
            (body, set, ADMINS)
        }
        Operation::Undo => ("1", body, ADMINS),
        Operation::Flush => (body, "{\"nodes\": \"n1\", \"source\": \"load\"}", ADMINS),
        Operation::Promote => {
            let promote = "{\"job\": \"slurm:2\", \"metric\": \"numa_.*\"}";
            let promotes = ["401", "403", "403", "404", "403", "200+", "403", "200+", "403"];
            (body, promote, promotes)
        }
        // Bob's own request comes first, so that the administrator's finds no promotion.
        Operation::Demote => {
            ("1", body, ["401", "403", "403", "404", "403", "200", "403", "404", "403"])
        }
        Operation::UpdatePromotedMetrics => {
            (body, "{}", ["401", "403", "403", "403", "403", "403", "403", "200+", "403"])
        }
        Operation::InsertMetrics => (body, ROW, ADMINS),
        Operation::InsertUserMetrics => (body, USERS_ROW, USERS),
    }
}
