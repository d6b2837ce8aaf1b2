//! The process tree of a command without a cgroup. This process adopts orphans, so that all descendants remain
//! known.

use kernel::clock::monotonic_us;
use kernel::process::{State, process_io, process_stat, process_status};
use kernel::rusage::Usage;
use kernel::{NodeKind, Root};
use model::{Metric, Timestamp, Unit};
use sources::{Context, Sink, Source, SourceError};
use std::collections::{HashMap, HashSet};

pub(crate) static CPU: Metric = Metric::counter(
    "run_cpu_seconds_total",
    Unit::Seconds,
    "Processor time of the command and all it started.",
)
.steps(1_000_000);
pub(crate) static CPU_USER: Metric = Metric::counter(
    "run_cpu_user_seconds_total",
    Unit::Seconds,
    "Processor time of the command in user mode.",
)
.steps(1_000_000);
pub(crate) static CPU_SYSTEM: Metric = Metric::counter(
    "run_cpu_system_seconds_total",
    Unit::Seconds,
    "Processor time of the command in the kernel.",
)
.steps(1_000_000);
pub(super) static MEMORY: Metric = Metric::gauge(
    "run_memory_resident_bytes",
    Unit::Bytes,
    "Resident memory summed over the command's processes; shared pages count once per process.",
);
pub(super) static PROCESSES: Metric =
    Metric::gauge("run_processes", Unit::Count, "Processes of the command, zombies left out.");
pub(super) static THREADS: Metric =
    Metric::gauge("run_threads", Unit::Count, "Threads of the command.");
pub(super) static READ: Metric = Metric::counter(
    "run_io_read_bytes_total",
    Unit::Bytes,
    "Bytes that the command's processes caused to be read from disks, up to the last reading of \
     each process.",
);
pub(super) static WRITTEN: Metric = Metric::counter(
    "run_io_write_bytes_total",
    Unit::Bytes,
    "Bytes that the command's processes caused to be written to disks, up to the last reading of \
     each process.",
);

/// Minimum interval between two glances, in microseconds.
const GLANCE_US: u64 = 100_000;
/// Pause after a glance, as a multiple of its duration.
const GLANCE_PAUSE: u64 = 50;
/// Difference in ticks between the kernel's counts of the same processes: it rounds each down.
const ROUNDING_TICKS: f64 = 2.0;
/// The bit of SIGCHLD in a mask of `/proc/PID/status`.
const SIGCHLD_BIT: u64 = 1 << (signal_hook::consts::SIGCHLD - 1);

/// The processes of a command, and the usage of ended ones.
#[derive(Debug)]
pub(crate) struct Tree {
    top: u64,
    job: model::JobKey,
    start: Timestamp,
    ticks_per_second: f64,
    buf: Vec<u8>,
    /// Last seen (read, written) bytes of each process, by PID and start; entries of ended processes remain.
    io: HashMap<(u64, u64), (u64, u64)>,
    /// Usage of ended processes that this process waited for.
    pub(crate) ended: Usage,
    /// Last seen times of each live process, by PID and start.
    last: HashMap<(u64, u64), LastSeen>,
    /// Processor time of [`Self::ended`] when `last` was read, in seconds.
    ended_before: f64,
    /// User and system time of processes that vanished at the last reading and whose time no process has
    /// inherited yet.
    pending: (f64, f64),
    /// User and system time of processes that the kernel reaped itself: no process inherits it.
    lost: (f64, f64),
    /// Whether a process ignores SIGCHLD: the kernel reaps its children and drops their usage.
    is_ignoring: bool,
    /// When the next glance is due, in time of [`monotonic_us`].
    glance_due_us: u64,
    /// Maximum sums so far of user time and of system time, in seconds.
    used: (f64, f64),
    /// Maximum resident memory at one reading.
    pub(crate) resident_bytes_max: f64,
}

/// User and system time in ticks: of a process with the children that it waited for, and of these children
/// alone.
#[derive(Clone, Copy, Debug)]
struct LastSeen {
    all: (u64, u64),
    of_children: u64,
}

