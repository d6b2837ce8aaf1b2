//! Errors of polling a scheduler.

use std::time::Duration;

/// Why a poll failed. `target` is the address, socket or program that jobmeter polled.
#[derive(Debug, thiserror::Error)]
pub enum SchedulerError {
    /// The target is unreachable, or the connection broke.
    #[error("{target}: {what}")]
    Unreachable {
        /// The address, socket or program.
        target: String,
        /// The system's message.
        what: String,
    },
    /// The target did not answer in time.
    #[error("{target} did not respond within {} s", time.as_secs_f64())]
    Silent {
        /// The address, socket or program.
        target: String,
        /// The time limit.
        time: Duration,
    },
    /// The target rejected the request.
    #[error("{target} rejected the request: {what}")]
    Rejected {
        /// The address, socket or program.
        target: String,
        /// The target's message.
        what: String,
    },
    /// The target has nothing that jobmeter can poll.
    #[error("{target}: {what}")]
    Unusable {
        /// The address, socket or program.
        target: String,
        /// What is missing or wrong, and what to do.
        what: String,
    },
    /// The answer has an unknown format.
    #[error("{target} sent an answer of unknown format: {what}")]
    Answer {
        /// The address, socket or program.
        target: String,
        /// What is wrong with the answer, and where.
        what: String,
    },
}
