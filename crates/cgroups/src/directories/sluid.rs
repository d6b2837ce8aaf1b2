//! Resolves a SLUID to a job ID, by data that only root can have written.
//!
//! Each step's slurmstepd runs in `SLUID/step_STEP/slurm`, where only root can move a process, with root as
//! real user, and shows the job ID in its title (<https://slurm.schedmd.com/cgroup_v2.html>). A job's own
//! processes have `SLURM_JOB_ID` in their environment, but belong to the user and are never read. All steps
//! must agree; otherwise the SLUID remains unresolved.

use crate::directories::facts::Facts;
use crate::directories::paths::join;
use crate::job_cgroup_names::title_job;
use kernel::parse::{Fields, lines};
use kernel::{NodeKind, Root, cgroup};
use model::JobId;

/// Maximum number of steps read per job.
const STEPS_MAX: usize = 64;

/// The job ID of a directory, if its slurmstepds show one.
pub(crate) fn resolve(root: &Root, facts: &Facts, dir: &str) -> Option<JobId> {
    let mut steps = Vec::new();
    root.list(dir, |entry| {
        if entry.kind == NodeKind::Directory
            && entry.name.starts_with("step_")
            && steps.len() < STEPS_MAX
        {
            steps.push(format!("{dir}/{}", entry.name));
        }
    })
    .ok()?;
    let roots = |path: &str| {
        facts.of(root, path).is_ok_and(|fact| fact.kind == NodeKind::Directory && fact.uid == 0)
    };
    let (mut found, mut path, mut text, mut pids) = (None, String::new(), Vec::new(), Vec::new());
    for step in steps {
        let daemon = format!("{step}/slurm");
        if !roots(&step) || !roots(&daemon) {
            continue;
        }
        join(&mut path, &daemon, "cgroup.procs");
        pids.clear();
        if root.read(&path, &mut text).is_err() || cgroup::ids(&text, &mut pids).is_err() {
            continue;
        }
        for pid in &pids {
            match (stepd_job(root, *pid, dir), found) {
                (Some(job), None) => found = Some(job),
                (Some(job), Some(known)) if job != known => return None,
                _ => {}
            }
        }
    }
    found
}

/// The job ID in a process's title, if it is root's slurmstepd in a cgroup below the job's.
fn stepd_job(root: &Root, pid: u32, dir: &str) -> Option<JobId> {
    let mut text = Vec::new();
    root.read(&format!("proc/{pid}/status"), &mut text).ok()?;
    if !is_roots_stepd(&text) {
        return None;
    }
    root.read(&format!("proc/{pid}/cmdline"), &mut text).ok()?;
    let job = title_job(&text)?;
    // If the process ID was reused since the list was read, the process is elsewhere.
    root.read(&format!("proc/{pid}/cgroup"), &mut text).ok()?;
    let sluid = dir.rsplit_once('/').map_or(dir, |(_, name)| name);
    let inside = lines(&text).any(|line| {
        line.starts_with(b"0::")
            && line.split(|byte| *byte == b'/').any(|part| part == sluid.as_bytes())
    });
    inside.then_some(job)
}

/// Whether `/proc/PID/status` shows a process named slurmstepd with root as real user.
fn is_roots_stepd(status: &[u8]) -> bool {
    let field = |key: &[u8]| lines(status).find_map(|line| line.strip_prefix(key).map(Fields::of));
    let name = field(b"Name:").is_some_and(|mut fields| fields.word() == Ok(b"slurmstepd"));
    name && field(b"Uid:").is_some_and(|mut fields| fields.number() == Ok(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: &str = "cg/system.slice/slurmstepd.scope/sEKNKTV3WPV500";

    struct Tree {
        dir: tempfile::TempDir,
        root: Root,
    }

    impl Tree {
        fn new(steps: &[(&str, u32)]) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let root = Root::recorded(dir.path()).unwrap();
            let tree = Self { dir, root };
            for (step, pid) in steps {
                tree.write(&format!("{DIR}/{step}/slurm/cgroup.procs"), &format!("{pid}\n"));
            }
            tree
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }

        fn stepd(&self, pid: u32, name: &str, uid: u32, title: &str) {
            self.write(
                &format!("proc/{pid}/status"),
                &format!("Name:\t{name}\nUid:\t{uid}\t0\t0\t0\n"),
            );
            self.write(&format!("proc/{pid}/cmdline"), title);
            let scope = "0::/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_0/slurm\n";
            self.write(&format!("proc/{pid}/cgroup"), scope);
        }

        fn resolve(&self) -> Option<i64> {
            let mut facts = Facts::default();
            facts.refresh(&self.root);
            resolve(&self.root, &facts, DIR).map(JobId::get)
        }
    }

    #[test]
    fn resolved_by_the_title_of_roots_slurmstepd() {
        let tree = Tree::new(&[("step_extern", 20), ("step_0", 21)]);
        assert_eq!(tree.resolve(), None, "no process to read");
        tree.stepd(20, "slurmstepd", 0, "slurmstepd: [3385.extern]\0");
        assert_eq!(tree.resolve(), Some(3385));
        tree.stepd(21, "slurmstepd", 0, "slurmstepd: [3385.0]\0");
        assert_eq!(tree.resolve(), Some(3385));
    }

    #[test]
    fn different_answers_are_not_resolved() {
        let tree = Tree::new(&[("step_extern", 20), ("step_0", 21)]);
        tree.stepd(20, "slurmstepd", 0, "slurmstepd: [3385.extern]");
        tree.stepd(21, "slurmstepd", 0, "slurmstepd: [3386.0]");
        assert_eq!(tree.resolve(), None);
    }

    #[test]
    fn a_users_process_is_ignored() {
        let tree = Tree::new(&[("step_0", 21)]);
        tree.stepd(21, "slurmstepd", 1000, "slurmstepd: [1.0]");
        assert_eq!(tree.resolve(), None, "a user's process");
        tree.stepd(21, "bash", 0, "slurmstepd: [1.0]");
        assert_eq!(tree.resolve(), None, "another program");
        tree.stepd(21, "slurmstepd", 0, "slurmstepd: [1.0]");
        tree.write("proc/21/cgroup", "0::/user.slice\n");
        assert_eq!(tree.resolve(), None, "in another cgroup");
        tree.write("proc/21/cgroup", "0::/x/sEKNKTV3WPV500/step_0/slurm\n");
        tree.write(".jobmeter/owners", &format!("1000 1 {DIR}/step_0/slurm\n"));
        assert_eq!(tree.resolve(), None, "in a user's directory");
    }
}
