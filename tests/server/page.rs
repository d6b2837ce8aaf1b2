//! The page of a job in a browser shows the data of the API.

use crate::common::programs::{Running, get, output, program, until};
use crate::common::up::Up;
use crate::repository::layers::repository;
use serde_json::Value;
use std::process::Command;
use std::time::Duration;

#[test]
fn the_page_of_a_real_job_shows_its_name_and_the_values_that_the_api_gives() {
    let dir = tempfile::tempdir().unwrap();
    let mut up = Up::start(dir.path(), &["--period", "1s", "--device", "node-9"]);
    let load = "end=$(($(date +%s) + 90)); while [ $(date +%s) -lt $end ]; do :; done";
    let mut command = Command::new(program("jobmeter"));
    command.args(["run", "--server", &up.url, "--name", "plotted", "--device", "node-9"]);
    let mut job = Running::start(command.args(["--", "sh", "-c", load]));
    let key = until("some samples of the job", Duration::from_secs(30), || {
        let (_, body) = get(&up.url, "/api/v1/jobs");
        let id = serde_json::from_str::<Value>(&body).ok()?[0]["id"].as_i64()?;
        let (_, body) = get(&up.url, &format!("/api/v1/jobs/local:{id}"));
        let report: Value = serde_json::from_str(&body).ok()?;
        (report["totals"]["wall_seconds"].as_f64()? > 10.0).then(|| format!("local:{id}"))
    });
    let mut page = Command::new("node");
    page.arg("tests/browser/page.mjs").arg(format!("{}/", up.url)).arg(&key);
    let (code, out, errors) = output(page.current_dir(repository()));
    assert_eq!(code, 0, "{out}\n{errors}");
    println!("{out}");
    // `run` forwards the signal to the command, and the command's end is the job's.
    assert_eq!(job.end(), 143);
    assert_eq!(up.running.end(), 0);
}
