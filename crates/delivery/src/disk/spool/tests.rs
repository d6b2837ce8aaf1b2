//! Tests of the spool.

use super::*;
use crate::batches::pending_gaps_and_job_events::PendingEvents;
use crate::batches::seal::tests::batch;
use model::{DeviceId, Gap, Origin};
use wire::{Encoder, Frames};

const LIMITS: SpoolLimits =
    SpoolLimits { bytes_max: 1 << 20, age_max_us: i64::MAX / 4, sync: false };

struct Bench {
    dir: tempfile::TempDir,
    notes: Arc<PendingEvents>,
    counters: Arc<Counters>,
}

impl Bench {
    fn new() -> Self {
        let (origin, device) = (Origin::new("n").unwrap(), DeviceId::new("n").unwrap());
        let notes = Arc::new(PendingEvents::new(origin, device));
        Self { dir: tempfile::tempdir().unwrap(), notes, counters: Arc::default() }
    }

    fn open(&self, limits: SpoolLimits) -> Spool {
        let (notes, counters) = (Arc::clone(&self.notes), Arc::clone(&self.counters));
        Spool::open(self.dir.path(), limits, notes, counters).unwrap()
    }

    /// File modes of the folder and of every file in it.
    fn modes(&self, dir: &Path) -> Vec<u32> {
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let inside = std::fs::read_dir(dir).unwrap().map(|entry| mode(&entry.unwrap().path()));
        std::iter::once(mode(dir)).chain(inside).collect()
    }

    fn gaps(&self) -> Vec<Gap> {
        let mut carrier = batch(0);
        self.notes.take(&mut carrier);
        carrier.gaps
    }

    fn segments(&self) -> Vec<PathBuf> {
        let mut paths: Vec<_> = std::fs::read_dir(self.dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|ending| ending == "jmb"))
            .collect();
        paths.sort();
        paths
    }
}

/// A frame with one sample at this number of seconds after 1970.
fn frame(second: i64) -> (Vec<u8>, Span) {
    let mut one = batch(1);
    one.ticks[0].at = Timestamp::from_seconds(second);
    one.values[0] = second as f64;
    let mut bytes = Vec::new();
    Encoder::default().encode(&one, &mut bytes).unwrap();
    (bytes, Span::of(&one).unwrap())
}

fn seconds(bytes: &[u8]) -> i64 {
    inside_of(bytes).span.unwrap().first.0 / 1_000_000
}

fn inside_of(bytes: &[u8]) -> frames::FrameContent {
    frames::inside(bytes).unwrap()
}

/// Removes all frames from the spool.
fn drain(spool: &mut Spool) -> Vec<i64> {
    let mut all = Vec::new();
    while let Some(piece) = spool.next(200) {
        all.extend(piece.frames().map(seconds));
        spool.forget(piece.segment, piece.end);
    }
    all
}

#[test]
fn in_order_over_restarts_and_gone_when_the_server_has_it() {
    let bench = Bench::new();
    let mut spool = bench.open(LIMITS);
    for second in 1..=3 {
        let (bytes, span) = frame(second);
        spool.append(&bytes, span).unwrap();
    }
    drop(spool);
    let mut spool = bench.open(LIMITS);
    assert_eq!(spool.oldest(), Some(Timestamp::from_seconds(1)));
    let (bytes, span) = frame(4);
    spool.append(&bytes, span).unwrap();
    assert_eq!(bench.segments().len(), 2);
    assert_eq!(drain(&mut spool), [1, 2, 3, 4]);
    assert_eq!((spool.bytes(), bench.segments().len()), (0, 0));
    spool.append(&bytes, span).unwrap();
    assert_eq!(drain(&mut spool), [4]);
    assert_eq!(bench.gaps(), []);
}

#[test]
fn one_agent_a_folder() {
    let bench = Bench::new();
    let _held = bench.open(LIMITS);
    let (notes, counters) = (Arc::clone(&bench.notes), Arc::clone(&bench.counters));
    let error = Spool::open(bench.dir.path(), LIMITS, notes, counters).unwrap_err();
    assert_eq!(error.to_string(), "another program writes there; end it, or set another `spool`");
}

