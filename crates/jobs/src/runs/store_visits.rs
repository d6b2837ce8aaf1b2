//! The table of visits, and the incremental update of runs.
//!
//! [`crate::matching::visits::runs`] over all visits of a job ID defines the result. Most events do not
//! need it. A device that joins a run in progress, or leaves the latest run, changes one row. A start
//! on 10 000 nodes thus costs 10 000 rows and not their square. A test compares both ways.

use crate::common::registry::LoadUsers;
use crate::matching::visits::{ReportedIdentity, TOGETHER};
use crate::people::names::{name_of, uid_of};
use crate::presence::verified_presence;
use crate::runs::store_runs::{insert_run, relate, work_out};
use crate::runs::strays::{self, Fit};
use crate::runs::visit_shares;
use crate::{Limits, RegistryError};
use model::{JobEvent, JobKey};
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::BTreeMap;

/// The effect of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VisitChange {
    /// A job started on a device.
    Began,
    /// A job ended on a device.
    Ended,
    /// A job started and ended on a device.
    Both,
    /// No new fact.
    Known,
    /// The event is impossible and rejected.
    Rejected,
}

/// The identity of a run by node reports. A missing name or user ID is looked up by the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunIdentity {
    pub(crate) display_id: String,
    pub(crate) user: Option<String>,
    pub(crate) uid: Option<u32>,
}

/// The latest run of a job ID with a visit or a registration, as stored.
pub(crate) struct LatestRun {
    run: i64,
    start: i64,
    stop: Option<i64>,
    last_start: i64,
    registered: bool,
    who: RunIdentity,
}

/// Maximum number of visits of one job to one device, strays included. Jobs whose steps come and go
/// have few visits. An agent that reports more makes each of its events expensive for the server.
pub(crate) const VISITS_ON_DEVICE_MAX: u64 = 1024;

/// Jobs whose runs must be recomputed or rejoined at the end of a transaction. Each job is processed
/// once, whatever the number of its events. Until then, a job's visits may be stored with any of its
/// runs.
#[derive(Debug, Default)]
pub(crate) struct Pending(BTreeMap<JobKey, bool>);

impl Pending {
    /// Marks the job's runs for recomputation.
    fn work_out(&mut self, key: &JobKey) {
        self.0.insert(key.clone(), true);
    }

    /// Marks the job's runs for a join with its records.
    fn relate(&mut self, key: &JobKey) {
        self.0.entry(key.clone()).or_default();
    }

    fn is_worked_out(&self, key: &JobKey) -> bool {
        self.0.get(key).copied().unwrap_or_default()
    }

    /// Processes all marked jobs.
    pub(crate) fn finish(self, db: &Connection, users: &LoadUsers) -> Result<(), RegistryError> {
        for (key, again) in self.0 {
            if again {
                work_out(db, &key, users)?;
            } else {
                relate(db, &key, users)?;
            }
        }
        Ok(())
    }
}

/// State of an ingestion.
pub(crate) struct Ingestion<'a> {
    pub(crate) limits: &'a Limits,
    pub(crate) users: &'a LoadUsers,
    pub(crate) pending: Pending,
}

/// An event, with the offset of its clock to the server's in microseconds (positive: ahead).
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimedEvent<'a> {
    pub(crate) event: &'a JobEvent,
    pub(crate) clock_us: i64,
}

