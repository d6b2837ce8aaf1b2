//! Retention of samples and rollups.

/// Retention by age and size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionLimits {
    /// Most bytes on disk; the oldest are deleted first.
    pub bytes_max: u64,
    /// Older data is deleted.
    pub age_us: i64,
}

impl RetentionLimits {
    /// Unlimited.
    pub const ALL: Self = Self { bytes_max: u64::MAX, age_us: i64::MAX };
}
