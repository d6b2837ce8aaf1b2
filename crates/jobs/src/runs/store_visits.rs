//! Visits in the file, and the runs kept in step with them.
//!
//! What counts is [`crate::matching::visits::runs`] of all visits of a number. Most events need not ask it: a
//! device that joins a run in progress, and one that leaves the newest run, change one row. So a start
//! on ten thousand nodes costs ten thousand rows and not their square; a test compares both ways.

use crate::common::registry::AskUsers;
use crate::matching::visits::{Said, TOGETHER};
use crate::people::names::{name_of, uid_of};
use crate::presence::verified_presence;
use crate::runs::store_runs::{insert_run, relate, work_out};
use crate::runs::strays::{self, Fit};
use crate::{Limits, RegistryError};
use model::{JobEvent, JobKey};
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::BTreeMap;

/// What an event told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VisitChange {
    /// A job came to a device.
    Began,
    /// It left.
    Ended,
    /// It came and left.
    Both,
    /// Nothing new.
    Known,
    /// What cannot be.
    Refused,
}

/// What nodes say of a run, a name completed by its number and the other way round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Who {
    pub(crate) spelling: String,
    pub(crate) user: Option<String>,
    pub(crate) uid: Option<u32>,
}

/// The newest run of a number that a node saw or that was registered, as the file has it.
pub(crate) struct Newest {
    run: i64,
    start: i64,
    stop: Option<i64>,
    last_start: i64,
    registered: bool,
    who: Who,
}

/// Most visits of one job to one device, strays included. The steps of a job that come and go are a few; an agent that
/// reports more makes each of its events dear for the server.
pub(crate) const VISITS_ON_DEVICE_MAX: u64 = 1024;

/// The jobs of a transaction that are worked out or related when all its events are in: once each, however many events
/// are of one. Until then a job's visits may stand in any of its runs.
#[derive(Debug, Default)]
pub(crate) struct Pending(BTreeMap<JobKey, bool>);

impl Pending {
    /// All runs of the job are worked out.
    fn work_out(&mut self, key: &JobKey) {
        self.0.insert(key.clone(), true);
    }

    /// The runs of the job stay, and are joined with its records.
    fn relate(&mut self, key: &JobKey) {
        self.0.entry(key.clone()).or_default();
    }

    fn is_worked_out(&self, key: &JobKey) -> bool {
        self.0.get(key).copied().unwrap_or_default()
    }

    /// Does what is pending.
    pub(crate) fn finish(self, db: &Connection, users: &AskUsers) -> Result<(), RegistryError> {
        for (key, anew) in self.0 {
            if anew {
                work_out(db, &key, users)?;
            } else {
                relate(db, &key, users)?;
            }
        }
        Ok(())
    }
}

/// What takes in events.
pub(crate) struct Taking<'a> {
    pub(crate) limits: &'a Limits,
    pub(crate) users: &'a AskUsers,
    pub(crate) pending: Pending,
}

/// An event, and by how many microseconds the clock that its times are of is ahead of the server's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timed<'a> {
    pub(crate) event: &'a JobEvent,
    pub(crate) clock_us: i64,
}

/// Takes in one event.
pub(crate) fn tell(
    db: &Connection,
    timed: Timed<'_>,
    taking: &mut Taking<'_>,
) -> Result<VisitChange, RegistryError> {
    let event = timed.event;
    let newest = newest(db, &event.key)?;
    if let Some(newest) = &newest
        && newest.registered
    {
        return tell_registered(db, newest, event);
    }
    if let Some(changed) = strays::tell(db, event)? {
        if changed {
            taking.pending.work_out(&event.key);
        }
        return Ok(VisitChange::Known);
    }
    let told = event.stop.map(|stop| stop.max(event.start).0);
    let said = said(event);
    let Some(newest) = newest else {
        let full = count(db, "visits")? >= taking.limits.visits_max;
        if full || visits_on(db, event)? >= VISITS_ON_DEVICE_MAX {
            return Ok(VisitChange::Refused);
        }
        let who = who(db, taking.users, &event.key, said)?;
        let run = insert_run(db, &event.key, (event.start.0, timed.clock_us), &who)?;
        insert_visit(db, run, timed, told)?;
        db.prepare_cached("UPDATE runs SET stop = ?2 WHERE run = ?1")?
            .execute(params![run, told])?;
        taking.pending.relate(&event.key);
        return Ok(if told.is_some() { VisitChange::Both } else { VisitChange::Began });
    };
    match visit(db, event)? {
        Some(known) if said.adds_to(&known.said) => {
            learn(db, event, known.run)?;
            taking.pending.work_out(&event.key);
            // What it says of who it is, is known now.
            tell(db, timed, taking)
        }
        Some(known) if known.told >= told => Ok(VisitChange::Known),
        Some(known) => {
            end(db, timed, &newest, (known.run, told), &mut taking.pending)?;
            Ok(if known.told.is_none() { VisitChange::Ended } else { VisitChange::Known })
        }
        None => begin(db, timed, (&newest, told), taking),
    }
}

