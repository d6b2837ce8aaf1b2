//! A simulated node: its clock, its spool, and the starts of its agent.

use crate::chance::{Chance, mix};
use config::{AgentConfig, Bytes, Spool};
use delivery::{Failure, Sent, Stepped};
use model::{Boot, DeviceId, Metric, Origin, Timestamp, Unit};
use sources::Sink;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};
use wire::{Answer, Decoder, Frames};

/// Series of each node.
pub(crate) const SERIES: usize = 3;

static VALUE: Metric = Metric::gauge("sim_value", Unit::Count, "Any value.");
static STEPS: Metric = Metric::counter("sim_steps_total", Unit::Count, "Any count.");

/// The state of the spool after an agent was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpoolState {
    /// Unchanged.
    Kept,
    /// A frame was being written.
    Torn,
    /// Lost: the node was reinstalled, or the spool was in memory.
    Lost,
}

/// A produced tick: its samples are those of [`value`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Made {
    pub(crate) at: Timestamp,
    pub(crate) lifetime: u64,
    /// When this start of the agent began, by its clock.
    pub(crate) start: Timestamp,
}

/// An agent that runs: what its source pushes, and the delivery of that.
#[derive(Debug)]
pub(crate) struct Agent {
    sink: Sink,
    /// Time of the next tick, by the node's clock.
    due: Timestamp,
    pub(crate) delivery: Stepped,
}

impl Agent {
    /// Returns the due instant, if any; skipped instants are not repeated.
    fn take_due(&mut self, now: Timestamp, period_us: i64) -> Option<Timestamp> {
        let late = now.since(self.due);
        (late >= 0).then(|| {
            let at = self.due.plus(late - late % period_us);
            self.due = at.plus(period_us);
            at
        })
    }
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) number: usize,
    pub(crate) device: DeviceId,
    config: AgentConfig,
    dir: Option<PathBuf>,
    /// Offset of the node's clock from the world's clock, in microseconds.
    skew_us: i64,
    pub(crate) agent: Option<Agent>,
    /// Number of the agent's current start; it grows with each start.
    pub(crate) lifetime: u64,
    start: Timestamp,
    boot: Boot,
    pub(crate) made: Vec<Made>,
    /// Content of a lost spool, from starts before the last one: its batches are lost up to this time. Neither the
    /// server nor the agent knows of them, so no gap can be reported.
    pub(crate) unreportable: Vec<(Timestamp, Timestamp)>,
    /// True if the node may lose samples at all.
    pub(crate) harmed: bool,
    /// The unanswered request.
    pub(crate) pending: Option<u64>,
    pub(crate) rests_until: i64,
    /// History of the node, for error messages.
    pub(crate) story: Vec<String>,
}

/// Returns a series' value at an instant: an integer that a double represents exactly.
pub(crate) fn value(node: usize, lifetime: u64, at: Timestamp, series: usize) -> f64 {
    let of = u64::try_from(node).unwrap() << 40 | lifetime << 8 | u64::try_from(series).unwrap();
    let drawn = mix(mix(of) ^ at.0.unsigned_abs());
    f64::from(u32::try_from(drawn >> 32).unwrap())
}

impl Node {
    /// A node with its agent not yet started. `spools`: folder of the spools.
    pub(crate) fn new(
        number: usize,
        mut config: AgentConfig,
        spools: &std::path::Path,
        chance: &mut Chance,
    ) -> Self {
        const HOUR: i64 = 3600 * Timestamp::SECOND;
        let device = DeviceId::new(&format!("n{number}")).unwrap();
        let dir = (!chance.happens(15)).then(|| spools.join(device.as_str()));
        config.spool.spool = Some(dir.clone().map_or(Spool::None, Spool::Folder));
        let small = chance.happens(20);
        if small {
            config.spool.spool_bytes_max = Bytes(chance.next() % 4000 + 1000);
        }
        // The store rejects samples further ahead than a day, with a gap at their receipt.
        let most = if chance.happens(10) { 23 * HOUR } else { 2 * Timestamp::SECOND };
        let skew_us = chance.between(-most, most);
        Self {
            number,
            device,
            config,
            harmed: small || dir.is_none(),
            dir,
            skew_us,
            agent: None,
            lifetime: 0,
            start: Timestamp(0),
            boot: Boot([0; 16]),
            made: Vec::new(),
            unreportable: Vec::new(),
            pending: None,
            rests_until: 0,
            story: Vec::new(),
        }
    }

