//! Numbers, times, tables and reports, for people and for scripts.

pub(crate) mod blank_rows;
pub(crate) mod csv_rows;
pub(crate) mod names;
pub(crate) mod report;
pub(crate) mod show;
pub(crate) mod times;
