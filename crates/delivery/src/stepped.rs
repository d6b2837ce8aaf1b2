//! A delivery without threads, clock and connection, advanced step by step. The caller provides the time, performs
//! the requests and may stop at any step, like a kill. [`Delivery`](crate::Delivery) runs the same parts in
//! threads.

use crate::batches::pending_gaps_and_job_events::PendingEvents;
use crate::batches::seal::{Sealer, Sinks};
use crate::common::backoff::{Backoff, FIRST};
use crate::common::boot::chance;
use crate::common::clock::{Clock, GivenClock};
use crate::common::counters::Counters;
use crate::common::error::DeliveryError;
use crate::connection::http::Failure;
use crate::disk::folders::Folders;
use crate::sending::dispatch::{Dispatch, matching};
use crate::sending::encoder_thread::EncoderThread;
use crate::sending::outbox::{Outbox, Request};
use crate::sending::queue::queue;
use config::SpoolSettings;
use model::{Boot, DeviceId, Origin, Timestamp};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use wire::Answer;

/// One start of a delivery.
pub struct Stepped {
    clock: Arc<GivenClock>,
    sealer: Sealer,
    encoder: EncoderThread,
    /// Number of batches that the encoder has taken from its queue.
    kept: u64,
    kept_until: Option<Timestamp>,
    outbox: Arc<Outbox>,
    notes: Arc<PendingEvents>,
    counters: Arc<Counters>,
    dispatch: Dispatch,
    spool_bytes_per_second: u64,
    sending: Option<Request>,
    body: Vec<u8>,
}

/// A request that was sent and has no response yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The frames of the request.
    pub body: Vec<u8>,
    /// Whether the frames come from the spool.
    pub spooled: bool,
}

impl std::fmt::Debug for Stepped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stepped").field("kept", &self.kept).finish_non_exhaustive()
    }
}

impl Stepped {
    /// Starts with the frames that earlier starts spooled. Without settings there is no spool. `device` is the
    /// default device of gaps. `steady_us` is the time of a monotonic clock in microseconds.
    ///
    /// # Errors
    /// The spool cannot be opened.
    pub fn start(
        settings: Option<&SpoolSettings>,
        (origin, boot): (Origin, Boot),
        device: DeviceId,
        now: Timestamp,
        steady_us: i64,
    ) -> Result<Self, DeliveryError> {
        let given = Arc::new(GivenClock::new(now));
        given.show(now, steady_us);
        let clock = Arc::clone(&given) as Arc<dyn Clock>;
        let notes = Arc::new(PendingEvents::new(origin.clone(), device));
        let counters = Arc::new(Counters::default());
        let folders = settings.map(|it| Folders::open(it, &notes, &counters)).transpose()?;
        let folders = folders.unwrap_or_default();
        let kept_until = folders.kept_until;
        let outbox = Arc::new(Outbox::new(folders, Arc::clone(&notes), Arc::clone(&counters)));
        let (inlet, batches) = queue();
        let backoff = Backoff::new(FIRST, chance(&boot));
        Ok(Self {
            clock: given,
            sealer: Sealer::new(origin, boot, Arc::clone(&notes), Box::new(inlet), None),
            encoder: EncoderThread::new(batches, &outbox, &notes, &counters, &clock),
            kept: 0,
            kept_until,
            dispatch: Dispatch::new(Arc::clone(&outbox), Arc::clone(&counters), backoff),
            spool_bytes_per_second: settings.map_or(0, |it| it.spool_send_bytes_per_second.0),
            outbox,
            notes,
            counters,
            sending: None,
            body: Vec::new(),
        })
    }

    /// Reports the time between what an earlier start kept and the first tick of this one as a gap.
    pub fn note_down(&self, first: Timestamp, period: Duration) {
        self.notes.add_down(self.kept_until, first, period);
    }

    /// Moves the samples of the sinks and the waiting notes into batches.
    pub fn seal(&mut self, now: Timestamp, steady_us: i64, sinks: &mut dyn Sinks) {
        self.clock.show(now, steady_us);
        self.sealer.seal(sinks);
    }

    /// Does a step of the encoder thread: takes every sealed batch, and spools frames that waited too long.
    pub fn keep(&mut self, now: Timestamp, steady_us: i64) {
        self.clock.show(now, steady_us);
        let sealed = self.sealer.counts.batches;
        // At least one step: older frames need maintenance even without a new batch.
        loop {
            self.encoder.step(Duration::ZERO);
            if self.kept >= sealed {
                return;
            }
            self.kept += 1;
        }
    }

