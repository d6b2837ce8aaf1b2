//! Reported numbers beside independent counters.

pub(crate) mod conservation;
pub(crate) mod oom_kills;
pub(crate) mod outputs;
pub(crate) mod postgres_checks;
pub(crate) mod postgres_outages;
pub(crate) mod postgres_tables;
pub(crate) mod runs;
pub(crate) mod truth;
pub(crate) mod truth_table;
pub(crate) mod two_servers;
