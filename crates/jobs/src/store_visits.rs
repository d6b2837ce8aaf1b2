//! Visits in the file, and the runs kept in step with them.
//!
//! What counts is [`crate::visits::runs`] of all visits of a number. Most events need not ask it: a
//! device that joins a run in progress, and one that leaves the newest run, change one row. So a start
//! on ten thousand nodes costs ten thousand rows and not their square; a test compares both ways.

use crate::registry::AskUsers;
use crate::visits::{Run, Visit, runs};
use crate::{Limits, RegistryError};
use model::{DeviceId, JobEvent, JobKey, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};

/// What an event told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
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

/// What all runs of a number share.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Who {
    spelling: String,
    user: Option<String>,
    uid: Option<u32>,
}

/// The newest run of a number, as the file has it.
struct Newest {
    run: i64,
    start: i64,
    stop: Option<i64>,
    last_start: i64,
    registered: bool,
    who: Who,
}

/// Takes in one event.
pub(crate) fn tell(
    db: &Connection,
    event: &JobEvent,
    limits: &Limits,
    users: &AskUsers,
) -> Result<Told, RegistryError> {
    let newest = newest(db, &event.key)?;
    if let Some(newest) = &newest
        && newest.registered
    {
        return tell_registered(db, newest, event);
    }
    let told = event.stop.map(|stop| stop.max(event.start).0);
    let who = who(event, newest.as_ref(), users);
    let Some(newest) = newest else {
        if count(db, "visits")? >= limits.visits_max {
            return Ok(Told::Refused);
        }
        let run = insert_run(db, &event.key, event.start.0, &who)?;
        insert_visit(db, run, event, told)?;
        db.prepare_cached("UPDATE runs SET stop = ?2 WHERE run = ?1")?
            .execute(params![run, told])?;
        return Ok(if told.is_some() { Told::Both } else { Told::Began });
    };
    if newest.who != who {
        learn(db, &event.key, &who)?;
    }
    match visit(db, event)? {
        Some((_, known)) if known >= told => Ok(Told::Known),
        Some((run, known)) => {
            end(db, event, &newest, run, told)?;
            Ok(if known.is_none() { Told::Ended } else { Told::Known })
        }
        None => begin(db, event, &newest, told, limits),
    }
}

