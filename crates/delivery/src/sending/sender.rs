//! The sender thread. It sends live frames as they arrive, and the spool at a limited rate, oldest first.

use crate::common::backoff::Backoff;
use crate::common::clock::Clock;
use crate::common::counters::Counters;
use crate::connection::connect::Connect;
use crate::connection::http::{Failure, Http};
use crate::sending::dispatch::{Dispatch, matching};
use crate::sending::outbox::{Outbox, Request};
use model::setting::{AgentStatus, Rejection, SourceStatus, UnreadSource};
use model::{JobId, JobKey, Timestamp};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError};
use std::time::Duration;
use wire::{Ack, AckStatus, Answer};

/// Maximum wait for frames; an order ends it. Each wake costs 50 µs.
const PATIENCE: Duration = Duration::from_secs(10);
/// Wait before the client is created again after a failure.
const CLIENT_RETRY: Duration = Duration::from_secs(2);

/// An order for the sender.
#[derive(Debug)]
pub enum Order {
    /// The settings changed.
    Renew,
    /// The node applied a generation of the server's settings.
    Generation {
        /// The generation.
        generation: u64,
        /// Settings of it that the node rejected or shortened.
        rejected: Vec<Rejection>,
    },
    /// Sources that give no or too few samples.
    Sources(Vec<SourceStatus>),
    /// Sources that settings exclude entirely or in part.
    Unread(Vec<UnreadSource>),
    /// End once memory is empty.
    End,
}

/// A request from the server to the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// New settings.
    Settings {
        /// Generation of the settings.
        generation: u64,
        /// The settings, encoded: [`wire::decode_settings`].
        settings: Vec<u8>,
    },
    /// Lists of jobs.
    Jobs(WantedJobs),
}

/// Jobs of the node that the server reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedJobs {
    /// Registered local jobs: job ID and user ID.
    pub local: Vec<(JobId, u32)>,
    /// Jobs that the server lists as running here, with their start times.
    pub open: Vec<(JobKey, Timestamp)>,
    /// The identity of the server.
    pub server: String,
}

/// State of the sender thread.
pub(crate) struct Sender {
    outbox: Arc<Outbox>,
    clock: Arc<dyn Clock>,
    orders: Receiver<Order>,
    wanted: SyncSender<Wanted>,
    waker: UnixStream,
    connect: Arc<Connect>,
    http: Option<Http>,
    dispatch: Dispatch,
    counters: Arc<Counters>,
    phase: Duration,
    /// The status that the next request reports.
    status: AgentStatus,
    jobs: WantedJobs,
    /// Whether the last request had a response.
    reached: bool,
    /// Whether the log states a failure after the latest accepted batch.
    has_failed: bool,
    ending: bool,
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
            dispatch: Dispatch::new(Arc::clone(&outbox), Arc::clone(&counters), backoff),
            counters,
            outbox,
            clock,
            orders,
            wanted,
            waker,
            connect,
            http: None,
            phase,
            status: AgentStatus::default(),
            jobs: WantedJobs::default(),
            reached: false,
            has_failed: false,
            ending: false,
        }
    }

    /// Sends until an order ends the thread.
    pub(crate) fn run(mut self) {
        self.send_on();
        self.outbox.no_sender();
    }

    fn send_on(&mut self) {
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
                if !self.rest(CLIENT_RETRY) {
                    return;
                }
                continue;
            }
            let now_us = self.clock.steady_us();
            let request = self.dispatch.next(now_us, PATIENCE, self.ending);
            let Some(mut request) = request else { continue };
            // All nodes seal at the same instants. A delay per node spreads their requests.
            if matches!(request, Request::Live(_)) && !self.phase.is_zero() && !self.ending {
                self.rest(self.phase);
            }
            let Some(http) = &self.http else { continue };
            self.dispatch.cut(&mut request);
            request.body(&mut body);
            self.status.now = self.clock.wall();
            let wait_us = self.counters.wait_us.load(Ordering::Relaxed);
            self.status.wait_us = u64::try_from(wait_us).unwrap_or(0);
            self.status.stops = self.ending;
            let answer = http.post(&body, &self.status);
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
                self.dispatch.renew();
            }
            Order::Generation { generation, rejected } => {
                self.status.generation = generation;
                self.status.rejected = rejected;
            }
            Order::Sources(sources) => self.status.sources = sources,
            Order::Unread(unread) => self.status.unread = unread,
            Order::End => self.ending = true,
        }
    }

    /// Waits, but handles an order at once. Returns `false` when the thread should end.
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

    /// Handles a response. Returns a delay if the server requests one.
    fn settle(&mut self, request: &Request, answer: &Answer, bytes: usize) -> Option<Duration> {
        if !std::mem::replace(&mut self.reached, true) {
            if std::mem::take(&mut self.has_failed) {
                log::warn!("the server accepts batches again");
            } else {
                log::info!("the server accepts batches");
            }
        }
        for ack in answer.acks.iter().filter(|ack| ack.samples_rejected > 0) {
            let (count, why) = (ack.samples_rejected, &ack.samples_reason);
            log::warn!("the server rejected {count} samples of a batch: {why}");
        }
        let later = |ack: &&Ack| ack.status == AckStatus::RejectedTemporarily;
        if let Some(ack) = answer.acks.iter().find(later) {
            log::warn!("the server rejected a batch temporarily: {}", ack.reason);
        }
        let wait = self.dispatch.answered(request, answer);
        let rate = self.connect.spool_bytes_per_second();
        self.dispatch.pace_spool(request, bytes, rate, self.clock.steady_us());
        self.publish_wanted(answer);
        wait
    }

    fn publish_wanted(&mut self, answer: &Answer) {
        let Answer { generation, settings, .. } = answer;
        // Without settings the generation is 0. Another one without settings is the current one, or that of an order
        // on its way.
        if *generation != self.status.generation && (*generation == 0 || !settings.is_empty()) {
            let (generation, settings) = (*generation, settings.clone());
            self.want(Wanted::Settings { generation, settings });
        }
        let Answer { local_jobs, open_jobs, server, .. } = answer;
        let have = &self.jobs;
        if (local_jobs, open_jobs, server) != (&have.local, &have.open, &have.server) {
            let (local, open) = (local_jobs.clone(), open_jobs.clone());
            let jobs = WantedJobs { local, open, server: server.clone() };
            if self.want(Wanted::Jobs(jobs.clone())) {
                self.jobs = jobs;
            }
        }
    }

    fn want(&self, wanted: Wanted) -> bool {
        // If the channel is full, the server repeats its request in the next response.
        let is_sent = self.wanted.try_send(wanted).is_ok();
        if is_sent {
            // A full pipe already wakes the reader.
            (&self.waker).write_all(&[0]).ok();
        }
        is_sent
    }

    /// Handles a rejected or failed request. Returns the delay before the next attempt.
    fn failed(&mut self, request: &Request, failure: &Failure) -> Duration {
        match failure {
            Failure::Never { .. } => {}
            // The token file may contain a new token.
            Failure::Later { status: 401 | 403, .. } => self.http = None,
            Failure::Later { .. } => {}
            // `jobmeter up` may have restarted at another address.
            Failure::Unreached(_) if self.connect.has_moved() => self.http = None,
            Failure::Unreached(_) | Failure::TimedOut(_) => {}
        }
        if !matches!(failure, Failure::Never { .. }) {
            log::warn!("batches wait because the server does not accept them: {failure}");
            (self.reached, self.has_failed) = (false, true);
        }
        self.dispatch.failed(request, failure)
    }
}

#[cfg(test)]
mod tests;
