//! The interface of every scheduler.

use crate::SchedulerError;
use async_trait::async_trait;
use jobs::JobRecord;
use model::{ClusterId, Timestamp};

/// The result of one round of calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// Jobs that are new or changed since the previous round. Some may be repeated.
    pub records: Vec<JobRecord>,
    /// Whether more jobs wait, so that the next round should follow at once.
    pub has_more: bool,
    /// What could not be read as a job, one message each, up to a bounded number.
    pub rejected: Vec<String>,
    /// Number of calls, statements or programs in this round.
    pub calls: u32,
}

/// A scheduler that jobmeter polls round by round: read-only, and never job by job.
#[async_trait]
pub trait Scheduler: Send {
    /// The cluster of its jobs' keys.
    fn cluster(&self) -> &ClusterId;

    /// Returns the changes since the last successful round. The first round returns all jobs that are not
    /// over, and those that ended since `from`.
    ///
    /// # Errors
    /// The scheduler does not answer in time, or its answer is invalid. The next round repeats the query.
    async fn changes(&mut self, from: Timestamp, now: Timestamp)
    -> Result<Changes, SchedulerError>;
}
