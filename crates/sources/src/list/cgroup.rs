//! Cgroup: resource use of each job, from the counters of its cgroups. On a machine without a scheduler, also
//! use of systemd's services and sessions.
//!
//! Reads the files of version 1 and version 2 (Documentation/admin-guide/cgroup-v1/,
//! Documentation/admin-guide/cgroup-v2.rst), see [`kernel::cgroup`]. On a hybrid machine it reads the
//! counters of version 1 and the pressure of the unified tree. `memory.stat` of both versions has one name
//! for one meaning: the table is in docs/reference/cgroup-memory.md. A value that a hierarchy lacks gives no
//! sample.
//!
//! A job without a process gives no sample either: neither 0 nor old totals. Its counters start when its
//! cgroup was created, so the first sample includes all use by its first process. The source makes a last
//! reading when the last process ended, and another before the agent drops the cgroup. A scheduler removes
//! the cgroup within milliseconds of the last process. The source therefore also looks at processor time,
//! memory, kills and pressure between readings: once a second, and within 0.1 s after a task of the node
//! ended. It looks at transfers once a second. If the cgroup is gone, the last reading reports the values of
//! the last look. `cgroup_unread_seconds` reports the time since processor time was read,
//! `cgroup_pressure_unread_seconds` and `cgroup_io_unread_seconds` the same of pressure and transfers. Looks
//! add no samples.
//!
//! - Throttling counts the limit of the job's own directory; it excludes limits of steps below it.
//! - Version 1 counts an OOM kill only in the directory of the killed process, and loses the count with the
//!   directory. Each look sums the counts of the directories below the job's (`cgroup/below.rs`). The kernel's
//!   log names the killed tasks (`cgroup/kills.rs`).
//! - Transfers of version 1 are reported only where the kernel counts them; newer kernels do not. See the
//!   rule in `cgroup/disks.rs`. The option `exclude` leaves out disks that would count the same bytes twice.
//!
//! The source keeps up to `kept_files_max` files of running jobs open, at most half of the process's limit of
//! open files. Further files are opened for each reading, and counted.

mod disks;
mod files;
mod metrics;
mod nested_oom_kills;
mod oom_kill_log;
mod subject;

use crate::reading::parts::{Choice, LESSER_DISKS, exclude, include};
use crate::source::sink::SampleWriter;
use crate::task_attribution::DRAIN_EVERY;
use crate::{
    Context, Every, IdleQueues, Open, PartState, RunSamples, Sink, Source, SourceError, SourceSpec,
};
use cgroups::{Hierarchies, Hierarchy, JobCgroup, JobDir};
use disks::{BlkioRule, Disks};
use files::{File, OF_JOBS, OF_UNITS, Output, Part};
use kernel::limits::open_files_max;
use metrics::{JOBS, METRICS, OOM_UNATTRIBUTED, UNKEPT, UNREAD, UNREAD_IO, UNREAD_PRESSURE};
use model::setting::{Kind, OptionSpec};
use model::{JobKey, Timestamp};
use oom_kill_log::Kills;
use std::time::Duration;
use subject::{Budget, Outcome, Reading, Subject};

/// Longest interval between two rounds of looks at the jobs' counters.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The same without jobs.
const NO_LOOK: Duration = Duration::from_hours(1);
/// Maximum number of jobs per call; the others follow 0.1 s later.
const LOOKS_MAX: usize = 16;

pub(super) static SPEC: SourceSpec = SourceSpec {
    name: "cgroup",
    help: "Processor time, memory, disk transfers, tasks and pressure of each job, from its cgroups.",
    reads: &[
        "cpuacct.usage, cpuacct.stat, cpu.stat",
        "memory.*, memory.stat, memory.events",
        "io.stat, blkio.*",
        "pids.*",
        "cpu.pressure, memory.pressure, io.pressure",
        "/proc/diskstats for names of disks",
        "/dev/kmsg for OOM kills",
    ],
    cost: "about 19 µs a job on 2 virtual cores, Linux 6.18, with 20 files on a hybrid machine, independent of its number of tasks",
    every: Every::Tick,
    metrics: METRICS,
    options: &[
        OptionSpec {
            name: "kept_files_max",
            kind: Kind::Number { min: 0, max: 1_000_000 },
            default: "4096",
            help: "Maximum number of files kept open; never more than half of the process's limit of open files.",
        },
        include(
            "Only these disks: names, or patterns with `*`; empty means every disk except those of `exclude`.",
        ),
        exclude(
            LESSER_DISKS,
            "Disks to leave out if `include` is empty: names, or patterns with `*`.",
        ),
    ],
    open,
    run: RunSamples::Always,
    ..SourceSpec::DEFAULT
};

