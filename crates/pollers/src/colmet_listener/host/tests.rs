//! Tests of the messages, gaps and jobs of a host.

use super::super::jobs::JOBS_MAX;
use super::super::saved_hosts::SavedJob;
use super::*;
use colmet::backends::{MEMORY, PROCSTATS, RAPL, TASKSTATS};
use colmet::record::Value;
use model::JobId;

/// Metric, second, value, job, start.
type Stored = (String, i64, f64, Option<i64>, Option<Timestamp>);

struct Tested {
    host: Host,
    plans: Plans,
    cluster: ClusterId,
    samples: Vec<Stored>,
    events: Vec<JobEvent>,
}

fn second(at: i64) -> Timestamp {
    Timestamp::from_seconds(at)
}

fn record(job: u64, at: i64, begun: u64) -> Record {
    let mut record = Record::new(&TASKSTATS, "n1.cluster", job, second(at));
    record.set("ac_btime", Value::Unsigned(begun));
    record.set("cpu_run_real_total", Value::Unsigned(1_000_000_000));
    record
}

/// A message with the jobs that begin at a second, and a record of the node.
fn message(at: i64, jobs: &[(u64, u64)]) -> Vec<Record> {
    let mut node = Record::new(&PROCSTATS, "n1.cluster", NO_JOB, second(at));
    node.set("meminfo_memtotal", Value::Unsigned(1));
    jobs.iter().map(|(job, begun)| record(*job, at, *begun)).chain([node]).collect()
}

impl Tested {
    fn new(host: Host) -> Self {
        let cluster = ClusterId::new("oar").unwrap();
        Self { host, plans: Plans::default(), cluster, samples: Vec::new(), events: Vec::new() }
    }

