//! The stages of a store: a rule holds for new samples, for old ones, and after a restart.

use crate::sender::T0;
use crate::subject::{Clock, Outcome, Query, Rules, Sample, Subject};
use model::{Batch, Timestamp};

/// A store without limits, at [`T0`].
pub(crate) fn open<T: Subject>() -> T {
    T::open(&Rules::default(), &Clock::at(T0))
}

/// Appends a batch at the instant of its newest sample.
pub(crate) fn put<T: Subject>(store: &T, batch: Batch) -> Outcome {
    let newest = batch.ticks.iter().map(|tick| tick.at.0).max().unwrap_or(T0);
    put_at(store, batch, newest.max(T0))
}

/// Appends a batch at an instant.
pub(crate) fn put_at<T: Subject>(store: &T, batch: Batch, received: i64) -> Outcome {
    let mut outcomes = store.append(vec![(batch, Timestamp(received))]);
    assert_eq!(outcomes.len(), 1);
    outcomes.remove(0)
}

/// Appends batches one after another; each must be stored with all its samples.
pub(crate) fn store_all<T: Subject>(store: &T, batches: impl IntoIterator<Item = Batch>) {
    for batch in batches {
        assert_eq!(put(store, batch), Outcome::STORED);
    }
}

pub(crate) fn all<T: Subject>(store: &T) -> Vec<Sample> {
    store.scan(&Query::default())
}

/// Checks a store as it is, reopened, after maintenance, and reopened after that.
pub(crate) fn at_every_stage<T: Subject>(mut store: T, check: impl Fn(&T, &str)) -> T {
    check(&store, "as received");
    store = store.reopen();
    check(&store, "as received, reopened");
    store.maintain();
    check(&store, "after maintenance");
    store = store.reopen();
    check(&store, "after maintenance, reopened");
    store
}
