//! The requests that change something, in the order in which each caller sends them.

use super::requests::Request;
use super::samples::{self, Times};
use api::Operation;

/// The requests of the operations that `requests` leaves out.
pub(super) fn all(times: Times) -> Vec<Request> {
    let mut requests = Vec::new();
    requests.extend(batches(times));
    requests.extend(pollers());
    requests.extend(jobs(times));
    requests.extend(rows(times));
    requests.extend(demand());
    requests.extend(tokens_and_accounts());
    requests
}

/// Batches that are stored already, of every caller, and bodies that are none.
fn batches(times: Times) -> Vec<Request> {
    let [agents, devices] = samples::bodies(times);
    let mut damaged = agents.clone();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    let status = samples::status(times);
    let one = |body| Request::batches(body).header(wire::STATUS_HEADER, &status);
    vec![
        one(agents),
        one(damaged),
        one(devices),
        one(b"JMB2newer".to_vec()),
        one(b"none".to_vec()),
        Request::of(Operation::Batches, "").json("{}"),
    ]
}

fn pollers() -> Vec<Request> {
    let error = r#"{"file": "/etc/d.yaml", "line": 3, "device": "bmc-1", "alias": "n1", "metric": null, "reason": "wrong"}"#;
    let errors =
        format!(r#"{{"poller": "lab", "entry_errors": {{"count": 1, "listed": [{error}]}}}}"#);
    [
        r#"{"poller": "lab", "names": ["n1", "bmc-1"], "busy": true}"#,
        r#"{"poller": "lab"}"#,
        &errors,
        "{}",
    ]
    .map(|body| Request::of(Operation::PollerPromotions, "").json(body))
    .into()
}

fn jobs(times: Times) -> Vec<Request> {
    let register = |body: &str| Request::of(Operation::Register, "").json(body);
    let end = |job: &str, body: &str| Request::of(Operation::End, job).json(body);
    let (start, stop) = (times.now, times.now + 1);
    vec![
        register(&format!(r#"{{"device": "n1", "name": "own", "start": {start}}}"#)),
        register(r#"{"device": "n1,n2"}"#),
        register(&format!(
            r#"{{"cluster": "slurm", "id": 6, "uid": 54001, "start": {start}, "nodes": [{{"device": "n2"}}]}}"#
        )),
        register(r#"{"cluster": "slurm", "id": 0}"#),
        end("local:1", &format!(r#"{{"exit_code": 3, "stop": {stop}}}"#)),
        end("local:1", &format!(r#"{{"exit_code": 4, "stop": {stop}}}"#)),
        end("slurm:6", &format!(r#"{{"stop": {stop}}}"#)),
        end("slurm:99", "{}"),
        end("7", "{}"),
    ]
}

/// Rows of programs and of users.
fn rows(times: Times) -> Vec<Request> {
    let rows = |body: &str| Request::of(Operation::InsertMetrics, "").json(body);
    let users = |body: &str| Request::of(Operation::InsertUserMetrics, "").json(body);
    let at = times.past + 5000;
    let one = |value: &str, labels: &str| {
        format!(
            r#"{{"device_id": "node-3", "metric_id": "example_metric", "timestamp": {at}, "value": {value}, "labels": {labels}}}"#
        )
    };
    let csv = format!(
        "device_id,metric_id,timestamp,value,labels\nd,csv_watt,{at},1.5,\"{{\"\"a\"\": 1}}\"\nd,csv_watt,{at},,\n"
    );
    let of_user = |more: &str| {
        format!(
            r#"{{"device_id": "n1", "metric_id": "own_metric", "timestamp": {}, "value": 7{more}}}"#,
            times.now
        )
    };
    let insert = |body: Vec<u8>| Request::of(Operation::InsertMetrics, "").typed("text/csv", body);
    let list = format!(
        "[{}, {}]",
        one("42", r#"{"my_label": "x"}"#),
        one("\"NaN\"", r#"{"n": [1, null]}"#)
    );
    let path = "/sites/lab/metrics".to_owned();
    vec![
        rows(&one("42", "{}")),
        rows(&list),
        rows(&list).header("Idempotency-Key", "key-1"),
        rows(&list).header("Idempotency-Key", "key-1"),
        rows(&one("43", "{}")).header("Idempotency-Key", "key-1"),
        Request { path, ..rows(&list).header("Accept", "text/csv") },
        rows(r#"{"device_id": "now"}"#),
        rows(&one("\"much\"", "{}")),
        rows(r#"{"device_id": "old", "metric_id": "m", "timestamp": "2001-01-01"}"#),
        insert(csv.into_bytes()),
        insert(b"device_id\nd\n".to_vec()),
        users(&of_user("")),
        users(&of_user(r#", "job_id": "slurm:41""#)),
        users(&of_user(r#", "job_id": "slurm:2""#)),
        users(r#"{"device_id": "n9", "metric_id": "own_metric"}"#),
    ]
}

/// A row without a time: it has the server's clock, so it comes last.
pub(super) fn row_of_now() -> Request {
    let row = r#"{"device_id": "now", "metric_id": "example_metric"}"#;
    Request::of(Operation::InsertMetrics, "").json(row).now()
}

/// Changes of settings, promotions, flushes, and their ends.
fn demand() -> Vec<Request> {
    let one = |operation, body: &str| Request::of(operation, "").json(body);
    let set = r#"{"nodes": "n1,bmc-1,nothing", "for_seconds": 600, "sources": {"load": {"enabled": true}, "snmp": {"period_seconds": 30}}}"#;
    vec![
        one(Operation::Set, set),
        one(
            Operation::Set,
            r#"{"nodes": "n1", "for_seconds": 60, "sources": {"loads": {"enabled": true}}}"#,
        ),
        one(Operation::Flush, r#"{"nodes": "n1", "source": "load"}"#),
        one(Operation::Flush, r#"{"nodes": "n[1-", "source": "load"}"#),
        one(Operation::Promote, r#"{"job": "slurm:2", "metric": "perf_.*"}"#),
        one(Operation::Promote, r#"{"nodes": "n1", "metric": "numa_.*", "for_seconds": 900}"#),
        one(Operation::Promote, r#"{"job": "slurm:99", "metric": "perf_.*"}"#),
        one(Operation::Promote, r#"{"nodes": "n1", "metric": "("}"#),
        one(Operation::UpdatePromotedMetrics, "{}"),
        one(Operation::UpdatePromotedMetrics, "").header("Accept", "text/csv"),
        Request::of(Operation::Promotions, ""),
        Request::of(Operation::Settings, ""),
        Request::of(Operation::Demote, "2"),
        Request::of(Operation::Demote, "99"),
        Request::of(Operation::Undo, "1"),
        Request::of(Operation::Undo, "x"),
        Request::of(Operation::ForgetNode, "n3"),
        Request::of(Operation::ForgetNode, "n1"),
        Request::of(Operation::ForgetPoller, "lab"),
        Request::of(Operation::ForgetPoller, "nothing"),
        Request::of(Operation::FillOutput, "copy"),
        Request::of(Operation::RetryOutput, "copy"),
    ]
}

fn tokens_and_accounts() -> Vec<Request> {
    let one = |operation, more: &str, body: &str| Request::of(operation, more).json(body);
    let change =
        r#"{"create": true, "members_see": "jobs", "members": ["54001"], "managers": ["54002"]}"#;
    vec![
        one(Operation::MakeToken, "", r#"{"scope": "read", "note": "laptop"}"#),
        one(Operation::MakeToken, "", r#"{"scope": "agent:n7"}"#),
        one(Operation::MakeToken, "", r#"{"scope": "reed"}"#),
        Request::of(Operation::RevokeToken, "1"),
        Request::of(Operation::RevokeToken, "99"),
        one(Operation::ChangeAccount, "slurm:physics", change),
        one(Operation::ChangeAccount, "slurm:physics", r#"{"members_see": "all"}"#),
        one(Operation::ChangeAccount, "slurm:physic", "{}"),
        one(Operation::ChangeAccount, "slurm:geology", r#"{"create": true}"#),
        Request::of(Operation::DeleteAccount, "slurm:geology"),
        Request::of(Operation::DeleteAccount, "slurm:nothing"),
    ]
}
