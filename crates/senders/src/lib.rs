//! What every store keeps of senders: their series, metrics, stored batches and gaps, and the limits of each.
//!
//! A store decides about a batch with [`Bookkeeping::judge`], selects its samples with [`select`], stores them, and
//! records the batch with [`Noted::note`]. All of it is in memory; the store keeps it over a restart.
//!
//! - `series_registry`: all series. `origins`, `origin`: one sender and its boots. `dedup_window`: stored batches.
//! - `series_table`: the table that a sender repeats, resolved once. `catalogue`: metrics. `share`: parts of limits.
//! - `stored_gaps`: missing samples. `records`: all of these. `queue`: batches that wait. `selection`: the samples to store. `json`: their text form.

mod catalogue;
mod dedup_window;
pub mod json;
mod limits;
mod origin;
mod origins;
mod queue;
mod records;
mod reserved_labels;
mod selection;
mod series_registry;
mod series_table;
mod share;
mod stored_gaps;

pub use catalogue::Catalogue;
pub use dedup_window::Span;
pub use limits::Limits;
pub use origin::{OriginState, Received};
pub use origins::{OriginNumber, Origins};
pub use queue::{BatchQueue, Request, Work};
pub use records::{Bookkeeping, Verdict};
pub use reserved_labels::label_rejection;
pub use selection::rejected_series::RejectedSeries;
pub use selection::{NewGap, Noted, Samples, select};
pub use series_registry::Registry;
pub use series_table::{NO_START, RejectedSlot, SeriesSlot, Table, Tables};
pub use share::RUNS_DIVISOR;
pub use stored_gaps::{GapLimits, Gaps};
