//! What runs beside requests until the server stops.

pub(crate) mod demand_follower;
pub(crate) mod job_file;
pub(crate) mod rule_actions;
pub(crate) mod silent_jobs;
pub(crate) mod staff_refresh;
pub(crate) mod upkeep;
pub(crate) mod user_numbers;