struct Seen {
    pid: u64,
    ppid: u64,
    start_ticks: u64,
    times: LastSeen,
    threads: u64,
    /// The process has ended, and its parent has not waited for it yet.
    is_zombie: bool,
}

impl Tree {
    /// Follows the descendants of the process `top`, which adopts orphans; `top` itself is not counted.
    pub(crate) fn new(top: u32, job: model::JobKey, start: Timestamp) -> Self {
        Self {
            top: top.into(),
            job,
            start,
            ticks_per_second: rustix::param::clock_ticks_per_second() as f64,
            buf: Vec::new(),
            io: HashMap::new(),
            ended: Usage::default(),
            last: HashMap::new(),
            ended_before: 0.0,
            pending: (0.0, 0.0),
            lost: (0.0, 0.0),
            is_ignoring: false,
            glance_due_us: 0,
            used: (0.0, 0.0),
            resident_bytes_max: 0.0,
        }
    }

    /// Number of live descendants of `top`.
    pub(crate) fn descendants(&mut self, root: &Root) -> Result<usize, SourceError> {
        Ok(self.read(root)?.iter().filter(|seen| !seen.is_zombie).count())
    }

    /// Reads the processes between two readings, unless the last glance is too recent.
    pub(crate) fn glance(&mut self, root: &Root) -> Result<(), SourceError> {
        let begun_us = monotonic_us();
        if begun_us < self.glance_due_us {
            return Ok(());
        }
        let seen = self.read(root)?;
        self.note_vanished(&seen);
        for process in &seen {
            self.read_status(root, process.pid);
        }
        let end_us = monotonic_us();
        let pause_us = end_us.saturating_sub(begun_us).saturating_mul(GLANCE_PAUSE);
        self.glance_due_us = end_us.saturating_add(pause_us.max(GLANCE_US));
        Ok(())
    }

    /// Called after the last reading: pending time is lost, because no process can inherit it now.
    pub(crate) fn end(&mut self) {
        let (user, system) = std::mem::take(&mut self.pending);
        self.lost = (self.lost.0 + user, self.lost.1 + system);
    }

    /// Whether the kernel may have dropped the usage of some processes.
    pub(crate) fn has_lost(&self) -> bool {
        self.is_ignoring || self.lost.0 + self.lost.1 > 0.0
    }

    /// Compares the usage of vanished processes with the time that their parents and this process have inherited
    /// since. The difference is lost unless it is inherited by the next reading, because processes may end
    /// during a reading.
    fn note_vanished(&mut self, seen: &[Seen]) {
        let now: HashMap<_, _> =
            seen.iter().map(|seen| ((seen.pid, seen.start_ticks), seen.times)).collect();
        let (mut gone, mut inherited_ticks) = ((0, 0), 0);
        for (key, last) in &self.last {
            match now.get(key) {
                Some(times) => {
                    inherited_ticks += times.of_children.saturating_sub(last.of_children);
                }
                None => gone = (gone.0 + last.all.0, gone.1 + last.all.1),
            }
        }
        let ended = (self.ended.user_us + self.ended.system_us) as f64 / 1e6;
        let inherited = inherited_ticks as f64 / self.ticks_per_second + ended - self.ended_before;
        let [user, system] = [gone.0, gone.1].map(|ticks| ticks as f64 / self.ticks_per_second);
        let missing = user + system - inherited;
        let pending = self.pending.0 + self.pending.1;
        if pending > 0.0 {
            let part = ((pending - (-missing).max(0.0)) / pending).max(0.0);
            self.lost.0 += self.pending.0 * part;
            self.lost.1 += self.pending.1 * part;
        }
        let is_missing = missing > ROUNDING_TICKS / self.ticks_per_second;
        let part = if is_missing { missing / (user + system) } else { 0.0 };
        self.pending = (user * part, system * part);
        (self.last, self.ended_before) = (now, ended);
    }

    /// Reads a process's resident memory in KiB, and whether the process ignores SIGCHLD.
    fn read_status(&mut self, root: &Root, pid: u64) -> Option<u64> {
        // A process that ended meanwhile is no error.
        root.read(&format!("proc/{pid}/status"), &mut self.buf).ok()?;
        self.is_ignoring |= is_ignoring(&self.buf);
        process_status(&self.buf).ok()?.vm_rss
    }

