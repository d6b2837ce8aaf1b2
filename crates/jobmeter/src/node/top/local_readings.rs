//! Reads this node with its sources and `/proc`, without an agent or a server.

use super::rates::{Rates, Values};
use super::table::{Head, Row};
use crate::node::probe::{Probe, ProbedMachine};
use cgroups::{Discovery, Jobs, Members};
use jobs::Users;
use kernel::Root;
use kernel::process::{process_io, process_stat, process_status};
use kernel::stat::user_hz;
use model::{JobKey, Series, Timestamp};
use sources::Options;
use std::time::Duration;

/// The sources of the metrics that the screen shows.
const SOURCES: [&str; 7] = ["cgroup", "taskstats", "cpu", "memory", "load", "rapl", "hwmon"];
/// Processor time limit of a reading.
const BUDGET: Duration = Duration::from_millis(200);
/// Maximum number of processes read; the screen reports the number of others.
const PROCESSES_MAX: usize = 20_000;
/// Counters of busy processor time, without steal.
pub(super) const BUSY: [&str; 5] = [
    "cpu_user_seconds_total",
    "cpu_nice_seconds_total",
    "cpu_system_seconds_total",
    "cpu_irq_seconds_total",
    "cpu_softirq_seconds_total",
];

/// The processes on the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ProcessSelection {
    /// All processes of the node.
    Node,
    /// The processes of a job.
    Job(JobKey),
}

