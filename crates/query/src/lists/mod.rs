//! Lists: nodes, jobs, series, gaps, marks, where a series comes from.

pub(crate) mod check;
pub(crate) mod explain;
pub(crate) mod listing;
pub(crate) mod marks;
pub(crate) mod nodes;
pub(crate) mod shown;
pub(crate) mod silent;
