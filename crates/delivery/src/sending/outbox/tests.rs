//! Tests of the outbox.

use super::*;
use crate::batches::seal::tests::batch;
use crate::disk::spool::SpoolLimits;
use crate::sending::dispatch::matching;
use model::{Batch, DeviceId, Gap, Origin};
use wire::{Ack, AckStatus, Answer, Encoder};

pub(crate) struct Bench {
    dir: tempfile::TempDir,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) notes: Arc<PendingEvents>,
    pub(crate) counters: Arc<Counters>,
}

/// Creates an outbox with a spool in a new folder.
pub(crate) fn bench() -> Bench {
    bench_in(tempfile::tempdir().unwrap(), true)
}

fn bench_in(dir: tempfile::TempDir, spooling: bool) -> Bench {
    let (origin, device) = (Origin::new("n").unwrap(), DeviceId::new("n").unwrap());
    let (notes, counters) =
        (Arc::new(PendingEvents::new(origin, device)), Arc::<Counters>::default());
    let limits = SpoolLimits { bytes_max: 1 << 20, age_max_us: i64::MAX / 4, sync: false };
    let folders = if spooling {
        let (kept, kept_until) = DurableWatermark::open(dir.path(), notes.origin()).unwrap();
        let (for_spool, counts) = (Arc::clone(&notes), Arc::clone(&counters));
        Folders {
            spool: Some(Spool::open(dir.path(), limits, for_spool, counts).unwrap()),
            kept: Some(kept),
            kept_until,
            rejected: Some(RejectedBatches::open(dir.path(), 1 << 20).unwrap()),
        }
    } else {
        Folders::default()
    };
    let outbox = Arc::new(Outbox::new(folders, Arc::clone(&notes), Arc::clone(&counters)));
    Bench { dir, outbox, notes, counters }
}

impl Bench {
    /// Pushes a frame with one sample at this number of seconds after 1970.
    pub(crate) fn push(&self, second: i64) {
        self.push_batch(of_second(second), second * 1_000_000);
    }

    /// Spools frames, as if the server had been unreachable.
    pub(crate) fn spool(&self, seconds: std::ops::RangeInclusive<i64>) {
        for second in seconds {
            let batch = of_second(second);
            let mut bytes = Vec::new();
            Encoder::default().encode(&batch, &mut bytes).unwrap();
            self.outbox.with_spool(|spool| {
                spool.append(&bytes, Span::of(&batch).unwrap()).unwrap();
            });
        }
    }

    fn push_batch(&self, batch: Batch, now_us: i64) {
        let mut bytes = Vec::new();
        Encoder::default().encode(&batch, &mut bytes).unwrap();
        self.outbox.push(
            LiveFrame {
                boot: batch.boot,
                seq: batch.seq,
                bytes: Arc::from(bytes),
                span: Span::of(&batch),
                samples: batch.values.len().try_into().unwrap(),
                gaps_from: batch.gaps.iter().map(|gap| gap.from).min(),
            },
            now_us,
        );
    }

    fn maintain(&self, second: i64) {
        self.outbox.maintain(Timestamp::from_seconds(second), second * 1_000_000);
    }

    pub(crate) fn gaps(&self) -> Vec<Gap> {
        let mut carrier = batch(0);
        self.notes.take(&mut carrier);
        self.notes.arrived();
        carrier.gaps
    }

    fn next(&self) -> Option<Request> {
        self.outbox.next(Duration::ZERO, true)
    }

    fn kept(&self) -> Option<Timestamp> {
        DurableWatermark::open(self.dir.path(), self.notes.origin()).unwrap().1
    }
}

fn of_second(second: i64) -> Batch {
    let mut one = batch(1);
    one.seq = second.try_into().unwrap();
    one.ticks[0].at = Timestamp::from_seconds(second);
    one
}

fn seconds(request: &Request) -> Vec<i64> {
    let second = |bytes: &[u8]| inside(bytes).unwrap().span.unwrap().first.0 / 1_000_000;
    match request {
        Request::Live(frames) => frames.iter().map(|(_, frame)| second(&frame.bytes)).collect(),
        Request::Spooled(piece) => piece.frames().map(second).collect(),
    }
}

fn all(outcome: SendOutcome, request: &Request) -> Vec<SendOutcome> {
    vec![outcome; request.count()]
}

#[test]
fn sent_from_memory_and_forgotten_when_the_server_has_it() {
    let bench = bench();
    bench.push(1);
    bench.push(2);
    let request = bench.next().unwrap();
    assert_eq!(seconds(&request), [1, 2]);
    bench.outbox.settle(&request, &all(SendOutcome::Stored, &request));
    assert!(bench.next().is_none());
    bench.maintain(60);
    assert_eq!(bench.counters.spool_bytes.load(Ordering::Relaxed), 0);
    assert_eq!(bench.counters.sent_batches.load(Ordering::Relaxed), 2);
    assert_eq!(bench.kept(), Some(Timestamp::from_seconds(2)));
}

