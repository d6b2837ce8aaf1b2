//! Slurm jobs that agents discover on their nodes and that Slurm reports: both result in one record of each
//! job.

mod cluster;
mod orders;

use crate::common::programs::{Running, Server, get, program, root, until};
use cluster::Cluster;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(40);
/// Limit for 30 s of processor time on a machine that other processes use too.
const LATE: Duration = Duration::from_secs(150);

/// Starts an agent on a virtual node, with its own host name and only the cgroups of that node's slurmd.
fn agent(node: &str, server: &Server, dir: &Path) -> Running {
    let mut command = agent_of(node, server, dir);
    // slurmstepd removes the cgroup with the last process, so usage after the last reading is lost.
    command.args(["--sources-cgroup-period", "100ms"]);
    Running::start(&mut command)
}

/// Returns the agent's command with the default source periods.
fn agent_of(node: &str, server: &Server, dir: &Path) -> Command {
    let agent = program("jobmeter-agent");
    let mut command = Command::new("unshare");
    command.args(["--uts", "sh", "-c", "hostname \"$0\" && exec \"$@\"", node]);
    command.arg(agent).args(["--server", &server.url, "--period", "1s"]);
    command.arg("--spool").arg(dir.join(format!("agent.{node}")));
    command.args(["--jobs-schedulers", "slurm", "--jobs-slurm-roots"]);
    command.arg(format!("/sys/fs/cgroup/freezer/slurm_{node}"));
    command
}

/// Returns the report of a job; `None` if the registry does not have the job.
fn report(server: &Server, id: i64) -> Option<Value> {
    crate::schedulers::restart_orders::report(&server.url, &format!("slurm:{id}"))
}

/// Returns the report as soon as it meets the condition.
fn reported(server: &Server, id: i64, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    within(SOON, server, id, what, wanted)
}

fn within(
    limit: Duration,
    server: &Server,
    id: i64,
    what: &str,
    wanted: impl Fn(&Value) -> bool,
) -> Value {
    crate::schedulers::restart_orders::within(limit, server, &format!("slurm:{id}"), what, wanted)
}

fn state(report: &Value) -> &str {
    report["job"]["state"].as_str().unwrap()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(-1.0)
}

fn freezer(node: &str, id: i64) -> PathBuf {
    format!("/sys/fs/cgroup/freezer/slurm_{node}/uid_0/job_{id}").into()
}

/// Waits for the cgroup of a job, then for the registry to list the job as running on that node.
fn seen_within_two_seconds(server: &Server, node: &str, id: i64) {
    let dir = freezer(node, id);
    until("its cgroup", SOON, || dir.is_dir().then_some(()));
    let made = Instant::now();
    reported(server, id, "it runs on its node", |report| {
        let nodes = report["allocations"].as_array().unwrap();
        state(report) == "running" && nodes.iter().any(|on| on["device"] == node)
    });
    let took = made.elapsed();
    assert!(took < Duration::from_secs(2), "job {id} was seen {took:?} after its cgroup was made");
}

/// Returns the last value of the job's own counter before its cgroup disappears, in seconds.
fn cgroup_cpu_seconds(node: &str, id: i64) -> std::thread::JoinHandle<f64> {
    let file = format!("/sys/fs/cgroup/cpuacct/slurm_{node}/uid_0/job_{id}/cpuacct.usage");
    std::thread::spawn(move || {
        let mut last = 0.0;
        while let Ok(text) = std::fs::read_to_string(&file) {
            last = text.trim().parse::<f64>().unwrap_or(0.0) / 1e9;
            std::thread::sleep(Duration::from_millis(10));
        }
        last
    })
}

/// Raises the job's autogroup priority, so that other processes do not determine its duration. At -15 instead
/// of -4, Slurm's own daemons starved while the job worked.
const FIRST: &str = "echo -4 > /proc/self/autogroup;";

/// Returns a script with two processes that use this many seconds of processor time each.
fn spin(seconds: u32) -> String {
    let one =
        format!("/usr/bin/python3 -c 'import time\nwhile time.process_time() < {seconds}: pass'");
    format!("{FIRST} {one} & {one} & wait")
}

fn near(what: &str, value: f64, other: f64) {
    assert!(
        (value - other).abs() <= other * 0.01,
        "{what}: {value} and {other} differ by more than 1 %"
    );
}

/// Returns sacct's processor time of a job, in seconds.
fn sacct_cpu_seconds(cluster: &Cluster, id: i64) -> f64 {
    let id = id.to_string();
    let text = cluster.request("sacct", &["-n", "-P", "-j", &id, "--format=TotalCPU"]);
    // The first line is the job's; the lines of its steps follow.
    let text = text.lines().next().unwrap();
    text.split(':').fold(0.0, |sum, part| sum * 60.0 + part.parse::<f64>().unwrap())
}

