//! Jobs of a scheduler without a poller, reported by a followed file, over HTTP, and by a prologue and an
//! epilogue. The test runs the examples of `packaging/jobs` unchanged.

use crate::common::programs::{Server, get, output, root, until};
use crate::common::up::{Up, jobmeter, programs_together};
use crate::repository::layers::repository;
use serde_json::Value;
use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(20);

fn example(name: &str) -> PathBuf {
    repository().join("packaging/jobs").join(name)
}

fn report(url: &str, job: &str) -> Option<Value> {
    let (status, body) = get(url, &format!("/api/v1/jobs/{job}"));
    (status == 200).then(|| serde_json::from_str(&body).unwrap())
}

fn append(path: &Path, text: &str) {
    let mut file = std::fs::File::options().create(true).append(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

/// Returns whether a report matches the example's job after all four lines.
fn is_the_examples(report: &Value) -> bool {
    let job = &report["job"];
    job["account"] == "chemistry"
        && job["state"] == "ended"
        && job["project"] == Value::Null
        && (&job["submit"], &job["start"], &job["stop"])
            == (&1767706300.0.into(), &1767706400.0.into(), &1767709990.0.into())
        && job["requested"]["cpus"] == 64
        && job["used"]["cpu_seconds"] == 201000.0
        && job["devices"] == serde_json::json!(["node-1", "node-2", "pdu-1-port-7"])
        && report["nodes"][1]["cpus"] == 32
}

#[test]
fn a_followed_file_reports_jobs() {
    let dir = tempfile::tempdir().unwrap();
    let (data, file) = (dir.path().join("data"), dir.path().join("jobs.jsonl"));
    let follow = ["--schedulers-file", file.to_str().unwrap()];
    let mut server = Server::start(&data, &follow);
    append(&file, &std::fs::read_to_string(example("jobs.jsonl")).unwrap());
    until("the example's job", SOON, || report(&server.url, "site:1041").filter(is_the_examples));

    // A malformed line is logged with its number, and later lines are still read.
    append(&file, "{\"cluster\":\"site\"}\n{\"cluster\":\"site\",\"id\":2,\"start\":1767706400}\n");
    until("the next job", SOON, || report(&server.url, "site:2"));
    let reported = until("the bad line's number", SOON, || {
        let errors = server.running.errors();
        errors.lines().find(|line| line.contains("jobs.jsonl:5")).map(str::to_owned)
    });
    assert!(reported.contains("id"), "{reported}");
    let (_, metrics) = get(&server.url, "/metrics");
    for line in [
        "jobmeter_job_file_lines_total{outcome=\"bad\"} 1",
        "jobmeter_job_file_lines_total{outcome=\"taken\"} 5",
        "jobmeter_job_records_total{outcome=\"new\"} 2",
        "jobmeter_job_records_total{outcome=\"changed\"} 3",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }

    // The file is renamed while the server is dead. The server reads its unread lines, then the new file.
    server.running.kill();
    append(&file, "{\"cluster\":\"site\",\"id\":2,\"stop\":1767706500,\"exit_code\":9}\n");
    std::fs::rename(&file, dir.path().join("jobs.jsonl.1")).unwrap();
    append(&file, "{\"cluster\":\"site\",\"id\":3,\"user\":\"alice\"}\n");
    server.again(&data, &follow);
    let third = until("the new file's job", SOON, || report(&server.url, "site:3"));
    assert_eq!((&third["job"]["state"], &third["job"]["start"]), (&"waiting".into(), &Value::Null));
    let second = report(&server.url, "site:2").unwrap();
    assert_eq!(
        (&second["job"]["state"], &second["job"]["exit_code"]),
        (&"failed".into(), &9.into())
    );
    assert!(report(&server.url, "site:1041").is_some_and(|report| is_the_examples(&report)));
    let (_, metrics) = get(&server.url, "/metrics");
    let two = "jobmeter_job_file_lines_total{outcome=\"taken\"} 2";
    assert!(metrics.contains(two), "each line is taken once\n{metrics}");
    assert_eq!(server.running.end(), 0);
}

#[test]
fn prologue_epilogue_and_http_report_jobs() {
    if !root("prologue_epilogue_and_http_tell_of_jobs") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    let path = format!("{}:{}", programs_together().display(), std::env::var("PATH").unwrap());
    // A token that permits only reports of this cluster's jobs.
    let arguments = ["token", "create", "--scope", "jobs:site", "--note", "prologue"];
    let (code, token, errors) = jobmeter(&server.url, &arguments);
    assert_eq!(code, 0, "{errors}");
    let file = dir.path().join("token");
    std::fs::write(&file, &token).unwrap();
    std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    let run = |name: &str, arguments: &[&str], warning: &str| {
        let mut command = Command::new(example(name));
        command.args(arguments).env("PATH", &path).env("JOBMETER_SERVER", &server.url);
        command.env("JOBMETER_TOKEN_FILE", &file);
        let (code, out, errors) = output(&mut command);
        assert_eq!((code, errors.is_empty()), (0, warning.is_empty()), "{name}: {out}{errors}");
        assert!(errors.contains(warning), "{name}: {errors}");
    };
    let unknown = "the server does not know the user `alice`";
    let names = "n1\nn1\nn2.site.example\n";
    run("prologue.sh", &["77", "alice", "physics", "long", names], unknown);
    let begun = report(&server.url, "site:77").unwrap();
    let job = &begun["job"];
    assert_eq!((&job["state"], &job["user"]), (&"running".into(), &"alice".into()));
    assert_eq!((&job["account"], &job["queue"]), (&"physics".into(), &"long".into()));
    assert_eq!(job["devices"], serde_json::json!(["n1", "n2"]));
    run("epilogue.sh", &["77", "3"], "");
    let ended = report(&server.url, "site:77").unwrap();
    assert_eq!((&ended["job"]["state"], &ended["job"]["exit_code"]), (&"failed".into(), &3.into()));
    assert!(ended["allocations"][0]["stop"].is_number(), "{ended}");

    let with_token = ["jobs", "--token-file", file.to_str().unwrap()];
    let (code, _, errors) = jobmeter(&server.url, &with_token);
    assert!(code != 0 && errors.contains("not reading"), "{errors}");

    let (_, shown, _) = jobmeter(&server.url, &["job", "site:77"]);
    assert!(shown.contains("account               physics"), "{shown}");
    let (_, table, _) = jobmeter(&server.url, &["jobs"]);
    assert!(table.contains("account") && table.contains("n1,n2"), "{table}");
    // The command distinguishes a scheduler's job from a user's own.
    let start = |arguments: &[&str]| {
        let mut command = Command::new(programs_together().join("jobmeter"));
        command.args(["job", "start", "--server", &server.url]).args(arguments);
        output(&mut command)
    };
    let (code, _, errors) = start(&["--user", "alice"]);
    assert!(code == 2 && errors.contains("CLUSTER:ID"), "{errors}");
    let (code, _, errors) = start(&["local:7"]);
    assert!(code == 2 && errors.contains("local"), "{errors}");

    let mut post = Command::new(example("post.sh"));
    post.arg(&server.url)
        .env("TOKEN", token.trim())
        .stdin(std::fs::File::open(example("jobs.jsonl")).unwrap());
    let (code, out, errors) = output(post.stdout(Stdio::piped()));
    assert_eq!(code, 0, "{out}{errors}");
    assert!(
        report(&server.url, "site:1041").is_some_and(|report| is_the_examples(&report)),
        "{out}"
    );

    let query = "SELECT queue, requested_wall_seconds AS w FROM jobs WHERE job_id = 1041";
    let (_, rows, errors) = jobmeter(&server.url, &["sql", "--format", "csv", query]);
    assert_eq!(rows, "queue,w\nlong,7200\n", "{errors}");
    let query =
        "SELECT count(*) AS n FROM allocations WHERE job_id = 1041 AND device_id = 'pdu-1-port-7'";
    let (_, rows, errors) = jobmeter(&server.url, &["sql", "--format", "csv", query]);
    assert_eq!(rows, "n\n1\n", "{errors}");
}

#[test]
fn what_scheduler_and_nodes_disagree_in_is_listed() {
    if !root("what_scheduler_and_nodes_disagree_in_is_listed") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut up = Up::start(dir.path(), &["--period", "1s", "--device", "node-9"]);
    let agrees = jobmeter(&up.url, &["jobs", "--check"]);
    assert_eq!((agrees.0, &*agrees.1), (0, "schedulers and nodes agree\n"));
    let alive = |found: &Value| found[0]["alive"] == true && found[0]["device"] == "node-9";
    until("the agent's samples", SOON, || {
        let (_, nodes) = get(&up.url, "/api/v1/nodes");
        serde_json::from_str(&nodes).ok().filter(alive)
    });
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let line = format!(
        "{{\"cluster\":\"site\",\"id\":5,\"start\":{},\"nodes\":[{{\"device\":\"node-9\"}},{{\"device\":\"pdu-1\"}}]}}\n",
        now.as_secs() - 120
    );
    let mut post = Command::new(example("post.sh"));
    let mut child = post.arg(&up.url).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(line.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    let (code, table, errors) = jobmeter(&up.url, &["jobs", "--check"]);
    assert_eq!(code, 1, "{table}{errors}");
    let found: Vec<&str> = table.lines().skip(1).collect();
    // The meter pdu-1 has no agent, so a missing cgroup proves nothing there.
    let has = |line: &str, words: &[&str]| words.iter().all(|word| line.contains(word));
    assert!(
        found.len() == 2
            && has(found[0], &["site:5", "node-9", "not_seen"])
            && has(found[1], &["site:5", "pdu-1", "no_agent"]),
        "{table}"
    );
    let (code, json, _) = jobmeter(&up.url, &["jobs", "--check", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, &json[0]["device"]), (1, &"node-9".into()));
    // Other users have no access.
    let mut curl = Command::new("setpriv");
    curl.args(["--reuid=65534", "--clear-groups", "curl", "--silent", "--output", "/dev/null"]);
    curl.args(["--write-out", "%{http_code}", &format!("{}/api/v1/jobs/check", up.url)]);
    assert_eq!(output(&mut curl).1, "403");
    assert_eq!(up.running.end(), 0);
}
