//! Tests of the sampler.

mod demand;
mod drains;
mod jobs;
mod pace;

use super::*;
use crate::jobs::job_sightings::Sightings;
use crate::reading::machine::machine;
use crate::reading::plan::SourcePlan;
use crate::reading::source_state::{PARKS_MAX, State};
use delivery::{Counters, GivenClock, PendingEvents, Sealed};
use kernel::Root;
use model::{Batch, Boot, Cause, Gap, JobEvent, JobKey, Metric, Origin, Unit};
use sources::{Context, Every, Open, Source, SourceError, SourceSpec};
use std::collections::BTreeMap;
use std::path::Path;

static FIRST_VALUE: Metric = Metric::gauge("first_value", Unit::Count, "");
static SECOND_VALUE: Metric = Metric::gauge("second_value", Unit::Count, "");
static LAST_VALUE: Metric = Metric::gauge("second_last", Unit::Count, "");

/// Two sources, controlled by the content of the file with their name: `ok`, `panic`, `broken`, `denied`.
static FIRST: SourceSpec =
    spec("first", &[&FIRST_VALUE], |open| obedient(open, "first", &FIRST_VALUE));
static SECOND: SourceSpec =
    spec("second", &[&SECOND_VALUE, &LAST_VALUE], |open| obedient(open, "second", &SECOND_VALUE));

const fn spec(
    name: &'static str,
    metrics: &'static [&'static Metric],
    open: fn(&Open<'_>) -> Result<Box<dyn Source>, SourceError>,
) -> SourceSpec {
    let (help, cost) = ("", "");
    SourceSpec {
        name,
        help,
        reads: &[],
        cost,
        every: Every::Tick,
        metrics,
        open,
        ..SourceSpec::DEFAULT
    }
}

struct Obedient {
    file: &'static str,
    metric: &'static Metric,
    reads: u32,
    /// After `begin` the source requests one more drain before its next tick.
    has_begun: bool,
}

fn obedient(
    open: &Open<'_>,
    file: &'static str,
    metric: &'static Metric,
) -> Result<Box<dyn Source>, SourceError> {
    open.root.read_text(file)?;
    Ok(Box::new(Obedient { file, metric, reads: 0, has_begun: false }))
}

impl Source for Obedient {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        self.reads += 1;
        out.of_device().gauge(self.metric, &[], self.reads.into());
        match &*cx.root.read_text(self.file)? {
            "panic" => panic!("told to"),
            "broken" => Err(SourceError::broken("told to")),
            "begin" => {
                self.has_begun = true;
                Ok(())
            }
            "many" => {
                for i in 0..2000 {
                    out.of_device().gauge(self.metric, &[("i", &i.to_string())], 1.0);
                }
                Ok(())
            }
            "denied" => Err(SourceError::denied("all of it", "something")),
            _ => Ok(()),
        }
    }

    fn drain(&mut self, _: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        out.of_device().gauge(self.metric, &[("drained", "yes")], 1.0);
        self.has_begun = false;
        Ok(())
    }

    fn drain_every(&self) -> Option<Duration> {
        let always = (self.file == "second").then_some(Duration::from_millis(400));
        if self.has_begun { Some(Duration::from_millis(100)) } else { always }
    }

    fn finish(
        &mut self,
        cx: &Context<'_>,
        _: &mut Sink,
        state: &mut Vec<u8>,
    ) -> Result<(), SourceError> {
        state.extend(cx.jobs.iter().map(|job| job.key.id.get().to_le_bytes()[0]));
        Ok(())
    }

    fn has_last_reading(&self) -> bool {
        self.file == "second"
    }

    fn job_ended(
        &mut self,
        job: &JobKey,
        cx: &Context<'_>,
        out: &mut Sink,
    ) -> Result<(), SourceError> {
        assert!(cx.jobs.get(job).is_some());
        if self.file == "second" {
            out.of_job(job).gauge(&LAST_VALUE, &[], 1.0);
        }
        Ok(())
    }
}

struct Bench {
    dir: tempfile::TempDir,
    clock: Arc<GivenClock>,
    sampler: Sampler,
    sealed: Sealed,
}

const START: i64 = 1_767_706_500;

fn second(second: i64) -> Timestamp {
    Timestamp::from_seconds(START + second)
}

fn plan() -> Plan {
    let source = |spec| SourcePlan {
        spec,
        enabled: true,
        period: Duration::from_secs(1),
        period_idle: None,
        off: Arc::default(),
        burst: None,
        options: Arc::default(),
    };
    Plan {
        sources: vec![source(&FIRST), source(&SECOND)],
        period: Duration::from_secs(1),
        agent_metrics: None,
        own_off: Arc::default(),
        source_time_max: None,
        budget: Duration::from_millis(50),
        environments: true,
        source_percent_max: 100,
    }
}

