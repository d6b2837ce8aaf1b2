//! Where the files of a data folder are.

use std::path::{Path, PathBuf};

/// Where the log's segments lie.
pub(crate) fn log_dir(dir: &Path) -> PathBuf {
    dir.join("log")
}

/// Where the blocks lie.
pub(crate) fn blocks_dir(dir: &Path) -> PathBuf {
    dir.join("blocks")
}

/// Where damaged log segments lie.
pub(crate) fn quarantine_dir(dir: &Path) -> PathBuf {
    dir.join("quarantine")
}

/// Where the rollups lie.
pub(crate) fn rollups_dir(dir: &Path) -> PathBuf {
    dir.join("rollups")
}
