//! Discovery on this machine, with cgroups of version 1 and of the unified tree beside it that the
//! tests create and remove. They need root and, most of them, version 1; elsewhere they print a message and
//! pass.

#![expect(clippy::disallowed_methods, reason = "real processes in real time")]
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

use cgroups::{
    Changes, Config, Discovery, Hierarchies, Hierarchy, Jobs, Members, Pattern, processes,
};
use kernel::{Root, allocations};
use model::{ClusterId, JobId, JobKey, Timestamp};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

#[global_allocator]
static ALLOCATOR: allocations::CountingAllocator = allocations::CountingAllocator;

/// One test at a time: while one creates thousands of directories, others are found late.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Directories of a test, removed when it ends.
struct Ground {
    tops: Vec<(Hierarchy, PathBuf)>,
    _alone: MutexGuard<'static, ()>,
}

impl Ground {
    /// Creates a directory of this name in each of these hierarchies; `None` if one is missing or the test
    /// does not run as root.
    fn new(name: &str, wanted: &[Hierarchy]) -> Option<Self> {
        let ground = Self::of(name, wanted);
        if ground.is_none() {
            eprintln!("not run: needs root and cgroups of {wanted:?}");
        }
        ground
    }

    /// As [`Self::new`], in a hierarchy of either version.
    fn in_any(name: &str) -> Option<Self> {
        Self::of(name, &[Hierarchy::Freezer]).or_else(|| Self::new(name, &[Hierarchy::Unified]))
    }

    fn of(name: &str, wanted: &[Hierarchy]) -> Option<Self> {
        let name = format!("jobmeter-test-{name}-{}", std::process::id());
        let hierarchies = Hierarchies::read(&Root::live().unwrap()).unwrap();
        let mut ground = Self { tops: Vec::new(), _alone: alone() };
        for hierarchy in wanted {
            let mount = hierarchies.mounts().iter().find(|m| m.hierarchies.contains(hierarchy))?;
            let top = PathBuf::from("/").join(&mount.path).join(&name);
            std::fs::create_dir(&top).ok()?;
            ground.tops.push((*hierarchy, top));
        }
        Some(ground)
    }

    fn discovery(&self) -> Discovery {
        let name = self.tops[0].1.file_name().unwrap().to_str().unwrap();
        let pattern =
            Pattern::new(ClusterId::new("test").unwrap(), &format!(r"{name}/job_(?<job>\d+)"));
        Discovery::new(Config { patterns: vec![pattern.unwrap()], ..Config::default() })
    }

    fn make(&self, name: &str) {
        for (_, top) in &self.tops {
            std::fs::create_dir(top.join(name)).unwrap();
        }
    }

    fn remove(&self, name: &str) {
        for (_, top) in &self.tops {
            remove(&top.join(name));
        }
    }

    fn put(&self, child: &Child, name: &str) {
        for (_, top) in &self.tops {
            std::fs::write(top.join(name).join("cgroup.procs"), child.id().to_string()).unwrap();
        }
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        for (_, top) in &self.tops {
            for entry in std::fs::read_dir(top).into_iter().flatten().flatten() {
                if entry.path().is_dir() {
                    remove(&entry.path());
                }
            }
            remove(top);
        }
    }
}

/// Removes a cgroup; its last process may still be exiting.
fn remove(dir: &PathBuf) {
    for _ in 0..200 {
        if std::fs::remove_dir(dir).is_ok() || !dir.try_exists().unwrap() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{} cannot be removed", dir.display());
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    Timestamp(i64::try_from(since.as_micros()).unwrap())
}

/// Updates like the agent, after an event or after 100 ms, until `seen` returns true.
fn wait_for(
    discovery: &mut Discovery,
    root: &Root,
    jobs: &mut Jobs,
    what: &str,
    seen: impl Fn(&Changes) -> bool,
) -> Duration {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(5) {
        if seen(&discovery.update(root, now(), jobs)) {
            return begin.elapsed();
        }
        let fd = discovery.fd().unwrap();
        let patience = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&patience)).unwrap();
    }
    panic!("{what} was not seen in 5 s");
}

const SECOND: Duration = Duration::from_secs(1);

