//! Decisions of the sender: what to send next, how to handle the response, and how long to wait. They need no
//! thread, clock or connection.

use crate::common::backoff::Backoff;
use crate::common::counters::Counters;
use crate::connection::http::Failure;
use crate::sending::outbox::{Outbox, Request, SendOutcome};
use model::Boot;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use wire::{Ack, AckStatus, Answer};

/// Maximum number of frames in a request, before the server rejected any.
const FRAMES_MAX: usize = 512;
/// Minimum interval between spool requests if the rate limit allows more than one request's bytes.
const SPOOL_EVERY_US: i64 = 1_000_000;

/// Decides what is sent.
#[derive(Debug)]
pub(crate) struct Dispatch {
    outbox: Arc<Outbox>,
    counters: Arc<Counters>,
    backoff: Backoff,
    frames_max: usize,
    spool_from_us: i64,
}

impl Dispatch {
    pub(crate) fn new(outbox: Arc<Outbox>, counters: Arc<Counters>, backoff: Backoff) -> Self {
        let (frames_max, spool_from_us) = (FRAMES_MAX, 0);
        Self { outbox, counters, backoff, frames_max, spool_from_us }
    }

    /// Waits up to `most` for a request. The spool is used only if its rate limit allows it, and not while the
    /// agent ends.
    pub(crate) fn next(&self, now_us: i64, most: Duration, ending: bool) -> Option<Request> {
        // Wait until the spool may send again, if it must wait.
        let left_us = self.spool_from_us.saturating_sub(now_us);
        let left = Duration::from_micros(u64::try_from(left_us).unwrap_or(0));
        let patience = if left_us > 0 { most.min(left) } else { most };
        self.outbox.next(patience, left_us <= 0 && !ending)
    }

    /// Reduces a request to the number of frames that may be sent at once.
    pub(crate) fn cut(&self, request: &mut Request) {
        request.cut(self.frames_max.max(1));
    }

    /// Resets the retry delay, because the server may be a different one.
    pub(crate) const fn renew(&mut self) {
        self.backoff.reset();
    }

    /// Handles a response: frames that the server has are removed. Returns a delay if the server requests one.
    pub(crate) fn answered(&mut self, request: &Request, answer: &Answer) -> Option<Duration> {
        let outcomes: Vec<SendOutcome> = answer.acks.iter().map(SendOutcome::from).collect();
        self.outbox.settle(request, &outcomes);
        for ack in answer.acks.iter().filter(|ack| ack.samples_rejected > 0) {
            let count = u64::from(ack.samples_rejected);
            self.counters.rejected_samples.fetch_add(count, Ordering::Relaxed);
        }
        self.frames_max = (self.frames_max * 2).min(FRAMES_MAX);
        if outcomes.contains(&SendOutcome::Later) {
            return Some(self.backoff.failed(None));
        }
        self.backoff.reset();
        None
    }

    /// Delays the next spool request by the time that its bytes take at the rate limit. Live frames pass meanwhile.
    pub(crate) fn pace_spool(&mut self, request: &Request, bytes: usize, rate: u64, now_us: i64) {
        if !matches!(request, Request::Spooled(_)) {
            return;
        }
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let takes_us = bytes.saturating_mul(1_000_000) / rate.max(1);
        let takes_us = i64::try_from(takes_us).unwrap_or(SPOOL_EVERY_US);
        self.spool_from_us = now_us.saturating_add(takes_us);
    }

    /// Handles a rejected or failed request. Returns the delay before the next attempt.
    pub(crate) fn failed(&mut self, request: &Request, failure: &Failure) -> Duration {
        if let Failure::Never { reason, .. } = failure {
            if request.count() > 1 {
                // One frame is invalid, or the request is too large. Send half as many, down to one.
                self.frames_max = request.count() / 2;
                self.outbox.settle(request, &[]);
                return Duration::ZERO;
            }
            self.outbox.settle(request, &[SendOutcome::RejectedBatches(reason.clone())]);
            return Duration::ZERO;
        }
        self.outbox.settle(request, &[]);
        if let Failure::TimedOut(_) = failure {
            // A slow server answers a smaller request in time; each answer is progress.
            self.frames_max = (request.count() / 2).max(1);
        }
        let retry_after = if let Failure::Later { after, .. } = failure { *after } else { None };
        self.backoff.failed(retry_after)
    }
}

/// Whether an ack is of a frame that the server cannot decode: it has no number.
fn is_of_unread(ack: &Ack) -> bool {
    let is_rejected =
        matches!(ack.status, AckStatus::RejectedPermanently | AckStatus::RejectedTemporarily);
    is_rejected && (ack.boot, ack.seq) == (Boot([0; 16]), 0)
}

/// Checks that a response belongs to this request.
pub(crate) fn matching(answer: Answer, request: &Request) -> Result<Answer, Failure> {
    let right = answer.acks.len() == request.count()
        && match request {
            Request::Live(frames) => frames.iter().zip(&answer.acks).all(|((_, frame), ack)| {
                (frame.boot, frame.seq) == (ack.boot, ack.seq) || is_of_unread(ack)
            }),
            Request::Spooled(_) => true,
        };
    if right {
        return Ok(answer);
    }
    let (acks, frames) = (answer.acks.len(), request.count());
    let why = format!(
        "invalid response: it acknowledges {acks} other batches than the {frames} of the \
                 request"
    );
    Err(Failure::Unreached(why))
}