/// Ingests one event.
pub(crate) fn ingest(
    db: &Connection,
    timed: TimedEvent<'_>,
    taking: &mut Ingestion<'_>,
) -> Result<VisitChange, RegistryError> {
    let event = timed.event;
    let newest = newest(db, &event.key)?;
    if let Some(newest) = &newest
        && newest.registered
    {
        return ingest_registered(db, newest, event);
    }
    if let Some(changed) = strays::ingest(db, event)? {
        if changed {
            taking.pending.work_out(&event.key);
        }
        return Ok(VisitChange::Known);
    }
    let reported_end = event.stop.map(|stop| stop.max(event.start).0);
    let identity = identity(event);
    let Some(newest) = newest else {
        let full = !visit_shares::has_space(db, taking.limits, event)?;
        if full || visits_on(db, event)? >= VISITS_ON_DEVICE_MAX {
            return Ok(VisitChange::Rejected);
        }
        let who = who(db, taking.users, &event.key, identity)?;
        let run = insert_run(db, &event.key, (event.start.0, timed.clock_us), &who)?;
        insert_visit(db, run, timed, reported_end)?;
        db.prepare_cached("UPDATE runs SET stop = ?2 WHERE run = ?1")?
            .execute(params![run, reported_end])?;
        taking.pending.relate(&event.key);
        return Ok(if reported_end.is_some() { VisitChange::Both } else { VisitChange::Began });
    };
    match visit(db, event)? {
        Some(known) if identity.adds_to(&known.identity) => {
            learn(db, event, known.run)?;
            taking.pending.work_out(&event.key);
            // The event's identity is stored now.
            ingest(db, timed, taking)
        }
        Some(known) if known.reported_end >= reported_end => Ok(VisitChange::Known),
        Some(known) => {
            end(db, timed, &newest, (known.run, reported_end), &mut taking.pending)?;
            Ok(if known.reported_end.is_none() { VisitChange::Ended } else { VisitChange::Known })
        }
        None => begin(db, timed, (&newest, reported_end), taking),
    }
}

/// Ingests an event of a registered local job. Such a job has one device and one visit, created by the
/// registration. A node only reports its end.
fn ingest_registered(
    db: &Connection,
    newest: &LatestRun,
    event: &JobEvent,
) -> Result<VisitChange, RegistryError> {
    let mut find = db
        .prepare_cached("SELECT start, reported_stop FROM visits WHERE run = ?1 AND device = ?2")?;
    let found: Option<(i64, Option<i64>)> = find
        .query_row(params![newest.run, event.device.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((start, reported_end)) = found else { return Ok(VisitChange::Rejected) };
    verified_presence::note(db, newest.run, event)?;
    let (None, Some(stop)) = (reported_end, event.stop) else { return Ok(VisitChange::Known) };
    stop_registered(db, newest.run, stop.0.max(start))?;
    Ok(VisitChange::Ended)
}

/// Ends a local job's visit and run.
pub(crate) fn stop_registered(db: &Connection, run: i64, stop: i64) -> rusqlite::Result<()> {
    db.prepare_cached("UPDATE visits SET reported_stop = ?2, stop = ?2 WHERE run = ?1")?
        .execute(params![run, stop])?;
    db.prepare_cached("UPDATE runs SET stop = ?2 WHERE run = ?1")?.execute(params![run, stop])?;
    Ok(())
}

/// Stores a new visit of a known job ID.
fn begin(
    db: &Connection,
    timed: TimedEvent<'_>,
    (newest, reported_end): (&LatestRun, Option<i64>),
    taking: &mut Ingestion<'_>,
) -> Result<VisitChange, RegistryError> {
    let event = timed.event;
    let on_device = visits_on(db, event)?;
    let full = !visit_shares::has_space(db, taking.limits, event)?
        || on_device >= VISITS_ON_DEVICE_MAX
        || visits_of(db, &event.key)? >= taking.limits.visits_per_job_max;
    if full {
        return Ok(VisitChange::Rejected);
    }
    let begun = if reported_end.is_some() { VisitChange::Both } else { VisitChange::Began };
    if taking.pending.is_worked_out(&event.key) {
        insert_visit(db, newest.run, timed, reported_end)?;
        return Ok(begun);
    }
    let (fit, visited) = (strays::fit(db, timed, newest.run)?, on_device > 0);
    if let (Fit::Stray(record), false) = (&fit, visited) {
        return Ok(strays::begin(db, timed, *record)?);
    }
    let there = newest.stop.is_none() && event.start.0 >= newest.start;
    let same = matches!(fit, Fit::Joins) && newest.who.has(&identity(event));
    let joins = there && same && !visited && !is_beside_another(db, newest, &event.key)?;
    insert_visit(db, newest.run, timed, reported_end)?;
    if joins {
        db.prepare_cached("UPDATE runs SET last_start = max(last_start, ?2) WHERE run = ?1")?
            .execute(params![newest.run, event.start.0])?;
    } else {
        taking.pending.work_out(&event.key);
    }
    Ok(begun)
}

/// Tests whether another run of the job ID may have been open when the latest began. Such a run has
/// another user, or its record cut its displayed times: its visits may then have lasted until `record_stop`.
fn is_beside_another(db: &Connection, newest: &LatestRun, key: &JobKey) -> rusqlite::Result<bool> {
    let mut find = db.prepare_cached(
        "SELECT 1 FROM runs WHERE cluster = ?1 AND id = ?2 AND run <> ?3 AND visits > 0
         AND (stop IS NULL OR stop >= ?4 OR merged AND (record_stop IS NULL OR record_stop >= ?4))",
    )?;
    let since = newest.start.saturating_sub(TOGETHER);
    find.exists(params![key.cluster.as_str(), key.id.get(), newest.run, since])
}

/// Stores the end of a known visit, or a later end than before.
fn end(
    db: &Connection,
    timed: TimedEvent<'_>,
    newest: &LatestRun,
    (run, reported_end): (i64, Option<i64>),
    pending: &mut Pending,
) -> Result<(), RegistryError> {
    let event = timed.event;
    db.prepare_cached(
        "UPDATE visits SET reported_stop = ?4, stop = ?4 WHERE run = ?1 AND device = ?2 AND start = ?3",
    )?
    .execute(params![run, event.device.as_str(), event.start.0, reported_end])?;
    if pending.is_worked_out(&event.key) {
        return Ok(());
    }
    let followed: bool = db
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM visits WHERE run = ?1 AND device = ?2 AND start > ?3)",
        )?
        .query_row(params![run, event.device.as_str(), event.start.0], |row| row.get(0))?;
    let last = run == newest.run
        && reported_end.is_some_and(|reported_end| reported_end >= newest.last_start);
    let beside = !last || is_beside_another(db, newest, &event.key)?;
    if followed || beside || !matches!(strays::fit(db, timed, run)?, Fit::Joins) {
        pending.work_out(&event.key);
        return Ok(());
    }
    let open: bool = db
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM visits INDEXED BY visits_open_of_run
             WHERE run = ?1 AND stop IS NULL)",
        )?
        .query_row([run], |row| row.get(0))?;
    if !open {
        db.prepare_cached(
            "UPDATE runs SET stop = (SELECT max(stop) FROM visits WHERE run = ?1) WHERE run = ?1",
        )?
        .execute([run])?;
        pending.relate(&event.key);
    }
    Ok(())
}

