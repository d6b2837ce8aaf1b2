//! Bytes of jobs that have a network namespace of their own.
//!
//! The kernel counts bytes by interface, and an interface belongs to a namespace. So bytes are attributed to
//! a job only if it alone has processes in a namespace other than the node's. A namespace shared by two jobs
//! is attributed to neither. Bytes count from the first reading of a namespace, which may be older than the
//! job, to the last reading before the end of its last process.

use crate::{Context, Sink, SourceError};
use cgroups::{JobCgroup, Members};
use kernel::Root;
use kernel::net_dev::net_dev;
use model::{JobKey, Metric, Timestamp, Unit};
use std::fmt::Write as _;

const PART: &str = "jobs";
/// Processes in the node's namespace: init, and the kernel's own `kthreadd`. A security module may hide the
/// first, even from root, as on some virtual machines.
const NODE_PIDS: [u32; 2] = [1, 2];
/// Maximum number of a job's processes examined per round.
const PROCESSES_MAX: usize = 64;
/// Maximum number of namespaces counted per job.
const NAMESPACES_MAX: usize = 8;
/// Readings between two scans of a job's processes; a young job is scanned at every reading.
const LOOK_EVERY: u32 = 8;
const YOUNG_US: i64 = 30 * Timestamp::SECOND;

pub(super) static RECEIVED: Metric = Metric::counter(
    "network_job_received_bytes_total",
    Unit::Bytes,
    "Bytes received in the job's own network namespace, excluding loopback; no sample if the job has none.",
);
pub(super) static TRANSMITTED: Metric = Metric::counter(
    "network_job_transmitted_bytes_total",
    Unit::Bytes,
    "Bytes sent in the job's own network namespace, excluding loopback; no sample if the job has none.",
);

/// The namespaces of all jobs.
#[derive(Debug, Default)]
pub(super) struct OfJobs {
    jobs: Vec<Job>,
    generation: Option<u64>,
    reader: ReadBuffers,
}

/// Reused memory for reading.
#[derive(Debug, Default)]
struct ReadBuffers {
    members: Members,
    path: String,
    text: Vec<u8>,
}

#[derive(Debug)]
struct Job {
    key: JobKey,
    created: Timestamp,
    /// Time of the first reading of its first namespace.
    start: Option<Timestamp>,
    bytes: [u64; 2],
    namespaces: Vec<Namespace>,
    /// Whether another job has processes in one of them.
    is_shared: bool,
    readings: u32,
}

#[derive(Debug)]
struct Namespace {
    inode: u64,
    /// A process in it.
    pid: u32,
    last: [u64; 2],
}

impl OfJobs {
    /// Reads new jobs soon after their first process starts.
    pub(super) fn discover(&mut self, cx: &Context<'_>) {
        if self.generation != Some(cx.jobs.generation()) {
            self.read(cx);
        }
    }