/// A local job has one device and one visit, which its registration made; a node only tells its end.
fn tell_registered(
    db: &Connection,
    newest: &Newest,
    event: &JobEvent,
) -> Result<Told, RegistryError> {
    let mut find =
        db.prepare_cached("SELECT start, told FROM visits WHERE run = ?1 AND device = ?2")?;
    let found: Option<(i64, Option<i64>)> = find
        .query_row(params![newest.run, event.device.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((start, told)) = found else { return Ok(Told::Refused) };
    let (None, Some(stop)) = (told, event.stop) else { return Ok(Told::Known) };
    stop_registered(db, newest.run, stop.0.max(start))?;
    Ok(Told::Ended)
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
    event: &JobEvent,
    newest: &Newest,
    told: Option<i64>,
    limits: &Limits,
) -> Result<Told, RegistryError> {
    let full = count(db, "visits")? >= limits.visits_max;
    if full || visits_of(db, &event.key)? >= limits.visits_per_job_max {
        return Ok(Told::Refused);
    }
    let joins = newest.stop.is_none() && event.start.0 >= newest.start && !visited(db, event)?;
    insert_visit(db, newest.run, event, told)?;
    if joins {
        db.prepare_cached("UPDATE runs SET last_start = max(last_start, ?2) WHERE run = ?1")?
            .execute(params![newest.run, event.start.0])?;
    } else {
        work_out(db, &event.key)?;
    }
    Ok(if told.is_some() { Told::Both } else { Told::Began })
}

/// The end of a known visit, or a later one than was told before.
fn end(
    db: &Connection,
    event: &JobEvent,
    newest: &Newest,
    run: i64,
    told: Option<i64>,
) -> Result<(), RegistryError> {
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
    if followed || !last {
        return work_out(db, &event.key);
    }
    let open: bool = db
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM visits WHERE run = ?1 AND stop IS NULL)")?
        .query_row([run], |row| row.get(0))?;
    if !open {
        db.prepare_cached(
            "UPDATE runs SET stop = (SELECT max(stop) FROM visits WHERE run = ?1) WHERE run = ?1",
        )?
        .execute([run])?;
    }
    Ok(())
}

/// Works the runs of a number out from all its visits, and writes them anew.
fn work_out(db: &Connection, key: &JobKey) -> Result<(), RegistryError> {
    let Some(newest) = newest(db, key)? else { return Ok(()) };
    let mut find = db.prepare_cached(
        "SELECT v.device, v.start, v.told FROM runs r JOIN visits v ON v.run = r.run
         WHERE r.cluster = ?1 AND r.id = ?2",
    )?;
    let mut rows = find.query(params![key.cluster.as_str(), key.id.get()])?;
    let mut visits = Vec::new();
    while let Some(row) = rows.next()? {
        let device: String = row.get(0)?;
        let device = DeviceId::new(&device).map_err(|_| RegistryError::Damaged(device))?;
        let told: Option<i64> = row.get(2)?;
        visits.push(Visit { device, start: Timestamp(row.get(1)?), told: told.map(Timestamp) });
    }
    drop(rows);
    db.prepare_cached("DELETE FROM runs WHERE cluster = ?1 AND id = ?2")?
        .execute(params![key.cluster.as_str(), key.id.get()])?;
    for run in runs(visits) {
        write_run(db, key, &run, &newest.who)?;
    }
    Ok(())
}

fn write_run(db: &Connection, key: &JobKey, run: &Run, who: &Who) -> Result<(), RegistryError> {
    let number = insert_run(db, key, run.start().0, who)?;
    let last_start = run.stays.last().map_or(0, |stay| stay.visit.start.0);
    db.prepare_cached("UPDATE runs SET stop = ?2, last_start = ?3 WHERE run = ?1")?
        .execute(params![number, run.stop().map(|stop| stop.0), last_start])?;
    let mut insert = db.prepare_cached(
        "INSERT INTO visits (run, device, start, told, stop) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    for stay in &run.stays {
        let (visit, stop) = (&stay.visit, stay.stop.map(|stop| stop.0));
        let told = visit.told.map(|told| told.0);
        insert.execute(params![number, visit.device.as_str(), visit.start.0, told, stop])?;
    }
    Ok(())
}

fn newest(db: &Connection, key: &JobKey) -> rusqlite::Result<Option<Newest>> {
    let mut find = db.prepare_cached(
        "SELECT run, start, stop, last_start, registered, spelling, user, uid FROM runs
         WHERE cluster = ?1 AND id = ?2 ORDER BY start DESC LIMIT 1",
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

/// What is known of the job together with what the event adds: what was told first counts.
fn who(event: &JobEvent, newest: Option<&Newest>, users: &AskUsers) -> Who {
    let known = newest.map(|newest| &newest.who);
    let mut uid = known.and_then(|who| who.uid).or(event.uid);
    let mut user =
        known.and_then(|who| who.user.clone()).or_else(|| event.user.clone().map(String::from));
    // OAR's cgroups are named after the login name, Slurm's after the number.
    match (uid, &user) {
        (Some(number), None) => user = users().name(number).map(String::from),
        (None, Some(name)) => uid = users().uid(name),
        _ => {}
    }
    let spelling = match known {
        Some(who) => who.spelling.clone(),
        None if event.spelling.is_empty() => event.key.id.to_string(),
        None => event.spelling.to_string(),
    };
    Who { spelling, user, uid }
}

fn learn(db: &Connection, key: &JobKey, who: &Who) -> rusqlite::Result<()> {
    db.prepare_cached("UPDATE runs SET user = ?3, uid = ?4 WHERE cluster = ?1 AND id = ?2")?
        .execute(params![key.cluster.as_str(), key.id.get(), who.user, who.uid])?;
    Ok(())
}

/// The run of a visit and its end, as told.
fn visit(db: &Connection, event: &JobEvent) -> rusqlite::Result<Option<(i64, Option<i64>)>> {
    let mut find = db.prepare_cached(
        "SELECT v.run, v.told FROM runs r JOIN visits v ON v.run = r.run
         WHERE r.cluster = ?1 AND r.id = ?2 AND v.device = ?3 AND v.start = ?4",
    )?;
    let key = &event.key;
    let place = params![key.cluster.as_str(), key.id.get(), event.device.as_str(), event.start.0];
    find.query_row(place, |row| Ok((row.get(0)?, row.get(1)?))).optional()
}

/// Whether the job was on the event's device before.
fn visited(db: &Connection, event: &JobEvent) -> rusqlite::Result<bool> {
    let mut find = db.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM runs r JOIN visits v ON v.run = r.run
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

fn insert_run(db: &Connection, key: &JobKey, start: i64, who: &Who) -> rusqlite::Result<i64> {
    db.prepare_cached(
        "INSERT INTO runs (cluster, id, start, last_start, spelling, user, uid)
         VALUES (?1, ?2, ?3, ?3, ?4, ?5, ?6)",
    )?
    .insert(params![
        key.cluster.as_str(),
        key.id.get(),
        start,
        who.spelling,
        who.user,
        who.uid
    ])
}

fn insert_visit(
    db: &Connection,
    run: i64,
    event: &JobEvent,
    told: Option<i64>,
) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT INTO visits (run, device, start, told, stop) VALUES (?1, ?2, ?3, ?4, ?4)",
    )?
    .execute(params![run, event.device.as_str(), event.start.0, told])?;
    Ok(())
}
