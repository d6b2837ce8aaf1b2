//! The interface of a store: what senders append and readers query, whatever keeps the samples.
//!
//! [`Storage`] accepts batches and answers what is known of senders; a [`Snapshot`] of it returns samples, windows and
//! series of a [`Selector`]. The embedded store is the crate `store`; `docs/decisions/0049-store-interface.md` states
//! the division of work.

mod answer;
mod append;
mod by_time;
mod declared;
mod error;
mod followers;
mod reads;
mod retention;
mod select;
mod shared_tables;
mod storage;

pub use answer::{
    BootInfo, Chunk, Claim, CounterStart, LastValue, OriginInfo, ReadCounts, SeriesInfo, Stats,
    TimeSlice, Windows,
};
pub use append::{DeferReason, Incoming, Outcome};
pub use by_time::{Bounded, ByTime};
pub use declared::{DeclaredMetrics, RunMetrics};
pub use error::StorageError;
pub use followers::{
    FOLLOWER_NAME_BYTES_MAX, FOLLOWERS_MAX, FollowError, FollowFrom, FollowMark, FollowSlice,
    FollowerInfo, Followers, OutputGap,
};
pub use reads::{Meter, Reads};
pub use retention::RetentionLimits;
pub use select::{JobSelector, LabelMatch, Selector, SeriesCondition, SeriesFilter};
pub use shared_tables::{
    JobsPart, JobsScope, OtherPromotions, PROMOTED_ROWS_MAX, PromotedRow, RunRow,
};
pub use storage::{
    Clock, Done, Parts, SharedTables, Snapshot, Storage, WINDOWS_US, is_total, share_of_rows,
    windows_between, without_sums_of_totals,
};
