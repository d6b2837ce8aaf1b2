//! Restarts of the agent during a running job: the counters of taskstats (accounting of exited tasks)
//! continue, or a gap covers the missing part.

use crate::common::programs::{Running, Server, get, program, root, until};
use crate::common::up::{alone, jobmeter, node_alive};
use crate::numbers::truth::python;
use crate::schedulers::restart_orders::report;
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Computes and writes until a stop file exists. Then it reports its processor time in seconds, its voluntary
/// context switches, and the bytes of its write calls.
const LOAD: &str = r#"
import os, resource, sys, time
out = os.open(sys.argv[1] + "/written", os.O_WRONLY | os.O_CREAT)
while not os.path.exists(sys.argv[1] + "/stop"):
    until = time.process_time() + 0.02
    while time.process_time() < until:
        pass
    os.pwrite(out, bytes(64 << 10), 0)
    time.sleep(0.02)
used = resource.getrusage(resource.RUSAGE_SELF)
io = dict(line.split(": ") for line in open("/proc/self/io").read().splitlines())
with open(sys.argv[1] + "/used", "w") as file:
    file.write("%f %d %s" % (used.ru_utime + used.ru_stime, used.ru_nvcsw, io["wchar"]))
os._exit(0)
"#;

fn start_agent(url: &str, spool: &Path) -> Running {
    Running::agent(url, "restarts", spool)
}

fn start_load(url: &str, dir: &Path) -> Child {
    let mut command = Command::new(program("jobmeter"));
    command.args(["run", "--server", url, "--device", "restarts", "--json", "--"]);
    command.args([&*python(), "-c", LOAD]).arg(dir);
    command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

/// Ends the load, waits for the job's last samples, and returns the job's ID and the load's own counts.
fn end_load(load: Child, dir: &Path) -> (i64, [f64; 3]) {
    std::fs::write(dir.join("stop"), "").unwrap();
    let output = load.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let used = std::fs::read_to_string(dir.join("used")).unwrap();
    let mut used = used.split(' ').map(|number| number.parse().unwrap());
    (report["id"].as_i64().unwrap(), std::array::from_fn(|_| used.next().unwrap()))
}

const METRICS: [&str; 3] = [
    "taskstats_cpu_run_virtual_seconds_total",
    "taskstats_voluntary_switches_total",
    "taskstats_write_char_bytes_total",
];

/// Returns the last value of each counter, once the job's end is stored.
fn stored(url: &str, id: i64) -> [f64; 3] {
    until("the job's last samples", Duration::from_secs(30), || {
        let query = format!(
            "SELECT metric_id, max(value) AS value FROM metrics WHERE job_id = {id} GROUP BY metric_id"
        );
        let (_, out, _) = jobmeter(url, &["sql", "--format", "json", &query]);
        let rows: Vec<Value> = serde_json::from_str(&out).ok()?;
        let value = |metric: &str| {
            rows.iter().find(|row| row["metric_id"] == metric).and_then(|row| row["value"].as_f64())
        };
        value("taskstats_ended_tasks_total").filter(|ended| *ended >= 1.0)?;
        Some(METRICS.map(|metric| value(metric).unwrap()))
    })
}

/// Returns the increase of a counter over the job, across all starts of the agent.
fn increase(url: &str, id: i64, metric: &str) -> f64 {
    let report = report(url, &format!("local:{id}")).unwrap();
    let line = report["metrics"].as_array().unwrap().iter().find(|line| line["metric"] == metric);
    line.and_then(|line| line["increase"].as_f64()).unwrap_or_else(|| panic!("{metric}: {report}"))
}

fn gap_causes(url: &str, source: &str) -> Vec<String> {
    let (status, body) = get(url, "/api/v1/gaps?start=0&end=now");
    assert_eq!(status, 200, "{body}");
    let rows: Vec<Value> = serde_json::from_str(&body).unwrap();
    let of_source = rows.iter().filter(|row| row["source"] == source);
    of_source.map(|row| row["cause"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn counters_survive_restarts_and_gaps_cover_kills() {
    if !root("counters_survive_restarts_and_gaps_cover_kills") {
        return;
    }
    // `make soak` restarts and kills the agent 50 times.
    let restarts = std::env::var("RESTARTS").ok().and_then(|it| it.parse().ok()).unwrap_or(3);
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let (spool, first, second) =
        (dir.path().join("spool"), dir.path().join("1"), dir.path().join("2"));
    [&spool, &first, &second].iter().for_each(|dir| std::fs::create_dir(dir).unwrap());
    let server = Server::start(&dir.path().join("data"), &[]);
    let mut agent = start_agent(&server.url, &spool);
    node_alive(&server.url);

    let load = start_load(&server.url, &first);
    for round in 0..restarts {
        std::thread::sleep(Duration::from_millis(1500 + round % 7 * 130));
        assert_eq!(agent.end(), 0, "{}", agent.errors());
        agent = start_agent(&server.url, &spool);
    }
    std::thread::sleep(Duration::from_millis(1500));
    let (id, used) = end_load(load, &first);
    let found = stored(&server.url, id);
    println!("{restarts} restarts: stored {found:?}, used {used:?}");
    assert!((found[0] - used[0]).abs() <= used[0] * 0.01 + 0.02, "{found:?}, used {used:?}");
    assert!((found[1] - used[1]).abs() <= used[1] * 0.02 + 5.0, "{found:?}, used {used:?}");
    // The report of the load itself is written too, and the kernel reports whole KiB.
    assert!((found[2] - used[2]).abs() <= 2048.0, "{found:?}, used {used:?}");
    let clean = gap_causes(&server.url, "taskstats").len();
    assert!(clean >= 1, "a restart is reported");

    let load = start_load(&server.url, &second);
    for round in 0..restarts {
        std::thread::sleep(Duration::from_millis(1500 + round % 7 * 130));
        agent.kill();
        agent = start_agent(&server.url, &spool);
    }
    std::thread::sleep(Duration::from_millis(2500));
    let (id, used) = end_load(load, &second);
    stored(&server.url, id);
    let found = METRICS.map(|metric| increase(&server.url, id, metric));
    println!("{restarts} kills: {found:?}, used {used:?}");
    for (found, used) in found.iter().zip(used) {
        assert!(*found <= used * 1.01 + 2048.0, "{found} of {used}");
    }
    assert!(found[0] <= used[0] * 1.01 + 0.02, "no time counts twice: {found:?}, used {used:?}");
    // Includes the cgroup's counts for the time in which no agent observed the tasks.
    let whole = increase(&server.url, id, "taskstats_job_cpu_seconds_total");
    assert!((whole - used[0]).abs() <= used[0] * 0.01 + 0.02, "{whole}, used {used:?}");
    let causes = gap_causes(&server.url, "taskstats");
    assert!(causes.len() > clean && causes.contains(&"agent down".to_owned()), "{causes:?}");
    assert_eq!(agent.end(), 0, "{}", agent.errors());
}