/// The state of this node's readings.
pub(super) struct LocalReadings {
    probed_machine: ProbedMachine,
    probes: Vec<Probe>,
    discovery: Discovery,
    jobs: Jobs,
    rates: Rates<Series>,
    of_processes: Rates<(u32, &'static str)>,
    /// Transfer rates of all processes of jobs whose transfers no other source counts.
    of_jobs: Rates<(u32, &'static str)>,
    members: Members,
    users: Users,
    hz: f64,
}

impl LocalReadings {
    pub(super) fn new(probed_machine: ProbedMachine) -> Self {
        let specs = SOURCES.iter().filter_map(|name| sources::list::find(name));
        let open = |spec| Probe::open(spec, &Options::defaults(spec.options), &probed_machine);
        Self {
            probes: specs.map(open).collect(),
            discovery: Discovery::new(cgroups::Config { runs: true, ..cgroups::Config::default() }),
            jobs: Jobs::default(),
            rates: Rates::new(),
            of_processes: Rates::new(),
            of_jobs: Rates::new(),
            members: Members::default(),
            users: users(&probed_machine.root),
            hz: user_hz(&probed_machine.root) as f64,
            probed_machine,
        }
    }

    /// Reads the node and its jobs.
    pub(super) fn read(&mut self, now: Timestamp) -> (Head, Vec<Row>) {
        self.discovery.update(&self.probed_machine.root, now, &mut self.jobs);
        self.rates.begin(now);
        let mut values = Values::default();
        for probe in &mut self.probes {
            if probe.read(&self.probed_machine, &self.jobs, BUDGET).is_some() {
                values.add(probe.sink(), &mut self.rates);
            }
        }
        let rows = self.jobs.iter().filter(|job| job.populated).map(|job| {
            let get = |metric| values.get(metric, Some(&job.key));
            let user = job.user.as_deref().map(str::to_owned);
            Row {
                id: job.key.to_string(),
                name: job.display_id.to_string(),
                user: user
                    .or_else(|| job.uid.map(|uid| user_name(&self.users, uid)))
                    .unwrap_or_default(),
                cpu: get("cgroup_cpu_seconds_total"),
                memory: get("cgroup_memory_bytes"),
                // Without the io controller, or if a cgroup counts no transfers, the tasks' own counters are
                // used.
                read: get("cgroup_io_read_bytes_total")
                    .or_else(|| get("taskstats_read_bytes_total")),
                written: get("cgroup_io_write_bytes_total")
                    .or_else(|| get("taskstats_write_bytes_total")),
                tasks: get("cgroup_tasks"),
            }
        });
        let mut rows: Vec<Row> = rows.collect();
        std::mem::swap(&mut self.of_processes, &mut self.of_jobs);
        self.of_processes.begin(now);
        rows.iter_mut().for_each(|row| self.complete(row));
        std::mem::swap(&mut self.of_processes, &mut self.of_jobs);
        (self.head(now, &values), rows)
    }

    /// Fills in values that only the job's processes have: its user, and its transfers if neither the cgroup nor
    /// taskstats counts them.
    fn complete(&mut self, row: &mut Row) {
        if !row.user.is_empty() && row.read.is_some() && row.written.is_some() {
            return;
        }
        let Some(key) = self.job(&row.id) else { return };
        let Some(job) = self.jobs.get(&key) else { return };
        // Processes that could not be listed are missing in the sums.
        cgroups::processes(&self.probed_machine.root, job, &mut self.members).ok();
        let mut pids = self.members.ids().to_vec();
        pids.sort_unstable();
        pids.dedup();
        pids.truncate(PROCESSES_MAX);
        let mut text = Vec::new();
        let processes: Vec<Row> =
            pids.iter().filter_map(|pid| self.process(*pid, &mut text)).collect();
        if row.user.is_empty() {
            row.user = processes.first().map(|one| one.user.clone()).unwrap_or_default();
        }
        let sum =
            |of: fn(&Row) -> Option<f64>| processes.iter().filter_map(of).reduce(|a, b| a + b);
        row.read = row.read.or_else(|| sum(|one| one.read));
        row.written = row.written.or_else(|| sum(|one| one.written));
    }

    fn head(&self, now: Timestamp, values: &Values) -> Head {
        let get = |metric| values.get(metric, None);
        let busy: Option<Vec<f64>> = BUSY.iter().map(|metric| get(metric)).collect();
        let total = get("memory_total_bytes");
        let available = get("memory_available_bytes");
        // The platform counter includes its packages. A package counter includes its cores, but not its memory.
        let packages = get("rapl_package_joules_total");
        let parts = packages.map(|watts| watts + get("rapl_dram_joules_total").unwrap_or(0.0));
        Head {
            device: self.probed_machine.device.to_string(),
            now,
            jobs: self.jobs.iter().len(),
            load: get("load_1m"),
            busy: busy.map(|parts| parts.iter().sum()),
            cores: get("cpu_online"),
            memory_used: total.zip(available).map(|(total, available)| total - available),
            memory: total,
            nodes: None,
            energy: get("rapl_psys_joules_total").or(parts),
            sensor: values.largest("hwmon_power_watts"),
        }
    }

    /// The job with a row's ID.
    pub(super) fn job(&self, id: &str) -> Option<JobKey> {
        self.jobs.iter().find(|job| job.key.to_string() == id).map(|job| job.key.clone())
    }

    /// Drops the process readings, because processes leave the screen for a time.
    pub(super) fn forget_processes(&mut self) {
        self.of_processes.forget();
    }

    /// Reads processes. Returns the rows and the number of omitted processes.
    pub(super) fn processes(
        &mut self,
        selection: &ProcessSelection,
        now: Timestamp,
    ) -> (Vec<Row>, usize) {
        let mut pids = Vec::new();
        match selection {
            ProcessSelection::Node => {
                // This fails only if `/proc` is unavailable; then there are no rows.
                let list = self.probed_machine.root.list("proc", |entry| {
                    pids.extend(entry.name.parse::<u32>().ok());
                });
                list.ok();
            }
            ProcessSelection::Job(key) => {
                if let Some(job) = self.jobs.get(key) {
                    // Processes that could not be listed are missing on the screen.
                    cgroups::processes(&self.probed_machine.root, job, &mut self.members).ok();
                    pids.extend_from_slice(self.members.ids());
                    pids.sort_unstable();
                    pids.dedup();
                }
            }
        }
        let left_out = pids.len().saturating_sub(PROCESSES_MAX);
        pids.truncate(PROCESSES_MAX);
        self.of_processes.begin(now);
        let mut text = Vec::new();
        let rows = pids.iter().filter_map(|pid| self.process(*pid, &mut text)).collect();
        (rows, left_out)
    }

    /// Reads a process; `None` if it has ended.
    fn process(&mut self, pid: u32, text: &mut Vec<u8>) -> Option<Row> {
        let root = &self.probed_machine.root;
        root.read(&format!("proc/{pid}/stat"), text).ok()?;
        let stat = process_stat(text).ok()?;
        let ticks = (stat.user_ticks.saturating_add(stat.system_ticks)) as f64;
        let began_us = stat.start_ticks as f64 / self.hz * 1e6;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "microseconds since boot, far below 2^53"
        )]
        let start = Some(self.probed_machine.boot.plus(began_us as i64));
        let (name, tasks) = (String::from_utf8_lossy(stat.comm).into_owned(), stat.threads);
        let cpu = self.of_processes.rate((pid, "cpu"), ticks / self.hz, start);
        let status = root.read(&format!("proc/{pid}/status"), text).ok();
        let status = status.and_then(|()| process_status(text).ok());
        let io = root.read(&format!("proc/{pid}/io"), text).ok();
        let io = io.and_then(|()| process_io(text).ok());
        let owner = root.stat(&format!("proc/{pid}")).ok()?;
        let mut rate = |of, value: u64| self.of_processes.rate((pid, of), value as f64, start);
        Some(Row {
            id: pid.to_string(),
            name,
            user: user_name(&self.users, owner.uid),
            cpu,
            memory: status.and_then(|status| status.vm_rss).map(|kib| kib as f64 * 1024.0),
            read: io.and_then(|io| rate("read", io.read_bytes)),
            written: io.and_then(|io| rate("written", io.write_bytes)),
            tasks: Some(tasks as f64),
        })
    }
}

/// The users of this node's own files. Users of other name services appear as user IDs.
fn users(root: &Root) -> Users {
    let mut text = Vec::new();
    match root.read("etc/passwd", &mut text) {
        Ok(()) => Users::parse(&text),
        Err(_) => Users::default(),
    }
}

fn user_name(users: &Users, uid: u32) -> String {
    users.name(uid).map_or_else(|| uid.to_string(), str::to_owned)
}
