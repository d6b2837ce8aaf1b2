//! Strays: visits that the scheduler's record of their time excludes. The record does not name the
//! device, or names another user.
//!
//! Otherwise a node with an agent's token could enter any job's report, end the job or keep it open.
//! Strays belong to no run, so that queries of runs and visits never return them. They stay stored
//! because a record may be corrected. They appear as disagreements with the scheduler.

use crate::RegistryError;
use crate::common::sql_parts::device;
use crate::matching::join::{Span, pick};
use crate::matching::visits::{ReportedIdentity, Visit};
use crate::runs::store_runs::{Recorded, recorded};
use crate::runs::store_visits::{TimedEvent, VisitChange, identity};
use model::{DeviceId, JobEvent, JobKey, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};

/// The table. Strays count as visits.
pub(crate) const TABLES: &str = "
CREATE TABLE strays (
    cluster TEXT NOT NULL,
    id INTEGER NOT NULL,
    device TEXT NOT NULL,
    start INTEGER NOT NULL,
    reported_stop INTEGER,
    display_id TEXT,
    user TEXT,
    uid INTEGER,
    clock_us INTEGER NOT NULL,
    record INTEGER NOT NULL,
    PRIMARY KEY (cluster, id, device, start)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER stray_in AFTER INSERT ON strays BEGIN
    UPDATE counts SET value = value + 1 WHERE name = 'visits';
END;
CREATE TRIGGER stray_out AFTER DELETE ON strays BEGIN
    UPDATE counts SET value = value - 1 WHERE name = 'visits';
END;
";

/// Maximum number of strays of one job.
const STRAYS_MAX: i64 = 1024;

/// How an event relates to the latest run of its job ID.
pub(crate) enum Fit {
    /// The event joins the run, as far as records show.
    Joins,
    /// The run's record does not name the device, or names another user.
    Stray(i64),
    /// Only all records and visits together decide.
    Unclear,
}

/// Compares an event with the records of its job ID. `run` is the latest run of the ID.
pub(crate) fn fit(db: &Connection, timed: TimedEvent<'_>, run: i64) -> Result<Fit, RegistryError> {
    let event = timed.event;
    let recorded = recorded(db, &event.key)?;
    let spans: Vec<Option<Span>> = recorded.iter().map(|recorded| recorded.span).collect();
    let started = spans.iter().flatten().count();
    if started == 0 {
        return Ok(Fit::Joins);
    }
    let mut find = db.prepare_cached("SELECT record, merged FROM runs WHERE run = ?1")?;
    let (of_run, merged): (Option<i64>, bool) =
        find.query_row([run], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let span = Span { start: event.start, stop: event.stop }.by_the_server(timed.clock_us);
    let picked = pick(span, &spans).and_then(|place| recorded.get(place));
    Ok(match picked {
        None if of_run.is_none() => Fit::Joins,
        Some(Recorded { record, who, .. }) if of_run == Some(*record) => {
            match is_named(db, *record, event)? && who.agrees(&identity(event)) {
                true if started > 1 && merged => Fit::Unclear,
                true => Fit::Joins,
                false if started == 1 => Fit::Stray(*record),
                false => Fit::Unclear,
            }
        }
        _ => Fit::Unclear,
    })
}

/// Tests whether a record names an event's device, or no device.
fn is_named(db: &Connection, record: i64, event: &JobEvent) -> rusqlite::Result<bool> {
    let mut find = db.prepare_cached(
        "SELECT NOT EXISTS (SELECT 1 FROM shares WHERE record = ?1)
             OR EXISTS (SELECT 1 FROM shares WHERE record = ?1 AND device = ?2)",
    )?;
    find.query_row(params![record, event.device.as_str()], |row| row.get(0))
}

/// Tests whether a run has a visit that this record excludes by device or user.
pub(crate) fn in_run(db: &Connection, run: i64, record: i64) -> rusqlite::Result<bool> {
    let mut find = db.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM shares WHERE record = ?2)
             AND EXISTS (SELECT 1 FROM visits v WHERE v.run = ?1
                 AND NOT EXISTS (SELECT 1 FROM shares s WHERE s.record = ?2 AND s.device = v.device))
             OR EXISTS (SELECT 1 FROM visits v JOIN records o ON o.record = ?2 WHERE v.run = ?1
                 AND CASE WHEN o.uid IS NOT NULL AND v.uid IS NOT NULL THEN o.uid <> v.uid
                     ELSE o.user <> v.user END)",
    )?;
    find.query_row(params![run, record], |row| row.get(0))
}

/// Tests whether a job ID has strays.
pub(crate) fn any(db: &Connection, key: &JobKey) -> rusqlite::Result<bool> {
    let mut find = db.prepare_cached("SELECT 1 FROM strays WHERE cluster = ?1 AND id = ?2")?;
    find.exists(params![key.cluster.as_str(), key.id.get()])
}

