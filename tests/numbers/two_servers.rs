//! Two servers on one node, each with an agent. Both run their first local job, which has ID 1, at the same
//! time, and neither agent reports the other server's job.

use crate::common::programs::{Running, Server, agent, program, root, until};
use crate::common::up::{alone, jobmeter, node_alive};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);
/// Waits until the other job has begun, so that both run at once. Then it uses this many seconds of processor
/// time.
const LOAD: &str = r#"
import os, sys, time
own, other, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
open(own, "w").close()
wait = 6000
while wait > 0 and not os.path.exists(other):
    time.sleep(0.01)
    wait -= 1
while time.process_time() < seconds:
    sum(range(10000))
"#;

/// A server, its agent and its job.
struct Site {
    name: &'static str,
    seconds: f64,
    server: Server,
    agent: Running,
}

impl Site {
    fn start((name, seconds): (&'static str, f64), dir: &Path) -> Self {
        let dir = dir.join(name);
        let server = Server::start(&dir.join("data"), &[]);
        let mut command = agent();
        command.args(["--server", &server.url, "--period", "1s", "--device", "node", "--spool"]);
        let agent = Running::start(command.arg(dir.join("spool")).stdout(Stdio::null()));
        node_alive(&server.url);
        Self { name, seconds, server, agent }
    }

    fn run(&self, other: &str, dir: &Path) -> Child {
        let mut command = Command::new(program("jobmeter"));
        command.args(["run", "--json", "--device", "node", "--server", &self.server.url, "--"]);
        command.arg(crate::numbers::truth::python()).args(["-c", LOAD]);
        command
            .args([self.name, other].map(|name| dir.join(format!("{name}.begun"))))
            .arg(self.seconds.to_string());
        command.stdout(Stdio::piped()).spawn().unwrap()
    }

    fn sql(&self, query: &str) -> Value {
        let (code, rows, errors) = jobmeter(&self.server.url, &["sql", "--format", "json", query]);
        assert_eq!(code, 0, "{errors}");
        serde_json::from_str(&rows).unwrap()
    }
}

#[test]
fn servers_on_one_node_do_not_attribute_each_others_jobs() {
    if !root("servers_on_one_node_do_not_attribute_each_others_jobs") {
        return;
    }
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let sites = [("one", 0.5), ("two", 2.0)].map(|site| Site::start(site, dir.path()));
    let [one, two] = &sites;
    let runs = [(one, two), (two, one)].map(|(site, other)| site.run(other.name, dir.path()));
    for run in runs {
        let output = run.wait_with_output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&report["id"], &report["exit_code"]), (&1.into(), &0.into()), "{report}");
    }
    for mut site in sites {
        let last = |metric: &str| {
            let rows = site.sql(&format!(
                "SELECT max(value) AS last FROM metrics WHERE job_id = 1 AND metric_id = '{metric}'"
            ));
            rows[0]["last"].as_f64()
        };
        let cpu = until("the agent's last samples of the job", SOON, || {
            let has_ended = last("taskstats_ended_tasks_total") >= Some(1.0);
            last("cgroup_cpu_seconds_total").filter(|_| has_ended)
        });
        // The upper bound includes the start of the interpreter.
        let own = site.seconds * 0.99..site.seconds + 1.0;
        assert!(own.contains(&cpu), "{}: {cpu} s", site.name);
        assert_eq!(last("taskstats_ended_tasks_total"), Some(1.0), "{}", site.name);
        let jobs = site.sql("SELECT job_id FROM jobs WHERE cluster = 'local'");
        assert_eq!(jobs.as_array().unwrap().len(), 1, "{}: {jobs}", site.name);
        assert_eq!(site.agent.end(), 0, "{}", site.agent.errors());
    }
}
