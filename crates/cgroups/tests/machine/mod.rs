//! A machine in a temporary directory.

#![allow(dead_code, reason = "each test uses only a part of it")]
#![expect(clippy::unwrap_used, reason = "a test that cannot prepare its machine fails")]

use cgroups::{Changes, Config, Discovery, JobCgroup, Jobs, RejectionReason};
use kernel::Root;
use model::{ClusterId, JobId, JobKey, Timestamp};
use std::path::PathBuf;

/// A machine in a temporary directory, its discovery and its jobs.
pub(crate) struct Machine {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) root: Root,
    pub(crate) discovery: Discovery,
    pub(crate) jobs: Jobs,
    now: i64,
}

impl Machine {
    pub(crate) fn new(mounts: &str, config: Config) -> Self {
        // In memory, if possible: thousands of directories are slow on a busy disk.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let root = Root::recorded(dir.path()).unwrap();
        let machine = Self {
            dir,
            root,
            discovery: Discovery::new(config),
            jobs: Jobs::default(),
            now: 1_800_000_000,
        };
        machine.write("proc/stat", "btime 1700000000\n");
        machine.write("proc/self/mounts", mounts);
        machine
    }

    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        std::fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
        std::fs::write(self.at(path), text).unwrap();
    }

    pub(crate) fn mkdir(&self, path: &str) {
        std::fs::create_dir_all(self.at(path)).unwrap();
    }

    pub(crate) fn rmdir(&self, path: &str) {
        std::fs::remove_dir_all(self.at(path)).unwrap();
    }

    /// Writes lines `uid made path`; `made` is in seconds after 1 700 000 000.
    pub(crate) fn owners(&self, owners: &[(u32, i64, &str)]) {
        let lines = owners.iter().map(|(uid, made, path)| {
            format!("{uid} {} {path}\n", (1_700_000_000 + made) * 1_000_000)
        });
        self.write(".jobmeter/owners", &lines.collect::<String>());
    }

    pub(crate) fn update(&mut self) -> Changes {
        self.now += 1;
        self.discovery.update(&self.root, Timestamp::from_seconds(self.now), &mut self.jobs)
    }

    pub(crate) fn job(&self, cluster: &str, id: i64) -> Option<&JobCgroup> {
        self.jobs.get(&key(cluster, id))
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        self.jobs.iter().map(|job| job.key.to_string()).collect()
    }

    pub(crate) fn rejected(&self) -> Vec<(String, RejectionReason)> {
        let rejected = self.discovery.report().rejected;
        rejected.into_iter().map(|rejected| (rejected.path, rejected.why)).collect()
    }
}

pub(crate) fn key(cluster: &str, id: i64) -> JobKey {
    JobKey { cluster: ClusterId::new(cluster).unwrap(), id: JobId::new(id).unwrap() }
}

pub(crate) fn at(made: i64) -> Timestamp {
    Timestamp::from_seconds(1_700_000_000 + made)
}
