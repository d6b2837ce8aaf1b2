//! Points over time, to plot.

pub(crate) mod range;
pub(crate) mod range_gaps;
pub(crate) mod range_holes;
pub(crate) mod range_line;
