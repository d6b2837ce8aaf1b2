//! The manifest: which blocks there are, which part of the log they hold, and the books of that moment.
//! It is replaced as a whole, so a crash leaves either the old one or the new one.
//!
//! ```text
//! jobmeter manifest 1 9d3a51c2
//! {"generation":7,"covered":12,"blocks":[…],"metrics":[…],"origins":[…],…}
//! ```
//!
//! The first line ends with the CRC-32C of all that follows it.

use crate::blocks::BlockNote;
use crate::files::disk::Disk;
use crate::files::errors::{DiskError, OpenError};
use crate::files::json;
use crate::files::json::{GapJson, MetricJson};
use crate::senders::gaps::{GapLimits, Gaps};
use crate::senders::origin::{OriginState, Received};
use model::Timestamp;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// The file's name.
pub(crate) const MANIFEST: &str = "MANIFEST";
const HEADER: &str = "jobmeter manifest 1 ";

/// What the manifest says of the archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ArchiveNote {
    /// What its file `ARCHIVE` says: when it was begun, in microseconds since 1970.
    pub(crate) id: i64,
    /// Where it was last.
    pub(crate) dir: PathBuf,
}

/// What the manifest holds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// Counts manifests.
    pub(crate) generation: u64,
    /// The last log segment whose records are in blocks and in these books.
    pub(crate) covered: u64,
    pub(crate) blocks: Vec<BlockNote>,
    /// Files of rollups; each is of the samples of some log segments.
    #[serde(default)]
    pub(crate) rollups: Vec<BlockNote>,
    /// Rollups of what was before are made for good, in files of their own.
    #[serde(with = "json::time", default = "never")]
    pub(crate) settled: Timestamp,
    /// What was received since then has no sample of before.
    #[serde(with = "json::time", default = "never")]
    pub(crate) settled_at: Timestamp,
    /// Samples that are no longer kept, since the directory was made.
    #[serde(default)]
    pub(crate) samples_removed: u64,
    /// Where blocks lie that are not in the data directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) archive: Option<ArchiveNote>,
    pub(crate) metrics: Vec<MetricJson>,
    pub(crate) origins: Vec<OriginState>,
    /// Damaged places of the log.
    pub(crate) damage: Vec<Received>,
    /// Segments among those covered that are set aside instead of removed.
    pub(crate) quarantine: Vec<u64>,
    pub(crate) gaps: Option<GapsNote>,
    pub(crate) gaps_forgotten: u64,
}

/// Before any sample.
const fn never() -> Timestamp {
    Timestamp(i64::MIN)
}

/// Where the gaps are: a JSON object a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GapsNote {
    pub(crate) file: String,
    pub(crate) crc32c: u32,
}

/// Writes a file whole: under another name, then renamed, all of it on the disk when this returns.
pub(crate) fn write_whole(
    disk: &dyn Disk,
    dir: &Path,
    name: &str,
    bytes: &[u8],
) -> Result<(), DiskError> {
    let (path, other) = (dir.join(name), dir.join(format!("{name}.tmp")));
    let write = || {
        let mut file = disk.create(&other)?;
        file.write(bytes)?;
        file.sync()?;
        drop(file);
        disk.rename(&other, &path)?;
        disk.sync_dir(dir)
    };
    write().map_err(DiskError::of("write", &path))
}

/// Reads a file whole; `None` when it is not there.
pub(crate) fn read_whole(disk: &dyn Disk, path: &Path) -> Result<Option<Vec<u8>>, DiskError> {
    let read = || -> io::Result<Vec<u8>> {
        let file = disk.open(path)?;
        let length = usize::try_from(file.length()?).map_err(io::Error::other)?;
        let mut bytes = vec![0; length];
        file.read_at(&mut bytes, 0)?;
        Ok(bytes)
    };
    match read() {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(DiskError::of("read", path)(error)),
    }
}

impl Default for Manifest {
    fn default() -> Self {
        Self {
            generation: 0,
            covered: 0,
            blocks: Vec::new(),
            rollups: Vec::new(),
            settled: never(),
            settled_at: never(),
            samples_removed: 0,
            archive: None,
            metrics: Vec::new(),
            origins: Vec::new(),
            damage: Vec::new(),
            quarantine: Vec::new(),
            gaps: None,
            gaps_forgotten: 0,
        }
    }
}

