//! Faults of a node that must not affect other sources or nodes.

use crate::common::programs::{Running, Server, get, program, root, until};
use crate::repository::layers::repository;
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

/// Mounts a FUSE file system without a daemon, in a mount namespace of its own, and executes the agent.
const HANGING: &str = "exec 3<>/dev/fuse; \
    mount -i -t fuse -o fd=3,rootmode=40000,user_id=0,group_id=0 hanging $0 && exec \"$@\"";

#[test]
fn a_mount_that_hangs_delays_no_other_source() {
    if !root("a_mount_that_hangs_delays_no_other_source") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (mount, spool) = (dir.path().join("mount"), dir.path().join("spool"));
    let printed = dir.path().join("printed");
    for folder in [&mount, &spool] {
        std::fs::create_dir(folder).unwrap();
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", HANGING]).arg(&mount).arg(program("jobmeter-agent"));
    command.args(["--server", "http://127.0.0.1:1", "--device", "n1", "--period", "1s", "--print"]);
    command.args(["--sources-filesystem-types", "fuse", "--sources-filesystem-period", "1s"]);
    command.args(["--sources-agent-period", "1s", "--spool"]).arg(&spool);
    let mut agent = Running::start(command.stdout(std::fs::File::create(&printed).unwrap()));
    until("ten ticks", Duration::from_secs(30), || {
        (seconds_of(&printed, "load_1m\t").len() > 10).then_some(())
    });
    assert!(
        agent.errors().contains("source filesystem: its reading took longer"),
        "{}",
        agent.errors()
    );
    assert_eq!(agent.end(), 0, "{}", agent.errors());
    for metric in ["load_1m\t", "cpu_user_seconds_total\t", "memory_available_bytes\t"] {
        let ticks = seconds_of(&printed, metric);
        let whole = ticks.windows(2).all(|pair| (pair[1] - pair[0]).rem_euclid(86_400) == 1);
        assert!(ticks.len() > 10 && whole, "{metric}: {ticks:?}");
    }
    let reported = |metric: &str| {
        let text = std::fs::read_to_string(&printed).unwrap();
        let of_it = |line: &&str| line.starts_with(metric) && line.contains("\"filesystem\"");
        text.lines().rfind(of_it).and_then(|line| line.rsplit('\t').next()?.parse::<f64>().ok())
    };
    assert_eq!(reported("agent_source_parked\t"), Some(1.0));
    assert_eq!(reported("agent_source_timeouts_total\t"), Some(1.0));
}

/// Returns the seconds at which a metric was printed.
fn seconds_of(printed: &Path, metric: &str) -> Vec<i64> {
    let text = std::fs::read_to_string(printed).unwrap();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let lines = whole.lines().filter(|line| line.starts_with(metric));
    lines
        .map(|line| {
            let at = line.split('\t').nth(4).unwrap();
            let (time, _) = at.split_once('T').unwrap().1.split_once('+').unwrap();
            let parts: Vec<i64> = time.split(':').map(|part| part.parse().unwrap()).collect();
            parts.iter().fold(0, |sum, part| sum * 60 + part)
        })
        .collect()
}

/// A job's cgroup disappears while its agent is dead. The next agent reports the job's end, with the time of
/// the agent's death.
#[test]
fn a_job_that_ends_while_its_agent_is_dead_has_ended() {
    let dir = tempfile::tempdir().unwrap();
    let (node, spool) = (dir.path().join("node"), dir.path().join("spool"));
    let recorded = repository().join("testdata/hosts/slurm-v2/1");
    let copied = Command::new("cp").arg("-r").args([&recorded, &node]).status().unwrap();
    assert!(copied.success());
    let server = Server::start(&dir.path().join("data"), &[]);
    let start = || {
        let mut command = Command::new(program("jobmeter-agent"));
        command.args(["--server", &server.url, "--device", "n1", "--period", "1s"]);
        Running::start(command.arg("--spool").arg(&spool).arg("--root").arg(&node))
    };
    let job = |id: u32| -> Option<Value> {
        let (status, body) = get(&server.url, &format!("/api/v1/jobs/slurm:{id}"));
        (status == 200).then(|| serde_json::from_str(&body).unwrap())
    };
    let mut agent = start();
    until("the jobs", Duration::from_secs(20), || job(42).and(job(43)));
    std::thread::sleep(Duration::from_secs(2));
    agent.kill();
    let died = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64();
    let gone = node.join("sys/fs/cgroup/system.slice/slurmstepd.scope/job_42");
    std::fs::remove_dir_all(gone).unwrap();
    std::thread::sleep(Duration::from_secs(3));
    let mut agent = start();
    let ended = || job(42).filter(|job| job["job"]["state"] == "ended");
    let ended = until("the end of job 42", Duration::from_secs(30), ended);
    let stop = ended["job"]["stop"].as_f64().unwrap();
    assert!((died - 4.0..died + 1.0).contains(&stop), "{stop}, and the agent died at {died}");
    assert_eq!(job(43).unwrap()["job"]["state"], "running");
    assert_eq!(agent.end(), 0, "{}", agent.errors());
}

/// Without a spool, an agent does not know since when it was down. The server does, and reports the gap.
#[test]
fn an_agent_without_a_spool_that_was_down_leaves_a_gap_that_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    let start = || {
        let mut command = Command::new(program("jobmeter-agent"));
        command.args(["--server", &server.url, "--device", "n1", "--period", "1s"]);
        Running::start(command.args(["--spool", "none"]))
    };
    let samples = || -> Option<usize> {
        let (_, body) = get(&server.url, "/rpc/get_metrics?devices=n1&metrics=load_1m");
        let rows: Value = serde_json::from_str(&body).ok()?;
        Some(rows.as_array()?.len()).filter(|rows| *rows >= 3)
    };
    let mut agent = start();
    until("samples", Duration::from_secs(20), samples);
    agent.kill();
    let gaps = || -> Vec<Value> {
        let (_, body) = get(&server.url, "/api/v1/gaps");
        serde_json::from_str(&body).unwrap()
    };
    assert_eq!(gaps(), Vec::<Value>::new(), "a first start is no gap");
    std::thread::sleep(Duration::from_secs(4));
    let mut agent = start();
    let gap = until("the gap", Duration::from_secs(20), || gaps().into_iter().next());
    let (from, to) = (gap["from"].as_f64().unwrap(), gap["to"].as_f64().unwrap());
    assert_eq!(gap["cause"], "agent down");
    assert!((3.0..12.0).contains(&(to - from)), "{gap}");
    assert_eq!(agent.end(), 0, "{}", agent.errors());
}
