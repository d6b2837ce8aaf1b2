//! A server with 100, 1000 and 10 000 agents: 200 series each, every 5 s, each on its own kept-alive connection.
//! Measures ack latency, load on the machine, growth of memory, and the highest rate of batches.

use crate::agents::Agent;
use crate::client::{Client, Pace, Supply};
use crate::program::{Cpu, Server, program};
use crate::{at, load, print_line, sorted};
use model::Timestamp;
use std::borrow::Cow;
use std::path::Path;
use std::time::{Duration, Instant, UNIX_EPOCH};

const SERIES: u64 = 200;
const PERIOD: Duration = Duration::from_secs(5);

/// Rounds of batches after which every series is known.
const NEW_ROUNDS: usize = 4;

/// Ten minutes with 10 000 agents, two with fewer, or this percentage of it.
pub(crate) fn measure(dir: &Path, percent: usize) -> Result<(), String> {
    let program = &program()?;
    let of = |seconds: u64| seconds * percent as u64 / 100;
    print_line(&format!("load before: {}", load()));
    print_line(
        "| agents | acks | p50 | p99 | most | client late, p99 | server, of one core | of it for one agent | \
         resident after a tenth of the time | at the end | growth a minute |",
    );
    print_line("|---|---|---|---|---|---|---|---|---|---|---|");
    for (agents, seconds) in [(100, 120), (1000, 120), (10_000, 600)] {
        let place = dir.join(format!("swarm-{agents}"));
        steady(program, &place, agents, of(seconds));
        std::fs::remove_dir_all(&place).unwrap();
    }
    let place = dir.join("swarm-full");
    full(program, &place, 10_000, of(100) / 5);
    std::fs::remove_dir_all(&place).unwrap();
    print_line(&format!("load after: {}", load()));
    Ok(())
}

/// Agents that build each batch when it is sent.
pub(crate) struct Swarm {
    agents: Vec<Agent>,
    rounds: usize,
}

impl Swarm {
    pub(crate) fn new(agents: usize, rounds: usize) -> Self {
        let now = UNIX_EPOCH.elapsed().unwrap().as_micros() as i64;
        let period = PERIOD.as_micros() as i64;
        let first = Timestamp(now - now % period);
        let agents = (0..agents as u64).map(|number| Agent::ticking(number, SERIES, first, period));
        Self { agents: agents.collect(), rounds }
    }
}

impl Supply for Swarm {
    fn rounds(&self, _: usize) -> usize {
        self.rounds
    }

    fn frame(&mut self, agent: usize, _: usize) -> Cow<'_, [u8]> {
        Cow::Owned(self.agents.get_mut(agent).unwrap().frame(1))
    }
}

/// Each sends every 5 s.
fn steady(program: &Path, place: &Path, agents: usize, seconds: u64) {
    let rounds = (seconds / PERIOD.as_secs()).max(1) as usize;
    let mut swarm = Swarm::new(agents, rounds);
    let mut server = Server::start(program, place);
    assert!(!server.is_development_build(), "no figure is taken from a development build");
    let mut client = Client::connect(server.address, agents);
    let (before, mut own) = (server.cpu.seconds(), Cpu::of(std::process::id()));
    let own_before = own.seconds();
    let (began, mut memory) = (Instant::now(), Vec::new());
    let pace = Pace::Every { period: PERIOD, spread: true };
    let found = client.send(&mut swarm, pace, &mut || {
        server.cpu.seconds();
        memory.push((began.elapsed().as_secs_f64(), server.resident()));
    });
    let cpu = server.cpu.seconds() - before;
    let own = own.seconds() - own_before;
    let samples = (agents * rounds) as f64 * SERIES as f64;
    assert_eq!(count(&server, "ingest_samples_total"), samples, "acknowledged");
    assert_eq!(
        count(&server, "store_head_samples") + count(&server, "store_block_samples"),
        samples,
        "stored"
    );
    server.end();
    let wall = found.wall.as_secs_f64();
    let tenth = memory.iter().find(|(at, _)| *at >= wall / 10.0);
    let (first, last) = (tenth.unwrap(), memory.last().unwrap());
    let slope = (last.1 - first.1) / (last.0 - first.0) * 60.0;
    // In the first rounds all series are new to the server.
    let later = sorted(found.latencies.get(agents * NEW_ROUNDS..).unwrap_or_default().to_vec());
    let (acks, late) = (sorted(found.latencies), sorted(found.late));
    print_line(&format!(
        "| {agents} | {} ({} sent again) | {:.1} ms | {:.1} ms | {:.0} ms | {:.1} ms | {:.1} % | {:.0} µs a second | \
         {:.0} MiB | {:.0} MiB | {:+.2} MiB |",
        acks.len(),
        found.rejected,
        at(&acks, 0.5),
        at(&acks, 0.99),
        at(&acks, 1.0),
        at(&late, 0.99),
        cpu / wall * 100.0,
        cpu / wall / agents as f64 * 1e6,
        mib(first.1),
        mib(last.1),
        mib(slope),
    ));
    print_line(&format!(
        "(the agents took {:.0} % of a core; after {NEW_ROUNDS} rounds p99 is {:.1} ms, the greatest {:.0} ms)",
        own / wall * 100.0,
        at(&later, 0.99),
        at(&later, 1.0),
    ));
}

/// Each sends as soon as the previous batch is acknowledged.
fn full(program: &Path, place: &Path, agents: usize, rounds: u64) {
    let mut swarm = Swarm::new(agents, (rounds as usize).max(2));
    let mut server = Server::start(program, place);
    let mut client = Client::connect(server.address, agents);
    let (before, mut own) = (server.cpu.seconds(), Cpu::of(std::process::id()));
    let own_before = own.seconds();
    let found = client.send(&mut swarm, Pace::Next, &mut || {
        server.cpu.seconds();
    });
    let (cpu, own) = (server.cpu.seconds() - before, own.seconds() - own_before);
    server.end();
    let (wall, acks) = (found.wall.as_secs_f64(), sorted(found.latencies));
    let batches = acks.len() as f64 / wall;
    print_line(&format!(
        "{agents} agents that wait for nothing but their acks: {batches:.0} batches/s of {SERIES} samples, which \
         {:.0} agents at 5 s make; {:.0} % of a core in the server, {:.0} % in the agents; {} sent again",
        batches * PERIOD.as_secs_f64(),
        cpu / wall * 100.0,
        own / wall * 100.0,
        found.rejected,
    ));
}

fn count(server: &Server, name: &str) -> f64 {
    *server.counts().get(&format!("jobmeter_{name}")).unwrap()
}

fn mib(bytes: f64) -> f64 {
    bytes / f64::from(1 << 20)
}
