//! Lists: nodes, jobs, series, gaps, marks, where a series comes from.
//!
//! - `listing`: series, last values, jobs, metrics, gaps. `shown`: jobs as `api` has them. `nodes`: who reports. `marks`: what was asked of nodes.
//! - `explain`: where a series comes from. `check`: where schedulers and nodes disagree. `silent`: local jobs without a sign of life.

pub(crate) mod check;
pub(crate) mod explain;
pub(crate) mod listing;
pub(crate) mod marks;
pub(crate) mod nodes;
pub(crate) mod shown;
pub(crate) mod silent;
