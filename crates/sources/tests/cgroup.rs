//! The source `cgroup` on this machine: a job with a known load in cgroups that the test creates and
//! removes. It needs root, and version 1 beside the unified tree or version 2 with its controllers;
//! elsewhere it prints a message and passes.

#![expect(clippy::disallowed_methods, reason = "real processes in real time")]
#![expect(clippy::unwrap_used, reason = "a failure here fails the test")]

use cgroups::{Hierarchies, Hierarchy, JobCgroup, JobDir, Jobs};
use kernel::Root;
use kernel::allocations::{CountingAllocator, on_this_thread};
use model::{ClusterId, DeviceId, JobId, JobKey, Timestamp};
use sources::{Context, Open, Options, Sink, Source};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Hierarchies of a hybrid machine, and of a machine with version 2 only.
const WANTED: [&[Hierarchy]; 2] = [
    &[
        Hierarchy::Unified,
        Hierarchy::Cpu,
        Hierarchy::Cpuacct,
        Hierarchy::Memory,
        Hierarchy::Blkio,
        Hierarchy::Pids,
    ],
    &[Hierarchy::Unified],
];

/// A job's directories, removed when it ends.
struct Ground {
    dirs: Vec<JobDir>,
}

impl Ground {
    fn new(name: &str) -> Option<Self> {
        let ground = WANTED.iter().find_map(|wanted| Self::of(name, wanted));
        if ground.is_none() {
            eprintln!(
                "not run: needs root, and cgroups of {WANTED:?} with their controllers enabled"
            );
        }
        ground
    }

    fn of(name: &str, wanted: &[Hierarchy]) -> Option<Self> {
        let hierarchies = Hierarchies::read(&Root::live().unwrap()).unwrap();
        let mut ground = Self { dirs: Vec::new() };
        for hierarchy in wanted {
            let mount = hierarchies.mounts().iter().find(|m| m.hierarchies.contains(hierarchy))?;
            let path = format!("{}/jobmeter-test-{name}-{}", mount.path, std::process::id());
            let absolute = Path::new("/").join(&path);
            if fs::create_dir(&absolute).is_err() && !absolute.is_dir() {
                return None;
            }
            ground.dirs.push(JobDir { hierarchy: *hierarchy, path });
        }
        let has = |file: &str| ground.paths().iter().any(|path| path.join(file).is_file());
        let all = (has("memory.usage_in_bytes") || has("memory.current"))
            && (has("cpu.shares") || has("cpu.max"))
            && has("pids.current");
        all.then_some(ground)
    }

    fn is_v1(&self) -> bool {
        self.dirs.len() > 1
    }

    /// The path of a file, by its names in both versions.
    fn file(&self, v1: (Hierarchy, &str), v2: &str) -> PathBuf {
        let (hierarchy, name) = if self.is_v1() { v1 } else { (Hierarchy::Unified, v2) };
        let dir = self.dirs.iter().find(|dir| dir.hierarchy == hierarchy).unwrap();
        Path::new("/").join(&dir.path).join(name)
    }

    fn paths(&self) -> Vec<PathBuf> {
        let mut paths: Vec<_> =
            self.dirs.iter().map(|dir| Path::new("/").join(&dir.path)).collect();
        paths.dedup();
        paths
    }

    /// Starts a shell that joins the job before anything else.
    fn run(&self, script: &str) -> Child {
        let join: String = self
            .paths()
            .iter()
            .map(|path| format!("echo $$ > {}/cgroup.procs; ", path.display()))
            .collect();
        Command::new("sh").arg("-c").arg(join + script).stdout(Stdio::null()).spawn().unwrap()
    }

    fn jobs(&self, created: Timestamp) -> Jobs {
        let key = JobKey { cluster: ClusterId::local(), id: JobId::new(1).unwrap() };
        let (display_id, dirs) = ("1".into(), self.dirs.clone());
        let job = JobCgroup {
            key,
            display_id,
            user: None,
            uid: None,
            dirs,
            created,
            populated: true,
            directories_max: cgroups::USER_DIRECTORIES_MAX,
        };
        Jobs::new(vec![job], Vec::new())
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        for path in self.paths() {
            let gone = (0..200).any(|_| {
                std::thread::sleep(Duration::from_millis(5));
                fs::remove_dir(&path).is_ok() || !path.exists()
            });
            // A second panic would hide the first one, and end the other tests.
            assert!(gone || std::thread::panicking(), "{} cannot be removed", path.display());
        }
    }
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    Timestamp(i64::try_from(since.as_micros()).unwrap())
}