/// A local job has one device and one visit, which its registration made; a node only tells its end.
fn tell_registered(
    db: &Connection,
    newest: &Newest,
    event: &JobEvent,
) -> Result<VisitChange, RegistryError> {
    let mut find =
        db.prepare_cached("SELECT start, told FROM visits WHERE run = ?1 AND device = ?2")?;
    let found: Option<(i64, Option<i64>)> = find
        .query_row(params![newest.run, event.device.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((start, told)) = found else { return Ok(VisitChange::Refused) };
    verified_presence::note(db, newest.run, event)?;
    let (None, Some(stop)) = (told, event.stop) else { return Ok(VisitChange::Known) };
    stop_registered(db, newest.run, stop.0.max(start))?;
    Ok(VisitChange::Ended)
}

/// Ends a local job's visit and run.
pub(crate) fn stop_registered(db: &Connection, run: i64, stop: i64) -> rusqlite::Result<()> {
    db.prepare_cached("UPDATE visits SET told = ?2, stop = ?2 WHERE run = ?1")?
        .execute(params![run, stop])?;
    db.prepare_cached("UPDATE runs SET stop = ?2 WHERE run = ?1")?.execute(params![run, stop])?;
    Ok(())
}

/// A visit that was not known, of a number that is.
fn begin(
    db: &Connection,
    timed: Timed<'_>,
    (newest, told): (&Newest, Option<i64>),
    taking: &mut Taking<'_>,
) -> Result<VisitChange, RegistryError> {
    let event = timed.event;
    let on_device = visits_on(db, event)?;
    let full = count(db, "visits")? >= taking.limits.visits_max
        || on_device >= VISITS_ON_DEVICE_MAX
        || visits_of(db, &event.key)? >= taking.limits.visits_per_job_max;
    if full {
        return Ok(VisitChange::Refused);
    }
    let begun = if told.is_some() { VisitChange::Both } else { VisitChange::Began };
    if taking.pending.is_worked_out(&event.key) {
        insert_visit(db, newest.run, timed, told)?;
        return Ok(begun);
    }
    let (fit, visited) = (strays::fit(db, timed, newest.run)?, on_device > 0);
    if let (Fit::Stray(record), false) = (&fit, visited) {
        return Ok(strays::begin(db, timed, *record)?);
    }
    let there = newest.stop.is_none() && event.start.0 >= newest.start;
    let same = matches!(fit, Fit::Joins) && newest.who.has(&said(event));
    let joins = there && same && !visited && !is_beside_another(db, newest, &event.key)?;
    insert_visit(db, newest.run, timed, told)?;
    if joins {
        db.prepare_cached("UPDATE runs SET last_start = max(last_start, ?2) WHERE run = ?1")?
            .execute(params![newest.run, event.start.0])?;
    } else {
        taking.pending.work_out(&event.key);
    }
    Ok(begun)
}

/// Whether another run of the ID may have gone on when the newest began: of another user, as one of them joins neither.
fn is_beside_another(db: &Connection, newest: &Newest, key: &JobKey) -> rusqlite::Result<bool> {
    let mut find = db.prepare_cached(
        "SELECT 1 FROM runs WHERE cluster = ?1 AND id = ?2 AND run <> ?3 AND visits > 0
         AND (stop IS NULL OR stop >= ?4)",
    )?;
    let since = newest.start.saturating_sub(TOGETHER);
    find.exists(params![key.cluster.as_str(), key.id.get(), newest.run, since])
}

/// The end of a known visit, or a later one than was told before.
fn end(
    db: &Connection,
    timed: Timed<'_>,
    newest: &Newest,
    (run, told): (i64, Option<i64>),
    pending: &mut Pending,
) -> Result<(), RegistryError> {
    let event = timed.event;
    db.prepare_cached(
        "UPDATE visits SET told = ?4, stop = ?4 WHERE run = ?1 AND device = ?2 AND start = ?3",
    )?
    .execute(params![run, event.device.as_str(), event.start.0, told])?;
    if pending.is_worked_out(&event.key) {
        return Ok(());
    }
    let followed: bool = db
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM visits WHERE run = ?1 AND device = ?2 AND start > ?3)",
        )?
        .query_row(params![run, event.device.as_str(), event.start.0], |row| row.get(0))?;
    let last = run == newest.run && told.is_some_and(|told| told >= newest.last_start);
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

fn newest(db: &Connection, key: &JobKey) -> rusqlite::Result<Option<Newest>> {
    let mut find = db.prepare_cached(
        "SELECT run, start, stop, last_start, registered, spelling, node_user, node_uid FROM runs
         WHERE cluster = ?1 AND id = ?2 AND (visits > 0 OR registered = 1)
         ORDER BY start DESC LIMIT 1",
    )?;
    find.query_row(params![key.cluster.as_str(), key.id.get()], |row| {
        Ok(Newest {
            run: row.get(0)?,
            start: row.get(1)?,
            stop: row.get(2)?,
            last_start: row.get(3)?,
            registered: row.get(4)?,
            who: Who { spelling: row.get(5)?, user: row.get(6)?, uid: row.get(7)? },
        })
    })
    .optional()
}

/// Who an event says its job is.
pub(crate) fn said(event: &JobEvent) -> Said {
    let spelled = !event.spelling.is_empty() && *event.spelling != event.key.id.to_string();
    let spelling = spelled.then(|| event.spelling.clone());
    Said { spelling, user: event.user.clone(), uid: event.uid }
}

/// OAR's cgroups are named after the login name, Slurm's after the number: each is completed by the other.
pub(crate) fn who(
    db: &Connection,
    users: &AskUsers,
    key: &JobKey,
    said: Said,
) -> rusqlite::Result<Who> {
    let Said { spelling, user, uid } = said;
    let (mut user, mut uid) = (user.map(String::from), uid);
    match (uid, &user) {
        (Some(number), None) => user = name_of(db, users, (Some(&key.cluster), number))?,
        (None, Some(name)) => uid = uid_of(db, users, (&key.cluster, name))?,
        _ => {}
    }
    let spelling = spelling.map_or_else(|| key.id.to_string(), String::from);
    Ok(Who { spelling, user, uid })
}

impl Who {
    /// Whether this is the same, and knows as much: a visit that says so changes nothing of who it is.
    fn has(&self, said: &Said) -> bool {
        let same_uid = said.uid.is_none_or(|uid| self.uid == Some(uid));
        let name = said.user.as_deref();
        same_uid && name.is_none_or(|name| self.user.as_deref() == Some(name))
    }
}

/// Keeps what an event adds to who a visit is.
fn learn(db: &Connection, event: &JobEvent, run: i64) -> rusqlite::Result<()> {
    let Said { spelling, user, uid } = said(event);
    db.prepare_cached(
        "UPDATE visits SET spelling = coalesce(spelling, ?4), user = coalesce(user, ?5),
             uid = coalesce(uid, ?6)
         WHERE run = ?1 AND device = ?2 AND start = ?3",
    )?
    .execute(params![run, event.device.as_str(), event.start.0, spelling, user, uid])?;
    Ok(())
}

/// A visit as it is known.
struct KnownVisit {
    run: i64,
    told: Option<i64>,
    said: Said,
}

/// The visit that an event is of.
fn visit(db: &Connection, event: &JobEvent) -> rusqlite::Result<Option<KnownVisit>> {
    let mut find = db.prepare_cached(
        "SELECT v.run, v.told, v.spelling, v.user, v.uid FROM runs r JOIN visits v ON v.run = r.run
         WHERE r.cluster = ?1 AND r.id = ?2 AND v.device = ?3 AND v.start = ?4",
    )?;
    let key = &event.key;
    let place = params![key.cluster.as_str(), key.id.get(), event.device.as_str(), event.start.0];
    find.query_row(place, |row| {
        let said = Said { spelling: row.get(2)?, user: row.get(3)?, uid: row.get(4)? };
        Ok(KnownVisit { run: row.get(0)?, told: row.get(1)?, said })
    })
    .optional()
}

/// How many visits and strays of the job the event's device has.
fn visits_on(db: &Connection, event: &JobEvent) -> rusqlite::Result<u64> {
    let mut find = db.prepare_cached(
        // By the job, which has few visits: the device may have had a million.
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

pub(crate) fn count(db: &Connection, name: &str) -> rusqlite::Result<u64> {
    let mut find = db.prepare_cached("SELECT value FROM counts WHERE name = ?1")?;
    let value: i64 = find.query_row([name], |row| row.get(0))?;
    Ok(value.unsigned_abs())
}

fn insert_visit(
    db: &Connection,
    run: i64,
    Timed { event, clock_us }: Timed<'_>,
    told: Option<i64>,
) -> rusqlite::Result<()> {
    let Said { spelling, user, uid } = said(event);
    db.prepare_cached(
        "INSERT INTO visits (run, device, start, told, stop, spelling, user, uid, clock_us)
         VALUES (?1, ?2, ?3, ?4, ?4, ?5, ?6, ?7, ?8)",
    )?
    .execute(params![
        run,
        event.device.as_str(),
        event.start.0,
        told,
        spelling,
        user,
        uid,
        clock_us
    ])?;
    Ok(())
}