fn newest(db: &Connection, key: &JobKey) -> rusqlite::Result<Option<LatestRun>> {
    let mut find = db.prepare_cached(
        "SELECT run, start, stop, last_start, registered, display_id, node_user, node_uid FROM runs
         WHERE cluster = ?1 AND id = ?2 AND (visits > 0 OR registered = 1)
         ORDER BY start DESC LIMIT 1",
    )?;
    find.query_row(params![key.cluster.as_str(), key.id.get()], |row| {
        Ok(LatestRun {
            run: row.get(0)?,
            start: row.get(1)?,
            stop: row.get(2)?,
            last_start: row.get(3)?,
            registered: row.get(4)?,
            who: RunIdentity { display_id: row.get(5)?, user: row.get(6)?, uid: row.get(7)? },
        })
    })
    .optional()
}

/// Returns the identity that an event reports.
pub(crate) fn identity(event: &JobEvent) -> ReportedIdentity {
    let has_display_id =
        !event.display_id.is_empty() && *event.display_id != event.key.id.to_string();
    let display_id = has_display_id.then(|| event.display_id.clone());
    ReportedIdentity { display_id, user: event.user.clone(), uid: event.uid }
}

/// Completes a login name by its user ID and vice versa. OAR names cgroups after the login name, Slurm
/// after the user ID.
pub(crate) fn who(
    db: &Connection,
    users: &LoadUsers,
    key: &JobKey,
    identity: ReportedIdentity,
) -> rusqlite::Result<RunIdentity> {
    let ReportedIdentity { display_id, user, uid } = identity;
    let (mut user, mut uid) = (user.map(String::from), uid);
    match (uid, &user) {
        (Some(number), None) => user = name_of(db, users, (Some(&key.cluster), number))?,
        (None, Some(name)) => uid = uid_of(db, users, (&key.cluster, name))?,
        _ => {}
    }
    let display_id = display_id.map_or_else(|| key.id.to_string(), String::from);
    Ok(RunIdentity { display_id, user, uid })
}

