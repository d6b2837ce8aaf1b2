//! What a source says of a counter that it could not follow.

use super::Of;
use model::{Cause, Labels, Metric, Timestamp};

impl Of<'_> {
    /// Tells that a counter could not be followed since then, and counts anew.
    pub(crate) fn lost(&mut self, metric: &Metric, labels: &[(&str, &str)], from: Timestamp) {
        self.sink.counts.implausible += 1;
        let labels = Labels::new(labels.iter().copied()).unwrap_or_default();
        let detail = format!(
            "{}{labels}: it fell, grew by more than is possible, or may have gone round; it counts anew",
            metric.name
        );
        let (source, now) = (self.sink.source, self.sink.now);
        self.sink.gap(source, from, now, Cause::SourceBroken, &detail);
    }
}
