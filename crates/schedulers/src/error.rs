//! Why a scheduler gave no answer.

use std::time::Duration;

/// Why a scheduler gave no answer. `whom` is what was asked: an address, a socket, a program.
#[derive(Debug, thiserror::Error)]
pub enum SchedulerError {
    /// It cannot be reached, or the connection broke.
    #[error("{whom}: {what}")]
    Unreachable {
        /// What was asked.
        whom: String,
        /// The system's words.
        what: String,
    },
    /// It did not answer in time.
    #[error("{whom} gave no answer in {} s", time.as_secs_f64())]
    Silent {
        /// What was asked.
        whom: String,
        /// How long was waited.
        time: Duration,
    },
    /// It refused.
    #[error("{whom} refused: {what}")]
    Refused {
        /// What was asked.
        whom: String,
        /// Its words.
        what: String,
    },
    /// Its answer is none that is known.
    #[error("{whom} answered what is no answer of its kind: {what}")]
    Answer {
        /// What was asked.
        whom: String,
        /// What is wrong with it, and where.
        what: String,
    },
}
