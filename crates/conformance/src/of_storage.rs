//! The queries of a [`crate::Subject`] on a store that implements `storage::Storage`.

use crate::subject::{JobFilter, Outcome, Query, Sample, Window};
use model::{Batch, Series, Timestamp};
use std::sync::mpsc::sync_channel;
use storage::{Incoming, JobSelector, LabelMatch, Selector, Storage, Windows};
use wire::{Decoder, Encoder, Frames};

/// Appends batches, and waits.
pub fn append(store: &dyn Storage, batches: Vec<(Batch, Timestamp)>) -> Vec<Outcome> {
    let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
    let incoming = batches.into_iter().map(|(batch, received)| {
        let mut frame = Vec::new();
        encoder.encode(&batch, &mut frame).unwrap();
        let one = Frames::of(&frame).next().unwrap().unwrap();
        let decoded = decoder.decode(&one).unwrap();
        Incoming { frame, decoded, received }
    });
    let (done, outcomes) = sync_channel(1);
    store.append(incoming.collect(), Box::new(move |all| done.send(all).unwrap()));
    let converted = |outcome| match outcome {
        storage::Outcome::Stored { samples_rejected, reason } => {
            Outcome::Stored { samples_rejected, reason }
        }
        storage::Outcome::Duplicate => Outcome::Duplicate,
        storage::Outcome::RejectedPermanently(why)
        | storage::Outcome::RejectedWhole { why, .. } => Outcome::RejectedPermanently(why),
        storage::Outcome::RejectedTemporarily(why) => Outcome::RejectedTemporarily(why.to_string()),
    };
    outcomes.recv().unwrap().into_iter().map(converted).collect()
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

/// The samples of a query.
pub fn scan(store: &dyn Storage, query: &Query) -> Vec<Sample> {
    let mut samples = Vec::new();
    for chunk in store.snapshot().scan(&selector(query), query.from, query.to) {
        let chunk = chunk.unwrap();
        assert!(!chunk.times.is_empty() && chunk.times.len() <= storage::Chunk::ROWS_MAX);
        samples.extend(chunk.rows().map(|(at, value, start)| Sample {
            series: chunk.series.series.clone(),
            at,
            value,
            start,
        }));
    }
    samples
}

/// The windows of a query.
pub fn windows(store: &dyn Storage, query: &Query, window_us: i64) -> Vec<Window> {
    let mut all = Vec::new();
    for found in store.snapshot().windows(&selector(query), query.from, query.to, window_us) {
        let Windows { series, windows } = found.unwrap();
        let window = |(start, rollup)| Window { series: series.series.clone(), start, rollup };
        all.extend(windows.into_iter().map(window));
    }
    all
}

/// The newest samples.
pub fn last(store: &dyn Storage, query: &Query) -> Vec<Sample> {
    let last = store.snapshot().last(&selector(query)).into_iter();
    let sample = last.map(|last| Sample {
        series: last.series.series.clone(),
        at: last.at,
        value: last.value,
        start: last.start,
    });
    sample.collect()
}

/// The counter starts of a query.
pub fn counter_starts(store: &dyn Storage, query: &Query) -> Vec<(Series, Timestamp, Timestamp)> {
    let starts = store.snapshot().counter_starts(&selector(query), query.from, query.to).unwrap();
    starts.into_iter().map(|one| (one.series.series.clone(), one.at, one.start)).collect()
}
