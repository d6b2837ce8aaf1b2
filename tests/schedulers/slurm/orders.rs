//! Restarts of Slurm together with the agent and the server, in the orders of `../restart_orders.rs`.

use super::cluster::Cluster;
use super::{FIRST, agent_of, cgroup_cpu_seconds, sacct_cpu_seconds};
use crate::common::programs::{Server, root};
use crate::schedulers::restart_orders::{RealScheduler, in_every_order};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::JoinHandle;

impl RealScheduler for Cluster {
    const CLUSTER: &str = "slurm";
    const NODE: &str = "n1";

    fn settings(&self) -> Vec<String> {
        let conf = self.conf().display().to_string();
        let period = ["--schedulers-slurm-period", "1s"];
        let arguments = ["--schedulers-slurm-commands", "--schedulers-slurm-conf", &conf];
        [&arguments[..], &period].concat().into_iter().map(str::to_owned).collect()
    }

    fn agent(&self, server: &Server, dir: &Path) -> Command {
        agent_of(Self::NODE, server, dir)
    }

    /// Slurm saves its state only when it stops cleanly, so the test never kills it.
    fn end(&mut self, _kill: bool) {
        self.end_controller();
    }

    fn start(&mut self) {
        self.start_controller();
    }

    fn path(&self, name: &str) -> PathBuf {
        Self::path(self, name)
    }

    fn submit(&self, file: &Path) -> i64 {
        let script = format!("{FIRST} until [ -e '{}' ]; do :; done; sleep 3", file.display());
        let options = ["-J", "through", "-A", "physics", "-n1", "-c1", "--mem=100", "-t", "5"];
        Self::submit(self, &options, &script)
    }

    fn counter(&self, id: i64) -> JoinHandle<f64> {
        cgroup_cpu_seconds(Self::NODE, id)
    }

    fn owned(job: &Value) -> bool {
        job["account"] == "physics" && job["user"] == "root"
    }

    fn accounted(job: &Value) -> bool {
        job["used"]["cpu_seconds"].is_number()
    }

    fn reported_cpu_seconds(&self, id: i64) -> Option<f64> {
        Some(sacct_cpu_seconds(self, id))
    }
}

#[test]
fn slurm_restarted_in_every_order() {
    let name = "slurm_restarted_in_every_order";
    if let Some(cluster) = root(name).then(|| Cluster::start(name, 1)).flatten() {
        in_every_order(cluster);
    }
}
