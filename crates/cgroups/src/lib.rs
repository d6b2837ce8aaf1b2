//! Maps cgroups to jobs: the hierarchies of a machine, the layouts of its schedulers, and the starts and ends
//! of jobs. All input and output uses [`kernel::Root`] and [`kernel::inotify`].
//!
//! [`Discovery`] watches the directories that can contain jobs and keeps [`Jobs`] up to date; [`processes`]
//! and [`tasks`] list the members of a job. The whole path from the hierarchy's root and the owner decide
//! what is a job: see [`Config`] and [`RejectionReason`].

mod config;
mod directories;
mod discovery;
mod has_processes;
mod hierarchies;
mod job_cgroup_names;
mod job_list;
mod members;
mod report;
mod runs;
mod start_dirs;

pub use config::{Config, LayoutConfig};
pub use directories::facts::{KnownDirectory, recorded_owners};
pub use directories::tree::PASSAGES_MAX;
pub use discovery::{Discovery, UNITS_MAX};
pub use hierarchies::{Hierarchies, Mount};
pub use job_cgroup_names::{Pattern, PatternError};
pub use job_list::{Hierarchy, JobCgroup, JobDir, Jobs, USER_DIRECTORIES_MAX, UnitCgroup};
pub use members::{Members, cut_walks, directories, processes, tasks};
pub use report::{
    Counts, REJECTED_SHOWN_MAX, RejectedDirectory, RejectionReason, Report, SearchedPlace,
};
pub use runs::{Changes, JOBS_MAX};
