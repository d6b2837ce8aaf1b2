//! Samples, and the documents that an index has of them.

use crate::kit::{Site, open};
use conformance::{S, Spec, T0, spec};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

/// The positions of followers in a data folder.
pub(crate) const POSITIONS: &str = "samples/followers/POSITIONS";

/// How often each sample is in documents: `device/metric@second=value`.
pub(crate) fn counted(documents: &[Value]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for document in documents {
        let at: jiff::Timestamp = document["@timestamp"].as_str().unwrap().parse().unwrap();
        let (device, second) = (document["device"].as_str().unwrap(), at.as_second() - T0 / S);
        for (metric, value) in document["metrics"].as_object().into_iter().flatten() {
            *counts.entry(format!("{device}/{metric}@{second}={value}")).or_insert(0) += 1;
        }
    }
    counts
}

pub(crate) fn expected(samples: &[(Spec, i64, f64)]) -> BTreeMap<String, usize> {
    let key = |(of, second, value): &(Spec, i64, f64)| {
        format!(
            "{}/{}@{second}={}",
            of.device,
            of.metric,
            Value::from(*value).to_string().trim_end_matches(".0")
        )
    };
    samples.iter().map(|one| (key(one), 1)).collect()
}

/// Samples of two sources at each of some seconds.
pub(crate) fn samples(seconds: std::ops::Range<i64>) -> Vec<(Spec, i64, f64)> {
    let of = |second| {
        ["cpu_user", "cpu_idle", "load_1m"].map(|metric| (spec("n1", metric), second, 0.5))
    };
    seconds.flat_map(of).collect()
}

/// Ends outputs and store, changes files of the data folder, and opens them again.
pub(crate) fn with_positions(site: Site, positions: &[u8]) -> Site {
    let Site { dir, store, outputs, sender, clock } = site;
    outputs.stop(Duration::from_secs(5));
    drop((store, outputs));
    fs::write(dir.path().join(POSITIONS), positions).unwrap();
    let (store, outputs) = open(dir.path(), &clock);
    Site { dir, store, outputs, sender, clock }
}