fn a_job_from_start_to_end(ground: &Ground) {
    let root = Root::live().unwrap();
    let (mut discovery, mut jobs) = (ground.discovery(), Jobs::default());
    discovery.update(&root, now(), &mut jobs);
    let key = JobKey { cluster: ClusterId::new("test").unwrap(), id: JobId::new(7).unwrap() };

    let before = now();
    ground.make("job_7");
    let took = wait_for(&mut discovery, &root, &mut jobs, "start", |c| c.started == [key.clone()]);
    assert!(took < SECOND, "start took {took:?}");
    let job = jobs.get(&key).unwrap();
    assert_eq!(job.dirs.len(), ground.tops.len());
    assert!(!job.populated);
    let age = job.created.since(before);
    assert!((-10_000..1_000_000).contains(&age), "created {age} us after the request");

    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    ground.put(&child, "job_7");
    let took =
        wait_for(&mut discovery, &root, &mut jobs, "process", |c| c.populated == [key.clone()]);
    assert!(took < SECOND, "the process took {took:?}");
    assert!(jobs.get(&key).unwrap().populated);
    let mut members = Members::default();
    processes(&root, jobs.get(&key).unwrap(), &mut members).unwrap();
    assert_eq!(members.ids(), [child.id()]);

    child.kill().unwrap();
    child.wait().unwrap();
    let took =
        wait_for(&mut discovery, &root, &mut jobs, "emptiness", |c| c.emptied == [key.clone()]);
    assert!(took < SECOND, "emptiness took {took:?}");
    assert!(jobs.get(&key).is_some());

    ground.remove("job_7");
    let took = wait_for(&mut discovery, &root, &mut jobs, "end", |c| c.ended == [key.clone()]);
    assert!(took < SECOND, "end took {took:?}");
    assert!(jobs.get(&key).is_some(), "until the next update");
    discovery.update(&root, now(), &mut jobs);
    assert!(jobs.get(&key).is_none());
}

#[test]
fn version_1_from_start_to_end() {
    use Hierarchy::{Cpuacct, Memory, Pids};
    if let Some(ground) = Ground::new("v1", &[Cpuacct, Memory, Pids]) {
        a_job_from_start_to_end(&ground);
    }
}

#[test]
fn version_1_without_a_count_of_processes() {
    if let Some(ground) = Ground::new("v1-bare", &[Hierarchy::Freezer]) {
        a_job_from_start_to_end(&ground);
    }
}

#[test]
fn version_2_from_start_to_end() {
    if let Some(ground) = Ground::new("v2", &[Hierarchy::Unified]) {
        a_job_from_start_to_end(&ground);
    }
}

#[test]
fn a_hybrid_job_from_start_to_end() {
    use Hierarchy::{Cpuacct, Unified};
    if let Some(ground) = Ground::new("hybrid", &[Cpuacct, Unified]) {
        a_job_from_start_to_end(&ground);
    }
}

#[test]
fn a_root_that_is_created_removed_and_created_again() {
    let Some(ground) = Ground::in_any("again") else { return };
    let root = Root::live().unwrap();
    let (mut discovery, mut jobs) = (ground.discovery(), Jobs::default());
    remove(&ground.tops[0].1);
    discovery.update(&root, now(), &mut jobs);
    for _ in 0..2 {
        std::fs::create_dir(&ground.tops[0].1).unwrap();
        ground.make("job_1");
        let took = wait_for(&mut discovery, &root, &mut jobs, "start", |c| c.started.len() == 1);
        assert!(took < SECOND, "{took:?}");
        ground.remove("job_1");
        remove(&ground.tops[0].1);
        let took = wait_for(&mut discovery, &root, &mut jobs, "end", |c| c.ended.len() == 1);
        assert!(took < SECOND, "{took:?}");
    }
    std::fs::create_dir(&ground.tops[0].1).unwrap();
    // A job ID that is reused at once is two runs, even without an update in between.
    ground.make("job_1");
    wait_for(&mut discovery, &root, &mut jobs, "start", |c| c.started.len() == 1);
    let key = JobKey { cluster: ClusterId::new("test").unwrap(), id: JobId::new(1).unwrap() };
    let created = |jobs: &Jobs| jobs.iter().find(|job| job.key == key).unwrap().created;
    let first = created(&jobs);
    ground.remove("job_1");
    ground.make("job_1");
    wait_for(&mut discovery, &root, &mut jobs, "end", |c| c.ended.len() == 1);
    wait_for(&mut discovery, &root, &mut jobs, "second start", |c| c.started.len() == 1);
    let second = created(&jobs);
    assert!(second > first, "{second} after {first}");
}

#[test]
fn lost_events_cause_a_full_scan() {
    let Some(ground) = Ground::in_any("storm") else { return };
    let root = Root::live().unwrap();
    let (mut discovery, mut jobs) = (ground.discovery(), Jobs::default());
    discovery.update(&root, now(), &mut jobs);
    let limit = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    for _ in 0..=limit / 2 {
        ground.make("storm");
        ground.remove("storm");
    }
    ground.make("job_5");
    let rescans = discovery.counts().rescans;
    wait_for(&mut discovery, &root, &mut jobs, "start after a storm", |c| c.started.len() == 1);
    assert!(discovery.counts().overflows >= 1 && discovery.counts().rescans > rescans);
}

