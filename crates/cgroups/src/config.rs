//! Configuration of discovery: schedulers, layouts and directories.

use crate::Pattern;
use model::ClusterId;
use std::time::Duration;

/// Configuration of [`crate::Discovery`]. The default finds jobs of OAR, Slurm and `jobmeter run` in the
/// schedulers' default directories, and systemd's units on a machine without a scheduler.
#[derive(Clone, Debug)]
pub struct Config {
    /// OAR; `None` finds no jobs of it.
    pub oar: Option<LayoutConfig>,
    /// Slurm; `None` finds no jobs of it.
    pub slurm: Option<LayoutConfig>,
    /// The cluster of `jobmeter run` jobs; `None` finds no such jobs.
    pub local: Option<ClusterId>,
    /// Whether to include jobs that `jobmeter run` reports itself (`run_N@SERVER`): for programs that
    /// show jobs without reporting them.
    pub runs: bool,
    /// A site's own layouts.
    pub patterns: Vec<Pattern>,
    /// Users besides root that may own the directories of jobs and their parents. OAR's own account `oar` is
    /// found in `/etc/passwd`; another scheduler account must be configured.
    pub scheduler_uids: Vec<u32>,
    /// Whether to report systemd's services and sessions on a machine without a scheduler.
    pub units: bool,
    /// Interval of full scans, independent of events.
    pub rescan: Duration,
    /// Interval at which jobs of version 1 are checked for processes; see
    /// [`crate::Discovery::update`].
    pub presence: Duration,
}

/// One scheduler.
#[derive(Clone, Debug)]
pub struct LayoutConfig {
    /// The cluster of the jobs.
    pub cluster: ClusterId,
    /// Parent directories of the jobs' directories (for Slurm's version 1: of its users' directories),
    /// such as `/dev/oar_cgroups_links/cpuset/oar`. They replace the default ones. Links in these paths
    /// are followed if root owns them. The same relative path is used in every hierarchy.
    pub roots: Vec<String>,
}

impl LayoutConfig {
    /// A scheduler with its default directories.
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
