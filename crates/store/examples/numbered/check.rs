//! Checks that a store has numbered batches, each exactly once, and nothing else.

use crate::numbers::{
    KEEP_ROLLUPS_US, KEEP_US, SAMPLES, number_at, points, sent_at, series, windows,
};
use model::{Point, Rollup, Series, Timestamp};
use std::collections::BTreeMap;
use std::path::Path;
use storage::{Selector, Storage as _};
use store::{RealDisk, Snapshot, Store};

/// The content of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The newest batch.
    pub(crate) last: Option<u64>,
    pub(crate) samples: u64,
    pub(crate) windows: u64,
}

const ALL: (Timestamp, Timestamp) = (Timestamp(i64::MIN), Timestamp(i64::MAX));

/// Checks a snapshot of a store before any batch after `sent` was sent. Its samples must be those of all
/// batches up to some number, except expired ones, and its windows must match.
pub(crate) fn moment(snapshot: &Snapshot, sent: u64) -> Result<Seen, String> {
    let mut found: BTreeMap<Series, Vec<Point>> = BTreeMap::new();
    for chunk in snapshot.scan(&Selector::default(), ALL.0, ALL.1) {
        let chunk = chunk.map_err(|error| error.to_string())?;
        let rows = found.entry(chunk.series.series.clone()).or_default();
        rows.extend(chunk.rows().map(|(at, value, start)| Point { at, value, start }));
    }
    let of_first = series().first().and_then(|first| found.get(first)?.last().copied());
    let last = of_first.and_then(|newest| number_at(newest.at));
    let mut seen = Seen { last, samples: 0, windows: 0 };
    let samples_kept = sent_at(sent).saturating_sub(KEEP_US);
    let mut expected = Vec::new();
    for (place, series) in series().into_iter().enumerate() {
        let points = last.map(|last| points(place, last)).unwrap_or_default();
        let rows = found.remove(&series).unwrap_or_default();
        let (want, have) = (points.iter().map(|p| (p.at, p)), rows.iter().map(|p| (p.at, p)));
        let what = format!("samples of {series:?}");
        seen.samples += same(&what, have, want, samples_kept, |a, b| a == b)?;
        expected.push((series, points));
    }
    if let Some((series, _)) = found.first_key_value() {
        return Err(format!("{series:?} was never sent"));
    }
    for (window_us, keep_us) in storage::WINDOWS_US.into_iter().zip(KEEP_ROLLUPS_US) {
        let kept = sent_at(sent).saturating_sub(keep_us);
        seen.windows += windows_of(snapshot, window_us, kept, &expected)?;
    }
    Ok(seen)
}

/// Checks the windows of one length.
fn windows_of(
    snapshot: &Snapshot,
    window_us: i64,
    kept: i64,
    expected: &[(Series, Vec<Point>)],
) -> Result<u64, String> {
    let mut stored = BTreeMap::new();
    for found in snapshot.windows(&Selector::default(), ALL.0, ALL.1, window_us) {
        let found = found.map_err(|error| error.to_string())?;
        let twice = stored.insert(found.series.series.clone(), found.windows);
        if twice.is_some() {
            return Err(format!("windows of {:?} are found twice", found.series));
        }
    }
    let mut count = 0;
    for (series, points) in expected {
        let (want, have) = (windows(points, window_us), stored.remove(series).unwrap_or_default());
        let what = format!("windows of {window_us} us of {series:?}");
        let total = series.metric.ends_with("_total");
        let (want, have) = (want.iter().map(|w| (w.0, &w.1)), have.iter().map(|w| (w.0, &w.1)));
        count += same(&what, have, want, kept, |a, b| same_rollup(total, a, b))?;
    }
    match stored.first_key_value() {
        Some((series, _)) => Err(format!("{series:?} was never sent")),
        None => Ok(count),
    }
}

/// Compares found points with wanted ones, except those before `kept`. Returns their number.
fn same<'a, T: std::fmt::Debug + 'a>(
    what: &str,
    have: impl Iterator<Item = (Timestamp, &'a T)>,
    want: impl Iterator<Item = (Timestamp, &'a T)>,
    kept: i64,
    equal: impl Fn(&T, &T) -> bool,
) -> Result<u64, String> {
    let (mut want, mut count) = (want.peekable(), 0);
    let missing = |at: Timestamp| format!("{what}: the one of {at} is missing");
    for (at, one) in have {
        while let Some((skipped, _)) = want.next_if(|(next, _)| *next < at) {
            if skipped.0 >= kept {
                return Err(missing(skipped));
            }
        }
        match want.next_if(|(next, _)| *next == at) {
            Some((_, wanted)) if equal(one, wanted) => count += 1,
            Some((_, wanted)) => return Err(format!("{what}: {one:?} instead of {wanted:?}")),
            None => return Err(format!("{what}: {one:?} is there twice, or was never sent")),
        }
    }
    match want.find(|(at, _)| at.0 >= kept) {
        Some((at, _)) => Err(missing(at)),
        None => Ok(count),
    }
}

/// Sums differ in their last digits by the order of addition; a counter has none.
fn same_rollup(total: bool, have: &Rollup, want: &Rollup) -> bool {
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0);
    let exact = |one: &Rollup| (one.count, one.first, one.last, one.min, one.max, one.resets);
    exact(have) == exact(want)
        && near(have.seconds, want.seconds)
        && near(have.increase(), want.increase())
        && (total && have.sum.is_nan() || near(have.sum, want.sum))
        && (total && have.integral.is_nan() || near(have.integral, want.integral))
}

/// Checks a store with batches up to `acked` acknowledged and none after `sent` sent. Also checks that each
/// missing sample was deleted and counted, and that no gap is reported.
pub(crate) fn whole(store: &Store, acked: Option<u64>, sent: u64) -> Result<Seen, String> {
    let origins = store.origins();
    let boots = origins.iter().flat_map(|origin| &origin.boots);
    let (last, missing) = match boots.collect::<Vec<_>>().as_slice() {
        [] => (None, 0),
        [boot] => (Some(boot.last_seq), boot.missing),
        more => return Err(format!("{more:?} instead of one boot")),
    };
    let count = last.map_or(0, |last| last + 1);
    if last < acked || count > sent {
        return Err(format!("{last:?} is the last of {sent}, and {acked:?} was acknowledged"));
    }
    let gaps = store.gaps(ALL.0, ALL.1, None);
    if missing > 0 || !gaps.is_empty() {
        return Err(format!("{missing} batches are missing, {gaps:?}"));
    }
    let seen = moment(&store.snapshot(), sent.saturating_sub(1))?;
    let removed = store.stats().samples_removed;
    if seen.last != last || seen.samples + removed != count * SAMPLES {
        return Err(format!("{seen:?} and {removed} samples let go; {last:?} is the last batch"));
    }
    Ok(seen)
}

/// Checks every checksum of a directory; leftovers of a crash are allowed if `crashed`.
pub(crate) fn files(dir: &Path, crashed: bool) -> Result<(), String> {
    let verified = store::verify(&RealDisk, dir).map_err(|error| error.to_string())?;
    if verified.is_good() && (crashed || verified.findings.is_empty()) {
        return Ok(());
    }
    Err(format!("{:?}", verified.findings))
}
