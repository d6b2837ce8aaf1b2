//! The processes of a command that has no cgroup: followed by descent, as this process adopts what its
//! children leave behind.

use kernel::process::{process_io, process_stat, process_status};
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
    "Resident memory summed over the command's processes; pages that they share count once for each.",
);
pub(super) static PROCESSES: Metric =
    Metric::gauge("run_processes", Unit::Count, "Processes of the command, zombies left out.");
pub(super) static THREADS: Metric =
    Metric::gauge("run_threads", Unit::Count, "Threads of the command.");
pub(super) static READ: Metric = Metric::counter(
    "run_io_read_bytes_total",
    Unit::Bytes,
    "Bytes that the command's processes caused to be read from disks, as far as they were seen alive.",
);
pub(super) static WRITTEN: Metric = Metric::counter(
    "run_io_write_bytes_total",
    Unit::Bytes,
    "Bytes that the command's processes caused to be written to disks, as far as they were seen alive.",
);

/// Largest sum of resident memory seen, and whether samples were taken at all.
#[derive(Debug)]
pub(crate) struct Tree {
    top: u64,
    job: model::JobKey,
    start: Timestamp,
    ticks_per_second: f64,
    buf: Vec<u8>,
    /// Last seen (read, written) bytes of each process, by pid and start; those of ended ones stay.
    io: HashMap<(u64, u64), (u64, u64)>,
    /// What ended and was waited for by us.
    pub(crate) ended: Usage,
    /// Largest sums so far of user time and of system time, in seconds.
    used: (f64, f64),
    /// Largest resident memory seen at one reading.
    pub(crate) resident_bytes_max: f64,
}

struct Seen {
    pid: u64,
    ppid: u64,
    start_ticks: u64,
    ticks: (u64, u64),
    threads: u64,
}

impl Tree {
    /// Follows what descends from the process `top`, which adopts orphans; `top` itself does not count.
    pub(crate) fn new(top: u32, job: model::JobKey, start: Timestamp) -> Self {
        Self {
            top: top.into(),
            job,
            start,
            ticks_per_second: rustix::param::clock_ticks_per_second() as f64,
            buf: Vec::new(),
            io: HashMap::new(),
            ended: Usage::default(),
            used: (0.0, 0.0),
            resident_bytes_max: 0.0,
        }
    }

    /// Processes alive that descend from the top.
    pub(crate) fn descendants(&mut self, root: &Root) -> Result<usize, SourceError> {
        Ok(self.read(root)?.len())
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
            // A process that ended in between is no fault.
            if root.read(&format!("proc/{pid}/stat"), &mut self.buf).is_err() {
                continue;
            }
            let Ok(stat) = process_stat(&self.buf) else { continue };
            if matches!(stat.state, kernel::process::State::Zombie | kernel::process::State::Dead) {
                continue;
            }
            all.push(Seen {
                pid: stat.pid,
                ppid: stat.ppid,
                start_ticks: stat.start_ticks,
                ticks: (
                    stat.user_ticks + stat.children_user_ticks,
                    stat.system_ticks + stat.children_system_ticks,
                ),
                threads: stat.threads,
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

impl Source for Tree {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        let seen = self.read(cx.root)?;
        let mut resident = 0.0;
        for process in &seen {
            let path = format!("proc/{}/status", process.pid);
            if cx.root.read(&path, &mut self.buf).is_ok()
                && let Ok(status) = process_status(&self.buf)
            {
                resident += status.vm_rss.unwrap_or(0) as f64 * 1024.0;
            }
            let path = format!("proc/{}/io", process.pid);
            if cx.root.read(&path, &mut self.buf).is_ok()
                && let Ok(io) = process_io(&self.buf)
            {
                let key = (process.pid, process.start_ticks);
                self.io.insert(key, (io.read_bytes, io.write_bytes));
            }
        }
        // What ended and was waited for by us, plus what the living used and what they inherited from the
        // children they waited for. A zombie is in neither until somebody waits for it.
        let ended = self.ended;
        let living = |ticks: fn(&Seen) -> u64| {
            seen.iter().map(ticks).sum::<u64>() as f64 / self.ticks_per_second
        };
        let user = ended.user_us as f64 / 1e6 + living(|seen| seen.ticks.0);
        let system = ended.system_us as f64 / 1e6 + living(|seen| seen.ticks.1);
        // What a process used that nobody waits for is not seen any more once it has ended.
        let (user, system) = (user.max(self.used.0), system.max(self.used.1));
        self.used = (user, system);
        self.resident_bytes_max = self.resident_bytes_max.max(resident);
        let (read, written) = self.io.values().fold((0, 0), |sum, io| (sum.0 + io.0, sum.1 + io.1));
        let mut out = out.of_job(&self.job);
        out.counter(&CPU, &[], user + system, self.start);
        out.counter(&CPU_USER, &[], user, self.start);
        out.counter(&CPU_SYSTEM, &[], system, self.start);
        // Nothing is known of processes that are gone.
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
