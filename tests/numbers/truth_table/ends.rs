//! Jobs whose end, or the end of a part, is hard to observe.

use super::{FIRST, Job, Load, MEMORY, MIB, Row, SOON, Site, agent, interpreter, now, row, total};
use crate::common::programs::{get, until};
use crate::schedulers::restart_orders::report;
use serde_json::{Value, json};
use std::collections::VecDeque;

/// Number of jobs whose cgroup is removed at once.
const REMOVED: i64 = 100;
/// Number of these jobs that run in parallel, each with one task that computes: the load of the machine.
const AT_A_TIME: usize = 6;

/// Waits for a job's last process, and removes its cgroups.
fn gone_at_once((job, mut load): (Job, Load)) -> (Job, Load) {
    assert!(load.wait());
    job.remove();
    (job, load)
}

/// Jobs whose cgroup disappears with their last process. Returns the row with the largest error of each
/// quantity.
pub(super) fn removed_at_once(site: &mut Site) -> Vec<Row> {
    const CASE: &str = "cgroup removed with the last process";
    let mut jobs = Vec::new();
    let mut running = VecDeque::new();
    for id in 1000..1000 + REMOVED {
        if running.len() == AT_A_TIME {
            jobs.extend(running.pop_front().map(gone_at_once));
        }
        let job = site.job(id);
        let load = json!({"cpu": 0.3, "memory": 64});
        let load = site.load(interpreter(), &load, &job, FIRST);
        running.push_back((job, load));
    }
    jobs.extend(running.into_iter().map(gone_at_once));
    let rows = jobs.iter().map(|(job, load)| {
        let report = site.ended(job);
        [
            Row {
                quantity: "processor time, worst of 100 jobs",
                ..cpu(CASE, load.own("cpu"), &report)
            },
            row(
                [CASE, "peak memory, worst of 100 jobs", "MiB"],
                load.own("peak") / MIB,
                total(&report, "memory_peak_bytes").map(|bytes| bytes / MIB),
                // Pages that the interpreter touched before it joined the job count for the cgroup in which
                // it touched them.
                (0.05, 8.0),
            ),
        ]
    });
    let rows: Vec<[Row; 2]> = rows.collect();
    let worst = |place: usize| {
        let excess = |row: &Row| {
            let limit = row.truth * row.bound.0 + row.bound.1;
            row.error().map_or(f64::INFINITY, |error| error.abs() - limit)
        };
        rows.iter()
            .map(|pair| &pair[place])
            .max_by(|a, b| excess(a).total_cmp(&excess(b)))
            .map(|row| Row { ..*row })
    };
    [0, 1].into_iter().filter_map(worst).collect()
}

/// A task exceeds its job's memory limit, and its cgroup disappears with it.
pub(super) fn oom_kill(site: &mut Site) -> Vec<Row> {
    const CASE: &str = "OOM kill, cgroup removed at once";
    let job = site.job(2000);
    std::fs::write(job.file(MEMORY, "memory.limit_in_bytes"), "32M").unwrap();
    let mut load = site.load(interpreter(), &json!({"memory": 64}), &job, FIRST);
    assert!(!load.wait(), "the kernel kills the load at its limit");
    job.remove();
    let kills = |report: &Value| report["oom_kills"].as_array().map_or(0, Vec::len);
    // The registry has the kill slightly before the store has the samples of the same batch.
    let report = until("the job's OOM kill and peak memory", SOON, || {
        let is_known = |report: &Value| total(report, "memory_peak_bytes").is_some();
        Some(site.ended(&job)).filter(|report| kills(report) > 0 && is_known(report))
    });
    let mib = |bytes: Option<f64>| bytes.map(|bytes| bytes / MIB);
    let limit = mib(report["oom_kills"][0]["limit_bytes"].as_f64());
    let peak = mib(total(&report, "memory_peak_bytes"));
    vec![
        row([CASE, "killed tasks", "tasks"], 1.0, Some(kills(&report) as f64), (0.0, 0.0)),
        row([CASE, "limit", "MiB"], 32.0, limit, (0.0, 0.0)),
        // The charged memory cannot exceed the limit.
        row([CASE, "peak memory", "MiB"], 32.0, peak, (0.05, 0.0)),
    ]
}

