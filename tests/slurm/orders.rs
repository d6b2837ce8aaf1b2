//! Scheduler, agent and server restarted in every order while a job runs: first each after the other, then all of
//! them away together and back in that order. Each job is known, measured and accounted, and of what the agent
//! printed nothing is stored twice or missing without a gap that tells of it.

use super::cluster::Cluster;
use super::{
    FIRST, LATE, SOON, agent_of, cgroup_cpu_seconds, number, report, reported, sacct_cpu_seconds,
    state, within,
};
use crate::conservation::check;
use crate::oar::measured_anew;
use crate::programs::{Running, Server, get, root, until};
use serde_json::Value;
use std::fs::File;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug)]
enum Part {
    Scheduler,
    Agent,
    Server,
}
use Part::{Agent, Scheduler, Server as Store};

const ORDERS: [[Part; 3]; 6] = [
    [Scheduler, Agent, Store],
    [Scheduler, Store, Agent],
    [Agent, Scheduler, Store],
    [Agent, Store, Scheduler],
    [Store, Scheduler, Agent],
    [Store, Agent, Scheduler],
];

/// A cluster of one node, with everything that is restarted.
struct Site {
    cluster: Cluster,
    server: Server,
    agent: Running,
    settings: Vec<String>,
    data: tempfile::TempDir,
}

impl Site {
    fn start(test: &str) -> Option<Self> {
        let cluster = Cluster::start(test, 1)?;
        let conf = cluster.conf().display().to_string();
        let settings = [
            "--schedulers-slurm-commands",
            "--schedulers-slurm-conf",
            &conf,
            "--schedulers-slurm-period",
            "1s",
        ];
        let data = tempfile::tempdir().unwrap();
        let server = Server::start(data.path(), &settings);
        let settings = settings.map(str::to_owned).to_vec();
        let agent = agent(&server, &data);
        Some(Self { cluster, server, agent, settings, data })
    }

    /// Slurm saves its state when it is asked to end; the others are killed where that is wanted.
    fn end(&mut self, part: Part, kill: bool) {
        let running = match part {
            Scheduler => return self.cluster.end_controller(),
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
            Scheduler => self.cluster.start_controller(),
            Agent => self.agent = agent(&self.server, &self.data),
            Store => self.server.again(self.data.path(), &settings),
        }
    }

    fn restart(&mut self, order: [Part; 3]) {
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

/// The node's agent, which prints what it samples.
fn agent(server: &Server, data: &tempfile::TempDir) -> Running {
    let mut command = agent_of("n1", server, data.path());
    let file = File::options().create(true).append(true).open(printed(data)).unwrap();
    Running::start(command.arg("--print").stdout(file))
}

fn printed(data: &tempfile::TempDir) -> PathBuf {
    data.path().join("printed")
}

/// A job that was restarted around, and what its cgroup had used when it went.
struct Through {
    id: i64,
    order: [Part; 3],
    counter: JoinHandle<f64>,
}

#[test]
fn slurm_restarted_in_every_order() {
    let name = "slurm_restarted_in_every_order";
    let Some(mut site) = root(name).then(|| Site::start(name)).flatten() else { return };
    let jobs: Vec<Through> = ORDERS.map(|order| through(&mut site, order)).into();
    for job in jobs {
        accounted(&site, job);
    }
    // What the agent spooled at its end is sent by the next one.
    assert_eq!(site.agent.end(), 0, "{}", site.agent.errors());
    site.again(Agent);
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(site.agent.end(), 0);
    check(&site.server.url, &printed(&site.data), 2 * 6);
}

/// A job that works from before the restarts until after them, and then rests for longer than a period, so
/// that all of its work is read.
fn through(site: &mut Site, order: [Part; 3]) -> Through {
    let began = Instant::now();
    let after = site.cluster.path(&format!("after-{order:?}").replace([' ', ','], ""));
    let script = format!("{FIRST} until [ -e '{}' ]; do :; done; sleep 3", after.display());
    let options = ["-J", "through", "-A", "physics", "-n1", "-c1", "--mem=100", "-t", "5"];
    let id = site.cluster.submit(&options, &script);
    let measured = |report: &Value| number(&report["totals"]["cpu_seconds"]) > 0.2;
    reported(&site.server, id, "it is measured", measured);
    let counter = cgroup_cpu_seconds("n1", id);

    site.restart(order);
    measured_anew(&site.server.url, &format!("slurm:{id}"));
    until(&format!("Slurm answers after {order:?}"), SOON, || {
        let all: Value =
            serde_json::from_str(&get(&site.server.url, "/api/v1/schedulers").1).unwrap();
        (all[0]["state"] == "good").then_some(())
    });
    let report = report(&site.server, id).unwrap();
    assert_eq!(state(&report), "running", "{order:?}: {report}");
    whole(&report, order);
    assert_eq!(report["allocations"][0]["stop"], Value::Null, "{order:?}: {report}");
    std::fs::write(after, "").unwrap();
    println!("{order:?}: job {id}, {:.1} s", began.elapsed().as_secs_f64());
    Through { id, order, counter }
}

/// One run on the node, with what the scheduler says of it.
fn whole(report: &Value, order: [Part; 3]) {
    let (job, stays) = (&report["job"], report["allocations"].as_array().unwrap());
    assert_eq!(
        (&job["account"], &job["name"], &job["user"]),
        (&"physics".into(), &"through".into(), &"root".into()),
        "{order:?}: {report}"
    );
    assert_eq!(job["requested"]["wall_seconds"], 300.0, "{order:?}: {report}");
    assert!(stays.len() == 1 && stays[0]["device"] == "n1", "{order:?}: {report}");
}

/// The job has ended, and what is told of it is what the kernel and Slurm counted.
fn accounted(site: &Site, job: Through) {
    let Through { id, order, counter } = job;
    let ended = within(LATE, &site.server, id, "it ended and was accounted", |report| {
        state(report) == "ended"
            && report["job"]["used"]["cpu_seconds"].is_number()
            && !report["allocations"][0]["stop"].is_null()
    });
    whole(&ended, order);
    assert_eq!(ended["job"]["exit_code"], 0, "{order:?}: {ended}");
    let stored = number(&ended["totals"]["cpu_seconds"]);
    let (used, told) = (counter.join().unwrap(), sacct_cpu_seconds(&site.cluster, id));
    println!("{order:?}: job {id} used {stored} s, {used} s by its cgroup, {told} s by sacct");
    // Its shell's start and slurmstepd's end are work, too.
    assert!((stored - used).abs() <= 0.1 + used * 0.01, "{order:?}: {stored} s of {used} s");
    assert!((stored - told).abs() <= 0.3 + told * 0.01, "{order:?}: {stored} s of {told} s");
    let (_, jobs) = get(&site.server.url, "/api/v1/jobs?limit=100");
    let jobs: Value = serde_json::from_str(&jobs).unwrap();
    let runs = jobs.as_array().unwrap().iter().filter(|job| job["id"] == id).count();
    assert_eq!(runs, 1, "{order:?}: {jobs}");
}
