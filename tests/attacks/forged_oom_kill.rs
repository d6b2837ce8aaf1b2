//! A memory cgroup whose name imitates the kernel's record of an OOM kill gives no kill to another job.

use crate::common::programs::{Running, Server, root, until};
use crate::common::up::{alone, jobmeter, node_alive};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const MEMORY: &str = "/sys/fs/cgroup/memory";
const VICTIM: &str = "slurm/uid_0/job_4242";
/// The kernel writes the path of the killed task's cgroup as `task_memcg=PATH,task=NAME,pid=PID,uid=UID`.
const FORGED: &str =
    "jobmeter-forged,task_memcg=/slurm/uid_0/job_4242,task=victim,pid=1,uid=0,task_memcg=";
const LIMIT: &str = "33554432";
const SOON: Duration = Duration::from_secs(60);

/// A cgroup of version 1, removed with the folders above it that the test made.
struct Cgroup(PathBuf);

impl Cgroup {
    fn create(path: &str) -> Self {
        let dir = Path::new(MEMORY).join(path);
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    /// Runs a shell command in this cgroup.
    fn run(&self, command: &str) -> std::process::Child {
        let join = format!("echo $$ > '{}/cgroup.procs' && {command}", self.0.display());
        Command::new("sh").args(["-c", &join]).stderr(Stdio::null()).spawn().unwrap()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let above = self.0.ancestors().skip(1).take_while(|dir| *dir != Path::new(MEMORY));
        above.for_each(|dir| drop(std::fs::remove_dir(dir)));
    }
}

fn rows(url: &str, statement: &str) -> Vec<Value> {
    let (code, out, errors) = jobmeter(url, &["sql", "--format", "json", statement]);
    assert_eq!(code, 0, "{errors}");
    serde_json::from_str(&out).unwrap()
}

#[test]
fn a_cgroups_name_forges_no_kill_of_another_job() {
    if !root("a_cgroups_name_forges_no_kill_of_another_job") {
        return;
    }
    if !Path::new(MEMORY).join("memory.limit_in_bytes").exists() || !Path::new("/dev/kmsg").exists()
    {
        println!("needs the memory controller of cgroup version 1 and the kernel's log: not run");
        return;
    }
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"), &[]);
    let mut agent = Running::agent(&server.url, "forged", &dir.path().join("spool"));
    node_alive(&server.url);
    let victim = Cgroup::create(VICTIM);
    let mut idle = victim.run("exec sleep 300");
    until("the victim's job", SOON, || {
        let jobs = rows(&server.url, "SELECT job_id FROM jobs WHERE job_id = 4242");
        (!jobs.is_empty()).then_some(())
    });

    let forged = Cgroup::create(FORGED);
    std::fs::write(forged.0.join("memory.limit_in_bytes"), LIMIT).unwrap();
    let swap = forged.0.join("memory.memsw.limit_in_bytes");
    drop(std::fs::write(swap, LIMIT));
    let killed = forged.run("exec tail /dev/zero").wait().unwrap();
    assert!(!killed.success(), "the kernel kills the task at its limit");

    let unattributed = "SELECT max(value) AS n FROM metrics \
                        WHERE metric_id = 'cgroup_oom_unattributed_total'";
    until("the kill, attributed to no job", SOON, || {
        let rows = rows(&server.url, unattributed);
        rows[0]["n"].as_f64().filter(|kills| *kills >= 1.0)
    });
    let kills = rows(&server.url, "SELECT job_id, oom_kills FROM jobs WHERE oom_kills > 0");
    assert_eq!(kills, Vec::<Value>::new());
    idle.kill().unwrap();
    idle.wait().unwrap();
    assert_eq!(agent.end(), 0, "{}", agent.errors());
}
