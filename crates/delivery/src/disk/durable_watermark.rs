//! Durable watermark: the time until which all samples are acknowledged or spooled. The file beside the spool lets
//! the next start report what was lost.
//!
//! The file `kept` is 12 bytes: microseconds since 1970, and the CRC-32C of these bytes and of the origin's name, both
//! little-endian, in one write. So the watermark of another origin, which used the folder before, counts as none. A
//! decrease is written at once. A kill between two writes therefore leaves an earlier time: the gap may be too
//! wide, but never too narrow.

use crate::common::files::crc32c;
use model::{Origin, Timestamp};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// The file `kept`.
#[derive(Debug)]
pub(crate) struct DurableWatermark {
    file: File,
    origin: Origin,
    written: Option<Timestamp>,
}

impl DurableWatermark {
    /// Opens the file in a folder. Also returns the time that an earlier start of the same origin wrote.
    ///
    /// # Errors
    /// The file cannot be opened or read.
    pub(crate) fn open(dir: &Path, origin: &Origin) -> io::Result<(Self, Option<Timestamp>)> {
        let path = dir.join("kept");
        let mut options = File::options();
        options.create(true).truncate(false).read(true).write(true).mode(0o600);
        let file = options.open(path)?;
        let mut bytes = [0; 12];
        let found = match file.read_exact_at(&mut bytes, 0) {
            Ok(()) => read(&bytes, origin),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => None,
            Err(e) => return Err(e),
        };
        Ok((Self { file, origin: origin.clone(), written: found }, found))
    }

    /// Time in the file.
    pub(crate) const fn written(&self) -> Option<Timestamp> {
        self.written
    }

    /// Writes the watermark if it changed.
    ///
    /// # Errors
    /// The disk rejects the write.
    pub(crate) fn write(&mut self, until: Timestamp) -> io::Result<()> {
        if self.written == Some(until) {
            return Ok(());
        }
        let time = until.0.to_le_bytes();
        let check = checksum(time, &self.origin).to_le_bytes();
        let mut bytes = [0; 12];
        for (to, from) in bytes.iter_mut().zip(time.into_iter().chain(check)) {
            *to = from;
        }
        self.file.write_all_at(&bytes, 0)?;
        self.written = Some(until);
        Ok(())
    }
}

fn read(bytes: &[u8; 12], origin: &Origin) -> Option<Timestamp> {
    let (time, check) = bytes.split_first_chunk::<8>()?;
    let check: [u8; 4] = check.try_into().ok()?;
    let is_own = u32::from_le_bytes(check) == checksum(*time, origin);
    is_own.then(|| Timestamp(i64::from_le_bytes(*time)))
}

fn checksum(time: [u8; 8], origin: &Origin) -> u32 {
    crc32c(&[&time[..], origin.as_str().as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(name: &str) -> Origin {
        Origin::new(name).unwrap()
    }

    #[test]
    fn another_origin_of_the_folder_has_kept_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (mut kept, _) = DurableWatermark::open(dir.path(), &origin("n1")).unwrap();
        kept.write(Timestamp(5)).unwrap();
        let found = |name| DurableWatermark::open(dir.path(), &origin(name)).unwrap().1;
        assert_eq!((found("n1"), found("n2")), (Some(Timestamp(5)), None));
    }

    #[test]
    fn written_and_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let (mut kept, before) = DurableWatermark::open(dir.path(), &origin("n1")).unwrap();
        assert_eq!(before, None);
        kept.write(Timestamp(-5)).unwrap();
        kept.write(Timestamp(1_767_706_500_000_000)).unwrap();
        let (_, before) = DurableWatermark::open(dir.path(), &origin("n1")).unwrap();
        assert_eq!(before, Some(Timestamp(1_767_706_500_000_000)));
    }

    #[test]
    fn every_cut_and_every_flipped_byte_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kept");
        DurableWatermark::open(dir.path(), &origin("n1"))
            .unwrap()
            .0
            .write(Timestamp(1_767_706_500_000_000))
            .unwrap();
        let good = std::fs::read(&path).unwrap();
        for at in 0..good.len() {
            std::fs::write(&path, &good[..at]).unwrap();
            assert_eq!(DurableWatermark::open(dir.path(), &origin("n1")).unwrap().1, None, "{at}");
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            std::fs::write(&path, &bad).unwrap();
            assert_eq!(DurableWatermark::open(dir.path(), &origin("n1")).unwrap().1, None, "{at}");
        }
    }
}
