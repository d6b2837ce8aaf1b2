//! Measures a job with the sources that an agent uses.

use super::job_cgroup::JobDirs;
use super::reported;
use super::tree::{self, Tree};
use api::{OomKill, Reservation, Totals};
use cgroups::{JobCgroup, Jobs};
use kernel::Root;
use kernel::rusage::Usage;
use kernel::sibling::Begun;
use model::{DeviceId, JobKey, Timestamp};
use sources::{Context, Open, Options, RunSamples, SOURCES, Sink, Source, SourceError, SourceSpec};
use std::collections::BTreeMap;
use std::time::Duration;

/// Maximum processor time of a task's own exit that the kernel counts after it has reported the end.
const END_SECONDS_MAX: f64 = 0.005;

/// Maximum OOM kills in a report, as in the registry.
const OOM_KILLS_MAX: usize = 256;

/// Processor time limit of one `process` reading, so that measuring does not slow down a job with many
/// processes.
const BUDGET: Duration = Duration::from_millis(20);

/// Maximum peak memory of the process before the command that may stand in for a smaller command. It is about
/// the memory of a small program.
const FLOOR_KIB_MAX: u64 = 3072;

/// The sources of one job, each with its last samples.
pub(crate) struct Measure {
    root: Root,
    boot: Timestamp,
    jobs: Jobs,
    parts: Vec<Part>,
    tree: Option<Tree>,
    /// This program's own samples: those of the process tree, and the report.
    own_sink: Sink,
    last: BTreeMap<Last, f64>,
    /// Usage of the command's process before the command began.
    before: Before,
    /// Usage of all ended processes that were waited for.
    ended: Usage,
    /// Tasks of the job that the kernel killed because memory ran out.
    pub(crate) oom_kills: Vec<OomKill>,
    /// Values that could not be measured, with reasons.
    pub(crate) left_out: Vec<String>,
}

struct Part {
    spec: &'static SourceSpec,
    source: Box<dyn Source>,
    sink: Sink,
}

/// Usage that is counted for the command's process, but is not the command's.
#[derive(Clone, Copy, Debug, Default)]
struct Before {
    /// Since the fork; taskstats counts from there.
    all: Usage,
    /// Since the process joined the cgroups; cgroups count from there.
    in_cgroup: Usage,
}

/// A metric and its labels, with the maximum value: counters and peaks.
type Last = (String, String);

impl Measure {
    /// Opens the sources and starts listening before the job's cgroup is created. Sources count an older cgroup
    /// only from this time on.
    pub(crate) fn open(root: &Root, boot: Timestamp, device: &DeviceId) -> Self {
        let mut measure = Self {
            root: root.clone(),
            boot,
            jobs: Jobs::default(),
            parts: Vec::new(),
            tree: None,
            own_sink: Sink::new(device.clone()),
            last: BTreeMap::new(),
            before: Before::default(),
            ended: Usage::default(),
            oom_kills: Vec::new(),
            left_out: Vec::new(),
        };
        for spec in SOURCES.iter().filter(|spec| spec.run != RunSamples::Never) {
            measure.open_source(spec, device);
        }
        measure.drain(crate::clock());
        // The kernel timestamps a directory with a clock that advances once per tick of at most 10 ms.
        std::thread::sleep(Duration::from_millis(10));
        measure
    }

    /// Measures the job with these directories; without directories, follows its processes.
    pub(crate) fn begin(&mut self, key: &JobKey, place: &JobDirs, now: Timestamp) {
        if place.is_empty() {
            self.parts.clear();
            self.left_out.clear();
            self.tree = Some(Tree::new(std::process::id(), key.clone(), now));
            return;
        }
        let job = JobCgroup {
            key: key.clone(),
            display_id: key.id.to_string().into(),
            user: None,
            uid: None,
            dirs: place.dirs.clone(),
            created: place.created(&self.root).unwrap_or(now),
            populated: true,
            directories_max: cgroups::USER_DIRECTORIES_MAX,
        };
        self.jobs = Jobs::new(vec![job], Vec::new());
        self.drain(now);
    }

