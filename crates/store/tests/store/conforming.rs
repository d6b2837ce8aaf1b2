//! The embedded store under the suite that every store passes, on the real disk.

use crate::kit::{Sender, append, small};
use conformance::{Clock, JobFilter, Outcome, Query, Rules, Sample, Subject, Window};
use model::{Batch, DeviceId, Gap, Metric, Series, Timestamp};
use senders::Limits;
use std::sync::Arc;
use storage::{JobSelector, LabelMatch, RetentionLimits, SeriesInfo, Storage as _, Windows};
use store::{Settings, Store};

conformance::suite!(Embedded);

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

fn selector(query: &Query) -> storage::Selector {
    let job = match query.job.clone() {
        JobFilter::Any => JobSelector::Any,
        JobFilter::None => JobSelector::None,
        JobFilter::Is(job) => JobSelector::Is(job),
        JobFilter::NoneOrIs(job) => JobSelector::NoneOrIs(job),
    };
    let label = query.label.clone().map(|(key, value)| LabelMatch::Is { key, value });
    storage::Selector {
        devices: query.devices.clone(),
        metrics: query.metrics.clone(),
        job,
        labels: label.into_iter().collect(),
    }
}

fn series(info: &SeriesInfo) -> Series {
    info.series.clone()
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
        let incoming = batches.into_iter().map(|(batch, received)| {
            let incoming = Sender::new("any", 0).incoming(&batch);
            storage::Incoming { received, ..incoming }
        });
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
        append(&self.store, incoming.collect()).into_iter().map(converted).collect()
    }

    fn maintain(&self) {
        self.store.flush().unwrap();
        self.store.maintain().unwrap();
    }

    fn scan(&self, query: &Query) -> Vec<Sample> {
        let mut samples = Vec::new();
        for chunk in self.store.scan(&selector(query), query.from, query.to) {
            let chunk = chunk.unwrap();
            let found = chunk.rows().map(|(at, value, start)| Sample {
                series: series(&chunk.series),
                at,
                value,
                start,
            });
            samples.extend(found);
        }
        samples
    }

    fn windows(&self, query: &Query, window_us: i64) -> Vec<Window> {
        let (snapshot, mut all) = (self.store.snapshot(), Vec::new());
        let selector = selector(query);
        for found in snapshot.windows(&selector, query.from, query.to, window_us) {
            let Windows { series: info, windows } = found.unwrap();
            let window = |(start, rollup)| Window { series: series(&info), start, rollup };
            all.extend(windows.into_iter().map(window));
        }
        all
    }

    fn last(&self, query: &Query) -> Vec<Sample> {
        let last = self.store.snapshot().last(&selector(query)).into_iter();
        let found = last.map(|last| {
            let series = series(&last.series);
            Sample { series, at: last.at, value: last.value, start: last.start }
        });
        found.collect()
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
        self.store.catalogue().iter().map(|metric| (**metric).clone()).collect()
    }

    fn settled(&self) -> Option<Timestamp> {
        self.store.stats().settled
    }

    fn samples_removed(&self) -> u64 {
        self.store.stats().samples_removed
    }
}
