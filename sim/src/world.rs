//! The schedule of events: the network between the agents and the server, and all faults.

use crate::chance::Chance;
use crate::check::{Report, check};
use crate::node::{Node, SpoolState};
use crate::output::Output;
use crate::server::{DIR, Reply, Server};
use config::{ConfigFile, ConfigInputs};
use delivery::Failure;
use memdisk::Fault;
use model::Timestamp;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// 2026-01-01T00:00:00.25: no tick is due at the start.
const BEGIN: i64 = 1_767_225_600_250_000;
const SECOND: i64 = Timestamp::SECOND;
const NODES: usize = 100;
/// Interval in microseconds at which the agents' threads check for work without a wake-up.
const LOOK: i64 = 500_000;
/// Time that the agents have to send their remaining batches after all faults are over.
const DRAIN: i64 = 3600 * SECOND;
/// Longer than the time after which a missing batch number of a boot counts as a gap.
const GRACE: i64 = 120 * SECOND;

#[derive(Debug)]
enum Event {
    Tick {
        node: usize,
        lifetime: u64,
    },
    Keep {
        node: usize,
        lifetime: u64,
    },
    Look {
        node: usize,
        lifetime: u64,
    },
    Send {
        node: usize,
        lifetime: u64,
    },
    /// A request reaches the server.
    Arrive {
        node: usize,
        request: u64,
        body: Rc<Vec<u8>>,
    },
    /// A reply, or a broken connection, reaches the requesting node.
    Answered {
        node: usize,
        request: u64,
        reply: Reply,
    },
    /// The agent stops; cleanly without a fate.
    Stop {
        node: usize,
        spool_state: Option<SpoolState>,
    },
    Start {
        node: usize,
    },
    /// The server's output reads some slices.
    Deliver,
    Flush,
    Maintain,
    Harm {
        n: u64,
        fault: Fault,
    },
    Mend,
    KillServer {
        power: bool,
    },
    StartServer,
}

/// The state of the network, in percent.
#[derive(Clone, Copy, Debug)]
struct Weather {
    lost: u64,
    answer_lost: u64,
    twice: u64,
    slow: u64,
    /// Time that an agent waits for a reply.
    patience: i64,
    slow_max: i64,
}

impl Weather {
    const CALM: Self = Self {
        lost: 0,
        answer_lost: 0,
        twice: 0,
        slow: 0,
        patience: 30 * SECOND,
        slow_max: SECOND,
    };
}

struct World {
    chance: Chance,
    now: i64,
    clock: Arc<AtomicI64>,
    events: BTreeMap<(i64, u64), Event>,
    order: u64,
    nodes: Vec<Node>,
    server: Server,
    output: Output,
    weather: Weather,
    requests: u64,
    trace: DefaultHasher,
    /// True once no more ticks occur.
    over: bool,
}

/// Runs the world of a seed to its end, and checks the result. `spools`: an empty folder.
///
/// # Errors
/// A description of produced samples that are neither stored nor reported as gaps.
pub fn run(seed: u64, spools: &Path) -> Result<Report, String> {
    let mut world = World::new(seed, spools);
    world.plan_faults();
    let period = i64::try_from(world.period().as_micros()).unwrap();
    let until = BEGIN + world.chance.between(24, 40) * period;
    world.pass(until);
    world.heal();
    world.drain()?;
    world.clock.store(world.now + GRACE, Ordering::Relaxed);
    world.server.flush();
    let mut report = check(&world.nodes, world.server.store(), period)?;
    world.server.maintain();
    check(&world.nodes, world.server.store(), period).map_err(|e| format!("tended: {e}"))?;
    world.server.kill(true, &mut world.chance);
    assert!(world.server.begin(), "the store opens after the last power cut");
    check(&world.nodes, world.server.store(), period).map_err(|e| format!("opened again: {e}"))?;
    while world.output.read(world.server.store(), &mut world.chance, true) {}
    world.output.check(world.server.store())?;
    report.slices = world.output.slices;
    let verified = store::verify(&**world.server.disk(), Path::new(DIR));
    let verified = verified.map_err(|e| format!("verify: {e}"))?;
    if !verified.is_good() {
        return Err(format!("verify finds {verified:?}"));
    }
    let done = world.server.done;
    report.duplicates = done.duplicates;
    report.deferred = done.later;
    report.merges = done.merges;
    report.deaths = done.deaths;
    report.faults = done.faults;
    report.disk_calls = world.server.disk().plan().calls();
    report.trace = world.trace.finish();
    report.starts = world.nodes.iter().map(|node| node.lifetime).sum();
    Ok(report)
}

