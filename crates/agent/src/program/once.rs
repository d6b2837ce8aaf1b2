//! `--once`: one tick of each given machine, without threads and with a given clock.

use crate::common::start_error::StartError;
use crate::jobs::job_sightings::Sightings;
use crate::reading::plan::plan;
use crate::sampling::context::AgentContext;
use crate::sampling::sampler::{Sampler, Step};
use config::AgentConfig;
use delivery::{Clock, GivenClock, Http, MachineClock, Sealed};
use model::Batch;
use model::setting::AgentStatus;
use std::io::{self, Write};
use std::sync::Arc;
use wire::{AckStatus, Encoder};

/// Makes one tick of each recorded machine in the configuration, one period apart, or one tick of this machine.
/// Prints the samples if configured, and sends them if a server is set.
///
/// # Errors
/// A machine cannot be read, or the server does not accept the batches.
pub(crate) fn once(config: &AgentConfig) -> Result<(), StartError> {
    let context = AgentContext::open(config)?;
    let clock = Arc::new(GivenClock::new(config.run.now.unwrap_or_else(|| MachineClock.wall())));
    let sealed = Sealed::default();
    let mut plan = plan(config, None).map_err(StartError::Machine)?;
    // The agent's own cost matters only for a running agent, and it differs from run to run.
    plan.agent_metrics = None;
    let given: Arc<dyn Clock> = Arc::clone(&clock) as Arc<dyn Clock>;
    let mut sampler = context.sampler(
        config,
        given,
        &plan,
        Box::new(sealed.clone()),
        (Vec::new(), Sightings::default()),
    )?;
    // The sampler's own root follows the steps of this one.
    let AgentContext { root: mut shown, .. } = context;
    let mut later = config.run.root.iter().skip(1);
    loop {
        sampler.force();
        tick(&mut sampler, &*clock);
        let Some(next) = later.next() else { break };
        shown.step_to(next).map_err(|e| StartError::machine("root", &e))?;
        clock.pass(i64::try_from(plan.period.as_micros()).unwrap_or(i64::MAX));
    }
    sampler.end();
    tick(&mut sampler, &*clock);
    let batches = sealed.take();
    if config.server.server.is_none() && !config.run.print {
        // Nothing can report a failure to write to standard error.
        writeln!(io::stderr(), "jobmeter-agent: {}", nothing_sent(&batches)).ok();
    }
    send(config, &batches)
}

/// Reports a reading that goes nowhere.
fn nothing_sent(batches: &[Batch]) -> String {
    let samples: usize = batches.iter().map(|batch| batch.values.len()).sum();
    format!(
        "read {samples} samples, sent and printed none; add --server URL to send them, or --print to see them"
    )
}

fn tick(sampler: &mut Sampler, clock: &dyn Clock) {
    loop {
        match sampler.step() {
            Step::Read(reading) => {
                let generation = sampler.generation;
                sampler.done(reading.make(clock), generation);
            }
            Step::Find(finding) => {
                let generation = sampler.generation;
                sampler.found(finding.make(), generation);
            }
            Step::Look(looking) => {
                let generation = sampler.generation;
                sampler.looked(looking.make(), generation);
            }
            Step::Wait(_) => {
                sampler.seal_now();
                return;
            }
            Step::End => return,
        }
    }
}

/// Sends batches to the configured server, if there is one.
fn send(config: &AgentConfig, batches: &[Batch]) -> Result<(), StartError> {
    let Some(url) = &config.server.server else { return Ok(()) };
    let mut frames = Vec::new();
    let mut encoder = Encoder::default();
    for batch in batches {
        let encoded = encoder.encode(batch, &mut frames);
        encoded.map_err(|e| StartError::machine("a batch", &e))?;
    }
    let http = Http::new(url, &config.server, crate::PROGRAM).map_err(StartError::Machine)?;
    let answer = http
        .post(&frames, &AgentStatus { now: MachineClock.wall(), ..AgentStatus::default() })
        .map_err(|e| StartError::machine("the server did not accept the batches", &e))?;
    let taken = [AckStatus::Stored, AckStatus::Duplicate];
    match answer.acks.iter().find(|ack| !taken.contains(&ack.status)) {
        Some(ack) => Err(StartError::machine("the server did not accept a batch", &ack.reason)),
        None => Ok(()),
    }
}
