//! Tests of the reading thread.

use super::*;
use crate::jobs::finder::Finder;
use crate::jobs::job_sightings::Sightings;
use crate::reading::agent_metrics::AgentMetrics;
use crate::reading::machine::machine;
use crate::reading::plan::{
    BurstPlan, Plan, SourcePlan, may_burst, plan as plan_of, source_settings,
};
use config::{ConfigFile, ConfigInputs, FlushOn};
use delivery::{Counters, MachineClock, PendingEvents, QueueReceiver, Sealer, queue};
use kernel::Root;
use kernel::allocations::{CountingAllocator, on_this_thread};
use model::{Batch, Boot, Cause, DeviceId, Metric, Origin, Timestamp, Unit};
use sources::{Context, Every, Open, RingLimits, Sink, Source, SourceError, SourceSpec};
use std::path::Path;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

static HANGING: Metric = Metric::gauge("hanging", Unit::Count, "");
static PANICKING: Metric = Metric::gauge("panicking", Unit::Count, "");
static STEADY: Metric = Metric::gauge("steady", Unit::Count, "");

macro_rules! source {
    ($spec:ident, $name:literal, $metric:ident, $read:expr) => {
        static $spec: SourceSpec = SourceSpec {
            name: $name,
            help: "",
            reads: &[],
            cost: "",
            every: Every::Tick,
            metrics: &[&$metric],
            open: |_: &Open<'_>| Ok(Box::new(Reads(&$metric, $read))),
            ..SourceSpec::DEFAULT
        };
    };
}

type Read = fn(&Context<'_>) -> Result<(), SourceError>;
struct Reads(&'static Metric, Read);

impl Source for Reads {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        (self.1)(cx)?;
        out.of_device().gauge(self.0, &[], 1.0);
        Ok(())
    }
}

// Nothing writes to the pipe. Opening it hangs, like a mount with an unreachable server.
source!(HANGS, "hangs", HANGING, |cx| {
    cx.root.read_text("pipe")?;
    Ok(())
});
source!(PANICS, "panics", PANICKING, |_| panic!("told to"));
source!(WORKS, "works", STEADY, |_| Ok(()));

fn sampler(dir: &Path, plan: &Plan) -> (Sampler, QueueReceiver) {
    let clock: Arc<dyn Clock> = Arc::new(MachineClock);
    let (origin, device) = (Origin::new("n").unwrap(), DeviceId::new("n").unwrap());
    let notes = Arc::new(PendingEvents::new(origin.clone(), device.clone()));
    let (inlet, batches) = queue();
    let sealer = Sealer::new(origin, Boot([0; 16]), notes, Box::new(inlet), None);
    let now = clock.wall();
    let agent_metrics = AgentMetrics::new(device, Arc::new(Counters::default()), now);
    let root = if dir == Path::new("/") { Root::live() } else { Root::recorded(dir) };
    let machine = machine(root.unwrap(), now);
    let finder =
        Finder::discovering(cgroups::Config::default(), (Vec::new(), Sightings::default()));
    (Sampler::new(clock, machine, plan, finder, agent_metrics, sealer), batches)
}

fn times(batches: &[Batch], metric: &str) -> Vec<Timestamp> {
    let samples = batches.iter().flat_map(Batch::samples);
    let mine = samples.filter(|(entry, ..)| &*entry.metric.name == metric);
    mine.map(|(_, at, _)| at).collect()
}

#[test]
fn a_source_that_hangs_and_one_that_panics_do_not_delay_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let period = Duration::from_millis(500);
    let source = |spec| SourcePlan {
        spec,
        enabled: true,
        period,
        period_idle: None,
        off: Arc::default(),
        burst: None,
        options: Arc::default(),
    };
    let plan = Plan {
        sources: vec![source(&HANGS), source(&PANICS), source(&WORKS)],
        period,
        agent_metrics: None,
        own_off: Arc::default(),
        source_time_max: None,
        budget: Duration::from_millis(50),
        environments: true,
        source_percent_max: 100,
    };
    let (sampler, queue) = sampler(dir.path(), &plan);
    let sampling = Sampling::start(sampler).unwrap();
    let begin = MachineClock.steady_us();
    while MachineClock.steady_us() - begin < 4_200_000 {
        std::thread::sleep(sampling.watch(Duration::from_millis(100)));
    }
    sampling.end(Duration::from_millis(200));
    let mut batches = Vec::new();
    while let Ok(Some(batch)) = queue.next(Duration::ZERO) {
        batches.push(batch);
    }
    let steady = times(&batches, "steady");
    assert!(steady.len() >= 8, "{steady:?}");
    // 8 ticks and none missing. The load of the machine may delay each.
    for pair in steady.windows(2) {
        let [a, b] = pair else { continue };
        assert!((300_000..=900_000).contains(&b.since(*a)), "{steady:?}");
    }
    assert_eq!(times(&batches, "hanging"), []);
    assert_eq!(times(&batches, "panicking"), []);
    // Neither source ever gave a sample, so there are no gaps.
    let causes: Vec<Cause> =
        batches.iter().flat_map(|batch| &batch.gaps).map(|gap| gap.cause).collect();
    assert!(!causes.contains(&Cause::MissedTicks), "{causes:?}");
    // This releases the thread that hangs. It closes the pipe, perhaps before all is written.
    std::thread::spawn(move || std::fs::write(pipe, "at last").ok()).join().unwrap();
}