#[test]
fn a_piece_read_again_is_the_same_until_it_is_taken() {
    let bench = Bench::new();
    let mut spool = bench.open(LIMITS);
    for second in 1..=3 {
        let (bytes, span) = frame(second);
        spool.append(&bytes, span).unwrap();
    }
    let mut piece = spool.next(1 << 20).unwrap();
    assert_eq!(piece.frames().map(seconds).collect::<Vec<_>>(), [1, 2, 3]);
    piece.cut(2);
    spool.forget(piece.segment, piece.end);
    let piece = spool.next(1 << 20).unwrap();
    assert_eq!(piece.frames().map(seconds).collect::<Vec<_>>(), [3]);
}

#[test]
fn what_was_acknowledged_while_it_was_spooled_is_not_sent_again() {
    let bench = Bench::new();
    let mut spool = bench.open(LIMITS);
    let spots: Vec<_> = (1..=3)
        .map(|second| {
            let (bytes, span) = frame(second);
            spool.append(&bytes, span).unwrap()
        })
        .collect();
    spool.mark_done(spots[0]);
    spool.mark_done(spots[2]);
    assert_eq!(drain(&mut spool), [2]);
    assert_eq!(bench.segments().len(), 0);
}

#[test]
fn cut_at_every_byte_it_keeps_what_stands_before_and_reports_the_rest() {
    let frames: Vec<_> = (1..=3).map(frame).collect();
    let whole: Vec<u8> = frames.iter().flat_map(|(bytes, _)| bytes.clone()).collect();
    let ends: Vec<usize> = frames
        .iter()
        .scan(0, |end, (bytes, _)| {
            *end += bytes.len();
            Some(*end)
        })
        .collect();
    for cut in 1..whole.len() {
        let bench = Bench::new();
        std::fs::write(bench.dir.path().join("000000000000-1000000.jmb"), &whole[..cut]).unwrap();
        let mut spool = bench.open(LIMITS);
        let good = ends.iter().filter(|end| **end <= cut).count();
        let want: Vec<_> = (1..=i64::try_from(good).unwrap()).collect();
        assert_eq!(drain(&mut spool), want, "cut at {cut}");
        let gaps = bench.gaps();
        if ends.contains(&cut) {
            assert_eq!(gaps, [], "cut at {cut}");
        } else {
            assert_eq!(gaps.len(), 1, "cut at {cut}");
            let last = Timestamp::from_seconds(i64::try_from(good).unwrap());
            let from = if good == 0 { Timestamp(999_999) } else { last };
            assert_eq!((gaps[0].from, gaps[0].cause), (from, Cause::SpoolDamaged), "cut at {cut}");
            assert!(gaps[0].to > gaps[0].from);
        }
        assert_eq!(bench.segments().len(), 0, "cut at {cut}");
    }
}

#[test]
fn every_flipped_byte_costs_one_frame_and_is_reported_once() {
    let frames: Vec<_> = (1..=3).map(frame).collect();
    let whole: Vec<u8> = frames.iter().flat_map(|(bytes, _)| bytes.clone()).collect();
    for at in 0..whole.len() {
        let bench = Bench::new();
        let mut bad = whole.clone();
        bad[at] ^= 0x55;
        std::fs::write(bench.dir.path().join("000000000000-1000000.jmb"), &bad).unwrap();
        let mut spool = bench.open(LIMITS);
        // Two reads without an acknowledgement, as when the server is down.
        drop(spool.next(1 << 20));
        drop(spool.next(1 << 20));
        let ends = frames.iter().scan(0, |end, (bytes, _)| {
            *end += bytes.len();
            Some(*end)
        });
        let hit = 1 + i64::try_from(ends.take_while(|end| *end <= at).count()).unwrap();
        let want: Vec<_> = (1..=3).filter(|second| *second != hit).collect();
        assert_eq!(drain(&mut spool), want, "flipped {at}");
        let gaps = bench.gaps();
        assert_eq!(gaps.len(), 1, "flipped {at}: {gaps:?}");
        let (lost_from, lost_to) = (Timestamp::from_seconds(hit), Timestamp::from_seconds(hit));
        assert!(gaps[0].from < lost_from && gaps[0].to > lost_to, "flipped {at}: {gaps:?}");
    }
}

