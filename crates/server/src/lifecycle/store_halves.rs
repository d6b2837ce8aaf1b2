//! Checks that the data folder has both halves of the store, the registry of jobs and the samples, or neither.
//!
//! With one half alone the server does not start: it would create an empty half beside a full one.

use config::StoreKind;
use config::paths::{JOBS_FILE, SAMPLES_DIR};
use std::fs;
use std::io;
use std::path::Path;

/// Subfolders that hold the samples.
const FOLDERS: [&str; 3] = ["log", "blocks", "rollups"];
/// Size of the header of a log segment, before its first record, in bytes.
const SEGMENT_HEADER_BYTES: u64 = 16;

/// Creates the data folder of a server, or checks an existing one.
///
/// # Errors
/// Another user could have prepared the folder, or it has only one half of a store.
pub(crate) fn prepare(data: &Path, store: StoreKind) -> io::Result<()> {
    kernel::trust::make_own_folder(data, 0o700)?;
    check_of(data, store)
}

/// Finds the errors of [`prepare`], and creates nothing.
///
/// # Errors
/// As for [`prepare`], and if the folder could not be created.
pub(crate) fn check_only(data: &Path, store: StoreKind) -> io::Result<()> {
    kernel::trust::check_own_folder(data)?;
    check_of(data, store)
}

/// A database has the samples of a folder without them.
fn check_of(data: &Path, store: StoreKind) -> io::Result<()> {
    match store {
        StoreKind::Embedded => check(data),
        StoreKind::Postgres => Ok(()),
    }
}

/// Checks that a data folder has both halves or neither.
///
/// An interrupted first start leaves an empty samples folder without a registry, which is accepted.
///
/// # Errors
/// One half is missing, or the folder cannot be read.
fn check(data: &Path) -> io::Result<()> {
    let (jobs, samples) = (data.join(JOBS_FILE), data.join(SAMPLES_DIR));
    let missing = |what: &Path, other: &Path| {
        Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!(
                "{} is missing beside {}; restore it from a backup, or move {} away to create a \
                 new store",
                what.display(),
                other.display(),
                other.display()
            ),
        ))
    };
    match (jobs.try_exists()?, samples.try_exists()?) {
        (true, false) => missing(&samples, &jobs),
        (false, true) if has_samples(&samples)? => missing(&jobs, &samples),
        _ => Ok(()),
    }
}

fn has_samples(samples: &Path) -> io::Result<bool> {
    for folder in FOLDERS {
        let entries = match fs::read_dir(samples.join(folder)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for entry in entries {
            let about = entry?.metadata()?;
            if about.is_dir() || about.len() > SEGMENT_HEADER_BYTES {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_server_begins_half_a_store() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        check(dir.path()).unwrap();
        fs::create_dir_all(at("samples/log")).unwrap();
        fs::write(at("samples/log/1"), [0; 16]).unwrap();
        check(dir.path()).unwrap();
        fs::write(at("samples/log/1"), [0; 100]).unwrap();
        let error = check(dir.path()).unwrap_err().to_string();
        assert!(error.contains("jobs.sqlite is missing"), "{error}");
        fs::write(at("jobs.sqlite"), "").unwrap();
        check(dir.path()).unwrap();
        fs::remove_dir_all(at("samples")).unwrap();
        let error = check(dir.path()).unwrap_err().to_string();
        assert!(error.contains("samples is missing") && error.contains("backup"), "{error}");
    }
}
