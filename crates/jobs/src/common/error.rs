//! What can go wrong with the registry.

use model::{ClusterId, DeviceId};
use std::path::PathBuf;

/// Why the registry cannot answer.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The file cannot be opened or is no registry.
    #[error("{path}: {cause}; give a directory that the server may write, or restore the file")]
    Open {
        /// The file.
        path: PathBuf,
        /// SQLite's word.
        cause: rusqlite::Error,
    },
    /// Written by a newer program.
    #[error(
        "{path}: version {found} is newer than {known}, which this program knows; use a newer one"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The version in it.
        found: i64,
        /// The newest this program knows.
        known: i64,
    },
    /// SQLite's word while reading or writing.
    #[error("the registry of jobs failed: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// What stands in the file cannot be: a name that is none.
    #[error("the registry of jobs holds `{0}`, which cannot be; restore the file from a backup")]
    Damaged(String),
    /// No job of that name.
    #[error("no job {0} is known")]
    Unknown(String),
    /// The number stands for several jobs.
    #[error(
        "{name} is the number of a whole array, or heterogeneous job, whose parts have numbers of their own; \
         list them with part_of={number}"
    )]
    Parts {
        /// What was asked.
        name: String,
        /// The number of the whole.
        number: i64,
    },
    /// Several clusters have a job of that number.
    #[error("{spelling} is {}; write which", list(spelling, .clusters))]
    Ambiguous {
        /// What was asked.
        spelling: String,
        /// Who has it, in order.
        clusters: Vec<ClusterId>,
    },
    /// More jobs and visits than the registry may hold.
    #[error("the registry is full: it holds {0} visits of jobs to devices")]
    Full(u64),
    /// More of something than there may be.
    #[error("there are {0} {1}, and no more may be")]
    TooManyOf(i64, &'static str),
    /// A user has as many registered jobs on a device as may be open there.
    #[error(
        "user {uid} has {max} local jobs on {device} that have not ended, the limit; end some of them"
    )]
    OpenLocal {
        /// The user.
        uid: u32,
        /// The device.
        device: DeviceId,
        /// The limit.
        max: i64,
    },
    /// More rows than the question may give.
    #[error("more than {0} jobs match; ask for less time, one device or one job")]
    TooMany(usize),
}

/// The names of a job in the first few clusters, and how many more there are.
fn list(spelling: &str, clusters: &[ClusterId]) -> String {
    const NAMED_MAX: usize = 4;
    let names = clusters.iter().take(NAMED_MAX).map(|cluster| format!("{cluster}:{spelling}"));
    let more = clusters.len().saturating_sub(NAMED_MAX);
    let more = (more > 0).then(|| format!("{more} more"));
    names.chain(more).collect::<Vec<_>>().join(" and ")
}
