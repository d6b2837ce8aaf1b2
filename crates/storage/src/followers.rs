//! Followers: readers that receive each stored sample once, in the order of storing (decision 0060).

use crate::answer::TimeSlice;
use crate::error::StorageError;
use model::{Gap, Timestamp};

/// Most followers of a store, removed ones included.
pub const FOLLOWERS_MAX: usize = 32;
/// Longest name of a follower, in bytes.
pub const FOLLOWER_NAME_BYTES_MAX: usize = 128;

/// The followers of a store. Calls block.
pub trait Followers: Send + Sync {
    /// Adds a follower, or continues one that exists or was removed less than 7 days ago. `from` counts for a new one
    /// alone. The slice that is open is void.
    ///
    /// # Errors
    /// The name is not allowed, there are too many followers, the positions cannot be read or written, or the end of the order
    /// of storing is not certain now.
    fn follow(&self, name: &str, from: FollowFrom) -> Result<(), FollowError>;

    /// The samples and gaps stored after the follower's position, at most `rows_max` samples (at least one); `None` if
    /// there are none. A slice that was not confirmed begins there again, and its number is void.
    ///
    /// # Errors
    /// There is no such follower, another call for it came between ([`FollowError::Void`]), or the samples cannot be read now.
    fn next(&self, name: &str, rows_max: usize) -> Result<Option<FollowSlice>, FollowError>;

    /// Moves the position past the slice that [`Self::next`] returned last. It is on the disk then.
    ///
    /// # Errors
    /// It is another slice ([`FollowError::Void`]), or the position cannot be written: then the slice remains open.
    fn confirm(&self, name: &str, number: u64) -> Result<(), FollowError>;

    /// Removes a follower. Its position is kept for 7 days.
    ///
    /// # Errors
    /// There is no such follower, or the positions cannot be written.
    fn remove(&self, name: &str) -> Result<(), FollowError>;

    /// Every follower, removed ones included, ordered by name.
    ///
    /// # Errors
    /// The positions cannot be read.
    fn list(&self) -> Result<Vec<FollowerInfo>, FollowError>;
}

/// The beginning of a new follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowFrom {
    /// Samples stored from now on.
    Now,
    /// All stored samples.
    All,
    /// Samples of this time and later, whenever they are stored.
    Time(Timestamp),
}

/// Samples and gaps that follow each other in the order of storing.
#[derive(Clone, Debug, PartialEq)]
pub struct FollowSlice {
    /// Identifies it for [`Followers::confirm`], until the store is closed.
    pub number: u64,
    /// The follower's position, at which it begins. A slice that was not confirmed begins there again.
    pub at: FollowMark,
    /// The samples, ordered by time.
    pub samples: TimeSlice,
    /// Stored gaps that were reported or grew. Bounded by the limits of stored gaps.
    pub gaps: Vec<Gap>,
    /// Samples that are lost to this follower.
    pub lost: Option<OutputGap>,
}

/// A position of a follower, comparable after a restart, too: a receiver that stored the samples of a slice together with
/// this mark knows later whether the slice was confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FollowMark {
    /// When the follower began, in microseconds since 1970.
    pub begun: i64,
    /// Its confirmations since.
    pub confirmed: u64,
}

/// Samples that were deleted or damaged before a follower read them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputGap {
    /// The first instant that may be missing.
    pub from: Timestamp,
    /// The last instant.
    pub to: Timestamp,
    /// Number of samples.
    pub samples: u64,
    /// Why.
    pub why: String,
}

/// A follower's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowerInfo {
    /// Its name.
    pub name: Box<str>,
    /// Since when it is removed.
    pub removed: Option<Timestamp>,
    /// Stored samples after its position.
    pub behind: u64,
    /// How often it began at an earlier point again, since the start of this process, because a file of followers could not be
    /// written or read: it receives samples twice.
    pub repeats: u64,
}

/// Why a call for a follower failed.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// No follower has this name.
    #[error("there is no follower `{0}`")]
    Unknown(String),
    /// The name is empty, too long, or has a control character.
    #[error("`{0}` is no name of a follower: use 1 to {FOLLOWER_NAME_BYTES_MAX} printable bytes")]
    Name(String),
    /// There are too many, removed ones included.
    #[error("there are {FOLLOWERS_MAX} followers; a removed one counts for 7 days")]
    TooMany,
    /// The slice is not the one that was returned last, or it is confirmed.
    #[error(
        "slice {0} is void: another one was requested or it is confirmed; request the next one"
    )]
    Void(u64),
    /// The store cannot do it now.
    #[error(transparent)]
    Store(#[from] StorageError),
}
