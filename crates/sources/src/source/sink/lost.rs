//! Reports counters that a source could not follow.

use super::Of;
use model::{Cause, Labels, Metric, Timestamp};

impl Of<'_> {
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