    fn open_source(&mut self, spec: &'static SourceSpec, device: &DeviceId) {
        let options = Options::defaults(spec.options);
        let open = Open { root: &self.root, options: &options, boot: self.boot };
        match (spec.open)(&open) {
            Ok(source) => {
                let sink = Sink::of_source(spec, device.clone());
                self.parts.push(Part { spec, source, sink });
            }
            Err(error) => self.left_out.push(format!("{}: {error}", spec.name)),
        }
    }

    /// Reads the queues that the kernel fills between two readings.
    pub(crate) fn drain(&mut self, now: Timestamp) {
        self.each(now, |source, cx, sink| source.drain(cx, sink));
    }

    /// Reads the per-task counters after the command's process has joined its cgroups.
    pub(crate) fn joined(&mut self, now: Timestamp) {
        // The process tree would find this program's own step before the command.
        if self.tree.is_none() {
            self.collect(now);
        }
    }

    /// Records the usage of the command's process when the command began.
    pub(crate) const fn begun(&mut self, begun: &Begun) {
        self.before = Before { all: begun.used, in_cgroup: begun.since_joined };
    }

    /// Reads the processes of a command without a cgroup between two readings, as often as that is cheap. The
    /// kernel keeps no usage of a process that its parent does not wait for.
    pub(crate) fn glance(&mut self) {
        if let Some(tree) = &mut self.tree {
            // The next reading reports an unreadable process list.
            tree.glance(&self.root).ok();
        }
    }

    /// Reads all sources once.
    pub(crate) fn collect(&mut self, now: Timestamp) {
        self.each(now, |source, cx, sink| source.collect(cx, sink));
    }

    /// Reads the job for the last time: the usage of its ended tasks, and its cgroup, which exists until its
    /// removal.
    pub(crate) fn end(&mut self, job: &JobKey, now: Timestamp) {
        self.drain(now);
        if self.tree.is_some() {
            let before = self.own_sink.mark();
            self.collect(now);
            if let Some(tree) = &mut self.tree {
                tree.end();
            }
            // The second reading, which includes lost time, is sent in place of the first.
            self.own_sink.cut_back(before);
            self.collect(now);
        } else {
            self.each(now, |source, cx, sink| source.job_ended(job, cx, sink));
        }
    }

