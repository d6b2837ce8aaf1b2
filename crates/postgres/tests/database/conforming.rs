//! The store on PostgreSQL under the suite that every store passes.

use crate::server::database;
use conformance::{Clock, JobFilter, Outcome, Query, Rules, Sample, Subject, Window};
use model::{Batch, DeviceId, Gap, Metric, Series, Timestamp};
use postgres::{PostgresStore, Settings};
use senders::Limits;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use storage::{Incoming, JobSelector, LabelMatch, Selector, SeriesInfo, Storage, Windows};
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
    PostgresStore::open(Arc::new(database.clone()), settings.clone(), now).unwrap()
}

fn selector(query: &Query) -> Selector {
    let job = match query.job.clone() {
        JobFilter::Any => JobSelector::Any,
        JobFilter::None => JobSelector::None,
        JobFilter::Is(job) => JobSelector::Is(job),
        JobFilter::NoneOrIs(job) => JobSelector::NoneOrIs(job),
    };
    let label = query.label.clone().map(|(key, value)| LabelMatch::Is { key, value });
    Selector {
        devices: query.devices.clone(),
        metrics: query.metrics.clone(),
        job,
        labels: label.into_iter().collect(),
    }
}

fn series(info: &SeriesInfo) -> Series {
    info.series.clone()
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
        let (mut encoder, mut decoder) = (wire::Encoder::default(), wire::Decoder::default());
        let incoming = batches.into_iter().map(|(batch, received)| {
            let mut frame = Vec::new();
            encoder.encode(&batch, &mut frame).unwrap();
            let one = wire::Frames::of(&frame).next().unwrap().unwrap();
            let decoded = decoder.decode(&one).unwrap();
            Incoming { frame, decoded, received }
        });
        let (done, outcomes) = sync_channel(1);
        self.store.append(incoming.collect(), Box::new(move |all| done.send(all).unwrap()));
        let converted = |outcome| match outcome {
            storage::Outcome::Stored { samples_rejected, reason } => {
                Outcome::Stored { samples_rejected, reason }
            }
            storage::Outcome::Duplicate => Outcome::Duplicate,
            storage::Outcome::RejectedPermanently(why)
            | storage::Outcome::RejectedWhole { why, .. } => Outcome::RejectedPermanently(why),
            storage::Outcome::RejectedTemporarily(why) => {
                Outcome::RejectedTemporarily(why.to_string())
            }
        };
        outcomes.recv().unwrap().into_iter().map(converted).collect()
    }

    fn maintain(&self) {
        self.store.flush().unwrap();
        self.store.maintain().unwrap();
    }

    fn scan(&self, query: &Query) -> Vec<Sample> {
        let mut samples = Vec::new();
        for chunk in self.store.snapshot().scan(&selector(query), query.from, query.to) {
            let chunk = chunk.unwrap();
            samples.extend(chunk.rows().map(|(at, value, start)| Sample {
                series: series(&chunk.series),
                at,
                value,
                start,
            }));
        }
        samples
    }

    fn windows(&self, query: &Query, window_us: i64) -> Vec<Window> {
        let (snapshot, mut all) = (self.store.snapshot(), Vec::new());
        for found in snapshot.windows(&selector(query), query.from, query.to, window_us) {
            let Windows { series: info, windows } = found.unwrap();
            let window = |(start, rollup)| Window { series: series(&info), start, rollup };
            all.extend(windows.into_iter().map(window));
        }
        all
    }

    fn last(&self, query: &Query) -> Vec<Sample> {
        let last = self.store.snapshot().last(&selector(query)).into_iter();
        let sample = last.map(|last| Sample {
            series: series(&last.series),
            at: last.at,
            value: last.value,
            start: last.start,
        });
        sample.collect()
    }

    fn counter_starts(&self, query: &Query) -> Vec<(Series, Timestamp, Timestamp)> {
        let (from, to) = (query.from, query.to);
        let starts = self.store.snapshot().counter_starts(&selector(query), from, to).unwrap();
        starts.into_iter().map(|start| (series(&start.series), start.at, start.start)).collect()
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