/// A part of the source, and the message if no job has its files.
const PARTS: [(Part, &str, &str); 7] = [
    (Part::Cpu, "cpu", "no job has a directory in the hierarchy cpuacct or in version 2"),
    (
        Part::Throttling,
        "throttling",
        "no job has a directory in the hierarchy cpu, or in version 2 with the cpu controller enabled",
    ),
    (
        Part::Memory,
        "memory",
        "no job has a directory in the hierarchy memory, or in version 2 with the memory controller enabled",
    ),
    (
        Part::OomKills,
        "oom_kills",
        "needs version 2's memory controller, or version 1's memory and Linux 4.13",
    ),
    (
        Part::Io,
        "io",
        "needs version 2's io controller enabled for the jobs, or version 1's blkio, which counts in Linux before 5.16 and from 6.5 to 6.9, and in other versions only under a limit, which jobmeter does not set",
    ),
    (
        Part::Tasks,
        "tasks",
        "no job has a directory in the hierarchy pids, or in version 2 with the pids controller enabled",
    ),
    (
        Part::Pressure,
        "pressure",
        "needs Linux 4.20 with CONFIG_PSI, booted with psi=1, and a directory of the job in version 2 or the unified tree",
    ),
];

struct Cgroup {
    generation: u64,
    jobs: Vec<(JobKey, Subject)>,
    units: Vec<(Box<str>, Subject)>,
    reader: ReadState,
    began: Option<Timestamp>,
    states: States,
    kills: Kills,
    /// Number of jobs still to be looked at in this round: the first ones of the list.
    looks_left: usize,
}

/// State that the reading of all subjects shares.
struct ReadState {
    budget: Budget,
    disks: Disks,
    blkio: BlkioRule,
    path: String,
    text: Vec<u8>,
    user_hz: u64,
}

fn open(open: &Open<'_>) -> Result<Box<dyn Source>, SourceError> {
    let hierarchies = Hierarchies::read(open.root)?;
    if hierarchies.mounts().is_empty() {
        return Err(SourceError::absent(
            "no cgroup hierarchy is mounted; run `mount -t cgroup2 none /sys/fs/cgroup`",
        ));
    }
    let blkio =
        hierarchies.mounts().iter().find(|mount| mount.hierarchies.contains(&Hierarchy::Blkio));
    let wanted = usize::try_from(open.options.number("kept_files_max")).unwrap_or(usize::MAX);
    let half = open_files_max().map_or(u64::MAX, |files| files / 2);
    Ok(Box::new(Cgroup {
        generation: 0,
        jobs: Vec::new(),
        units: Vec::new(),
        reader: ReadState {
            budget: Budget {
                kept: 0,
                kept_max: wanted.min(usize::try_from(half).unwrap_or(usize::MAX)),
                unkept: 0,
            },
            disks: Disks::new(Choice::of(open.options)),
            blkio: BlkioRule::new(blkio.map(|mount| mount.path.clone())),
            path: String::new(),
            text: Vec::new(),
            user_hz: kernel::stat::user_hz(open.root),
        },
        began: None,
        states: States::default(),
        kills: Kills::open(open.root, &hierarchies),
        looks_left: 0,
    }))
}

