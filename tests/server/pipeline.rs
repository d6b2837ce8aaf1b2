//! The whole pipeline on this machine: `jobmeter up`, a command that runs as a job, and every way to query
//! the job.

use crate::common::programs::{get, root, until};
use crate::common::up::{Up, jobmeter, node_alive};
use serde_json::Value;
use std::time::Duration;

fn json(url: &str, arguments: &[&str]) -> Value {
    let (code, out, errors) = jobmeter(url, arguments);
    assert_eq!(code, 0, "{arguments:?}: {errors}");
    serde_json::from_str(&out).unwrap_or_else(|e| panic!("{arguments:?}: {e}: {out}"))
}

/// Load in children of the shell: 64 MiB of memory, 8 MiB of files, and 2 s of work on one core. On a busy
/// machine these 2 s have less processor time.
const LOAD: &str = "dd if=/dev/zero of=$0/f bs=1M count=8 conv=fsync 2>/dev/null; \
    head -c 64M /dev/zero | tail -c 64M >/dev/null; \
    end=$(($(date +%s%N) + 2000000000)); while [ $(date +%s%N) -lt $end ]; do :; done; exit 3";

#[test]
fn a_command_run_as_a_job_is_found_by_every_question() {
    if !root("a_command_run_as_a_job_is_found_by_every_question") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut up = Up::start(dir.path(), &["--period", "1s", "--device", "node-7"]);
    let files = tempfile::tempdir().unwrap();
    let arguments = [
        "run",
        "--name",
        "demo",
        "--device",
        "node-7",
        "--json",
        "--",
        "sh",
        "-c",
        LOAD,
        files.path().to_str().unwrap(),
    ];
    let (code, out, errors) = jobmeter(&up.url, &arguments);
    assert_eq!(code, 3, "the command's exit code is passed on: {errors}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&report["name"], &report["exit_code"]), (&"demo".into(), &3.into()));
    let id = report["id"].as_i64().expect("the server gave a number");
    let cpu = report["cpu_seconds"].as_f64().unwrap();
    assert!(cpu > 0.2 && cpu < report["wall_seconds"].as_f64().unwrap() * 2.0, "{report}");
    assert!(report["memory_peak_bytes"].as_f64().unwrap() > 30e6, "{report}");

    // The agent's own samples of the job reach the store, with the same processor time.
    let stored = until("the job's last samples", Duration::from_secs(15), || {
        let job = json(&up.url, &["job", &format!("local:{id}"), "--json"]);
        let stored = job["totals"]["cpu_seconds"].as_f64()?;
        (job["job"]["state"] == "failed" && stored >= cpu * 0.99).then_some(stored)
    });
    assert!((stored - cpu).abs() <= cpu * 0.01 + 0.005, "stored {stored}, reported {cpu}");

    let jobs = json(&up.url, &["jobs", "--json"]);
    let listed = jobs.as_array().unwrap().iter().find(|job| job["cluster"] == "local");
    assert_eq!(listed.unwrap()["name"], "demo");
    let (_, table, _) = jobmeter(&up.url, &["jobs"]);
    assert!(table.contains(&format!("local:{id}")) && table.contains("demo"), "{table}");
    let (_, report, _) = jobmeter(&up.url, &["job", &format!("local:{id}")]);
    assert!(
        report.contains("processor time") && report.contains("exit code             3"),
        "{report}"
    );

    let query = format!("SELECT count(*) AS n FROM metrics WHERE job_id = {id}");
    let count = json(&up.url, &["sql", "--format", "json", &query]);
    assert!(count[0]["n"].as_i64().unwrap() > 10, "{count}");
    let (code, out, _) =
        jobmeter(&up.url, &["get", "--device", "node-7", "--metric", "load_1m", "--last", "5m"]);
    assert!(code == 0 && out.lines().count() > 2, "{out}");

    let path = format!("/rpc/get_metrics?job_id={id}&metrics=cgroup_cpu_seconds_total");
    let (status, body) = get(&up.url, &path);
    let rows: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(status, 200);
    let row = rows[0].as_object().expect("a row");
    let keys: Vec<&str> = row.keys().map(String::as_str).collect();
    assert!(
        ["timestamp", "device_id", "metric_id", "value", "labels"].iter().all(|k| keys.contains(k))
            && keys.len() == 5,
        "{row:?}"
    );
    assert_eq!(row["labels"]["_job_id"], id.to_string());
    let (status, body) = get(&up.url, "/rpc/get_metrics?devices=nobody");
    assert_eq!((status, body.trim()), (200, "[]"), "an unknown device is no error");

    assert!(get(&up.url, "/metrics").1.contains("jobmeter_"), "the server's own state");
    assert!(get(&up.url, "/").1.contains("<html"), "the page");
    assert_eq!(up.running.end(), 0, "{}", up.running.errors());
}

/// After a SIGKILL of `up`, none of its programs remains.
#[test]
fn the_programs_end_with_up() {
    let dir = tempfile::tempdir().unwrap();
    let mut up = Up::start(dir.path(), &["--period", "1s"]);
    node_alive(&up.url);
    up.running.kill();
    let address = up.url.trim_start_matches("http://").to_owned();
    until("the server to end", Duration::from_secs(10), || {
        std::net::TcpStream::connect(&address).err()
    });
}

#[test]
fn without_a_server_the_command_still_runs_and_is_measured() {
    let arguments = ["run", "--json", "--", "sh", "-c", "exit 5"];
    let (code, out, errors) = jobmeter("http://127.0.0.1:1", &arguments);
    assert_eq!(code, 5, "{errors}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["id"], Value::Null);
    assert!(report["wall_seconds"].as_f64().unwrap() > 0.0);
    assert!(report["cpu_seconds"].as_f64().is_some(), "{report}");
}
