//! A log file of limited size: at its limit it becomes `FILE.1`, that `FILE.2`, and so on.

use rustix::fs::{Access, access};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub(super) struct RotatingFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    bytes_max: u64,
    backups: u32,
}

impl RotatingFile {
    /// Opens the file at its end.
    ///
    /// # Errors
    /// The file cannot be opened. A missing folder is not created: its name may be mistyped.
    pub(super) fn open(path: PathBuf, bytes_max: u64, backups: u32) -> io::Result<Self> {
        let file = append(&path).map_err(|error| described(&path, &error))?;
        let bytes = file.metadata()?.len();
        Ok(Self { path, file, bytes, bytes_max, backups })
    }

    pub(super) fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let bytes = u64::try_from(line.len()).unwrap_or(u64::MAX);
        if self.bytes > 0 && self.bytes.saturating_add(bytes) > self.bytes_max {
            self.rotate()?;
        }
        self.file.write_all(line)?;
        self.bytes += bytes;
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        if self.backups == 0 {
            self.file.set_len(0)?;
        } else {
            for n in (1..self.backups).rev() {
                let from = numbered(&self.path, n);
                if from.try_exists()? {
                    std::fs::rename(from, numbered(&self.path, n + 1))?;
                }
            }
            std::fs::rename(&self.path, numbered(&self.path, 1))?;
            self.file = append(&self.path)?;
        }
        self.bytes = 0;
        Ok(())
    }
}

/// Finds the errors of [`RotatingFile::open`], and creates nothing.
pub(super) fn check(path: &Path) -> io::Result<()> {
    let opened = || match (path.symlink_metadata(), folder(path)) {
        (Err(error), Some(folder)) if error.kind() == io::ErrorKind::NotFound => {
            kernel::trust::check_way(folder)?;
            Ok(access(folder, Access::WRITE_OK | Access::EXEC_OK)?)
        }
        (Err(error), None) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        _ => append(path).map(drop),
    };
    match opened() {
        // A program of the file's owner can open it.
        Err(error) if kernel::trust::is_anothers(path, &error) => Ok(()),
        Err(error) => Err(described(path, &error)),
        Ok(()) => Ok(()),
    }
}

fn folder(path: &Path) -> Option<&Path> {
    path.parent().filter(|folder| !folder.as_os_str().is_empty())
}

fn described(path: &Path, error: &io::Error) -> io::Error {
    let file = path.display();
    let missing = folder(path).filter(|folder| folder.try_exists().is_ok_and(|exists| !exists));
    let why = missing.map_or_else(
        || format!("{file}: {error}"),
        |folder| {
            let folder = folder.display();
            format!("{file}: folder {folder} does not exist; create it or set another file")
        },
    );
    io::Error::new(error.kind(), why)
}

fn append(path: &Path) -> io::Result<File> {
    kernel::trust::no_link(path, 0o644)
}

fn numbered(path: &Path, n: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{n}"));
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_of_size_and_backups() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut file = RotatingFile::open(path.clone(), 20, 2).unwrap();
        for i in 0..10 {
            file.write(format!("line {i}\n").as_bytes()).unwrap();
        }
        let text = |name: &Path| std::fs::read_to_string(name).unwrap();
        assert_eq!(text(&path), "line 8\nline 9\n");
        assert_eq!(text(&numbered(&path, 1)), "line 6\nline 7\n");
        assert_eq!(text(&numbered(&path, 2)), "line 4\nline 5\n");
        assert!(!numbered(&path, 3).try_exists().unwrap());
    }

    #[test]
    fn a_missing_folder_is_not_created() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("mistyped");
        let error = RotatingFile::open(folder.join("log"), 12, 0).unwrap_err();
        assert_eq!(check(&folder.join("log")).unwrap_err().to_string(), error.to_string());
        check(&dir.path().join("log")).unwrap();
        assert!(!dir.path().join("log").try_exists().unwrap(), "a check creates nothing");
        assert!(!folder.try_exists().unwrap());
        let want = format!("folder {} does not exist; create it", folder.display());
        assert!(error.to_string().contains(&want), "{error}");
    }

    #[test]
    fn appends_to_the_file_and_restarts_it_without_backups() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        RotatingFile::open(path.clone(), 12, 0).unwrap().write(b"first\n").unwrap();
        let mut file = RotatingFile::open(path.clone(), 12, 0).unwrap();
        file.write(b"second\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "second\n");
    }

    #[test]
    fn a_symbolic_link_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("victim"), dir.path().join("log"));
        std::fs::write(&path, "as it was").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(check(&link).is_err());
        let error = RotatingFile::open(link, 12, 0).unwrap_err();
        assert!(error.to_string().contains("symbolic link"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "as it was");
    }
}
