//! Samples held in memory in case a user requests them: those of readings between a source's ticks.
//!
//! The memory is allocated once and never grows; new samples evict the oldest. A sample leaves
//! once: to be sealed, or evicted.

use super::{Sink, SinkPosition};
use model::{Tick, Timestamp};
use std::collections::VecDeque;
use std::time::Duration;

/// Bytes of a sample: its series index and its value.
const SAMPLE_BYTES: usize = size_of::<u32>() + size_of::<f64>();
/// Divisor: the part of the memory for ticks.
const TICKS_PART: usize = 4;

/// Extra time: readings continue while requested samples wait to be sealed.
const WANTED_TIME: Duration = Duration::from_secs(5);

/// Limits of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingLimits {
    /// Maximum age of samples.
    pub time: Duration,
    /// Interval of readings.
    pub period: Duration,
    /// Maximum memory.
    pub bytes_max: usize,
}

#[derive(Debug)]
pub(super) struct Ring {
    keep: RingLimits,
    time_us: i64,
    ticks: VecDeque<Tick>,
    index: VecDeque<u32>,
    values: VecDeque<f64>,
    ticks_max: usize,
    samples_max: usize,
}

impl Ring {
    fn new(keep: RingLimits) -> Self {
        let time = keep.time + WANTED_TIME;
        let readings = time.as_micros() / keep.period.as_micros().max(1);
        let readings = usize::try_from(readings).unwrap_or(usize::MAX).saturating_add(2);
        let ticks_max = readings.min(keep.bytes_max / TICKS_PART / size_of::<Tick>()).max(1);
        let left = keep.bytes_max.saturating_sub(ticks_max * size_of::<Tick>());
        let samples_max = left / SAMPLE_BYTES;
        Self {
            time_us: i64::try_from(keep.time.as_micros()).unwrap_or(i64::MAX),
            ticks: VecDeque::with_capacity(ticks_max),
            index: VecDeque::with_capacity(samples_max),
            values: VecDeque::with_capacity(samples_max),
            keep,
            ticks_max,
            samples_max,
        }
    }

    /// Adds the samples of one reading. Returns the number of samples evicted early. Samples up to `wanted`
    /// have no maximum age until their release.
    fn push(
        &mut self,
        at: Timestamp,
        (index, values): (&[u32], &[f64]),
        wanted: Option<Timestamp>,
    ) -> u64 {
        let (mut cut, count) = (0, index.len());
        // The clock was set back: evict later samples, as they would never reach the maximum age.
        while self.ticks.back().is_some_and(|tick| tick.at > at) {
            cut += u64::from(self.forget_oldest());
        }
        let time_us = self.time_us;
        let is_old = |tick: &Tick| at.since(tick.at) > time_us && Some(tick.at) > wanted;
        while self.ticks.front().is_some_and(is_old) {
            self.forget_oldest();
        }
        if count > self.samples_max {
            return cut + u64::try_from(count).unwrap_or(u64::MAX);
        }
        while self.values.len() + count > self.samples_max || self.ticks.len() >= self.ticks_max {
            cut += u64::from(self.forget_oldest());
        }
        let samples = u32::try_from(count).unwrap_or(u32::MAX);
        self.ticks.push_back(Tick { at, samples });
        self.index.extend(index);
        self.values.extend(values);
        cut
    }

    fn forget_oldest(&mut self) -> u32 {
        let Some(tick) = self.ticks.pop_front() else { return 0 };
        let count = usize::try_from(tick.samples).unwrap_or(usize::MAX);
        self.index.drain(..count.min(self.index.len()));
        self.values.drain(..count.min(self.values.len()));
        tick.samples
    }

    /// The indexes of the series with samples in the ring.
    pub(super) fn places(&self) -> impl Iterator<Item = u32> {
        self.index.iter().copied()
    }
}