fn open(root: &Root) -> Box<dyn Source> {
    let spec = sources::list::find("cgroup").unwrap();
    let options = Options::defaults(spec.options);
    (spec.open)(&Open { root, options: &options, boot: Timestamp(0) }).unwrap()
}

fn tick(
    source: &mut dyn Source,
    root: &Root,
    jobs: &Jobs,
    sink: &mut Sink,
) -> BTreeMap<String, f64> {
    let now = now();
    sink.sealed();
    sink.begin(now);
    let cx =
        Context { root, now, boot: Timestamp(0), jobs, budget_us: 1_000_000, is_between: false };
    source.collect(&cx, sink).unwrap();
    sink.samples().map(|(entry, _, value)| (entry.metric.name.to_string(), value)).collect()
}

/// Waits for a process to end; returns its processor time in seconds as its parent sees it: its own and that
/// of the children that it waited for (proc_pid_stat(5)).
fn wait_for(child: &mut Child) -> f64 {
    let pid = rustix::process::Pid::from_child(child);
    let flags = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
    rustix::process::waitid(rustix::process::WaitId::Pid(pid), flags).unwrap();
    let text = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let fields = text.rsplit_once(')').unwrap().1.split_ascii_whitespace().skip(11).take(4);
    let ticks: f64 = fields.map(|ticks| ticks.parse::<f64>().unwrap()).sum();
    assert!(child.wait().unwrap().success());
    ticks / 100.0
}

#[test]
fn a_known_load_equals_the_accounts_of_kernel_and_parent() {
    let Some(ground) = Ground::new("load") else { return };
    let (root, jobs) = (Root::live().unwrap(), ground.jobs(now()));
    let (mut source, mut sink) = (open(&root), Sink::new(DeviceId::new("n").unwrap()));
    // About 1 s of work in one process, then 64 MiB of a file's pages.
    let script =
        "i=0; while [ $i -lt 1500000 ]; do i=$((i+1)); done; head -c 67108864 /dev/zero > \"$0\"";
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut child = ground.run(&script.replace("$0", file.path().to_str().unwrap()));
    // On a busy machine the load waits for a processor.
    let is_running = (0..1200).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        let reported = tick(&mut *source, &root, &jobs, &mut sink);
        reported["cgroup_cpu_seconds_total"] > 0.05 && reported["cgroup_tasks"] >= 1.0
    });
    assert!(is_running);
    let waited = wait_for(&mut child);

    let reported = tick(&mut *source, &root, &jobs, &mut sink);
    let usage = ground.file((Hierarchy::Cpuacct, "cpuacct.usage"), "cpu.stat");
    let usage = fs::read_to_string(usage).unwrap();
    let usage = match usage.strip_prefix("usage_usec ") {
        Some(v2) => v2.lines().next().unwrap().parse::<f64>().unwrap() / 1e6,
        None => usage.trim().parse::<f64>().unwrap() / 1e9,
    };
    let seconds = reported["cgroup_cpu_seconds_total"];
    assert!((seconds - usage).abs() <= 1e-6, "{seconds} {usage}");
    // The parent's account has ticks of 10 ms, separately for user and system of each of two processes.
    assert!((seconds - waited).abs() <= 0.01 * waited + 0.04, "{seconds} {waited}");
    let modes =
        reported["cgroup_cpu_user_seconds_total"] + reported["cgroup_cpu_system_seconds_total"];
    assert!((seconds - modes).abs() <= 0.03, "{seconds} {modes}");
    assert!(
        reported.get("cgroup_memory_peak_bytes").is_none_or(|peak| *peak >= 64.0 * 1_048_576.0)
    );
    assert!(reported["cgroup_memory_file_bytes"] >= 63.0 * 1_048_576.0, "{reported:?}");
    // A file system may charge 64 MiB as few large folios.
    assert!(reported["cgroup_page_faults_total"] > 0.0);
    assert!(reported.get("cgroup_memory_charges_total").is_none_or(|charges| *charges > 100.0));
    assert_eq!((reported["cgroup_tasks"], reported["cgroup_oom_kills_total"]), (0.0, 0.0));
    assert!(reported.contains_key("cgroup_pressure_cpu_some_seconds_total"));

    // Version 1's transfers are reported only where the kernel counts them, never as a false 0.
    let parts: BTreeMap<_, _> =
        sink.parts().iter().map(|(name, state)| (*name, state.clone())).collect();
    let io = reported.contains_key("cgroup_io_read_bytes_total")
        || reported.contains_key("cgroup_io_write_bytes_total");
    if ground.is_v1() {
        assert_eq!(io, parts["io"] == sources::PartState::Ok, "{:?}", parts["io"]);
    }
}

