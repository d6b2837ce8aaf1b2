//! The turns of statements: so many run at a time, so many wait, and each that ends at a limit is counted.

use crate::SqlError;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// A limit that a statement may end at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The text is too long.
    Length,
    /// Too many run and wait already.
    Statements,
    /// It took too long.
    Time,
    /// It needs more memory than is left.
    Memory,
    /// The answer has too many rows.
    Rows,
}

impl Limit {
    /// Every limit.
    pub const ALL: [Self; 5] =
        [Self::Length, Self::Statements, Self::Time, Self::Memory, Self::Rows];

    /// The word by which it is told.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Length => "length",
            Self::Statements => "statements",
            Self::Time => "time",
            Self::Memory => "memory",
            Self::Rows => "rows",
        }
    }

    const fn of(error: &SqlError) -> Option<Self> {
        match error {
            SqlError::TooLong(..) => Some(Self::Length),
            SqlError::Busy(_) => Some(Self::Statements),
            SqlError::TooSlow(_) => Some(Self::Time),
            SqlError::Memory(_) => Some(Self::Memory),
            SqlError::TooManyRows(_) => Some(Self::Rows),
            _ => None,
        }
    }
}

/// What the statements take now, and how many ended at a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// Statements that run.
    pub running: usize,
    /// Statements that wait for their turn.
    pub waiting: usize,
    /// Memory that they hold, in bytes.
    pub memory_bytes: usize,
    /// Statements that ended at a limit, since the start.
    pub ended: Vec<(Limit, u64)>,
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

/// Who runs and who waits.
#[derive(Debug)]
pub(crate) struct Turns {
    free: Arc<Semaphore>,
    running_max: usize,
    waiting: AtomicUsize,
    waiting_max: usize,
}

/// Counts one who waits, as long as he does.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Turns {
    pub(crate) fn new(running_max: usize, waiting_max: usize) -> Self {
        let free = Arc::new(Semaphore::new(running_max));
        Self { free, running_max, waiting: AtomicUsize::new(0), waiting_max }
    }

    /// A turn, when it comes within this time.
    pub(crate) async fn take(&self, within: Duration) -> Result<OwnedSemaphorePermit, SqlError> {
        let busy = || SqlError::Busy(self.running_max);
        if let Ok(turn) = Arc::clone(&self.free).try_acquire_owned() {
            return Ok(turn);
        }
        let others = self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.waiting);
        if others >= self.waiting_max {
            return Err(busy());
        }
        let turn = timeout(within, Arc::clone(&self.free).acquire_owned()).await;
        // The semaphore is never closed: no turn came in time.
        turn.ok().and_then(Result::ok).ok_or_else(busy)
    }

    pub(crate) fn running(&self) -> usize {
        self.running_max.saturating_sub(self.free.available_permits())
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}
