//! Sends the samples of `jobmeter run` if no agent of this node does.

use super::readings::Measure;
use crate::client::http_client::{Client, reason};
use config::SpoolSettings;
use delivery::{Failure, Http, Stepped, draw_boot};
use kernel::clock::monotonic_us;
use model::setting::AgentStatus;
use model::{DeviceId, JobKey, Origin};
use sources::{RunSamples, Sink};
use std::time::Duration;
use wire::{AckStatus, Answer};

/// Creates batches of samples and sends them in order, in the caller's thread.
pub(crate) struct Sender {
    http: Http,
    /// `None`: no server knows the job.
    delivery: Option<Stepped>,
    /// Whether an agent of this node also reads the job's cgroup.
    agent: bool,
    /// Earliest instant of the next request, in time of [`steady_us`].
    rests_until_us: i64,
    /// Why samples were not stored.
    failure: Option<String>,
    /// Whether the server permanently rejects samples from this caller.
    is_rejected: bool,
}

impl Sender {
    /// A sender for a job with an ID. If an `agent` of this node also reads the job's cgroup, only the last reading
    /// is sent, which the agent may take too late. Both read the same counters, so one continues the other.
    pub(crate) fn new(
        client: &Client,
        key: Option<&JobKey>,
        device: &DeviceId,
        agent: bool,
    ) -> Self {
        let (delivery, failure) = match key.map(|key| start(None, key, device)).transpose() {
            Ok(delivery) => (delivery, None),
            Err(error) => (None, Some(error.to_string())),
        };
        let http = client.batches();
        Self { http, delivery, agent, rests_until_us: 0, failure, is_rejected: false }
    }

    /// A sender for the batches of an earlier run in this spool.
    pub(crate) fn of_kept(
        client: &Client,
        key: &JobKey,
        device: &DeviceId,
        spool: &SpoolSettings,
    ) -> anyhow::Result<Self> {
        let delivery = start(Some(spool), key, device)?;
        Ok(Self { delivery: Some(delivery), ..Self::new(client, None, device, false) })
    }

    /// Sends the batches in the spool until a deadline. Returns whether the server has all of them.
    pub(crate) fn flush(&mut self, give_up_us: u64) -> bool {
        while let Some(delivery) = self.delivery.as_mut().filter(|_| monotonic_us() < give_up_us) {
            let (now, steady) = (crate::clock(), steady_us());
            // Damage to the spool becomes a gap in a batch of its own.
            delivery.seal(now, steady, &mut Vec::<&mut Sink>::new());
            delivery.keep(now, steady);
            if !(self.rests(Some(give_up_us)) && self.post()) {
                break;
            }
        }
        self.delivery.as_ref().is_some_and(Stepped::is_drained)
    }

    /// Sends new samples of the sources. The last call passes the deadline of its retries, and sends at least
    /// once.
    pub(crate) fn send(&mut self, measure: &mut Measure, give_up_us: Option<u64>) {
        let is_last = give_up_us.is_some();
        let agent = self.agent;
        let Some(delivery) = self.delivery.as_mut().filter(|_| is_last || !agent) else {
            measure.sinks().for_each(|(_, sink)| {
                sink.sealed();
                sink.take_gaps();
                sink.take_events();
            });
            return;
        };
        let sinks = measure.sinks();
        let sinks = sinks.filter(|(spec, _)| !agent || spec.run == RunSamples::Always);
        let mut sinks: Vec<_> = sinks.map(|(_, sink)| sink).collect();
        let (now, steady) = (crate::clock(), steady_us());
        delivery.seal(now, steady, &mut sinks);
        delivery.keep(now, steady);
        if is_last {
            delivery.renew();
            self.rests_until_us = 0;
        }
        while self.rests(give_up_us) && self.post() {}
    }

    /// Waits until a request may be sent; false if that is after the deadline.
    fn rests(&self, give_up_us: Option<u64>) -> bool {
        let left_us = self.rests_until_us.saturating_sub(steady_us());
        let give_up_us = give_up_us.map_or(0, signed);
        if left_us <= 0 {
            return true;
        }
        if self.rests_until_us >= give_up_us {
            return false;
        }
        std::thread::sleep(Duration::from_micros(left_us.unsigned_abs()));
        true
    }

    /// Sends one request; false if no batch is left, or if the server will not accept later ones.
    fn post(&mut self) -> bool {
        let Some(delivery) = &mut self.delivery else { return false };
        let Some(sent) = delivery.send(crate::clock(), steady_us()) else { return false };
        let status = AgentStatus { now: crate::clock(), ..AgentStatus::default() };
        let answer = self.http.post(&sent.body, &status);
        self.failure = failure(&answer).map(|why| format!("sending samples: {why}"));
        self.is_rejected =
            matches!(&answer, Err(Failure::Later { status: 400..=499, after: None, .. }));
        let wait = delivery.answered(crate::clock(), steady_us(), answer);
        self.rests_until_us = steady_us() + i64::try_from(wait.as_micros()).unwrap_or(i64::MAX / 2);
        !self.is_rejected
    }

    /// Whether an agent of this node also reads the job's cgroup.
    pub(crate) const fn agent_sees(&self) -> bool {
        self.agent
    }

    /// Number of batches that no server took, and may take later.
    pub(crate) fn unsent_batches(&self) -> u64 {
        let unsent = self.delivery.as_ref().map_or(0, Stepped::unsent_batches);
        if self.is_rejected { 0 } else { unsent }
    }

    /// The batches that no server took, and why it stored no others.
    pub(crate) fn into_unsent(self) -> (Option<Stepped>, Option<String>) {
        match self.unsent_batches() {
            0 => (None, self.failure),
            _ => (self.delivery, None),
        }
    }
}

fn start(
    spool: Option<&SpoolSettings>,
    key: &JobKey,
    device: &DeviceId,
) -> anyhow::Result<Stepped> {
    let identity = (Origin::of_run(device, key.id)?, draw_boot()?);
    Ok(Stepped::start(spool, identity, device.clone(), crate::clock(), steady_us())?)
}

pub(super) fn steady_us() -> i64 {
    signed(monotonic_us())
}

fn signed(micros: u64) -> i64 {
    i64::try_from(micros).unwrap_or(i64::MAX)
}

/// Why the server did not store samples, if it did not.
fn failure(answer: &Result<Answer, Failure>) -> Option<String> {
    match answer {
        Ok(answer) => {
            let rejected = |status| status == AckStatus::RejectedPermanently;
            answer.acks.iter().find(|ack| rejected(ack.status)).map(|ack| ack.reason.clone())
        }
        Err(failure @ (Failure::Unreached(_) | Failure::TimedOut(_))) => Some(reason(failure)),
        Err(failure) => Some(format!("the server {}", reason(failure))),
    }
}

/// Whether an agent of this node sends samples.
pub(crate) fn agent_alive(client: &Client, device: &DeviceId) -> bool {
    let nodes: anyhow::Result<Vec<api::Node>> = client.get("/api/v1/nodes");
    nodes.is_ok_and(|nodes| nodes.iter().any(|node| node.alive && node.device == device.as_str()))
}
