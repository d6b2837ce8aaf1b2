//! Locations of files in a data directory.

use std::path::{Path, PathBuf};

/// Directory of the log's segments.
pub(crate) fn log_dir(dir: &Path) -> PathBuf {
    dir.join("log")
}

/// Directory of the blocks.
pub(crate) fn blocks_dir(dir: &Path) -> PathBuf {
    dir.join("blocks")
}

/// Directory of the followers' positions and rest files; it exists once there was a follower.
pub(crate) fn followers_dir(dir: &Path) -> PathBuf {
    dir.join("followers")
}

/// Directory of damaged log segments.
pub(crate) fn quarantine_dir(dir: &Path) -> PathBuf {
    dir.join("quarantine")
}

/// Directory of the rollups.
pub(crate) fn rollups_dir(dir: &Path) -> PathBuf {
    dir.join("rollups")
}
