//! Decides which batches of a request are passed to the store.
//!
//! It runs on the decoding threads, never on the threads that accept requests, because it reads each new table.

use crate::api::batch_routes::user_batches::{self, NodeProcessors};
use crate::app::App;
use crate::auth::caller::Rights;
use crate::auth::origin_policy::ReportScope;
use crate::common::counts;
use crate::ingest::decoding::FrameRead;
use crate::ingest::send_limits::SampleRateExceeded;
use crate::ingest::senders::Senders;
use control::{Reading, ValueRule};
use jobs::Reporter;
use model::{Boot, JobEvent, Origin, Timestamp};
use std::collections::BTreeSet;
use std::sync::Arc;
use storage::Incoming;
use wire::{Ack, AckStatus, Decoded};

/// After this many forbidden frames, the rest of a request is rejected unread.
///
/// Each frame of a user costs a lookup in the registry.
pub(crate) const FORBIDDEN_MAX: usize = 16;

/// The properties of a request's sender on which its batches depend.
#[derive(Clone, Debug)]
pub(crate) struct Sending {
    pub(crate) rights: Rights,
    pub(crate) senders: Arc<Senders>,
    pub(crate) received: Timestamp,
    /// Forbidden frames of the request before this slice.
    pub(crate) forbidden: usize,
    pub(crate) rules: Arc<[ValueRule]>,
    /// Processors of the nodes of runs in the request: each costs a query.
    pub(crate) processors: NodeProcessors,
}

/// The frames of a slice: the batches for the store, and the acks of all frames.
#[derive(Debug, Default)]
pub(crate) struct Admitted {
    /// One ack for each frame. Those of batches for the store are rejections until the store reports the outcome.
    pub(crate) acks: Vec<Ack>,
    pub(crate) batches: Vec<Incoming>,
    /// The index of each batch's ack.
    pub(crate) places: Vec<usize>,
    pub(crate) events: Vec<ReportedJobs>,
    pub(crate) readings: Vec<Vec<Reading>>,
    pub(crate) origins: BTreeSet<Origin>,
    /// Frames that the caller may not send.
    pub(crate) forbidden: usize,
    /// Whether at least one frame is settled: the sender need not send it again.
    pub(crate) settled: bool,
}

/// The job events of a batch.
#[derive(Debug)]
pub(crate) struct ReportedJobs {
    pub(crate) reporter: Reporter,
    pub(crate) events: Vec<JobEvent>,
}

/// A batch that is not passed to the store.
struct Rejected {
    frame_count: counts::Frame,
    why: String,
    /// Whether the sender should send it again.
    later: bool,
}

/// Decides on the frames of a slice.
pub(crate) fn admit(app: &App, sending: &Sending, frames: Vec<FrameRead>) -> Admitted {
    let mut admitted = Admitted { forbidden: sending.forbidden, ..Admitted::default() };
    for frame in frames {
        match frame {
            FrameRead::Bad { why, later } => {
                let rejected = Rejected { frame_count: counts::Frame::Malformed, why, later };
                admitted.reject(app, (Boot([0; 16]), 0), rejected);
            }
            FrameRead::Forbidden(head, why) => {
                let rejected = too_many(admitted.forbidden).unwrap_or_else(|| forbidden(why, true));
                admitted.reject(app, (head.boot, head.seq), rejected);
            }
            FrameRead::Batch(decoded, bytes) => {
                match check(app, sending, &decoded, admitted.forbidden) {
                    Err(rejected) => admitted.reject(app, (decoded.boot, decoded.seq), rejected),
                    Ok(()) => admitted.take(app, sending, *decoded, bytes),
                }
            }
        }
    }
    admitted
}

impl Admitted {
    fn reject(&mut self, app: &App, (boot, seq): (Boot, u64), rejected: Rejected) {
        let Rejected { frame_count, why, later } = rejected;
        self.forbidden += usize::from(matches!(frame_count, counts::Frame::Forbidden));
        app.counts.frames.add(frame_count, 1);
        self.settled |= !later;
        self.acks.push(rejection_ack(boot, seq, later, why));
    }