impl Source for Cgroup {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        self.follow(cx);
        self.states.begin();
        for place in 0..self.jobs.len() {
            self.read_job(place, cx, out);
        }
        for place in 0..self.units.len() {
            self.read_unit(place, cx, out);
        }
        let began = *self.began.get_or_insert(cx.now);
        let mut of_device = out.of_device();
        of_device.gauge(&JOBS, &[], cx.jobs.iter().len() as f64);
        if self.reader.budget.unkept > 0 {
            of_device.counter(&UNKEPT, &[], self.reader.budget.unkept as f64, began);
        }
        self.kills.report(&self.jobs, cx, out);
        if self.kills.unattributed() > 0 {
            let kills = self.kills.unattributed() as f64;
            out.of_device().counter(&OOM_UNATTRIBUTED, &[], kills, began);
        }
        if let Some(state) = &self.kills.state {
            let error = match state {
                PartState::Ok => None,
                PartState::Not(error) => Some(error),
            };
            out.part_as("oom_log", error);
        }
        self.states.report(out)
    }

    fn drain(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        self.follow(cx);
        self.kills.report(&self.jobs, cx, out);
        if self.looks_left == 0 {
            self.looks_left = self.jobs.len();
        }
        for _ in 0..self.looks_left.min(LOOKS_MAX) {
            self.looks_left -= 1;
            if let Some((key, subject)) = self.jobs.get_mut(self.looks_left)
                && is_read(cx, key).is_some()
            {
                subject.look(&mut self.reader.reading(cx).0);
            }
        }
        Ok(())
    }

    fn drain_every(&self) -> Option<Duration> {
        Some(DRAIN_EVERY)
    }

    fn quiet(&self) -> Option<IdleQueues<'_>> {
        // The agent wakes every waiting source when a job arrives.
        let at_most = if self.jobs.is_empty() { NO_LOOK } else { LOOK_EVERY };
        (self.looks_left == 0).then_some(IdleQueues { at_most, ..IdleQueues::default() })
    }

    fn has_last_reading(&self) -> bool {
        true
    }

    fn job_ended(
        &mut self,
        job: &JobKey,
        cx: &Context<'_>,
        out: &mut Sink,
    ) -> Result<(), SourceError> {
        self.follow(cx);
        self.kills.report(&self.jobs, cx, out);
        if let Ok(place) = self.jobs.binary_search_by(|(key, _)| key.cmp(job)) {
            self.read_job(place, cx, out);
            let unread = self.jobs.get_mut(place).and_then(|(_, subject)| {
                let job = cx.jobs.get(job).filter(|job| job.created <= cx.now)?;
                subject.unread_seconds(cx.now, job.populated)
            });
            if let Some(unread) = unread {
                let mut of_job = out.of_job(job);
                of_job.gauge(&UNREAD, &[], unread.cpu);
                for (metric, seconds) in
                    [(&UNREAD_PRESSURE, unread.pressure), (&UNREAD_IO, unread.io)]
                {
                    if let Some(seconds) = seconds {
                        of_job.gauge(metric, &[], seconds);
                    }
                }
            }
        }
        Ok(())
    }
}

impl Cgroup {
    /// Adds new jobs and units, and closes the files of removed ones.
    fn follow(&mut self, cx: &Context<'_>) {
        let jobs = || cx.jobs.iter();
        let same = self.generation == cx.jobs.generation()
            && self.jobs.len() == jobs().len()
            && self.jobs.iter().zip(jobs()).all(|((key, _), job)| *key == job.key);
        if same {
            return;
        }
        self.generation = cx.jobs.generation();
        let jobs = jobs().map(|job| (job.key.clone(), (job.created, &*job.dirs)));
        self.jobs = regroup(&mut self.jobs, jobs, OF_JOBS, &mut self.reader.budget);
        for ((_, subject), job) in self.jobs.iter_mut().zip(cx.jobs.iter()) {
            subject.limit_below(job.directories_max);
        }
        let units = cx.jobs.units().iter();
        let units = units.map(|unit| (unit.name.clone(), (unit.created, &*unit.dirs)));
        self.units = regroup(&mut self.units, units, OF_UNITS, &mut self.reader.budget);
    }

    fn read_job(&mut self, place: usize, cx: &Context<'_>, out: &mut Sink) {
        let Some((key, subject)) = self.jobs.get_mut(place) else { return };
        let Some(job) = is_read(cx, key) else { return };
        let (of_job, states) = (&mut out.of_job(key), &mut self.states);
        let add = |part, outcome| states.add(part, outcome);
        self.reader.read(subject, cx, job.created, of_job, &[], add);
    }

    fn read_unit(&mut self, place: usize, cx: &Context<'_>, out: &mut Sink) {
        let Some((name, subject)) = self.units.get_mut(place) else { return };
        let known = cx.jobs.units().binary_search_by(|unit| unit.name.cmp(name)).ok();
        let Some(unit) = known.and_then(|place| cx.jobs.units().get(place)) else { return };
        if unit.created > cx.now {
            return;
        }
        let (of_device, labels) = (&mut out.of_device(), [("unit", &**name)]);
        // A unit may lack files (memory of the kernel's own scopes, io without a request): this is
        // not reported.
        self.reader.read(subject, cx, unit.created, of_device, &labels, |_, _| {});
    }
}

