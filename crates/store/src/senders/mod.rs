//! Senders of samples: origins, their batches, their series and metrics, and the limits of each.
//!
//! - `registry`: all series. `origins`, `origin`: one sender and its boots. `dedup_window`: stored batches.
//! - `series_table`: the table that a sender repeats, resolved once. `catalogue`: metrics. `share`: parts of limits. `gaps`: missing samples.

pub(crate) mod catalogue;
pub(crate) mod dedup_window;
pub(crate) mod origin;
pub(crate) mod origins;
pub(crate) mod reserved_labels;
pub(crate) mod series_registry;
pub(crate) mod series_table;
pub(crate) mod share;
pub(crate) mod stored_gaps;
