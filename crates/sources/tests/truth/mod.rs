//! A cgroup of the test, worker processes in it, and a source that observes them.

#![expect(clippy::unwrap_used, reason = "a failure here fails the test")]

mod cost;
mod ends;
mod moved;
mod recorded;
mod restart;
pub(crate) mod roles;

use cgroups::{Hierarchy, JobCgroup, JobDir, Jobs};
use kernel::Root;
use kernel::clock::monotonic_us;
use model::{ClusterId, DeviceId, JobId, JobKey, Timestamp};
use roles::{GROUP, command};
use rustix::process::{Pid, Signal, kill_process};
use sources::{Context, Open, Options, Sink, Source, SourceSpec};
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::Child;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const CPUACCT: &str = "/sys/fs/cgroup/cpuacct";

pub(crate) fn print_line(text: &str) {
    let mut err = std::io::stderr();
    writeln!(err, "{text}").unwrap();
}

/// One test at a time: parallel tests would use each other's processors.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    // A failed test leaves no inconsistent state here.
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn wall_clock() -> Timestamp {
    #[expect(
        clippy::disallowed_methods,
        reason = "the test has no clock of its own: the kernel's clock counts"
    )]
    let now = std::time::SystemTime::now();
    let micros = now.duration_since(std::time::UNIX_EPOCH).unwrap().as_micros();
    Timestamp(i64::try_from(micros).unwrap())
}

/// A cgroup of the test; it is one job.
pub(crate) struct Group {
    pub(crate) path: PathBuf,
    pub(crate) job: JobCgroup,
}

impl Group {
    /// `None`, after a message, if this machine does not permit it.
    pub(crate) fn new(id: i64) -> Option<Self> {
        let name = format!("jobmeter-test-{}-{id}", std::process::id());
        let path = PathBuf::from(CPUACCT).join(&name);
        if let Err(error) = fs::create_dir(&path) {
            print_line(&format!(
                "not run: {}: {error}; needs root and cgroup v1 cpuacct",
                path.display()
            ));
            return None;
        }
        let dir = format!("sys/fs/cgroup/cpuacct/{name}");
        let created = Timestamp(Root::live().unwrap().stat(&dir).unwrap().changed_us);
        let job = JobCgroup {
            key: JobKey { cluster: ClusterId::local(), id: JobId::new(id).unwrap() },
            display_id: id.to_string().into(),
            user: None,
            uid: None,
            dirs: vec![JobDir { hierarchy: Hierarchy::Cpuacct, path: dir }],
            created,
            populated: true,
            directories_max: cgroups::USER_DIRECTORIES_MAX,
        };
        Some(Self { path, job })
    }

    /// The same with a directory in the hierarchy `pids`, which counts its tasks; `None` if the machine has none.
    pub(crate) fn counted(id: i64) -> Option<Self> {
        let mut group = Self::new(id)?;
        let path = group.in_pids();
        if let Err(error) = fs::create_dir(&path) {
            print_line(&format!("not run: {}: {error}", path.display()));
            return None;
        }
        let dir = path.to_str().unwrap().trim_start_matches('/').to_owned();
        group.job.dirs.push(JobDir { hierarchy: Hierarchy::Pids, path: dir });
        Some(group)
    }

    /// The same with a directory in the unified hierarchy, too, which reports the job's end.
    pub(crate) fn unified(id: i64) -> Option<Self> {
        let mut group = Self::counted(id)?;
        let path = group.in_unified();
        if let Err(error) = fs::create_dir(&path) {
            print_line(&format!("not run: {}: {error}", path.display()));
            return None;
        }
        let dir = path.to_str().unwrap().trim_start_matches('/').to_owned();
        group.job.dirs.push(JobDir { hierarchy: Hierarchy::Unified, path: dir });
        Some(group)
    }

    fn in_unified(&self) -> PathBuf {
        PathBuf::from("/sys/fs/cgroup/unified").join(self.path.file_name().unwrap())
    }

    fn in_pids(&self) -> PathBuf {
        PathBuf::from("/sys/fs/cgroup/pids").join(self.path.file_name().unwrap())
    }

    /// Moves a process into the cgroup.
    pub(crate) fn take(&self, pid: u32) {
        for path in [self.path.clone(), self.in_pids(), self.in_unified()] {
            if path.try_exists().unwrap() {
                fs::write(path.join("cgroup.procs"), pid.to_string()).unwrap();
            }
        }
    }

    pub(crate) fn cpu_seconds(&self) -> f64 {
        let text = fs::read_to_string(self.path.join("cpuacct.usage")).unwrap();
        text.trim().parse::<f64>().unwrap() / 1e9
    }

    pub(crate) fn processes(&self) -> usize {
        fs::read_to_string(self.path.join("cgroup.procs")).unwrap().lines().count()
    }