#[test]
fn full_it_gives_up_the_oldest_segment_and_the_gaps_in_it_live_on() {
    let bench = Bench::new();
    let limits = SpoolLimits { bytes_max: 4 * 200, ..LIMITS };
    let mut spool = bench.open(limits);
    let mut first = batch(1);
    first.ticks[0].at = Timestamp::from_seconds(1);
    let (origin, device) = (Origin::new("n").unwrap(), DeviceId::new("n").unwrap());
    let (from, to) = (Timestamp(5), Timestamp(6));
    let (source, detail) = ("load".into(), "old".into());
    first.gaps.push(Gap { origin, device, source, from, to, cause: Cause::SourceTimeout, detail });
    let mut bytes = Vec::new();
    Encoder::default().encode(&first, &mut bytes).unwrap();
    spool.append(&bytes, Span::of(&first).unwrap()).unwrap();
    for second in 2..=30 {
        let (bytes, span) = frame(second);
        spool.append(&bytes, span).unwrap();
        assert!(spool.bytes() <= limits.bytes_max);
    }
    let gaps = bench.gaps();
    assert!(gaps.iter().any(|gap| gap.cause == Cause::SourceTimeout && &*gap.detail == "old"));
    let kept = drain(&mut spool);
    assert_eq!(kept.last(), Some(&30));
    let covered = |second: i64| {
        let at = Timestamp::from_seconds(second);
        gaps.iter().any(|gap| gap.cause == Cause::SpoolFull && gap.from < at && at < gap.to)
    };
    for second in 1..=30 {
        assert!(kept.contains(&second) != covered(second), "{second}: {kept:?} {gaps:?}");
    }
    let lost = bench.counters.dropped_samples.load(Ordering::Relaxed);
    assert_eq!(lost, u64::try_from(30 - kept.len()).unwrap());
}

#[test]
fn what_is_too_old_goes() {
    let bench = Bench::new();
    let mut spool = bench.open(SpoolLimits { age_max_us: 10_000_000, ..LIMITS });
    let (bytes, span) = frame(1);
    spool.append(&bytes, span).unwrap();
    spool.drop_aged(Timestamp::from_seconds(11));
    assert_eq!(bench.gaps(), []);
    spool.drop_aged(Timestamp::from_seconds(12));
    let gaps = bench.gaps();
    assert_eq!((gaps[0].from, gaps[0].to), (Timestamp(999_999), Timestamp(1_000_001)));
    assert_eq!(drain(&mut spool), []);
}

#[test]
fn other_files_in_the_folder_are_left_alone() {
    let bench = Bench::new();
    let strange = bench.dir.path().join("notes.jmb");
    std::fs::write(&strange, "mine").unwrap();
    let mut spool = bench.open(LIMITS);
    let (bytes, span) = frame(1);
    spool.append(&bytes, span).unwrap();
    assert!(Frames::of(&bytes).next().unwrap().is_ok());
    assert_eq!(drain(&mut spool), [1]);
    assert_eq!(std::fs::read_to_string(strange).unwrap(), "mine");
}

#[test]
fn other_users_read_nothing_of_the_spool() {
    let bench = Bench::new();
    let dir = bench.dir.path().join("spool");
    let (notes, counters) = (Arc::clone(&bench.notes), Arc::clone(&bench.counters));
    let mut spool = Spool::open(&dir, LIMITS, notes, counters).unwrap();
    let mut frame = Vec::new();
    Encoder::default().encode(&batch(1), &mut frame).unwrap();
    let at = Timestamp(1);
    spool.append(&frame, Span { first: at, last: at }).unwrap();
    crate::disk::durable_watermark::DurableWatermark::open(&dir, bench.notes.origin()).unwrap();
    crate::disk::rejected_batches::RejectedBatches::open(&dir, 1 << 20)
        .unwrap()
        .keep(&frame, "too long")
        .unwrap();
    // The folder, the lock, the segment, `kept`, and the folder `rejected`.
    let mut modes = bench.modes(&dir);
    modes.sort_unstable();
    assert_eq!(modes, [0o600, 0o600, 0o600, 0o700, 0o700]);
    assert_eq!(bench.modes(&dir.join("rejected")), [0o700, 0o600, 0o600]);
}

#[test]
fn a_spool_that_another_user_could_have_prepared_is_rejected() {
    use std::os::unix::fs::PermissionsExt;
    let bench = Bench::new();
    let open = bench.dir.path().join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
    let (notes, counters) = (Arc::clone(&bench.notes), Arc::clone(&bench.counters));
    let error = Spool::open(&open.join("spool"), LIMITS, notes, counters).unwrap_err();
    assert!(kernel::trust::is_untrusted(&error), "{error}");
    assert!(error.to_string().contains("chmod go-w"), "{error}");
}
