//! Reads: samples and rollups of a view, from memory and blocks.
//!
//! - `by_series`: the samples of each series. `merged_sources`: sources of one series merged by time.
//! - `source`: a block or a head as a source. `rollup_scan`, `rollup_points`: windows. `indexes`: queries
//!   that read no samples.

pub(crate) mod by_series;
pub(crate) mod indexes;
pub(crate) mod merged_sources;
pub(crate) mod rollup_points;
pub(crate) mod rollup_scan;
pub(crate) mod source;