impl World {
    fn new(seed: u64, spools: &Path) -> Self {
        let mut chance = Chance::new(seed);
        let given =
            ConfigInputs { file: ConfigFile::None, environment: &|_| None, flags: Vec::new() };
        let mut config = config::load_agent(&given, &[]).unwrap().config;
        config.sampling.period = Duration::from_secs(chance.of(&[1, 2, 5]));
        config.spool.spool_send_bytes_per_second.0 = chance.of(&[1 << 10, 16 << 10, 4 << 20]);
        let nodes = (0..NODES).map(|number| Node::new(number, config.clone(), spools, &mut chance));
        let nodes: Vec<_> = nodes.collect();
        let clock = Arc::new(AtomicI64::new(BEGIN));
        let server = Server::new(Arc::clone(&clock));
        let (events, order, requests) = (BTreeMap::new(), 0, 0);
        let (now, over, weather, trace) = (BEGIN, false, Weather::CALM, DefaultHasher::new());
        let mut world = Self {
            chance,
            now,
            clock,
            events,
            order,
            nodes,
            server,
            output: Output::default(),
            weather,
            requests,
            trace,
            over,
        };
        for node in 0..NODES {
            let wait = world.chance.between(0, SECOND / 2);
            world.after(wait, Event::Start { node });
        }
        // Let every agent reach the server before the faults begin. The server cannot know of samples of an
        // agent that it has never received from and whose spool is lost.
        let period = i64::try_from(world.period().as_micros()).unwrap();
        world.pass(BEGIN + 2 * period + 2 * SECOND);
        world
    }

    fn period(&self) -> Duration {
        self.nodes[0].period()
    }

    fn after(&mut self, wait: i64, event: Event) {
        self.order += 1;
        self.events.insert((self.now + wait.max(0), self.order), event);
    }

    /// Draws the faults at random.
    fn plan_faults(&mut self) {
        let chance = &mut self.chance;
        let mut percent = |most: usize| u64::try_from(chance.below(most + 1)).unwrap();
        self.weather = Weather {
            lost: percent(30),
            answer_lost: percent(30),
            twice: percent(20),
            slow: percent(20),
            patience: i64::try_from(percent(25)).unwrap() * SECOND + 2 * SECOND,
            slow_max: 60 * SECOND,
        };
        let span = 24 * i64::try_from(self.period().as_micros()).unwrap();
        for node in 0..NODES {
            let stops = if self.chance.happens(40) { 1 + self.chance.below(3) } else { 0 };
            for _ in 0..stops {
                let fates =
                    [SpoolState::Kept, SpoolState::Kept, SpoolState::Torn, SpoolState::Lost];
                let spool_state = (!self.chance.happens(25)).then(|| self.chance.of(&fates));
                let wait = self.chance.between(0, span);
                self.after(wait, Event::Stop { node, spool_state });
            }
        }
        for _ in 0..self.chance.below(6) {
            let wait = self.chance.between(0, span);
            let power = self.chance.happens(60);
            let last_failure = match self.chance.below(5) {
                0 => Event::KillServer { power },
                1 | 2 => Event::Harm { n: self.chance.next() % 60 + 1, fault: Fault::Dead },
                3 => Event::Harm { n: self.chance.next() % 60 + 1, fault: Fault::Once },
                _ => Event::Harm { n: self.chance.next() % 60 + 1, fault: Fault::Full },
            };
            self.after(wait, last_failure);
        }
        self.after(SECOND, Event::Flush);
        self.after(SECOND, Event::Deliver);
    }