#[test]
fn a_frame_that_the_server_cannot_decode_is_acknowledged_without_a_number() {
    let bench = bench();
    bench.push(1);
    let request = bench.next().unwrap();
    let answer = |status, seq| Answer {
        acks: vec![Ack {
            boot: Boot([0; 16]),
            seq,
            status,
            reason: "no batch".to_owned(),
            samples_rejected: 0,
            samples_reason: String::new(),
        }],
        ..Answer::default()
    };
    let is_own = |status, seq| matching(answer(status, seq), &request).is_ok();
    assert!(is_own(AckStatus::RejectedPermanently, 0));
    assert!(!is_own(AckStatus::Stored, 0), "a batch of another sender");
    assert!(!is_own(AckStatus::RejectedPermanently, 1));
}

#[test]
fn what_is_not_acknowledged_in_two_seconds_is_spooled_and_live_frames_go_between() {
    let bench = bench();
    bench.push(1);
    bench.maintain(2);
    assert_eq!(bench.counters.spool_bytes.load(Ordering::Relaxed), 0);
    bench.maintain(3);
    assert!(bench.counters.spool_bytes.load(Ordering::Relaxed) > 0);
    bench.push(4);
    let (a, b) = (bench.next().unwrap(), bench.next().unwrap());
    let mut both = [seconds(&a), seconds(&b)];
    both.sort();
    assert_eq!(both, [[1], [4]], "in turn");
    assert!(bench.outbox.next(Duration::ZERO, false).is_some_and(|r| seconds(&r) == [4]));
}

#[test]
fn an_acknowledgement_that_comes_while_the_frame_is_being_spooled_counts() {
    let bench = bench();
    bench.push(1);
    bench.push(2);
    let request = bench.next().unwrap();
    bench.maintain(10);
    bench.outbox.settle(&request, &[SendOutcome::Stored, SendOutcome::Later]);
    let request = bench.next().unwrap();
    assert_eq!(seconds(&request), [2]);
    bench.outbox.settle(&request, &all(SendOutcome::Stored, &request));
    assert!(bench.next().is_none());
    assert_eq!(bench.counters.spool_bytes.load(Ordering::Relaxed), 0);
}

#[test]
fn permanently_rejected_frames_are_set_aside_as_a_gap_and_the_rest_continues() {
    let bench = bench();
    let mut with_gap = of_second(2);
    let (origin, device) = (Origin::new("n").unwrap(), DeviceId::new("n").unwrap());
    let (from, to, cause) = (Timestamp(5), Timestamp(6), Cause::EventsLost);
    with_gap.gaps.push(Gap {
        origin,
        device,
        source: "x".into(),
        from,
        to,
        cause,
        detail: "".into(),
    });
    bench.push(1);
    bench.push_batch(with_gap, 2_000_000);
    bench.push(3);
    let request = bench.next().unwrap();
    let outcomes = [
        SendOutcome::Stored,
        SendOutcome::RejectedBatches("no such thing".to_owned()),
        SendOutcome::Stored,
    ];
    bench.outbox.settle(&request, &outcomes);
    assert!(bench.next().is_none());
    let gaps = bench.gaps();
    assert_eq!(gaps.len(), 2);
    let (from, to) = (Timestamp(1_999_999), Timestamp(2_000_001));
    assert_eq!((gaps[0].from, gaps[0].to, gaps[0].cause), (from, to, Cause::Rejected));
    assert_eq!(&*gaps[0].detail, "no such thing");
    assert_eq!(gaps[1].cause, Cause::EventsLost);
    let rejected = bench.dir.path().join("rejected/000000000000.txt");
    assert_eq!(std::fs::read_to_string(rejected).unwrap(), "no such thing\n");
}

#[test]
fn after_a_temporary_rejection_the_spool_waits_at_that_frame() {
    let bench = bench();
    (1..=3).for_each(|second| bench.push(second));
    bench.maintain(10);
    let request = bench.next().unwrap();
    bench.outbox.settle(&request, &[SendOutcome::Stored, SendOutcome::Later, SendOutcome::Stored]);
    assert_eq!(seconds(&bench.next().unwrap()), [2, 3]);
}

#[test]
fn at_the_end_everything_is_in_the_spool_and_the_next_start_sends_it() {
    let first = bench();
    (1..=3).for_each(|second| first.push(second));
    first.outbox.end(Duration::ZERO);
    assert!(first.outbox.is_ended());
    assert_eq!(first.kept(), Some(Timestamp::from_seconds(3)));
    let Bench { dir, outbox, .. } = first;
    drop(outbox);
    let second = bench_in(dir, true);
    assert_eq!(seconds(&second.next().unwrap()), [1, 2, 3]);
}

