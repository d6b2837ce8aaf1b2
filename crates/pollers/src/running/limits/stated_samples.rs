//! Samples whose instant the exporter states: each is stored once, however often the exporter shows it, also after a restart.

use crate::descriptions::Target;
use crate::polling::Reading;
use delivery::replace_private;
use model::{Timestamp, printable};
use ring::digest::{SHA256, digest};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Samples beyond those of two exchanges after which the oldest are dropped.
const SPARE: usize = 1024;
/// Shortest time between two writes of a file. After a kill, samples of this time may be stored again.
const WRITE_EVERY_US: i64 = 10 * Timestamp::SECOND;
/// Age of files that are deleted: their targets are not polled any more.
const AGE_MAX: Duration = Duration::from_secs(30 * 86_400);
/// Bytes of a hash.
const HASH_BYTES: usize = size_of::<u64>();
/// Bytes of a file: far more than the samples of some expositions.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The samples of one exporter that were stored, as hashes.
#[derive(Debug, Default)]
pub(crate) struct StatedSamples {
    /// `None` without a folder: a restart stores what it sees again.
    file: Option<PathBuf>,
    is_read: bool,
    known: HashSet<u64>,
    /// Those seen before `known` was full.
    before: HashSet<u64>,
    /// Most of one exchange.
    most: usize,
    has_changed: bool,
    written: Timestamp,
}

impl StatedSamples {
    /// Those of a target, with a file in this folder.
    pub(crate) fn new(folder: Option<&Path>, target: &Target) -> Self {
        let file = folder.map(|folder| folder.join(file_name(target)));
        Self { file, ..Self::default() }
    }

    /// Removes the readings that were stored before.
    pub(crate) async fn retain_new(&mut self, readings: &mut Vec<Reading>, now: Timestamp) {
        let count = readings.iter().filter(|one| one.is_stated).count();
        if count == 0 {
            return;
        }
        if !std::mem::replace(&mut self.is_read, true)
            && let Some(file) = self.file.clone()
        {
            let read = tokio::task::spawn_blocking(move || read(&file)).await;
            self.before = read.unwrap_or_default();
        }
        self.most = self.most.max(count);
        if self.known.len() > 2 * self.most + SPARE {
            self.before = std::mem::take(&mut self.known);
        }
        readings.retain(|one| !one.is_stated || self.is_new(one));
        if self.has_changed && now.since(self.written) >= WRITE_EVERY_US {
            self.written = now;
            self.write().await;
        }
    }

    fn is_new(&mut self, one: &Reading) -> bool {
        // The same in each start: files contain it.
        let mut hasher = DefaultHasher::new();
        (&one.device, &one.metric, one.labels.as_str(), one.at.0, one.value.to_bits())
            .hash(&mut hasher);
        let hash = hasher.finish();
        let is_new = self.known.insert(hash) && !self.before.contains(&hash);
        self.has_changed |= is_new;
        is_new
    }

    /// Writes what changed to the file.
    pub(crate) async fn write(&mut self) {
        let Some(file) = self.file.clone().filter(|_| self.has_changed) else { return };
        self.has_changed = false;
        let all = self.known.union(&self.before);
        let bytes: Vec<u8> = all.flat_map(|hash| hash.to_le_bytes()).collect();
        let shown = printable(&file.to_string_lossy()).into_owned();
        let written = tokio::task::spawn_blocking(move || write(&file, &bytes)).await;
        if let Ok(Err(error)) = written {
            log::warn!("cannot write {shown}: {error}; a restart stores its samples again");
        }
    }
}

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

fn file_name(target: &Target) -> String {
    let user = target.user.as_ref().map_or("", |user| user.reveal());
    let key = format!("{}\n{}\n{}\n{user}", target.is_tls, target.host, target.port);
    let hash = digest(&SHA256, key.as_bytes());
    hash.as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

fn read(file: &Path) -> HashSet<u64> {
    let found = match config::read_small(file, FILE_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return HashSet::new(),
        Err(error) => {
            log::warn!("cannot read {}: {error}", printable(&file.to_string_lossy()));
            return HashSet::new();
        }
    };
    let (hashes, _) = found.as_chunks::<HASH_BYTES>();
    hashes.iter().map(|hash| u64::from_le_bytes(*hash)).collect()
}

fn write(file: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        kernel::trust::make_own_folder(folder, 0o700)?;
    }
    replace_private(file, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptions::entries_of;
    use crate::polling::Exchange;
    use model::Labels;

    #[tokio::test]
    async fn a_sample_is_stored_once_also_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let all = entries_of("- {name: x, device_id: d, url: 'http://d/#x'}\n");
        let due = [&all[0]];
        let reading = |second: i64, value: f64, is_stated: bool| {
            let mut exchange = Exchange::new(Timestamp::from_seconds(second), 1);
            exchange.value(0, &due, Labels::default(), value);
            Reading { is_stated, ..exchange.readings.remove(0) }
        };
        let folder = dir.path().join("stated");
        let mut samples = StatedSamples::new(Some(&folder), &all[0].target);
        let stated = vec![reading(1, 1.0, true), reading(2, 1.0, true), reading(3, 5.0, false)];
        let mut kept = Vec::new();
        for scrape in 0..3 {
            let mut readings = stated.clone();
            readings.push(reading(10 + scrape, f64::NAN, true));
            samples.retain_new(&mut readings, Timestamp::from_seconds(20)).await;
            kept.push(readings.len());
        }
        assert_eq!(kept, [4, 2, 2], "the sample without an instant, and the one of a new instant");
        samples.write().await;
        let mut samples = StatedSamples::new(Some(&folder), &all[0].target);
        let mut readings = stated.clone();
        readings.push(reading(2, 7.0, true));
        samples.retain_new(&mut readings, Timestamp::from_seconds(30)).await;
        let values: Vec<f64> = readings.iter().map(|one| one.value).collect();
        assert_eq!(values, [5.0, 7.0], "another value is another sample");
        // Many samples of other instants do not take more and more memory.
        for second in 0..20_000 {
            let mut one = vec![reading(100 + second, 1.0, true)];
            samples.retain_new(&mut one, Timestamp::from_seconds(31)).await;
            assert_eq!(one.len(), 1);
        }
        assert!(samples.known.len() + samples.before.len() < 4 * SPARE);
    }
}
