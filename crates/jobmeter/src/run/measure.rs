//! What a job used, read by the same sources that an agent reads.

use super::place::Place;
use super::reported;
use super::tree::{self, Tree};
use api::Totals;
use cgroups::{JobCgroup, Jobs};
use kernel::Root;
use kernel::rusage::Usage;
use model::{DeviceId, JobKey, Timestamp};
use sources::{Context, Open, Options, Sink, Source, SourceError};
use std::collections::BTreeMap;
use std::time::Duration;

/// Sources that tell something of a job's cgroup.
const SOURCES: [&str; 3] = ["cgroup", "taskstats", "process"];

/// Processor time that one reading of `process` may take, so that a job of many processes is not
/// slowed by being watched.
const BUDGET: Duration = Duration::from_millis(20);

/// The sources of one job, each with what it pushed last.
pub(crate) struct Measure {
    root: Root,
    boot: Timestamp,
    jobs: Jobs,
    parts: Vec<Part>,
    tree: Option<Tree>,
    /// Samples of this program's own: the tree's, and the report.
    own_sink: Sink,
    last: BTreeMap<Last, f64>,
    /// What had to be left out, and why.
    pub(crate) left_out: Vec<String>,
}

struct Part {
    name: &'static str,
    source: Box<dyn Source>,
    sink: Sink,
}

/// A metric and its labels: what the newest value of which is kept.
type Last = (String, String);

impl Measure {
    /// Opens the sources and begins to listen, before the job's cgroup is made: of an older one they count
    /// only what comes after them.
    pub(crate) fn open(root: &Root, boot: Timestamp, device: &DeviceId) -> Self {
        let mut measure = Self {
            root: root.clone(),
            boot,
            jobs: Jobs::default(),
            parts: Vec::new(),
            tree: None,
            own_sink: Sink::new(device.clone()),
            last: BTreeMap::new(),
            left_out: Vec::new(),
        };
        for name in SOURCES {
            measure.open_source(name, device);
        }
        measure.drain(crate::clock());
        // The kernel dates a directory by a clock that it moves at each of its ticks, of 10 ms at most.
        std::thread::sleep(Duration::from_millis(10));
        measure
    }

    /// Measures the job with these directories, or follows its processes where there are none.
    pub(crate) fn begin(&mut self, key: &JobKey, place: &Place, now: Timestamp) {
        if place.is_empty() {
            self.parts.clear();
            self.left_out.clear();
            self.tree = Some(Tree::new(std::process::id(), key.clone(), now));
            return;
        }
        let job = JobCgroup {
            key: key.clone(),
            spelling: key.id.to_string().into(),
            user: None,
            uid: None,
            dirs: place.dirs.clone(),
            created: place.created(&self.root).unwrap_or(now),
            populated: true,
        };
        self.jobs = Jobs::new(vec![job], Vec::new());
        self.drain(now);
    }

    fn open_source(&mut self, name: &'static str, device: &DeviceId) {
        let Some(spec) = sources::list::find(name) else { return };
        let options = Options::defaults(spec.options);
        let open = Open { root: &self.root, options: &options, boot: self.boot };
        match (spec.open)(&open) {
            Ok(source) => {
                let sink = Sink::of_source(spec, device.clone());
                self.parts.push(Part { name, source, sink });
            }
            Err(error) => self.left_out.push(format!("{name}: {error}")),
        }
    }

    /// Empties the queues that the kernel fills between two readings.
    pub(crate) fn drain(&mut self, now: Timestamp) {
        self.each(now, |source, cx, sink| source.drain(cx, sink));
    }

    /// Reads everything once.
    pub(crate) fn collect(&mut self, now: Timestamp) {
        self.each(now, |source, cx, sink| source.collect(cx, sink));
    }

