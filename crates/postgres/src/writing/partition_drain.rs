//! Moves samples from the default partition into partitions of their own.

use crate::connection::DatabaseError;
use crate::copy::Micros;
use crate::writing::maintenance_connection::{LOCK_BRIEFLY, MaintenanceConnection};
use crate::writing::partitions::{
    Partitions, Shape, attachment, creation, floor, free_name, interval_us, literal, rows_within,
    shape,
};
use model::Timestamp;

/// Most partitions that one maintenance makes of the default partition of a table.
const MOVES_MAX: usize = 100;
/// Rows that one transaction moves, unless they are of one second.
const ROWS_MAX: i64 = 1_000_000;
/// A partition of fewer rows covers more than one interval, up to the next partition. So samples of many years do not make
/// thousands of partitions.
const ROWS_MIN: i64 = 10_000;
/// A partition longer than this is not extended: retention drops a partition when all of it is too old.
const SPAN_MAX: i64 = 15 * 86_400 * Timestamp::SECOND;
/// Infinite instants have no partition of their own.
const OLDEST: &str = "timestamp BETWEEN '0001-01-01' AND '9999-12-30'";
const COLUMNS: &str = "SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute \
    WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''";

/// Moves all samples of the default partition of a table, range by range.
pub(crate) fn drain(
    connection: &MaintenanceConnection<'_>,
    table: &str,
) -> Result<(), DatabaseError> {
    let (client, runtime) = (&connection.client, &connection.shared.runtime);
    let interval = runtime.block_on(interval_us(client))?;
    for _ in 0..MOVES_MAX {
        let shape = runtime.block_on(shape(client, table))?;
        let Shape::Partitioned(partitions @ Partitions { default: Some(_), .. }) = shape else {
            return Ok(());
        };
        let default = partitions.default.as_deref().unwrap_or_default();
        let text = format!("SELECT min(timestamp) FROM {default} WHERE {OLDEST}");
        let oldest = connection.query(&text, &[])?;
        let oldest = oldest.first().map(|row| row.try_get::<_, Option<Micros>>(0)).transpose()?;
        let Some(Micros(oldest)) = oldest.flatten() else { return Ok(()) };
        let count = |range| {
            runtime.block_on(rows_within(client, Some(default), range, ROWS_MAX.saturating_add(1)))
        };
        let range = range_of(&partitions, oldest, interval, count)?;
        if !connection.is_free(table)? || !move_rows(connection, table, default, range)? {
            log::debug!("rows of {default} wait: other transactions use it");
            return Ok(());
        }
    }
    Ok(())
}

/// The range of a new partition with the oldest row of the default partition. It ends where another partition begins.
fn range_of(
    partitions: &Partitions,
    oldest: i64,
    interval: i64,
    count: impl Fn((i64, i64)) -> Result<i64, DatabaseError>,
) -> Result<(i64, i64), DatabaseError> {
    let before = partitions.list.iter().map(|one| one.to).filter(|to| *to <= oldest).max();
    let after = partitions.list.iter().map(|one| one.from).filter(|from| *from > oldest).min();
    let cell = floor(oldest, interval);
    let Some(after) = after else {
        // Later partitions are created ahead of time, too.
        let from = before.map_or(cell, |before| before.max(cell));
        return Ok((from, shortened(oldest, cell.saturating_add(interval), &count)?));
    };
    let mut to = cell.saturating_add(interval).min(after);
    while to < after && to.saturating_sub(oldest) < SPAN_MAX && count((oldest, to))? < ROWS_MIN {
        let longer = to.saturating_add(to.saturating_sub(oldest));
        to = floor(longer, interval).max(to.saturating_add(interval)).min(after);
    }
    Ok((before.unwrap_or(i64::MIN), shortened(oldest, to, &count)?))
}

/// The end of a range that has few enough rows.
fn shortened(
    oldest: i64,
    mut to: i64,
    count: impl Fn((i64, i64)) -> Result<i64, DatabaseError>,
) -> Result<i64, DatabaseError> {
    while to.saturating_sub(oldest) > 2 * Timestamp::SECOND && count((oldest, to))? > ROWS_MAX {
        to = floor(oldest.saturating_add(to.saturating_sub(oldest) / 2), Timestamp::SECOND);
    }
    Ok(to)
}