    /// Starts this program again, in this cgroup, with a role.
    pub(crate) fn start(&self, role: &str) -> Child {
        command(role).env(GROUP, &self.path).spawn().unwrap()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // End processes that a failed test left running.
        let processes = fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default();
        for pid in processes.lines().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)) {
            kill_process(pid, Signal::KILL).ok();
        }
        for _ in 0..100 {
            fs::remove_dir(self.in_pids()).ok();
            fs::remove_dir(self.in_unified()).ok();
            match fs::remove_dir(&self.path) {
                Ok(()) => return,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
        print_line(&format!("{} is left behind", self.path.display()));
    }
}

/// A source on this machine, called like the agent calls it.
pub(crate) struct Observer {
    root: Root,
    pub(crate) jobs: Jobs,
    pub(crate) source: Box<dyn Source>,
    pub(crate) sink: Sink,
}

impl Observer {
    /// `None`, after a message, if the source is denied or absent.
    pub(crate) fn open(name: &str, settings: &[(&str, &str)]) -> Option<Self> {
        let root = Root::live().unwrap();
        let spec: &'static SourceSpec = sources::list::find(name).unwrap();
        let options = Options::of(spec, settings.iter().copied()).unwrap();
        let boot = Timestamp(0);
        let source = match (spec.open)(&Open { root: &root, options: &options, boot }) {
            Ok(source) => source,
            Err(error) => {
                print_line(&format!("not run: {name}: {error}"));
                return None;
            }
        };
        let sink = Sink::new(DeviceId::new("node-1").unwrap());
        Some(Self { root, jobs: Jobs::default(), source, sink })
    }

    /// A source that runs before its `N` jobs start.
    pub(crate) fn beside<const N: usize>(name: &str, first_id: i64) -> Option<(Self, [Group; N])> {
        Self::beside_each(name, first_id, Group::new)
    }

    /// The same with jobs that `new` makes.
    pub(crate) fn beside_each<const N: usize>(
        name: &str,
        first_id: i64,
        new: fn(i64) -> Option<Group>,
    ) -> Option<(Self, [Group; N])> {
        let mut observer = Self::open(name, &[])?;
        observer.collect();
        // The kernel's clock for cgroup creation lags by up to a tick.
        std::thread::sleep(Duration::from_millis(20));
        let groups = (first_id..).take(N).map(new).collect::<Option<Vec<_>>>()?;
        observer.find(&groups);
        Some((observer, groups.try_into().ok().unwrap()))
    }

    /// Sets the machine's jobs.
    pub(crate) fn find(&mut self, groups: &[Group]) {
        let jobs = groups.iter().map(|group| group.job.clone()).collect();
        self.jobs = Jobs::new(jobs, Vec::new());
    }

    pub(crate) fn with<T>(
        &mut self,
        call: impl FnOnce(&mut dyn Source, &Context<'_>, &mut Sink) -> T,
    ) -> T {
        let now = wall_clock();
        let (root, jobs, boot) = (&self.root, &self.jobs, Timestamp(0));
        let cx = Context { root, now, boot, jobs, budget_us: 1_000_000, is_between: false };
        self.sink.begin(now);
        call(&mut *self.source, &cx, &mut self.sink)
    }

    pub(crate) fn collect(&mut self) {
        self.sink.sealed();
        self.with(|source, cx, sink| source.collect(cx, sink)).unwrap();
    }

    /// Drains every 100 ms and collects every second, like the agent, while `is_active` returns true.
    pub(crate) fn watch_while(&mut self, mut is_active: impl FnMut() -> bool) {
        let mut collected_us = 0;
        while is_active() {
            if monotonic_us() - collected_us >= 1_000_000 {
                collected_us = monotonic_us();
                self.collect();
            }
            std::thread::sleep(Duration::from_millis(100));
            self.with(|source, cx, sink| source.drain(cx, sink)).unwrap();
        }
    }

    /// The same for tenths of a second.
    pub(crate) fn watch_for(&mut self, tenths: u32) {
        let mut rounds = 0..tenths;
        self.watch_while(|| rounds.next().is_some());
    }

    pub(crate) fn watch_child(&mut self, mut child: Child) {
        self.watch_while(|| child.try_wait().unwrap().is_none());
        assert!(child.wait().unwrap().success());
    }

    /// Reads the last values of a job before its cgroup is dropped.
    pub(crate) fn end(&mut self, group: &Group) {
        self.sink.sealed();
        self.with(|source, cx, sink| source.job_ended(&group.job.key, cx, sink)).unwrap();
    }

    /// The last value of a metric, for a job or for the device.
    pub(crate) fn value(&self, metric: &str, group: Option<&Group>) -> Option<f64> {
        let key = group.map(|group| &group.job.key);
        let samples = self.sink.samples();
        samples
            .filter(|(entry, ..)| entry.metric.name == metric && entry.job.as_ref() == key)
            .last()
            .map(|(_, _, value)| value)
    }

    pub(crate) fn device(&mut self, metric: &str) -> f64 {
        self.collect();
        self.value(metric, None).unwrap()
    }
}