/// The job, if it is to be read now. The time of a late tick may be before the job's creation: then the first
/// sample comes with the next tick.
fn is_read<'a>(cx: &Context<'a>, key: &JobKey) -> Option<&'a JobCgroup> {
    cx.jobs.get(key).filter(|job| job.populated && job.created <= cx.now)
}

impl ReadState {
    /// Reads the files of a subject and pushes their values with these labels; calls `add` with the
    /// outcome of each file.
    fn read(
        &mut self,
        subject: &mut Subject,
        cx: &Context<'_>,
        created: Timestamp,
        out: &mut SampleWriter<'_>,
        labels: &[(&str, &str)],
        add: impl FnMut(Part, Outcome),
    ) {
        let (root, now, user_hz) = (cx.root, cx.now, self.user_hz);
        let (mut reading, disks) = self.reading(cx);
        let mut output =
            Output { out, labels, created, root, now, disks, user_hz, kills_below: (0, created) };
        subject.read(&mut reading, &mut output, add);
    }

    fn reading<'a>(&'a mut self, cx: &Context<'a>) -> (Reading<'a>, &'a mut Disks) {
        let (root, now) = (cx.root, cx.now);
        let blkio = self.blkio.files(root, now);
        let (budget, path, text) = (&mut self.budget, &mut self.path, &mut self.text);
        let is_between = cx.is_between;
        (Reading { root, now, is_between, blkio, budget, path, text }, &mut self.disks)
    }
}

/// Builds the list of subjects for these jobs or units: known ones with their open files, and new ones. Both
/// lists are sorted by the same key.
fn regroup<'a, K: Ord>(
    old: &mut Vec<(K, Subject)>,
    now: impl Iterator<Item = (K, (Timestamp, &'a [JobDir]))>,
    files: &'static [File],
    budget: &mut Budget,
) -> Vec<(K, Subject)> {
    let mut old = std::mem::take(old).into_iter().peekable();
    let mut all = Vec::new();
    for (key, (created, dirs)) in now {
        while let Some((_, mut gone)) = old.next_if(|(known, _)| *known < key) {
            gone.close(budget);
        }
        let kept = old.next_if(|(known, _)| *known == key);
        let subject = match kept {
            Some((_, mut subject)) if subject.is(created, dirs) => {
                subject.keep_to(dirs, budget);
                subject
            }
            Some((_, mut gone)) => {
                gone.close(budget);
                Subject::new(created, dirs, files)
            }
            None => Subject::new(created, dirs, files),
        };
        all.push((key, subject));
    }
    for (_, mut gone) in old {
        gone.close(budget);
    }
    all
}

/// Outcomes of each part's files at this tick.
#[derive(Default)]
struct States {
    parts: [Outcomes; PARTS.len()],
}

#[derive(Default)]
struct Outcomes {
    pushed: bool,
    absent: bool,
    denied: bool,
    broken: Option<String>,
}

impl States {
    fn begin(&mut self) {
        self.parts = Default::default();
    }

    fn add(&mut self, part: Part, outcome: Outcome) {
        let place = PARTS.iter().position(|(known, ..)| *known == part);
        let Some(came) = place.and_then(|place| self.parts.get_mut(place)) else { return };
        match outcome {
            Outcome::Pushed => came.pushed = true,
            Outcome::Absent => came.absent = true,
            Outcome::Denied => came.denied = true,
            Outcome::Broken(why) => came.broken = came.broken.take().or(Some(why)),
        }
    }

    /// Reports the state of each part; nothing if no job has a process, because then the states are
    /// unknown.
    fn report(&mut self, out: &mut Sink) -> Result<(), SourceError> {
        let any =
            |came: &Outcomes| came.pushed || came.absent || came.denied || came.broken.is_some();
        if !self.parts.iter().any(any) {
            return Ok(());
        }
        let mut failed = None;
        for ((_, name, why), came) in PARTS.iter().zip(&mut self.parts) {
            let state = if let Some(why) = came.broken.take() {
                failed.get_or_insert_with(|| SourceError::broken(why.clone()));
                PartState::Not(SourceError::broken(why))
            } else if came.pushed {
                PartState::Ok
            } else if came.denied {
                PartState::Not(SourceError::denied(*name, "CAP_DAC_READ_SEARCH, or root"))
            } else {
                PartState::Not(SourceError::absent(*why))
            };
            out.part(name, state);
        }
        if self.parts.iter().any(|came| came.pushed) { Ok(()) } else { failed.map_or(Ok(()), Err) }
    }
}

#[cfg(test)]
mod tests;
