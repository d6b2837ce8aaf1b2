//! Every stored series, with its newest sample and its counter starts. It is in memory: a query selects its series here.

use crate::connection::DatabaseError;
use crate::copy::Micros;
use crate::other_rows::{self, OtherRows, Recorded};
use crate::schema::without_places;
use database::Shape;
use model::{ClusterId, DeviceId, JobId, JobKey, Labels, Series, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use storage::{Selector, share_of_rows};
use tokio_postgres::{Client, Row};

/// The samples since the last checkpoint are newer by the clocks of their senders, which may be behind by this much.
const CATCH_UP_US: i64 = 600 * Timestamp::SECOND;
const NEWEST: &str = "SELECT DISTINCT ON (s.id) s.device_id, s.metric_id, s.labels::text, s.cluster, s.job_id, \
    timestamp, value FROM ( \
        SELECT timestamp, device_id, metric_id, labels, value, NULL AS cluster, NULL::bigint AS job_id, \
            tableoid AS part, ctid AS place FROM metrics WHERE timestamp BETWEEN $1 AND $2 \
        UNION ALL SELECT timestamp, device_id, metric_id, labels, value, cluster, job_id, tableoid, ctid \
            FROM jobmeter.job_metrics WHERE timestamp BETWEEN $1 AND $2) AS stored \
    JOIN jobmeter.series AS s ON s.device_id = stored.device_id AND s.metric_id = stored.metric_id \
        AND s.labels = stored.labels AND s.cluster IS NOT DISTINCT FROM stored.cluster \
        AND s.job_id IS NOT DISTINCT FROM stored.job_id \
    WHERE value IS NOT NULL \
    ORDER BY s.id, timestamp DESC, part DESC, place DESC";
/// The newest samples of single series.
const NEWEST_OF: &str = "SELECT device_id, metric_id, labels::text, cluster, job_id, timestamp, value \
    FROM jobmeter.series AS s CROSS JOIN LATERAL ( \
        SELECT timestamp, value FROM ( \
            SELECT timestamp, value, m.tableoid AS part, m.ctid AS place FROM metrics AS m \
            WHERE s.job_id IS NULL AND m.device_id = s.device_id AND m.metric_id = s.metric_id \
                AND m.labels = s.labels AND value IS NOT NULL AND timestamp <= $2 \
            UNION ALL SELECT timestamp, value, m.tableoid, m.ctid FROM jobmeter.job_metrics AS m \
            WHERE m.job_id = s.job_id AND m.cluster = s.cluster AND m.device_id = s.device_id \
                AND m.metric_id = s.metric_id AND m.labels = s.labels) AS stored \
        ORDER BY timestamp DESC, part DESC, place DESC LIMIT 1) AS newest \
    WHERE id = ANY ($1)";

/// A stored series.
#[derive(Clone, Debug)]
pub(crate) struct StoredSeries {
    pub(crate) id: i64,
    pub(crate) divisor: u32,
    /// First and last instant, in microseconds since 1970.
    pub(crate) first_us: i64,
    pub(crate) last_us: i64,
    /// The value at the last instant.
    pub(crate) last_value: f64,
    /// Receipt of its newest batch.
    pub(crate) received: Timestamp,
    pub(crate) samples: u64,
    /// Other programs write rows of it. The instants then are bounds of all rows, and its newest sample is in the database.
    pub(crate) has_others: bool,
    /// The counter's start from an instant on, until the next one. A series without starts has none here.
    pub(crate) starts: BTreeMap<i64, Option<i64>>,
}

impl StoredSeries {
    /// The start of a sample.
    pub(crate) fn start_at(&self, at_us: i64) -> Option<Timestamp> {
        let (_, start) = self.starts.range(..=at_us).next_back()?;
        start.map(Timestamp)
    }

    /// An instant that no sample is later than. The newest samples before the store was opened are known as far as their
    /// checkpoint and their senders' clocks permit: they do not bound a series that was received within a day of it.
    pub(crate) fn last_bound(&self, opened: Timestamp) -> i64 {
        let day = 24 * 3600 * Timestamp::SECOND;
        if self.received < opened && opened.since(self.received) < day {
            i64::MAX
        } else {
            self.last_us
        }
    }

    /// An estimate of the samples between two instants, as if they were spread evenly; at least one if any may be there.
    pub(crate) fn rows_between(&self, from: i64, to: i64) -> u64 {
        if self.first_us > to || self.last_us < from {
            return 0;
        }
        share_of_rows(self.samples, (self.first_us, self.last_us), (from, to))
    }

    /// Adds rows of other programs within these bounds.
    fn join_others(&mut self, (first, last): (i64, i64), rows: u64) {
        (self.first_us, self.last_us) = (self.first_us.min(first), self.last_us.max(last));
        self.samples = self.samples.saturating_add(rows);
        self.has_others = true;
    }

    /// Records samples of one start between two instants, both inclusive.
    fn started(&mut self, (from, to): (i64, i64), start: Option<i64>, change: &mut BookChange) {
        if self.starts.is_empty() && start.is_none() {
            return;
        }
        // Samples after these keep their start.
        let after = self.start_at(to).map(|start| start.0);
        let is_last = to >= self.last_us;
        let within: Vec<i64> = self.starts.range(from..=to).map(|(at, _)| *at).collect();
        for at in within {
            self.starts.remove(&at);
            change.starts_removed.push((self.id, at));
        }
        if self.start_at(from).map(|start| start.0) != start || self.starts.is_empty() {
            self.starts.insert(from, start);
            change.starts.push((self.id, from, start));
        }
        if !is_last && after != start && !self.starts.contains_key(&(to + 1)) {
            self.starts.insert(to + 1, after);
            change.starts.push((self.id, to + 1, after));
        }
    }
}

/// The samples of one series in a commit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    pub(crate) divisor: u32,
    pub(crate) start: Option<i64>,
    pub(crate) received: Timestamp,
    /// First and last instant.
    pub(crate) span: (i64, i64),
    /// The value at the last instant.
    pub(crate) last_value: f64,
    pub(crate) samples: u64,
}

