//! Cgroup: what each job uses, as its cgroups count; and what systemd's services and sessions use
//! on a machine without a scheduler.
//!
//! Reads the files of version 1 and version 2 (Documentation/admin-guide/cgroup-v1/,
//! Documentation/admin-guide/cgroup-v2.rst), see [`kernel::cgroup`]; in a hybrid machine version
//! 1's counters and the pressure of the unified tree. `memory.stat` of both versions has one name
//! for one meaning: the table is in docs/reference/cgroup-memory.md. What a hierarchy lacks gives
//! no sample.
//!
//! A job without a process gives none either: neither 0 nor old totals. Its counters begin when its
//! cgroup was made, so that the first sample has everything that its first process used. A last
//! reading comes when the last process ended and when the cgroup is about to be forgotten. As a
//! scheduler removes it within milliseconds of that, processor time, memory, kills and transfers are
//! looked at between readings too, once a second and within a tenth of a second after a task of the node ended:
//! where the cgroup is gone, the last reading reports what the last look found, and `cgroup_unread_seconds` the time
//! that it missed. The samples are as many as before.
//!
//! - Throttling is that by the limit of the job's own directory; limits of steps below it are not
//!   counted.
//! - OOM kills of version 1 are counted by the directory of the killed process alone, and go with it: those of the
//!   directories below a job's are added up at each look (`cgroup/below.rs`). The kernel's log names the killed tasks
//!   (`cgroup/kills.rs`).
//! - Transfers of version 1 are told where the kernel counts them, which newer ones do not; see the
//!   rule in `cgroup/disks.rs`. The label `disk` leaves out what would count the same bytes twice:
//!   see `exclude`.
//!
//! The files of running jobs are kept open up to `kept_files_max`, at most half of what the process
//! may open; those past it are opened for each reading and counted.

mod below;
mod disks;
mod files;
mod kills;
mod metrics;
mod subject;

use crate::exits::DRAIN_EVERY;
use crate::reading::parts::{Choice, LESSER_DISKS, exclude, include};
use crate::source::sink::Of;
use crate::{Context, Every, Open, PartState, Quiet, Sink, Source, SourceError, SourceSpec};
use cgroups::{Hierarchies, Hierarchy, JobCgroup, JobDir};
use disks::{BlkioRule, Disks};
use files::{File, OF_JOBS, OF_UNITS, Part, Telling};
use kernel::limits::open_files_max;
use kills::Kills;
use metrics::{JOBS, METRICS, UNKEPT, UNREAD};
use model::setting::{Kind, OptionSpec};
use model::{JobKey, Timestamp};
use std::time::Duration;
use subject::{Budget, Outcome, Reading, Subject};

/// Longest time from one round of looks at the jobs' counters to the next.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The same where there is none.
const NO_LOOK: Duration = Duration::from_hours(1);
/// Most jobs that are looked at in one call; the others follow a tenth of a second later.
const LOOKS_MAX: usize = 16;

pub(super) static SPEC: SourceSpec = SourceSpec {
    name: "cgroup",
    help: "Processor, memory, disks, tasks and pressure of each job, as its cgroups count.",
    reads: &[
        "cpuacct.usage, cpuacct.stat, cpu.stat",
        "memory.*, memory.stat, memory.events",
        "io.stat, blkio.*",
        "pids.*",
        "cpu.pressure, memory.pressure, io.pressure",
        "/proc/diskstats for names of disks",
        "/dev/kmsg for OOM kills",
    ],
    cost: "about 19 µs a job on 2 virtual cores, Linux 6.18, with 20 files in a hybrid machine, whatever its number of tasks",
    every: Every::Tick,
    metrics: METRICS,
    sane: &[],
    options: &[
        OptionSpec {
            name: "kept_files_max",
            kind: Kind::Number { min: 0, max: 1_000_000 },
            default: "4096",
            help: "Most files that are kept open; half of what the process may open is the most in any case.",
        },
        include(
            "Only these disks: names, or patterns with `*`; none means every disk but those of `exclude`.",
        ),
        exclude(
            LESSER_DISKS,
            "Disks to leave out if `include` names none: names, or patterns with `*`.",
        ),
    ],
    open,
};

/// A part of the source, and why it gives nothing where no job has its files.
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
        "needs version 2's io controller enabled for the jobs, or version 1's blkio; that counts in Linux before 5.16 and from 6.5 to 6.9, else only where a limit is set, and none is set to make it count",
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
    reader: Reader,
    began: Option<Timestamp>,
    states: States,
    kills: Kills,
    /// How many jobs are yet to be looked at in this round: the first so many.
    looks_left: usize,
}

/// What reading needs, whosever the files are.
struct Reader {
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
            "no cgroups are mounted; `mount -t cgroup2 none /sys/fs/cgroup` does it",
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
        reader: Reader {
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
        self.kills.report(&self.jobs, cx, None, out);
        if let Some(state) = &self.kills.state {
            let refused = match state {
                PartState::Ok => None,
                PartState::Not(error) => Some(error),
            };
            out.part_as("oom_log", refused);
        }
        self.states.tell(out)
    }

