//! Series of rows that other programs wrote (decision 0055): a view adds those that it sees to the book.

use crate::connection::DatabaseError;
use crate::copy::Micros;
use crate::other_rows::{FOUND, LOOKED_AND_RECORDED, OtherRows, Recorded};
use crate::reading::session::Query;
use crate::reading::view::View;
use crate::schema::without_places;
use model::{Series, Timestamp};
use std::sync::LazyLock;
use storage::{Selector, StorageError};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

/// The newest samples of series with rows of other programs.
const NEWEST: &str = "SELECT place, newest.timestamp, newest.value FROM unnest($1::int4[], $2::text[], $3::text[], \
        $4::text[]) AS wanted (place, device, metric, labels) \
    CROSS JOIN LATERAL (SELECT timestamp, value, m.tableoid AS part, m.ctid AS at FROM metrics AS m \
        WHERE m.device_id = device AND m.metric_id = metric AND value IS NOT NULL \
            AND coalesce(m.labels::text, 'null') = wanted.labels AND timestamp BETWEEN $5 AND $6 \
        ORDER BY timestamp DESC, part DESC, at DESC LIMIT 1) AS newest";
static NEWEST_OF_HYPERTABLE: LazyLock<String> = LazyLock::new(|| without_places(NEWEST));

/// The newest sample of a series.
#[derive(Debug)]
pub(crate) struct Latest {
    pub(crate) series: Series,
    pub(crate) divisor: u32,
    /// Its instant and value.
    pub(crate) sample: Option<(i64, f64)>,
    pub(crate) start: Option<Timestamp>,
}

impl View {
    /// Adds the series of a selection to the book, as far as other programs wrote rows of them within an interval.
    pub(crate) fn find_others(
        &self,
        selector: &Selector,
        (from, to): (i64, i64),
    ) -> Result<(), StorageError> {
        // Rows of other programs are attributed to no job.
        if !selector.job.matches(None) {
            return Ok(());
        }
        let looked = self.looked()?;
        let to = to.min(looked.saturating_sub(1));
        if from > to {
            return Ok(());
        }
        let names = selector.devices.as_ref();
        let devices: Option<Vec<String>> =
            names.map(|names| names.iter().map(ToString::to_string).collect());
        let names = selector.metrics.as_ref();
        let metrics: Option<Vec<String>> =
            names.map(|names| names.iter().map(ToString::to_string).collect());
        let values: Vec<Box<dyn ToSql + Sync + Send>> = vec![
            Box::new(Micros(from)),
            Box::new(Micros(to)),
            Box::new(devices),
            Box::new(metrics),
        ];
        self.each_row(Query { statement: FOUND, values }, |row| {
            let found = OtherRows::of(row)?;
            self.shared.series().register(&found);
            Ok(())
        })
    }

    /// Whether the book has the series of all rows, once the recorded ones are read.
    pub(crate) fn has_looked(&self) -> Result<bool, StorageError> {
        Ok(self.looked()? == i64::MIN)
    }

    /// From which instant on the book has the series of all rows that this view sees. Reads the recorded rows first.
    fn looked(&self) -> Result<i64, StorageError> {
        let mut known = self.session.looked.lock();
        if let Some(looked) = *known {
            return Ok(looked);
        }
        let mut looked = None;
        let query = Query { statement: LOOKED_AND_RECORDED, values: Vec::new() };
        self.each_row(query, |row| {
            looked = row.try_get(8)?;
            if row.try_get::<_, Option<i64>>(6)?.is_some() {
                self.shared.series().register_recorded(Recorded::of(row)?);
            }
            Ok(())
        })?;
        Ok(*known.insert(looked.unwrap_or(i64::MAX)))
    }

    /// The newest samples of series since an instant, by their places.
    fn newest(
        &self,
        series: &[(i32, &Series)],
        since: Timestamp,
    ) -> Result<Vec<(i32, i64, f64)>, StorageError> {
        let of = |text: fn(&Series) -> String| -> Vec<String> {
            series.iter().map(|(_, one)| text(one)).collect()
        };
        let places: Vec<i32> = series.iter().map(|(place, _)| *place).collect();
        let values: Vec<Box<dyn ToSql + Sync + Send>> = vec![
            Box::new(places),
            Box::new(of(|one| one.device.to_string())),
            Box::new(of(|one| one.metric.to_string())),
            Box::new(of(|one| one.labels.to_string())),
            Box::new(Micros(since.0)),
            Box::new(Micros(i64::MAX)),
        ];
        let is_hypertable = self.shared.series().is_hypertable;
        let statement = if is_hypertable { &NEWEST_OF_HYPERTABLE } else { NEWEST };
        let mut newest = Vec::new();
        self.each_row(Query { statement, values }, |row| {
            newest.push((row.try_get(0)?, row.try_get::<_, Micros>(1)?.0, row.try_get(2)?));
            Ok(())
        })?;
        Ok(newest)
    }

    /// The newest samples of live series, those that were received or written since an instant.
    pub(crate) fn latest(&self, selector: &Selector, since: Timestamp) -> Vec<Latest> {
        let found = self.find_others(selector, (since.0, i64::MAX));
        let mut all: Vec<Latest> = {
            let book = self.shared.series();
            let live = book.select(selector);
            let live = live.filter(|(_, stored)| stored.has_others || stored.received >= since);
            live.map(|(series, stored)| Latest {
                series: series.clone(),
                divisor: stored.divisor,
                sample: (!stored.has_others).then_some((stored.last_us, stored.last_value)),
                start: stored.start_at(stored.last_us),
            })
            .collect()
        };
        let others = (0..).zip(&all).filter(|(_, one)| one.sample.is_none());
        let others: Vec<_> = others.map(|(place, one)| (place, &one.series)).collect();
        let newest = found.and_then(|()| match others.is_empty() {
            true => Ok(Vec::new()),
            false => self.newest(&others, since),
        });
        match newest {
            Ok(newest) => {
                let book = self.shared.series();
                for (place, at, value) in newest {
                    let one = usize::try_from(place).ok().and_then(|place| all.get_mut(place));
                    if let Some(one) = one {
                        one.sample = Some((at, value));
                        one.start = book.get(&one.series).and_then(|stored| stored.start_at(at));
                    }
                }
            }
            Err(error) => log::warn!("latest values without rows of other programs: {error}"),
        }
        all.retain(|one| one.sample.is_some());
        all
    }

    fn each_row(
        &self,
        query: Query,
        mut take: impl FnMut(&Row) -> Result<(), DatabaseError>,
    ) -> Result<(), StorageError> {
        let mut scan = self.query(query);
        loop {
            let rows = scan.read()?;
            if rows.is_empty() {
                return Ok(());
            }
            rows.iter().try_for_each(&mut take)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_for_a_hypertable_read_no_place_of_rows() {
        assert!(NEWEST.contains("ctid") && !NEWEST_OF_HYPERTABLE.contains("ctid"));
        assert!(NEWEST_OF_HYPERTABLE.contains("tableoid"));
    }
}
