//! Queries of the registry.
//!
//! - `job_lookup`: one job. `job_list`: many jobs, a page at a time. `disagreements`: disagreements between schedulers and
//!   nodes. `running_jobs`: running jobs, with the facts that promotions depend on.
//!   `copied_jobs`: what is copied to another database.

pub(crate) mod copied_jobs;
pub(crate) mod disagreements;
pub(crate) mod job_list;
pub(crate) mod job_lookup;
pub(crate) mod running_jobs;
