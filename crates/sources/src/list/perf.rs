//! Perf: counters of the processors, of the kernel and of PMUs outside of the cores, of the node and of
//! each job (perf_event_open(2), see [`kernel::perf`]; sysfs' names of PMUs and events, [`kernel::pmu`]).
//!
//! Nothing is counted unless `events` says what. A PMU has about eight counters, which belong to the users
//! of a node first: a job that measures itself (PAPI, LIKWID, perf) would share them with us, unasked. What
//! a kernel without a PMU counts (switches, faults, time) other sources tell for less.
//!
//! A job is counted by its cgroup, in version 1's hierarchy `perf_event` or in version 2: all of its tasks
//! from the beginning. Where the scheduler makes no directory there, its processes are followed from when they
//! are seen, with all that they start, which can miss some; the part `jobs` says so.
//!
//! Where the counters take turns, what each counted is scaled to all of the time, reading by reading, so
//! that no counter ever falls; `perf_running_ratio` is the share of the time that it ran. Events of the
//! kernel never take turns.
//!
//! A counter begins when it is opened: with this source, or when the job is discovered. What ran before is not
//! counted, and the counter's start says so. Another list of events, or a
//! processor that comes or goes, opens new ones. One descriptor is open for each event, processor and job:
//! at most `descriptors_max` of them, and half of what the process may have; jobs beyond it are not counted,
//! and told.

mod beside;
mod counted;
mod events;
mod jobs;
mod known;
mod plan;
mod tasks;
mod wanted;

use crate::exits::DRAIN_EVERY;
use crate::source::error::Errors;
use crate::{
    Context, Every, Open, Options, PartState, Quiet, Sink, Source, SourceError, SourceSpec,
};
pub(super) use beside::Beside;
use counted::{Budget, NotOpened, Subject};
use events::{DESCRIPTORS, METRICS, UNCOUNTED};
use jobs::OfJobs;
use kernel::limits::open_files_max;
use kernel::perf::PerfError;
use kernel::{KeptFile, Root, pmu};
use model::setting::{Kind, OptionSpec};
use model::{JobKey, Timestamp};
use plan::{Plan, worded};
use std::time::Duration;

/// How long no drain is needed while no job comes.
const NO_DRAIN: Duration = Duration::from_hours(1);
const ONLINE: &str = "sys/devices/system/cpu/online";

pub(super) static SPEC: SourceSpec = SourceSpec {
    name: "perf",
    help: "Counters of processors, kernel and memory of the node and of each job; nothing unless `events` says what.",
    reads: &[
        "perf_event_open(2)",
        "/sys/bus/event_source/devices/",
        "/sys/devices/system/cpu/online",
    ],
    cost: "8 µs for each processor and event of the node and of each job that runs there, on a virtual machine where asking another processor is dear, 1 µs where nothing runs; all software events together are one",
    every: Every::Tick,
    metrics: &METRICS,
    sane: &[],
    options: &[
        OptionSpec {
            name: "events",
            kind: Kind::ListOf("EVENT", wanted::check),
            default: "",
            help: "What is counted: `cpu_cycles` and its like, `{cpu_cycles,instructions}` as a group, raw `r01c2`, `PMU/event=0x3c,umask=0x0/` or `PMU/NAME/` as in /sys/bus/event_source/devices.",
        },
        OptionSpec {
            name: "node",
            kind: Kind::Switch,
            default: "true",
            help: "Whether the node is counted.",
        },
        OptionSpec {
            name: "jobs",
            kind: Kind::Switch,
            default: "true",
            help: "Whether each job is counted.",
        },
        OptionSpec {
            name: "descriptors_max",
            kind: Kind::Number { min: 0, max: 1_000_000 },
            default: "8192",
            help: "Most descriptors for counters, one for each event, processor and job; half of what the process may open is the most in any case.",
        },
    ],
    open,
};

struct Perf {
    plan: Plan,
    node: Option<Subject>,
    /// Why some events are not counted for the node, though others are.
    node_fault: Option<SourceError>,
    counts_node: bool,
    jobs: Option<OfJobs>,
    online: Online,
    budget: Budget,
    /// Why the events that cannot be counted here cannot.
    missing: Option<SourceError>,
    is_told: bool,
}

/// Which processors are on.
struct Online {
    file: KeptFile,
    text: Vec<u8>,
    now: Vec<u8>,
    cpus: Vec<u32>,
}

fn open(open: &Open<'_>) -> Result<Box<dyn Source>, SourceError> {
    // The check of the option has read it before.
    let wanted =
        wanted::parse(&open.options.words("events").join(",")).map_err(SourceError::broken)?;
    if wanted.is_empty() {
        return Err(SourceError::absent("no events are asked for; sources.perf.events lists them"));
    }
    let online = Online::open(open.root)?;
    let (plan, missing) = Plan::of(open.root, &wanted, &online.cpus)?;
    // PMUs beside the cores count nobody's in particular.
    let is_of_jobs = plan.sets.iter().any(|set| set.of_jobs);
    let max = usize::try_from(open.options.number("descriptors_max")).unwrap_or(usize::MAX);
    let half = open_files_max().map_or(u64::MAX, |files| files / 2);
    let max = max.min(usize::try_from(half).unwrap_or(usize::MAX));
    Ok(Box::new(Perf {
        plan,
        node: None,
        node_fault: None,
        counts_node: open.options.switch("node"),
        jobs: (open.options.switch("jobs") && is_of_jobs).then(OfJobs::default),
        online,
        budget: Budget { used: 0, max },
        missing,
        is_told: false,
    }))
}

