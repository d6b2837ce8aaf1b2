//! Samples whose instant the exporter states: each is stored once, however often the exporter shows it, also after a restart.

use super::hash_file::{self, WRITE_EVERY_US, file_name, hash_of};
use crate::descriptions::Target;
use crate::polling::Reading;
use model::Timestamp;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Samples beyond those of two exchanges after which the oldest are dropped.
const SPARE: usize = 1024;

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
            self.before = hash_file::read(file).await.into_iter().collect();
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
        let hash =
            hash_of((&one.device, &one.metric, one.labels.as_str(), one.at.0, one.value.to_bits()));
        let is_new = self.known.insert(hash) && !self.before.contains(&hash);
        self.has_changed |= is_new;
        is_new
    }

    /// Writes what changed to the file.
    pub(crate) async fn write(&mut self) {
        let Some(file) = self.file.clone().filter(|_| self.has_changed) else { return };
        self.has_changed = false;
        let all = self.known.union(&self.before).copied().collect();
        hash_file::write(file, all, "a restart stores its samples again").await;
    }
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
