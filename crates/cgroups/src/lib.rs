//! Which cgroup is which job: the hierarchies of a machine, the layouts of its schedulers, and what
//! comes and goes. No input or output but through [`kernel::Root`] and [`kernel::inotify`].
//!
//! [`Discovery`] watches the directories that lead to jobs and keeps [`Jobs`] up to date;
//! [`processes`] and [`tasks`] list who is in a job. What is a job is decided by the whole way from
//! the hierarchy's root, and by who owns it: see [`Config`] and [`Refusal`].

mod config;
mod directories;
mod discovery;
mod hierarchies;
mod jobs;
mod layout;
mod members;
mod places;
mod presence;
mod report;
mod runs;

pub use config::{Config, LayoutConfig};
pub use directories::facts::recorded_owners;
pub use directories::tree::PASSAGES_MAX;
pub use discovery::{Discovery, UNITS_MAX};
pub use hierarchies::{Hierarchies, Mount};
pub use jobs::{Hierarchy, JobCgroup, JobDir, Jobs, USER_DIRECTORIES_MAX, UnitCgroup};
pub use layout::{Pattern, PatternError};
pub use members::{Members, cut_walks, processes, tasks};
pub use report::{Counts, Looked, REFUSED_SHOWN_MAX, Refusal, Refused, Report};
pub use runs::{Changes, JOBS_MAX};