    /// Reads the namespaces of all jobs, and reports their bytes.
    pub(super) fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) {
        let is_permitted = self.read(cx);
        self.jobs.iter().for_each(|job| job.report(cx, out));
        if self.jobs.is_empty() || !cx.root.is_live() {
            return;
        }
        let is_any = self.jobs.iter().any(|job| job.start.is_some() && !job.is_shared);
        let error = match (is_permitted, is_any) {
            (false, _) => Some(SourceError::denied(
                "the network namespaces of processes (/proc/PID/ns/net)",
                "root, or CAP_SYS_PTRACE",
            )),
            (true, false) => Some(SourceError::absent(
                "no job has a network namespace to itself; the kernel attributes bytes to namespaces, not to processes",
            )),
            (true, true) => None,
        };
        out.part_as(PART, error.as_ref());
    }

    /// Reads a job for the last time.
    pub(super) fn ended(&mut self, key: &JobKey, cx: &Context<'_>, out: &mut Sink) {
        let reader = &mut self.reader;
        if let Some(job) = self.jobs.iter_mut().find(|job| job.key == *key) {
            job.count(cx.root, reader);
            job.report(cx, out);
        }
    }

    /// Reads all jobs; returns whether namespaces may be read.
    fn read(&mut self, cx: &Context<'_>) -> bool {
        self.follow(cx);
        if self.jobs.is_empty() {
            return true;
        }
        let reader = &mut self.reader;
        let Some(node) = NODE_PIDS.into_iter().find_map(|pid| reader.namespace(cx.root, pid))
        else {
            return false;
        };
        for job in &mut self.jobs {
            if let Some(cgroup) = cx.jobs.get(&job.key) {
                job.read(cgroup, node, cx, &mut self.reader);
            }
        }
        self.find_shared();
        true
    }

    fn follow(&mut self, cx: &Context<'_>) {
        if self.generation.replace(cx.jobs.generation()) == Some(cx.jobs.generation()) {
            return;
        }
        let mut old = std::mem::take(&mut self.jobs);
        for now in cx.jobs.iter() {
            let is_it = |job: &mut Job| job.key == now.key && job.created == now.created;
            let known = old.extract_if(.., is_it).next();
            self.jobs.push(known.unwrap_or_else(|| Job {
                key: now.key.clone(),
                created: now.created,
                start: None,
                bytes: [0; 2],
                namespaces: Vec::new(),
                is_shared: false,
                readings: 0,
            }));
        }
    }

    fn find_shared(&mut self) {
        for place in 0..self.jobs.len() {
            let (before, rest) = self.jobs.split_at_mut(place);
            let Some((job, after)) = rest.split_first_mut() else { return };
            job.is_shared |= before.iter().chain(&*after).any(|other| {
                let is_own =
                    |theirs: &Namespace| job.namespaces.iter().any(|own| own.inode == theirs.inode);
                other.namespaces.iter().any(is_own)
            });
        }
    }
}

impl Job {
    fn read(&mut self, cgroup: &JobCgroup, node: u64, cx: &Context<'_>, reader: &mut ReadBuffers) {
        let is_any_lost = self.count(cx.root, reader);
        let is_young = cx.now.since(self.created) < YOUNG_US;
        let is_due = self.readings.is_multiple_of(LOOK_EVERY);
        self.readings = self.readings.wrapping_add(1);
        if !(is_any_lost || is_young || is_due)
            || cgroups::processes(cx.root, cgroup, &mut reader.members).is_err()
        {
            return;
        }
        for place in 0..reader.members.ids().len().min(PROCESSES_MAX) {
            let Some(pid) = reader.members.ids().get(place).copied() else { return };
            let Some(inode) = reader.namespace(cx.root, pid) else { continue };
            if inode == node {
                continue;
            }
            if let Some(known) = self.namespaces.iter_mut().find(|one| one.inode == inode) {
                // The known process has ended: this one represents the namespace now.
                if reader.namespace(cx.root, known.pid) != Some(inode) {
                    known.pid = pid;
                }
            } else if self.namespaces.len() < NAMESPACES_MAX
                && let Some(last) = reader.bytes(cx.root, pid)
            {
                self.start.get_or_insert(cx.now);
                self.namespaces.push(Namespace { inode, pid, last });
            }
        }
        self.namespaces.retain(|one| reader.namespace(cx.root, one.pid) == Some(one.inode));
    }

    /// Adds the bytes since the last reading. Returns whether a process that represents a namespace has
    /// ended.
    fn count(&mut self, root: &Root, reader: &mut ReadBuffers) -> bool {
        let mut is_any_lost = false;
        for one in &mut self.namespaces {
            let now = reader.bytes(root, one.pid);
            // The process ID may have been reused.
            let is_it = reader.namespace(root, one.pid) == Some(one.inode);
            let Some(now) = now.filter(|_| is_it) else {
                is_any_lost = true;
                continue;
            };
            // A removed interface takes its bytes along.
            for ((sum, now), last) in self.bytes.iter_mut().zip(now).zip(one.last) {
                *sum = sum.saturating_add(now.saturating_sub(last));
            }
            one.last = now;
        }
        is_any_lost
    }