/// Makes a partition of the rows of a range. Readers see them in one of both, as the parent is locked at the end. All else
/// happens before, or under the lock of the default partition alone: the database verifies there that no row of the range is left.
fn move_rows(
    connection: &MaintenanceConnection<'_>,
    table: &str,
    default: &str,
    range: (i64, i64),
) -> Result<bool, DatabaseError> {
    let runtime = &connection.shared.runtime;
    let name = runtime.block_on(free_name(&connection.client, table, range))?;
    let columns: String =
        match connection.query(COLUMNS, &[&table])?.first().map(|row| row.try_get(0)) {
            Some(columns) => columns?,
            None => return Ok(false),
        };
    let end = literal(range.1);
    let (within, without) = match range.0 {
        i64::MIN => (format!("timestamp < {end}"), format!("timestamp >= {end}")),
        from => {
            let from = literal(from);
            (
                format!("timestamp >= {from} AND timestamp < {end}"),
                format!("timestamp < {from} OR timestamp >= {end}"),
            )
        }
    };
    // Rows of one instant keep their order.
    let moved = format!(
        "WITH moved AS (DELETE FROM {default} WHERE {within} \
         RETURNING ctid AS place, {columns}) \
         INSERT INTO {name} ({columns}) SELECT {columns} FROM moved ORDER BY place"
    );
    let bounds = format!("timestamp IS NOT NULL AND {within}");
    let prepare = || {
        let create = creation(table, &name);
        connection.execute(&format!(
            "{LOCK_BRIEFLY}; {create}; \
             ALTER TABLE {name} ADD CONSTRAINT jobmeter_bounds CHECK ({bounds}); {moved}"
        ))
    };
    let attach = attachment(table, &name, range);
    let step = format!(
        "LOCK TABLE {default} IN ACCESS EXCLUSIVE MODE; {moved}; \
         ALTER TABLE {default} ADD CONSTRAINT jobmeter_moved CHECK ({without}); \
         LOCK TABLE ONLY {table} IN ACCESS EXCLUSIVE MODE; {attach}; \
         ALTER TABLE {default} DROP CONSTRAINT jobmeter_moved; \
         ALTER TABLE {name} DROP CONSTRAINT jobmeter_bounds"
    );
    connection.change(prepare, |()| connection.execute(&step))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writing::partitions::Partition;

    const S: i64 = Timestamp::SECOND;

    fn partitions(bounds: &[(i64, i64)]) -> Partitions {
        let partition = |(from, to): &(i64, i64)| Partition {
            name: String::new(),
            from: *from,
            to: *to,
            is_foreign: false,
        };
        Partitions { list: bounds.iter().map(partition).collect(), default: None }
    }

    #[test]
    fn few_rows_have_one_partition_up_to_the_next() {
        let after = partitions(&[(1000 * S, 1100 * S)]);
        assert_eq!(range_of(&after, 5 * S, 10 * S, |_| Ok(3)).unwrap(), (i64::MIN, 1000 * S));
        let between = partitions(&[(0, 4 * S), (1000 * S, 1100 * S)]);
        assert_eq!(range_of(&between, 5 * S, 10 * S, |_| Ok(3)).unwrap(), (4 * S, 1000 * S));
    }

    #[test]
    fn few_rows_of_years_have_partitions_of_a_month_at_most() {
        let day = 86_400 * S;
        let after = partitions(&[(1000 * day, 1001 * day)]);
        let (_, to) = range_of(&after, 5 * day, day / 4, |_| Ok(3)).unwrap();
        assert!((15 * day..=31 * day).contains(&(to - 5 * day)), "{}", (to - 5 * day) / day);
    }

    #[test]
    fn many_rows_have_several_partitions() {
        let after = partitions(&[(1000 * S, 1100 * S)]);
        let dense = |(from, to): (i64, i64)| Ok((to - from) / S * 100_000);
        assert_eq!(range_of(&after, 20 * S, 16 * S, dense).unwrap(), (i64::MIN, 26 * S));
        let some = |(from, to): (i64, i64)| Ok((to - from) / S * 400);
        assert_eq!(range_of(&after, 20 * S, 16 * S, some).unwrap(), (i64::MIN, 48 * S));
    }

    #[test]
    fn later_rows_have_a_partition_of_one_interval() {
        let before = partitions(&[(0, 100 * S)]);
        assert_eq!(range_of(&before, 575 * S, 50 * S, |_| Ok(1)).unwrap(), (550 * S, 600 * S));
        assert_eq!(range_of(&before, 103 * S, 60 * S, |_| Ok(1)).unwrap(), (100 * S, 120 * S));
    }
}