impl Sink {
    /// Sets the limits of [`Self::keep_back`]; `None` holds nothing back. A change of the limits drops all
    /// samples in the ring.
    pub fn set_keep(&mut self, keep: Option<RingLimits>) {
        if self.ring.as_ref().map(|ring| ring.keep) != keep {
            self.ring = keep.map(Ring::new);
        }
    }

    /// Moves the samples pushed since the mark into the ring instead of sealing them. Samples up to `wanted`
    /// stay until their release, at any age.
    pub fn keep_back(&mut self, mark: SinkPosition, wanted: Option<Timestamp>) {
        if let Some(ring) = &mut self.ring {
            let mut begin = 0;
            for tick in &self.ticks {
                let end = begin + usize::try_from(tick.samples).unwrap_or(usize::MAX);
                let new = begin.max(mark.0)..end.max(mark.0);
                if let (Some(index), Some(values)) =
                    (self.index.get(new.clone()), self.values.get(new))
                    && !index.is_empty()
                {
                    self.kept_cut += ring.push(tick.at, (index, values), wanted);
                }
                begin = end;
            }
        }
        self.cut_back(mark);
    }

    /// Moves samples up to `until` from the ring to the next seal, oldest first. Stops before a further
    /// reading once `most` samples have moved. Returns whether more are left.
    pub fn release(&mut self, until: Timestamp, most: usize) -> bool {
        let Some(ring) = &mut self.ring else { return false };
        let mut moved = 0;
        while ring.ticks.front().is_some_and(|tick| tick.at <= until) {
            if moved >= most {
                return true;
            }
            let Some(tick) = ring.ticks.pop_front() else { break };
            let count = usize::try_from(tick.samples).unwrap_or(usize::MAX);
            self.index.extend(ring.index.drain(..count.min(ring.index.len())));
            self.values.extend(ring.values.drain(..count.min(ring.values.len())));
            self.ticks.push(tick);
            moved = moved.saturating_add(count);
        }
        false
    }

    /// Bytes of the samples in the ring.
    pub fn kept_bytes(&self) -> usize {
        let bytes =
            |ring: &Ring| ring.values.len() * SAMPLE_BYTES + ring.ticks.len() * size_of::<Tick>();
        self.ring.as_ref().map_or(0, bytes)
    }

