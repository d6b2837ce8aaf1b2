//! The thread that sends: live frames as they come, the spool beside them at a bounded rate, oldest first.

use crate::backoff::Backoff;
use crate::clock::Clock;
use crate::connect::Connect;
use crate::http::{Failure, Http};
use crate::outbox::{Fate, Outbox, Request};
use crate::own::Counters;
use model::{JobId, JobKey, Timestamp};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError};
use std::time::Duration;
use wire::Answer;

/// Most frames of one request, before any was refused.
const FRAMES_MAX: usize = 512;
/// How long the sender waits for something to send before it looks around.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often the spool may send where its rate allows more bytes than one request has.
const SPOOL_EVERY_US: i64 = 1_000_000;

/// What the sender is told.
#[derive(Debug)]
pub(crate) enum Order {
    /// The settings are others.
    Renew,
    /// The generation of the server's configuration that the node has taken, and what it refused of it.
    Generation { generation: u64, refused: String },
    /// End when memory is empty.
    End,
}

/// What the server says of the node's jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WantedJobs {
    /// Jobs of users that it registered, by number and user.
    pub(crate) local: Vec<(JobId, u32)>,
    /// Jobs that are here as far as it was told, and since when.
    pub(crate) open: Vec<(JobKey, Timestamp)>,
}

/// What the server wants of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Another configuration.
    Config { generation: u64, text: Vec<u8> },
    /// That these jobs be known.
    Jobs(WantedJobs),
}

/// The sending thread's own.
pub(crate) struct Sender {
    outbox: Arc<Outbox>,
    counters: Arc<Counters>,
    clock: Arc<dyn Clock>,
    orders: Receiver<Order>,
    wanted: SyncSender<Wanted>,
    waker: UnixStream,
    connect: Arc<Connect>,
    http: Option<Http>,
    backoff: Backoff,
    phase: Duration,
    generation: u64,
    refused: String,
    jobs: WantedJobs,
    ending: bool,
    frames_max: usize,
    spool_from_us: i64,
    reached: bool,
}

impl Sender {
    pub(crate) fn new(
        outbox: Arc<Outbox>,
        counters: Arc<Counters>,
        clock: Arc<dyn Clock>,
        (orders, wanted, waker): (Receiver<Order>, SyncSender<Wanted>, UnixStream),
        connect: Arc<Connect>,
        backoff: Backoff,
        phase: Duration,
    ) -> Self {
        Self {
            outbox,
            counters,
            clock,
            orders,
            wanted,
            waker,
            connect,
            http: None,
            backoff,
            phase,
            generation: 0,
            refused: String::new(),
            jobs: WantedJobs::default(),
            ending: false,
            frames_max: FRAMES_MAX,
            spool_from_us: 0,
            reached: false,
        }
    }

    /// Sends until it is told to end.
    pub(crate) fn run(mut self) {
        let mut body = Vec::new();
        loop {
            self.take_orders();
            if self.ending && self.outbox.is_ended() {
                return;
            }
            if self.http.is_none() {
                self.http = self.connect.client();
            }
            if self.http.is_none() {
                if !self.rest(PATIENCE) {
                    return;
                }
                continue;
            }
            // Until the spool's turn comes, and no longer where there is no such turn.
            let left_us = self.spool_from_us.saturating_sub(self.clock.steady_us());
            let spool_too = left_us <= 0 && !self.ending;
            let left = Duration::from_micros(u64::try_from(left_us).unwrap_or(0));
            let patience = if left_us > 0 { PATIENCE.min(left) } else { PATIENCE };
            let Some(mut request) = self.outbox.next(patience, spool_too) else { continue };
            // All nodes seal at the same instants: each sends at one of its own.
            if matches!(request, Request::Live(_)) && !self.phase.is_zero() && !self.ending {
                self.rest(self.phase);
            }
            let Some(http) = &self.http else { continue };
            request.cut(self.frames_max.max(1));
            request.body(&mut body);
            let now = self.clock.wall();
            let answer = http.post(&body, now, self.generation, &self.refused);
            let answer = answer.and_then(|answer| matching(answer, &request));
            let wait = match answer {
                Ok(answer) => self.settle(&request, &answer, body.len()),
                Err(failure) => Some(self.failed(&request, &failure)),
            };
            if let Some(wait) = wait
                && !self.rest(wait)
            {
                return;
            }
        }
    }