    fn each(
        &mut self,
        now: Timestamp,
        mut call: impl FnMut(&mut dyn Source, &Context<'_>, &mut Sink) -> Result<(), SourceError>,
    ) {
        let budget_us = u64::try_from(BUDGET.as_micros()).unwrap_or(u64::MAX);
        let cx = Context {
            root: &self.root,
            now,
            boot: self.boot,
            jobs: &self.jobs,
            budget_us,
            is_between: false,
        };
        let mut errors = Vec::new();
        for part in &mut self.parts {
            part.sink.begin(now);
            errors.extend(call(&mut *part.source, &cx, &mut part.sink).err());
            keep_last(&part.sink, &mut self.last);
            note_kills(&part.sink, &mut self.oom_kills);
        }
        if let Some(tree) = &mut self.tree {
            self.own_sink.begin(now);
            errors.extend(call(tree, &cx, &mut self.own_sink).err());
            keep_last(&self.own_sink, &mut self.last);
        }
        for error in errors.iter().map(ToString::to_string) {
            if !self.left_out.contains(&error) {
                self.left_out.push(error);
            }
        }
    }

    /// The sinks with their sources' names, to send or to drop their samples.
    pub(crate) fn sinks(&mut self) -> impl Iterator<Item = (&'static SourceSpec, &mut Sink)> {
        let own = (&reported::SPEC, &mut self.own_sink);
        self.parts.iter_mut().map(|part| (part.spec, &mut part.sink)).chain([own])
    }

    /// Records the usage of the job's ended processes.
    pub(crate) const fn set_ended(&mut self, ended: Usage) {
        self.ended = ended;
        if let Some(tree) = &mut self.tree {
            tree.ended = ended;
        }
    }

    /// Adds the report to the samples that are sent.
    pub(crate) fn report(&mut self, totals: &Totals, job: &JobKey, now: Timestamp) {
        let reservations = self.reservations();
        reported::push((totals, &reservations), job, now, &mut self.own_sink);
    }

    /// Number of the job's live processes; with a cgroup, the processes in it.
    pub(crate) fn alive(&mut self, place: &JobDirs) -> usize {
        match &mut self.tree {
            Some(tree) => tree.descendants(&self.root).unwrap_or(0),
            None => place.processes(&self.root),
        }
    }

    /// Usage of the job up to now, `after_end` later than its end.
    pub(crate) fn totals(&self, wall: Duration, after_end: Duration) -> Totals {
        let wall_seconds = wall.as_secs_f64();
        let mut totals = if self.tree.is_some() {
            self.of_tree()
        } else {
            let totals = self.of_cgroup();
            match has_left(&totals, self.ended) {
                true => totals,
                false => {
                    let ended_tasks = sum(&self.last, "taskstats_ended_tasks_total");
                    with_ended(totals, self.ended, ended_tasks.unwrap_or(0.0))
                }
            }
        };
        totals.wall_seconds = wall_seconds;
        totals.cpu_seconds = totals.cpu_seconds.map(|cpu| within(cpu, wall_seconds, after_end));
        totals.cores_used =
            totals.cpu_seconds.filter(|_| wall_seconds > 0.0).map(|cpu| cpu / wall_seconds);
        totals
    }

    /// Reservations about the numbers: they do not include all usage.
    pub(crate) fn reservations(&self) -> Vec<&'static Reservation> {
        let reservation = match &self.tree {
            Some(tree) => tree.has_lost().then_some(&api::LOST_CHILDREN),
            None => has_left(&self.of_cgroup(), self.ended).then_some(&api::LEFT_PROCESSES),
        };
        Vec::from_iter(reservation)
    }

