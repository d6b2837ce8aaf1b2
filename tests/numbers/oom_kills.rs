//! An OOM kill in a memory cgroup, from the kernel's log to the reports of `jobmeter run`, `jobmeter job` and
//! SQL.

use crate::common::programs::{Running, Server, root, until};
use crate::common::up::{alone, jobmeter, node_alive};
use crate::numbers::truth::python;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// A child that allocates more memory than the limit is killed. Its parent survives, and exits with 3.
const LOAD: &str = r"
import os, sys
pid = os.fork()
if pid == 0:
    bytearray(256 << 20)
    os._exit(0)
status = os.waitpid(pid, 0)[1]
os._exit(3 if os.WIFSIGNALED(status) else 4)
";

/// Checks the kernel's data of a kill in a memory cgroup of 64 MiB.
fn check(kill: &Value, place: &str) {
    assert_eq!((&kill["device"], &kill["uid"]), (&"oom".into(), &0.into()), "{place}: {kill}");
    assert_eq!(kill["limit_bytes"], 64 << 20, "{place}: {kill}");
    assert!(kill["task"].as_str().is_some_and(|task| task.contains("python")), "{place}: {kill}");
    assert!(kill["task_bytes"].as_u64().is_some_and(|size| size > 32 << 20), "{place}: {kill}");
    assert!(!kill["time"].is_null(), "{place}: {kill}");
}

/// Runs the load with a limit of 64 MiB, and returns the report of `jobmeter run`.
fn run(url: &str, device: &str) -> Option<Value> {
    let own = ["run", "--json", "--device", device, "--memory", "64MiB", "--"];
    let (code, out, errors) = jobmeter(url, &[&own[..], &[&python(), "-c", LOAD]].concat());
    if code == 4 {
        // For example, swap may absorb the memory beyond the limit.
        println!("no task was killed at its memory limit here");
        return None;
    }
    assert_eq!(code, 3, "{errors}");
    let report: Value = serde_json::from_str(&out).unwrap();
    let kills = report["oom_kills"].as_array().unwrap();
    assert_eq!(kills.len(), 1, "{report}");
    Some(report)
}

#[test]
fn an_oom_kill_is_in_the_report_of_run_in_job_and_in_sql() {
    if !root("an_oom_kill_is_in_the_report_of_run_in_job_and_in_sql") {
        return;
    }
    if !Path::new("/dev/kmsg").exists() {
        println!("the kernel's log is not readable here, so that no kill is named");
        return;
    }
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"), &[]);
    let mut agent = Running::agent(&server.url, "oom", &dir.path().join("spool"));
    node_alive(&server.url);
    let Some(report) = run(&server.url, "oom") else { return };
    check(&report["oom_kills"][0], "run");
    let id = report["id"].as_i64().unwrap();
    // The agent reports the kill with its next batch.
    let job = until("the kill in the job's report", Duration::from_secs(60), || {
        let (_, out, _) = jobmeter(&server.url, &["job", &format!("local:{id}"), "--json"]);
        let job: Value = serde_json::from_str(&out).ok()?;
        let kills = job["oom_kills"].as_array()?.len();
        (kills > 0).then_some(job)
    });
    assert_eq!(job["oom_kills"].as_array().unwrap().len(), 1, "{job}");
    check(&job["oom_kills"][0], "job");
    let (code, text, errors) = jobmeter(&server.url, &["job", &format!("local:{id}")]);
    assert!(code == 0 && text.contains("OOM kill"), "{text} {errors}");
    let query = format!("SELECT oom_kills, end_cause FROM jobs WHERE job_id = {id}");
    let (code, out, errors) = jobmeter(&server.url, &["sql", "--format", "json", &query]);
    assert_eq!(code, 0, "{errors}");
    let rows: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(rows[0]["oom_kills"], 1, "{rows}");
    assert!(rows[0]["end_cause"].as_str().is_some_and(|cause| cause.contains("oom")), "{rows}");
    assert_eq!(agent.end(), 0, "{}", agent.errors());
}
