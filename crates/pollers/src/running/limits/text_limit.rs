//! A limit of the distinct texts of a metric (docs/decisions/0040-texts-as-values.md): each is a series.

use super::hash_file::{self, WRITE_EVERY_US, file_name, hash_of};
use crate::descriptions::Target;
use crate::polling::{Reading, TEXT_LABEL};
use model::{DeviceId, Timestamp};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

/// Distinct texts of a metric of a device in one day (UTC).
const TEXTS_MAX: usize = 64;
/// The text of the series that all further ones share.
const SHARED: &str = "…";

const DAY_US: i64 = 86_400 * Timestamp::SECOND;

/// The texts of a target's metrics on one day, as hashes.
#[derive(Debug, Default)]
pub(crate) struct TextLimit {
    /// In days since 1970.
    day: u64,
    /// The texts of each device and metric.
    texts: HashMap<u64, HashSet<u64>>,
    is_read: bool,
    has_changed: bool,
    written: Timestamp,
}

/// The folder of the files, and the target. Without a folder a restart counts anew.
pub(crate) type FileOf<'a> = (Option<&'a Path>, &'a Target);

impl TextLimit {
    /// Moves readings with further texts to the shared series. Returns their number of each device.
    pub(crate) async fn apply(
        &mut self,
        readings: &mut [Reading],
        now: Timestamp,
        file: FileOf<'_>,
    ) -> BTreeMap<DeviceId, u32> {
        let mut moved = BTreeMap::new();
        if !readings.iter().any(|one| text_of(one).is_some()) {
            return moved;
        }
        if !std::mem::replace(&mut self.is_read, true)
            && let Some(path) = path(file)
        {
            self.restore(&hash_file::read(path).await);
        }
        let day = u64::try_from(now.0.div_euclid(DAY_US)).unwrap_or(0);
        if day != self.day {
            (self.day, self.texts) = (day, HashMap::new());
        }
        for reading in readings.iter_mut() {
            let Some(text) = text_of(reading) else { continue };
            let text = hash_of(&text);
            let texts = self.texts.entry(hash_of((&reading.device, &reading.metric))).or_default();
            if texts.len() < TEXTS_MAX {
                self.has_changed |= texts.insert(text);
            } else if !texts.contains(&text)
                && let Ok(labels) = reading.labels.with(TEXT_LABEL, SHARED)
            {
                reading.labels = labels;
                *moved.entry(reading.device.clone()).or_insert(0) += 1;
            }
        }
        if self.has_changed && now.since(self.written) >= WRITE_EVERY_US {
            self.written = now;
            self.write(file).await;
        }
        moved
    }

    /// Writes what changed to the file: the day, then a metric and a text in turns.
    pub(crate) async fn write(&mut self, file: FileOf<'_>) {
        let Some(path) = path(file).filter(|_| self.has_changed) else { return };
        self.has_changed = false;
        let pairs =
            self.texts.iter().flat_map(|(of, texts)| texts.iter().flat_map(|text| [*of, *text]));
        let all = std::iter::once(self.day).chain(pairs).collect();
        hash_file::write(path, all, "a restart counts its texts anew").await;
    }

    fn restore(&mut self, found: &[u64]) {
        let Some((day, rest)) = found.split_first() else { return };
        self.day = *day;
        let (pairs, _) = rest.as_chunks::<2>();
        for [of, text] in pairs {
            self.texts.entry(*of).or_default().insert(*text);
        }
    }
}

fn text_of(reading: &Reading) -> Option<String> {
    reading.value.is_nan().then(|| reading.labels.get(TEXT_LABEL)).flatten()
}

fn path((folder, target): FileOf<'_>) -> Option<PathBuf> {
    folder.map(|folder| folder.join(file_name(target)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptions::{Description, entries_of};
    use crate::polling::Exchange;
    use model::Labels;

    /// The text with which a reading is stored, and the number of moved readings.
    async fn read(
        limit: &mut TextLimit,
        folder: Option<&Path>,
        entries: &[Description],
        (text, day): (&str, i64),
    ) -> (String, u32) {
        let due: Vec<_> = entries.iter().collect();
        let mut exchange = Exchange::new(Timestamp(day * DAY_US), 1);
        let labels = Labels::new([("a", "b"), (TEXT_LABEL, text)]).unwrap();
        exchange.value(0, &due, labels, f64::NAN);
        let file = (folder, &*entries[0].target);
        let moved = limit.apply(&mut exchange.readings, exchange.at, file).await;
        let labels = &exchange.readings[0].labels;
        assert_eq!(labels.get("a").as_deref(), Some("b"));
        (labels.get(TEXT_LABEL).unwrap(), moved.values().sum::<u32>())
    }

    #[tokio::test]
    async fn further_texts_share_a_series_until_the_next_day_also_after_a_restart() {
        let entries =
            entries_of("- {name: state, device_id: pdu, url: 'http://pdu/#a', labels: {a: b}}");
        let dir = tempfile::tempdir().unwrap();
        let (folder, shared) = (dir.path().join("texts"), (SHARED.to_owned(), 1));
        for folder in [None, Some(&*folder)] {
            let mut limit = TextLimit::default();
            for number in 0..TEXTS_MAX {
                let text = number.to_string();
                let found = read(&mut limit, folder, &entries, (&text, 1)).await;
                assert_eq!(found, (text, 0));
            }
            assert_eq!(read(&mut limit, folder, &entries, ("new", 1)).await, shared);
            let known = read(&mut limit, folder, &entries, ("7", 1)).await;
            assert_eq!(known, ("7".to_owned(), 0), "a text that has a series");
            limit.write((folder, &entries[0].target)).await;
            let mut restarted = TextLimit::default();
            let found = read(&mut restarted, folder, &entries, ("new", 1)).await;
            assert_eq!(found == shared, folder.is_some());
            for limit in [&mut limit, &mut restarted] {
                let next = read(limit, folder, &entries, ("new", 2)).await;
                assert_eq!(next, ("new".to_owned(), 0));
            }
        }
    }
}