    /// The note on the peak memory.
    pub(crate) fn peak_note(&self) -> &'static str {
        if self.tree.is_some() {
            api::PEAK_OF_PROCESSES
        } else if sum(&self.last, "cgroup_memory_peak_bytes").is_some_and(|bytes| bytes > 0.0) {
            api::PEAK_CHARGED
        } else {
            api::PEAK_OF_TASK
        }
    }

    fn of_cgroup(&self) -> Totals {
        let one = |name: &str| sum(&self.last, name);
        let less = |name: &str, before: f64| one(name).map(|all| (all - before).max(0.0));
        let first = |names: &[&str]| names.iter().find_map(|name| one(name));
        let faults = one("cgroup_page_faults_total").zip(one("cgroup_page_faults_major_total"));
        let Before { all, in_cgroup } = self.before;
        let minor = faults.map(|(all, major)| all - major - in_cgroup.minor_faults as f64);
        let [user, system] = [in_cgroup.user_us, in_cgroup.system_us].map(|us| us as f64 / 1e6);
        let switches = [all.voluntary_switches, all.involuntary_switches].map(|count| count as f64);
        Totals {
            cpu_seconds: less("cgroup_cpu_seconds_total", user + system),
            cpu_user_seconds: less("cgroup_cpu_user_seconds_total", user),
            cpu_system_seconds: less("cgroup_cpu_system_seconds_total", system),
            memory_peak_bytes: one("cgroup_memory_peak_bytes"),
            io_read_bytes: first(&["cgroup_io_read_bytes_total", "taskstats_read_bytes_total"]),
            io_write_bytes: one("cgroup_io_write_bytes_total").or_else(|| {
                // The kernel cancels a write if its file is deleted before the data reaches a disk.
                let cancelled = one("taskstats_cancelled_write_bytes_total").unwrap_or(0.0);
                less("taskstats_write_bytes_total", cancelled)
            }),
            minor_faults: minor
                .map(|minor| minor.max(0.0))
                .or_else(|| less("taskstats_minor_faults_total", all.minor_faults as f64)),
            major_faults: first(&[
                "cgroup_page_faults_major_total",
                "taskstats_major_faults_total",
            ]),
            voluntary_switches: less("taskstats_voluntary_switches_total", switches[0]),
            involuntary_switches: less("taskstats_involuntary_switches_total", switches[1]),
            throttled_seconds: one("cgroup_cpu_throttled_seconds_total"),
            pressure_cpu_seconds: one("cgroup_pressure_cpu_some_seconds_total"),
            pressure_memory_seconds: one("cgroup_pressure_memory_some_seconds_total"),
            pressure_io_seconds: one("cgroup_pressure_io_some_seconds_total"),
            ..Totals::default()
        }
    }

    /// Totals from the kernel's accounting of ended children: exact for all processes that were waited for.
    fn of_tree(&self) -> Totals {
        let usage = self.tree.as_ref().map_or_else(Usage::default, |tree| tree.ended);
        let blocks = |blocks: u64| Some(blocks as f64 * 512.0);
        let count = |count: u64| Some(count as f64);
        // The kernel keeps the maximum of the process before the command and of the command.
        let floor_kib = self.before.all.max_rss_kib;
        let is_own = usage.max_rss_kib > floor_kib || floor_kib <= FLOOR_KIB_MAX;
        let largest = if is_own { usage.max_rss_kib as f64 * 1024.0 } else { 0.0 };
        let seen = self.tree.as_ref().map_or(0.0, |tree| tree.resident_bytes_max);
        Totals {
            cpu_seconds: sum(&self.last, &tree::CPU.name),
            cpu_user_seconds: sum(&self.last, &tree::CPU_USER.name),
            cpu_system_seconds: sum(&self.last, &tree::CPU_SYSTEM.name),
            memory_peak_bytes: Some(largest.max(seen)).filter(|peak| *peak > 0.0),
            io_read_bytes: blocks(usage.blocks_read),
            io_write_bytes: blocks(usage.blocks_written),
            minor_faults: count(usage.minor_faults),
            major_faults: count(usage.major_faults),
            voluntary_switches: count(usage.voluntary_switches),
            involuntary_switches: count(usage.involuntary_switches),
            ..Totals::default()
        }
    }
}

/// Minimum usage of ended processes outside of the job's cgroups: processor time and page faults. Both ways of
/// counting read the same exact run times; they differ by what the process used to join the last cgroup. Page faults
/// of ended processes include those of files that other cgroups are charged for.
const LEFT_SECONDS: f64 = 0.003;
const LEFT_SECONDS_PART: f64 = 0.001;
const LEFT_FAULTS: f64 = 2000.0;
const LEFT_FAULTS_PART: f64 = 0.05;

/// Whether processes of the job left its cgroup, as the command of a nested `jobmeter run` does. Their peak
/// memory and written bytes are unknown here, so no number includes these processes.
fn has_left(totals: &Totals, ended: Usage) -> bool {
    let more = |counted: Option<f64>, ended: f64, part: f64, least: f64| {
        counted.is_some_and(|counted| ended > counted * (1.0 + part) + least)
    };
    let cpu = (ended.user_us + ended.system_us) as f64 / 1e6;
    let faults = ended.minor_faults as f64;
    more(totals.cpu_seconds, cpu, LEFT_SECONDS_PART, LEFT_SECONDS)
        || more(totals.minor_faults, faults, LEFT_FAULTS_PART, LEFT_FAULTS)
}