    /// Advances time.
    fn pass(&mut self, until: i64) {
        while let Some(entry) = self.events.first_entry()
            && entry.key().0 <= until
        {
            let ((at, _), event) = entry.remove_entry();
            self.now = at;
            self.clock.store(at, Ordering::Relaxed);
            self.happen(event);
        }
        self.now = until;
        self.clock.store(until, Ordering::Relaxed);
    }

    fn happen(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::Tick { node, lifetime } if self.lives(node, lifetime) && !self.over => {
                self.nodes[node].tick(now);
                let hang = if self.chance.happens(2) { 5 * SECOND } else { 20_000 };
                let wait = self.chance.between(0, hang);
                self.after(wait, Event::Keep { node, lifetime });
                self.plan_tick(node, lifetime);
            }
            Event::Keep { node, lifetime } if self.lives(node, lifetime) => {
                self.nodes[node].keep(now);
                self.send(node);
            }
            Event::Look { node, lifetime } if self.lives(node, lifetime) => {
                if self.over {
                    self.nodes[node].seal(now);
                }
                self.nodes[node].keep(now);
                self.send(node);
                self.after(LOOK, Event::Look { node, lifetime });
            }
            Event::Send { node, lifetime } if self.lives(node, lifetime) => self.send(node),
            Event::Tick { .. } | Event::Keep { .. } | Event::Look { .. } | Event::Send { .. } => {}
            Event::Arrive { node, request, body } => self.arrive(node, request, &body),
            Event::Answered { node, request, reply } => self.answered(node, request, reply),
            Event::Stop { node, spool_state } => self.stop(node, spool_state),
            Event::Start { node } => self.start(node),
            other => self.happen_to_server(other),
        }
    }

    fn lives(&self, node: usize, lifetime: u64) -> bool {
        self.nodes[node].agent.is_some() && self.nodes[node].lifetime == lifetime
    }

    fn start(&mut self, node: usize) {
        if self.nodes[node].agent.is_some() {
            return;
        }
        self.nodes[node].begin(self.now);
        let lifetime = self.nodes[node].lifetime;
        self.plan_tick(node, lifetime);
        let wait = self.chance.between(0, LOOK);
        self.after(wait, Event::Look { node, lifetime });
    }

    fn plan_tick(&mut self, node: usize, lifetime: u64) {
        if let Some(due) = self.nodes[node].next_tick() {
            self.after(due - self.now, Event::Tick { node, lifetime });
        }
    }

    fn stop(&mut self, node: usize, spool_state: Option<SpoolState>) {
        if self.nodes[node].agent.is_none() {
            return;
        }
        match spool_state {
            None => self.nodes[node].end(self.now),
            Some(spool_state) => self.nodes[node].kill(self.now, spool_state, &mut self.chance),
        }
        let wait = self.chance.between(SECOND / 10, 30 * SECOND);
        self.after(wait, Event::Start { node });
    }

    /// Runs the sending thread.
    fn send(&mut self, node: usize) {
        let now = self.now;
        let Some(sent) = self.nodes[node].send(now) else { return };
        self.requests += 1;
        let request = self.requests;
        self.nodes[node].pending = Some(request);
        let body = Rc::new(sent.body);
        let Weather { lost, twice, slow, slow_max, patience, .. } = self.weather;
        self.after(patience, Event::Answered { node, request, reply: Reply::Broken });
        for _ in 0..if self.chance.happens(twice) { 2 } else { 1 } {
            if self.chance.happens(lost) {
                continue;
            }
            let longest = if self.chance.happens(slow) { slow_max } else { 100_000 };
            let wait = self.chance.between(1000, longest);
            self.after(wait, Event::Arrive { node, request, body: Rc::clone(&body) });
        }
    }

    fn arrive(&mut self, node: usize, request: u64, body: &[u8]) {
        let reply = self.server.take(body);
        (node, self.now, body, &reply).hash(&mut self.trace);
        self.remove_dead();
        if self.chance.happens(self.weather.answer_lost) {
            return;
        }
        let longest = if self.chance.happens(self.weather.slow) { 10 * SECOND } else { 50_000 };
        let wait = self.chance.between(1000, longest);
        self.after(wait, Event::Answered { node, request, reply });
    }

    fn answered(&mut self, node: usize, request: u64, reply: Reply) {
        let (now, of) = (self.now, &mut self.nodes[node]);
        if of.pending != Some(request) {
            // The agent no longer waits for this reply, or has restarted.
            return;
        }
        let unreached = || Failure::Unreached("the connection broke".to_owned());
        let answer = match &reply {
            Reply::Answer(bytes) => Ok(&**bytes),
            Reply::Later(status, reason) => {
                Err(Failure::Later { status: *status, reason: reason.clone(), after: None })
            }
            Reply::Broken => Err(unreached()),
        };
        let wait = of.answered(now, answer);
        let lifetime = of.lifetime;
        self.after(wait, Event::Send { node, lifetime });
    }

    fn happen_to_server(&mut self, event: Event) {
        match event {
            Event::Deliver => {
                for _ in 0..self.chance.below(6) {
                    if !self.server.is_up()
                        || !self.output.read(self.server.store(), &mut self.chance, false)
                    {
                        break;
                    }
                    self.remove_dead();
                }
                self.remove_dead();
                let wait = self.chance.between(SECOND / 10, 15 * SECOND);
                self.after(wait, Event::Deliver);
            }
            Event::Flush => {
                if self.server.is_up() {
                    self.server.flush();
                    self.remove_dead();
                    let wait = self.chance.between(0, 10 * SECOND);
                    self.after(wait, Event::Maintain);
                }
                let wait = self.chance.between(SECOND, 20 * SECOND);
                self.after(wait, Event::Flush);
            }
            Event::Maintain if self.server.is_up() => {
                self.server.maintain();
                self.remove_dead();
            }
            Event::Harm { n, fault } if self.server.is_up() => {
                self.server.harm(n, fault);
                let wait = self.chance.between(SECOND, 20 * SECOND);
                self.after(wait, Event::Mend);
            }
            Event::Mend => self.server.mend(),
            Event::KillServer { power } if self.server.is_up() => self.kill_server(power),
            Event::StartServer if !self.server.is_up() => {
                let bad = self.chance.happens(20) && !self.over;
                if bad {
                    let n = self.chance.next() % 30 + 1;
                    self.server.harm(n, Fault::Once);
                }
                if !self.server.begin() {
                    self.server.mend();
                    self.after(SECOND, Event::StartServer);
                }
            }
            _ => {}
        }
    }

    fn kill_server(&mut self, power: bool) {
        self.server.kill(power, &mut self.chance);
        let wait = self.chance.between(SECOND / 2, 20 * SECOND);
        self.after(wait, Event::StartServer);
    }

    /// Removes the server's process if it died during a call of the disk.
    fn remove_dead(&mut self) {
        if self.server.is_up() && self.server.has_died() {
            let power = self.chance.happens(60);
            self.kill_server(power);
        }
    }

    /// Ends all faults and ticks.
    fn heal(&mut self) {
        self.over = true;
        self.weather = Weather::CALM;
        self.server.mend();
        self.events.retain(|_, event| {
            !matches!(event, Event::Stop { .. } | Event::Harm { .. } | Event::KillServer { .. })
        });
        self.after(0, Event::StartServer);
        for node in 0..NODES {
            self.after(0, Event::Start { node });
        }
    }

    /// Runs until every agent has sent everything.
    fn drain(&mut self) -> Result<(), String> {
        let until = self.now + DRAIN;
        while self.now < until {
            self.pass(self.now + SECOND);
            if self.nodes.iter().all(Node::is_drained) {
                return Ok(());
            }
        }
        let left = self.nodes.iter().filter(|node| !node.is_drained()).map(|node| node.number);
        Err(format!(
            "an hour after all troubles these have not sent all: {:?}",
            left.collect::<Vec<_>>()
        ))
    }
}
