//! Points over time, to plot.
//!
//! - `range`: the question. `range_line`: one series, cut into steps. `range_gaps`, `range_holes`: what is missing.

pub(crate) mod range;
pub(crate) mod range_gaps;
pub(crate) mod range_holes;
pub(crate) mod range_line;