    /// Reads the job a last time: what its tasks had used when they ended, and its cgroup, which lasts
    /// until it is removed.
    pub(crate) fn end(&mut self, job: &JobKey, now: Timestamp) {
        self.drain(now);
        if self.tree.is_some() {
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

    /// The sinks with their sources' names, for the one who sends or drops what they hold.
    pub(crate) fn sinks(&mut self) -> impl Iterator<Item = (&'static str, &mut Sink)> {
        let own = (reported::SPEC.name, &mut self.own_sink);
        self.parts.iter_mut().map(|part| (part.name, &mut part.sink)).chain([own])
    }

    /// Takes what ended processes of a job without a cgroup used.
    pub(crate) const fn set_ended(&mut self, ended: Usage) {
        if let Some(tree) = &mut self.tree {
            tree.ended = ended;
        }
    }

    /// Has the report sent beside the samples.
    pub(crate) fn report(&mut self, totals: &Totals, job: &JobKey, now: Timestamp) {
        reported::push(totals, job, now, &mut self.own_sink);
    }

    /// Processes of the job that are alive; of a job with a cgroup those in it.
    pub(crate) fn alive(&mut self, place: &Place) -> usize {
        match &mut self.tree {
            Some(tree) => tree.descendants(&self.root).unwrap_or(0),
            None => place.processes(&self.root),
        }
    }

    /// What the job used until now.
    pub(crate) fn totals(&self, wall: Duration) -> Totals {
        let wall_seconds = wall.as_secs_f64();
        let mut totals = if self.tree.is_some() { self.of_tree() } else { self.of_cgroup() };
        totals.wall_seconds = wall_seconds;
        totals.cores_used =
            totals.cpu_seconds.filter(|_| wall_seconds > 0.0).map(|cpu| cpu / wall_seconds);
        totals
    }

    fn of_cgroup(&self) -> Totals {
        let one = |name: &str| sum(&self.last, name);
        let first = |names: &[&str]| names.iter().find_map(|name| one(name));
        let faults = one("cgroup_page_faults_total").zip(one("cgroup_page_faults_major_total"));
        let minor = faults.map(|(all, major)| all - major);
        Totals {
            cpu_seconds: one("cgroup_cpu_seconds_total"),
            cpu_user_seconds: one("cgroup_cpu_user_seconds_total"),
            cpu_system_seconds: one("cgroup_cpu_system_seconds_total"),
            memory_peak_bytes: one("cgroup_memory_peak_bytes"),
            io_read_bytes: first(&["cgroup_io_read_bytes_total", "taskstats_read_bytes_total"]),
            io_write_bytes: first(&["cgroup_io_write_bytes_total", "taskstats_write_bytes_total"]),
            minor_faults: minor.or_else(|| one("taskstats_minor_faults_total")),
            major_faults: first(&[
                "cgroup_page_faults_major_total",
                "taskstats_major_faults_total",
            ]),
            voluntary_switches: one("taskstats_voluntary_switches_total"),
            involuntary_switches: one("taskstats_involuntary_switches_total"),
            throttled_seconds: one("cgroup_cpu_throttled_seconds_total"),
            pressure_cpu_seconds: one("cgroup_pressure_cpu_some_seconds_total"),
            pressure_memory_seconds: one("cgroup_pressure_memory_some_seconds_total"),
            pressure_io_seconds: one("cgroup_pressure_io_some_seconds_total"),
            ..Totals::default()
        }
    }

    /// By what the kernel tells of ended children: exact for all that was waited for.
    fn of_tree(&self) -> Totals {
        let usage = self.tree.as_ref().map_or_else(Usage::default, |tree| tree.ended);
        let blocks = |blocks: u64| Some(blocks as f64 * 512.0);
        let count = |count: u64| Some(count as f64);
        let largest = usage.max_rss_kib as f64 * 1024.0;
        let seen = self.tree.as_ref().map_or(0.0, |tree| tree.resident_bytes_max);
        Totals {
            cpu_seconds: sum(&self.last, &tree::CPU.name),
            cpu_user_seconds: sum(&self.last, &tree::CPU_USER.name),
            cpu_system_seconds: sum(&self.last, &tree::CPU_SYSTEM.name),
            memory_peak_bytes: Some(largest.max(seen)),
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

fn keep_last(sink: &Sink, last: &mut BTreeMap<Last, f64>) {
    for (entry, _, value) in sink.samples() {
        let key = (entry.metric.name.to_string(), entry.labels.as_str().to_owned());
        last.insert(key, value);
    }
}

/// The newest value of a metric, summed over its labels.
fn sum(last: &BTreeMap<Last, f64>, name: &str) -> Option<f64> {
    let from = (name.to_owned(), String::new());
    let values = last.range(from..).take_while(|((metric, _), _)| metric == name).map(|(_, v)| *v);
    values.reduce(|a, b| a + b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_one_metric_are_summed_over_labels() {
        let mut last = BTreeMap::new();
        for (name, labels, value) in [
            ("a", "{}", 1.0),
            ("io", "{\"device\": \"sda\"}", 2.0),
            ("io", "{\"device\": \"sdb\"}", 3.0),
            ("iox", "{}", 9.0),
        ] {
            last.insert((name.to_owned(), labels.to_owned()), value);
        }
        assert_eq!(sum(&last, "io"), Some(5.0));
        assert_eq!(sum(&last, "i"), None);
    }
}
