//! Many jobs that start and end: an hour of short jobs on a node, in less than a minute.

use crate::{Agent, alone, program, root, until};
use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Number of jobs, unless the environment variable `JOBS` sets another.
const JOBS: u32 = 1000;
/// Number of jobs in a sample of the memory use. The test compares the maximum of an early sample with that of the
/// last.
const SOME: usize = 100;
/// Time between the starts of two jobs.
const EVERY: Duration = Duration::from_millis(40);
/// Lifetime of a job: at least two ticks of the agent, which has a period of 1 s.
const ALIVE: Duration = Duration::from_millis(2500);
/// Maximum memory growth in KiB. The test fails if both halves of the run exceed it. On a busy machine jobs live
/// longer, and the allocator keeps their memory, but in one half only. The series of 400 ended jobs would take more
/// than twice as much.
const GROWTH_KIB_MAX: u64 = 2048;

/// The test's own directory in each hierarchy. It is removed with its content.
struct Ground(Vec<PathBuf>);

impl Ground {
    fn new() -> Self {
        let mounts = ["cpuacct", "cpu,cpuacct", "memory", "pids", "unified", "."];
        let mounts = mounts.iter().map(|name| Path::new("/sys/fs/cgroup").join(name));
        let mut mounts: Vec<_> = mounts.filter(|mount| is_hierarchy(mount)).collect();
        // One mount may have two names.
        mounts.sort_by_key(|mount| fs::canonicalize(mount).unwrap());
        mounts.dedup_by_key(|mount| fs::canonicalize(mount).unwrap());
        assert!(!mounts.is_empty(), "no cgroups are mounted");
        let name = format!("jobmeter-test-{}", std::process::id());
        let ground = Self(mounts.iter().map(|mount| mount.join(&name)).collect());
        ground.0.iter().for_each(|dir| fs::create_dir(dir).unwrap());
        ground
    }

    fn job(&self, id: u32) -> Vec<PathBuf> {
        self.0.iter().map(|dir| dir.join(format!("someone_{id}"))).collect()
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        for dir in &self.0 {
            for job in fs::read_dir(dir).into_iter().flatten().flatten() {
                fs::remove_dir(job.path()).ok();
            }
            fs::remove_dir(dir).ok();
        }
    }
}

fn is_hierarchy(mount: &Path) -> bool {
    mount.join("cgroup.procs").exists()
}

/// A job with one sleeping process.
struct Job {
    dirs: Vec<PathBuf>,
    child: Child,
    end: Instant,
}

impl Job {
    fn start(ground: &Ground, id: u32) -> Self {
        Self::run(Command::new("sleep").arg("1000"), ground, id)
    }

    fn run(command: &mut Command, ground: &Ground, id: u32) -> Self {
        let dirs = ground.job(id);
        let child = command.spawn().unwrap();
        for dir in &dirs {
            fs::create_dir(dir).unwrap();
            fs::write(dir.join("cgroup.procs"), child.id().to_string()).unwrap();
        }
        Self { dirs, child, end: Instant::now() + ALIVE }
    }

    /// Processor time of the job so far, as its cgroup reports it.
    fn cpu_seconds(&self) -> f64 {
        let read = |name| self.dirs.iter().find_map(|dir| fs::read_to_string(dir.join(name)).ok());
        let of_version_1 =
            read("cpuacct.usage").map(|text| text.trim().parse::<f64>().unwrap() / 1e9);
        of_version_1.unwrap_or_else(|| {
            let text = read("cpu.stat").unwrap();
            let usage = text.lines().find_map(|line| line.strip_prefix("usage_usec ")).unwrap();
            usage.parse::<f64>().unwrap() / 1e6
        })
    }

    fn end(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        for dir in &self.dirs {
            until("an empty job", Duration::from_secs(10), || fs::remove_dir(dir).is_ok());
        }
    }
}

/// Results of a job.
#[derive(Clone, Copy, Debug, Default)]
struct JobOutcome {
    began: u32,
    ended: u32,
    samples: u32,
}

fn reported(agent: &Agent) -> BTreeMap<i64, JobOutcome> {
    let mut reported: BTreeMap<i64, JobOutcome> = BTreeMap::new();
    for batch in agent.server.posts().iter().flat_map(|post| &post.batches) {
        for event in &batch.jobs {
            let of = reported.entry(event.key.id.get()).or_default();
            match event.stop {
                None => of.began += 1,
                Some(_) => of.ended += 1,
            }
        }
        for index in &batch.index {
            let entry = batch.table.entries.get(usize::try_from(*index).unwrap()).unwrap();
            if let Some(job) = &entry.job {
                reported.entry(job.id.get()).or_default().samples += 1;
            }
        }
    }
    reported
}

/// Last value sent for a metric of a job or of the device.
fn last_reported(agent: &Agent, id: Option<i64>, metric: &str) -> Option<f64> {
    let mut last = None;
    for batch in agent.server.posts().iter().flat_map(|post| &post.batches) {
        for (index, value) in batch.index.iter().zip(&batch.values) {
            let entry = batch.table.entries.get(usize::try_from(*index).unwrap()).unwrap();
            let is_it = entry.job.as_ref().map(|job| job.id.get()) == id;
            if is_it && &*entry.metric.name == metric {
                last = Some(*value);
            }
        }
    }
    last
}