    fn read(&mut self, root: &Root) -> Result<Vec<Seen>, SourceError> {
        let mut pids: Vec<u64> = Vec::new();
        root.list("proc", |entry| {
            if entry.kind == NodeKind::Directory
                && let Ok(pid) = entry.name.parse()
            {
                pids.push(pid);
            }
        })?;
        let mut all: Vec<Seen> = Vec::new();
        for pid in pids {
            // A process that ended meanwhile is no error.
            if root.read(&format!("proc/{pid}/stat"), &mut self.buf).is_err() {
                continue;
            }
            let Ok(stat) = process_stat(&self.buf) else { continue };
            if stat.state == State::Dead {
                continue;
            }
            let children = (stat.children_user_ticks, stat.children_system_ticks);
            all.push(Seen {
                pid: stat.pid,
                ppid: stat.ppid,
                start_ticks: stat.start_ticks,
                times: LastSeen {
                    all: (stat.user_ticks + children.0, stat.system_ticks + children.1),
                    of_children: children.0 + children.1,
                },
                threads: stat.threads,
                is_zombie: stat.state == State::Zombie,
            });
        }
        let mut ours: HashSet<u64> = HashSet::from([self.top]);
        loop {
            let before = ours.len();
            let found = all.iter().filter(|seen| ours.contains(&seen.ppid)).map(|seen| seen.pid);
            let found: Vec<u64> = found.collect();
            ours.extend(found);
            if ours.len() == before {
                break;
            }
        }
        all.retain(|seen| seen.pid != self.top && ours.contains(&seen.pid));
        Ok(all)
    }
}

/// Whether a process ignores SIGCHLD, from its `/proc/PID/status`.
fn is_ignoring(status: &[u8]) -> bool {
    let mut lines = status.split(|byte| *byte == b'\n');
    let mask = lines.find_map(|line| line.strip_prefix(b"SigIgn:"));
    let mask = mask.and_then(|mask| std::str::from_utf8(mask).ok());
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & SIGCHLD_BIT != 0)
}

