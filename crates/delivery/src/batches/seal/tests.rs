//! Tests of sealing.

use super::*;
use crate::batches::print::Printer;
use model::{DeviceId, Kind, Metric, Timestamp, Unit};
use std::io::Write;
use std::sync::Mutex;

static LOAD: Metric = Metric::gauge("load_1m", Unit::Count, "");
static CPU: Metric = Metric::counter("cpu_seconds_total", Unit::Seconds, "");

/// A batch with this number of samples of one gauge, one per second.
pub(crate) fn batch(samples: u32) -> Batch {
    let entry = model::SeriesEntry {
        metric: Arc::new(LOAD.clone()),
        device: DeviceId::new("n").unwrap(),
        job: None,
        labels: model::Labels::default(),
        start: None,
    };
    Batch {
        origin: Origin::new("n").unwrap(),
        boot: Boot([7; 16]),
        seq: 0,
        table: Arc::new(SeriesTable { entries: vec![entry] }),
        ticks: (0..samples)
            .map(|i| Tick { at: Timestamp::from_seconds(i.into()), samples: 1 })
            .collect(),
        index: (0..samples).map(|_| 0).collect(),
        values: (0..samples).map(f64::from).collect(),
        gaps: Vec::new(),
        jobs: Vec::new(),
    }
}

/// An outlet that keeps batches up to a capacity.
#[derive(Clone, Default)]
struct TestOutlet {
    sealed: Arc<Mutex<Vec<Batch>>>,
    full: Arc<Mutex<bool>>,
}

impl BatchOutput for TestOutlet {
    fn put(&mut self, batch: Batch) -> Result<(), Box<Batch>> {
        if *self.full.lock().unwrap() {
            return Err(Box::new(batch));
        }
        batch.check().unwrap();
        self.sealed.lock().unwrap().push(batch);
        Ok(())
    }

    fn spare(&mut self) -> Option<Batch> {
        None
    }
}

#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Vec<u8>>>);

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn sealer(outlet: &TestOutlet, printer: Option<Printer>) -> Sealer {
    let notes = PendingEvents::new(Origin::new("n").unwrap(), DeviceId::new("n").unwrap());
    let origin = Origin::new("n").unwrap();
    Sealer::new(origin, Boot([1; 16]), Arc::new(notes), Box::new(outlet.clone()), printer)
}

fn sink() -> Sink {
    Sink::new(DeviceId::new("n").unwrap())
}

