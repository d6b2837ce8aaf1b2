//! Sending what `jobmeter run` measured, where no agent of this node does.

use super::measure::Measure;
use crate::server::client::Client;
use delivery::Batches;
use model::{DeviceId, JobKey, Origin};
use wire::{AckStatus, Answer, Encoder};

/// Most batches that wait for a server; beyond it the report says what was lost.
const WAITING_MAX: usize = 64;

/// Makes batches of a measure's samples and sends them in order.
pub(crate) struct Sender<'a> {
    client: &'a Client,
    /// `None`: there is no server that knows the job.
    batches: Option<Batches>,
    /// Whether an agent of this node reads the job's cgroup too.
    agent: bool,
    encoder: Encoder,
    waiting: Vec<Vec<u8>>,
    lost: usize,
    trouble: Option<String>,
}

impl<'a> Sender<'a> {
    /// A sender for a job that has a number. Where an `agent` of this node reads the job's cgroup, only the
    /// last reading of that is sent, which the agent may come too late for: both read the same
    /// counters, so the one continues the other.
    pub(crate) fn new(
        client: &'a Client,
        key: Option<&JobKey>,
        device: &DeviceId,
        agent: bool,
    ) -> Self {
        let origin = key.and_then(|key| Origin::of_run(device, key.id).ok());
        let batches = origin.map(|origin| Batches::new(origin, device.clone())).transpose();
        let (batches, trouble) = match batches {
            Ok(batches) => (batches, None),
            Err(error) => (None, Some(error.to_string())),
        };
        let (waiting, encoder) = (Vec::new(), Encoder::default());
        Self { client, batches, agent, encoder, waiting, lost: 0, trouble }
    }

    /// Sends what the sources pushed since the last call. The last call has the instant up to which it tries again.
    pub(crate) fn send(&mut self, measure: &mut Measure, give_up_us: Option<u64>) {
        match &mut self.batches {
            Some(batches) if give_up_us.is_some() || !self.agent => {
                // What an agent reads too is sent of the cgroup alone; the report is our own.
                let agent = self.agent;
                let sinks = measure.sinks();
                let sinks = sinks.filter(|(name, _)| !agent || matches!(*name, "cgroup" | "run"));
                for batch in batches.seal(sinks.map(|(_, sink)| sink)) {
                    let mut frame = Vec::new();
                    match self.encoder.encode(&batch, &mut frame) {
                        Ok(()) => self.waiting.push(frame),
                        Err(error) => self.trouble = Some(error.to_string()),
                    }
                }
            }
            _ => measure.sinks().for_each(|(_, sink)| {
                sink.sealed();
                sink.take_gaps();
                sink.take_events();
            }),
        }
        let over = self.waiting.len().saturating_sub(WAITING_MAX);
        self.lost += self.waiting.drain(..over).count();
        let sent = crate::measure::run::again(give_up_us.unwrap_or(0), || self.post());
        if let Err(error) = sent {
            self.trouble = Some(format!("sending samples: {error:#}"));
            if crate::measure::run::is_refusal(&error) {
                self.waiting.clear();
            }
        }
    }

    /// An error where some may be sent again.
    fn post(&mut self) -> anyhow::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let answer = self.client.post_frames(&self.waiting.concat())?;
        self.acked(&answer);
        anyhow::ensure!(self.waiting.is_empty(), "the server is busy");
        Ok(())
    }

    fn acked(&mut self, answer: &Answer) {
        let mut acks = answer.acks.iter();
        self.waiting
            .retain(|_| acks.next().is_none_or(|ack| ack.status == AckStatus::RefusedForNow));
        let refused = answer.acks.iter().find(|ack| ack.status == AckStatus::RefusedForGood);
        self.trouble = refused.map(|ack| format!("sending samples: {}", ack.reason));
    }

    /// Whether an agent of this node reads the job's cgroup too.
    pub(crate) const fn agent_sees(&self) -> bool {
        self.agent
    }

    /// What went wrong, for the report.
    pub(crate) fn trouble(self) -> Option<String> {
        match self.lost + self.waiting.len() {
            0 => self.trouble,
            lost => Some(format!("{lost} batches of samples, which no server took")),
        }
    }
}

/// Whether an agent of this node sends.
pub(crate) fn agent_alive(client: &Client, device: &DeviceId) -> bool {
    let nodes: anyhow::Result<Vec<api::Node>> = client.get("/api/v1/nodes");
    nodes.is_ok_and(|nodes| nodes.iter().any(|node| node.alive && node.device == device.as_str()))
}
