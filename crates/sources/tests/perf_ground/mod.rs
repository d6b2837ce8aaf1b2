//! Shared parts of the tests of the source `perf`: a job of their own, version 1's hierarchy while they need
//! it, and the source as the agent calls it.

#![expect(clippy::disallowed_methods, reason = "real processes in real time")]
#![expect(clippy::unwrap_used, reason = "a failure here fails the test")]

use cgroups::{Hierarchy, JobCgroup, JobDir, Jobs};
use kernel::Root;
use model::{ClusterId, DeviceId, JobId, JobKey, Timestamp};
use sources::{Context, Open, Options, PartState, Sink, Source, SourceError};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    // A failed test leaves no inconsistent state here.
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    Timestamp(i64::try_from(since.as_micros()).unwrap())
}

pub(crate) fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    match Command::new(program).args(arguments).output() {
        Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).into()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into()),
        Err(error) => Err(format!("{program}: {error}")),
    }
}

/// Version 1's hierarchy, mounted at a private place until the test ends.
pub(crate) struct Mounted {
    dir: tempfile::TempDir,
}

impl Mounted {
    pub(crate) fn new() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().to_str().unwrap();
        match run("mount", &["-t", "cgroup", "-o", "perf_event", "none", at]) {
            Ok(_) => Some(Self { dir }),
            Err(error) => {
                eprintln!("not run: the hierarchy perf_event cannot be mounted: {error}");
                None
            }
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().to_owned()
    }
}

impl Drop for Mounted {
    /// If a hierarchy is unmounted while the kernel still frees a removed cgroup of it, it remains for ever,
    /// and version 2 lacks its controller. So it is mounted and unmounted until the kernel has released it.
    fn drop(&mut self) {
        let at = self.dir.path().to_str().unwrap();
        let is_released = || {
            std::thread::sleep(Duration::from_millis(20));
            hierarchy_number() == "0"
        };
        let is_gone = (0..20).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            if run("umount", &[at]).is_ok() && (0..50).any(|_| is_released()) {
                return true;
            }
            run("mount", &["-t", "cgroup", "-o", "perf_event", "none", at]).ok();
            false
        });
        assert!(is_gone, "the hierarchy perf_event is not released");
    }
}

/// Number of version 1's hierarchy with the controller; 0 for none.
pub(crate) fn hierarchy_number() -> String {
    let text = fs::read_to_string("/proc/cgroups").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("perf_event")).unwrap();
    line.split_whitespace().next().unwrap().to_owned()
}

/// A job of the test in one hierarchy.
pub(crate) struct Group {
    pub(crate) path: PathBuf,
    pub(crate) job: JobCgroup,
}

impl Group {
    pub(crate) fn new(mount: &Path, hierarchy: Hierarchy, id: i64) -> Option<Self> {
        let path = mount.join(format!("jobmeter-test-perf-{}-{id}", std::process::id()));
        if let Err(error) = fs::create_dir(&path) {
            eprintln!("not run: {}: {error}", path.display());
            return None;
        }
        let dir = path.to_str().unwrap().trim_start_matches('/').to_owned();
        let job = JobCgroup {
            key: JobKey { cluster: ClusterId::local(), id: JobId::new(id).unwrap() },
            display_id: id.to_string().into(),
            user: None,
            uid: None,
            dirs: vec![JobDir { hierarchy, path: dir }],
            created: now(),
            populated: true,
            directories_max: cgroups::USER_DIRECTORIES_MAX,
        };
        Some(Self { path, job })
    }

    pub(crate) fn jobs(&self) -> Jobs {
        Jobs::new(vec![self.job.clone()], Vec::new())
    }

    /// A shell script that joins the job before anything else.
    pub(crate) fn joined(&self, script: &str) -> String {
        format!("echo $$ > {}/cgroup.procs && {script}", self.path.display())
    }

