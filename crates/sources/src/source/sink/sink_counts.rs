//! Counts of rejected values.

/// Counts of rejected values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinkCounts {
    /// Values that are NaN or infinite.
    pub nonsense: u64,
    /// Impossible values ([`ValueBounds`](crate::ValueBounds)).
    pub implausible: u64,
    /// Samples of series beyond [`SERIES_PER_SOURCE_MAX`](crate::SERIES_PER_SOURCE_MAX).
    pub series_rejected: u64,
    /// Labels that are too long or malformed.
    pub labels_rejected: u64,
}

impl SinkCounts {
    /// The sum of all counts.
    pub const fn all(&self) -> u64 {
        self.nonsense + self.implausible + self.series_rejected + self.labels_rejected
    }
}
