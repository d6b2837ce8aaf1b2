//! Background tasks, which run until the server stops.
//!
//! - `demand_follower`: promotions follow jobs. `rule_actions`: actions of rules.
//! - `upkeep`, `silent_jobs`: maintenance every minute and every hour. `job_file`: reads the file of
//!   `schedulers.file`.
//! - `shared_tables`: tables that the server shares in the database of the store.
//! - `user_ids`, `staff_refresh`: regular queries to the name service.

pub(crate) mod demand_follower;
pub(crate) mod job_file;
pub(crate) mod rule_actions;
pub(crate) mod shared_tables;
pub(crate) mod silent_jobs;
pub(crate) mod staff_refresh;
pub(crate) mod upkeep;
pub(crate) mod user_ids;
