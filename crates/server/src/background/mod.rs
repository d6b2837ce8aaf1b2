//! What runs beside requests until the server stops.
//!
//! - `demand_follower`, `rule_actions`: promotions follow jobs, and rules act. `upkeep`, `silent_jobs`: every minute and every hour.
//! - `job_file`: follows the file of `schedulers.file`. `user_numbers`, `staff_refresh`: the name service is asked again.

pub(crate) mod demand_follower;
pub(crate) mod job_file;
pub(crate) mod rule_actions;
pub(crate) mod silent_jobs;
pub(crate) mod staff_refresh;
pub(crate) mod upkeep;
pub(crate) mod user_numbers;