impl Bench {
    fn new(plan: &Plan) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(GivenClock::new(second(0)));
        let (origin, device) = (Origin::new("n").unwrap(), DeviceId::new("n").unwrap());
        let sealed = Sealed::default();
        let notes = Arc::new(PendingEvents::new(origin.clone(), device.clone()));
        let sealer = Sealer::new(origin, Boot([0; 16]), notes, Box::new(sealed.clone()), None);
        let agent_metrics = AgentMetrics::new(device, Arc::new(Counters::default()), second(0));
        for file in ["first", "second"] {
            std::fs::write(dir.path().join(file), "ok").unwrap();
        }
        let machine = machine(Root::recorded(dir.path()).unwrap(), second(0));
        let finder =
            Finder::discovering(cgroups::Config::default(), (Vec::new(), Sightings::default()));
        let given = Arc::clone(&clock) as Arc<dyn Clock>;
        let sampler = Sampler::new(given, machine, plan, finder, agent_metrics, sealer);
        Self { dir, clock, sampler, sealed }
    }

    fn report(&self, source: &str, what: &str) {
        std::fs::write(self.dir.path().join(source), what).unwrap();
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Does all work that is due now. Returns when the next work is due.
    fn work(&mut self) -> Timestamp {
        loop {
            let generation = self.sampler.generation;
            match self.sampler.step() {
                Step::Read(reading) => self.sampler.done(reading.make(&*self.clock), generation),
                Step::Find(finding) => self.sampler.found(finding.make(), generation),
                Step::Look(looking) => self.sampler.looked(looking.make(), generation),
                Step::Wait(until) => return until,
                Step::End => return Timestamp(0),
            }
        }
    }

    /// Advances the clock, and does all work at its time.
    fn pass(&mut self, micros: i64) {
        let end = self.clock.wall().plus(micros);
        loop {
            let next = self.work();
            let now = self.clock.wall();
            if next > end {
                self.clock.pass(end.since(now));
                return;
            }
            assert!(next > now, "{next} is not after {now}");
            self.clock.pass(next.since(now));
        }
    }

    /// Advances the clock until a reading of the source is due, and returns it.
    fn reading(&mut self, name: &str) -> Reading {
        loop {
            let generation = self.sampler.generation;
            match self.sampler.step() {
                Step::Read(reading) if reading.spec.name == name => return reading,
                Step::Read(reading) => self.sampler.done(reading.make(&*self.clock), generation),
                Step::Find(finding) => self.sampler.found(finding.make(), generation),
                Step::Look(looking) => self.sampler.looked(looking.make(), generation),
                Step::Wait(until) => self.clock.pass(until.since(self.clock.wall())),
                Step::End => panic!("it ended"),
            }
        }
    }

    fn batches(&self) -> Vec<Batch> {
        self.sealed.take()
    }

    /// Samples by metric: seconds after the start, and value.
    fn samples(batches: &[Batch]) -> BTreeMap<String, Vec<(f64, f64)>> {
        let mut all: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
        for (entry, at, value) in batches.iter().flat_map(Batch::samples) {
            let at = at.since(second(0)) as f64 / 1e6;
            all.entry(entry.metric.name.to_string()).or_default().push((at, value));
        }
        all
    }

    fn gaps(batches: &[Batch]) -> Vec<Gap> {
        batches.iter().flat_map(|batch| batch.gaps.clone()).collect()
    }
}

fn first_only() -> Plan {
    let mut plan = plan();
    plan.sources.truncate(1);
    plan
}

#[test]
fn one_reading_a_tick_at_the_scheduled_instant() {
    let mut bench = Bench::new(&first_only());
    bench.clock.pass(30_000);
    bench.pass(2_500_000);
    let batches = bench.batches();
    assert_eq!(Bench::samples(&batches)["first_value"], [(0.0, 1.0), (1.0, 2.0), (2.0, 3.0)]);
    assert_eq!(batches.len(), 3, "sealed once a second");
    assert_eq!(Bench::gaps(&batches), []);
}

#[test]
fn each_source_has_its_period_and_batches_the_pace_of_the_fastest() {
    let mut plan = plan();
    plan.sources[0].period = Duration::from_millis(250);
    plan.sources[1].period = Duration::from_secs(2);
    let mut bench = Bench::new(&plan);
    bench.clock.pass(1000);
    bench.pass(4_000_000);
    let batches = bench.batches();
    let samples = Bench::samples(&batches);
    assert_eq!(samples["first_value"].len(), 17);
    assert_eq!(samples["first_value"][1].0, 0.25);
    let second: Vec<_> = samples["second_value"].iter().filter(|(_, value)| *value > 1.0).collect();
    assert_eq!(second, [&(2.0, 2.0), &(4.0, 3.0)]);
    assert_eq!(batches.len(), 5);
}

