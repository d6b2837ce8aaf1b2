//! A limit of the distinct texts of a metric (docs/decisions/0040-texts-as-values.md): each is a series.

use crate::polling::{Reading, TEXT_LABEL};
use model::{DeviceId, Timestamp};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Distinct texts of a metric of a device in one day (UTC).
const TEXTS_MAX: usize = 64;
/// The text of the series that all further ones share.
const SHARED: &str = "…";

const DAY_US: i64 = 86_400 * Timestamp::SECOND;

/// The texts of a target's metrics on one day.
#[derive(Debug, Default)]
pub(crate) struct TextLimit {
    day: i64,
    texts: HashMap<(DeviceId, String), HashSet<String>>,
}

impl TextLimit {
    /// Moves readings with further texts to the shared series. Returns their number of each device.
    pub(crate) fn apply(
        &mut self,
        readings: &mut [Reading],
        now: Timestamp,
    ) -> BTreeMap<DeviceId, u32> {
        let day = now.0.div_euclid(DAY_US);
        if day != self.day {
            (self.day, self.texts) = (day, HashMap::new());
        }
        let mut moved = BTreeMap::new();
        for reading in readings.iter_mut().filter(|one| one.value.is_nan()) {
            let Some(text) = reading.labels.get(TEXT_LABEL) else { continue };
            let of_metric = (reading.device.clone(), reading.metric.clone());
            let texts = self.texts.entry(of_metric).or_default();
            if texts.len() < TEXTS_MAX {
                texts.insert(text);
            } else if !texts.contains(&text)
                && let Ok(labels) = reading.labels.with(TEXT_LABEL, SHARED)
            {
                reading.labels = labels;
                *moved.entry(reading.device.clone()).or_insert(0) += 1;
            }
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptions::{Directory, read_text};
    use crate::polling::Exchange;
    use model::Labels;
    use std::path::Path;

    #[test]
    fn further_texts_share_a_series_until_the_next_day() {
        let mut directory = Directory::default();
        let text = "- {name: state, device_id: pdu, url: 'http://pdu/#a', labels: {a: b}}";
        read_text(&Path::new("file").into(), text, &mut directory);
        let due: Vec<_> = directory.descriptions.iter().collect();
        let mut limit = TextLimit::default();
        let mut read = |text: &str, day: i64| {
            let mut exchange = Exchange::new(Timestamp(day * DAY_US), 1);
            let labels = Labels::new([("a", "b"), (TEXT_LABEL, text)]).unwrap();
            exchange.value(0, &due, labels, f64::NAN);
            let moved = limit.apply(&mut exchange.readings, exchange.at);
            let labels = &exchange.readings[0].labels;
            assert_eq!(labels.get("a").as_deref(), Some("b"));
            (labels.get(TEXT_LABEL).unwrap(), moved.values().sum::<u32>())
        };
        for number in 0..TEXTS_MAX {
            assert_eq!(read(&number.to_string(), 1), (number.to_string(), 0));
        }
        assert_eq!(read("new", 1), (SHARED.to_owned(), 1));
        assert_eq!(read("7", 1), ("7".to_owned(), 0), "a text that has a series");
        assert_eq!(read("new", 2), ("new".to_owned(), 0));
    }
}