    fn drain(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        self.follow(cx);
        self.kills.report(&self.jobs, cx, None, out);
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

    fn quiet(&self) -> Option<Quiet<'_>> {
        // A job that comes is told to all that wait.
        let at_most = if self.jobs.is_empty() { NO_LOOK } else { LOOK_EVERY };
        (self.looks_left == 0).then_some(Quiet { queues: [None, None], at_most })
    }

    fn job_ended(
        &mut self,
        job: &JobKey,
        cx: &Context<'_>,
        out: &mut Sink,
    ) -> Result<(), SourceError> {
        self.follow(cx);
        self.kills.report(&self.jobs, cx, Some(job), out);
        if let Ok(place) = self.jobs.binary_search_by(|(key, _)| key.cmp(job)) {
            self.read_job(place, cx, out);
            let unread = self.jobs.get_mut(place).and_then(|(_, subject)| {
                is_read(cx, job).and_then(|_| subject.unread_seconds(cx.now))
            });
            if let Some(seconds) = unread {
                out.of_job(job).gauge(&UNREAD, &[], seconds);
            }
        }
        Ok(())
    }
}

impl Cgroup {
    /// Takes up new jobs and units, and closes the files of those that went.
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
        let told = |part, outcome| states.add(part, outcome);
        self.reader.read(subject, cx, job.created, of_job, &[], told);
    }

    fn read_unit(&mut self, place: usize, cx: &Context<'_>, out: &mut Sink) {
        let Some((name, subject)) = self.units.get_mut(place) else { return };
        let known = cx.jobs.units().binary_search_by(|unit| unit.name.cmp(name)).ok();
        let Some(unit) = known.and_then(|place| cx.jobs.units().get(place)) else { return };
        if unit.created > cx.now {
            return;
        }
        let (of_device, labels) = (&mut out.of_device(), [("unit", &**name)]);
        // What units lack (memory of the kernel's own scopes, io where nobody asked) is no news.
        self.reader.read(subject, cx, unit.created, of_device, &labels, |_, _| {});
    }
}

/// A job that is read now. A tick that is late may lie before a job that is here already: its first sample
/// comes with the next one.
fn is_read<'a>(cx: &Context<'a>, key: &JobKey) -> Option<&'a JobCgroup> {
    cx.jobs.get(key).filter(|job| job.populated && job.created <= cx.now)
}

impl Reader {
    /// Reads the files of a subject and tells what they say, with these labels; `told` is shown what
    /// came of each.
    fn read(
        &mut self,
        subject: &mut Subject,
        cx: &Context<'_>,
        created: Timestamp,
        out: &mut Of<'_>,
        labels: &[(&str, &str)],
        told: impl FnMut(Part, Outcome),
    ) {
        let (root, now, user_hz) = (cx.root, cx.now, self.user_hz);
        let (mut reading, disks) = self.reading(cx);
        let mut telling =
            Telling { out, labels, created, root, now, disks, user_hz, kills_below: (0, created) };
        subject.read(&mut reading, &mut telling, told);
    }

    fn reading<'a>(&'a mut self, cx: &Context<'a>) -> (Reading<'a>, &'a mut Disks) {
        let (root, now) = (cx.root, cx.now);
        let blkio = self.blkio.files(root, now);
        let (budget, path, text) = (&mut self.budget, &mut self.path, &mut self.text);
        let is_between = cx.is_between;
        (Reading { root, now, is_between, blkio, budget, path, text }, &mut self.disks)
    }
}

/// The subjects of these jobs or units, both sorted by the same name: old ones with their open
/// files, and new ones.
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

/// What came of each part's files at this tick.
#[derive(Default)]
struct States {
    parts: [Came; PARTS.len()],
}

#[derive(Default)]
struct Came {
    told: bool,
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
            Outcome::Told => came.told = true,
            Outcome::Absent => came.absent = true,
            Outcome::Denied => came.denied = true,
            Outcome::Broken(why) => came.broken = came.broken.take().or(Some(why)),
        }
    }

    /// Tells the state of each part; nothing while no job has a process, as then nothing is known.
    fn tell(&mut self, out: &mut Sink) -> Result<(), SourceError> {
        let any = |came: &Came| came.told || came.absent || came.denied || came.broken.is_some();
        if !self.parts.iter().any(any) {
            return Ok(());
        }
        let mut failed = None;
        for ((_, name, why), came) in PARTS.iter().zip(&mut self.parts) {
            let state = if let Some(why) = came.broken.take() {
                failed.get_or_insert_with(|| SourceError::broken(why.clone()));
                PartState::Not(SourceError::broken(why))
            } else if came.told {
                PartState::Ok
            } else if came.denied {
                PartState::Not(SourceError::denied(*name, "CAP_DAC_READ_SEARCH, or root"))
            } else {
                PartState::Not(SourceError::absent(*why))
            };
            out.part(name, state);
        }
        if self.parts.iter().any(|came| came.told) { Ok(()) } else { failed.map_or(Ok(()), Err) }
    }
}

#[cfg(test)]
mod tests;