#[test]
fn late_ticks_are_counted_and_reported_and_not_caught_up_with() {
    let mut bench = Bench::new(&first_only());
    bench.pass(1_000_000);
    bench.work();
    bench.clock.pass(3_450_000);
    bench.work();
    bench.pass(1_000_000);
    let batches = bench.batches();
    let samples = Bench::samples(&batches);
    // At 4.45 s the tick of 4 s is taken, with its real time.
    assert_eq!(samples["first_value"], [(0.0, 1.0), (1.0, 2.0), (4.45, 3.0), (5.0, 4.0)]);
    let gaps = Bench::gaps(&batches);
    assert_eq!(gaps.len(), 1);
    assert_eq!((gaps[0].from, gaps[0].to), (second(1), second(4)));
    assert_eq!((&*gaps[0].source, gaps[0].cause), ("first", Cause::MissedTicks));
    assert_eq!(bench.sampler.entries[0].stats.missed, 2);
}

#[test]
fn a_set_clock_restarts_the_ticks_and_misses_none() {
    for jump in [-7200, 7200] {
        let mut bench = Bench::new(&first_only());
        bench.pass(1_500_000);
        bench.clock.set(second(jump).plus(1_500_000));
        bench.pass(1_000_000);
        let batches = bench.batches();
        let jump = jump as f64;
        let want = [(0.0, 1.0), (1.0, 2.0), (jump + 2.0, 3.0)];
        assert_eq!(Bench::samples(&batches)["first_value"], want);
        assert_eq!(Bench::gaps(&batches), []);
        assert_eq!(bench.sampler.entries[0].stats.missed, 0);
    }
}

#[test]
fn a_source_that_panics_costs_itself_alone_and_is_opened_again() {
    let mut bench = Bench::new(&plan());
    bench.pass(1_500_000);
    bench.report("first", "panic");
    bench.pass(1_000_000);
    assert!(matches!(bench.sampler.entries[0].state, State::Failing(SourceError::Broken(_))));
    bench.report("first", "ok");
    bench.pass(61_000_000);
    let batches = bench.batches();
    let samples = Bench::samples(&batches);
    let first = &samples["first_value"];
    // The sample pushed before the panic is lost, and the new source counts from 1.
    assert_eq!(first[..3], [(0.0, 1.0), (1.0, 2.0), (62.0, 1.0)]);
    let second_values = samples["second_value"].iter().filter(|(at, _)| at.fract() == 0.0);
    assert!(second_values.count() >= 63, "the other source was read at every tick");
    let gaps = Bench::gaps(&batches);
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    assert_eq!((gaps[0].from, gaps[0].to), (second(1), second(62)));
    assert_eq!(gaps[0].cause, Cause::SourceBroken);
    assert_eq!(&*gaps[0].detail, "the source panicked: told to");
    assert_eq!(bench.sampler.entries[0].stats.panics, 1);
}

#[test]
fn absent_is_no_gap_denied_is_one_and_both_are_tried_again_in_a_minute() {
    let mut bench = Bench::new(&first_only());
    std::fs::remove_file(bench.dir.path().join("first")).unwrap();
    bench.pass(1_500_000);
    assert!(matches!(bench.sampler.entries[0].state, State::Failing(SourceError::Absent(_))));
    bench.report("first", "ok");
    bench.pass(57_000_000);
    assert_eq!(bench.batches().len(), 0);
    bench.pass(3_000_000);
    bench.report("first", "denied");
    bench.pass(2_000_000);
    bench.report("first", "ok");
    bench.pass(2_000_000);
    let batches = bench.batches();
    let samples = &Bench::samples(&batches)["first_value"];
    assert_eq!(samples[0], (60.0, 1.0));
    let gaps = Bench::gaps(&batches);
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    assert_eq!((gaps[0].from, gaps[0].to), (second(61), second(64)));
    assert_eq!(gaps[0].cause, Cause::PermissionLost);
}

