//! The jobs of this node: detection, state across restarts, and requests in their environment.
//!
//! - `finder`: detection of jobs.
//! - `cgroup_birth_cache`, `job_sightings`, `accounting`: state that survives a restart.
//! - `env_scanner`: the environment variable `JOBMETER_MONITOR`.

pub(crate) mod accounting;
pub(crate) mod cgroup_birth_cache;
pub(crate) mod env_scanner;
pub(crate) mod finder;
pub(crate) mod job_sightings;
