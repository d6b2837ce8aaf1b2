//! What everything here uses: times, counters, errors of answers, limits, tasks.

pub(crate) mod clock;
pub(crate) mod counts;
pub(crate) mod csv;
pub(crate) mod problem;
pub(crate) mod settings;
pub(crate) mod table;
pub(crate) mod tasks;
pub(crate) mod timed;
