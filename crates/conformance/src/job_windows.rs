//! Windows of a job (decisions 0010 and 0024): the single rule for `metrics_by_job_summary` of SQL and for
//! `get_metrics` with a job and `summary`.

use crate::rollups::wanted;
use crate::subject::{Sample, Window};
use model::{DeviceId, JobKey, Timestamp};

/// Length of a summary's window, in microseconds.
pub const JOB_WINDOW_US: i64 = 300 * Timestamp::SECOND;

/// A job's allocation of a device. Without a stop, the job still runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobAllocation {
    /// The device.
    pub device: DeviceId,
    /// When the job started there.
    pub start: Timestamp,
    /// When it stopped there.
    pub stop: Option<Timestamp>,
}

/// The windows of a job, of samples that are ordered by series and time.
///
/// A window with samples of the job belongs to the job, whenever the window begins. A window of node samples
/// belongs to the job if the window begins after the job's start and before its stop on that device. Windows
/// of other jobs never belong to it.
pub fn job_windows(samples: &[Sample], job: &JobKey, allocations: &[JobAllocation]) -> Vec<Window> {
    let begins_within = |window: &Window| {
        allocations.iter().any(|allocation| {
            allocation.device == window.series.device
                && allocation.start < window.start
                && allocation.stop.is_none_or(|stop| window.start < stop)
        })
    };
    let mut windows = wanted(samples, JOB_WINDOW_US);
    windows.retain(|window| match &window.series.job {
        Some(owner) => owner == job,
        None => begins_within(window),
    });
    windows
}
