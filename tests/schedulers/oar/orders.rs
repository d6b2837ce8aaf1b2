//! Restarts of OAR and its database together with the agent and the server, in the orders of `../restart_orders.rs`.

use super::{Machine, agent_of, last_seconds, settings};
use crate::common::programs::{Server, until};
use crate::schedulers::restart_orders::{RealScheduler, in_every_order};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::JoinHandle;
use std::time::Duration;

impl RealScheduler for Machine {
    const CLUSTER: &str = "oar";
    const NODE: &str = "oarnode1";

    fn settings(&self) -> Vec<String> {
        settings(self).into()
    }

    fn agent(&self, server: &Server, dir: &Path) -> Command {
        agent_of(&server.url, &dir.join("spool"))
    }

    /// OAR's server keeps no state, so the test always kills it. Its database may stop cleanly.
    fn end(&mut self, kill: bool) {
        self.run("server_stop");
        self.run(if kill { "database_kill" } else { "database_stop" });
    }

    fn start(&mut self) {
        self.run("database_start");
        self.run("server_start");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    fn submit(&self, file: &Path) -> i64 {
        let wanted = "-l /network_address=1/core=1,walltime=0:5:0";
        let script = format!("until [ -e {} ]; do :; done; sleep 3", file.display());
        let line = format!("-n through --project climate {wanted} '{script}'");
        let id = Self::submit(self, "games", &line)[0];
        // If OAR's server is killed while it ends a job, it never completes that end. That is outside this
        // test, so wait for it.
        let others =
            format!("SELECT count(*) FROM jobs WHERE state <> 'Terminated' AND job_id <> {id}");
        until("the end of the job before", Duration::from_secs(60), || {
            (self.read_text(&others).trim() == "0").then_some(())
        });
        id
    }

    fn counter(&self, id: i64) -> JoinHandle<f64> {
        std::thread::spawn(move || last_seconds(&format!("games_{id}")))
    }

    fn owned(job: &Value) -> bool {
        job["project"] == "climate" && job["user"] == "games"
    }

    fn accounted(job: &Value) -> bool {
        job["state_word"] == "Terminated" && job["used"]["wall_seconds"].is_number()
    }

    /// OAR does not count processor time.
    fn reported_cpu_seconds(&self, _id: i64) -> Option<f64> {
        None
    }
}

#[test]
fn oar_restarted_in_every_order() {
    if let Some(machine) = Machine::start("oar_restarted_in_every_order") {
        in_every_order(machine);
    }
}
