//! A running `jobmeter up`, and the command beside it.

use crate::common::programs::{self, Running, get, output, program, until};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A running `jobmeter up`.
pub(crate) struct Up {
    pub(crate) running: Running,
    pub(crate) url: String,
    _alone: MutexGuard<'static, ()>,
}

/// Serializes tests that have a server and run jobs in cgroups. The first job of every server has ID 1, and
/// the ID names its cgroup. So two servers on one node would share a cgroup (docs/guide/operator.md).
static ALONE: Mutex<()> = Mutex::new(());

/// Waits until no other test has a server and an agent.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Up {
    pub(crate) fn start(data: &Path, arguments: &[&str]) -> Self {
        let alone = alone();
        let mut command = Command::new(programs_together().join("jobmeter"));
        command.args(["up", "--data", data.to_str().unwrap(), "--listen", "127.0.0.1:0"]);
        command.args(arguments).stdout(Stdio::piped());
        // Not the jobs of this machine's schedulers, nor cgroups of a test that was killed.
        command.env("JOBMETER_JOBS_SCHEDULERS", "local");
        let mut running = Running::start(&mut command);
        let url = programs::ready(&mut running);
        Self { running, url, _alone: alone }
    }
}

/// Links the three programs into one folder, as in an installation.
pub(crate) fn programs_together() -> std::path::PathBuf {
    let dir = program("jobmeter").parent().unwrap().join("together");
    std::fs::create_dir_all(&dir).unwrap();
    for name in ["jobmeter", "jobmeter-server", "jobmeter-agent"] {
        // Tests run in parallel: create each link under a temporary name, and rename it in one step.
        let own = dir.join(format!(".{name}.{:?}", std::thread::current().id()));
        std::fs::remove_file(&own).ok();
        std::fs::hard_link(program(name), &own)
            .or_else(|_| std::fs::copy(program(name), &own).map(drop))
            .unwrap();
        std::fs::rename(&own, dir.join(name)).unwrap();
        std::fs::remove_file(&own).ok();
    }
    dir
}

pub(crate) fn jobmeter(url: &str, arguments: &[&str]) -> (i32, String, String) {
    let (command, rest) = arguments.split_first().unwrap();
    output(Command::new(program("jobmeter")).args([command, "--server", url]).args(rest))
}

/// Waits until a node is alive.
pub(crate) fn node_alive(url: &str) {
    until("samples of a node", Duration::from_secs(60), || {
        let (_, body) = get(url, "/api/v1/health");
        serde_json::from_str::<Value>(&body).unwrap()["nodes_alive"].as_u64().filter(|n| *n > 0)
    });
}