/// All stored series.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeriesBook {
    of: BTreeMap<DeviceId, BTreeMap<Series, StoredSeries>>,
    /// The next ID; drafts share it.
    next_id: Arc<AtomicI64>,
    /// First and last instant of the samples of senders.
    extent: Option<(i64, i64)>,
    /// Bounds of the rows of other programs.
    others: Option<(i64, i64)>,
    /// Most series that are registered for rows of other programs.
    series_max: usize,
    /// Recorded rows that are registered here, and still in the table of recorded rows.
    recorded: BTreeMap<i64, Recorded>,
    /// Series with changes that the database does not have.
    dirty: BTreeSet<Series>,
    /// Whether `metrics` is a hypertable.
    pub(crate) is_hypertable: bool,
}

/// What a commit changed.
#[derive(Debug, Default)]
pub(crate) struct BookChange {
    /// Series that are new, or begin earlier.
    pub(crate) series: Vec<Series>,
    /// ID of a series, instant.
    pub(crate) starts_removed: Vec<(i64, i64)>,
    /// ID of a series, instant, start.
    pub(crate) starts: Vec<(i64, i64, Option<i64>)>,
}

impl SeriesBook {
    /// A copy of some series, to record samples that may not be stored after all.
    pub(crate) fn draft<'a>(&self, series: impl Iterator<Item = &'a Series>) -> Self {
        let mut draft = Self { next_id: Arc::clone(&self.next_id), ..Self::default() };
        for (one, stored) in series.filter_map(|one| Some((one, self.get(one)?))) {
            let of = draft.of.entry(one.device.clone()).or_default();
            of.insert(one.clone(), stored.clone());
        }
        draft
    }

    /// Takes over what a draft recorded.
    pub(crate) fn accept(&mut self, draft: Self) {
        draft.extent.into_iter().for_each(|span| self.extent = wider(self.extent, span));
        self.dirty.extend(draft.dirty);
        for (device, of) in draft.of {
            let known = self.of.entry(device).or_default();
            for (series, mut stored) in of {
                // Rows of other programs may have been registered meanwhile.
                if let Some(before) = known.get(&series).filter(|before| before.has_others) {
                    let missing = before.samples.saturating_sub(stored.samples);
                    stored.join_others((before.first_us, before.last_us), missing);
                }
                known.insert(series, stored);
            }
        }
    }

    /// Records samples.
    pub(crate) fn add(&mut self, series: &Series, arrived: &Arrived, change: &mut BookChange) {
        let Arrived { divisor, start, received, span, last_value, samples } = *arrived;
        self.extent = wider(self.extent, span);
        let of = self.of.entry(series.device.clone()).or_default();
        if !of.contains_key(series) {
            let new = StoredSeries {
                id: self.next_id.fetch_add(1, Ordering::Relaxed),
                divisor,
                first_us: span.0,
                last_us: i64::MIN,
                last_value,
                received,
                samples: 0,
                has_others: false,
                starts: BTreeMap::new(),
            };
            of.insert(series.clone(), new);
            change.series.push(series.clone());
        }
        let Some(stored) = of.get_mut(series) else { return };
        stored.started(span, start, change);
        if span.0 < stored.first_us {
            stored.first_us = span.0;
            change.series.push(series.clone());
        }
        if span.1 >= stored.last_us {
            (stored.last_us, stored.last_value) = (span.1, last_value);
        }
        stored.divisor = divisor;
        stored.received = stored.received.max(received);
        stored.samples += samples;
        self.dirty.insert(series.clone());
    }

    /// The series of a selection, in order.
    pub(crate) fn select<'a>(
        &'a self,
        selector: &'a Selector,
    ) -> impl Iterator<Item = (&'a Series, &'a StoredSeries)> {
        let devices: Box<dyn Iterator<Item = _>> = match &selector.devices {
            Some(devices) => Box::new(devices.iter().filter_map(|device| self.of.get(device))),
            None => Box::new(self.of.values()),
        };
        devices.flatten().filter(|(series, _)| selector.matches(series))
    }

    /// Series without a sample since an instant.
    pub(crate) fn ended_before(&self, before: i64, opened: Timestamp) -> Vec<i64> {
        let all = self.of.values().flat_map(BTreeMap::values);
        all.filter(|one| one.last_bound(opened) < before).map(|one| one.id).collect()
    }

    /// Forgets series.
    pub(crate) fn remove(&mut self, ids: &BTreeSet<i64>) {
        self.of.values_mut().for_each(|of| of.retain(|_, one| !ids.contains(&one.id)));
        self.of.retain(|_, of| !of.is_empty());
    }

    /// First and last instant of the samples of senders.
    pub(crate) const fn extent(&self) -> Option<(i64, i64)> {
        self.extent
    }

    /// Bounds of the rows of other programs.
    pub(crate) const fn others(&self) -> Option<(i64, i64)> {
        self.others
    }

    /// Registers rows of other programs. Returns whether they can be shown: their names and labels are within the limits.
    pub(crate) fn register(&mut self, found: &OtherRows) -> bool {
        let Some(series) = &found.series else { return false };
        let is_known = self.get(series).is_some();
        if !is_known && self.of.values().map(BTreeMap::len).sum::<usize>() >= self.series_max {
            return false;
        }
        let new = || StoredSeries {
            id: self.next_id.fetch_add(1, Ordering::Relaxed),
            divisor: 1,
            first_us: found.span.0,
            last_us: found.span.1,
            last_value: f64::NAN,
            received: Timestamp(0),
            samples: 0,
            has_others: true,
            starts: BTreeMap::new(),
        };
        let of = self.of.entry(series.device.clone()).or_default();
        let stored = of.entry(series.clone()).or_insert_with(new);
        // The same rows may be found several times.
        stored.join_others(found.span, found.rows.saturating_sub(stored.samples));
        self.others = wider(self.others, found.span);
        self.dirty.insert(series.clone());
        true
    }

    /// Registers recorded rows, once.
    pub(crate) fn register_recorded(&mut self, recorded: Recorded) {
        if !self.recorded.contains_key(&recorded.id) {
            let is_shown = self.register(&recorded.rows);
            self.recorded.insert(recorded.id, Recorded { is_shown, ..recorded });
        }
    }

    /// Takes over the book that the database has now. Recorded rows that a query has just registered stay.
    pub(crate) fn replace(&mut self, book: Self) {
        let recorded = std::mem::replace(self, book).recorded;
        recorded.into_values().for_each(|one| self.register_recorded(one));
    }

    /// Differs in a book that was read again.
    pub(crate) fn source(&self) -> Arc<AtomicI64> {
        Arc::clone(&self.next_id)
    }

    /// Recorded rows that are registered, to be removed from their table.
    pub(crate) fn recorded(&self) -> Vec<Recorded> {
        self.recorded.values().cloned().collect()
    }

    /// Time of series with late rows among those.
    pub(crate) fn late(&self) -> Vec<(Option<i64>, (i64, i64))> {
        let late = self.recorded.values().filter(|one| one.is_late && one.is_shown);
        let mark = |one: &Recorded| {
            let stored = self.get(one.rows.series.as_ref()?)?;
            Some((Some(stored.id), one.rows.span))
        };
        late.filter_map(mark).collect()
    }

    /// Forgets recorded rows: their table has them no more.
    pub(crate) fn forget_recorded(&mut self, removed: &[Recorded]) {
        removed.iter().for_each(|one| drop(self.recorded.remove(&one.id)));
    }

    /// The changed series, and forgets that they are.
    pub(crate) fn take_dirty(&mut self) -> BTreeSet<Series> {
        std::mem::take(&mut self.dirty)
    }

    pub(crate) fn get(&self, series: &Series) -> Option<&StoredSeries> {
        self.of.get(&series.device)?.get(series)
    }

    /// Reads the tables. The newest samples since the last checkpoint come from the samples.
    pub(crate) async fn open(client: &Client, series_max: usize) -> Result<Self, DatabaseError> {
        let mut book = Self { series_max, ..Self::load(client).await? };
        let newest = book.of.values().flat_map(BTreeMap::values).map(|one| one.received.0).max();
        let since = newest.unwrap_or(0).saturating_sub(CATCH_UP_US);
        // No sample of a sender is later; a row of another program may be.
        let until = Micros(newest.unwrap_or(0).saturating_add(24 * 3600 * Timestamp::SECOND));
        // A sender that was catching up sent older samples.
        let behind = book.of.values().flatten().filter(|(_, one)| one.received.0 >= since);
        let behind: Vec<i64> =
            behind.filter(|(_, one)| one.last_us < since).map(|(_, one)| one.id).collect();
        book.is_hypertable = Shape::of(client, "metrics").await? == Some(Shape::Hypertable);
        let [newest, newest_of] = [NEWEST, NEWEST_OF].map(|statement| match book.is_hypertable {
            true => without_places(statement),
            false => statement.to_owned(),
        });
        let mut rows = client.query(&newest, &[&Micros(since), &until]).await?;
        rows.extend(client.query(&newest_of, &[&behind, &until]).await?);
        for row in rows {
            let last = (row.try_get::<_, Micros>(5)?.0, row.try_get(6)?);
            book.correct(&series_of(&row, 0)?, last);
        }
        let (mut own, mut others) = (None, None);
        for one in book.of.values().flat_map(BTreeMap::values) {
            let of = if one.received.0 > 0 { &mut own } else { &mut others };
            *of = wider(*of, (one.first_us, one.last_us));
        }
        (book.extent, book.others) = (own, others);
        for recorded in other_rows::recorded(client).await? {
            book.register_recorded(recorded);
        }
        Ok(book)
    }

    async fn load(client: &Client) -> Result<Self, DatabaseError> {
        let mut book = Self::default();
        let mut ids: BTreeMap<i64, Series> = BTreeMap::new();
        let text = "SELECT id, device_id, metric_id, labels::text, cluster, job_id, divisor, first_us, \
                    last_us, last_value, received_us, samples, has_others FROM jobmeter.series";
        for row in client.query(text, &[]).await? {
            let (series, stored) = stored(&row)?;
            book.next_id.fetch_max(stored.id + 1, Ordering::Relaxed);
            ids.insert(stored.id, series.clone());
            book.of.entry(series.device.clone()).or_default().insert(series, stored);
        }
        for row in
            client.query("SELECT series_id, at_us, start_us FROM jobmeter.starts", &[]).await?
        {
            let (id, at, start): (i64, i64, Option<i64>) =
                (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            let stored =
                ids.get(&id).and_then(|series| book.of.get_mut(&series.device)?.get_mut(series));
            if let Some(stored) = stored {
                stored.starts.insert(at, start);
            }
        }
        Ok(book)
    }

    /// Corrects a series by its newest stored sample.
    fn correct(&mut self, series: &Series, last: (i64, f64)) {
        let found = self.of.get_mut(&series.device).and_then(|of| of.get_mut(series));
        if let Some(stored) = found.filter(|stored| last.0 >= stored.last_us) {
            (stored.last_us, stored.last_value) = last;
        }
    }
}

