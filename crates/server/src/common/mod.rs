//! What everything here uses: times, counters, errors of answers, limits, tasks.
//!
//! - `problem`: errors of answers. `settings`: limits. `counts`: what `/metrics` shows. `tasks`: what runs until the server stops.
//! - `clock`, `timed`: times, and streams with a time limit. `csv`, `table`: rows as text.

pub(crate) mod clock;
pub(crate) mod counts;
pub(crate) mod csv;
pub(crate) mod problem;
pub(crate) mod settings;
pub(crate) mod table;
pub(crate) mod tasks;
pub(crate) mod timed;
