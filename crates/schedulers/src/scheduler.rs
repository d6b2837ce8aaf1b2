//! What every scheduler can be asked.

use crate::SchedulerError;
use async_trait::async_trait;
use jobs::Record;
use model::{ClusterId, Timestamp};

/// What a scheduler said in one round of calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// Jobs that are new, or of which something changed since the round before. Some may be told again.
    pub records: Vec<Record>,
    /// Whether more waits, so that the next round should follow at once.
    pub has_more: bool,
    /// What could not be read as a job, one sentence each, cut to a bounded number.
    pub refused: Vec<String>,
    /// How many calls, statements or programs this round took.
    pub calls: u32,
}

/// A scheduler that is asked for its jobs, round by round. It is read only, and never asked job by job.
#[async_trait]
pub trait Scheduler: Send {
    /// The name that its jobs bear.
    fn cluster(&self) -> &ClusterId;

    /// Asks what changed since the last round that did not fail; the first round after a start asks for
    /// everything that is not over, and for what ended since `from`.
    ///
    /// # Errors
    /// The scheduler does not answer in time, or answers what is no answer. The next round asks for the
    /// same again.
    async fn changes(&mut self, from: Timestamp, now: Timestamp)
    -> Result<Changes, SchedulerError>;
}
