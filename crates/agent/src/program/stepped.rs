//! An agent without threads, clock and connection: the way of a sample from its sink to the server's ack,
//! one step at a time. Whoever drives it gives the time, carries the requests and may stop anywhere, as
//! a kill does. For the simulation; the program runs the same parts in threads.

use crate::batches::notes::Notes;
use crate::batches::seal::{Sealer, Sinks};
use crate::common::backoff::{Backoff, FIRST};
use crate::common::clock::GivenClock;
use crate::common::schedule::Schedule;
use crate::common::start_error::StartError;
use crate::connection::http::Failure;
use crate::delivery::dispatch::{Dispatch, matching};
use crate::delivery::keeper::Keeper;
use crate::delivery::outbox::{Outbox, Request};
use crate::delivery::queue::queue;
use crate::program::main_loop::{chance, folders, tell_down};
use crate::reading::own::Counters;
use config::AgentConfig;
use model::{Boot, DeviceId, Origin, Timestamp};
use sources::Sink;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use wire::{Answer, Encoder};

/// One start of an agent.
pub struct Stepped {
    clock: Arc<GivenClock>,
    schedule: Schedule,
    sink: Sink,
    sealer: Sealer,
    keeper: Keeper,
    /// Batches that the keeper has taken from its queue.
    kept: u64,
    outbox: Arc<Outbox>,
    notes: Arc<Notes>,
    counters: Arc<Counters>,
    dispatch: Dispatch,
    spool_bytes_per_second: u64,
    sending: Option<Request>,
    body: Vec<u8>,
}

/// What was sent and is not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The frames, one after another.
    pub body: Vec<u8>,
    /// Whether they come from the spool.
    pub spooled: bool,
}

impl std::fmt::Debug for Stepped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stepped").field("kept", &self.kept).finish_non_exhaustive()
    }
}

impl Stepped {
    /// Starts an agent on a device at an instant of its wall clock, with what its spool holds of earlier
    /// starts.
    ///
    /// # Errors
    /// The device's name is no origin's, or the spool cannot be opened.
    pub fn start(
        config: &AgentConfig,
        device: DeviceId,
        boot: Boot,
        now: Timestamp,
        steady_us: i64,
    ) -> Result<Self, StartError> {
        let clock = Arc::new(GivenClock::new(now));
        clock.show(now, steady_us);
        let origin = Origin::new(device.as_str()).map_err(|e| StartError::machine("device", &e))?;
        let notes = Arc::new(Notes::new(origin.clone(), device.clone()));
        let counters = Arc::new(Counters::default());
        let folders = folders(&config.spool, &notes, &counters)?;
        let schedule = Schedule::new(config.sampling.period, now);
        tell_down(folders.kept_until, schedule.due(), config, &notes);
        let outbox = Arc::new(Outbox::new(folders, Arc::clone(&notes), Arc::clone(&counters)));
        let (inlet, batches) = queue();
        let keeper = Keeper {
            batches,
            outbox: Arc::clone(&outbox),
            notes: Arc::clone(&notes),
            counters: Arc::clone(&counters),
            clock: Arc::clone(&clock) as Arc<_>,
            encoder: Encoder::default(),
            bytes: Vec::new(),
        };
        let backoff = Backoff::new(FIRST, chance(&boot));
        Ok(Self {
            schedule,
            sink: Sink::new(device),
            sealer: Sealer::new(origin, boot, Arc::clone(&notes), Box::new(inlet), None),
            keeper,
            kept: 0,
            dispatch: Dispatch::new(Arc::clone(&outbox), Arc::clone(&counters), backoff),
            spool_bytes_per_second: config.spool.spool_send_bytes_per_second.0,
            outbox,
            notes,
            counters,
            clock,
            sending: None,
            body: Vec::new(),
        })
    }

    /// The instant of the next tick, by the agent's wall clock.
    pub const fn due(&self) -> Timestamp {
        self.schedule.due()
    }

    /// The tick: fills the sink for the instant that is due, if one is, and seals.
    pub fn tick(
        &mut self,
        now: Timestamp,
        steady_us: i64,
        fill: impl FnOnce(Timestamp, &mut Sink),
    ) {
        self.clock.show(now, steady_us);
        if let Some(due) = self.schedule.take(now) {
            self.sink.begin(due.at);
            fill(due.at, &mut self.sink);
        }
        self.sealer.seal(&mut One(&mut self.sink));
    }

    /// Seals what waits beside samples, without a tick.
    pub fn seal(&mut self, now: Timestamp, steady_us: i64) {
        self.clock.show(now, steady_us);
        self.sealer.seal(&mut One(&mut self.sink));
    }