    fn take_part(&mut self, records: &[Record], is_whole: bool) -> (Begun, Vec<Fault>) {
        let begun = self.host.begin(records[0].at, records[0].at);
        let samples = &mut self.samples;
        let mut faults = Vec::new();
        for record in records {
            let mut out = |sample: Sample<'_>| {
                let name = sample.column.metric.name.to_string();
                let job = sample.job.map(|job| job.id.get());
                samples.push((name, sample.at.0 / 1_000_000, sample.value, job, sample.start));
            };
            let out = (&mut out as &mut dyn FnMut(Sample<'_>), &mut self.events);
            let limits = (&self.cluster, JOBS_MAX);
            faults.extend(self.host.take(record, limits, &mut self.plans, out).err());
        }
        self.host.end(is_whole, &mut self.events);
        (begun, faults)
    }

    fn take(&mut self, records: &[Record]) -> Begun {
        let (begun, faults) = self.take_part(records, true);
        assert_eq!(faults, []);
        begun
    }

    /// The events since the last call: job, start, stop.
    fn jobs(&mut self) -> Vec<(i64, i64, Option<i64>)> {
        let seconds = |at: Timestamp| at.0 / 1_000_000;
        let event = |event: JobEvent| {
            assert_eq!((event.user, event.uid, event.device.as_str()), (None, None, "n1"));
            (event.key.id.get(), seconds(event.start), event.stop.map(seconds))
        };
        self.events.drain(..).map(event).collect()
    }
}

fn host() -> Host {
    Host::new(DeviceId::new("n1").unwrap(), 0, 0)
}

fn saved(latest: i64, jobs: Vec<SavedJob>) -> SavedHost {
    SavedHost {
        device: DeviceId::new("n1").unwrap(),
        group: 0,
        has_agent: false,
        period_us: 5_000_000,
        latest: second(latest),
        jobs,
        ended: Vec::new(),
    }
}

#[test]
fn an_allocation_begins_with_a_record_and_ends_with_the_message_without_it() {
    let mut tested = Tested::new(host());
    // Of the first message it is unknown what was before.
    tested.take(&message(100, &[(1, 50)]));
    assert_eq!(tested.jobs(), [(1, 100, None)]);
    // 2 began after the last message, 3 has tasks that are older.
    tested.take(&message(105, &[(1, 50), (2, 103), (3, 90)]));
    assert_eq!(tested.jobs(), [(2, 103, None), (3, 105, None)]);
    let start = |tested: &Tested, job: i64| {
        let counter = "taskstats_cpu_run_real_seconds_total";
        let of_job = tested.samples.iter().find(|it| it.0 == counter && it.3 == Some(job));
        of_job.unwrap().4
    };
    assert_eq!(start(&tested, 1), None, "it is unknown what was counted before");
    assert_eq!((start(&tested, 2), start(&tested, 3)), (Some(second(103)), Some(second(100))));
    // A time after the record is wrong.
    tested.take(&message(110, &[(1, 50), (3, 90), (4, 999)]));
    assert_eq!(tested.jobs(), [(4, 110, None), (2, 103, Some(110))]);
    tested.take(&message(115, &[]));
    assert_eq!(tested.jobs(), [(1, 100, Some(115)), (3, 105, Some(115)), (4, 110, Some(115))]);
}

#[test]
fn only_a_whole_message_in_order_ends_jobs() {
    let mut tested = Tested::new(host());
    tested.take(&message(100, &[(1, 50)]));
    tested.jobs();
    assert_eq!(tested.take_part(&message(105, &[]), false).0, Begun::Follows);
    let (begun, faults) = tested.take_part(&message(100, &[(1, 50)]), true);
    assert_eq!((begun, faults), (Begun::Overtaken, vec![Fault::Repeated; 2]));
    let (begun, faults) = tested.take_part(&message(103, &[(2, 50)]), true);
    assert_eq!((begun, faults), (Begun::Overtaken, vec![Fault::Late, Fault::Late]));
    assert_eq!(tested.jobs(), []);
    tested.take(&message(110, &[(1, 50)]));
    assert_eq!(tested.jobs(), []);
    let number = |job: u64| tested_number(&mut Tested::new(host()), job);
    assert_eq!(number(u64::MAX), [Fault::WrongName]);
    assert_eq!(number(i64::MAX.unsigned_abs()), []);
}

fn tested_number(tested: &mut Tested, job: u64) -> Vec<Fault> {
    tested.take_part(&[record(job, 100, 0)], true).1
}

#[test]
fn jobs_of_an_earlier_start_keep_their_times() {
    let job = |id, start| SavedJob {
        id: JobId::new(id).unwrap(),
        start: second(start),
        is_rebased: false,
    };
    let saved = saved(95, vec![job(1, 40), job(2, 50)]);
    let mut tested = Tested::new(Host::restored(&saved, &ClusterId::new("oar").unwrap(), 0));
    // 3 began after the last message of the earlier start.
    assert_eq!(tested.take(&message(110, &[(1, 30), (3, 98)])), Begun::First);
    assert_eq!(tested.jobs(), [(1, 40, None), (3, 98, None), (2, 50, Some(110))]);
    tested.take(&message(115, &[(1, 30), (3, 98)]));
    assert_eq!(tested.jobs(), []);
}

#[test]
fn a_silence_of_three_periods_is_a_gap() {
    let mut tested = Tested::new(host());
    let begun: Vec<Begun> =
        [100, 105, 110, 125, 141, 146].map(|at| tested.take(&message(at, &[]))).into();
    let gap = Begun::AfterGap(second(125), second(141));
    use Begun::{First, Follows};
    assert_eq!(begun, [First, Follows, Follows, Follows, gap, Follows]);
    assert_eq!(tested.host.period_us(), Some(5_000_000));
    assert!(!tested.host.is_silent(second(160)) && tested.host.is_silent(second(162)));
}

#[test]
fn a_gap_begins_growths_again() {
    let mut tested = Tested::new(host());
    let rapl = |at: i64, joules: i64| {
        let mut record = Record::new(&RAPL, "n1", NO_JOB, second(at));
        record.set("counter_1", Value::Signed(joules * 1_000_000));
        [record]
    };
    for (at, joules) in [(100, 9), (105, 1), (110, 2), (200, 50), (205, 3)] {
        tested.take(&rapl(at, joules));
    }
    let found: Vec<_> = tested.samples.iter().map(|it| (it.1, it.2, it.4.unwrap())).collect();
    let (first, second) = (second(100), second(200));
    assert_eq!(
        found,
        [
            (100, 0.0, first),
            (105, 1.0, first),
            (110, 3.0, first),
            (200, 0.0, second),
            (205, 3.0, second)
        ]
    );
}

#[test]
fn a_clock_that_is_set_back_stops_neither_jobs_nor_gauges() {
    let mut tested = Tested::new(host());
    tested.take(&message(3700, &[(1, 50)]));
    tested.take(&message(3705, &[(1, 50)]));
    let count = |tested: &Tested, metric: &str| {
        tested.samples.iter().filter(|it| it.0 == metric && it.1 < 3700).count()
    };
    for at in [100, 105, 110, 115, 120, 125, 130] {
        tested.take_part(&message(at, &[]), true);
    }
    assert_eq!(tested.jobs(), [(1, 3700, None), (1, 3700, Some(3700))]);
    assert_eq!(count(&tested, "memory_total_bytes"), 7);
    tested.take_part(&message(135, &[(2, 50)]), true);
    assert_eq!(tested.jobs(), [(2, 135, None)]);
}

#[test]
fn jobs_and_their_memory_are_bounded() {
    let mut tested = Tested::new(host());
    let first = u64::try_from(JOBS_MAX).unwrap();
    let jobs = |range: std::ops::Range<u64>| range.map(|job| (job, 1)).collect::<Vec<_>>();
    let (_, faults) = tested.take_part(&message(100, &jobs(1..first + 3)), true);
    assert_eq!(faults, [Fault::TooMany; 2]);
    // Ended ones are remembered for a while: then there is space again.
    let (_, faults) = tested.take_part(&message(105, &jobs(10_000..10_001)), true);
    assert_eq!(faults, [Fault::TooMany]);
    tested.take(&message(900, &[]));
    tested.take(&message(905, &jobs(10_000..10_100)));
    assert_eq!(tested.host.jobs.count(), 100);
}

#[test]
fn the_first_message_of_colmets_agent_without_jobs_counts_nothing_twice() {
    let mut tested = Tested::new(host());
    let cpu = |at: i64, seconds: u64| {
        let mut one = record(1, at, 50);
        one.set("cpu_run_real_total", Value::Unsigned(seconds * 1_000_000_000));
        [one]
    };
    tested.take(&message(95, &[]));
    tested.take(&cpu(100, 0));
    tested.take(&cpu(105, 100));
    tested.take(&message(110, &[]));
    tested.take(&cpu(115, 0));
    tested.take(&cpu(120, 101));
    tested.take(&cpu(125, 103));
    let of = |it: &&(String, i64, f64, Option<i64>, Option<Timestamp>)| {
        it.0 == "taskstats_cpu_run_real_seconds_total"
    };
    let point = |it: &(String, i64, f64, Option<i64>, Option<Timestamp>)| model::Point {
        at: second(it.1),
        value: it.2,
        start: it.4,
    };
    let points: Vec<_> = tested.samples.iter().filter(of).map(point).collect();
    assert_eq!(model::increases(None, Timestamp(0), points), 102.0);
    let running: Vec<_> = tested.host.jobs.running.values().map(|job| job.is_rebased()).collect();
    assert_eq!(running, [true]);
}

#[test]
fn while_an_agent_reports_no_value_has_a_name_of_jobmeter() {
    let mut tested = Tested::new(host());
    tested.take(&message(100, &[(1, 50)]));
    assert!(tested.samples.iter().all(|it| !it.0.starts_with("colmet_")));
    assert!(tested.host.set_agent(true, &mut tested.plans), "it is logged");
    tested.samples.clear();
    tested.take(&message(105, &[(1, 50)]));
    assert!(!tested.samples.is_empty());
    assert!(tested.samples.iter().all(|it| it.0.starts_with("colmet_")), "{:?}", tested.samples);
    assert!(!tested.host.set_agent(false, &mut tested.plans));
    assert!(!tested.host.set_agent(true, &mut tested.plans), "it is logged once");
}

#[test]
fn records_of_rust_nodes_have_jobs_too() {
    let mut tested = Tested::new(host());
    let mut memory = Record::new(&MEMORY, "n1", 7, Timestamp(100_500_000));
    memory.set("total_rss", Value::Signed(4096));
    tested.take(&[memory]);
    assert_eq!(tested.events[0].start, Timestamp(100_500_000));
    assert_eq!((tested.samples[0].2, tested.samples[0].3), (4096.0, Some(7)));
}
