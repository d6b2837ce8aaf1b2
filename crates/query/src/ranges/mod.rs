//! Points over time, to plot.
//!
//! - `range`: the query. `parallel`: on several processors. `series_points`: points of one series. `range_gaps`:
//!   recorded gaps. `series_totals`: integral, mean, increase. `missing_points`: points without a value where samples are missing.

pub(crate) mod missing_points;
mod parallel;
pub(crate) mod range;
pub(crate) mod range_gaps;
pub(crate) mod series_points;
pub(crate) mod series_totals;
