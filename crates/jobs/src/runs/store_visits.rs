//! Visits in the file, and the runs kept in step with them.
//!
//! What counts is [`crate::matching::visits::runs`] of all visits of a number. Most events need not ask it: a
//! device that joins a run in progress, and one that leaves the newest run, change one row. So a start
//! on ten thousand nodes costs ten thousand rows and not their square; a test compares both ways.

use crate::common::registry::AskUsers;
use crate::matching::visits::Said;
use crate::people::names::{name_of, uid_of};
use crate::presence::verified_presence;
use crate::runs::store_runs::{insert_run, relate, work_out};
use crate::runs::strays::{self, Fit};
use crate::{Limits, RegistryError};
use model::{JobEvent, JobKey};
use rusqlite::{Connection, OptionalExtension, params};

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
    limits: &Limits,
    users: &AskUsers,
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
            work_out(db, &event.key, users)?;
        }
        return Ok(VisitChange::Known);
    }
    let told = event.stop.map(|stop| stop.max(event.start).0);
    let said = said(event);
    let Some(newest) = newest else {
        if count(db, "visits")? >= limits.visits_max {
            return Ok(VisitChange::Refused);
        }
        let who = who(db, users, &event.key, said)?;
        let run = insert_run(db, &event.key, (event.start.0, timed.clock_us), &who)?;
        insert_visit(db, run, timed, told)?;
        db.prepare_cached("UPDATE runs SET stop = ?2 WHERE run = ?1")?
            .execute(params![run, told])?;
        relate(db, &event.key, users)?;
        return Ok(if told.is_some() { VisitChange::Both } else { VisitChange::Began });
    };
    match visit(db, event)? {
        Some(known) if said.adds_to(&known.said) => {
            learn(db, event, known.run, users)?;
            // Its run may have another number now; what it says of who it is, is known.
            tell(db, timed, limits, users)
        }
        Some(known) if known.told >= told => Ok(VisitChange::Known),
        Some(known) => {
            end(db, timed, &newest, (known.run, told), users)?;
            Ok(if known.told.is_none() { VisitChange::Ended } else { VisitChange::Known })
        }
        None => begin(db, timed, (&newest, told), limits, users),
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
    limits: &Limits,
    users: &AskUsers,
) -> Result<VisitChange, RegistryError> {
    let event = timed.event;
    let full = count(db, "visits")? >= limits.visits_max;
    if full || visits_of(db, &event.key)? >= limits.visits_per_job_max {
        return Ok(VisitChange::Refused);
    }
    let fit = strays::fit(db, timed, newest.run)?;
    let visited = visited(db, event)? || strays::has(db, &event.key, &event.device)?;
    if let (Fit::Stray(record), false) = (&fit, visited) {
        return Ok(strays::begin(db, timed, *record)?);
    }
    let there = newest.stop.is_none() && event.start.0 >= newest.start;
    let same = matches!(fit, Fit::Joins) && newest.who.has(&said(event));
    let joins = there && same && !visited;
    insert_visit(db, newest.run, timed, told)?;
    if joins {
        db.prepare_cached("UPDATE runs SET last_start = max(last_start, ?2) WHERE run = ?1")?
            .execute(params![newest.run, event.start.0])?;
    } else {
        work_out(db, &event.key, users)?;
    }
    Ok(if told.is_some() { VisitChange::Both } else { VisitChange::Began })
}

/// The end of a known visit, or a later one than was told before.
fn end(
    db: &Connection,
    timed: Timed<'_>,
    newest: &Newest,
    (run, told): (i64, Option<i64>),
    users: &AskUsers,
) -> Result<(), RegistryError> {
    let event = timed.event;
    db.prepare_cached(
        "UPDATE visits SET told = ?4, stop = ?4 WHERE run = ?1 AND device = ?2 AND start = ?3",
    )?
    .execute(params![run, event.device.as_str(), event.start.0, told])?;
    let followed: bool = db
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM visits WHERE run = ?1 AND device = ?2 AND start > ?3)",
        )?
        .query_row(params![run, event.device.as_str(), event.start.0], |row| row.get(0))?;
    let last = run == newest.run && told.is_some_and(|told| told >= newest.last_start);
    if followed || !last || !matches!(strays::fit(db, timed, run)?, Fit::Joins) {
        return work_out(db, &event.key, users);
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
        relate(db, &event.key, users)?;
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
fn learn(
    db: &Connection,
    event: &JobEvent,
    run: i64,
    users: &AskUsers,
) -> Result<(), RegistryError> {
    let Said { spelling, user, uid } = said(event);
    db.prepare_cached(
        "UPDATE visits SET spelling = coalesce(spelling, ?4), user = coalesce(user, ?5),
             uid = coalesce(uid, ?6)
         WHERE run = ?1 AND device = ?2 AND start = ?3",
    )?
    .execute(params![run, event.device.as_str(), event.start.0, spelling, user, uid])?;
    work_out(db, &event.key, users)
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

/// Whether the job was on the event's device before.
fn visited(db: &Connection, event: &JobEvent) -> rusqlite::Result<bool> {
    let mut find = db.prepare_cached(
        // By the job, which has few visits: the device may have had a million.
        "SELECT EXISTS (SELECT 1 FROM runs r INDEXED BY runs_key CROSS JOIN visits v ON v.run = r.run
         WHERE r.cluster = ?1 AND r.id = ?2 AND v.device = ?3)",
    )?;
    let key = &event.key;
    find.query_row(params![key.cluster.as_str(), key.id.get(), event.device.as_str()], |row| {
        row.get(0)
    })
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