#[test]
fn a_job_between_two_readings_with_a_removed_cgroup_is_reported_to_a_second() {
    let _alone = alone();
    if !root("a_job_between_two_readings_whose_cgroup_goes_at_once_is_reported_to_a_second") {
        return;
    }
    let ground = Ground::new();
    let place = ground.0.first().unwrap().to_str().unwrap();
    let arguments = ["--period", "1s", "--jobs-schedulers", "oar", "--jobs-oar-roots", place];
    let mut command = program();
    command.env("JOBMETER_SOURCES_CGROUP_PERIOD", "10s");
    let agent = Agent::start(command, &arguments);
    until("the first reading", Duration::from_secs(30), || {
        last_reported(&agent, None, "cgroup_jobs").is_some()
    });
    let mut used = Vec::new();
    for id in 1..=4_u32 {
        let job = Job::run(Command::new("sh").args(["-c", "while :; do :; done"]), &ground, id);
        until("three seconds of the processor", Duration::from_secs(60), || {
            job.cpu_seconds() >= 3.0
        });
        used.push((i64::from(id), job.cpu_seconds()));
        job.end();
    }
    until("the ends of the jobs", Duration::from_secs(20), || {
        reported(&agent).values().filter(|reported| reported.ended > 0).count() == used.len()
    });
    for (id, used) in used {
        let reported = last_reported(&agent, Some(id), "cgroup_cpu_seconds_total").unwrap_or(0.0);
        println!("job {id} used {used:.3} s, of which {reported:.3} s were reported");
        assert!(reported <= used + 0.1, "no more than it used: {reported} of {used}");
        // 1 s between two polls, and up to 0.5 s of delay on a busy machine.
        assert!(reported >= used - 1.5, "{reported} s of {used} are reported");
    }
}

#[test]
fn a_thousand_jobs_leave_nothing_behind_and_none_is_missed() {
    let _alone = alone();
    if !root("a_thousand_jobs_leave_nothing_behind_and_none_is_missed") {
        return;
    }
    let count = std::env::var("JOBS").map_or(JOBS, |count| count.parse().unwrap());
    let ground = Ground::new();
    let place = ground.0.first().unwrap().to_str().unwrap();
    let arguments = ["--period", "1s", "--jobs-schedulers", "oar", "--jobs-oar-roots", place];
    let mut command = program();
    for spec in sources::SOURCES {
        // All sources have opened their files by the first tick.
        command.env(format!("JOBMETER_SOURCES_{}_PERIOD", spec.name.to_uppercase()), "1s");
    }
    let agent = Agent::start(command, &arguments);
    until("a batch", Duration::from_secs(30), || !agent.server.posts().is_empty());
    std::thread::sleep(Duration::from_secs(2));
    let descriptors = agent.descriptors();

    let mut living: VecDeque<Job> = VecDeque::new();
    let (mut kib, begun) = (Vec::new(), Instant::now());
    let mut end = |living: &mut VecDeque<Job>| {
        living.pop_front().unwrap().end();
        kib.push(agent.kib("RssAnon"));
    };
    for id in 1..=count {
        std::thread::sleep((begun + EVERY * id).saturating_duration_since(Instant::now()));
        living.push_back(Job::start(&ground, id));
        while living.front().is_some_and(|job| job.end <= Instant::now()) {
            end(&mut living);
        }
    }
    while let Some(job) = living.front() {
        std::thread::sleep(job.end.saturating_duration_since(Instant::now()));
        end(&mut living);
    }
    let took = begun.elapsed();

    let all_reported = || {
        let reported = reported(&agent);
        (1..=i64::from(count)).all(|id| {
            reported.get(&id).is_some_and(|reported| reported.ended > 0 && reported.samples > 0)
        })
    };
    let limit = Instant::now() + Duration::from_secs(20);
    while !all_reported() && Instant::now() < limit {
        std::thread::sleep(Duration::from_millis(100));
    }
    let mut left = Vec::new();
    until("the descriptors of ended jobs", Duration::from_secs(10), || {
        left = agent.descriptors();
        left.len() <= descriptors.len() + 2
    });
    let reported = reported(&agent);
    let of = |id| (id, reported.get(&id).copied().unwrap_or_default());
    let missed: Vec<_> = (1..=i64::from(count))
        .map(of)
        .filter(|(_, it)| (it.began, it.ended) != (1, 1) || it.samples == 0)
        .collect();
    assert!(missed.is_empty(), "each begins once, ends once and has samples: {missed:?}");
    assert_eq!(reported.len(), usize::try_from(count).unwrap());
    let largest_kib = |from: usize| *kib.iter().skip(from).take(SOME).max().unwrap();
    let (first_kib, middle_kib) = (largest_kib(SOME), largest_kib(kib.len() / 2));
    let last_kib = largest_kib(kib.len() - SOME);
    let fewest = reported.values().map(|reported| reported.samples).min().unwrap();
    println!(
        "{count} jobs in {took:.0?}: {fewest} samples of each at least; RssAnon {first_kib} KiB after \
         the first {SOME}, {middle_kib} KiB in the middle, {last_kib} KiB at the last; {} descriptors, {} before",
        left.len(),
        descriptors.len()
    );
    let halves = [middle_kib.saturating_sub(first_kib), last_kib.saturating_sub(middle_kib)];
    assert!(halves.iter().any(|growth| *growth <= GROWTH_KIB_MAX), "grew by {halves:?} KiB");
}