    fn report(&self, cx: &Context<'_>, out: &mut Sink) {
        let Some(start) = self.start.filter(|start| !self.is_shared && *start <= cx.now) else {
            return;
        };
        let [received, transmitted] = self.bytes;
        let mut of_job = out.of_job(&self.key);
        of_job.counter(&RECEIVED, &[], received as f64, start);
        of_job.counter(&TRANSMITTED, &[], transmitted as f64, start);
    }
}

impl ReadBuffers {
    /// Inode of a process's network namespace; `None` if the process has ended or may not be examined.
    fn namespace(&mut self, root: &Root, pid: u32) -> Option<u64> {
        self.path.clear();
        // Writing into a `String` cannot fail.
        write!(self.path, "proc/{pid}/ns/net").ok();
        let mut target = [0; 64];
        let target = root.read_short_link(&self.path, &mut target)?;
        target.strip_prefix("net:[")?.strip_suffix(']')?.parse().ok()
    }

    /// Bytes received and sent in the namespace of a process, excluding loopback.
    fn bytes(&mut self, root: &Root, pid: u32) -> Option<[u64; 2]> {
        self.path.clear();
        // Writing into a `String` cannot fail.
        write!(self.path, "proc/{pid}/net/dev").ok();
        root.read(&self.path, &mut self.text).ok()?;
        let mut sum = [0_u64; 2];
        for interface in net_dev(&self.text).ok()? {
            let interface = interface.ok().filter(|one| one.name != b"lo");
            let one = interface.map_or([0; 2], |one| [one.received.bytes, one.transmitted.bytes]);
            sum.iter_mut().zip(one).for_each(|(sum, one)| *sum = sum.saturating_add(one));
        }
        Some(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::super::SPEC;
    use super::*;
    use crate::{Open, Options, Source};
    use cgroups::{Hierarchy, JobDir, Jobs};
    use model::{ClusterId, DeviceId, JobId};

    const NODE: u64 = 4_026_531_840;
    const NOW: Timestamp = Timestamp(1_700_000_100_000_000);

    struct Machine {
        dir: tempfile::TempDir,
        root: Root,
        source: Box<dyn Source>,
        sink: Sink,
        now: Timestamp,
    }

    impl Machine {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let root = Root::recorded(dir.path()).unwrap();
            let options = Options::defaults(SPEC.options);
            std::fs::create_dir_all(dir.path().join("proc/net")).unwrap();
            std::fs::write(dir.path().join("proc/net/dev"), dev(0, 0)).unwrap();
            let open = Open { root: &root, options: &options, boot: Timestamp(0) };
            let source = (SPEC.open)(&open).unwrap();
            let sink = Sink::new(DeviceId::new("n1").unwrap());
            let machine = Self { dir, root, source, sink, now: NOW };
            machine.process(1, NODE, 9, 9);
            machine
        }

        /// Adds a process in a namespace with these byte counts.
        fn process(&self, pid: u32, inode: u64, received: u64, sent: u64) {
            let at = |file: &str| self.dir.path().join(format!("proc/{pid}/{file}"));
            std::fs::create_dir_all(at("ns")).unwrap();
            std::fs::create_dir_all(at("net")).unwrap();
            std::fs::remove_file(at("ns/net")).ok();
            std::os::unix::fs::symlink(format!("net:[{inode}]"), at("ns/net")).unwrap();
            std::fs::write(at("net/dev"), dev(received, sent)).unwrap();
        }

        fn of_job(&self, id: i64, pids: &str) -> JobCgroup {
            let dir = format!("cg/job_{id}");
            std::fs::create_dir_all(self.dir.path().join(&dir)).unwrap();
            std::fs::write(self.dir.path().join(&dir).join("cgroup.procs"), pids).unwrap();
            JobCgroup {
                key: JobKey { cluster: ClusterId::local(), id: JobId::new(id).unwrap() },
                display_id: id.to_string().into(),
                user: None,
                uid: None,
                dirs: vec![JobDir { hierarchy: Hierarchy::Unified, path: dir }],
                created: NOW,
                populated: true,
                directories_max: cgroups::USER_DIRECTORIES_MAX,
            }
        }

        /// Bytes received and sent, and their start, of each job with such samples.
        fn tick(&mut self, jobs: &Jobs) -> Vec<(i64, [f64; 2], Timestamp)> {
            self.now = self.now.plus(Timestamp::SECOND);
            self.sink.sealed();
            self.sink.begin(self.now);
            let (root, now, boot) = (&self.root, self.now, Timestamp(0));
            let cx = Context { root, now, boot, jobs, budget_us: 1, is_between: false };
            self.source.collect(&cx, &mut self.sink).unwrap();
            let of_jobs = self.sink.samples().filter_map(|(entry, _, value)| {
                Some((entry.job.as_ref()?.id.get(), value, entry.start?))
            });
            let all: Vec<_> = of_jobs.collect();
            all.chunks(2).map(|pair| (pair[0].0, [pair[0].1, pair[1].1], pair[0].2)).collect()
        }
    }

    fn dev(received: u64, sent: u64) -> String {
        let line = |name: &str, received: u64, sent: u64| {
            format!("{name}: {received} 0 0 0 0 0 0 0 {sent} 0 0 0 0 0 0 0\n")
        };
        line("lo", 77, 77) + &line("eth0", received, sent)
    }

    #[test]
    fn bytes_of_a_jobs_namespace_count_from_the_first_reading() {
        let mut machine = Machine::new();
        machine.process(10, NODE, 5, 5);
        machine.process(11, 7, 1000, 100);
        let jobs = Jobs::new(vec![machine.of_job(1, "10\n11\n")], Vec::new());
        let start = machine.now.plus(Timestamp::SECOND);
        assert_eq!(
            machine.tick(&jobs),
            [(1, [0.0, 0.0], start)],
            "the namespace may be older than the job"
        );
        machine.process(11, 7, 1500, 110);
        assert_eq!(machine.tick(&jobs), [(1, [500.0, 10.0], start)]);
        // The process ends; another one in the namespace remains.
        std::fs::remove_dir_all(machine.dir.path().join("proc/11")).unwrap();
        machine.process(12, 7, 1600, 110);
        machine.of_job(1, "10\n12\n");
        machine.tick(&jobs);
        machine.process(12, 7, 1700, 120);
        assert_eq!(machine.tick(&jobs), [(1, [700.0, 20.0], start)]);
        // Another process gets the ID; then an interface disappears.
        machine.process(12, 8, 9_000_000, 9_000_000);
        assert_eq!(machine.tick(&jobs), [(1, [700.0, 20.0], start)]);
        machine.process(12, 8, 1, 9_000_001);
        assert_eq!(machine.tick(&jobs), [(1, [700.0, 21.0], start)]);
    }

    #[test]
    fn kthreadd_shows_the_nodes_namespace_if_init_is_hidden() {
        let mut machine = Machine::new();
        std::fs::remove_dir_all(machine.dir.path().join("proc/1")).unwrap();
        machine.process(2, NODE, 9, 9);
        machine.process(10, NODE, 5, 5);
        machine.process(11, 7, 1000, 100);
        let jobs = Jobs::new(vec![machine.of_job(1, "10\n11\n")], Vec::new());
        let start = machine.now.plus(Timestamp::SECOND);
        assert_eq!(machine.tick(&jobs), [(1, [0.0, 0.0], start)]);
    }

    #[test]
    fn namespaces_of_the_node_or_of_two_jobs_are_not_attributed() {
        let mut machine = Machine::new();
        machine.process(10, NODE, 5, 5);
        let jobs = Jobs::new(vec![machine.of_job(1, "10\n")], Vec::new());
        assert_eq!(machine.tick(&jobs), [], "the node's namespace");
        machine.process(20, 7, 5, 5);
        machine.process(21, 7, 5, 5);
        let two = vec![machine.of_job(2, "20\n"), machine.of_job(3, "21\n")];
        assert_eq!(machine.tick(&Jobs::new(two, Vec::new())), [], "it would count twice");
    }
}
