//! On-demand requests to a running agent: optional metrics, and flushes of its burst buffer.

use crate::common::programs::{Running, Server, get, program, until};
use crate::repository::layers::repository;
use serde_json::Value;
use std::process::Command;
use std::time::{Duration, SystemTime};

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
}

/// Returns the timestamps of all samples of a metric, in the server's format.
fn times(server: &Server, metric: &str) -> Vec<String> {
    let (_, body) = get(&server.url, &format!("/rpc/get_metrics?devices=n1&metrics={metric}"));
    let rows: Value = serde_json::from_str(&body).unwrap();
    let rows = rows.as_array().unwrap();
    rows.iter().map(|row| row["timestamp"].as_str().unwrap().to_owned()).collect()
}

/// Counts timestamps with a fraction of a second, which lie between two ticks.
fn between(times: &[String]) -> usize {
    times.iter().filter(|at| at.contains('.')).count()
}

#[test]
fn a_request_of_the_server_begins_and_ends_and_a_jobs_end_sends_the_burst() {
    let dir = tempfile::tempdir().unwrap();
    let (node, arguments) = (dir.path().join("node"), dir.path().join("asked.toml"));
    let recorded = repository().join("testdata/hosts/slurm-v2/1");
    let copied = Command::new("cp").arg("-r").args([&recorded, &node]).status().unwrap();
    assert!(copied.success());
    std::fs::write(node.join("proc/loadavg"), "0.50 0.25 0.10 1/123 4567\n").unwrap();
    std::fs::write(node.join("proc/uptime"), "350.10 600.20\n").unwrap();
    std::fs::write(&arguments, "").unwrap();
    let data = dir.path().join("data");
    let server = Server::start(&data, &["--agent-config", arguments.to_str().unwrap()]);
    let own = dir.path().join("agent.toml");
    let text = "[sources.load]\noptional = true\n[remote]\nallow = [\"promotions\", \"bursts\"]\n";
    std::fs::write(&own, text).unwrap();
    let mut command = Command::new(program("jobmeter-agent"));
    command.args(["--server", &server.url, "--device", "n1", "--period", "1s", "--config"]);
    command.arg(&own).arg("--spool").arg(dir.path().join("spool")).arg("--root").arg(&node);
    let mut agent = Running::start(&mut command);
    let patience = Duration::from_secs(20);
    until("samples", patience, || (times(&server, "uptime_seconds").len() >= 2).then_some(()));
    assert_eq!(times(&server, "load_1m"), [""; 0], "nobody asked for it");

    let end = now() + 5;
    let text = format!(
        "[[promote]]\nmetric = \"load_1m\"\nuntil = {end}\n[burst.uptime]\nperiod = \"100ms\"\n\
         keep = \"30s\"\nflush_on = [\"job_end\"]\nuntil = {}\n",
        end + 60
    );
    std::fs::write(&arguments, text).unwrap();
    server.running.signal("HUP");
    until("what was asked for", patience, || times(&server, "load_1m").into_iter().next());
    until("its end", patience, || (now() >= end + 2).then_some(()));
    let promoted = times(&server, "load_1m");
    assert!((2..=6).contains(&promoted.len()), "{promoted:?}");
    assert_eq!(times(&server, "load_15m"), [""; 0], "it was not named");
    assert_eq!(get(&server.url, "/api/v1/gaps").1.trim(), "[]", "an end is no gap");
    assert_eq!(between(&times(&server, "uptime_seconds")), 0, "it is kept");

    let job = node.join("sys/fs/cgroup/system.slice/slurmstepd.scope/job_42");
    std::fs::remove_dir_all(job).unwrap();
    until("what was kept", patience, || {
        (between(&times(&server, "uptime_seconds")) >= 30).then_some(())
    });
    let mut each = times(&server, "uptime_seconds");
    let all = each.len();
    each.sort_unstable();
    each.dedup();
    assert_eq!(each.len(), all, "nothing comes twice");
    assert_eq!(times(&server, "load_1m"), promoted, "it has ended for good");
    assert_eq!(agent.end(), 0, "{}", agent.errors());
}
