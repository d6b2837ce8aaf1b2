//! Limits at which statements end, and their counts.

use crate::SqlError;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A limit at which a statement may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The text is too long.
    Length,
    /// The statement is nested too deeply, or has too many parts.
    Complexity,
    /// The limits of running and waiting statements are reached.
    Statements,
    /// The statement exceeded its time limit.
    Time,
    /// The statement needs more than its share of the memory.
    Memory,
    /// The result has too many rows.
    Rows,
}

impl Limit {
    /// Every limit.
    pub const ALL: [Self; 6] =
        [Self::Length, Self::Complexity, Self::Statements, Self::Time, Self::Memory, Self::Rows];

    /// Name of the limit in metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Length => "length",
            Self::Complexity => "complexity",
            Self::Statements => "statements",
            Self::Time => "time",
            Self::Memory => "memory",
            Self::Rows => "rows",
        }
    }

    const fn of(error: &SqlError) -> Option<Self> {
        match error {
            SqlError::TooLong(..) => Some(Self::Length),
            SqlError::TooComplex(_) => Some(Self::Complexity),
            SqlError::Busy(_) => Some(Self::Statements),
            SqlError::TooSlow(_) => Some(Self::Time),
            SqlError::Memory(_) => Some(Self::Memory),
            SqlError::TooManyRows(_) => Some(Self::Rows),
            _ => None,
        }
    }
}

/// Current load of the statements, and counts of those that ended at a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// Number of running statements.
    pub running: usize,
    /// Number of statements that wait for their permit.
    pub waiting: usize,
    /// Memory granted to them in bytes.
    pub memory_bytes: usize,
    /// Statements that ended at each limit since startup.
    pub ended: Vec<(Limit, u64)>,
    /// Number of workers that crashed on their statement since startup.
    pub deaths: u64,
}

/// Counts statements that end at a limit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ended(Arc<[AtomicU64; Limit::ALL.len()]>);

impl Ended {
    pub(crate) fn note(&self, error: &SqlError) {
        let limit = Limit::of(error);
        for (counter, one) in self.0.iter().zip(Limit::ALL) {
            counter.fetch_add(u64::from(limit == Some(one)), Ordering::Relaxed);
        }
    }

    pub(crate) fn counts(&self) -> Vec<(Limit, u64)> {
        let counts = self.0.iter().map(|counter| counter.load(Ordering::Relaxed));
        Limit::ALL.into_iter().zip(counts).collect()
    }
}
