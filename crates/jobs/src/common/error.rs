//! Errors of the registry.

use model::{ClusterId, DeviceId};
use std::path::{Path, PathBuf};

/// An error of the registry.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The file cannot be opened or is not a registry.
    #[error(
        "{path}: {}; choose a directory that the server can write, or restore the file",
        without_path(cause, path)
    )]
    Open {
        /// The file.
        path: PathBuf,
        /// The error from SQLite.
        cause: rusqlite::Error,
    },
    /// A newer program wrote the file.
    #[error(
        "{path}: version {found} is newer than {known}, the newest that this program supports; use \
         a newer program"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The version of the file.
        found: i64,
        /// The latest version that this program supports.
        known: i64,
    },
    /// An earlier program wrote the file.
    #[error(
        "{path}: version {found} is older than {known}, the only one that this program supports; use \
         the program that wrote it, or begin with an empty data directory"
    )]
    Older {
        /// The file.
        path: PathBuf,
        /// The version of the file.
        found: i64,
        /// The version that this program supports.
        known: i64,
    },
    /// SQLite fails to read or write.
    #[error("the registry of jobs failed: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// The file contains an invalid value, such as an invalid name.
    #[error(
        "the registry of jobs contains the invalid value `{0}`; restore the file from a \
             backup"
    )]
    Damaged(String),
    /// No job has this name.
    #[error("there is no job {0}")]
    Unknown(String),
    /// The ID is the ID of a whole array or heterogeneous job.
    #[error(
        "{name} is the ID of an array job or heterogeneous job; list its parts with \
         part_of={number}"
    )]
    Parts {
        /// The requested name.
        name: String,
        /// The ID of the whole.
        number: i64,
    },
    /// Several clusters have a job with this ID.
    #[error("{display_id} is ambiguous: {}; add the cluster", list(display_id, .clusters))]
    Ambiguous {
        /// The requested name.
        display_id: String,
        /// The clusters that have such a job, sorted.
        clusters: Vec<ClusterId>,
    },
    /// The registry holds its maximum of visits.
    #[error("the registry is full: it has {0} allocations of devices to jobs")]
    Full(u64),
    /// The registry is half full, and this user has the maximum of local jobs, ended ones included.
    #[error(
        "user {uid} has registered {max} local jobs, the limit in a registry that is half full"
    )]
    FullForUser {
        /// The user ID.
        uid: u32,
        /// The limit.
        max: u64,
    },
    /// A limit on a number of objects is reached: the limit, and the kind of object.
    #[error("the limit of {0} {1} is reached")]
    TooManyOf(i64, &'static str),
    /// The user has the maximum of open local jobs on this device.
    #[error(
        "user {uid} has {max} local jobs on {device} that have not ended, the limit; end some of them"
    )]
    OpenLocal {
        /// The user ID.
        uid: u32,
        /// The device.
        device: DeviceId,
        /// The limit.
        max: i64,
    },
    /// The query matches more rows than the limit.
    #[error("more than {0} jobs match; choose a shorter time range, one device or one job")]
    TooMany(usize),
}

/// SQLite's message, which may end with the path that the error already names.
fn without_path(cause: &rusqlite::Error, path: &Path) -> String {
    cause.to_string().replace(&format!(": {}", path.display()), "")
}

/// Lists the job's names in the first 4 clusters and counts the rest.
fn list(display_id: &str, clusters: &[ClusterId]) -> String {
    const NAMED_MAX: usize = 4;
    let names = clusters.iter().take(NAMED_MAX).map(|cluster| format!("{cluster}:{display_id}"));
    let more = clusters.len().saturating_sub(NAMED_MAX);
    let more = (more > 0).then(|| format!("{more} more"));
    names.chain(more).collect::<Vec<_>>().join(" and ")
}
