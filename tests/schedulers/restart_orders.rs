//! Restarts of scheduler, agent and server in every order while a job runs.
//!
//! First each part restarts after the other. Then all of them stop together, and start in that order. Each
//! job is known, measured and accounted. No printed sample is stored twice, and none is missing without a
//! gap. `slurm/orders.rs` and `oar/orders.rs` add a scheduler each.

use crate::common::programs::{Running, Server, get, until};
use crate::numbers::conservation::check;
use serde_json::Value;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(40);
/// Limit for the end of a job: a restarted scheduler reports it only after it has recovered.
const LATE: Duration = Duration::from_secs(150);

#[derive(Clone, Copy, Debug)]
enum Part {
    Scheduler,
    Agent,
    Server,
}
use Part::{Agent, Scheduler, Server as Store};

type Order = [Part; 3];

const ORDERS: [Order; 6] = [
    [Scheduler, Agent, Store],
    [Scheduler, Store, Agent],
    [Agent, Scheduler, Store],
    [Agent, Store, Scheduler],
    [Store, Scheduler, Agent],
    [Store, Agent, Scheduler],
];

/// A scheduler with one node, initially idle.
pub(crate) trait RealScheduler {
    /// Cluster name, the prefix of its jobs' keys.
    const CLUSTER: &str;
    /// Name of the node.
    const NODE: &str;

    /// Flags of a server that polls this scheduler.
    fn settings(&self) -> Vec<String>;

    /// Returns the command of the node's agent, with default source periods and its spool in that folder.
    fn agent(&self, server: &Server, dir: &Path) -> Command;

    /// Stops the scheduler. `kill` stops it at once, if that is possible.
    fn end(&mut self, kill: bool);

    fn start(&mut self);

    /// Returns the path of a file that the jobs can see.
    fn path(&self, name: &str) -> PathBuf;

    /// Submits a job `through` of at most five minutes. It works until the file exists, then rests for longer
    /// than a source's period, so that the agent reads all of its work.
    fn submit(&self, file: &Path) -> i64;

    /// Reads a job's own counter of processor time, in seconds, until its cgroup disappears.
    fn counter(&self, id: i64) -> JoinHandle<f64>;

    /// Returns whether a job has data that only this scheduler has, such as its owner.
    fn owned(job: &Value) -> bool;

    /// Returns whether a job has the data that this scheduler reports of ended jobs.
    fn accounted(job: &Value) -> bool;

    /// Returns the processor time in seconds that the scheduler counted; `None` if it counts none.
    fn reported_cpu_seconds(&self, id: i64) -> Option<f64>;
}

/// A cluster of one node, with every part that restarts.
struct Site<S> {
    server: Server,
    agent: Running,
    settings: Vec<String>,
    data: tempfile::TempDir,
    scheduler: S,
}

impl<S: RealScheduler> Site<S> {
    fn start(scheduler: S) -> Self {
        let settings = scheduler.settings();
        let data = tempfile::tempdir().unwrap();
        let flags: Vec<&str> = settings.iter().map(String::as_str).collect();
        let server = Server::start(data.path(), &flags);
        let agent = agent(&scheduler, &server, data.path());
        Self { server, agent, settings, data, scheduler }
    }

    /// Stops a part. The scheduler saves its state when it stops cleanly; the others can be killed.
    fn end(&mut self, part: Part, kill: bool) {
        let running = match part {
            Scheduler => return self.scheduler.end(kill),
            Agent => &mut self.agent,
            Store => &mut self.server.running,
        };
        if kill {
            running.kill();
        } else {
            assert_eq!(running.end(), 0, "{part:?}: {}", running.errors());
        }
    }

    fn again(&mut self, part: Part) {
        let settings: Vec<&str> = self.settings.iter().map(String::as_str).collect();
        match part {
            Scheduler => self.scheduler.start(),
            Agent => self.agent = agent(&self.scheduler, &self.server, self.data.path()),
            Store => self.server.again(self.data.path(), &settings),
        }
    }

    fn restart(&mut self, order: Order) {
        for part in order {
            self.end(part, false);
            self.again(part);
        }
        for part in order {
            self.end(part, true);
        }
        for part in order {
            self.again(part);
        }
    }
}

/// Starts the node's agent, which also prints its samples.
fn agent(scheduler: &impl RealScheduler, server: &Server, data: &Path) -> Running {
    let mut command = scheduler.agent(server, data);
    let file = File::options().create(true).append(true).open(printed(data)).unwrap();
    Running::start(command.arg("--print").stdout(file))
}

fn printed(data: &Path) -> PathBuf {
    data.join("printed")
}

/// A job that runs during the restarts, and the last value of its cgroup's counter.
struct Through {
    id: i64,
    order: Order,
    counter: JoinHandle<f64>,
}

/// Runs a job for every order, and restarts all parts during it.
pub(crate) fn in_every_order<S: RealScheduler>(scheduler: S) {
    let mut site = Site::start(scheduler);
    let jobs: Vec<Through> = ORDERS.map(|order| through(&mut site, order)).into();
    for job in jobs {
        accounted(&site, job);
    }
    // The next agent sends the samples that this one spooled when it stopped.
    assert_eq!(site.agent.end(), 0, "{}", site.agent.errors());
    site.again(Agent);
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(site.agent.end(), 0);
    check(&site.server.url, &printed(site.data.path()), 2 * 6);
}

