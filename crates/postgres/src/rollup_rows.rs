//! Rollups as rows of `jobmeter.rollups`.

use crate::connection::DatabaseError;
use model::{Point, Rollup, Timestamp};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row};

const PUT: &str = "INSERT INTO jobmeter.rollups SELECT $1::bigint, * FROM unnest($2::bigint[], $3::bigint[], \
    $4::bigint[], $5::float8[], $6::float8[], $7::float8[], $8::bigint[], $9::float8[], $10::bigint[], \
    $11::bigint[], $12::float8[], $13::bigint[], $14::float8[], $15::float8[], $16::bigint[], \
    $17::float8[]) ON CONFLICT (window_us, series_id, at_us) DO UPDATE SET samples = excluded.samples, \
    sum = excluded.sum, min = excluded.min, max = excluded.max, first_us = excluded.first_us, \
    first_value = excluded.first_value, first_start_us = excluded.first_start_us, \
    last_us = excluded.last_us, last_value = excluded.last_value, last_start_us = excluded.last_start_us, \
    seconds = excluded.seconds, integral = excluded.integral, resets = excluded.resets, \
    before_resets = excluded.before_resets";

/// Rollups of one length, column by column.
#[derive(Debug, Default)]
pub(crate) struct RollupRows {
    series: Vec<i64>,
    at: Vec<i64>,
    samples: Vec<i64>,
    /// sum, min, max, first, last, seconds, integral, before resets.
    reals: [Vec<f64>; 8],
    first_us: Vec<i64>,
    last_us: Vec<i64>,
    /// The starts of the first and of the last sample.
    starts: [Vec<Option<i64>>; 2],
    resets: Vec<i64>,
}

impl RollupRows {
    /// Adds the window of a series.
    pub(crate) fn push(&mut self, series: i64, start: Timestamp, rollup: &Rollup) {
        let Rollup { count, sum, min, max, first, last, seconds, integral, resets, before_resets } =
            *rollup;
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        self.series.push(series);
        self.at.push(start.0);
        self.samples.push(number(count));
        let values = [sum, min, max, first.value, last.value, seconds, integral, before_resets];
        self.reals.iter_mut().zip(values).for_each(|(column, value)| column.push(value));
        self.first_us.push(first.at.0);
        self.last_us.push(last.at.0);
        let starts = [first.start, last.start].map(|start| start.map(|start| start.0));
        self.starts.iter_mut().zip(starts).for_each(|(column, start)| column.push(start));
        self.resets.push(number(resets));
    }

    /// Number of windows.
    pub(crate) fn count(&self) -> usize {
        self.series.len()
    }

    /// Writes them.
    pub(crate) async fn put(&self, client: &Client, window_us: i64) -> Result<(), DatabaseError> {
        let Self { series, at, samples, reals, first_us, last_us, starts, resets } = self;
        let [sum, min, max, first, last, seconds, integral, before_resets] = reals;
        let [first_start, last_start] = starts;
        let values: [&(dyn ToSql + Sync); 17] = [
            &window_us,
            series,
            at,
            samples,
            sum,
            min,
            max,
            first_us,
            first,
            first_start,
            last_us,
            last,
            last_start,
            seconds,
            integral,
            resets,
            before_resets,
        ];
        client.execute(PUT, &values).await?;
        Ok(())
    }
}

/// The rollup of a row, in columns from `first` on.
pub(crate) fn rollup_of(row: &Row, first: usize) -> Result<Rollup, DatabaseError> {
    let number = |column: usize| row.try_get::<_, i64>(first + column);
    let real = |column: usize| row.try_get::<_, f64>(first + column);
    let point = |column: usize| {
        let start: Option<i64> = row.try_get(first + column + 2)?;
        let at = Timestamp(number(column)?);
        let start = start.map(Timestamp);
        Ok::<_, tokio_postgres::Error>(Point { at, value: real(column + 1)?, start })
    };
    Ok(Rollup {
        count: u64::try_from(number(0)?).unwrap_or(0),
        sum: real(1)?,
        min: real(2)?,
        max: real(3)?,
        first: point(4)?,
        last: point(7)?,
        seconds: real(10)?,
        integral: real(11)?,
        resets: u64::try_from(number(12)?).unwrap_or(0),
        before_resets: real(13)?,
    })
}
