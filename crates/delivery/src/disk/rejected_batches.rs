//! Batches that the server rejected permanently, kept for inspection.
//!
//! `rejected/NUMBER.jmb` is one wire frame, and `rejected/NUMBER.txt` is the server's reason. The folder has a size
//! limit: the oldest batches are deleted first, and each deletion is counted.

use crate::common::files::write_private;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The folder of rejected batches.
#[derive(Debug)]
pub(crate) struct RejectedBatches {
    dir: PathBuf,
    bytes_max: u64,
    /// Numbers and sizes of the files, oldest first.
    files: std::collections::VecDeque<(u64, u64)>,
    next: u64,
}

impl RejectedBatches {
    /// Opens the folder below a spool. The first rejected batch creates it.
    ///
    /// # Errors
    /// The folder exists and cannot be read.
    pub(crate) fn open(spool: &Path, bytes_max: u64) -> io::Result<Self> {
        let dir = spool.join("rejected");
        let mut files = Vec::new();
        match std::fs::read_dir(&dir) {
            Ok(entries) => {
                for entry in entries {
                    let entry = entry?;
                    let name = entry.file_name();
                    let number = name.to_str().and_then(|name| name.strip_suffix(".jmb"));
                    if let Some(Ok(number)) = number.map(str::parse) {
                        files.push((number, entry.metadata()?.len()));
                    }
                }
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
        files.sort_unstable();
        let next = files.last().map_or(0, |(number, _)| number + 1);
        Ok(Self { dir, bytes_max, files: files.into(), next })
    }

    /// Stores a rejected batch.
    ///
    /// # Errors
    /// The disk rejects the write.
    pub(crate) fn keep(&mut self, frame: &[u8], reason: &str) -> io::Result<()> {
        let bytes = u64::try_from(frame.len()).unwrap_or(u64::MAX);
        if bytes > self.bytes_max {
            return Ok(());
        }
        DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        while self.bytes().saturating_add(bytes) > self.bytes_max {
            let Some((oldest, _)) = self.files.pop_front() else { break };
            std::fs::remove_file(self.path(oldest, "jmb"))?;
            std::fs::remove_file(self.path(oldest, "txt"))?;
        }
        write_private(&self.path(self.next, "txt"), format!("{reason}\n").as_bytes())?;
        write_private(&self.path(self.next, "jmb"), frame)?;
        self.files.push_back((self.next, bytes));
        self.next += 1;
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, bytes)| bytes).sum()
    }

    fn path(&self, number: u64, ending: &str) -> PathBuf {
        self.dir.join(format!("{number:012}.{ending}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_first() {
        let dir = tempfile::tempdir().unwrap();
        let mut rejected = RejectedBatches::open(dir.path(), 10).unwrap();
        for i in 0..4_u8 {
            rejected.keep(&[i; 4], "too long").unwrap();
        }
        rejected.keep(&[9; 11], "larger than all").unwrap();
        let mut names: Vec<_> = std::fs::read_dir(dir.path().join("rejected"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(
            names,
            ["000000000002.jmb", "000000000002.txt", "000000000003.jmb", "000000000003.txt"]
        );
        let again = RejectedBatches::open(dir.path(), 10).unwrap();
        assert_eq!((again.next, again.bytes()), (4, 8));
    }
}
