//! An output of the simulated server: a follower that delivers each stored sample once.

use crate::chance::Chance;
use model::{Series, Timestamp};
use std::collections::{HashMap, HashSet};
use storage::{FollowFrom, FollowSlice, Selector, Storage as _};
use store::Store;

const NAME: &str = "output";

/// A sample: series, instant, bits of the value.
type Key = (Series, i64, u64);

/// The receiver of an output.
#[derive(Debug, Default)]
pub(crate) struct Output {
    /// Confirmed samples, each with the number of its deliveries.
    confirmed: HashMap<Key, u64>,
    /// Samples of slices with failed confirmations: the store may have kept the confirmation, or will deliver them again.
    unsure: HashSet<Key>,
    /// Confirmed slices.
    pub(crate) slices: u64,
}

/// Begins or continues the output.
pub(crate) fn follow(store: &Store) -> bool {
    store.followers().is_some_and(|of| of.follow(NAME, FollowFrom::Now).is_ok())
}

impl Output {
    /// Requests a slice, and mostly confirms it. False if there is none, or the disk fails.
    pub(crate) fn read(&mut self, store: &Store, chance: &mut Chance, always: bool) -> bool {
        let rows = chance.of(&[10, 300, 5000]);
        let of = store.followers().unwrap();
        let Ok(Some(slice)) = of.next(NAME, rows) else { return false };
        let keys = keys(&slice);
        if chance.happens(10) && !always {
            return true;
        }
        let is_confirmed = of.confirm(NAME, slice.number).is_ok();
        for key in keys {
            if is_confirmed {
                *self.confirmed.entry(key).or_default() += 1;
            } else {
                self.unsure.insert(key);
            }
        }
        self.slices += u64::from(is_confirmed);
        is_confirmed
    }

    /// Checks that each stored sample was delivered once.
    pub(crate) fn check(&self, store: &Store) -> Result<(), String> {
        let mut stored = 0;
        for chunk in store.scan(&Selector::default(), Timestamp(i64::MIN), Timestamp(i64::MAX)) {
            let chunk = chunk.map_err(|e| format!("a scan: {e}"))?;
            for (at, value, _) in chunk.rows() {
                stored += 1;
                let key = (chunk.series.series.clone(), at.0, value.to_bits());
                match self.confirmed.get(&key) {
                    Some(1) => {}
                    None if self.unsure.contains(&key) => {}
                    other => return Err(format!("{key:?} is delivered {other:?} times")),
                }
            }
        }
        let unsure = self.unsure.iter().filter(|key| !self.confirmed.contains_key(*key)).count();
        match self.confirmed.len() + unsure == stored {
            true => Ok(()),
            false => Err(format!("{stored} samples are stored, others are delivered")),
        }
    }
}

fn keys(slice: &FollowSlice) -> Vec<Key> {
    let samples = &slice.samples;
    let rows = samples.places.iter().zip(&samples.times).zip(&samples.values);
    let series = |place: u32| samples.series[place as usize].series.clone();
    rows.map(|((place, at), value)| (series(*place), *at, value.to_bits())).collect()
}