    /// Does a step of the sender thread. Returns the next request, unless there is none or one has no response yet.
    pub fn send(&mut self, now: Timestamp, steady_us: i64) -> Option<Sent> {
        self.clock.show(now, steady_us);
        if self.sending.is_some() {
            return None;
        }
        let mut request = self.dispatch.next(steady_us, Duration::ZERO, false)?;
        self.dispatch.cut(&mut request);
        request.body(&mut self.body);
        let spooled = matches!(request, Request::Spooled(_));
        self.sending = Some(request);
        Some(Sent { body: self.body.clone(), spooled })
    }

    /// Handles the server's response, or the failure. Returns the delay before the next request.
    pub fn answered(
        &mut self,
        now: Timestamp,
        steady_us: i64,
        answer: Result<Answer, Failure>,
    ) -> Duration {
        self.clock.show(now, steady_us);
        let Some(request) = self.sending.take() else { return Duration::ZERO };
        match answer.and_then(|answer| matching(answer, &request)) {
            Ok(answer) => {
                let wait = self.dispatch.answered(&request, &answer);
                let (bytes, rate) = (self.body.len(), self.spool_bytes_per_second);
                self.dispatch.pace_spool(&request, bytes, rate, steady_us);
                wait.unwrap_or_default()
            }
            Err(failure) => self.dispatch.failed(&request, &failure),
        }
    }

    /// Resets the retry delay to the shortest one.
    pub const fn renew(&mut self) {
        self.dispatch.renew();
    }

    /// Number of sealed batches that the server neither stored nor rejected.
    pub fn unsent_batches(&self) -> u64 {
        let counters = &self.counters;
        let counted = [&counters.sent_batches, &counters.rejected_batches];
        let settled: u64 = counted.iter().map(|count| count.load(Ordering::Relaxed)).sum();
        self.sealer.counts.batches.saturating_sub(settled)
    }

    /// Whether no sealed batch and no note is left to send.
    pub fn is_drained(&self) -> bool {
        let counted = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        self.notes.is_empty()
            && self.kept == self.sealer.counts.batches
            && self.sending.is_none()
            && counted(&self.counters.unsent_bytes) == 0
            && counted(&self.counters.spool_bytes) == 0
    }

    /// Ends a start without a spool: opens this spool, and moves unacknowledged batches to it.
    ///
    /// # Errors
    /// The spool cannot be opened.
    pub fn end_in(
        self,
        settings: &SpoolSettings,
        now: Timestamp,
        steady_us: i64,
    ) -> Result<(), DeliveryError> {
        self.outbox.set_folders(Folders::open(settings, &self.notes, &self.counters)?);
        self.end(now, steady_us);
        Ok(())
    }

