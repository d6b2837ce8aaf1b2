//! Where jobs were by more than their users' word.
//!
//! Who registers a local job says himself on which device it is. Its own samples are shown to him all the same,
//! but what is counted on a node for no job, and the right to ask for more of it, follow only from what somebody
//! else saw: the agent there, which read the job's cgroup, or the kernel of the server's own machine.

use crate::common::registry::lock;
use crate::presence::allocations::each_stay;
use crate::{Interval, Registry, RegistryError, Window};
use model::{ClusterId, DeviceId, JobEvent, JobId, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::{BTreeSet, HashMap};

/// From when until when; `None` while it lasts.
pub type Span = (Timestamp, Option<Timestamp>);

/// The table: of a registered run, from when until when somebody else than its user saw it on its device. A run
/// that was registered before there was the table has no row, as nobody wrote down then who saw it.
pub(crate) const TABLES: &str = "
CREATE TABLE proven (
    run INTEGER PRIMARY KEY REFERENCES runs (run) ON DELETE CASCADE,
    seen INTEGER NOT NULL,
    gone INTEGER
) STRICT;
";

/// Notes what the node of a registered run tells of its cgroup. What was told first counts.
pub(crate) fn note(db: &Connection, run: i64, event: &JobEvent) -> rusqlite::Result<()> {
    let gone = event.stop.map(|stop| stop.max(event.start).0);
    db.prepare_cached(
        "INSERT INTO proven (run, seen, gone) VALUES (?1, ?2, ?3)
         ON CONFLICT (run) DO UPDATE SET gone = coalesce(gone, excluded.gone)",
    )?
    .execute(params![run, event.start.0, gone])?;
    Ok(())
}

/// Notes that a run is where its user says, from its start on.
pub(crate) fn believe(db: &Connection, run: i64, start: Timestamp) -> rusqlite::Result<()> {
    db.prepare_cached("INSERT INTO proven (run, seen) VALUES (?1, ?2)")?
        .execute(params![run, start.0])?;
    Ok(())
}

impl Registry {
    /// The stays of [`Registry::intervals`] as far as others than the jobs' users saw them: those of registered
    /// local jobs only between the instants at which the agent there saw their cgroups come and go.
    ///
    /// # Errors
    /// As [`Registry::intervals`].
    pub fn proven(&self, window: &Window) -> Result<Vec<Interval>, RegistryError> {
        let reader = lock(&self.reader);
        let (limit, mut proven) = (self.limits.rows_max, Vec::new());
        let owner = self.owner_of(&reader, window)?;
        each_stay(&reader, (window, owner), limit, |stay| {
            proven.extend(prove(&reader, stay)?);
            Ok(())
        })?;
        if proven.len() > limit { Err(RegistryError::TooMany(limit)) } else { Ok(proven) }
    }

    /// When there was a job within a window by more than its user's word, of each device: spans, of which few
    /// overlap others, whatever the number of stays that they are made of.
    ///
    /// # Errors
    /// SQLite fails, or there are more spans than ten times the registry's limit of rows: a span is a tenth of
    /// a row.
    pub fn spans(&self, window: &Window) -> Result<HashMap<DeviceId, Vec<Span>>, RegistryError> {
        let limit = self.limits.rows_max.saturating_mul(10);
        let (mut spans, mut count) = (HashMap::<DeviceId, Vec<Span>>::new(), 0_usize);
        let reader = lock(&self.reader);
        let owner = self.owner_of(&reader, window)?;
        each_stay(&reader, (window, owner), usize::MAX, |stay| {
            let Some(stay) = prove(&reader, stay)? else { return Ok(()) };
            let of_device = spans.entry(stay.device).or_default();
            match of_device.last_mut() {
                // One that was cut may begin after those behind it.
                Some((start, stop))
                    if *start <= stay.start && stop.is_none_or(|stop| stay.start < stop) =>
                {
                    // What has not ended is later than any end.
                    *stop = stop.zip(stay.stop).map(|(one, other)| one.max(other));
                }
                _ => {
                    of_device.push((stay.start, stay.stop));
                    count += 1;
                }
            }
            if count > limit { Err(RegistryError::TooMany(limit)) } else { Ok(()) }
        })?;
        Ok(spans)
    }

    /// The devices of local jobs that run, where more than their users' word says that they are there.
    ///
    /// # Errors
    /// SQLite fails.
    pub(crate) fn proven_local(&self) -> Result<BTreeSet<(JobId, DeviceId)>, RegistryError> {
        let reader = lock(&self.reader);
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

/// What of a stay others than its job's user saw.
fn prove(db: &Connection, stay: Interval) -> Result<Option<Interval>, RegistryError> {
    if stay.key.cluster != ClusterId::local() {
        return Ok(Some(stay));
    }
    let mut find = db.prepare_cached(
        "SELECT r.registered, p.seen, p.gone FROM runs r LEFT JOIN proven p ON p.run = r.run
         WHERE r.cluster = ?1 AND r.id = ?2 AND r.start = ?3",
    )?;
    let run = params![ClusterId::LOCAL, stay.key.id.get(), stay.run_start.0];
    let found: Option<(bool, Option<i64>, Option<i64>)> =
        find.query_row(run, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).optional()?;
    Ok(match found {
        Some((true, seen, gone)) => {
            seen.and_then(|seen| within(stay, Timestamp(seen), gone.map(Timestamp)))
        }
        _ => Some(stay),
    })
}

/// What of a stay lies between two instants; `None` where nothing does.
fn within(stay: Interval, seen: Timestamp, gone: Option<Timestamp>) -> Option<Interval> {
    let start = stay.start.max(seen);
    let stop = match (stay.stop, gone) {
        (Some(stop), Some(gone)) => Some(stop.min(gone)),
        (stop, gone) => stop.or(gone),
    };
    stop.is_none_or(|stop| start < stop).then_some(Interval { start, stop, ..stay })
}
