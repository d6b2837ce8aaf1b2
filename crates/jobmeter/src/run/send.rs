//! Sending what `jobmeter run` measured, where no agent of this node does.

use super::measure::Measure;
use crate::client::Client;
use model::{Batch, Boot, DeviceId, JobKey, Origin, SeriesEntry, SeriesTable, Tick};
use std::collections::HashMap;
use std::sync::Arc;
use wire::{AckStatus, Answer, Encoder};

/// Most samples that wait for a server; beyond it the report says what was lost.
const WAITING_MAX: usize = 64;

/// Makes batches of a measure's samples and sends them in order.
pub(crate) struct Sender<'a> {
    client: &'a Client,
    /// `None`: there is no server that knows the job.
    origin: Option<Origin>,
    /// Whether an agent of this node reads the job's cgroup too.
    agent: bool,
    boot: Boot,
    seq: u64,
    encoder: Encoder,
    waiting: Vec<Vec<u8>>,
    lost: u64,
    trouble: Option<String>,
}

impl<'a> Sender<'a> {
    /// A sender for a job that has a number. Where an agent of this node sees the job's cgroup, only the
    /// last reading of that is sent, which the agent may come too late for: both read the same
    /// counters, so the one continues the other.
    pub(crate) fn new(
        client: &'a Client,
        key: Option<&JobKey>,
        device: &DeviceId,
        cgroup: bool,
    ) -> Self {
        let agent = key.is_some() && cgroup && agent_alive(client, device);
        let origin = key.and_then(|key| Origin::new(&format!("{device}/run-{}", key.id)).ok());
        let mut boot = [0; 16];
        let trouble = random(&mut boot).err().map(|error| format!("random numbers: {error}"));
        let origin = origin.filter(|_| trouble.is_none());
        let (waiting, encoder) = (Vec::new(), Encoder::default());
        Self { client, origin, agent, boot: Boot(boot), seq: 0, encoder, waiting, lost: 0, trouble }
    }

    /// Sends what the sources pushed since the last call; `last` tries once more what waits.
    pub(crate) fn send(&mut self, measure: &mut Measure, last: bool) {
        let batch = if self.agent && !last { None } else { self.batch(measure) };
        for (_, sink) in measure.sinks() {
            sink.sealed();
            sink.take_gaps();
        }
        let Some(batch) = batch else { return };
        let mut frame = Vec::new();
        match self.encoder.encode(&batch, &mut frame) {
            Ok(()) => self.waiting.push(frame),
            Err(error) => self.trouble = Some(error.to_string()),
        }
        if self.waiting.len() > WAITING_MAX {
            self.waiting.remove(0);
            self.lost += 1;
        }
        for _ in 0..if last { 3 } else { 1 } {
            self.post();
        }
    }

    fn batch(&mut self, measure: &mut Measure) -> Option<Batch> {
        let origin = self.origin.clone()?;
        let (mut places, mut entries) = (HashMap::<SeriesEntry, u32>::new(), Vec::new());
        let (mut ticks, mut index, mut values) = (Vec::<Tick>::new(), Vec::new(), Vec::new());
        let mut gaps = Vec::new();
        let agent = self.agent;
        for (_, sink) in measure.sinks().filter(|(name, _)| !agent || *name == "cgroup") {
            for (entry, at, value) in sink.samples() {
                let next = u32::try_from(entries.len()).ok()?;
                let place = *places.entry(entry.clone()).or_insert_with(|| {
                    entries.push(entry.clone());
                    next
                });
                index.push(place);
                values.push(value);
                match ticks.last_mut() {
                    Some(tick) if tick.at == at => tick.samples += 1,
                    _ => ticks.push(Tick { at, samples: 1 }),
                }
            }
            gaps.extend(sink.take_gaps());
        }
        let (boot, seq) = (self.boot, self.seq);
        self.seq += 1;
        let table = Arc::new(SeriesTable { entries });
        Some(Batch { origin, boot, seq, table, ticks, index, values, gaps, jobs: Vec::new() })
    }

    fn post(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        match self.client.post_frames(&self.waiting.concat()) {
            Ok(answer) => self.acked(&answer),
            Err(error) if crate::run::is_refusal(&error) => {
                self.trouble = Some(format!("sending samples: {error:#}"));
                self.waiting.clear();
            }
            Err(error) => self.trouble = Some(format!("sending samples: {error:#}")),
        }
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
        let waiting = u64::try_from(self.waiting.len()).unwrap_or(u64::MAX);
        match self.lost + waiting {
            0 => self.trouble,
            lost => Some(format!("{lost} batches of samples, which no server took")),
        }
    }
}

/// Whether an agent of this node sends.
fn agent_alive(client: &Client, device: &DeviceId) -> bool {
    let nodes: anyhow::Result<Vec<api::Node>> = client.get("/api/v1/nodes");
    nodes.is_ok_and(|nodes| nodes.iter().any(|node| node.alive && node.device == device.as_str()))
}

/// Bytes of the kernel's random generator (random(4)).
fn random(bytes: &mut [u8]) -> std::io::Result<()> {
    std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, bytes)
}