    fn take(&mut self, app: &App, sending: &Sending, decoded: Decoded, frame: Vec<u8>) {
        debug(&decoded);
        let received = sending.received;
        self.places.push(self.acks.len());
        self.acks.push(rejection_ack(decoded.boot, decoded.seq, true, String::new()));
        self.origins.insert(decoded.origin.clone());
        let is_input = decoded.origin.as_colmet_group().is_some();
        let reporter = if is_input { Reporter::Input } else { Reporter::Agent };
        self.events.push(ReportedJobs { reporter, events: decoded.jobs.clone() });
        self.readings.push(app.rule_evaluator.readings(&sending.rules, &decoded, received));
        self.batches.push(Incoming { frame, decoded, received });
    }
}

fn forbidden(why: String, later: bool) -> Rejected {
    Rejected { frame_count: counts::Frame::Forbidden, why, later }
}

/// Rejects a frame unread, after `FORBIDDEN_MAX` forbidden frames.
fn too_many(before: usize) -> Option<Rejected> {
    (before >= FORBIDDEN_MAX).then(|| {
        let why =
            format!("{FORBIDDEN_MAX} batches before this one may not be sent; send this one again");
        forbidden(why, true)
    })
}

/// Checks that the caller may send this batch, and that it is within the caller's limits.
fn check(app: &App, sending: &Sending, batch: &Decoded, before: usize) -> Result<(), Rejected> {
    too_many(before).map_or(Ok(()), Err)?;
    may_hold(app, sending, batch).map_err(|(why, later)| forbidden(why, later))?;
    let user = match sending.rights {
        Rights::User(uid) | Rights::StaffUser(uid) => Some(uid),
        _ => None,
    };
    let received = sending.received;
    if let (Some(uid), Some((_, run))) = (user, batch.origin.as_run())
        && let Err(why) = app.send_limits.take_of_user(uid, run, batch, received)
    {
        return Err(Rejected { frame_count: counts::Frame::Limited, why, later: false });
    }
    let sender =
        user.map_or_else(|| format!("origin {}", batch.origin), |uid| format!("user {uid}"));
    let limits = &app.send_limits;
    let taken = limits.take_events(&sender, batch, received);
    let taken = taken.and_then(|()| limits.take_samples(&sender, batch, received));
    taken.map_err(|SampleRateExceeded { why, later }| {
        app.counts.samples_rejected.add(if later { 0 } else { batch.index.len() });
        Rejected { frame_count: counts::Frame::Limited, why, later }
    })
}

/// Checks that the caller, who may send for the batch's origin, may send its content.
///
/// The error has the reason, and whether the batch may be sent again.
fn may_hold(app: &App, sending: &Sending, batch: &Decoded) -> Result<(), (String, bool)> {
    let again = |why: String| (why, true);
    match sending.rights {
        Rights::Agent(None) | Rights::Poller(_) => {
            app.origin_policy.check(batch, &ReportScope::AnyDevice).map_err(again)
        }
        Rights::Agent(Some(_)) => {
            app.origin_policy.check(batch, &ReportScope::OwnDevice).map_err(again)
        }
        Rights::Colmet(ref cluster) => {
            let scope = ReportScope::JobsOf(cluster.clone());
            app.origin_policy.check(batch, &scope).map_err(again)
        }
        Rights::Admin(_) => Ok(()),
        _ => match sending.senders.job_start(&batch.origin) {
            Some(start) => user_batches::check(app, batch, start, &sending.processors),
            None => Err(again(format!("{} is no origin of this caller", batch.origin))),
        },
    }
}

/// Returns the ack of a batch that is not stored.
fn rejection_ack(boot: Boot, seq: u64, later: bool, reason: String) -> Ack {
    let status =
        if later { AckStatus::RejectedTemporarily } else { AckStatus::RejectedPermanently };
    let (samples_rejected, samples_reason) = (0, String::new());
    Ack { boot, seq, status, reason, samples_rejected, samples_reason }
}

fn debug(batch: &Decoded) {
    if log::log_enabled!(log::Level::Debug) {
        let series: BTreeSet<u32> = batch.index.iter().copied().collect();
        log::debug!(
            "batch {} of {} (boot {}): {} samples of {} series, {} gaps, {} job events",
            batch.seq,
            batch.origin,
            batch.boot,
            batch.index.len(),
            series.len(),
            batch.gaps.len(),
            batch.jobs.len()
        );
    }
}
