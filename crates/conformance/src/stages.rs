//! The ages of a store: a rule that holds for what just came holds for what is old, and after a restart.

use crate::sender::T0;
use crate::subject::{Clock, Outcome, Question, Rules, Sample, Subject};
use model::{Batch, Timestamp};

/// A store that keeps everything, at [`T0`].
pub(crate) fn open<T: Subject>() -> T {
    T::open(&Rules::default(), &Clock::at(T0))
}

/// Offers a batch when its newest sample was taken.
pub(crate) fn put<T: Subject>(store: &T, batch: Batch) -> Outcome {
    let newest = batch.ticks.iter().map(|tick| tick.at.0).max().unwrap_or(T0);
    put_at(store, batch, newest.max(T0))
}

/// Offers a batch at an instant.
pub(crate) fn put_at<T: Subject>(store: &T, batch: Batch, received: i64) -> Outcome {
    let mut outcomes = store.append(vec![(batch, Timestamp(received))]);
    assert_eq!(outcomes.len(), 1);
    outcomes.remove(0)
}

/// Offers batches one after another, each of which is stored with all its samples.
pub(crate) fn store_all<T: Subject>(store: &T, batches: impl IntoIterator<Item = Batch>) {
    for batch in batches {
        assert_eq!(put(store, batch), Outcome::STORED);
    }
}

pub(crate) fn all<T: Subject>(store: &T) -> Vec<Sample> {
    store.scan(&Question::default())
}

/// Checks a store as it is, opened again, after its house was kept, and opened again after that.
pub(crate) fn at_every_stage<T: Subject>(mut store: T, check: impl Fn(&T, &str)) -> T {
    check(&store, "as it came");
    store = store.reopen();
    check(&store, "as it came, opened again");
    store.keep_house();
    check(&store, "when its house was kept");
    store = store.reopen();
    check(&store, "when its house was kept, opened again");
    store
}