/// Ingests an event of a known stray and returns whether it has new facts. `None`: the event belongs to
/// no stray.
pub(crate) fn ingest(db: &Connection, event: &JobEvent) -> rusqlite::Result<Option<bool>> {
    let mut find = db.prepare_cached(
        "SELECT reported_stop, display_id, user, uid FROM strays
         WHERE cluster = ?1 AND id = ?2 AND device = ?3 AND start = ?4",
    )?;
    let (cluster, id) = (event.key.cluster.as_str(), event.key.id.get());
    let (device, start) = (event.device.as_str(), event.start.0);
    let place = params![cluster, id, device, start];
    let found: Option<(Option<i64>, ReportedIdentity)> = find
        .query_row(place, |row| {
            let identity =
                ReportedIdentity { display_id: row.get(1)?, user: row.get(2)?, uid: row.get(3)? };
            Ok((row.get(0)?, identity))
        })
        .optional()?;
    let Some((before, known)) = found else { return Ok(None) };
    let reported_end = event.stop.map(|stop| stop.max(event.start).0);
    if reported_end <= before && !identity(event).adds_to(&known) {
        return Ok(Some(false));
    }
    let ReportedIdentity { display_id, user, uid } = known.or(&identity(event));
    db.prepare_cached(
        "UPDATE strays SET reported_stop = ?5, display_id = ?6, user = ?7, uid = ?8
         WHERE cluster = ?1 AND id = ?2 AND device = ?3 AND start = ?4",
    )?
    .execute(params![
        cluster,
        id,
        device,
        start,
        reported_end.max(before),
        display_id,
        user,
        uid
    ])?;
    Ok(Some(true))
}

/// Stores the first event of a stray.
pub(crate) fn begin(
    db: &Connection,
    TimedEvent { event, clock_us }: TimedEvent<'_>,
    record: i64,
) -> rusqlite::Result<VisitChange> {
    let mut find =
        db.prepare_cached("SELECT count(*) FROM strays WHERE cluster = ?1 AND id = ?2")?;
    let strays: i64 =
        find.query_row(params![event.key.cluster.as_str(), event.key.id.get()], |row| row.get(0))?;
    if strays >= STRAYS_MAX {
        return Ok(VisitChange::Rejected);
    }
    let (reported_end, identity) = (event.stop.map(|stop| stop.max(event.start)), identity(event));
    let (device, start) = (event.device.clone(), event.start);
    let visit = Visit { device, start, reported_end, identity, clock_us, monitor: None };
    insert(db, &event.key, &visit, record)?;
    Ok(VisitChange::Known)
}

pub(crate) fn insert(
    db: &Connection,
    key: &JobKey,
    visit: &Visit,
    record: i64,
) -> rusqlite::Result<()> {
    let ReportedIdentity { display_id, user, uid } = &visit.identity;
    db.prepare_cached(
        // Not `OR REPLACE`, which would count the stray again.
        "INSERT INTO strays (cluster, id, device, start, reported_stop, display_id, user, uid, clock_us, record)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
         ON CONFLICT DO UPDATE SET reported_stop = excluded.reported_stop, display_id = excluded.display_id, user = excluded.user,
             uid = excluded.uid, clock_us = excluded.clock_us, record = excluded.record",
    )?
    .execute(params![
        key.cluster.as_str(),
        key.id.get(),
        visit.device.as_str(),
        visit.start.0,
        visit.reported_end.map(|reported_end| reported_end.0),
        display_id,
        user,
        uid,
        visit.clock_us,
        record
    ])?;
    Ok(())
}

/// Returns the strays of a job ID, each with the row ID of its record.
pub(crate) fn all(db: &Connection, key: &JobKey) -> Result<Vec<(Visit, i64)>, RegistryError> {
    let mut find = db.prepare_cached(
        "SELECT device, start, reported_stop, display_id, user, uid, clock_us, record FROM strays
         WHERE cluster = ?1 AND id = ?2",
    )?;
    let mut rows = find.query(params![key.cluster.as_str(), key.id.get()])?;
    let mut strays = Vec::new();
    while let Some(row) = rows.next()? {
        let visit = Visit {
            device: device(row.get(0)?)?,
            start: Timestamp(row.get(1)?),
            reported_end: row.get::<_, Option<i64>>(2)?.map(Timestamp),
            identity: ReportedIdentity {
                display_id: row.get(3)?,
                user: row.get(4)?,
                uid: row.get(5)?,
            },
            clock_us: row.get(6)?,
            monitor: None,
        };
        strays.push((visit, row.get(7)?));
    }
    Ok(strays)
}

pub(crate) fn delete(
    db: &Connection,
    key: &JobKey,
    (device, start): (&DeviceId, Timestamp),
) -> rusqlite::Result<()> {
    db.prepare_cached(
        "DELETE FROM strays WHERE cluster = ?1 AND id = ?2 AND device = ?3 AND start = ?4",
    )?
    .execute(params![key.cluster.as_str(), key.id.get(), device.as_str(), start.0])?;
    Ok(())
}
