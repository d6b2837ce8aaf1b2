//! Which cgroup is which job: the hierarchies of a machine, the layouts of its schedulers, and what
//! comes and goes. No input or output but through [`kernel::Root`].

mod jobs;

pub use jobs::{Hierarchy, JobCgroup, JobDir, Jobs, UnitCgroup};