#[test]
fn from_tick_to_sealed_batch_nothing_is_allocated() {
    let given = ConfigInputs { file: ConfigFile::None, environment: &|_| None, flags: Vec::new() };
    let config = config::load_agent(&given, &source_settings()).unwrap().config;
    let mut plan = plan_of(&config, None).unwrap();
    // Sources with a long default period are read at every tick, too.
    for source in &mut plan.sources {
        source.period = plan.period;
    }
    plan.agent_metrics = Some(plan.period);
    let (mut sampler, queue) = sampler(Path::new("/"), &plan);
    let mut counts = Vec::new();
    for _ in 0..30 {
        let before = on_this_thread();
        sampler.force();
        loop {
            let generation = sampler.generation;
            match sampler.step() {
                Step::Read(reading) => sampler.done(reading.make(&MachineClock), generation),
                Step::Find(finding) => sampler.found(finding.make(), generation),
                Step::Look(looking) => sampler.looked(looking.make(), generation),
                Step::Wait(_) | Step::End => break,
            }
        }
        sampler.seal_now();
        counts.push(on_this_thread() - before);
        while let Ok(Some(batch)) = queue.next(Duration::ZERO) {
            queue.give_back(batch);
        }
    }
    // The machine is a real one: a new process or mount may add series in any tick. Most ticks have none.
    let (warm_up, steady) = counts.split_at(10);
    let quiet = steady.iter().filter(|count| **count == 0).count();
    assert!(quiet >= 10, "allocations a tick: {warm_up:?} then {steady:?}");
}

#[test]
fn what_is_read_between_the_ticks_and_kept_allocates_nothing() {
    let given = ConfigInputs { file: ConfigFile::None, environment: &|_| None, flags: Vec::new() };
    let config = config::load_agent(&given, &source_settings()).unwrap().config;
    let mut plan = plan_of(&config, None).unwrap();
    plan.agent_metrics = None;
    let (time, period) = (Duration::from_millis(500), Duration::from_millis(50));
    let keep = RingLimits { time, period, bytes_max: 1 << 20 };
    for source in &mut plan.sources {
        source.period = Duration::from_secs(3600);
        let plan = BurstPlan { keep, flush_on: FlushOn::default() };
        source.burst = may_burst(source.spec.name).then_some(plan);
    }
    let (mut sampler, queue) = sampler(Path::new("/"), &plan);
    let mut counts = Vec::new();
    while counts.len() < 50 {
        let before = on_this_thread();
        let until = loop {
            let generation = sampler.generation;
            match sampler.step() {
                Step::Read(reading) => sampler.done(reading.make(&MachineClock), generation),
                Step::Find(finding) => sampler.found(finding.make(), generation),
                Step::Look(looking) => sampler.looked(looking.make(), generation),
                Step::Wait(until) => break until,
                Step::End => unreachable!("nobody ends it"),
            }
        };
        counts.push(on_this_thread() - before);
        let left_us = until.since(MachineClock.wall()).max(0);
        std::thread::sleep(Duration::from_micros(u64::try_from(left_us).unwrap()));
    }
    let (warm_up, steady) = counts.split_at(20);
    let quiet = steady.iter().filter(|count| **count == 0).count();
    assert!(quiet >= 15, "allocations a reading: {warm_up:?} then {steady:?}");
    let kept: usize = sampler.entries.iter().map(|entry| entry.stats.kept_bytes).sum();
    assert!(kept > 1000, "{kept} bytes are kept");
    while let Ok(Some(batch)) = queue.next(Duration::ZERO) {
        assert!(batch.values.is_empty(), "nothing of it is sealed");
    }
}