    fn take_orders(&mut self) {
        loop {
            match self.orders.try_recv() {
                Ok(order) => self.obey(order),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    self.ending = true;
                    return;
                }
            }
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Renew => {
                self.http = None;
                self.backoff.reset();
            }
            Order::Generation { generation, refused } => {
                self.generation = generation;
                self.refused = refused;
            }
            Order::End => self.ending = true,
        }
    }

    /// Waits, but for an order; false when there is nothing more to do.
    fn rest(&mut self, wait: Duration) -> bool {
        if self.ending {
            return false;
        }
        match self.orders.recv_timeout(wait) {
            Ok(order) => self.obey(order),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => self.ending = true,
        }
        true
    }

    /// The server answered: what it has is forgotten. A wait if it wants one.
    fn settle(&mut self, request: &Request, answer: &Answer, bytes: usize) -> Option<Duration> {
        if !self.reached {
            log::info!("the server takes batches");
            self.reached = true;
        }
        let fates: Vec<Fate> = answer.acks.iter().map(Fate::from).collect();
        self.outbox.settle(request, &fates);
        for ack in answer.acks.iter().filter(|ack| ack.samples_refused > 0) {
            let (count, why) = (ack.samples_refused, &ack.samples_reason);
            log::warn!("the server refused {count} samples of a batch: {why}");
            self.counters.refused_samples.fetch_add(u64::from(count), Ordering::Relaxed);
        }
        if matches!(request, Request::Spooled(_)) {
            self.pace_spool(bytes);
        }
        self.frames_max = (self.frames_max * 2).min(FRAMES_MAX);
        self.tell_wanted(answer);
        let later = answer.acks.iter().find(|ack| Fate::from(*ack) == Fate::Later);
        match later {
            Some(ack) => {
                log::warn!("the server takes a batch later: {}", ack.reason);
                Some(self.backoff.failed(None))
            }
            None => {
                self.backoff.reset();
                None
            }
        }
    }

    /// The spool waits for as long as its bytes take at its rate, so that live frames get through.
    fn pace_spool(&mut self, bytes: usize) {
        let rate = self.connect.spool_bytes_per_second().max(1);
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let takes_us = bytes.saturating_mul(1_000_000) / rate;
        let takes_us = i64::try_from(takes_us).unwrap_or(SPOOL_EVERY_US);
        self.spool_from_us = self.clock.steady_us().saturating_add(takes_us);
    }

    fn tell_wanted(&mut self, answer: &Answer) {
        let generation = answer.config_generation;
        if generation != self.generation && (generation == 0 || !answer.config.is_empty()) {
            self.want(Wanted::Config { generation, text: answer.config.clone() });
        }
        let Answer { local_jobs, open_jobs, .. } = answer;
        if (local_jobs, open_jobs) != (&self.jobs.local, &self.jobs.open) {
            let jobs = WantedJobs { local: local_jobs.clone(), open: open_jobs.clone() };
            if self.want(Wanted::Jobs(jobs.clone())) {
                self.jobs = jobs;
            }
        }
    }

    fn want(&self, wanted: Wanted) -> bool {
        // Full: the server will say it again with its next answer.
        let told = self.wanted.try_send(wanted).is_ok();
        if told {
            // A full pipe wakes already.
            (&self.waker).write_all(&[0]).ok();
        }
        told
    }

    /// The server did not take the frames: how long to wait before the next try.
    fn failed(&mut self, request: &Request, failure: &Failure) -> Duration {
        if let Failure::Never { reason, .. } = failure {
            if request.count() > 1 {
                // One of them is bad, or all are too many at once: fewer, down to one.
                self.frames_max = request.count() / 2;
                self.outbox.settle(request, &[]);
                return Duration::ZERO;
            }
            self.outbox.settle(request, &[Fate::Refused(reason.clone())]);
            return Duration::ZERO;
        }
        self.outbox.settle(request, &[]);
        log::warn!("batches wait, as the server does not take them: {failure}");
        self.reached = false;
        let mut asked = None;
        match failure {
            Failure::Later { status, after, .. } => {
                asked = *after;
                // The token file may have another token by now.
                if matches!(status, 401 | 403) {
                    self.http = None;
                }
            }
            // `jobmeter up` may have come back at another address.
            _ if self.connect.has_moved() => self.http = None,
            _ => {}
        }
        self.backoff.failed(asked)
    }
}

/// Checks that an answer is one to this request.
fn matching(answer: Answer, request: &Request) -> Result<Answer, Failure> {
    let right = answer.acks.len() == request.count()
        && match request {
            Request::Live(frames) => frames
                .iter()
                .zip(&answer.acks)
                .all(|((_, frame), ack)| (frame.boot, frame.seq) == (ack.boot, ack.seq)),
            Request::Spooled(_) => true,
        };
    if right {
        return Ok(answer);
    }
    let (acks, frames) = (answer.acks.len(), request.count());
    let why =
        format!("its answer is to other batches ({acks} of them) than the {frames} that were sent");
    Err(Failure::Unreached(why))
}

#[cfg(test)]
mod tests;