#[test]
fn without_a_spool_the_oldest_in_memory_becomes_a_gap() {
    let bench = bench_in(tempfile::tempdir().unwrap(), false);
    let mut large = of_second(1);
    // Values that do not compress: about half of the memory limit.
    let mut chance = 1_u64;
    for _ in 0..65_000 {
        chance ^= chance << 13;
        chance ^= chance >> 7;
        chance ^= chance << 17;
        large.values.push(f64::from_bits(chance >> 2));
        large.index.push(0);
    }
    large.ticks[0].samples = u32::try_from(large.values.len()).unwrap();
    for second in 1..=4 {
        large.ticks[0].at = Timestamp::from_seconds(second);
        bench.push_batch(large.clone(), 0);
    }
    bench.maintain(100);
    let kept = seconds(&bench.next().unwrap());
    assert_eq!(kept.last(), Some(&4));
    let gaps = bench.gaps();
    assert_eq!(gaps.len() + kept.len(), 4);
    assert!(gaps.iter().all(|gap| gap.cause == Cause::SpoolFull));
    let bytes = bench.counters.unsent_bytes.load(Ordering::Relaxed);
    assert!(bytes <= u64::try_from(LIVE_BYTES_MAX).unwrap(), "{bytes}");
}

#[test]
fn what_the_spool_loses_is_at_once_kept_no_more() {
    let bench = bench();
    (1..=3).for_each(|second| bench.push(second));
    bench.maintain(10);
    assert_eq!(bench.kept(), Some(Timestamp::from_seconds(3)));
    let limits = SpoolLimits { bytes_max: 300, age_max_us: i64::MAX / 4, sync: false };
    bench.outbox.with_spool(|spool| spool.set_limits(limits));
    bench.push(5);
    // The regular write of the watermark is not due yet.
    bench.outbox.maintain(Timestamp::from_seconds(10), 10_100_000);
    assert_eq!(bench.gaps().len(), 1);
    assert_eq!(bench.kept(), Some(Timestamp(999_999)));
}

#[test]
fn the_reported_watermark_is_never_ahead() {
    let bench = bench();
    bench.push(1);
    bench.push(2);
    bench.maintain(2);
    assert_eq!(bench.kept(), Some(Timestamp(999_999)), "nothing is safe yet");
    let request = bench.next().unwrap();
    bench.outbox.settle(&request, &[SendOutcome::Stored, SendOutcome::Later]);
    bench.maintain(3);
    assert_eq!(bench.kept(), Some(Timestamp::from_seconds(1)));
    // A gap that no batch carries yet would be lost with this process.
    bench.notes.add("", (Timestamp(7), Timestamp(8)), Cause::Rejected, "");
    bench.maintain(5);
    assert_eq!(bench.kept(), Some(Timestamp(7)));
    bench.gaps();
    bench.maintain(6);
    assert_eq!(bench.kept(), Some(Timestamp::from_seconds(2)));
}

#[test]
fn the_first_frame_of_a_start_does_not_hide_the_missing_ones_before_it() {
    let first = bench();
    first.push(10);
    first.outbox.end(Duration::ZERO);
    let Bench { dir, outbox, .. } = first;
    drop(outbox);
    let second = bench_in(dir, true);
    second.push(100);
    second.maintain(100);
    assert_eq!(second.kept(), Some(Timestamp::from_seconds(10)));
}

#[test]
fn instants_that_devices_report_move_no_watermark_of_a_poller() {
    let bench = bench();
    let mut polled = of_second(100);
    polled.origin = Origin::new("poller-a/group-0").unwrap();
    let entry = polled.table.entries[0].clone();
    let metric = Arc::new(model::Metric::gauge("poll_success", model::Unit::Count, ""));
    let success = model::SeriesEntry { metric, ..entry.clone() };
    polled.table = Arc::new(model::SeriesTable { entries: vec![entry, success] });
    let tick = |second| model::Tick { at: Timestamp::from_seconds(second), samples: 1 };
    polled.ticks = vec![tick(5), tick(100), tick(9000)];
    (polled.index, polled.values) = (vec![0, 1, 0], vec![1.0; 3]);
    let span = Span { first: Timestamp::from_seconds(100), last: Timestamp::from_seconds(100) };
    assert_eq!(Span::of(&polled), Some(span));
    bench.push_batch(polled, 100_000_000);
    let request = bench.next().unwrap();
    assert_eq!(seconds(&request), [100], "also of the frame");
    bench.outbox.settle(&request, &all(SendOutcome::Stored, &request));
    bench.maintain(200);
    assert_eq!(bench.kept(), Some(Timestamp::from_seconds(100)));
}
