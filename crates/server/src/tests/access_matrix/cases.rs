//! The request for each operation, and what each caller gets.

use api::Operation;

/// Path suffix, body, and the status for each caller. A `+` means that the response contains a name with `bob`.
pub(super) type Case = (&'static str, &'static str, [&'static str; 11]);

/// Data of bob's node: every authenticated reader gets a response. It is visible to guests, who have a node token.
const NODES: [&str; 11] = ["401", "403", "200+", "200", "200", "200+", "200+", "200+", "403", "403", "403"];
/// Data of bob's job: every authenticated reader gets a response.
const JOBS: [&str; 11] = ["401", "403", "200", "200", "200", "200+", "200+", "200+", "403", "403", "403"];
/// A query about bob's job by its ID.
const OF_BOB: [&str; 11] = ["401", "403", "404", "404", "404", "200+", "200+", "200+", "403", "403", "403"];
/// A change that bob and administrators may make.
const BOBS: [&str; 11] = ["401", "403", "403", "403", "403", "200+", "403", "200+", "403", "403", "403"];
/// The end of bob's job: for others the job does not exist.
const ENDS: [&str; 11] = ["401", "403", "404", "404", "404", "200+", "403", "200+", "403", "403", "403"];
const STAFF: [&str; 11] = ["401", "403", "403", "403", "403", "403", "200+", "200+", "403", "403", "403"];
const ADMINS: [&str; 11] = ["401", "403", "403", "403", "403", "403", "403", "200", "403", "403", "403"];
/// A removal by administrators of something that does not exist.
const NOBODYS: [&str; 11] = ["401", "403", "403", "403", "403", "403", "403", "404", "403", "403", "403"];
const ANYONE: [&str; 11] = ["200"; 11];
const READERS: [&str; 11] = ["401", "403", "200", "200", "200", "200", "200", "200", "403", "403", "403"];

/// Returns the request for an operation, with `access.nodes = own`: users see a node only while their job is there.
pub(super) fn case(operation: Operation) -> Case {
    let (body, job) = ("", "{\"job_id\": 2}");
    match operation {
        Operation::Batches => {
            // A poller's token may send batches, but not this one: its ack says so.
            let sends =
                ["401", "200", "403", "200", "403", "200", "403", "200", "403", "200", "403"];
            (body, body, sends)
        }
        Operation::GetMetrics => ("?nodes=n1,bobs-node", body, NODES),
        Operation::PostGetMetrics => (body, job, OF_BOB),
        Operation::AvailableMetrics => (body, body, NODES),
        Operation::PostAvailableMetrics => (body, "{\"params\": {\"job_id\": 2}}", OF_BOB),
        Operation::OpenApi | Operation::Ready => (body, body, ANYONE),
        Operation::Health | Operation::Metrics | Operation::Me => (body, body, READERS),
        Operation::Nodes => (body, body, NODES),
        Operation::ForgetNode => ("nobodys-node", body, NOBODYS),
        Operation::Jobs | Operation::Accounts | Operation::Promotions => (body, body, JOBS),
        Operation::Report => ("slurm:2", body, OF_BOB),
        Operation::Register => {
            let registers = ["401", "403", "403", "200", "403", "200", "403", "403", "403", "403", "403"];
            (body, "{\"device\": \"n1\"}", registers)
        }
        Operation::End => ("local:1", "{}", ENDS),
        Operation::JobsCheck => {
            (body, body, ["401", "403", "403", "403", "403", "403", "200", "200", "403", "403", "403"])
        }
        // Without addresses and other users' jobs for callers who do not see every job.
        Operation::Schedulers => (body, body, READERS),
        Operation::Series
        | Operation::Range
        | Operation::Last
        | Operation::Gaps
        | Operation::Explain
        | Operation::Marks => (body, body, NODES),
        // The metrics that can be measured, not the measured values.
        Operation::Catalogue => {
            (body, body, ["401", "403", "200+", "200+", "200+", "200+", "200+", "200+", "403", "403", "403"])
        }
        Operation::Sql => (body, "{\"query\": \"SELECT * FROM metrics_by_device\"}", NODES),
        Operation::Tokens => {
            (body, body, ["401", "403", "403", "200", "200", "200+", "200+", "200+", "403", "403", "403"])
        }
        Operation::MakeToken => {
            let scope = "{\"scope\": \"read\"}";
            (body, scope, ["401", "403", "403", "200", "403", "200", "403", "400", "403", "403", "403"])
        }
        Operation::RevokeToken => {
            ("1", body, ["401", "403", "403", "404", "403", "200+", "403", "200+", "403", "403", "403"])
        }
        Operation::ChangeAccount => {
            let change = "{\"members_see\": \"nothing\"}";
            ("slurm:bobs", change, BOBS)
        }
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
            let promotes = ["401", "403", "403", "404", "403", "200+", "403", "200+", "403", "403", "403"];
            (body, promote, promotes)
        }
        // Bob's own request comes first, so that the administrator's finds no promotion.
        Operation::Demote => {
            ("1", body, ["401", "403", "403", "404", "403", "200", "403", "404", "403", "403", "403"])
        }
        // A token of scope `push` reads nothing, also not what it updates.
        Operation::UpdatePromotedMetrics => {
            let updates =
                ["401", "403", "403", "403", "403", "403", "403", "200+", "403", "403", "200"];
            (body, "{}", updates)
        }
        Operation::InsertMetrics => {
            let row = "{\"device_id\": \"n1\", \"metric_id\": \"inserted\"}";
            let inserts =
                ["401", "403", "403", "403", "403", "403", "403", "200", "403", "403", "200"];
            (body, row, inserts)
        }
        Operation::InsertUserMetrics => {
            let row = "{\"device_id\": \"n1\", \"metric_id\": \"inserted_by_users\"}";
            let inserts =
                ["401", "403", "403", "200", "403", "200", "403", "403", "403", "403", "403"];
            (body, row, inserts)
        }
    }
}