/// What of the options is wrong on this machine, though it is written as it should be: option and words.
pub(super) fn check(root: &Root, options: &Options) -> Vec<(&'static str, String)> {
    // What is no list at all the check of the option has told.
    let wanted = wanted::parse(&options.words("events").join(",")).unwrap_or_default();
    Plan::wrong(root, &wanted).into_iter().map(|what| ("events", what)).collect()
}

impl Source for Perf {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        if self.online.changed()? {
            self.close();
        }
        let node = if self.counts_node { self.count_node(cx, out) } else { Ok(()) };
        let (plan, online) = (&self.plan, self.online.cpus.as_slice());
        if let Some(jobs) = &mut self.jobs {
            jobs.collect((plan, online), cx, &mut self.budget, out);
        }
        self.tell(out);
        match node {
            // Jobs are counted all the same.
            Err(error) if self.jobs.is_some() => out.part("node", PartState::Not(error)),
            Err(error) => return Err(error),
            Ok(()) if self.counts_node => out.part_as("node", self.node_fault.as_ref()),
            Ok(()) => {}
        }
        Ok(())
    }

    fn drain(&mut self, cx: &Context<'_>, _: &mut Sink) -> Result<(), SourceError> {
        if let Some(jobs) = &mut self.jobs {
            jobs.discover((&self.plan, &self.online.cpus), cx, &mut self.budget);
        }
        Ok(())
    }

    fn drain_every(&self) -> Option<Duration> {
        self.jobs.is_some().then_some(DRAIN_EVERY)
    }

    fn quiet(&self) -> Option<Quiet<'_>> {
        // A job that comes wakes all that wait.
        Some(Quiet { queues: [None, None], at_most: NO_DRAIN })
    }

    fn job_ended(
        &mut self,
        key: &JobKey,
        cx: &Context<'_>,
        out: &mut Sink,
    ) -> Result<(), SourceError> {
        if let Some(jobs) = &mut self.jobs {
            jobs.ended(key, &self.plan, cx, &mut self.budget, out);
        }
        Ok(())
    }
}

impl Perf {
    /// Everything is opened anew, and counts from then on.
    fn close(&mut self) {
        if let Some(mut node) = self.node.take() {
            node.close(&mut self.budget);
        }
        if let Some(jobs) = &mut self.jobs {
            jobs.close(&mut self.budget);
        }
    }

    fn count_node(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        let node = match &mut self.node {
            Some(node) => node,
            none => {
                let (plan, online) = (&self.plan, self.online.cpus.as_slice());
                let opened = Subject::of_node(cx.root, plan, online, cx.now, &mut self.budget);
                let (subject, lacking) =
                    opened.map_err(|error| not_opened("the node", error, self.budget))?;
                self.node_fault = lacking_events(plan, lacking, "the node");
                none.insert(subject)
            }
        };
        let read = node.read();
        node.tell(&self.plan, &mut out.of_device());
        read.map_err(|error| worded("the node's counters", error))
    }

    fn tell(&mut self, out: &mut Sink) {
        let mut of_device = out.of_device();
        of_device.gauge(&DESCRIPTORS, &[], self.budget.used as f64);
        if let Some(jobs) = &self.jobs {
            of_device.gauge(&UNCOUNTED, &[], jobs.uncounted() as f64);
        }
        if !std::mem::replace(&mut self.is_told, true) {
            let missing = self.missing.clone();
            out.part("events", missing.map_or(PartState::Ok, PartState::Not));
        }
    }
}

/// Which events are not counted of a target, and why, in words.
fn lacking_events(
    plan: &Plan,
    lacking: Vec<(usize, PerfError)>,
    whose: &str,
) -> Option<SourceError> {
    let mut errors = Errors::default();
    for (event, error) in lacking {
        let name = plan.told.get(event).map_or("", |told| &told.name);
        errors.push(worded(&format!("{name} of {whose}"), error));
    }
    errors.into_one()
}

/// Why counters were not opened, in words.
fn not_opened(whose: &str, why: NotOpened, budget: Budget) -> SourceError {
    match why {
        NotOpened::Kernel(error) => worded(whose, error),
        NotOpened::Budget(needed) => SourceError::broken(format!(
            "{whose}: {needed} descriptors are needed, {} of {} are left; set descriptors_max or LimitNOFILE higher, or count less",
            budget.max.saturating_sub(budget.used),
            budget.max,
        )),
    }
}

impl Online {
    fn open(root: &Root) -> Result<Self, SourceError> {
        let file = root.open(ONLINE)?;
        let mut online = Self { file, text: Vec::new(), now: Vec::new(), cpus: Vec::new() };
        online.changed()?;
        Ok(online)
    }

    /// Whether other processors are on than at the last look.
    fn changed(&mut self) -> Result<bool, SourceError> {
        let broken = |why: &dyn std::fmt::Display| SourceError::broken(format!("/{ONLINE}: {why}"));
        self.file.read(&mut self.now).map_err(|errno| broken(&errno))?;
        if self.now == self.text {
            return Ok(false);
        }
        let text = std::str::from_utf8(&self.now).ok();
        self.cpus = text.and_then(pmu::cpus).ok_or_else(|| broken(&"it is no list"))?;
        std::mem::swap(&mut self.text, &mut self.now);
        Ok(true)
    }
}

/// When a job's counters begin that are opened now.
const fn begin(now: Timestamp, created: Timestamp) -> Timestamp {
    if created.0 > now.0 { created } else { now }
}