    /// Its settings and history.
    pub(crate) fn history(&self) -> String {
        let (spool, limit) = (&self.config.spool.spool, self.config.spool.spool_bytes_max);
        let skew = Timestamp(self.skew_us).seconds();
        format!("{spool:?} of {limit:?}, {skew} s ahead\n{}", self.story.join("\n"))
    }

    fn note(&mut self, now: i64, what: &str) {
        self.story.push(format!("{}: {what}", self.wall(now)));
    }

    /// The time of its clock.
    pub(crate) const fn wall(&self, now: i64) -> Timestamp {
        Timestamp(now + self.skew_us)
    }

    /// The time of the next tick, by the world's clock.
    pub(crate) fn next_tick(&self) -> Option<i64> {
        self.agent.as_ref().map(|agent| agent.due.0 - self.skew_us)
    }

    /// Starts the agent.
    pub(crate) fn begin(&mut self, now: i64) {
        self.lifetime += 1;
        self.note(now, "starts");
        self.start = self.wall(now);
        let drawn = mix(self.lifetime << 32 | u64::try_from(self.number).unwrap());
        self.boot = Boot(u128::from(drawn).to_le_bytes());
        let (device, origin) = (self.device.clone(), Origin::new(self.device.as_str()).unwrap());
        let (settings, period) = (Some(&self.config.spool), self.config.sampling.period);
        let identity = (origin, self.boot);
        let delivery = Stepped::start(settings, identity, device.clone(), self.start, now).unwrap();
        let early = (-self.start.0).rem_euclid(micros(period));
        let due = self.start.plus(early);
        delivery.note_down(due, period);
        self.agent = Some(Agent { sink: Sink::new(device), due, delivery });
        (self.pending, self.rests_until) = (None, 0);
    }

    /// Produces the tick, if it is due.
    pub(crate) fn tick(&mut self, now: i64) {
        let (wall, number, lifetime, start) =
            (self.wall(now), self.number, self.lifetime, self.start);
        let period_us = micros(self.config.sampling.period);
        let Some(agent) = &mut self.agent else { return };
        if let Some(at) = agent.take_due(wall, period_us) {
            let made = Made { at, lifetime, start };
            self.made.push(made);
            agent.sink.begin(at);
            fill(&mut agent.sink, number, made);
        }
        agent.delivery.seal(wall, now, &mut agent.sink);
    }

    /// Seals the waiting samples, without a tick.
    pub(crate) fn seal(&mut self, now: i64) {
        let wall = self.wall(now);
        if let Some(agent) = &mut self.agent {
            agent.delivery.seal(wall, now, &mut agent.sink);
        }
    }

    pub(crate) fn keep(&mut self, now: i64) {
        let wall = self.wall(now);
        if let Some(agent) = &mut self.agent {
            agent.delivery.keep(wall, now);
        }
    }

    /// The next request, unless the agent pauses.
    pub(crate) fn send(&mut self, now: i64) -> Option<Sent> {
        let wall = self.wall(now);
        self.agent.as_mut().filter(|_| now >= self.rests_until)?.delivery.send(wall, now)
    }

    /// Passes the result of the node's request to the agent, and returns the length of the agent's pause.
    pub(crate) fn answered(&mut self, now: i64, answer: Result<&[u8], Failure>) -> i64 {
        let wall = self.wall(now);
        self.pending = None;
        let Some(agent) = &mut self.agent else { return 0 };
        let none = |e| Failure::Unreached(format!("its answer is none: {e}"));
        let answer = answer.and_then(|bytes| Answer::decode(bytes).map_err(none));
        let wait = micros(agent.delivery.answered(wall, now, answer));
        self.rests_until = now + wait;
        wait
    }

