//! Points over time, to plot.
//!
//! - `range`: the query. `range_line`: points of one series. `range_gaps`: recorded gaps. `range_holes`:
//!   points without a value where samples are missing.

pub(crate) mod range;
pub(crate) mod range_gaps;
pub(crate) mod range_holes;
pub(crate) mod range_line;
