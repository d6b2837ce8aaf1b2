//! What identifies a line of samples.

use crate::{DeviceId, JobKey, Labels};
use std::sync::Arc;

/// The identity of a line of samples. The order of the fields is the order of rows in a block.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Series {
    /// The thing measured.
    pub device: DeviceId,
    /// Name of the metric.
    pub metric: Arc<str>,
    /// The job for which the kernel counted, or `None` for the whole device.
    pub job: Option<JobKey>,
    /// Parts of the device, and what a user added.
    pub labels: Labels,
}
