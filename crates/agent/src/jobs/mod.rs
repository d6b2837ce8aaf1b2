//! The jobs on this node: found, remembered over a restart, and what their environment asks for.
//!
//! - `finder`: which jobs are here. `cgroup_birth_cache`, `job_sightings`, `accounting`: what survives a restart. `env_scanner`: `JOBMETER_MONITOR`.

pub(crate) mod accounting;
pub(crate) mod cgroup_birth_cache;
pub(crate) mod env_scanner;
pub(crate) mod finder;
pub(crate) mod job_sightings;
