//! The outbox: unacknowledged frames in memory, and the spool behind it.
//!
//! A frame stays in memory until the server has it, but at most 2 s; then it moves to the spool. The encoder thread
//! ([`Outbox::push`], [`Outbox::tend`]) and the sender thread ([`Outbox::next`], [`Outbox::settle`]) share the
//! outbox.

use crate::batches::frames::{Span, inside};
use crate::batches::pending_gaps_and_job_events::PendingEvents;
use crate::common::counters::Counters;
use crate::disk::durable_watermark::DurableWatermark;
use crate::disk::folders::Folders;
use crate::disk::rejected_batches::RejectedBatches;
use crate::disk::spool::{Piece, Spool, SpoolPosition};
use model::{Boot, Cause, Timestamp};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use wire::{Ack, AckStatus};

/// Maximum time of a frame in memory without acknowledgement.
const LIVE_US: i64 = 2_000_000;
/// Maximum size of the frames in memory.
const LIVE_BYTES_MAX: usize = 1 << 20;
/// Approximate number of spool bytes in one request.
const PIECE_BYTES: usize = 256 << 10;
/// Interval at which the watermark is written and old segments are removed.
const MAINTAIN_US: i64 = 500_000;
/// Longest wait of [`Outbox::maintain`] while frames are in memory or the watermark is not written, and otherwise.
const WAITS_MAX: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(10)];

/// An encoded batch.
#[derive(Clone, Debug)]
pub(crate) struct LiveFrame {
    pub(crate) boot: Boot,
    pub(crate) seq: u64,
    pub(crate) bytes: Arc<[u8]>,
    /// Times of its samples; `None` if it has gaps only.
    pub(crate) span: Option<Span>,
    pub(crate) samples: u64,
    /// Start of its first gap.
    pub(crate) gaps_from: Option<Timestamp>,
}

#[derive(Debug)]
struct Live {
    frame: LiveFrame,
    /// Position in the order of sealing.
    id: u64,
    since_us: i64,
    /// Time until which everything was kept before this frame, and before its first gap.
    before: Option<Timestamp>,
}

/// Frames of one request.
#[derive(Debug)]
pub(crate) enum Request {
    /// Frames from memory, each with its position in the order of sealing.
    Live(Vec<(u64, LiveFrame)>),
    /// Frames from the spool.
    Spooled(Piece),
}

impl Request {
    /// Number of frames.
    pub(crate) fn count(&self) -> usize {
        match self {
            Self::Live(frames) => frames.len(),
            Self::Spooled(piece) => piece.frames.len(),
        }
    }

    /// Writes the frames' bytes into `body`.
    pub(crate) fn body(&self, body: &mut Vec<u8>) {
        body.clear();
        match self {
            Self::Live(frames) => frames.iter().for_each(|(_, f)| body.extend_from_slice(&f.bytes)),
            Self::Spooled(piece) => piece.frames().for_each(|f| body.extend_from_slice(f)),
        }
    }

    /// Keeps only the first `count` frames.
    pub(crate) fn cut(&mut self, count: usize) {
        match self {
            Self::Live(frames) => frames.truncate(count),
            Self::Spooled(piece) => piece.cut(count),
        }
    }
}

/// Result of sending a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SendOutcome {
    /// The server has the frame.
    Stored,
    /// The server rejected the frame permanently, for this reason.
    RejectedBatches(String),
    /// The server did not accept the frame yet.
    Later,
}

impl From<&Ack> for SendOutcome {
    fn from(ack: &Ack) -> Self {
        match ack.status {
            AckStatus::Stored | AckStatus::Duplicate => Self::Stored,
            AckStatus::RejectedPermanently => Self::RejectedBatches(ack.reason.clone()),
            AckStatus::RejectedTemporarily => Self::Later,
        }
    }
}

#[derive(Debug)]
struct State {
    live: VecDeque<Live>,
    next_id: u64,
    /// Time of the last sealed sample.
    last: Option<Timestamp>,
    /// Frames of a request under way that were spooled meanwhile.
    moved: Vec<(u64, SpoolPosition)>,
    sending: Vec<u64>,
    spool: Option<Spool>,
    kept: Option<DurableWatermark>,
    rejected: Option<RejectedBatches>,
    live_turn: bool,
    /// The sender must check its orders.
    rung: bool,
    /// The last request failed.
    failed: bool,
    /// The sender has ended.
    no_sender: bool,
    maintained_us: i64,
    ending: bool,
}

