//! The manifest: the list of blocks, the part of the log that they contain, and the store's records of that moment.
//! It is replaced as a whole, so a crash leaves either the old one or the new one.
//!
//! ```text
//! jobmeter manifest 1 9d3a51c2
//! {"generation":7,"covered":12,"blocks":[…],"metrics":[…],"origins":[…],…}
//! ```
//!
//! The first line ends with the CRC-32C of the bytes after it.

use crate::blocks::BlockNote;
use crate::files::disk::Disk;
use crate::files::errors::{DiskError, OpenError};
use crate::files::layout::{blocks_dir, rollups_dir};
use crate::state::rests::Rest;
use model::Timestamp;
use senders::json::{GapJson, MetricJson};
use senders::{GapLimits, Gaps, OriginState, Received, json};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// The file's name.
pub(crate) const MANIFEST: &str = "MANIFEST";
const HEADER: &str = "jobmeter manifest 1 ";

/// The archive's entry in the manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ArchiveNote {
    /// The ID in its file `ARCHIVE`: its time of creation, in microseconds since 1970.
    pub(crate) id: i64,
    /// Its last location.
    pub(crate) dir: PathBuf,
}

/// The content of the manifest.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// Counts manifests.
    pub(crate) generation: u64,
    /// The last log segment with records in blocks and in this manifest.
    pub(crate) covered: u64,
    pub(crate) blocks: Vec<BlockNote>,
    /// Files of rollups; each covers the samples of some log segments.
    #[serde(default)]
    pub(crate) rollups: Vec<BlockNote>,
    /// Rollups of earlier time are final, in files of their own.
    #[serde(with = "json::time", default = "never")]
    pub(crate) settled: Timestamp,
    /// Batches received since then have no sample before `settled`.
    #[serde(with = "json::time", default = "never")]
    pub(crate) settled_at: Timestamp,
    /// Deleted samples since the directory was created.
    #[serde(default)]
    pub(crate) samples_removed: u64,
    /// Location of blocks outside the data directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) archive: Option<ArchiveNote>,
    pub(crate) metrics: Vec<MetricJson>,
    pub(crate) origins: Vec<OriginState>,
    /// Damaged places of the log.
    pub(crate) damage: Vec<Received>,
    /// Covered segments that are in quarantine instead of removed.
    pub(crate) quarantine: Vec<u64>,
    pub(crate) gaps: Option<GapsNote>,
    pub(crate) gaps_forgotten: u64,
    /// Ranges that followers read instead of a block, ordered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) rests: Vec<Rest>,
}

/// An instant before any sample.
const fn never() -> Timestamp {
    Timestamp(i64::MIN)
}

/// The file of the gaps: one JSON object per line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GapsNote {
    pub(crate) file: String,
    pub(crate) crc32c: u32,
}

/// A line of this file.
#[derive(Serialize, Deserialize)]
struct GapLine {
    #[serde(flatten)]
    gap: GapJson,
    /// The place of its newest report in the order of storing.
    #[serde(default)]
    place: u64,
}

/// Writes a file atomically: under a temporary name, then renamed; all of it is synced.
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

/// Reads a whole file; `None` if it does not exist.
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
            rests: Vec::new(),
        }
    }
}

impl Manifest {
    /// Reads the manifest of a data directory; `None` if it has none yet. A new store writes one before its first
    /// block, so a directory with blocks and without a manifest has lost it: an empty one would delete them.
    ///
    /// # Errors
    /// It is damaged or lost, or the disk fails.
    pub(crate) fn read(disk: &dyn Disk, dir: &Path) -> Result<Option<Self>, OpenError> {
        let path = dir.join(MANIFEST);
        let Some(bytes) = read_whole(disk, &path)? else {
            return match listed_by_a_manifest(disk, dir) {
                None => Ok(None),
                Some(file) => Err(OpenError::Manifest {
                    path,
                    why: format!("it is missing, and it listed {}", file.display()),
                }),
            };
        };
        let manifest = parse(&bytes).map_err(|why| OpenError::Manifest { path, why })?;
        Ok(Some(manifest))
    }

    /// Replaces the previous manifest by this one.
    ///
    /// # Errors
    /// The disk fails: either of the two may be there then.
    pub(crate) fn write(&self, disk: &dyn Disk, dir: &Path) -> Result<(), DiskError> {
        let path = dir.join(MANIFEST);
        let body = serde_json::to_string(self).map_err(io::Error::other);
        let body = body.map_err(DiskError::of("write", &path))?;
        write_whole(disk, dir, MANIFEST, sealed(HEADER, &body).as_bytes())
    }

    /// The gaps of the manifest.
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
            .map(|line| {
                let GapLine { gap, place } = serde_json::from_slice(line).ok()?;
                Some((gap.gap()?, place))
            })
            .collect();
        let gaps = gaps.ok_or_else(|| damaged("a line is not a gap of this version"))?;
        Ok(Gaps::with_places(gaps, self.gaps_forgotten, limits))
    }
}

/// A file that only a manifest can have listed, if there is one.
fn listed_by_a_manifest(disk: &dyn Disk, dir: &Path) -> Option<PathBuf> {
    let finished = |dir: PathBuf, start: &str| {
        // A directory that does not exist has no files.
        let names = disk.list(&dir).unwrap_or_default().into_iter();
        let mut names = names.filter(|name| name.starts_with(start) && !name.ends_with(".tmp"));
        names.next().map(|name| dir.join(name))
    };
    finished(blocks_dir(dir), "")
        .or_else(|| finished(rollups_dir(dir), ""))
        .or_else(|| finished(dir.to_owned(), "gaps-"))
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
    for (gap, place) in gaps.placed() {
        let line = GapLine { gap: GapJson::from(gap), place };
        let put = serde_json::to_writer(&mut bytes, &line).map_err(io::Error::other);
        put.map_err(DiskError::of("write", &dir.join(&file)))?;
        bytes.push(b'\n');
    }
    write_whole(disk, dir, &file, &bytes)?;
    Ok(GapsNote { file, crc32c: crc32c::crc32c(&bytes) })
}

fn parse(bytes: &[u8]) -> Result<Manifest, String> {
    serde_json::from_slice(unsealed(HEADER, bytes)?).map_err(|error| error.to_string())
}

/// A file's text: a first line with the checksum of the rest, and the rest.
pub(crate) fn sealed(header: &str, body: &str) -> String {
    format!("{header}{:08x}\n{body}\n", crc32c::crc32c(format!("{body}\n").as_bytes()))
}

/// The rest of a file from [`sealed`].
///
/// # Errors
/// The header or the checksum is wrong.
pub(crate) fn unsealed<'a>(header: &str, bytes: &'a [u8]) -> Result<&'a [u8], String> {
    let rest = bytes.strip_prefix(header.as_bytes());
    let rest = rest.ok_or_else(|| format!("it does not begin with `{header}`"))?;
    let (crc, rest) = rest.split_first_chunk::<8>().ok_or("it ends within its first line")?;
    let body = rest.strip_prefix(b"\n").ok_or("its first line has no checksum")?;
    if *crc != *format!("{:08x}", crc32c::crc32c(body)).as_bytes() {
        return Err("its checksum differs".to_owned());
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::disk::RealDisk;

    #[test]
    fn every_flipped_byte_and_every_truncation_is_rejected() {
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
