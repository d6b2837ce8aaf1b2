//! Turns: limits on running and waiting statements. Statements that end at a limit are counted.

use crate::SqlError;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

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
    /// Number of statements that wait for their turn.
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

/// Limits on running and waiting statements. One user may take half of each, so that others are not starved.
#[derive(Debug)]
pub struct Turns {
    free: Arc<Semaphore>,
    running_max: usize,
    waiting: AtomicUsize,
    waiting_max: usize,
    users: UsersByKey,
}

/// A turn. Dropping it lets the next statement run.
#[derive(Debug)]
pub struct Turn {
    _one: OwnedSemaphorePermit,
    _own: OwnedSemaphorePermit,
    _presence: Present,
}

/// Reason why a statement got no turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoTurn {
    /// The limit of waiting statements is reached.
    Full,
    /// No turn became free in time.
    Late,
}

/// State of one user: their turns, and the number of their present and waiting statements.
#[derive(Debug)]
struct UserTurns {
    turns: Arc<Semaphore>,
    here: usize,
    waiting: usize,
}

type UsersByKey = Arc<Mutex<HashMap<Arc<str>, UserTurns>>>;

/// Registers a statement of a user until it is dropped.
#[derive(Debug)]
struct Present {
    user_key: Arc<str>,
    users: UsersByKey,
}

impl Present {
    /// Calls a function with the state of the user.
    fn with<T>(&self, does: impl FnOnce(&mut UserTurns) -> T) -> Option<T> {
        let mut users = self.users.lock();
        users.get_mut(&self.user_key).map(does)
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        let mut users = self.users.lock();
        if let Some(one) = users.get_mut(&self.user_key) {
            one.here = one.here.saturating_sub(1);
            if one.here == 0 {
                users.remove(&self.user_key);
            }
        }
    }
}

/// Counts a waiting statement until it is dropped.
struct Waiting<'a>(&'a AtomicUsize, &'a Present);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
        self.1.with(|one| one.waiting = one.waiting.saturating_sub(1));
    }
}

impl Turns {
    /// Creates the limits of running and waiting statements.
    pub fn new(running_max: usize, waiting_max: usize) -> Self {
        let free = Arc::new(Semaphore::new(running_max));
        let waiting = AtomicUsize::new(0);
        Self { free, running_max, waiting, waiting_max, users: UsersByKey::default() }
    }

    /// Takes a turn for this user, at most within the given time.
    ///
    /// # Errors
    /// Too many statements wait already, or no turn became free in time.
    pub async fn take(&self, user_key: &Arc<str>, within: Duration) -> Result<Turn, NoTurn> {
        let (presence, own) = self.enter(user_key);
        let free = Arc::clone(&self.free);
        let mut got = Arc::clone(&own).try_acquire_owned().ok();
        if let Some(own) = got.take() {
            match Arc::clone(&free).try_acquire_owned() {
                Ok(one) => return Ok(Turn { _one: one, _own: own, _presence: presence }),
                Err(_) => got = Some(own),
            }
        }
        let others = self.waiting.fetch_add(1, Ordering::Relaxed);
        let of_his = presence.with(|one| {
            one.waiting += 1;
            one.waiting - 1
        });
        let waiting = Waiting(&self.waiting, &presence);
        if others >= self.waiting_max || of_his.is_none_or(|his| his >= half(self.waiting_max)) {
            return Err(NoTurn::Full);
        }
        let both = async {
            let own = match got {
                Some(own) => own,
                None => own.acquire_owned().await?,
            };
            Ok::<_, AcquireError>((own, free.acquire_owned().await?))
        };
        // The semaphores are never closed. `None` therefore means a timeout.
        let both = timeout(within, both).await.ok().and_then(Result::ok);
        drop(waiting);
        let (own, one) = both.ok_or(NoTurn::Late)?;
        Ok(Turn { _one: one, _own: own, _presence: presence })
    }

    fn enter(&self, user_key: &Arc<str>) -> (Present, Arc<Semaphore>) {
        let mut users = self.users.lock();
        let one = users.entry(Arc::clone(user_key)).or_insert_with(|| UserTurns {
            turns: Arc::new(Semaphore::new(half(self.running_max))),
            here: 0,
            waiting: 0,
        });
        one.here += 1;
        let turns = Arc::clone(&one.turns);
        drop(users);
        (Present { user_key: Arc::clone(user_key), users: Arc::clone(&self.users) }, turns)
    }

    /// Number of running statements.
    pub fn running(&self) -> usize {
        self.running_max.saturating_sub(self.free.available_permits())
    }

    /// Number of waiting statements.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

/// Share of one user.
fn half(all: usize) -> usize {
    (all / 2).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn one_user_leaves_half_of_the_turns_to_others() {
        let turns = Arc::new(Turns::new(4, 8));
        let (one, other): (Arc<str>, Arc<str>) = ("uid 1".into(), "uid 2".into());
        let first = turns.take(&one, LONG).await.unwrap();
        let second = turns.take(&one, LONG).await.unwrap();
        let wait = |user_key: &Arc<str>| {
            let (turns, user_key) = (Arc::clone(&turns), Arc::clone(user_key));
            tokio::spawn(async move { turns.take(&user_key, LONG).await })
        };
        let more: Vec<_> = (0..4).map(|_| wait(&one)).collect();
        while turns.waiting() < 4 {
            tokio::task::yield_now().await;
        }
        assert_eq!(
            turns.take(&one, LONG).await.unwrap_err(),
            NoTurn::Full,
            "half of those who wait"
        );
        assert_eq!(turns.running(), 2);
        let none = Duration::ZERO;
        let others = (turns.take(&other, none).await, turns.take(&other, none).await);
        assert!(others.0.is_ok() && others.1.is_ok());
        assert_eq!(turns.take(&other, none).await.unwrap_err(), NoTurn::Late);
        drop((first, second, others));
        for turn in more {
            drop(turn.await.unwrap().unwrap());
        }
        assert_eq!((turns.running(), turns.waiting()), (0, 0));
        assert!(turns.users.lock().is_empty());
    }

    #[tokio::test]
    async fn who_goes_away_while_he_waits_is_forgotten() {
        let turns = Turns::new(1, 8);
        let one: Arc<str> = "uid 1".into();
        let held = turns.take(&one, LONG).await.unwrap();
        assert!(timeout(Duration::from_millis(10), turns.take(&one, LONG)).await.is_err());
        assert_eq!((turns.waiting(), turns.users.lock()[&one].here), (0, 1));
        drop(held);
        assert!(turns.take(&one, Duration::ZERO).await.is_ok());
    }
}
