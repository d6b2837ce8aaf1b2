//! The embedded store under the suite that every store passes, on the real disk.

use crate::kit::{Sender, append, small};
use conformance::{Clock, Outcome, Question, Rules, Sample, Subject, Which, Window};
use model::{Batch, DeviceId, Gap, Metric, Series, Timestamp};
use std::sync::Arc;
use store::{JobSelector, Keep, LabelMatch, SeriesInfo, Settings, Store, Windows};

conformance::suite!(Embedded);

/// A store in a directory of its own, with pages, segments and levels so small that a check has many.
pub(crate) struct Embedded {
    store: Store,
    settings: Settings,
    clock: Clock,
    dir: tempfile::TempDir,
}

fn settings(rules: &Rules) -> Settings {
    let keep = |age_us| Keep { age_us, ..Keep::ALL };
    Settings {
        window_us: rules.known_us,
        hole_grace_us: rules.hole_grace_us,
        settle_after_us: rules.late_max_us,
        settle_step_us: rules.settle_step_us,
        keep_samples: keep(rules.keep_samples_us),
        keep_rollups: rules.keep_windows_us.map(keep),
        series_max: rules.series_max,
        series_per_origin_max: rules.series_per_origin_max,
        series_idle_us: rules.series_idle_us,
        head_age_us: i64::MAX,
        merge_blocks: 4,
        ..small()
    }
}

fn open(dir: &tempfile::TempDir, settings: &Settings, clock: &Clock) -> Store {
    let clock = clock.clone();
    Store::open(dir.path(), settings.clone(), Arc::new(move || clock.now())).unwrap().0
}

fn selector(question: &Question) -> store::Selector {
    let job = match question.job.clone() {
        Which::Any => JobSelector::Any,
        Which::None => JobSelector::None,
        Which::Is(job) => JobSelector::Is(job),
        Which::NoneOrIs(job) => JobSelector::NoneOrIs(job),
    };
    let label = question.label.clone().map(|(key, value)| LabelMatch::Is { key, value });
    store::Selector {
        devices: question.devices.clone(),
        metrics: question.metrics.clone(),
        job,
        labels: label.into_iter().collect(),
    }
}

fn series(info: &SeriesInfo) -> Series {
    info.series.clone()
}

impl Subject for Embedded {
    const WINDOWS_US: [i64; 2] = Store::WINDOWS_US;

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
            store::Incoming { received, ..incoming }
        });
        let told = |outcome| match outcome {
            store::Outcome::Stored { samples_refused, reason } => {
                Outcome::Stored { samples_refused, reason }
            }
            store::Outcome::Duplicate => Outcome::Duplicate,
            store::Outcome::RefusedForGood(why) => Outcome::RefusedForGood(why),
            store::Outcome::RefusedForNow(why) => Outcome::RefusedForNow(why.to_string()),
        };
        append(&self.store, incoming.collect()).into_iter().map(told).collect()
    }

    fn keep_house(&self) {
        self.store.flush().unwrap();
        self.store.tend().unwrap();
    }

    fn scan(&self, question: &Question) -> Vec<Sample> {
        let mut samples = Vec::new();
        for chunk in self.store.scan(&selector(question), question.from, question.to) {
            let chunk = chunk.unwrap();
            let told = chunk.rows().map(|(at, value, start)| Sample {
                series: series(&chunk.series),
                at,
                value,
                start,
            });
            samples.extend(told);
        }
        samples
    }

    fn windows(&self, question: &Question, window_us: i64) -> Vec<Window> {
        let (snapshot, mut told) = (self.store.snapshot(), Vec::new());
        let selector = selector(question);
        for found in snapshot.windows(&selector, question.from, question.to, window_us) {
            let Windows { series: info, windows } = found.unwrap();
            let window = |(start, rollup)| Window { series: series(&info), start, rollup };
            told.extend(windows.into_iter().map(window));
        }
        told
    }

    fn last(&self, question: &Question) -> Vec<Sample> {
        let last = self.store.snapshot().last(&selector(question)).into_iter();
        let told = last.map(|last| {
            let series = series(&last.series);
            Sample { series, at: last.at, value: last.value, start: last.start }
        });
        told.collect()
    }

    fn counter_starts(&self, question: &Question) -> Vec<(Series, Timestamp, Timestamp)> {
        let (from, to) = (question.from, question.to);
        let starts = self.store.snapshot().counter_starts(&selector(question), from, to).unwrap();
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
