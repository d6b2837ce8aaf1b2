//! A missing time of a device.

use model::{Cause, DeviceId, Timestamp};

/// A missing time of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    pub(crate) device: DeviceId,
    /// The protocol, or protocol and metric.
    pub(crate) source: String,
    pub(crate) span: (Timestamp, Timestamp),
    pub(crate) cause: Cause,
    pub(crate) detail: String,
}