impl Manifest {
    /// Reads the manifest of a data directory; `None` when it has none yet.
    ///
    /// # Errors
    /// It is damaged, or the disk fails.
    pub(crate) fn read(disk: &dyn Disk, dir: &Path) -> Result<Option<Self>, OpenError> {
        let path = dir.join(MANIFEST);
        let Some(bytes) = read_whole(disk, &path)? else { return Ok(None) };
        let manifest = parse(&bytes).map_err(|why| OpenError::Manifest { path, why })?;
        Ok(Some(manifest))
    }

    /// Puts this manifest in the place of the one before.
    ///
    /// # Errors
    /// The disk fails: either of the two may be there then.
    pub(crate) fn write(&self, disk: &dyn Disk, dir: &Path) -> Result<(), DiskError> {
        let path = dir.join(MANIFEST);
        let body = serde_json::to_string(self).map_err(io::Error::other);
        let body = body.map_err(DiskError::of("write", &path))?;
        let text =
            format!("{HEADER}{:08x}\n{body}\n", crc32c::crc32c(format!("{body}\n").as_bytes()));
        write_whole(disk, dir, MANIFEST, text.as_bytes())
    }

    /// The gaps that it names.
    ///
    /// # Errors
    /// Their file is missing or damaged, or the disk fails.
    pub(crate) fn read_gaps(
        &self,
        disk: &dyn Disk,
        dir: &Path,
        limits: GapLimits,
    ) -> Result<Gaps, OpenError> {
        let Some(note) = &self.gaps else { return Ok(Gaps::new([], self.gaps_forgotten, limits)) };
        let path = dir.join(&note.file);
        let damaged = |why: &str| OpenError::Manifest { path: path.clone(), why: why.to_owned() };
        let bytes = read_whole(disk, &path)?.ok_or_else(|| damaged("it is missing"))?;
        if crc32c::crc32c(&bytes) != note.crc32c {
            return Err(damaged("its checksum differs"));
        }
        let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let gaps: Option<Vec<_>> = lines
            .map(|line| serde_json::from_slice::<GapJson>(line).ok().and_then(GapJson::gap))
            .collect();
        let gaps = gaps.ok_or_else(|| damaged("a line is no gap that this version knows"))?;
        Ok(Gaps::new(gaps, self.gaps_forgotten, limits))
    }
}

/// Writes gaps to the file of a generation.
///
/// # Errors
/// The disk fails.
pub(crate) fn write_gaps(
    disk: &dyn Disk,
    dir: &Path,
    generation: u64,
    gaps: &Gaps,
) -> Result<GapsNote, DiskError> {
    let file = format!("gaps-{generation:016}.json");
    let mut bytes = Vec::new();
    for gap in gaps.all() {
        let put = serde_json::to_writer(&mut bytes, &GapJson::from(gap)).map_err(io::Error::other);
        put.map_err(DiskError::of("write", &dir.join(&file)))?;
        bytes.push(b'\n');
    }
    write_whole(disk, dir, &file, &bytes)?;
    Ok(GapsNote { file, crc32c: crc32c::crc32c(&bytes) })
}

fn parse(bytes: &[u8]) -> Result<Manifest, String> {
    let rest =
        bytes.strip_prefix(HEADER.as_bytes()).ok_or("it does not begin as a manifest does")?;
    let (crc, rest) = rest.split_first_chunk::<8>().ok_or("it ends within its first line")?;
    let body = rest.strip_prefix(b"\n").ok_or("its first line is no checksum")?;
    if *crc != *format!("{:08x}", crc32c::crc32c(body)).as_bytes() {
        return Err("its checksum differs".to_owned());
    }
    serde_json::from_slice(body).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::disk::RealDisk;

    #[test]
    fn every_flipped_byte_and_every_cut_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let manifest = Manifest { generation: 3, covered: 9, ..Manifest::default() };
        assert!(Manifest::read(&RealDisk, dir.path()).unwrap().is_none());
        manifest.write(&RealDisk, dir.path()).unwrap();
        let again = Manifest::read(&RealDisk, dir.path()).unwrap().unwrap();
        assert_eq!((again.generation, again.covered), (3, 9));
        let bytes = std::fs::read(dir.path().join(MANIFEST)).unwrap();
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 4;
            assert!(parse(&bad).is_err(), "{at}");
            assert!(parse(&bytes[..at]).is_err(), "{at}");
        }
    }
}