#[test]
fn a_source_that_hangs_delays_no_other_and_what_it_reads_at_last_is_too_old() {
    let mut bench = Bench::new(&plan());
    bench.pass(1_500_000);
    let hanging = bench.reading("first");
    assert!(!bench.sampler.watch(), "it has time");
    bench.clock.pass(100_000);
    assert!(bench.sampler.watch(), "another thread is needed");
    assert!(!bench.sampler.watch(), "one is enough");
    assert_eq!(bench.sampler.generation, 1);
    assert_eq!(bench.sampler.entries[0].state, State::Working);
    bench.pass(900_000);
    assert!(!bench.sampler.watch());
    assert_eq!(bench.sampler.entries[0].state, State::Parked);
    bench.pass(3_000_000);
    let read = hanging.make(&*bench.clock);
    bench.sampler.done(read, 0);
    bench.pass(2_000_000);
    let batches = bench.batches();
    let samples = Bench::samples(&batches);
    assert_eq!(samples["first_value"], [(0.0, 1.0), (1.0, 2.0), (7.0, 4.0), (8.0, 5.0)]);
    let second_at = samples["second_value"].iter().map(|(at, _)| *at);
    let whole: Vec<f64> = second_at.filter(|at| at.fract() == 0.0).collect();
    for tick in 0..=8 {
        assert!(whole.contains(&f64::from(tick)), "{tick} s: {whole:?}");
    }
    let gaps = Bench::gaps(&batches);
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    assert_eq!((gaps[0].from, gaps[0].to), (second(1), second(7)));
    assert_eq!((&*gaps[0].source, gaps[0].cause), ("first", Cause::SourceTimeout));
    assert_eq!(&*gaps[0].detail, "its reading took longer than 1000 ms");
}

#[test]
fn a_slow_source_is_read_aside_and_loses_nothing() {
    let mut bench = Bench::new(&plan());
    bench.pass(1_500_000);
    let slow = bench.reading("first");
    bench.clock.pass(100_000);
    assert!(bench.sampler.watch());
    bench.pass(600_000);
    bench.sampler.done(slow.make(&GivenClock::new(second(2))), 0);
    bench.pass(1_000_000);
    let batches = bench.batches();
    assert_eq!(
        Bench::samples(&batches)["first_value"],
        [(0.0, 1.0), (1.0, 2.0), (2.0, 3.0), (3.0, 4.0)]
    );
    assert_eq!(Bench::gaps(&batches), []);
    assert_eq!(bench.sampler.entries[0].stats.timeouts, 0);
}

#[test]
fn a_source_set_aside_too_often_is_off_until_it_is_forgiven() {
    let mut bench = Bench::new(&plan());
    for _ in 0..PARKS_MAX {
        let hanging = bench.reading("first");
        let generation = bench.sampler.generation;
        bench.clock.pass(1_000_000);
        assert!(bench.sampler.watch());
        bench.sampler.watch();
        bench.sampler.done(hanging.make(&*bench.clock), generation);
    }
    assert_eq!(bench.sampler.entries[0].state, State::Off);
    let reads = bench.sampler.entries[0].stats.reads;
    bench.pass(5_000_000);
    assert_eq!(bench.sampler.entries[0].stats.reads, reads);
    bench.sampler.forgive();
    bench.pass(2_000_000);
    assert_eq!(bench.sampler.entries[0].state, State::Working);
}

#[test]
fn at_the_end_everything_is_sealed_but_what_hangs_which_is_a_gap() {
    let mut bench = Bench::new(&plan());
    bench.pass(1_500_000);
    let _hanging = bench.reading("first");
    bench.batches();
    bench.sampler.end();
    bench.sampler.give_up();
    assert!(matches!(bench.sampler.step(), Step::End));
    let gaps = Bench::gaps(&bench.batches());
    assert_eq!((gaps[0].from, gaps[0].to), (second(1), second(2)));
}

#[test]
fn another_plan_loses_no_sample() {
    let mut bench = Bench::new(&plan());
    bench.pass(2_300_000);
    let mut other = plan();
    other.sources[0].period = Duration::from_millis(100);
    other.sources[1].enabled = false;
    bench.sampler.apply(&other);
    bench.pass(1_000_000);
    bench.sampler.apply(&plan());
    bench.pass(1_700_000);
    let batches = bench.batches();
    let samples = Bench::samples(&batches);
    let mut want: Vec<f64> = vec![0.0, 1.0, 2.0];
    want.extend((23..=33).map(|tenth| f64::from(tenth) / 10.0));
    want.extend([4.0, 5.0]);
    let times: Vec<f64> = samples["first_value"].iter().map(|(at, _)| *at).collect();
    assert_eq!(times, want);
    let values: Vec<f64> = samples["first_value"].iter().map(|(_, value)| *value).collect();
    assert_eq!(values, (1..=16).map(f64::from).collect::<Vec<_>>());
    assert!(samples["second_value"].iter().all(|(at, _)| *at < 2.3 || *at >= 3.3));
    assert_eq!(Bench::gaps(&batches), []);
}