    /// The turn of the thread that keeps: takes every batch that was sealed, and moves to the spool what
    /// has waited too long.
    pub fn keep(&mut self, now: Timestamp, steady_us: i64) {
        self.clock.show(now, steady_us);
        let sealed = self.sealer.counts.batches;
        // At least once: what was kept before is seen to, though nothing new came.
        loop {
            self.keeper.step(Duration::ZERO);
            if self.kept >= sealed {
                return;
            }
            self.kept += 1;
        }
    }

    /// The turn of the thread that sends: the next request, if there is something to send and none is
    /// unanswered.
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

    /// What became of the request: the bytes of the server's answer, or why there is none. Tells how long
    /// to wait before the next one.
    pub fn answered(
        &mut self,
        now: Timestamp,
        steady_us: i64,
        answer: Result<&[u8], Failure>,
    ) -> Duration {
        self.clock.show(now, steady_us);
        let Some(request) = self.sending.take() else { return Duration::ZERO };
        let none = |e| Failure::Unreached(format!("its answer is none: {e}"));
        let answer = answer.and_then(|bytes| Answer::decode(bytes).map_err(none));
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

    /// Whether nothing is left to be told or sent.
    pub fn is_drained(&self) -> bool {
        let counted = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        self.sink.is_empty()
            && self.notes.is_empty()
            && self.kept == self.sealer.counts.batches
            && self.sending.is_none()
            && counted(&self.counters.unsent_bytes) == 0
            && counted(&self.counters.spool_bytes) == 0
    }

    /// Ends as a program that is told to: what the server has not got goes to the spool.
    pub fn end(mut self, now: Timestamp, steady_us: i64) {
        self.seal(now, steady_us);
        self.keep(now, steady_us);
        self.outbox.end(Duration::ZERO);
    }
}

struct One<'a>(&'a mut Sink);

impl Sinks for One<'_> {
    fn each(&mut self, show: &mut dyn FnMut(Option<&mut Sink>)) {
        show(Some(self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::plan::source_settings;
    use config::{Bytes, ConfigFile, Given, Spool};
    use model::{Metric, Unit};
    use std::path::Path;
    use wire::{Ack, AckStatus, Decoder, Frames};

    static LOAD: Metric = Metric::gauge("load_1m", Unit::Count, "");

    fn start(spool: &Path, boot: u8, second: i64) -> Stepped {
        let given =
            Given { file: ConfigFile::None, environment: &|_| None, flags: Default::default() };
        let mut config = config::load_agent(&given, &source_settings()).unwrap().config;
        config.spool.spool = Some(Spool::Folder(spool.to_owned()));
        config.spool.spool_send_bytes_per_second = Bytes(1 << 20);
        let device = DeviceId::new("n").unwrap();
        let at = Timestamp::from_seconds(second);
        Stepped::start(&config, device, Boot([boot; 16]), at, 0).unwrap()
    }

    fn tick(agent: &mut Stepped, steady_us: i64) {
        let due = agent.due();
        agent.tick(due, steady_us, |_, sink| sink.of_device().gauge(&LOAD, &[], 1.0));
        agent.keep(due, steady_us);
    }

    fn stored(body: &[u8]) -> Vec<u8> {
        let mut decoder = Decoder::default();
        let frames = Frames::of(body).map(|frame| decoder.decode(&frame.unwrap()).unwrap());
        let ack = |batch: wire::Decoded| Ack {
            boot: batch.boot,
            seq: batch.seq,
            status: AckStatus::Stored,
            reason: String::new(),
            samples_refused: 0,
            samples_reason: String::new(),
        };
        Answer { acks: frames.map(ack).collect(), ..Answer::default() }.encode()
    }

    #[test]
    fn a_tick_is_sent_once_and_then_nothing_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let mut agent = start(dir.path(), 1, 1000);
        tick(&mut agent, 0);
        let now = Timestamp::from_seconds(1001);
        let sent = agent.send(now, 0).unwrap();
        assert!(!sent.spooled && agent.send(now, 0).is_none());
        assert_eq!(agent.answered(now, 0, Ok(&stored(&sent.body))), Duration::ZERO);
        assert!(agent.is_drained());
    }

    #[test]
    fn what_waits_goes_to_the_spool_and_to_the_next_start() {
        let dir = tempfile::tempdir().unwrap();
        let mut agent = start(dir.path(), 1, 1000);
        for steady_us in [0, 5_000_000, 10_000_000] {
            tick(&mut agent, steady_us);
        }
        let now = Timestamp::from_seconds(1012);
        agent.send(now, 12_000_000).unwrap();
        let wait = agent.answered(now, 12_000_000, Err(Failure::Unreached("away".to_owned())));
        assert!(wait > Duration::ZERO && !agent.is_drained());
        drop(agent);
        let mut again = start(dir.path(), 2, 1021);
        let sent = again.send(Timestamp::from_seconds(1021), 21_000_000).unwrap();
        assert_eq!((sent.spooled, Frames::of(&sent.body).count()), (true, 2));
        assert!(!again.is_drained(), "it tells since when it was down");
    }
}