#[test]
fn slurm_on_one_node_through_restarts_of_everything() {
    let name = "slurm_on_one_node_through_restarts_of_everything";
    let Some(mut cluster) = root(name).then(|| Cluster::start(name, 1)).flatten() else { return };
    let conf = cluster.conf().display().to_string();
    let data = tempfile::tempdir().unwrap();
    let settings = [
        "--schedulers-slurm-commands",
        "--schedulers-slurm-conf",
        &conf,
        "--schedulers-slurm-period",
        "1s",
    ];
    let mut server = Server::start(data.path(), &settings);
    let mut on_node = agent("n1", &server, data.path());

    // Every part stops and restarts while the job runs.
    let job = cluster.submit(
        &[
            "-J",
            "spinner",
            "-A",
            "physics",
            "-n1",
            "-c2",
            "--mem=200",
            "-t",
            "10",
            "--comment=monitor=perf_.* quick",
        ],
        &spin(16),
    );
    seen_within_two_seconds(&server, "n1", job);
    let counter = cgroup_cpu_seconds("n1", job);
    let measured = |report: &Value| number(&report["totals"]["cpu_seconds"]) > 1.0;
    reported(&server, job, "it is measured while it runs", measured);
    cluster.end_controller();
    until("a round that fails", SOON, || {
        let all: Value = serde_json::from_str(&get(&server.url, "/api/v1/schedulers").1).unwrap();
        (all[0]["state"] == "failing").then_some(())
    });
    assert_eq!(state(&report(&server, job).unwrap()), "running");
    cluster.start_controller();
    assert_eq!(on_node.end(), 0);
    on_node = agent("n1", &server, data.path());
    assert_eq!(server.running.end(), 0);
    server.again(data.path(), &settings);

    let ended = within(LATE, &server, job, "it ended, was measured and accounted", |report| {
        let used = &report["job"]["used"];
        state(report) == "ended"
            && number(&used["cpu_seconds"]) > 30.0
            && number(&report["totals"]["cpu_seconds"]) > 30.0
            && !report["allocations"][0]["stop"].is_null()
    });
    let stored = number(&ended["totals"]["cpu_seconds"]);
    near("ours and sacct's", stored, sacct_cpu_seconds(&cluster, job));
    near("ours and the cgroup's", stored, counter.join().unwrap());
    let reported = &ended["job"];
    assert_eq!((&reported["name"], &reported["account"]), (&"spinner".into(), &"physics".into()));
    assert_eq!((&reported["user"], &reported["queue"]), (&"root".into(), &"main".into()));
    assert_eq!(reported["types"], serde_json::json!(["monitor=perf_.*", "quick"]));
    assert_eq!(
        (&reported["exit_code"], &reported["requested"]["wall_seconds"]),
        (&0.into(), &600.0.into())
    );
    assert_eq!(ended["nodes"][0]["cpu_list"], "0-1", "{ended}");
    assert_eq!(ended["steps"][0]["id"], "batch");

    memory_files_and_an_exit_code(&cluster, &server);
    assert_eq!(on_node.end(), 0);
}

fn memory_files_and_an_exit_code(cluster: &Cluster, server: &Server) {
    let file = cluster.path("written").display().to_string();
    let script = format!(
        "python3 -c 'b = b\"x\" * 100_000_000; import time; time.sleep(4)'; \
         dd if=/dev/zero of={file} bs=1M count=40 conv=fsync; sleep 2; exit 3"
    );
    let job = cluster.submit(&["--mem=400"], &script);
    seen_within_two_seconds(server, "n1", job);
    let ended = reported(server, job, "it failed and was accounted", |report| {
        state(report) == "failed"
            && number(&report["job"]["used"]["memory_bytes"]) > 90e6
            && number(&report["totals"]["io_write_bytes"]) > 40e6
    });
    assert_eq!(
        (&ended["job"]["exit_code"], &ended["job"]["state_word"]),
        (&3.into(), &"FAILED".into())
    );
    let peak = number(&ended["totals"]["memory_peak_bytes"]);
    assert!((100e6..400e6).contains(&peak), "{peak}");
    let waiting = cluster.submit(&["--hold"], "true");
    reported(server, waiting, "it waits", |report| state(report) == "waiting");
    cluster.request("scancel", &[&waiting.to_string()]);
    let cancelled = reported(server, waiting, "it was cancelled", |r| state(r) == "failed");
    assert_eq!(cancelled["job"]["start"], Value::Null, "it never started: {cancelled}");
}

