//! Perf: counters of the processors, the kernel and uncore PMUs, for the node and for each job
//! (perf_event_open(2), see [`kernel::perf`]; sysfs names of PMUs and events, [`kernel::pmu`]).
//!
//! Nothing is counted until `events` lists it. A PMU has about eight counters, which belong to the users of a
//! node first: a job that measures itself (PAPI, LIKWID, perf) would have to share them. Other sources report
//! the software events of the kernel (switches, faults, time) at lower cost.
//!
//! The source counts a job by its cgroup, in version 1's hierarchy `perf_event` or in version 2: all of its
//! tasks from the start. If the scheduler creates no directory there, the source follows the job's processes
//! from their discovery, with all their descendants. This can miss some processes; the part `jobs` reports
//! it.
//!
//! If more events are listed than the PMU has counters, the kernel multiplexes them. Each reading then scales
//! its growth to the whole time, so that no counter ever falls; `perf_running_ratio` is the share of the time
//! in which an event was counted. Software events are never multiplexed.
//!
//! A counter starts when it is opened: with this source, or when the job is discovered. Earlier use is not
//! counted; the counter's start shows it. A change of `events`, or of the online processors, opens new
//! counters. Each event, processor and job needs one open descriptor: at most `descriptors_max`, and at most
//! half of the process's limit. Further jobs are not counted, which is reported.

mod event_list;
mod events;
mod jobs;
mod known_pmus;
mod plan;
mod subject;
mod tasks;
mod uncore;

use crate::source::error::Errors;
use crate::task_attribution::DRAIN_EVERY;
use crate::{
    Context, Every, IdleQueues, Open, Options, PartState, Sink, Source, SourceError, SourceSpec,
};
use events::{DESCRIPTORS, METRICS, UNCOUNTED};
use jobs::OfJobs;
use kernel::limits::open_files_max;
use kernel::perf::PerfError;
use kernel::{OpenFile, Root, pmu};
use model::setting::{Kind, OptionSpec};
use model::{JobKey, Timestamp};
use plan::{Plan, worded};
use std::time::Duration;
use subject::{Budget, NotOpened, Subject};
pub(super) use uncore::UncoreEvent;

/// Maximum time without a drain while no job arrives.
const NO_DRAIN: Duration = Duration::from_hours(1);
const ONLINE: &str = "sys/devices/system/cpu/online";

pub(super) static SPEC: SourceSpec = SourceSpec {
    name: "perf",
    help: "Counters of processors, kernel and memory of the node and of each job; off until `events` lists some.",
    reads: &[
        "perf_event_open(2)",
        "/sys/bus/event_source/devices/",
        "/sys/devices/system/cpu/online",
    ],
    cost: "8 µs per processor, event and running job, and per processor and event of the node, on a virtual machine where reading another processor is expensive; 1 µs where nothing runs. All software events together count as one",
    every: Every::Tick,
    metrics: &METRICS,
    options: &[
        OptionSpec {
            name: "events",
            kind: Kind::ListOf("EVENT", event_list::check),
            default: "",
            help: "Events to count: names such as `cpu_cycles`, groups `{cpu_cycles,instructions}`, raw `r01c2`, `PMU/event=0x3c,umask=0x0/` or `PMU/NAME/` as in /sys/bus/event_source/devices.",
        },
        OptionSpec {
            name: "node",
            kind: Kind::Switch,
            default: "true",
            help: "Count the events for the node.",
        },
        OptionSpec {
            name: "jobs",
            kind: Kind::Switch,
            default: "true",
            help: "Count the events for each job.",
        },
        OptionSpec {
            name: "descriptors_max",
            kind: Kind::Number { min: 0, max: 1_000_000 },
            default: "8192",
            help: "Maximum number of descriptors for counters, one per event, processor and job; never more than half of the process's limit of open files.",
        },
    ],
    open,
    check,
    ..SourceSpec::DEFAULT
};

