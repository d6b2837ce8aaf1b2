//! Reports counters that a source could not follow, and series beyond the limit.

use super::{SERIES_PER_SOURCE_MAX, SampleWriter, Sink};
use model::{Cause, DeviceId, Labels, Metric, Timestamp};

impl SampleWriter<'_> {
    /// Reports a gap: the counter could not be followed since `from`, and restarts now.
    pub(crate) fn lost(&mut self, metric: &Metric, labels: &[(&str, &str)], from: Timestamp) {
        self.sink.counts.implausible += 1;
        let labels = Labels::new(labels.iter().copied()).unwrap_or_default();
        let detail = format!(
            "{}{labels}: it fell, grew faster than possible, or may have wrapped; counting restarts now",
            metric.name
        );
        let (source, now) = (self.sink.source, self.sink.now);
        self.gap(source, (from, now), Cause::SourceBroken, &detail);
    }
}

impl Sink {
    /// Counts a sample of a series beyond the limit. All such samples of a device between two seals are one gap.
    pub(super) fn reject_series(&mut self, device: Option<&DeviceId>) {
        self.counts.series_rejected += 1;
        let (now, of) = (self.now, device.unwrap_or(&self.device));
        let is_it = |cause, other: &DeviceId| cause == Cause::SeriesRejected && other == of;
        if let Some(gap) = self.gaps.iter_mut().find(|gap| is_it(gap.cause, &gap.device)) {
            gap.to = now;
            return;
        }
        let is_known = self.before.0 > 0 && self.before < now;
        let from = if is_known { self.before } else { now.plus(-1) };
        let detail =
            format!("more than {SERIES_PER_SOURCE_MAX} series; those beyond have no samples");
        let source = self.source;
        let mut of = SampleWriter { sink: self, device, job: None };
        of.gap(source, (from, now), Cause::SeriesRejected, &detail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Unit;

    static LOAD: Metric = Metric::gauge("load_1m", Unit::Count, "");

    #[test]
    fn series_beyond_the_limit_are_one_gap_between_two_seals() {
        let mut sink = Sink::new(DeviceId::new("n1").unwrap());
        let tick = |sink: &mut Sink, at: i64| {
            sink.begin(Timestamp(at));
            for place in 0..SERIES_PER_SOURCE_MAX + 2 {
                sink.of_device().gauge(&LOAD, &[("place", &place.to_string())], 1.0);
            }
            let gaps = sink.take_gaps();
            sink.sealed();
            assert_eq!(gaps.len(), 1);
            (gaps[0].from.0, gaps[0].to.0, gaps[0].cause)
        };
        assert_eq!(tick(&mut sink, 10), (9, 10, Cause::SeriesRejected));
        assert_eq!(tick(&mut sink, 20), (10, 20, Cause::SeriesRejected), "one gap without a break");
        assert_eq!((sink.series(), sink.counts().series_rejected), (SERIES_PER_SOURCE_MAX, 4));
        sink.of_device().gauge(&LOAD, &[("place", "0")], 1.0);
        assert_eq!((sink.len(), sink.take_gaps()), (1, Vec::new()), "known series go on");
    }
}