fn wider(extent: Option<(i64, i64)>, (from, to): (i64, i64)) -> Option<(i64, i64)> {
    let (first, last) = extent.unwrap_or((from, to));
    Some((first.min(from), last.max(to)))
}

/// The identity of a series in a row, from a column on: device, metric, labels, cluster, job.
pub(crate) fn series_of(row: &Row, first: usize) -> Result<Series, DatabaseError> {
    let damaged = |why: String| DatabaseError::Damaged { table: "jobmeter.series", why };
    let (device, metric): (&str, &str) = (row.try_get(first)?, row.try_get(first + 1)?);
    let labels: &str = row.try_get(first + 2)?;
    let job: (Option<&str>, Option<i64>) = (row.try_get(first + 3)?, row.try_get(first + 4)?);
    let job = match job {
        (Some(cluster), Some(id)) => Some(JobKey {
            cluster: ClusterId::new(cluster).map_err(|error| damaged(error.to_string()))?,
            id: JobId::new(id).ok_or_else(|| damaged(format!("job ID {id}")))?,
        }),
        _ => None,
    };
    let too_long = || damaged("a name or labels beyond the limits".to_owned());
    Ok(Series {
        device: DeviceId::foreign(device).ok_or_else(too_long)?,
        metric: metric.into(),
        job,
        labels: Labels::foreign(labels).ok_or_else(too_long)?,
    })
}