    /// Shuts down like a program after SIGTERM: unacknowledged batches go to the spool.
    pub fn end(mut self, now: Timestamp, steady_us: i64) {
        self.keep(now, steady_us);
        self.outbox.end(Duration::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::{Bytes, ConfigFile, ConfigInputs, Spool};
    use model::{Metric, Unit};
    use sources::Sink;
    use std::path::Path;
    use wire::{Ack, AckStatus, Decoder, Frames};

    static LOAD: Metric = Metric::gauge("load_1m", Unit::Count, "");

    const PERIOD: Duration = Duration::from_secs(5);

    struct Agent {
        stepped: Stepped,
        sink: Sink,
    }

    fn start(spool: &Path, boot: u8, second: i64) -> Agent {
        let given = ConfigInputs {
            file: ConfigFile::None,
            environment: &|_| None,
            flags: Default::default(),
        };
        let mut settings = config::load_agent(&given, &[]).unwrap().config.spool;
        settings.spool = Some(Spool::Folder(spool.to_owned()));
        settings.spool_send_bytes_per_second = Bytes(1 << 20);
        let (origin, device) = (Origin::new("n").unwrap(), DeviceId::new("n").unwrap());
        let at = Timestamp::from_seconds(second);
        let boot = Boot([boot; 16]);
        let stepped =
            Stepped::start(Some(&settings), (origin, boot), device.clone(), at, 0).unwrap();
        stepped.note_down(at, PERIOD);
        Agent { stepped, sink: Sink::new(device) }
    }

    fn tick(agent: &mut Agent, second: i64, steady_us: i64) {
        let at = Timestamp::from_seconds(second);
        agent.sink.begin(at);
        agent.sink.of_device().gauge(&LOAD, &[], 1.0);
        agent.stepped.seal(at, steady_us, &mut agent.sink);
        agent.stepped.keep(at, steady_us);
    }

    fn stored(body: &[u8]) -> Answer {
        let mut decoder = Decoder::default();
        let frames = Frames::of(body).map(|frame| decoder.decode(&frame.unwrap()).unwrap());
        let ack = |batch: wire::Decoded| Ack {
            boot: batch.boot,
            seq: batch.seq,
            status: AckStatus::Stored,
            reason: String::new(),
            samples_rejected: 0,
            samples_reason: String::new(),
        };
        Answer { acks: frames.map(ack).collect(), ..Answer::default() }
    }

    #[test]
    fn a_tick_is_sent_once_and_then_nothing_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let mut agent = start(dir.path(), 1, 1000);
        tick(&mut agent, 1000, 0);
        let (agent, now) = (&mut agent.stepped, Timestamp::from_seconds(1001));
        let sent = agent.send(now, 0).unwrap();
        assert!(!sent.spooled && agent.send(now, 0).is_none());
        assert_eq!(agent.answered(now, 0, Ok(stored(&sent.body))), Duration::ZERO);
        assert!(agent.is_drained());
    }

    #[test]
    fn what_waits_goes_to_the_spool_and_to_the_next_start() {
        let dir = tempfile::tempdir().unwrap();
        let mut agent = start(dir.path(), 1, 1000);
        for second in [0, 5, 10] {
            tick(&mut agent, 1000 + second, second * 1_000_000);
        }
        let mut agent = agent.stepped;
        let now = Timestamp::from_seconds(1012);
        agent.send(now, 12_000_000).unwrap();
        let wait = agent.answered(now, 12_000_000, Err(Failure::Unreached("away".to_owned())));
        assert!(wait > Duration::ZERO && !agent.is_drained());
        drop(agent);
        let mut again = start(dir.path(), 2, 1021).stepped;
        let sent = again.send(Timestamp::from_seconds(1021), 21_000_000).unwrap();
        assert_eq!((sent.spooled, Frames::of(&sent.body).count()), (true, 2));
        assert!(!again.is_drained(), "it tells since when it was down");
    }

    #[test]
    fn a_server_that_does_not_answer_in_time_gets_smaller_requests() {
        let device = DeviceId::new("n").unwrap();
        let identity = (Origin::new("n").unwrap(), Boot([1; 16]));
        let at = Timestamp::from_seconds(1000);
        let stepped = Stepped::start(None, identity, device.clone(), at, 0).unwrap();
        let mut agent = Agent { stepped, sink: Sink::new(device) };
        for second in 0..8 {
            tick(&mut agent, 1000 + second, second * 1000);
        }
        let mut agent = agent.stepped;
        let frames = |agent: &mut Stepped, answers: bool| {
            let sent = agent.send(at, 0).unwrap();
            let late = Failure::TimedOut("no answer".to_owned());
            let answer = if answers { Ok(stored(&sent.body)) } else { Err(late) };
            let wait = agent.answered(at, 0, answer);
            assert_eq!(wait.is_zero(), answers);
            Frames::of(&sent.body).count()
        };
        let counts: Vec<usize> =
            [false, false, true, true].map(|answers| frames(&mut agent, answers)).into();
        assert_eq!(counts, [8, 4, 2, 4], "each answer doubles the next request");
    }

    #[test]
    fn a_start_without_a_spool_leaves_unsent_batches_in_one_at_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let settings =
            SpoolSettings::of_command(dir.path().join("7"), 1 << 20, Duration::from_secs(60));
        let (origin, device) = (Origin::new("n").unwrap(), DeviceId::new("n").unwrap());
        let at = Timestamp::from_seconds(1000);
        let stepped = |settings: Option<&SpoolSettings>, boot| {
            let identity = (origin.clone(), Boot([boot; 16]));
            Stepped::start(settings, identity, device.clone(), at, 0).unwrap()
        };
        let mut agent = Agent { stepped: stepped(None, 1), sink: Sink::new(device.clone()) };
        tick(&mut agent, 1000, 0);
        let mut ended = agent.stepped;
        ended.send(at, 0).unwrap();
        ended.answered(at, 0, Err(Failure::Unreached("away".to_owned())));
        assert_eq!(ended.unsent_batches(), 1);
        ended.end_in(&settings, at, 0).unwrap();
        let mut again = stepped(Some(&settings), 2);
        let sent = again.send(at, 0).unwrap();
        assert_eq!((sent.spooled, Frames::of(&sent.body).count()), (true, 1));
        again.answered(at, 0, Ok(stored(&sent.body)));
        assert!(again.is_drained(), "no gap: nothing is lost");
    }
}
