//! The store on PostgreSQL under the suite that every store passes.

use crate::server::{Direct, database};
use conformance::{Clock, Outcome, Query, Rules, Sample, Subject, Window, of_storage};
use model::{Batch, DeviceId, Gap, Metric, Series, Timestamp};
use postgres::{PostgresStore, Settings};
use senders::Limits;
use std::sync::Arc;
use storage::Storage;
use tokio_postgres::Config;

conformance::suite!(Postgres);

/// A store in its own database.
struct Postgres {
    store: PostgresStore,
    settings: Settings,
    clock: Clock,
    database: Config,
}

fn open(database: &Config, settings: &Settings, clock: &Clock) -> PostgresStore {
    let clock = clock.clone();
    let now = Arc::new(move || clock.now());
    PostgresStore::open(Arc::new(Direct(database.clone())), settings.clone(), now).unwrap()
}

impl Subject for Postgres {
    fn open(rules: &Rules, clock: &Clock) -> Self {
        let senders = Limits {
            window_us: rules.dedup_window_us,
            missing_grace_us: rules.missing_grace_us,
            series_max: rules.series_max,
            series_per_origin_max: rules.series_per_origin_max,
            series_idle_us: rules.series_idle_us,
            ..Limits::default()
        };
        let (database, settings) = (
            database(),
            Settings {
                settle_after_us: rules.late_max_us,
                rejects_late: true,
                settle_step_us: rules.settle_step_us,
                keep_samples_us: rules.keep_samples_us,
                keep_rollups_us: rules.keep_windows_us,
                background_maintenance: false,
                senders,
                ..Settings::default()
            },
        );
        Self { store: open(&database, &settings, clock), settings, clock: clock.clone(), database }
    }

    fn reopen(self) -> Self {
        let Self { store, settings, clock, database } = self;
        drop(store);
        Self { store: open(&database, &settings, &clock), settings, clock, database }
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
        self.store.catalogue().iter().map(|metric| Metric::clone(metric)).collect()
    }

    fn settled(&self) -> Option<Timestamp> {
        self.store.settled()
    }

    fn samples_removed(&self) -> u64 {
        self.store.stats().samples_removed
    }
}