fn stored(row: &Row) -> Result<(Series, StoredSeries), DatabaseError> {
    let count = |number: i64| u64::try_from(number).unwrap_or(0);
    let stored = StoredSeries {
        id: row.try_get(0)?,
        divisor: u32::try_from(row.try_get::<_, i64>(6)?).unwrap_or(1),
        first_us: row.try_get(7)?,
        last_us: row.try_get(8)?,
        last_value: row.try_get(9)?,
        received: Timestamp(row.try_get(10)?),
        samples: count(row.try_get(11)?),
        has_others: row.try_get(12)?,
        starts: BTreeMap::new(),
    };
    Ok((series_of(row, 1)?, stored))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series_with(runs: &[(i64, i64, Option<i64>)]) -> StoredSeries {
        let mut stored = StoredSeries {
            id: 0,
            divisor: 1,
            first_us: 0,
            last_us: i64::MIN,
            last_value: 0.0,
            received: Timestamp(0),
            samples: 0,
            has_others: false,
            starts: BTreeMap::new(),
        };
        for (from, to, start) in runs {
            stored.started((*from, *to), *start, &mut BookChange::default());
            stored.last_us = stored.last_us.max(*to);
        }
        stored
    }

    #[test]
    fn a_late_batch_changes_the_starts_of_its_own_samples_alone() {
        let stored = series_with(&[(10, 20, Some(1)), (30, 40, Some(2)), (12, 15, Some(7))]);
        let starts = [9, 10, 12, 15, 16, 20, 29, 30, 99].map(|at| stored.start_at(at).map(|s| s.0));
        let want = [None, Some(1), Some(7), Some(7), Some(1), Some(1), Some(1), Some(2), Some(2)];
        assert_eq!(starts, want);
    }

    #[test]
    fn gauges_have_no_starts() {
        assert!(series_with(&[(10, 20, None), (30, 40, None)]).starts.is_empty());
        let mixed = series_with(&[(10, 20, None), (30, 40, Some(5)), (50, 60, None)]);
        assert_eq!([10, 30, 55].map(|at| mixed.start_at(at).map(|s| s.0)), [None, Some(5), None]);
    }

    #[test]
    fn statements_for_a_hypertable_read_no_place_of_rows() {
        for statement in [NEWEST, NEWEST_OF] {
            assert!(statement.contains("ctid") && !without_places(statement).contains("ctid"));
        }
    }
}
