//! What is looked for, and where.

use crate::Pattern;
use model::ClusterId;
use std::time::Duration;

/// What [`crate::Discovery`] looks for. The default finds OAR's, Slurm's and `jobmeter run`'s jobs
/// where they are by the schedulers' own defaults, and systemd's units on a machine without a
/// scheduler.
#[derive(Clone, Debug)]
pub struct Config {
    /// OAR, if it is looked for.
    pub oar: Option<LayoutConfig>,
    /// Slurm, if it is looked for.
    pub slurm: Option<LayoutConfig>,
    /// Jobs of `jobmeter run`, if they are looked for: of which cluster they are.
    pub local: Option<ClusterId>,
    /// Whether jobs count that `jobmeter run` reports itself (`run_N@SERVER`): for those who show jobs and report none.
    pub runs: bool,
    /// A site's own layouts.
    pub patterns: Vec<Pattern>,
    /// Users beside root who may own the directories of jobs and those above them. OAR's own
    /// account `oar` is found in `/etc/passwd`; a scheduler's account that is not there has to be
    /// given.
    pub scheduler_uids: Vec<u32>,
    /// Whether systemd's services and sessions are shown on a machine without a scheduler.
    pub units: bool,
    /// How often everything is looked at again even if nothing was noted.
    pub rescan: Duration,
    /// How often version 1's jobs are asked whether they still have a process; see
    /// [`crate::Discovery::update`].
    pub presence: Duration,
}

/// One scheduler.
#[derive(Clone, Debug)]
pub struct LayoutConfig {
    /// Whose jobs these are.
    pub cluster: ClusterId,
    /// Directories in which the jobs' directories lie (for Slurm's version 1: those of its users),
    /// such as `/dev/oar_cgroups_links/cpuset/oar`. They replace the default places. Links in them
    /// are followed if they are root's. The same place is looked at in every hierarchy.
    pub roots: Vec<String>,
}

impl LayoutConfig {
    /// A scheduler at its default places.
    pub const fn new(cluster: ClusterId) -> Self {
        Self { cluster, roots: Vec::new() }
    }
}

impl Default for Config {
    fn default() -> Self {
        let layout = |name| ClusterId::new(name).ok().map(LayoutConfig::new);
        Self {
            oar: layout("oar"),
            slurm: layout("slurm"),
            local: Some(ClusterId::local()),
            runs: false,
            patterns: Vec::new(),
            scheduler_uids: Vec::new(),
            units: true,
            rescan: Duration::from_secs(30),
            presence: Duration::from_millis(100),
        }
    }
}