struct Perf {
    plan: Plan,
    node: Option<Subject>,
    /// Error of the events that are not counted for the node, if others are.
    node_fault: Option<SourceError>,
    counts_node: bool,
    jobs: Option<OfJobs>,
    online: Online,
    budget: Budget,
    /// Errors of the events that this machine cannot count.
    missing: Option<SourceError>,
    is_reported: bool,
}

/// The online processors.
struct Online {
    file: OpenFile,
    text: Vec<u8>,
    now: Vec<u8>,
    cpus: Vec<u32>,
}

fn open(open: &Open<'_>) -> Result<Box<dyn Source>, SourceError> {
    // The check of the option has parsed it before.
    let wanted =
        event_list::parse(&open.options.words("events").join(",")).map_err(SourceError::broken)?;
    if wanted.is_empty() {
        return Err(SourceError::absent(
            "no events are configured; list them in sources.perf.events",
        ));
    }
    let online = Online::open(open.root)?;
    let (plan, missing) = Plan::of(open.root, &wanted, &online.cpus)?;
    // Uncore PMUs cannot count for a job.
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
        is_reported: false,
    }))
}

/// All names and aliases of events.
pub(super) fn event_names() -> impl Iterator<Item = &'static str> {
    events::names()
}

/// Errors in well-formed options that depend on this machine: option and message.
fn check(root: &Root, options: &Options) -> Vec<(&'static str, String)> {
    // The check of the option has reported malformed lists.
    let wanted = event_list::parse(&options.words("events").join(",")).unwrap_or_default();
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
        self.report(out);
        match node {
            // Jobs are counted nevertheless.
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

    fn quiet(&self) -> Option<IdleQueues<'_>> {
        // The agent wakes every waiting source when a job arrives.
        Some(IdleQueues { at_most: NO_DRAIN, ..IdleQueues::default() })
    }

    fn has_last_reading(&self) -> bool {
        true
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
    /// Closes all counters; they are reopened, and start again.
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
        node.push(&self.plan, &mut out.of_device());
        read.map_err(|error| worded("the node's counters", error))
    }

    fn report(&mut self, out: &mut Sink) {
        let mut of_device = out.of_device();
        of_device.gauge(&DESCRIPTORS, &[], self.budget.used as f64);
        if let Some(jobs) = &self.jobs {
            of_device.gauge(&UNCOUNTED, &[], jobs.uncounted() as f64);
        }
        if !std::mem::replace(&mut self.is_reported, true) {
            let missing = self.missing.clone();
            out.part("events", missing.map_or(PartState::Ok, PartState::Not));
        }
    }
}

/// The events that are not counted for a target, as one error.
fn lacking_events(
    plan: &Plan,
    lacking: Vec<(usize, PerfError)>,
    target: &str,
) -> Option<SourceError> {
    let mut errors = Errors::default();
    for (event, error) in lacking {
        let name = plan.metrics.get(event).map_or("", |event| &event.name);
        errors.push(worded(&format!("{name} of {target}"), error));
    }
    errors.into_one()
}

/// The error of counters that were not opened.
fn not_opened(target: &str, why: NotOpened, budget: Budget) -> SourceError {
    match why {
        NotOpened::Kernel(error) => worded(target, error),
        NotOpened::Budget(needed) => SourceError::broken(format!(
            "{target}: needs {needed} descriptors, but {} of {} are left; raise descriptors_max or LimitNOFILE, or count fewer events",
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

    /// Rereads the list; returns whether it changed.
    fn changed(&mut self) -> Result<bool, SourceError> {
        let broken = |why: &dyn std::fmt::Display| SourceError::broken(format!("/{ONLINE}: {why}"));
        self.file.read(&mut self.now).map_err(|errno| broken(&errno))?;
        if self.now == self.text {
            return Ok(false);
        }
        let text = std::str::from_utf8(&self.now).ok();
        self.cpus = text.and_then(pmu::cpus).ok_or_else(|| broken(&"it is not a list"))?;
        std::mem::swap(&mut self.text, &mut self.now);
        Ok(true)
    }
}

/// Start of a job's counters that are opened now.
const fn begin(now: Timestamp, created: Timestamp) -> Timestamp {
    if created.0 > now.0 { created } else { now }
}