    pub(crate) fn start(&self, script: &str) -> Child {
        let shell =
            Command::new("sh").arg("-c").arg(self.joined(script)).stdin(Stdio::piped()).spawn();
        let shell = shell.unwrap();
        while fs::read_to_string(self.path.join("cgroup.procs")).unwrap().is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        shell
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let gone = (0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            fs::remove_dir(&self.path).is_ok() || !self.path.exists()
        });
        assert!(gone, "{} cannot be removed", self.path.display());
    }
}

/// The source as the agent calls it.
pub(crate) struct Observer {
    pub(crate) root: Root,
    pub(crate) source: Box<dyn Source>,
    pub(crate) sink: Sink,
    pub(crate) opened: Timestamp,
}

pub(crate) type SourceRun = BTreeMap<(String, bool), f64>;

impl Observer {
    pub(crate) fn open(settings: &[(&str, &str)]) -> Result<Self, SourceError> {
        let root = Root::live().unwrap();
        let spec = sources::list::find("perf").unwrap();
        let options = Options::of(spec, settings.iter().copied()).unwrap();
        let open = Open { root: &root, options: &options, boot: Timestamp(0) };
        let source = (spec.open)(&open)?;
        let sink = Sink::of_source(spec, DeviceId::new("node-1").unwrap());
        Ok(Self { root, source, sink, opened: now() })
    }

    pub(crate) fn counting(events: &str) -> Option<Self> {
        match Self::open(&[("events", events)]) {
            Ok(observer) => Some(observer),
            Err(error) => {
                eprintln!("not run: {error}");
                None
            }
        }
    }

    /// Runs a tick; returns values by metric name and whether the sample belongs to a job.
    pub(crate) fn tick(&mut self, jobs: &Jobs) -> SourceRun {
        let now = now();
        self.sink.sealed();
        self.sink.begin(now);
        let (root, boot) = (&self.root, Timestamp(0));
        let cx = Context { root, now, boot, jobs, budget_us: 1_000_000, is_between: false };
        self.source.collect(&cx, &mut self.sink).unwrap();
        let named = |(entry, _, value): (&model::SeriesEntry, _, f64)| {
            ((entry.metric.name.to_string(), entry.job.is_some()), value)
        };
        self.sink.samples().map(named).collect()
    }

    /// Drains after a change of the jobs.
    pub(crate) fn drain(&mut self, jobs: &Jobs) {
        let (root, now, boot) = (&self.root, now(), Timestamp(0));
        let cx = Context { root, now, boot, jobs, budget_us: 1_000_000, is_between: false };
        self.source.drain(&cx, &mut self.sink).unwrap();
    }

    pub(crate) fn ended(&mut self, jobs: &Jobs) {
        let (root, now, boot) = (&self.root, now(), Timestamp(0));
        self.sink.begin(now);
        let cx = Context { root, now, boot, jobs, budget_us: 1_000_000, is_between: false };
        let keys: Vec<_> = jobs.iter().map(|job| job.key.clone()).collect();
        for key in keys {
            self.source.job_ended(&key, &cx, &mut self.sink).unwrap();
        }
    }

    pub(crate) fn part(&self, name: &str) -> PartState {
        self.sink.parts().iter().find(|(part, _)| *part == name).unwrap().1.clone()
    }
}

pub(crate) fn of_job(run: &SourceRun, metric: &str) -> f64 {
    run[&(format!("perf_{metric}"), true)]
}

pub(crate) fn of_node(run: &SourceRun, metric: &str) -> f64 {
    run[&(format!("perf_{metric}"), false)]
}

/// Asserts that two live counters agree within a share and an absolute slack. The slack covers events that
/// only one of them counts, at the start and the end, independent of the length of the load.
pub(crate) fn assert_close(what: &str, found: f64, expected: f64, (share, slack): (f64, f64)) {
    let off = (found - expected) / expected;
    eprintln!("{what}: {found} beside {expected}, {:+.3} %", off * 100.0);
    let within = expected.abs() * share + slack;
    assert!(
        (found - expected).abs() <= within,
        "{what}: {found} instead of {expected}, at most {within} off"
    );
}

pub(crate) fn counters_open() -> usize {
    let links = fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    links.filter(|link| link.to_string_lossy().contains("perf_event")).count()
}