#[test]
fn samples_of_all_sinks_in_one_batch_with_one_shared_table() {
    let (outlet, paper) = (TestOutlet::default(), Paper::default());
    let mut sealer = sealer(&outlet, Some(Printer::new(Box::new(paper.clone()))));
    let mut sinks = vec![Some(sink()), None, Some(sink())];
    for at in 1..=2 {
        for sink in sinks.iter_mut().flatten() {
            sink.begin(Timestamp::from_seconds(at));
            sink.of_device().gauge(&LOAD, &[], at as f64);
            sink.of_device().counter(&CPU, &[("cpu", "0")], 0.1, Timestamp(0));
        }
        sealer.seal(&mut sinks);
    }
    let sealed = outlet.sealed.lock().unwrap();
    assert_eq!(sealed.len(), 2);
    assert!(Arc::ptr_eq(&sealed[0].table, &sealed[1].table));
    assert_eq!(sealed.iter().map(|batch| batch.seq).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(sealed[1].ticks, [Tick { at: Timestamp::from_seconds(2), samples: 4 }]);
    assert_eq!(sealed[1].index, [0, 1, 2, 3]);
    assert_eq!(sealed[0].table.entries[1].metric.kind, Kind::Counter);
    let text = String::from_utf8(paper.0.lock().unwrap().clone()).unwrap();
    let line = "cpu_seconds_total\tn\t-\t{\"cpu\": \"0\"}\t1970-01-01T00:00:01+00:00\t\
                1970-01-01T00:00:00+00:00\t0.1";
    assert_eq!(text.lines().next(), Some(line));
    assert_eq!(text.lines().count(), 8);
}

#[test]
fn a_sink_that_was_away_is_taken_in_when_it_comes_back() {
    let outlet = TestOutlet::default();
    let mut sealer = sealer(&outlet, None);
    let mut taken_sink = sink();
    taken_sink.of_device().gauge(&LOAD, &[("a", "1")], 1.0);
    let mut sinks = vec![Some(taken_sink), Some(sink())];
    sealer.seal(&mut sinks);
    let mut taken_sink = sinks[0].take().unwrap();
    sinks[1].as_mut().unwrap().of_device().gauge(&LOAD, &[], 2.0);
    sealer.seal(&mut sinks);
    taken_sink.of_device().gauge(&LOAD, &[("a", "1")], 3.0);
    sinks[0] = Some(taken_sink);
    sealer.seal(&mut sinks);
    let sealed = outlet.sealed.lock().unwrap();
    let last: Vec<_> = sealed[2].samples().map(|(e, _, v)| (e.labels.as_str(), v)).collect();
    assert_eq!(last, [("{\"a\": \"1\"}", 3.0)]);
}

#[test]
fn more_samples_than_fit_into_a_batch() {
    let outlet = TestOutlet::default();
    let mut sealer = sealer(&outlet, None);
    let mut many = sink();
    let count = SAMPLES_PER_BATCH_MAX + 5;
    for i in 0..count {
        many.begin(Timestamp(i64::try_from(i).unwrap()));
        many.of_device().gauge(&LOAD, &[], i as f64);
    }
    sealer.seal(&mut vec![Some(many)]);
    let sealed = outlet.sealed.lock().unwrap();
    assert_eq!(sealed.len(), 2);
    let values: Vec<f64> = sealed.iter().flat_map(|batch| batch.values.clone()).collect();
    assert!(values.iter().enumerate().all(|(i, value)| *value == i as f64));
    assert_eq!(values.len(), count);
    assert_eq!(sealed[1].seq, 1);
}

#[test]
fn samples_beyond_the_capacity_are_a_gap_and_leave_no_missing_number() {
    let outlet = TestOutlet::default();
    let mut sealer = sealer(&outlet, None);
    let mut sinks = vec![Some(sink())];
    let push = |sinks: &mut Vec<Option<Sink>>, at: i64| {
        let sink = sinks[0].as_mut().unwrap();
        sink.begin(Timestamp(at));
        sink.of_device().gauge(&LOAD, &[], 1.0);
    };
    push(&mut sinks, 10);
    *outlet.full.lock().unwrap() = true;
    sealer.seal(&mut sinks);
    assert_eq!((sealer.counts.dropped, sealer.counts.batches), (1, 0));
    *outlet.full.lock().unwrap() = false;
    push(&mut sinks, 20);
    sealer.seal(&mut sinks);
    let sealed = outlet.sealed.lock().unwrap();
    assert_eq!((sealed[0].seq, sealed[0].values.len()), (0, 1));
    let gap = &sealed[0].gaps[0];
    assert_eq!((gap.from, gap.to, gap.cause), (Timestamp(9), Timestamp(11), Cause::BatchesLost));
}

#[test]
fn gaps_go_without_samples_too() {
    let outlet = TestOutlet::default();
    let mut sealer = sealer(&outlet, None);
    for i in 0..1500 {
        sealer.notes.add("x", (Timestamp(10 * i), Timestamp(10 * i + 1)), Cause::EventsLost, "");
    }
    sealer.seal(&mut vec![Some(sink())]);
    let sealed = outlet.sealed.lock().unwrap();
    let gaps: Vec<_> = sealed.iter().map(|batch| batch.gaps.len()).collect();
    assert_eq!(gaps, [wire::GAPS_MAX, 1500 - wire::GAPS_MAX]);
}