/// Runs a job from before the restarts until after them.
fn through<S: RealScheduler>(site: &mut Site<S>, order: Order) -> Through {
    let began = Instant::now();
    let after = format!("after-{order:?}").replace([' ', ','], "");
    let after = site.scheduler.path(&after);
    let id = site.scheduler.submit(&after);
    let name = format!("{}:{id}", S::CLUSTER);
    // Until the scheduler reports the job as running, its node may not have it yet, and a restart would abort
    // it.
    within(SOON, &site.server, &name, "it is measured, and told to run", |report| {
        let reported = report["job"]["state_word"].as_str().unwrap_or_default();
        report["totals"]["cpu_seconds"].as_f64() > Some(0.2)
            && reported.eq_ignore_ascii_case("running")
    });
    let counter = site.scheduler.counter(id);

    site.restart(order);
    measured_again(&site.server.url, &name, &["cgroup_cpu_seconds_total"]);
    until(&format!("the scheduler answers after {order:?}"), SOON, || {
        let all: Value =
            serde_json::from_str(&get(&site.server.url, "/api/v1/schedulers").1).unwrap();
        (all[0]["state"] == "ok").then_some(())
    });
    let report = report(&site.server.url, &name).unwrap();
    assert_eq!(report["job"]["state"], "running", "{order:?}: {report}");
    whole::<S>(&report, order);
    assert_eq!(report["allocations"][0]["stop"], Value::Null, "{order:?}: {report}");
    std::fs::write(after, "").unwrap();
    println!("{order:?}: job {id}, {:.1} s", began.elapsed().as_secs_f64());
    Through { id, order, counter }
}

/// Checks that the job has one run on the node, with the scheduler's data.
fn whole<S: RealScheduler>(report: &Value, order: Order) {
    let (job, allocations) = (&report["job"], report["allocations"].as_array().unwrap());
    assert!(S::owned(job) && job["name"] == "through", "{order:?}: {report}");
    assert_eq!(job["requested"]["wall_seconds"], 300.0, "{order:?}: {report}");
    assert!(allocations.len() == 1 && allocations[0]["device"] == S::NODE, "{order:?}: {report}");
}

/// Waits for the end of the job, and checks that its report matches the kernel's and the scheduler's counts.
fn accounted<S: RealScheduler>(site: &Site<S>, job: Through) {
    let Through { id, order, counter } = job;
    let name = format!("{}:{id}", S::CLUSTER);
    let ended = within(LATE, &site.server, &name, "it ended and was accounted", |report| {
        report["job"]["state"] == "ended"
            && S::accounted(&report["job"])
            && !report["allocations"][0]["stop"].is_null()
    });
    whole::<S>(&ended, order);
    assert_eq!(ended["job"]["exit_code"], 0, "{order:?}: {ended}");
    let stored = ended["totals"]["cpu_seconds"].as_f64().unwrap();
    let (used, reported) = (counter.join().unwrap(), site.scheduler.reported_cpu_seconds(id));
    println!("{order:?}: job {id} used {stored} s, {used} s by its cgroup, {reported:?} s as told");
    // The start of the job's shell and its end use processor time too.
    assert!((stored - used).abs() <= 0.1 + used * 0.01, "{order:?}: {stored} s of {used} s");
    if let Some(reported) = reported {
        assert!(
            (stored - reported).abs() <= 0.3 + reported * 0.01,
            "{order:?}: {stored} s of {reported} s"
        );
    }
    let (_, jobs) = get(&site.server.url, "/api/v1/jobs?limit=100");
    let jobs: Value = serde_json::from_str(&jobs).unwrap();
    let is_it = |job: &&Value| job["cluster"] == S::CLUSTER && job["id"] == id;
    let runs = jobs.as_array().unwrap().iter().filter(is_it).count();
    assert_eq!(runs, 1, "{order:?}: {jobs}");
}

/// Returns the report of a job, `CLUSTER:ID`; `None` if the registry does not have the job.
pub(crate) fn report(url: &str, job: &str) -> Option<Value> {
    let (status, body) = get(url, &format!("/api/v1/jobs/{job}"));
    (status == 200).then(|| serde_json::from_str(&body).unwrap())
}

/// Returns the report of a job, `CLUSTER:ID`, as soon as it meets the condition.
pub(crate) fn within(
    limit: Duration,
    server: &Server,
    job: &str,
    what: &str,
    wanted: impl Fn(&Value) -> bool,
) -> Value {
    let mut last = None;
    let deadline = Instant::now() + limit;
    while Instant::now() < deadline {
        last = report(&server.url, job).or(last);
        if let Some(report) = last.as_ref().filter(|report| wanted(report)) {
            return report.clone();
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let schedulers = get(&server.url, "/api/v1/schedulers").1;
    panic!("{job}: not within {limit:?}: {what}: {last:?}\n{schedulers}");
}

/// Waits for a new sample of each metric of the job, `CLUSTER:ID`.
pub(crate) fn measured_again(url: &str, job: &str, metrics: &[&str]) {
    let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let began = now().as_secs_f64();
    for metric in metrics {
        let path = format!("/api/v1/last?metric={metric}&job={job}");
        until("the job is measured again", Duration::from_secs(40), || {
            let last: Value = serde_json::from_str(&get(url, &path).1).ok()?;
            (last[0]["time"].as_f64()? > began).then_some(())
        });
    }
}