impl Source for Tree {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        let mut seen = self.read(cx.root)?;
        self.note_vanished(&seen);
        let mut resident = 0.0;
        for process in &seen {
            resident += self.read_status(cx.root, process.pid).unwrap_or(0) as f64 * 1024.0;
            let path = format!("proc/{}/io", process.pid);
            if cx.root.read(&path, &mut self.buf).is_ok()
                && let Ok(io) = process_io(&self.buf)
            {
                let key = (process.pid, process.start_ticks);
                self.io.insert(key, (io.read_bytes, io.write_bytes));
            }
        }
        // The sum has three parts: ended processes that this process waited for, live processes with the
        // children they waited for, and lost time.
        let ended = self.ended;
        let living = |ticks: fn(&Seen) -> u64| {
            seen.iter().map(ticks).sum::<u64>() as f64 / self.ticks_per_second
        };
        let user = ended.user_us as f64 / 1e6 + self.lost.0 + living(|seen| seen.times.all.0);
        let system = ended.system_us as f64 / 1e6 + self.lost.1 + living(|seen| seen.times.all.1);
        // Pending time is in no sum, so a sum may decrease: the maximum counts.
        let (user, system) = (user.max(self.used.0), system.max(self.used.1));
        self.used = (user, system);
        self.resident_bytes_max = self.resident_bytes_max.max(resident);
        let (read, written) = self.io.values().fold((0, 0), |sum, io| (sum.0 + io.0, sum.1 + io.1));
        let mut out = out.of_job(&self.job);
        out.counter(&CPU, &[], user + system, self.start);
        out.counter(&CPU_USER, &[], user, self.start);
        out.counter(&CPU_SYSTEM, &[], system, self.start);
        seen.retain(|seen| !seen.is_zombie);
        // Vanished processes have no values.
        if resident > 0.0 {
            out.gauge(&MEMORY, &[], resident);
        }
        if !seen.is_empty() {
            out.gauge(&PROCESSES, &[], seen.len() as f64);
            out.gauge(&THREADS, &[], seen.iter().map(|seen| seen.threads).sum::<u64>() as f64);
        }
        if !self.io.is_empty() {
            out.counter(&READ, &[], read as f64, self.start);
            out.counter(&WRITTEN, &[], written as f64, self.start);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cgroups::Jobs;
    use model::{ClusterId, DeviceId, JobId, JobKey};

    #[test]
    fn a_mask_states_whether_sigchld_is_ignored() {
        assert!(is_ignoring(b"SigBlk:\t0000000000000000\nSigIgn:\t0000000000010004\nSigCgt:\t0\n"));
        assert!(!is_ignoring(b"SigIgn:\t0000000000001006\nSigCgt:\t0000000000010000\n"));
        assert!(!is_ignoring(b""));
    }

    #[test]
    fn what_nobody_inherits_is_lost_and_counted() {
        let key = JobKey { cluster: ClusterId::local(), id: JobId::new(1).unwrap() };
        let mut tree = Tree::new(1, key, Timestamp(0));
        tree.ticks_per_second = 100.0;
        let seen = |pid, own: u64, of_children: u64| Seen {
            pid,
            ppid: 1,
            start_ticks: 5,
            times: LastSeen { all: (own + of_children, 0), of_children },
            threads: 1,
            is_zombie: false,
        };
        tree.note_vanished(&[seen(7, 10, 0), seen(8, 100, 0), seen(9, 300, 0)]);
        // Process 8 was waited for by 7, which was read before it did so; 9 was not.
        tree.note_vanished(&[seen(7, 10, 0)]);
        tree.note_vanished(&[seen(7, 10, 101)]);
        let lost = tree.lost.0;
        assert!((lost - 2.99).abs() < 1e-6, "{lost}");
        assert!(tree.has_lost());
        // Process 7 ends and this process waits for it: no more time is lost.
        tree.ended = Usage { user_us: 1_115_000, ..Usage::default() };
        tree.note_vanished(&[]);
        tree.end();
        assert_eq!(tree.lost.0, lost);
    }

    #[test]
    fn a_child_that_nobody_waits_for_takes_nothing_away() {
        let dir = tempfile::tempdir().unwrap();
        let stat = dir.path().join("proc/7/stat");
        std::fs::create_dir_all(stat.parent().unwrap()).unwrap();
        let ticks = |user| {
            let line = format!(
                "7 (sh) S 1 7 7 0 -1 4194304 1 0 0 0 {user} 10 0 0 20 0 1 0 5 1000 100 18446744073709551615 \
                 1 1 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
            );
            std::fs::write(&stat, line).unwrap();
        };
        let root = Root::recorded(dir.path()).unwrap();
        let key = JobKey { cluster: ClusterId::local(), id: JobId::new(1).unwrap() };
        let mut tree = Tree::new(1, key, Timestamp(0));
        let mut sink = Sink::new(DeviceId::new("n1").unwrap());
        let jobs = Jobs::default();
        let mut read = |tree: &mut Tree| {
            let cx = Context {
                root: &root,
                now: Timestamp(1),
                boot: Timestamp(0),
                jobs: &jobs,
                budget_us: 0,
                is_between: false,
            };
            sink.begin(Timestamp(1));
            tree.collect(&cx, &mut sink).unwrap();
            let values = sink.samples().filter(|(entry, ..)| entry.metric.name == CPU.name);
            let value = values.last().map(|(_, _, value)| value).unwrap();
            let count = |metric: &Metric| {
                sink.samples().filter(|(entry, ..)| entry.metric.name == metric.name).count()
            };
            (value, count(&PROCESSES), count(&MEMORY), count(&WRITTEN))
        };
        ticks(100);
        let (first, processes, ..) = read(&mut tree);
        assert!(first > 0.0);
        assert_eq!(processes, 1);
        std::fs::remove_file(&stat).unwrap();
        let after = read(&mut tree);
        assert_eq!(after.0, first);
        assert_eq!((after.1, after.2, after.3), (1, 0, 0), "no sample of processes that are gone");
        tree.ended = Usage { user_us: 5_000_000, system_us: 5_000_000, ..Usage::default() };
        assert_eq!(read(&mut tree).0, 10.0);
    }
}
