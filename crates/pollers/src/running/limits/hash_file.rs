//! Files of a target beside the groups' spools, with hashes of what it returned.

use crate::descriptions::Target;
use delivery::replace_private;
use model::{Timestamp, printable};
use ring::digest::{SHA256, digest};
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Shortest time between two writes of a file. A kill loses what it has of this time.
pub(super) const WRITE_EVERY_US: i64 = 10 * Timestamp::SECOND;
/// Age of files that are deleted: their targets are not polled any more.
const AGE_MAX: Duration = Duration::from_secs(30 * 86_400);
/// Bytes of a hash.
const HASH_BYTES: usize = size_of::<u64>();
/// Bytes of a file: far more than the samples of some expositions.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Deletes the files in a folder that were not written for a long time.
pub(crate) fn delete_old(folder: &Path) {
    let is_old = |file: &std::fs::DirEntry| {
        let modified = file.metadata().and_then(|data| data.modified());
        modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > AGE_MAX))
    };
    let Ok(files) = std::fs::read_dir(folder) else { return };
    for file in files.flatten().filter(is_old) {
        if let Err(error) = std::fs::remove_file(file.path()) {
            log::warn!("cannot delete {}: {error}", printable(&file.path().to_string_lossy()));
        }
    }
}

/// A hash that is the same in each start: files contain it.
pub(super) fn hash_of(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The name of the file of a target.
pub(super) fn file_name(target: &Target) -> String {
    let user = target.user.as_ref().map_or("", |user| user.reveal());
    let Target { protocol, is_tls, host, port, .. } = target;
    let key = format!("{protocol}\n{is_tls}\n{host}\n{port}\n{user}");
    let hash = digest(&SHA256, key.as_bytes());
    hash.as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// The hashes in a file, in their order; none if there is no file.
pub(super) async fn read(file: PathBuf) -> Vec<u64> {
    tokio::task::spawn_blocking(move || read_now(&file)).await.unwrap_or_default()
}

fn read_now(file: &Path) -> Vec<u64> {
    let found = match config::read_small(file, FILE_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => {
            log::warn!("cannot read {}: {error}", printable(&file.to_string_lossy()));
            return Vec::new();
        }
    };
    let (hashes, _) = found.as_chunks::<HASH_BYTES>();
    hashes.iter().map(|hash| u64::from_le_bytes(*hash)).collect()
}

/// Writes hashes to a file. If this fails, the log states the consequence.
pub(super) async fn write(file: PathBuf, hashes: Vec<u64>, consequence: &str) {
    let shown = printable(&file.to_string_lossy()).into_owned();
    let bytes: Vec<u8> = hashes.iter().flat_map(|hash| hash.to_le_bytes()).collect();
    let written = tokio::task::spawn_blocking(move || write_now(&file, &bytes)).await;
    if let Ok(Err(error)) = written {
        log::warn!("cannot write {shown}: {error}; {consequence}");
    }
}

fn write_now(file: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        kernel::trust::make_own_folder(folder, 0o700)?;
    }
    replace_private(file, bytes)
}