#[test]
fn after_many_new_jobs_a_quiet_update_allocates_nothing() {
    let Some(ground) = Ground::in_any("many") else { return };
    let root = Root::live().unwrap();
    let (mut discovery, mut jobs) = (ground.discovery(), Jobs::default());
    discovery.update(&root, now(), &mut jobs);
    for id in 1..=100 {
        ground.make(&format!("job_{id}"));
    }
    let begin = Instant::now();
    let mut started = 0;
    while started < 100 && begin.elapsed() < SECOND {
        started += discovery.update(&root, now(), &mut jobs).started.len();
    }
    assert_eq!(started, 100);
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    ground.put(&child, "job_50");
    wait_for(&mut discovery, &root, &mut jobs, "process", |c| c.populated.len() == 1);
    // Other tests of this machine create and remove cgroups meanwhile: those updates do allocate.
    let mut quietest = u64::MAX;
    for _ in 0..40 {
        std::thread::sleep(Duration::from_millis(25));
        let before = allocations::on_this_thread();
        let changes = discovery.update(&root, now(), &mut jobs);
        assert!(changes.ended.is_empty());
        quietest = quietest.min(allocations::on_this_thread() - before);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(quietest, 0);

    let mut quietest = u64::MAX;
    for later in 1..=5 {
        let (rescans, before) = (discovery.counts().rescans, allocations::on_this_thread());
        discovery.update(&root, now().plus(later * 31_000_000), &mut jobs);
        quietest = quietest.min(allocations::on_this_thread() - before);
        assert_eq!(discovery.counts().rescans, rescans + 1);
    }
    assert!(quietest < 30, "a full scan of 100 jobs made {quietest} allocations");
}

#[test]
fn a_local_job_ends_after_its_program_was_killed() {
    let _alone = alone();
    let Some(top) = local_top() else { return };
    let id = 900_000_000 + i64::from(std::process::id());
    let key = JobKey { cluster: ClusterId::local(), id: JobId::new(id).unwrap() };
    let dir = top.join(format!("job_{id}"));
    std::fs::create_dir_all(&dir).unwrap();
    let root = Root::live().unwrap();
    let (mut discovery, mut jobs) = (Discovery::new(Config::default()), Jobs::default());
    discovery.update(&root, now(), &mut jobs);
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    std::fs::write(dir.join("cgroup.procs"), child.id().to_string()).unwrap();
    let is = |keys: &[JobKey]| keys.contains(&key);
    wait_for(&mut discovery, &root, &mut jobs, "its process", |c| is(&c.populated));
    // Its processes have ended, its directory remains.
    let emptied = now();
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for(&mut discovery, &root, &mut jobs, "its emptiness", |c| is(&c.emptied));
    let soon = discovery.update(&root, now().plus(9_000_000), &mut jobs);
    assert!(!is(&soon.ended), "{soon:?}");
    let later = discovery.update(&root, now().plus(11_000_000), &mut jobs);
    assert!(is(&later.ended), "{later:?}");
    let last = later.last_processes.iter().find(|(job, _)| *job == key).map(|(_, at)| *at);
    assert!(last.is_some_and(|at| at >= emptied && at <= now()), "it ended with its last process");
    let after = discovery.update(&root, now().plus(12_000_000), &mut jobs);
    assert!(!is(&after.started) && jobs.get(&key).is_none(), "{after:?}");
    remove(&dir);
}

#[test]
fn a_run_directory_without_a_server_is_not_a_job() {
    let _alone = alone();
    let Some(top) = local_top() else { return };
    let id = 910_000_000 + i64::from(std::process::id());
    let [bare, own] = ["", "@aaa"].map(|server| top.join(format!("job_{id}{server}")));
    std::fs::create_dir_all(&bare).unwrap();
    let root = Root::live().unwrap();
    let key = JobKey { cluster: ClusterId::local(), id: JobId::new(id).unwrap() };
    let (mut discovery, mut jobs) = (Discovery::new(Config::default()), Jobs::default());
    discovery.set_server("aaa");
    discovery.update(&root, now(), &mut jobs);
    let without = jobs.get(&key).is_some();
    std::fs::create_dir_all(&own).unwrap();
    wait_for(&mut discovery, &root, &mut jobs, "its job", |c| c.started.contains(&key));
    let dirs = jobs.get(&key).map(|job| job.dirs.len());
    remove(&bare);
    remove(&own);
    assert!(!without, "a directory without a server in its name");
    assert_eq!(dirs, Some(1));
}

/// The directory in which `jobmeter run` creates its cgroups, in a hierarchy of either version.
fn local_top() -> Option<PathBuf> {
    let hierarchies = Hierarchies::read(&Root::live().unwrap()).unwrap();
    let wanted = [Hierarchy::Pids, Hierarchy::Unified];
    let mount =
        hierarchies.mounts().iter().find(|m| wanted.iter().any(|w| m.hierarchies.contains(w)))?;
    let top = PathBuf::from("/").join(&mount.path).join("jobmeter");
    if std::fs::create_dir_all(&top).is_err() {
        eprintln!("not run: needs root and cgroups");
        return None;
    }
    Some(top)
}