impl RunIdentity {
    /// Tests whether this identity contains the user that `said` reports. Such a visit does not change
    /// the run's identity.
    fn has(&self, identity: &ReportedIdentity) -> bool {
        let same_uid = identity.uid.is_none_or(|uid| self.uid == Some(uid));
        let name = identity.user.as_deref();
        same_uid && name.is_none_or(|name| self.user.as_deref() == Some(name))
    }
}

/// Stores the facts that an event adds to a visit's identity.
fn learn(db: &Connection, event: &JobEvent, run: i64) -> rusqlite::Result<()> {
    let ReportedIdentity { display_id, user, uid } = identity(event);
    db.prepare_cached(
        "UPDATE visits SET display_id = coalesce(display_id, ?4), user = coalesce(user, ?5),
             uid = coalesce(uid, ?6)
         WHERE run = ?1 AND device = ?2 AND start = ?3",
    )?
    .execute(params![run, event.device.as_str(), event.start.0, display_id, user, uid])?;
    Ok(())
}

/// A stored visit.
struct KnownVisit {
    run: i64,
    reported_end: Option<i64>,
    identity: ReportedIdentity,
}

/// Returns the stored visit of an event.
fn visit(db: &Connection, event: &JobEvent) -> rusqlite::Result<Option<KnownVisit>> {
    let mut find = db.prepare_cached(
        "SELECT v.run, v.reported_stop, v.display_id, v.user, v.uid FROM runs r JOIN visits v ON v.run = r.run
         WHERE r.cluster = ?1 AND r.id = ?2 AND v.device = ?3 AND v.start = ?4",
    )?;
    let key = &event.key;
    let place = params![key.cluster.as_str(), key.id.get(), event.device.as_str(), event.start.0];
    find.query_row(place, |row| {
        let identity =
            ReportedIdentity { display_id: row.get(2)?, user: row.get(3)?, uid: row.get(4)? };
        Ok(KnownVisit { run: row.get(0)?, reported_end: row.get(1)?, identity })
    })
    .optional()
}

/// Returns the number of visits and strays of the job on the event's device.
fn visits_on(db: &Connection, event: &JobEvent) -> rusqlite::Result<u64> {
    let mut find = db.prepare_cached(
        // Search by the job, which has few visits. The device may have had 1 000 000.
        "SELECT (SELECT count(*) FROM runs r INDEXED BY runs_key CROSS JOIN visits v ON v.run = r.run
                 WHERE r.cluster = ?1 AND r.id = ?2 AND v.device = ?3)
             + (SELECT count(*) FROM strays WHERE cluster = ?1 AND id = ?2 AND device = ?3)",
    )?;
    let key = &event.key;
    let count: i64 = find
        .query_row(params![key.cluster.as_str(), key.id.get(), event.device.as_str()], |row| {
            row.get(0)
        })?;
    Ok(count.unsigned_abs())
}

fn visits_of(db: &Connection, key: &JobKey) -> rusqlite::Result<u64> {
    let mut find = db.prepare_cached(
        "SELECT coalesce(sum(visits), 0) FROM runs WHERE cluster = ?1 AND id = ?2",
    )?;
    let sum: i64 = find.query_row(params![key.cluster.as_str(), key.id.get()], |row| row.get(0))?;
    Ok(sum.unsigned_abs())
}

fn insert_visit(
    db: &Connection,
    run: i64,
    TimedEvent { event, clock_us }: TimedEvent<'_>,
    reported_end: Option<i64>,
) -> rusqlite::Result<()> {
    let ReportedIdentity { display_id, user, uid } = identity(event);
    db.prepare_cached(
        "INSERT INTO visits (run, device, start, reported_stop, stop, display_id, user, uid, clock_us)
         VALUES (?1, ?2, ?3, ?4, ?4, ?5, ?6, ?7, ?8)",
    )?
    .execute(params![
        run,
        event.device.as_str(),
        event.start.0,
        reported_end,
        display_id,
        user,
        uid,
        clock_us
    ])?;
    Ok(())
}
