//! Samples as Colmet's records, for every output that carries them (decisions 0061 and 0062). No files and no clocks.
//!
//! - `layout`: the options that such an output has, and what they mean. `columns`: which column a metric is part of.
//! - `held`: the samples of instants that may still grow, and what later records need. `making`: one record.
//! - `taking`: portions in, records out. `of_batches`: batches of one node in, records out.

mod columns;
mod held;
mod layout;
mod making;
mod of_batches;
mod taking;
#[cfg(test)]
mod tests;

pub use layout::Layout;
pub(crate) use layout::{CLUSTER, DOMAIN, NEEDS_CLUSTER, PERF_COUNTERS};
pub(crate) use making::source as source_of;
pub use of_batches::NodeRecords;
pub(crate) use taking::{LeftOut, Records};
