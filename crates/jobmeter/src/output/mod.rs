//! Numbers, times, tables and reports, for people and for scripts.
//!
//! - `show`: numbers and tables. `times`: parsing and printing of times. `csv_rows`, `blank_rows`: CSV.
//! - `report`: usage of a job. `names`: names in options. `options`: shared options. `utc_times`: times of streamed rows.

pub(crate) mod blank_rows;
pub(crate) mod check_names;
pub(crate) mod csv_rows;
pub(crate) mod options;
pub(crate) mod report;
pub(crate) mod show;
pub(crate) mod times;
pub(crate) mod utc_times;