/// Checks that each agent has its own node's part of a job, and no other node's.
fn parts_of_four_nodes(server: &Server, wide: i64) {
    let query = format!("/api/v1/series?job={wide}&cluster=slurm&metric=cgroup_cpu_seconds_total");
    let (status, series) = get(&server.url, &query);
    assert_eq!(status, 200, "{series}");
    let series: Value = serde_json::from_str(&series).unwrap();
    let mut devices: Vec<&str> =
        series.as_array().unwrap().iter().map(|s| s["device"].as_str().unwrap()).collect();
    devices.sort_unstable();
    devices.dedup();
    assert_eq!(devices, ["n1", "n2", "n3", "n4"]);
}

/// Waits until these promotions exist, each once, on these nodes, and requested by the job itself.
pub(crate) fn promoted(server: &Server, job: &str, nodes: &str, metrics: &[&str]) {
    let mut last = String::new();
    let deadline = Instant::now() + SOON;
    while Instant::now() < deadline {
        last = get(&server.url, "/api/v1/promotions").1;
        let listed: Vec<Value> = serde_json::from_str(&last).unwrap();
        let is_right =
            |one: &Value| one["job"] == job && one["origin"] == "job" && one["nodes"] == nodes;
        let mut have: Vec<_> = listed.iter().map(|one| one["metric"].as_str().unwrap()).collect();
        have.sort_unstable();
        if have == metrics && listed.iter().all(is_right) {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("not within {SOON:?}: promotions of {metrics:?}: {last}");
}

#[test]
fn slurm_on_four_nodes_by_slurmrestd() {
    let name = "slurm_on_four_nodes_by_slurmrestd";
    let Some(mut cluster) = root(name).then(|| Cluster::start(name, 4)).flatten() else { return };
    let place = format!("unix:{}", cluster.start_rest().display());
    let data = tempfile::tempdir().unwrap();
    let settings = ["--schedulers-slurm-rest", &place, "--schedulers-slurm-period", "1s"];
    let server = Server::start(data.path(), &settings);
    let mut agents: Vec<Running> =
        cluster.names().iter().map(|node| agent(node, &server, data.path())).collect();

    let wide = cluster.submit(
        &[
            "-J",
            "wide",
            "-N4",
            "-n4",
            "--mem=100",
            "-t",
            "5",
            "--comment=monitor=bmc_.*",
            "--export=ALL,JOBMETER_MONITOR=perf_.*",
        ],
        "srun sh -c \"echo -4 > /proc/self/autogroup; exec /usr/bin/python3 -c \
         'import time\nwhile time.process_time() < 8: pass'\"",
    );
    for node in cluster.names() {
        until("its cgroup", SOON, || freezer(&node, wide).is_dir().then_some(()));
    }
    seen_within_two_seconds(&server, "n4", wide);
    let (job, nodes) = (format!("slurm:{wide}"), "n1,n2,n3,n4");
    promoted(&server, &job, nodes, &["bmc_.*", "perf_.*"]);
    let array = cluster.submit(&["-J", "parts", "--array=1-6%2", "--mem=50"], "sleep 3");
    let waiting = reported(&server, array, "its elements wait", |r| state(r) == "waiting");
    assert_eq!(waiting["job"]["part_of"], array);

    let ended = within(LATE, &server, wide, "it ended on every node and was accounted", |report| {
        let used = number(&report["job"]["used"]["cpu_seconds"]);
        state(report) == "ended"
            && used > 30.0
            && number(&report["totals"]["cpu_seconds"]) >= used * 0.99
    });
    near(
        "ours and sacct's",
        number(&ended["totals"]["cpu_seconds"]),
        sacct_cpu_seconds(&cluster, wide),
    );
    promoted(&server, &job, nodes, &[]);
    parts_of_four_nodes(&server, wide);
    let used = &ended["job"]["used"];
    assert_eq!((&used["nodes"], &used["cpus"]), (&4.into(), &4.into()));
    assert_eq!(ended["steps"].as_array().unwrap().len(), 2, "{ended}");

    let elements = until("every element of the array", SOON, || {
        let (_, jobs) = get(&server.url, "/api/v1/jobs?limit=100");
        let jobs: Value = serde_json::from_str(&jobs).unwrap();
        let of = |job: &&Value| job["part_of"] == array && job["state"] == "ended";
        let mut display_ids: Vec<String> = jobs
            .as_array()
            .unwrap()
            .iter()
            .filter(of)
            .map(|job| job["display_id"].as_str().unwrap().to_owned())
            .collect();
        display_ids.sort();
        (display_ids.len() == 6).then_some(display_ids)
    });
    let expected: Vec<String> = (1..=6).map(|part| format!("{array}_{part}")).collect();
    assert_eq!(elements, expected);
    for agent in &mut agents {
        assert_eq!(agent.end(), 0);
    }
}
