//! Numbered batches with known content, so that the expected content of any store can be computed.
//!
//! Batch `n` has a sample of each of eight series, a minute after batch `n - 1` by the store's own clock.
//! That clock runs as fast as batches arrive: a second of writing is many hours of a store's life.

use model::{
    Batch, Boot, DeviceId, Kind, Labels, Metric, Origin, Point, RollupWindows, Series, SeriesEntry,
    SeriesTable, Tick, Timestamp, Unit,
};
use senders::Limits;
use std::sync::Arc;
use storage::{Incoming, RetentionLimits};
use store::Settings;
use wire::{Decoder, Encoder, Frames};

/// 2026-01-01, the time of batch 0.
const T0: i64 = 1_767_225_600_000_000;
/// Between two batches.
const STEP_US: i64 = 60 * Timestamp::SECOND;
const HOUR_US: i64 = 60 * STEP_US;
/// A counter restarts after this number of batches.
const RUN: u64 = 200;
/// Retention of samples, and of rollups of each length.
pub(crate) const KEEP_US: i64 = 12 * HOUR_US;
pub(crate) const KEEP_ROLLUPS_US: [i64; 2] = [48 * HOUR_US, 96 * HOUR_US];

/// The series, in the order of [`Series`]: device, metric, label. The last one's samples come late.
const SERIES: [(&str, &str, Option<&str>); 8] = [
    ("n1", "a_total", None),
    ("n1", "b", None),
    ("n2", "c", None),
    ("n2", "d", Some("0")),
    ("n2", "d", Some("1")),
    ("n2", "d", Some("2")),
    ("n2", "d", Some("3")),
    ("n3", "late", None),
];
/// Samples of a batch.
pub(crate) const SAMPLES: u64 = SERIES.len() as u64;

/// Limits that are reached all the time, so that all maintenance is always in progress.
pub(crate) fn settings() -> Settings {
    let keep = |age_us| RetentionLimits { age_us, ..RetentionLimits::ALL };
    Settings {
        log_bytes_max: 256 << 10,
        segment_bytes: 4 << 10,
        head_samples_max: 50 * SAMPLES,
        row_group_rows: 64,
        page_rows: 16,
        senders: Limits { missing_grace_us: 0, ..Limits::default() },
        merge_blocks: 2,
        block_bytes_max: 64 << 10,
        settle_after_us: 2 * HOUR_US,
        settle_step_us: HOUR_US,
        keep_samples: keep(KEEP_US),
        keep_rollups: KEEP_ROLLUPS_US.map(keep),
        ..Settings::default()
    }
}

/// The time at which a batch is sent.
pub(crate) fn sent_at(number: u64) -> i64 {
    T0 + i64::try_from(number).unwrap_or(i64::MAX / STEP_US / 2) * STEP_US
}

/// The sample of a batch in the series at an index. No two batches share an instant.
fn point(place: usize, number: u64) -> Point {
    let (at, n) = (sent_at(number), number as f64);
    let (at, value, start) = match place {
        0 => (at, (number % RUN) as f64 * 3.0, Some(Timestamp(sent_at(number - number % RUN)))),
        1 => (at, (number * 7919 % 1000) as f64 / 10.0, None),
        2 => (at, n * 0.123_456_789, None),
        7 => {
            let late = i64::from(u8::try_from(number % 3).unwrap_or(0));
            (at - late * 10 * STEP_US + late * Timestamp::SECOND, n, None)
        }
        _ => (at, (n + place as f64) / 10.0, None),
    };
    Point { at: Timestamp(at), value, start }
}

/// The samples of the batches up to a number in the series at an index, ordered by time.
pub(crate) fn points(place: usize, last: u64) -> Vec<Point> {
    let mut points: Vec<Point> = (0..=last).map(|number| point(place, number)).collect();
    points.sort_by_key(|point| point.at);
    points
}

/// The number of the newest batch, from the newest sample of the first series.
pub(crate) fn number_at(at: Timestamp) -> Option<u64> {
    u64::try_from(at.0.checked_sub(T0)? / STEP_US).ok()
}

/// The windows of samples.
pub(crate) fn windows(points: &[Point], window_us: i64) -> Vec<(Timestamp, model::Rollup)> {
    let mut windows = RollupWindows::new(window_us);
    let mut ended: Vec<_> = points.iter().filter_map(|point| windows.push(*point)).collect();
    ended.extend(windows.finish());
    ended
}

fn entry(place: usize, start: Option<Timestamp>) -> Option<SeriesEntry> {
    let (device, metric, label) = *SERIES.get(place)?;
    let (kind, divisor) = if place == 0 { (Kind::Counter, 1000) } else { (Kind::Gauge, 10) };
    let (name, help) = (metric.into(), "a number".into());
    let labels = match label {
        Some(cpu) => Labels::new([("cpu", cpu)]).ok()?,
        None => Labels::default(),
    };
    Some(SeriesEntry {
        metric: Arc::new(Metric { name, unit: Unit::Count, kind, help, divisor, assumed: false }),
        device: DeviceId::new(device).ok()?,
        job: None,
        labels,
        start,
    })
}

/// All series, in order.
pub(crate) fn series() -> Vec<Series> {
    (0..SERIES.len()).filter_map(|place| entry(place, None)).map(|entry| entry.series()).collect()
}

/// Their sender, always of one boot.
#[derive(Debug, Default)]
pub(crate) struct Sender {
    encoder: Encoder,
    decoder: Decoder,
}

impl Sender {
    /// A batch as the server passes it to the store.
    pub(crate) fn batch(&mut self, number: u64) -> Result<Incoming, String> {
        let mut points: Vec<(usize, Point)> =
            (0..SERIES.len()).map(|place| (place, point(place, number))).collect();
        points.sort_by_key(|(_, point)| point.at);
        let entries =
            (0..SERIES.len()).filter_map(|place| entry(place, point(place, number).start));
        let ticks = points.chunk_by(|a, b| a.1.at == b.1.at).filter_map(|same| {
            let (_, first) = same.first()?;
            Some(Tick { at: first.at, samples: u32::try_from(same.len()).ok()? })
        });
        let batch = Batch {
            origin: Origin::new("numbers").map_err(|error| error.to_string())?,
            boot: Boot([1; 16]),
            seq: number,
            table: Arc::new(SeriesTable { entries: entries.collect() }),
            ticks: ticks.collect(),
            index: points.iter().filter_map(|(place, _)| u32::try_from(*place).ok()).collect(),
            values: points.iter().map(|(_, point)| point.value).collect(),
            gaps: Vec::new(),
            jobs: Vec::new(),
        };
        let mut frame = Vec::new();
        self.encoder.encode(&batch, &mut frame).map_err(|error| error.to_string())?;
        let decoded = match Frames::of(&frame).next() {
            Some(Ok(one)) => self.decoder.decode(&one).map_err(|error| error.to_string())?,
            other => return Err(format!("{other:?} is no frame")),
        };
        Ok(Incoming { frame, decoded, received: Timestamp(sent_at(number)) })
    }
}
