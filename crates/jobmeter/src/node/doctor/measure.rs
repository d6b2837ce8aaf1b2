//! Reads each source for a time as the agent would, and measures its cost.

use crate::node::agent_file::why_off;
use crate::node::probe::{Probe, ProbedMachine, SourceState, State};
use agent::{Plan, SourcePlan};
use anyhow::Context as _;
use cgroups::{Discovery, Jobs};
use kernel::clock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Maximum delay of a source before it is reported as hanging.
const LATE_MAX: Duration = Duration::from_secs(5);
/// Interval between job discoveries.
const JOBS_EVERY: Duration = Duration::from_secs(1);

/// The result for one source.
#[derive(Debug, Default)]
pub(super) struct Measured {
    /// State of the source and of its parts.
    pub(super) checked: Vec<(String, SourceState)>,
    pub(super) metrics: usize,
    pub(super) series: usize,
    /// Processor time of all readings except the first, which opens and discovers files.
    pub(super) read_us: u64,
    pub(super) ticks: u64,
    /// Processor time between readings, during `drain` time.
    pub(super) drain_us: u64,
    pub(super) seconds: f64,
}

/// Data shared by the threads of all sources.
struct Shared {
    probed_machine: ProbedMachine,
    jobs: Mutex<Arc<Jobs>>,
    budget: Duration,
    /// Deadline, in time of [`clock::monotonic_us`].
    until_us: u64,
}

/// Reads each source of a plan for a duration; reads a recorded machine twice, without waiting.
pub(super) fn measure(
    plan: &Plan,
    find: cgroups::Config,
    probed_machine: &ProbedMachine,
    time: Duration,
) -> anyhow::Result<Vec<Measured>> {
    let mut discovery = Discovery::new(find);
    let mut jobs = Jobs::default();
    discovery.update(&probed_machine.root, crate::clock(), &mut jobs);
    let until_us = clock::monotonic_us().saturating_add(micros(time));
    let shared = Arc::new(Shared {
        probed_machine: probed_machine.clone(),
        jobs: Mutex::new(Arc::new(jobs.clone())),
        budget: plan.budget,
        until_us,
    });
    let mut answers = Vec::new();
    for source in &plan.sources {
        answers.push(source.enabled.then(|| start(source, &shared)).transpose()?);
    }
    // A recorded machine does not change.
    while probed_machine.root.is_live() && clock::monotonic_us() < until_us {
        let left = Duration::from_micros(until_us.saturating_sub(clock::monotonic_us()));
        std::thread::sleep(left.min(JOBS_EVERY));
        if !discovery.update(&probed_machine.root, crate::clock(), &mut jobs).is_empty() {
            *shared.jobs.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(jobs.clone());
        }
    }
    let all = plan.sources.iter().zip(answers);
    Ok(all.map(|(source, answer)| take(source, answer.as_ref(), until_us)).collect())
}

fn start(source: &SourcePlan, shared: &Arc<Shared>) -> anyhow::Result<Receiver<Measured>> {
    let (sender, receiver) = sync_channel(1);
    let (source, shared) = (source.clone(), Arc::clone(shared));
    let builder = std::thread::Builder::new().name(source.spec.name.to_owned());
    builder.spawn(move || run(&source, &shared, &sender)).context("starting a thread")?;
    Ok(receiver)
}

/// Waits for a late source, and gives up on a hanging one.
fn take(source: &SourcePlan, answer: Option<&Receiver<Measured>>, until_us: u64) -> Measured {
    let not = |state, what: String| {
        let checked = SourceState { state, what, grant: String::new() };
        Measured { checked: vec![(source.spec.name.to_owned(), checked)], ..Measured::default() }
    };
    let Some(answer) = answer else {
        return not(State::Off, why_off(source));
    };
    let late = clock::monotonic_us().saturating_sub(until_us);
    match answer.recv_timeout(LATE_MAX.saturating_sub(Duration::from_micros(late))) {
        Ok(measured) => measured,
        Err(RecvTimeoutError::Timeout) => {
            let reads = source.spec.reads.join(", ");
            not(State::Broken, format!("it hangs: no result from {reads} within {LATE_MAX:?}"))
        }
        Err(RecvTimeoutError::Disconnected) => not(
            State::Broken,
            "it panicked; this is a bug of jobmeter, please report it".to_owned(),
        ),
    }
}

/// Reads a source at its period, and its queue in between.
fn run(source: &SourcePlan, shared: &Shared, answer: &SyncSender<Measured>) {
    let probed_machine = &shared.probed_machine;
    let jobs = || Arc::clone(&shared.jobs.lock().unwrap_or_else(PoisonError::into_inner));
    let mut probe = Probe::open(source.spec, &source.options, probed_machine);
    let mut measured = Measured::default();
    if probe.read(probed_machine, &jobs(), shared.budget).is_some() {
        let began_us = clock::monotonic_us();
        let period_us = micros(source.period).max(1);
        let mut due_us = began_us.saturating_add(period_us);
        loop {
            let now_us = clock::monotonic_us();
            let over = !probed_machine.root.is_live() || now_us >= shared.until_us;
            // At least one reading in addition to the first, even if the duration is too short.
            if now_us >= due_us || (over && measured.ticks == 0) {
                // The source is absent, so there is no cost to measure.
                let Some(cpu_us) = probe.read(probed_machine, &jobs(), shared.budget) else {
                    break;
                };
                measured.read_us += cpu_us;
                measured.ticks += 1;
                due_us = due_us.max(now_us).saturating_add(period_us);
            }
            if over {
                break;
            }
            let mut wait_us = due_us.min(shared.until_us).saturating_sub(clock::monotonic_us());
            if let Some(every) = probe.drain_every() {
                measured.drain_us += probe.drain(probed_machine, &jobs());
                wait_us = wait_us.min(micros(every));
            }
            std::thread::sleep(Duration::from_micros(wait_us));
        }
        let seconds = clock::monotonic_us().saturating_sub(began_us) as f64 / 1e6;
        measured.seconds = seconds.max(1e-6);
    }
    measured.checked = probe.checked();
    measured.metrics = probe.metrics();
    measured.series = probe.sink().series();
    // If this source hung, the receiver has been dropped.
    answer.try_send(measured).ok();
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