#[test]
fn a_process_that_exceeds_its_memory_limit_is_a_counted_kill() {
    let Some(ground) = Ground::new("oom") else { return };
    let (root, jobs) = (Root::live().unwrap(), ground.jobs(now()));
    let limit = ground.file((Hierarchy::Memory, "memory.limit_in_bytes"), "memory.max");
    fs::write(limit, "8388608").unwrap();
    let mut child = ground.run("exec tail /dev/zero");
    let status = child.wait().unwrap();
    assert!(!status.success());
    let (mut source, mut sink) = (open(&root), Sink::new(DeviceId::new("n").unwrap()));
    let reported = tick(&mut *source, &root, &jobs, &mut sink);
    assert_eq!(
        (reported["cgroup_oom_kills_total"], reported["cgroup_memory_limit_bytes"]),
        (1.0, 8_388_608.0)
    );
    assert!(
        reported["cgroup_memory_limit_hits_total"] >= 1.0
            && reported["cgroup_memory_peak_bytes"] == 8_388_608.0
    );
}

#[test]
fn a_kill_in_a_step_is_counted_and_named() {
    let Some(ground) = Ground::new("oom-step") else { return };
    let (root, jobs) = (Root::live().unwrap(), ground.jobs(now()));
    let (mut source, mut sink) = (open(&root), Sink::new(DeviceId::new("n").unwrap()));
    tick(&mut *source, &root, &jobs, &mut sink);
    sink.take_events();
    let limit = ground.file((Hierarchy::Memory, "memory.limit_in_bytes"), "memory.max");
    fs::write(&limit, "8388608").unwrap();
    // A step as on Slurm with version 1. Version 2 counts kills below a directory in the directory.
    let dir = limit.parent().unwrap();
    let step = if ground.is_v1() { dir.join("step_0") } else { dir.to_owned() };
    fs::create_dir(&step).ok();
    let join = format!("echo $$ > {}/cgroup.procs; exec tail /dev/zero", step.display());
    let status = ground.run(&join).wait().unwrap();
    assert!(!status.success());
    let at = now();
    let root_and_jobs = (&root, &jobs);
    let drain = |source: &mut dyn Source, sink: &mut Sink| {
        let (root, jobs) = root_and_jobs;
        let (now, boot) = (now(), Timestamp(0));
        sink.begin(now);
        let cx = Context { root, now, boot, jobs, budget_us: 1_000_000, is_between: false };
        source.drain(&cx, sink).unwrap();
    };
    drain(&mut *source, &mut sink);
    if step != *dir {
        while fs::remove_dir(&step).is_err() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let reported = tick(&mut *source, &root, &jobs, &mut sink);
    assert_eq!(reported["cgroup_oom_kills_total"], 1.0);
    let parts = sink.parts().iter().find(|(part, _)| *part == "oom_log");
    if parts.is_some_and(|(_, state)| *state != sources::PartState::Ok) {
        return eprintln!("not run: the kernel's log is not readable: {parts:?}");
    }
    let events = sink.take_events();
    let kills: Vec<_> = events.iter().flat_map(|event| &event.oom_kills).collect();
    assert_eq!(kills.len(), 1, "once: {kills:?}");
    let kill = kills[0];
    assert_eq!((&*kill.task, kill.uid, kill.limit_bytes), ("tail", Some(0), Some(8_388_608)));
    let size = kill.task_bytes.unwrap();
    assert!((1 << 20..16 << 20).contains(&size), "{size}");
    assert!(at.since(kill.at).abs() < 60 * Timestamp::SECOND && kill.at <= now(), "{kill:?}");
    assert_eq!((events[0].key.id.get(), events[0].stop), (1, None));
    drain(&mut *source, &mut sink);
    assert!(sink.take_events().is_empty(), "no kill is reported again");
}

#[test]
fn throttling_by_the_jobs_own_limit_is_reported() {
    let Some(ground) = Ground::new("throttle") else { return };
    let (root, jobs) = (Root::live().unwrap(), ground.jobs(now()));
    let quota = if ground.is_v1() { "20000" } else { "20000 100000" };
    fs::write(ground.file((Hierarchy::Cpu, "cpu.cfs_quota_us"), "cpu.max"), quota).unwrap();
    let mut child = ground.run("while :; do :; done");
    let (mut source, mut sink) = (open(&root), Sink::new(DeviceId::new("n").unwrap()));
    // On a busy machine other processes may keep the job below its limit for a while.
    let mut reported = BTreeMap::new();
    for _ in 0..300 {
        std::thread::sleep(Duration::from_millis(200));
        reported = tick(&mut *source, &root, &jobs, &mut sink);
        if reported["cgroup_cpu_throttled_seconds_total"] > 0.1 {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(reported["cgroup_cpu_throttled_seconds_total"] > 0.1, "{reported:?}");
    let periods = reported["cgroup_cpu_periods_total"];
    let throttled = reported["cgroup_cpu_throttled_periods_total"];
    assert!(throttled >= 1.0 && throttled <= periods, "{reported:?}");
    // Per period 20 ms, and a tick of 10 ms if the kernel notices late; plus the shell before its limit.
    assert!(reported["cgroup_cpu_seconds_total"] <= 0.03 * (periods + 2.0) + 0.05, "{reported:?}");
}

#[test]
fn the_steady_state_allocates_nothing() {
    let Some(ground) = Ground::new("steady") else { return };
    // The absent files of a new job are retried at each tick, which allocates messages.
    let (root, jobs) = (Root::live().unwrap(), ground.jobs(now().plus(-60 * Timestamp::SECOND)));
    let mut child = ground.run("exec sleep 60");
    let (mut source, mut sink) = (open(&root), Sink::new(DeviceId::new("n").unwrap()));
    let mut counts = Vec::new();
    for _ in 0..40 {
        let now = now();
        sink.begin(now);
        let cx = Context {
            root: &root,
            now,
            boot: Timestamp(0),
            jobs: &jobs,
            budget_us: 1_000_000,
            is_between: false,
        };
        let before = on_this_thread();
        source.collect(&cx, &mut sink).unwrap();
        counts.push(on_this_thread() - before);
        sink.sealed();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(counts[3..].iter().all(|count| *count == 0), "{counts:?}");
}

/// `CARGO_PROFILE_DEV_OPT_LEVEL=3 cargo test -p sources --test cgroup -- --ignored --nocapture`
#[test]
#[ignore = "prints a measurement; asserts nothing, as a busy machine would fail it"]
fn processor_time_of_a_tick_with_one_job() {
    const TICKS: u64 = 2000;
    let Some(ground) = Ground::new("cost") else { return };
    let (root, jobs) = (Root::live().unwrap(), ground.jobs(now().plus(-60 * Timestamp::SECOND)));
    let mut child = ground.run("exec sleep 60");
    std::thread::sleep(Duration::from_millis(100));
    let (mut source, mut sink) = (open(&root), Sink::new(DeviceId::new("n").unwrap()));
    let samples = tick(&mut *source, &root, &jobs, &mut sink).len();
    let now = now();
    let start = kernel::clock::thread_cpu_us();
    for _ in 0..TICKS {
        sink.begin(now);
        let cx = Context {
            root: &root,
            now,
            boot: Timestamp(0),
            jobs: &jobs,
            budget_us: 1_000_000,
            is_between: false,
        };
        source.collect(&cx, &mut sink).unwrap();
        sink.sealed();
    }
    let us = (kernel::clock::thread_cpu_us() - start) as f64 / TICKS as f64;
    child.kill().unwrap();
    child.wait().unwrap();
    eprintln!("{us:.1} µs for {samples} samples of one job");
}
