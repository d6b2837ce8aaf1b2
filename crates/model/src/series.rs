//! Identity of a series.

use crate::{DeviceId, JobKey, Labels};
use std::sync::Arc;

/// The identity of a series. The order of the fields is the order of rows in a block.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Series {
    /// The device.
    pub device: DeviceId,
    /// Name of the metric.
    pub metric: Arc<str>,
    /// The job, or `None` for the whole device.
    pub job: Option<JobKey>,
    /// The part of the device, and labels added by a user.
    pub labels: Labels,
}
