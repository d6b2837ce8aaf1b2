//! Allocations that an agent or the kernel verified.
//!
//! The user who registers a local job states its device themselves. They may read the job's own samples
//! in any case. Access to node samples, and the right to request more of them, require verification. It
//! comes from the agent on the device, which reads the job's cgroup, or from the kernel of the server's
//! own machine. Reports of other monitoring systems verify nothing ([`reports_of_inputs`]).

use crate::presence::allocations::each_allocation;
use crate::presence::reports_of_inputs;
use crate::{Interval, Registry, RegistryError, Window};
use model::{ClusterId, DeviceId, JobEvent, JobId, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::{BTreeSet, HashMap};

/// Start and end of a time range; the end is `None` while it lasts.
pub type Span = (Timestamp, Option<Timestamp>);

/// The table of verified presence of registered runs. It holds the time range in which an agent or the
/// kernel observed the run on its device.
pub(crate) const TABLES: &str = "
CREATE TABLE proven (
    run INTEGER PRIMARY KEY REFERENCES runs (run) ON DELETE CASCADE,
    seen INTEGER NOT NULL,
    gone INTEGER
) STRICT;
";

/// Stores a node's report about the cgroup of a registered run. The first report counts.
pub(crate) fn note(db: &Connection, run: i64, event: &JobEvent) -> rusqlite::Result<()> {
    let gone = event.stop.map(|stop| stop.max(event.start).0);
    db.prepare_cached(
        "INSERT INTO proven (run, seen, gone) VALUES (?1, ?2, ?3)
         ON CONFLICT (run) DO UPDATE SET gone = coalesce(gone, excluded.gone)",
    )?
    .execute(params![run, event.start.0, gone])?;
    Ok(())
}

/// Marks a run as verified from its start on.
pub(crate) fn accept_as_verified(
    db: &Connection,
    run: i64,
    start: Timestamp,
) -> rusqlite::Result<()> {
    db.prepare_cached("INSERT INTO proven (run, seen) VALUES (?1, ?2)")?
        .execute(params![run, start.0])?;
    Ok(())
}

impl Registry {
    /// Returns the verified part of the allocations of [`Registry::intervals`]. Registered local jobs count
    /// only while the agent on the device observed their cgroups.
    ///
    /// # Errors
    /// As [`Registry::intervals`].
    pub fn verified(&self, window: &Window) -> Result<Vec<Interval>, RegistryError> {
        let reader = self.reader.lock();
        let (limit, mut verified) = (self.limits.rows_max, Vec::new());
        let owner = self.owner_of(&reader, window)?;
        each_allocation(&reader, (window, owner), limit, |allocation| {
            verified.extend(verify_visit(&reader, allocation)?);
            Ok(())
        })?;
        if verified.len() > limit { Err(RegistryError::TooMany(limit)) } else { Ok(verified) }
    }

    /// Returns the time ranges with a verified job within a window, by device. Few of them overlap,
    /// whatever the number of allocations.
    ///
    /// # Errors
    /// SQLite fails, or the number of ranges exceeds 10 times the registry's row limit. A range takes a
    /// tenth of a row.
    pub fn spans(&self, window: &Window) -> Result<HashMap<DeviceId, Vec<Span>>, RegistryError> {
        let limit = self.limits.rows_max.saturating_mul(10);
        let (mut spans, mut count) = (HashMap::<DeviceId, Vec<Span>>::new(), 0_usize);
        let reader = self.reader.lock();
        let owner = self.owner_of(&reader, window)?;
        each_allocation(&reader, (window, owner), usize::MAX, |allocation| {
            let Some(allocation) = verify_visit(&reader, allocation)? else { return Ok(()) };
            let of_device = spans.entry(allocation.device).or_default();
            match of_device.last_mut() {
                // A cut range may begin later than the ranges after it.
                Some((start, stop))
                    if *start <= allocation.start
                        && stop.is_none_or(|stop| allocation.start < stop) =>
                {
                    // An open range ends later than any closed one.
                    *stop = stop.zip(allocation.stop).map(|(one, other)| one.max(other));
                }
                _ => {
                    of_device.push((allocation.start, allocation.stop));
                    count += 1;
                }
            }
            if count > limit { Err(RegistryError::TooMany(limit)) } else { Ok(()) }
        })?;
        Ok(spans)
    }

    /// Returns the verified devices of running local jobs.
    ///
    /// # Errors
    /// SQLite fails.
    pub(crate) fn verified_local(&self) -> Result<BTreeSet<(JobId, DeviceId)>, RegistryError> {
        let reader = self.reader.lock();
        let mut find = reader.prepare_cached(
            "SELECT r.id, v.device FROM runs r JOIN visits v ON v.run = r.run
             LEFT JOIN proven p ON p.run = r.run
             WHERE r.stop IS NULL AND r.cluster = ?1 AND v.stop IS NULL
             AND (r.registered = 0 OR (p.seen IS NOT NULL AND p.gone IS NULL))",
        )?;
        let mut rows = find.query([ClusterId::LOCAL])?;
        let mut found = BTreeSet::new();
        while let Some(row) = rows.next()? {
            let key = crate::common::sql_parts::key(ClusterId::LOCAL.to_owned(), row.get(0)?)?;
            found.insert((key.id, crate::common::sql_parts::device(row.get(1)?)?));
        }
        Ok(found)
    }
}

/// Returns the verified part of an allocation.
fn verify_visit(db: &Connection, allocation: Interval) -> Result<Option<Interval>, RegistryError> {
    if allocation.key.cluster != ClusterId::local() {
        return reports_of_inputs::verify(db, allocation);
    }
    let mut find = db.prepare_cached(
        "SELECT r.registered, p.seen, p.gone FROM runs r LEFT JOIN proven p ON p.run = r.run
         WHERE r.cluster = ?1 AND r.id = ?2 AND r.start = ?3",
    )?;
    let run = params![ClusterId::LOCAL, allocation.key.id.get(), allocation.run_start.0];
    let found: Option<(bool, Option<i64>, Option<i64>)> =
        find.query_row(run, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).optional()?;
    Ok(match found {
        Some((true, seen, gone)) => {
            seen.and_then(|seen| within(allocation, Timestamp(seen), gone.map(Timestamp)))
        }
        _ => Some(allocation),
    })
}

/// Cuts an allocation to a time range; `None` if nothing remains.
pub(super) fn within(
    allocation: Interval,
    seen: Timestamp,
    gone: Option<Timestamp>,
) -> Option<Interval> {
    let start = allocation.start.max(seen);
    let stop = match (allocation.stop, gone) {
        (Some(stop), Some(gone)) => Some(stop.min(gone)),
        (stop, gone) => stop.or(gone),
    };
    stop.is_none_or(|stop| start < stop).then_some(Interval { start, stop, ..allocation })
}