    /// Samples evicted early since the start.
    pub const fn kept_cut(&self) -> u64 {
        self.kept_cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{DeviceId, Metric, Unit};

    static LOAD: Metric = Metric::gauge("load_1m", Unit::Count, "");
    static IDLE: Metric = Metric::gauge("idle", Unit::Count, "");

    fn sink(seconds: u64, bytes_max: usize) -> Sink {
        let mut sink = Sink::new(DeviceId::new("n1").unwrap());
        let time = Duration::from_secs(seconds);
        sink.set_keep(Some(RingLimits { time, period: Duration::from_secs(1), bytes_max }));
        sink
    }

    fn read(sink: &mut Sink, second: i64, value: f64, is_kept: bool) {
        let mark = sink.mark();
        sink.begin(Timestamp::from_seconds(second));
        sink.of_device().gauge(&LOAD, &[], value);
        sink.of_device().gauge(&LOAD, &[("b", "1")], -value);
        if is_kept {
            sink.keep_back(mark, None);
        }
    }

    fn seconds(sink: &Sink) -> Vec<(i64, f64)> {
        sink.samples().map(|(_, at, value)| (at.0 / 1_000_000, value)).collect()
    }

    #[test]
    fn held_back_samples_are_released_once_and_only_on_request() {
        let mut sink = sink(60, 1 << 16);
        read(&mut sink, 0, 1.0, false);
        read(&mut sink, 1, 2.0, true);
        read(&mut sink, 2, 3.0, true);
        assert_eq!(seconds(&sink), [(0, 1.0), (0, -1.0)]);
        assert!(!sink.release(Timestamp::from_seconds(1), 100));
        assert_eq!(seconds(&sink), [(0, 1.0), (0, -1.0), (1, 2.0), (1, -2.0)]);
        sink.sealed();
        assert!(!sink.release(Timestamp::from_seconds(1), 100));
        assert!(sink.is_empty());
        read(&mut sink, 3, 4.0, true);
        assert!(sink.release(Timestamp::from_seconds(3), 1), "one reading at a time");
        assert_eq!(seconds(&sink), [(2, 3.0), (2, -3.0)]);
        assert!(!sink.release(Timestamp::from_seconds(3), 1));
        assert_eq!((sink.len(), sink.kept_bytes(), sink.kept_cut()), (4, 0, 0));
    }

    #[test]
    fn the_oldest_samples_are_evicted_by_age_or_for_lack_of_memory() {
        let mut old = sink(2, 1 << 16);
        (1..=5).for_each(|second| read(&mut old, second, 1.0, true));
        old.release(Timestamp::from_seconds(9), 100);
        assert_eq!(seconds(&old).first(), Some(&(3, 1.0)));
        assert_eq!(old.kept_cut(), 0, "an eviction at the maximum age is not early");
        let mut wanted = sink(2, 1 << 16);
        for second in 1..=5 {
            let mark = wanted.mark();
            read(&mut wanted, second, 1.0, false);
            wanted.keep_back(mark, Some(Timestamp::from_seconds(2)));
        }
        wanted.release(Timestamp::from_seconds(2), 100);
        assert_eq!(seconds(&wanted).first(), Some(&(1, 1.0)), "requested samples wait");
        // Space for four ticks and sixteen samples.
        let mut full = sink(60, 4 * 64);
        (1..=5).for_each(|second| read(&mut full, second, 1.0, true));
        assert!(full.kept_bytes() <= 256);
        full.release(Timestamp::from_seconds(9), 100);
        let left = full.len();
        assert_eq!(seconds(&full).last(), Some(&(5, -1.0)));
        assert_eq!(left + usize::try_from(full.kept_cut()).unwrap(), 10);
        assert!(full.kept_cut() > 0);
        let mut set_back = sink(60, 1 << 16);
        [7, 8, 3, 4].iter().for_each(|second| read(&mut set_back, *second, 1.0, true));
        set_back.release(Timestamp::from_seconds(4), 100);
        assert_eq!((seconds(&set_back).first(), set_back.kept_cut()), (Some(&(3, 1.0)), 4));
        let mut none = sink(60, 16);
        read(&mut none, 1, 1.0, true);
        assert_eq!((none.kept_bytes(), none.kept_cut()), (0, 2));
    }

    #[test]
    fn a_series_with_held_back_samples_keeps_its_slot() {
        let mut sink = sink(60, 1 << 16);
        let mark = sink.mark();
        sink.begin(Timestamp::from_seconds(1));
        sink.of_device().gauge(&IDLE, &[], 7.0);
        sink.keep_back(mark, None);
        for second in 2..300 {
            sink.begin(Timestamp::from_seconds(second));
            sink.of_device().gauge(&LOAD, &[], 1.0);
            sink.sealed();
        }
        sink.of_device().gauge(&LOAD, &[("new", "1")], 1.0);
        sink.sealed();
        sink.release(Timestamp::from_seconds(1), 100);
        let kept: Vec<_> = sink.samples().map(|(e, _, v)| (e.metric.name.clone(), v)).collect();
        assert_eq!(kept, [("idle".into(), 7.0)]);
        (0..3).for_each(|_| sink.sealed());
        assert_eq!(sink.series(), 3, "the release marked the series as live");
    }

    #[test]
    fn other_limits_drop_held_back_samples() {
        let mut sink = sink(60, 1 << 16);
        read(&mut sink, 1, 1.0, true);
        sink.set_keep(None);
        read(&mut sink, 2, 1.0, true);
        assert!(!sink.release(Timestamp::from_seconds(9), 100));
        assert_eq!((sink.len(), sink.kept_bytes()), (0, 0));
    }
}
