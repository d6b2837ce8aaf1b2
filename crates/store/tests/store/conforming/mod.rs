//! The embedded store under the suite that every store passes, on the real disk. `flawed`, `flawed_followers`: tests of the suite
//! itself.

mod flawed;
mod flawed_followers;

use crate::kit::small;
use conformance::{Clock, Followed, Outcome, Query, Rules, Sample, Subject, Window, of_storage};
use model::{Batch, DeviceId, Gap, Metric, Series, Timestamp};
use senders::Limits;
use std::sync::Arc;
use storage::{Followers, RetentionLimits, Storage as _};
use store::{Settings, Store};

conformance::suite!(Embedded);
conformance::followers_suite!(Embedded);

/// A store in its own directory, with small pages, segments and levels, so that a check has many.
pub(crate) struct Embedded {
    store: Store,
    settings: Settings,
    clock: Clock,
    dir: tempfile::TempDir,
}

fn settings(rules: &Rules) -> Settings {
    let keep = |age_us| RetentionLimits { age_us, ..RetentionLimits::ALL };
    let senders = Limits {
        window_us: rules.dedup_window_us,
        missing_grace_us: rules.missing_grace_us,
        series_max: rules.series_max,
        series_per_origin_max: rules.series_per_origin_max,
        series_idle_us: rules.series_idle_us,
        ..Limits::default()
    };
    Settings {
        senders,
        settle_after_us: rules.late_max_us,
        settle_step_us: rules.settle_step_us,
        keep_samples: keep(rules.keep_samples_us),
        keep_rollups: rules.keep_windows_us.map(keep),
        head_age_us: i64::MAX,
        merge_blocks: 4,
        ..small()
    }
}

/// Opens the store. Other tests of this process start programs: between fork and exec, each holds a copy of
/// the lock that this store has just closed.
fn open(dir: &tempfile::TempDir, settings: &Settings, clock: &Clock) -> Store {
    for _ in 0..500 {
        let clock = clock.clone();
        match Store::open(dir.path(), settings.clone(), Arc::new(move || clock.now())) {
            Err(store::OpenError::Locked { .. }) => {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            opened => return opened.unwrap().0,
        }
    }
    panic!("{} stays locked", dir.path().display());
}

impl Followed for Embedded {
    fn followers(&self) -> &dyn Followers {
        self.store.followers().unwrap()
    }
}

impl Subject for Embedded {
    const WINDOWS_US: [i64; 2] = storage::WINDOWS_US;

    fn open(rules: &Rules, clock: &Clock) -> Self {
        let (dir, settings) = (tempfile::tempdir().unwrap(), settings(rules));
        Self { store: open(&dir, &settings, clock), settings, clock: clock.clone(), dir }
    }

    fn reopen(self) -> Self {
        let Self { store, settings, clock, dir } = self;
        drop(store);
        Self { store: open(&dir, &settings, &clock), settings, clock, dir }
    }

    fn append(&self, batches: Vec<(Batch, Timestamp)>) -> Vec<Outcome> {
        of_storage::append(&self.store, batches)
    }

    fn maintain(&self) {
        self.store.flush().unwrap();
        self.store.maintain().unwrap();
    }

    fn scan(&self, query: &Query) -> Vec<Sample> {
        of_storage::scan(&self.store, query)
    }

    fn windows(&self, query: &Query, window_us: i64) -> Vec<Window> {
        of_storage::windows(&self.store, query, window_us)
    }

    fn last(&self, query: &Query) -> Vec<Sample> {
        of_storage::last(&self.store, query)
    }

    fn counter_starts(&self, query: &Query) -> Vec<(Series, Timestamp, Timestamp)> {
        of_storage::counter_starts(&self.store, query)
    }

    fn gaps(&self, from: Timestamp, to: Timestamp, device: Option<&DeviceId>) -> Vec<Gap> {
        self.store.gaps(from, to, device)
    }

    fn metrics(&self) -> Vec<Metric> {
        self.store.catalogue().iter().map(|metric| (**metric).clone()).collect()
    }

    fn settled(&self) -> Option<Timestamp> {
        self.store.stats().settled
    }

    fn samples_removed(&self) -> u64 {
        self.store.stats().samples_removed
    }
}