/// Frames that wait to be sent.
#[derive(Debug)]
pub(crate) struct Outbox {
    state: Mutex<State>,
    ready: Condvar,
    settled: Condvar,
    notes: Arc<PendingEvents>,
    counters: Arc<Counters>,
}

impl Outbox {
    pub(crate) fn new(
        folders: Folders,
        notes: Arc<PendingEvents>,
        counters: Arc<Counters>,
    ) -> Self {
        let Folders { spool, kept, kept_until, rejected } = folders;
        let state = State {
            live: VecDeque::new(),
            next_id: 0,
            last: kept_until,
            moved: Vec::new(),
            sending: Vec::new(),
            spool,
            kept,
            rejected,
            live_turn: true,
            rung: false,
            failed: false,
            no_sender: false,
            maintained_us: 0,
            ending: false,
        };
        let (ready, settled) = (Condvar::new(), Condvar::new());
        Self { state: Mutex::new(state), ready, settled, notes, counters }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a frame. If memory is full, the oldest frames move to the spool.
    pub(crate) fn push(&self, frame: LiveFrame, now_us: i64) {
        let mut state = self.state();
        let first = frame.span.map(|span| span.first.plus(-1));
        let before = state.last.into_iter().chain(first).chain(frame.gaps_from).min();
        if frame.gaps_from.is_some() {
            self.notes.arrived();
        }
        if let Some(span) = frame.span {
            state.last = Some(state.last.map_or(span.last, |last| last.max(span.last)));
        }
        let id = state.next_id;
        state.next_id += 1;
        state.live.push_back(Live { frame, id, since_us: now_us, before });
        while state.live_bytes() > LIVE_BYTES_MAX && state.live.len() > 1 {
            self.spill_oldest(&mut state, "memory is full");
        }
        state.draw_kept_back(&self.notes);
        self.publish_counters(&state);
        drop(state);
        self.ready.notify_all();
    }

    /// Moves frames that waited too long to the spool. Returns the time until the next call.
    pub(crate) fn maintain(&self, now: Timestamp, now_us: i64) -> Duration {
        let mut state = self.state();
        // Without a spool, a frame stays in memory as long as the memory limit permits.
        while state.spool.is_some()
            && state
                .live
                .front()
                .is_some_and(|live| now_us.saturating_sub(live.since_us) >= LIVE_US)
        {
            self.spill_oldest(&mut state, "the server is unavailable");
        }
        if now_us.saturating_sub(state.maintained_us) >= MAINTAIN_US {
            state.maintained_us = now_us;
            state.write_kept(&self.notes);
            if let Some(spool) = &mut state.spool {
                spool.drop_aged(now);
            }
        }
        state.draw_kept_back(&self.notes);
        self.publish_counters(&state);
        let oldest = state.live.front().filter(|_| state.spool.is_some());
        let left_us = oldest.map_or(i64::MAX, |live| live.since_us + LIVE_US - now_us);
        let [busy, idle] = WAITS_MAX;
        let wait_max = if state.is_idle(&self.notes) { idle } else { busy };
        Duration::from_micros(u64::try_from(left_us).unwrap_or(0))
            .clamp(Duration::from_millis(10), wait_max)
    }

    /// Waits up to `patience` for frames to send. Uses the spool only with `spool_too`.
    pub(crate) fn next(&self, patience: Duration, spool_too: bool) -> Option<Request> {
        let mut state = self.state();
        let nothing = |state: &mut State| {
            let spooled = spool_too && state.spool.as_ref().is_some_and(|spool| spool.bytes() > 0);
            state.live.is_empty() && !spooled && !state.ending && !state.rung
        };
        if nothing(&mut state) {
            state = match self.ready.wait_timeout_while(state, patience, nothing) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        let state = &mut *state;
        if std::mem::take(&mut state.rung) {
            return None;
        }
        let spooled = |state: &mut State| {
            let spool = state.spool.as_mut().filter(|_| spool_too)?;
            spool.next(PIECE_BYTES).map(Request::Spooled)
        };
        let live = |state: &mut State| {
            state.sending = state.live.iter().map(|live| live.id).collect();
            let frames = state.live.iter().map(|live| (live.id, live.frame.clone()));
            let frames: Vec<_> = frames.collect();
            (!frames.is_empty()).then_some(Request::Live(frames))
        };
        state.live_turn = !state.live_turn;
        let request = if state.live_turn {
            live(state).or_else(|| spooled(state))
        } else {
            spooled(state).or_else(|| live(state))
        };
        state.draw_kept_back(&self.notes);
        request
    }

    /// Ends the wait of [`Self::next`] because of an order to the sender.
    pub(crate) fn ring(&self) {
        self.state().rung = true;
        self.ready.notify_all();
    }

    /// Whether all batches arrived and memory is empty, so that the sender may end.
    pub(crate) fn is_ended(&self) -> bool {
        let state = self.state();
        state.ending && state.live.is_empty()
    }

    /// Handles the result of each frame of a request.
    pub(crate) fn settle(&self, request: &Request, outcomes: &[SendOutcome]) {
        let mut state = self.state();
        state.failed = outcomes.iter().all(|outcome| *outcome == SendOutcome::Later);
        match request {
            Request::Live(frames) => {
                for ((id, frame), outcome) in frames.iter().zip(outcomes) {
                    if let SendOutcome::RejectedBatches(reason) = outcome {
                        self.reject(&mut state, &frame.bytes, reason);
                    }
                    if *outcome != SendOutcome::Later {
                        state.done(*id);
                        self.count_sent(outcome);
                    }
                }
                state.sending.clear();
                state.moved.clear();
            }
            Request::Spooled(piece) => {
                let mut end = None;
                for ((bytes, (_, frame_end)), outcome) in
                    piece.frames().zip(&piece.frames).zip(outcomes)
                {
                    match outcome {
                        SendOutcome::Later => break,
                        SendOutcome::RejectedBatches(reason) => {
                            self.reject(&mut state, bytes, reason)
                        }
                        SendOutcome::Stored => {}
                    }
                    self.count_sent(outcome);
                    end = Some(*frame_end);
                }
                if let (Some(end), Some(spool)) = (end, &mut state.spool) {
                    spool.forget(piece.segment, end);
                }
            }
        }
        state.draw_kept_back(&self.notes);
        self.publish_counters(&state);
        drop(state);
        self.settled.notify_all();
    }

    /// Records that the sender has ended.
    pub(crate) fn no_sender(&self) {
        self.state().no_sender = true;
        self.settled.notify_all();
    }

    /// Ends the outbox: no further batches follow. Frames that the server does not accept within `patience`, or
    /// before a request fails, go to the spool.
    pub(crate) fn end(&self, patience: Duration) {
        let mut state = self.state();
        state.ending = true;
        // One more request is worth an attempt, even the first one on a new connection.
        state.failed = false;
        self.ready.notify_all();
        let unsent =
            |state: &mut State| !state.live.is_empty() && !state.failed && !state.no_sender;
        let mut state = match self.settled.wait_timeout_while(state, patience, unsent) {
            Ok((state, _)) => state,
            Err(poisoned) => poisoned.into_inner().0,
        };
        while !state.live.is_empty() {
            self.spill_oldest(&mut state, "the program ends");
        }
        state.write_kept(&self.notes);
        self.publish_counters(&state);
        self.ready.notify_all();
    }

    /// Sets the folders of an outbox that began without them.
    pub(crate) fn set_folders(&self, folders: Folders) {
        let state = &mut *self.state();
        (state.spool, state.kept, state.rejected) = (folders.spool, folders.kept, folders.rejected);
    }

    /// Changes the spool, for example its limits.
    pub(crate) fn with_spool(&self, change: impl FnOnce(&mut Spool)) {
        if let Some(spool) = &mut self.state().spool {
            change(spool);
        }
    }

    /// Moves the oldest frame in memory to the spool. Without a spool, or if the write fails, its samples become a
    /// gap.
    fn spill_oldest(&self, state: &mut State, now: &str) {
        let Some(Live { frame, id, .. }) = state.live.pop_front() else { return };
        let last = state.last.unwrap_or_default();
        let span = frame.span.unwrap_or(Span { first: last, last });
        let why = match state.spool.as_mut().map(|spool| spool.append(&frame.bytes, span)) {
            Some(Ok(spot)) => {
                if state.sending.contains(&id) {
                    state.moved.push((id, spot));
                }
                return;
            }
            Some(Err(e)) => format!("cannot write the spool: {e}"),
            None => format!("{now}, and there is no spool"),
        };
        log::error!("samples lost: {why}");
        if let Some(span) = frame.span {
            self.notes.add("", span.outside(), Cause::SpoolFull, &why);
        }
        if let Some(inside) = inside(&frame.bytes) {
            self.notes.put_all(inside.gaps, inside.jobs);
        }
        self.counters.dropped_samples.fetch_add(frame.samples, Ordering::Relaxed);
    }

    fn reject(&self, state: &mut State, frame: &[u8], reason: &str) {
        log::error!("the server rejected a batch permanently: {reason}");
        if let Some(rejected) = &mut state.rejected
            && let Err(e) = rejected.keep(frame, reason)
        {
            log::error!("cannot store the rejected batch: {e}");
        }
        let Some(inside) = inside(frame) else { return };
        // Its gaps and jobs are noted again, unless it has no samples: then they may be the reason for the
        // rejection.
        if let Some(span) = inside.span {
            self.notes.add("", span.outside(), Cause::Rejected, reason);
            self.notes.put_all(inside.gaps, inside.jobs);
        }
        self.counters.dropped_samples.fetch_add(inside.samples, Ordering::Relaxed);
    }

    fn count_sent(&self, outcome: &SendOutcome) {
        let counter = match outcome {
            SendOutcome::Stored => &self.counters.sent_batches,
            SendOutcome::RejectedBatches(_) => &self.counters.rejected_batches,
            SendOutcome::Later => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn publish_counters(&self, state: &State) {
        let bytes = u64::try_from(state.live_bytes()).unwrap_or(u64::MAX);
        self.counters.unsent_bytes.store(bytes, Ordering::Relaxed);
        let live = state.live.iter().find_map(|live| live.frame.span).map(|span| span.first);
        let spooled = state.spool.as_ref().and_then(Spool::oldest);
        let oldest = live.into_iter().chain(spooled).min().map_or(0, |oldest| oldest.0);
        self.counters.oldest_unacked_us.store(oldest, Ordering::Relaxed);
    }
}

impl State {
    fn live_bytes(&self) -> usize {
        self.live.iter().map(|live| live.frame.bytes.len()).sum()
    }

    /// Removes a frame that the server has or rejected permanently.
    fn done(&mut self, id: u64) {
        if let Some(at) = self.live.iter().position(|live| live.id == id) {
            self.live.remove(at);
        } else if let Some((_, spot)) = self.moved.iter().find(|(moved, _)| *moved == id)
            && let Some(spool) = &mut self.spool
        {
            spool.mark_done(*spot);
        }
    }

    /// Whether no frame is in memory and the watermark is written.
    fn is_idle(&self, notes: &PendingEvents) -> bool {
        let is_written = |kept: &DurableWatermark| kept.written() == self.kept_until(notes);
        self.live.is_empty() && self.kept.as_ref().is_none_or(is_written)
    }

    /// Time until which everything is acknowledged or spooled.
    fn kept_until(&self, notes: &PendingEvents) -> Option<Timestamp> {
        let live = self.live.iter().filter_map(|live| live.before);
        live.chain(self.last).chain(notes.earliest()).min()
    }

    /// Writes a decreased watermark at once, after the spool lost frames or the server rejected them. Otherwise no
    /// start would report the gap after a kill.
    fn draw_kept_back(&mut self, notes: &PendingEvents) {
        let written = self.kept.as_ref().and_then(DurableWatermark::written);
        if self.kept_until(notes).zip(written).is_some_and(|(until, written)| until < written) {
            self.write_kept(notes);
        }
    }

    /// Writes the watermark.
    fn write_kept(&mut self, notes: &PendingEvents) {
        let until = self.kept_until(notes);
        if let (Some(until), Some(kept)) = (until, &mut self.kept)
            && let Err(e) = kept.write(until)
        {
            log::error!("cannot store the time up to which samples are safe: {e}");
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