/// The maximum of the cgroup's counts and of the usage of ended processes, if all processes are in the cgroup.
/// Written blocks are not used, because they include cancelled writes. Peak memory is the memory charged to the
/// cgroup. `ended_tasks` is the number of ended tasks.
fn with_ended(totals: Totals, ended: Usage, ended_tasks: f64) -> Totals {
    let larger = |counted: Option<f64>, ended: f64| counted.map(|counted| counted.max(ended));
    // The run times of ended processes are exact. The cgroup counts a little more: the start of the command and the
    // exits of its tasks. It counts much more if the kernel itself reaped tasks.
    let exact = |counted: Option<f64>, ended: f64| {
        counted.map(|counted| if counted - ended <= END_SECONDS_MAX { ended } else { counted })
    };
    // Exit accounting counts the end of each task as a switch; the usage of ended children does not.
    let switches = |counted: Option<f64>, waited: f64| {
        counted.map(|counted| if counted - waited <= ended_tasks { waited } else { counted })
    };
    let (user, system) = (ended.user_us as f64 / 1e6, ended.system_us as f64 / 1e6);
    // The kernel scales both times of a process to its exact run time; a version 1 cgroup counts them in timer
    // ticks.
    let is_whole = totals.cpu_seconds.is_some_and(|cpu| user + system >= cpu * 0.999);
    let part = |counted: Option<f64>, ended| if is_whole { Some(ended) } else { counted };
    let largest_task = Some(ended.max_rss_kib).filter(|kib| *kib > FLOOR_KIB_MAX);
    let largest_task = largest_task.map(|kib| kib as f64 * 1024.0);
    let charged = totals.memory_peak_bytes.filter(|bytes| *bytes > 0.0);
    Totals {
        cpu_seconds: exact(totals.cpu_seconds, user + system),
        cpu_user_seconds: part(totals.cpu_user_seconds, user),
        cpu_system_seconds: part(totals.cpu_system_seconds, system),
        // A task's resident memory includes pages charged elsewhere: it is reported only if no charged memory is
        // known.
        memory_peak_bytes: charged.or(largest_task),
        io_read_bytes: larger(totals.io_read_bytes, ended.blocks_read as f64 * 512.0),
        minor_faults: larger(totals.minor_faults, ended.minor_faults as f64),
        major_faults: larger(totals.major_faults, ended.major_faults as f64),
        voluntary_switches: switches(totals.voluntary_switches, ended.voluntary_switches as f64),
        involuntary_switches: larger(
            totals.involuntary_switches,
            ended.involuntary_switches as f64,
        ),
        ..totals
    }
}

/// Limits the processor time of a command with one task to its wall time. The kernel counts a part of a task's
/// exit after it has reported the end. This part is at most `after_end`, the delay of the last reading.
fn within(cpu_seconds: f64, wall_seconds: f64, after_end: Duration) -> f64 {
    let excess = cpu_seconds - wall_seconds;
    let excess_max = after_end.as_secs_f64().min(END_SECONDS_MAX);
    if (0.0..=excess_max).contains(&excess) { wall_seconds } else { cpu_seconds }
}

/// Adds the kills in unsent events, each once.
fn note_kills(sink: &Sink, kills: &mut Vec<OomKill>) {
    for event in sink.events() {
        for kill in &event.oom_kills {
            let (time, pid) = (kill.at.seconds(), kill.pid);
            let is_new = !kills.iter().any(|known| known.pid == pid && known.time == time);
            if is_new && kills.len() < OOM_KILLS_MAX {
                kills.push(OomKill {
                    device: event.device.to_string(),
                    time,
                    task: kill.task.to_string(),
                    pid,
                    uid: kill.uid,
                    task_bytes: kill.task_bytes,
                    limit_bytes: kill.limit_bytes,
                });
            }
        }
    }
}

fn keep_last(sink: &Sink, last: &mut BTreeMap<Last, f64>) {
    for (entry, _, value) in sink.samples() {
        let key = (entry.metric.name.to_string(), entry.labels.as_str().to_owned());
        // A smaller last reading, as from a directory during its removal, does not reduce the value.
        last.entry(key).and_modify(|last| *last = last.max(value)).or_insert(value);
    }
}

/// The sum of a metric's maximum values over its labels.
fn sum(last: &BTreeMap<Last, f64>, name: &str) -> Option<f64> {
    let from = (name.to_owned(), String::new());
    let values = last.range(from..).take_while(|((metric, _), _)| metric == name).map(|(_, v)| *v);
    values.reduce(|a, b| a + b)
}

#[cfg(test)]
mod tests;