/// A task exceeds its step's memory limit, which is less than the usage of an earlier step.
pub(super) fn oom_kill_in_step(site: &mut Site) -> Vec<Row> {
    const CASE: &str = "OOM kill in the smaller step";
    let job = site.job(2100);
    job.make_step("step_1");
    // Longer than the agent's period, so that the agent reads the step's charged memory.
    let load = json!({"cpu": 1.5, "memory": 128});
    let mut large = site.load(interpreter(), &load, &job, "step_1");
    assert!(large.wait());
    job.remove_step("step_1");
    let limit = job.steps(FIRST).find(|dir| dir.starts_with(MEMORY)).unwrap();
    std::fs::write(limit.join("memory.limit_in_bytes"), "32M").unwrap();
    let mut small = site.load(interpreter(), &json!({"memory": 64}), &job, FIRST);
    assert!(!small.wait(), "the kernel kills the load at its step's limit");
    job.remove();
    let report = until("the job's OOM kill", SOON, || {
        let is_killed = |report: &Value| report["oom_kills"][0].is_object();
        Some(site.ended(&job)).filter(is_killed)
    });
    let peak = total(&report, "memory_peak_bytes").map(|bytes| bytes / MIB);
    // Either the largest task, with its pages from before it joined, or the memory charged to the job.
    vec![row([CASE, "peak memory", "MiB"], large.own("peak") / MIB, peak, (0.05, 8.0))]
}

/// Builds the row for the processor time of a job whose cgroups disappear with their last processes.
///
/// A task frees its memory after the kernel sent its accounting (kernel/exit.c, `do_exit`, Linux 6.18). By
/// then the cgroup that counts this time is gone: 1 to 8 ms were measured for 64 MiB. On a busy machine 19 ms
/// were missing once in 400 jobs.
fn cpu(case: &'static str, truth: f64, report: &Value) -> Row {
    row([case, "processor time", "s"], truth, total(report, "cpu_seconds"), (0.01, 0.02))
}

/// Two consecutive steps; the first is removed before the second starts.
pub(super) fn steps(site: &mut Site) -> Vec<Row> {
    let job = site.job(3300);
    let mut truth = 0.0;
    for step in ["step_1", FIRST] {
        job.make_step(step);
        let mut load = site.load(interpreter(), &json!({"cpu": 0.4}), &job, step);
        assert!(load.wait());
        if step != FIRST {
            job.remove_step(step);
        }
        truth += load.own("cpu");
    }
    job.remove();
    vec![cpu("two steps, each removed with its last process", truth, &site.ended(&job))]
}

/// Two consecutive runs of one job ID, like a requeued job, with starts less than 1 s apart. The scheduler's
/// record has the times of both runs.
pub(super) fn reused_id(site: &mut Site) -> Vec<Row> {
    let runs = [("job ID used twice, first run", 0.6), ("job ID used twice, second run", 0.3)];
    let runs = runs.map(|(case, seconds)| {
        let start = now();
        let job = site.job(3400);
        let mut load = site.load(interpreter(), &json!({"cpu": seconds}), &job, FIRST);
        assert!(load.wait());
        job.remove();
        (case, start, now(), load.own("cpu"), job)
    });
    // The agent has sent what it read of both.
    site.read_node();
    for (_, start, stop, _, job) in &runs {
        site.record(&json!({
            "cluster": "slurm", "id": job.id, "submit": start, "start": start, "stop": stop,
        }));
    }
    until("both runs", SOON, || {
        let runs = site.ended(&runs[0].4)["runs"].as_array().unwrap().clone();
        let is_over = runs.iter().all(|run| run["stop"].is_number());
        (runs.len() == 2 && is_over).then_some(())
    });
    let rows = runs.map(|(case, start, _, truth, job)| {
        let path = format!("/api/v1/jobs/{}?start={}", job.name, start + 0.1);
        let (status, report) = get(&site.server.url, &path);
        assert_eq!(status, 200, "{report}");
        cpu(case, truth, &serde_json::from_str(&report).unwrap())
    });
    rows.into()
}

/// While a job runs, the agent is killed, then the server stops and restarts.
pub(super) fn restarts(site: &mut Site) -> Vec<Row> {
    let job = site.job(200);
    let load = json!({"cpu": 5, "children": 1, "memory": 16});
    let mut load = site.load(interpreter(), &load, &job, FIRST);
    until("the job's first samples", SOON, || report(&site.server.url, &job.name));
    site.agent.kill();
    site.agent = agent(&site.server.url, site.dir.path(), &site.slurm);
    assert_eq!(site.server.running.end(), 0);
    let data = site.dir.path().join("data");
    site.server.again(&data, &[]);
    assert!(load.wait());
    job.remove();
    let case = "agent killed and server restarted during the job";
    vec![cpu(case, load.own("cpu"), &site.ended(&job))]
}
