//! What each operation is asked, and what each asker gets.

use api::Operation;

/// A question, and what each gets: a status, with a `+` where the answer tells something named `bob`.
pub(super) type Case = (&'static str, &'static str, [&'static str; 9]);

/// Everybody whom somebody names; what is bob's node's is told to guests, whose token is for nodes.
const NODES: [&str; 9] = ["401", "403", "200+", "200", "200", "200+", "200+", "200+", "403"];
/// The same of what is bob's job's.
const JOBS: [&str; 9] = ["401", "403", "200", "200", "200", "200+", "200+", "200+", "403"];
/// A question about bob's job.
const OF_BOB: [&str; 9] = ["401", "403", "404", "404", "404", "200+", "200+", "200+", "403"];
/// What bob may change, and administrators.
const BOBS: [&str; 9] = ["401", "403", "403", "403", "403", "200+", "403", "200+", "403"];
/// Who ends bob's job: for others there is none.
const ENDS: [&str; 9] = ["401", "403", "404", "404", "404", "200+", "403", "200+", "403"];
const STAFF: [&str; 9] = ["401", "403", "403", "403", "403", "403", "200+", "200+", "403"];
const ADMINS: [&str; 9] = ["401", "403", "403", "403", "403", "403", "403", "200", "403"];
/// What administrators alone may remove, where there is none.
const NOBODYS: [&str; 9] = ["401", "403", "403", "403", "403", "403", "403", "404", "403"];
const ANYONE: [&str; 9] = ["200"; 9];
const READERS: [&str; 9] = ["401", "403", "200", "200", "200", "200", "200", "200", "403"];

/// What is asked by each operation where a user sees a node only while his job is there.
pub(super) fn case(operation: Operation) -> Case {
    let (body, job) = ("", "{\"job_id\": 2}");
    match operation {
        Operation::Batches => {
            (body, body, ["401", "200", "403", "200", "403", "200", "403", "200", "403"])
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
            let registers = ["401", "403", "403", "200", "403", "200", "403", "403", "403"];
            (body, "{\"device\": \"n1\"}", registers)
        }
        Operation::End => ("local:1", "{}", ENDS),
        Operation::JobsCheck => {
            (body, body, ["401", "403", "403", "403", "403", "403", "200", "200", "403"])
        }
        // Without addresses and others' jobs for those who may not read everything.
        Operation::Schedulers => (body, body, READERS),
        Operation::Series
        | Operation::Range
        | Operation::Last
        | Operation::Gaps
        | Operation::Explain
        | Operation::Marks => (body, body, NODES),
        // What can be measured, not what was.
        Operation::Catalogue => {
            (body, body, ["401", "403", "200+", "200+", "200+", "200+", "200+", "200+", "403"])
        }
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
            let promotes = ["401", "403", "403", "404", "403", "200+", "403", "200+", "403"];
            (body, promote, promotes)
        }
        // Bob ends his own, so that the administrator finds none.
        Operation::Demote => {
            ("1", body, ["401", "403", "403", "404", "403", "200", "403", "404", "403"])
        }
        Operation::UpdatePromotedMetrics => {
            (body, "{}", ["401", "403", "403", "403", "403", "403", "403", "200+", "403"])
        }
    }
}