    /// True if the agent has sent everything.
    pub(crate) fn is_drained(&self) -> bool {
        self.agent
            .as_ref()
            .is_some_and(|agent| agent.sink.is_empty() && agent.delivery.is_drained())
    }

    pub(crate) const fn period(&self) -> Duration {
        self.config.sampling.period
    }

    /// The agent stops cleanly.
    pub(crate) fn end(&mut self, now: i64) {
        let wall = self.wall(now);
        self.pending = None;
        if let Some(mut agent) = self.agent.take() {
            self.note(now, "ends");
            agent.delivery.seal(wall, now, &mut agent.sink);
            agent.delivery.end(wall, now);
            self.date_spool(now);
        }
    }

    /// The agent is killed.
    pub(crate) fn kill(&mut self, now: i64, spool_state: SpoolState, chance: &mut Chance) {
        self.harmed = true;
        self.note(now, &format!("is killed, its spool {spool_state:?}"));
        (self.agent, self.pending) = (None, None);
        let Some(dir) = self.dir.as_ref().filter(|dir| dir.is_dir()) else { return };
        match spool_state {
            SpoolState::Kept => {}
            SpoolState::Torn => {
                if let Some(last) = self.segments().pop() {
                    let bytes = std::fs::read(&last).unwrap();
                    let torn = &bytes[..chance.below(bytes.len().min(400))];
                    File::options().append(true).open(&last).unwrap().write_all(torn).unwrap();
                }
            }
            SpoolState::Lost => {
                let earlier = self.earlier_starts();
                std::fs::remove_dir_all(dir).unwrap();
                self.unreportable.extend(earlier);
            }
        }
        self.date_spool(now);
    }

    /// Returns the time ranges of samples and gaps in the spool that belong to earlier starts.
    fn earlier_starts(&self) -> Vec<(Timestamp, Timestamp)> {
        let mut decoder = Decoder::default();
        let mut held = Vec::new();
        for path in self.segments() {
            let bytes = std::fs::read(path).unwrap();
            for frame in Frames::of(&bytes).flatten() {
                let batch = decoder.decode(&frame).unwrap();
                if batch.boot != self.boot {
                    held.extend(batch.ticks.iter().map(|tick| (tick.at.plus(-1), tick.at.plus(1))));
                    held.extend(batch.gaps.iter().map(|gap| (gap.from, gap.to)));
                }
            }
        }
        held
    }

    fn segments(&self) -> Vec<PathBuf> {
        let Some(entries) = self.dir.as_ref().and_then(|dir| std::fs::read_dir(dir).ok()) else {
            return Vec::new();
        };
        let paths = entries.map(|entry| entry.unwrap().path());
        let mut paths: Vec<_> =
            paths.filter(|path| path.extension().is_some_and(|e| e == "jmb")).collect();
        paths.sort();
        paths
    }

    /// Files get their modification times from the node's clock, not from the simulating machine's.
    fn date_spool(&self, now: i64) {
        let written = UNIX_EPOCH + Duration::from_micros(u64::try_from(self.wall(now).0).unwrap());
        for path in self.segments() {
            File::options().append(true).open(path).unwrap().set_modified(written).unwrap();
        }
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap()
}

fn fill(sink: &mut Sink, number: usize, made: Made) {
    let of = |series| value(number, made.lifetime, made.at, series);
    let mut out = sink.of_device();
    out.gauge(&VALUE, &[("part", "a")], of(0));
    out.gauge(&VALUE, &[("part", "b")], of(1));
    out.counter(&STEPS, &[], of(2), made.start);
}

/// The index of a stored series among a node's.
pub(crate) fn series_number(series: &model::Series) -> Option<usize> {
    match (&*series.metric, series.labels.as_str()) {
        ("sim_value", r#"{"part": "a"}"#) => Some(0),
        ("sim_value", r#"{"part": "b"}"#) => Some(1),
        ("sim_steps_total", "{}") => Some(2),
        _ => None,
    }
}
