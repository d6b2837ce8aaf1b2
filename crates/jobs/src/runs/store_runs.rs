//! Runs in the file: worked out from visits, and joined with records.
//!
//! A run without visits stands for a record that no node saw. Everything here follows from the set of visits
//! and the set of records of a number, whatever came first.

use crate::RegistryError;
use crate::common::registry::AskUsers;
use crate::common::sql_parts::device;
use crate::matching::join::{JoinedRun, RecordSpan, Span, join, pick, shown};
use crate::matching::visits::{Said, Visit};
use crate::runs::store_visits::{Who, who};
use crate::runs::strays;
use model::{DeviceId, JobKey, Timestamp};
use rusqlite::{Connection, params};
use std::collections::BTreeSet;

/// A record with its number in the file.
pub(crate) struct Recorded {
    pub(crate) record: i64,
    /// When its job ran; `None`: it never started.
    pub(crate) span: Option<Span>,
    submit: i64,
}

/// Joins the runs of a number with its records, after either changed.
pub(crate) fn relate(db: &Connection, key: &JobKey, users: &AskUsers) -> Result<(), RegistryError> {
    let recorded = recorded(db, key)?;
    if recorded.is_empty() {
        return Ok(());
    }
    let spans: Vec<Option<Span>> = recorded.iter().map(|recorded| recorded.span).collect();
    if spans.iter().flatten().count() > 1 || strays::any(db, key)? {
        return work_out(db, key, users);
    }
    let mut picks = Vec::new();
    for Seen { run, span, clock_us, merged } in seen(db, key)? {
        let place = pick(span.by_the_server(clock_us), &spans);
        let shared = place.is_some() && picks.iter().any(|(_, other)| *other == place);
        let record = place.and_then(|place| recorded.get(place)).map(|recorded| recorded.record);
        let strays = record.is_some_and(|record| strays::in_run(db, run, record).unwrap_or(true));
        let record = place.and_then(|place| spans.get(place).copied().flatten());
        let is_cut = record.is_some_and(|record| shown(span, record, clock_us) != span);
        if merged || shared || strays || is_cut {
            return work_out(db, key, users);
        }
        picks.push((run, place));
    }
    link(db, key, &recorded, &picks)
}

/// Works the runs of a number out from all its visits and records, and writes them anew.
pub(crate) fn work_out(
    db: &Connection,
    key: &JobKey,
    users: &AskUsers,
) -> Result<(), RegistryError> {
    let recorded = recorded(db, key)?;
    let mut told = Vec::with_capacity(recorded.len());
    for one in &recorded {
        // One that never started rejects nobody.
        let devices = if one.span.is_some() { devices(db, one.record)? } else { BTreeSet::new() };
        told.push(RecordSpan { span: one.span, devices });
    }
    let mut visits = visits(db, key)?;
    visits.extend(strays::take(db, key)?);
    db.prepare_cached("DELETE FROM runs WHERE cluster = ?1 AND id = ?2")?
        .execute(params![key.cluster.as_str(), key.id.get()])?;
    let joined = join(visits, &told);
    for (visit, place) in &joined.strays {
        if let Some(Recorded { record, .. }) = recorded.get(*place) {
            strays::insert(db, key, visit, *record)?;
        }
    }
    let mut picks = Vec::with_capacity(joined.runs.len());
    for joined in joined.runs {
        let who = who(db, users, key, joined.run.said())?;
        picks.push((write_run(db, key, &joined, &who)?, joined.place));
    }
    link(db, key, &recorded, &picks)
}

/// The records of a number, by submission.
pub(crate) fn recorded(db: &Connection, key: &JobKey) -> rusqlite::Result<Vec<Recorded>> {
    let mut find = db.prepare_cached(
        "SELECT record, start, stop, submit FROM records WHERE cluster = ?1 AND id = ?2 ORDER BY submit",
    )?;
    let recorded = find.query_map(params![key.cluster.as_str(), key.id.get()], |row| {
        let (start, stop): (Option<i64>, Option<i64>) = (row.get(1)?, row.get(2)?);
        let span = start.map(|start| Span { start: Timestamp(start), stop: stop.map(Timestamp) });
        Ok(Recorded { record: row.get(0)?, span, submit: row.get(3)? })
    })?;
    recorded.collect()
}

/// The devices that a record names.
fn devices(db: &Connection, record: i64) -> Result<BTreeSet<DeviceId>, RegistryError> {
    let mut find = db.prepare_cached("SELECT device FROM shares WHERE record = ?1")?;
    let mut rows = find.query([record])?;
    let mut devices = BTreeSet::new();
    while let Some(row) = rows.next()? {
        devices.insert(device(row.get(0)?)?);
    }
    Ok(devices)
}

/// A run that nodes saw.
struct Seen {
    run: i64,
    /// By the clock of its nodes.
    span: Span,
    clock_us: i64,
    /// Whether records made it of several, or cut its time.
    merged: bool,
}

fn seen(db: &Connection, key: &JobKey) -> rusqlite::Result<Vec<Seen>> {
    let mut find = db.prepare_cached(
        "SELECT run, start, stop, merged, clock_us FROM runs
         WHERE cluster = ?1 AND id = ?2 AND visits > 0 ORDER BY start, run",
    )?;
    let seen = find.query_map(params![key.cluster.as_str(), key.id.get()], |row| {
        let stop: Option<i64> = row.get(2)?;
        let span = Span { start: Timestamp(row.get(1)?), stop: stop.map(Timestamp) };
        Ok(Seen { run: row.get(0)?, span, clock_us: row.get(4)?, merged: row.get(3)? })
    })?;
    seen.collect()
}

fn visits(db: &Connection, key: &JobKey) -> Result<Vec<Visit>, RegistryError> {
    let mut find = db.prepare_cached(
        "SELECT v.device, v.start, v.told, v.spelling, v.user, v.uid, v.clock_us, v.monitor
         FROM runs r JOIN visits v ON v.run = r.run
         WHERE r.cluster = ?1 AND r.id = ?2",
    )?;
    let mut rows = find.query(params![key.cluster.as_str(), key.id.get()])?;
    let mut visits = Vec::new();
    while let Some(row) = rows.next()? {
        let device: String = row.get(0)?;
        let device = DeviceId::new(&device).map_err(|_| RegistryError::Damaged(device))?;
        let told: Option<i64> = row.get(2)?;
        visits.push(Visit {
            device,
            start: Timestamp(row.get(1)?),
            told: told.map(Timestamp),
            said: Said { spelling: row.get(3)?, user: row.get(4)?, uid: row.get(5)? },
            clock_us: row.get(6)?,
            monitor: row.get(7)?,
        });
    }
    Ok(visits)
}

fn write_run(
    db: &Connection,
    key: &JobKey,
    JoinedRun { run, start, stop, merged, .. }: &JoinedRun,
    who: &Who,
) -> Result<i64, RegistryError> {
    let number = insert_run(db, key, (start.0, run.clock_us()), who)?;
    let last_start = run.stays.last().map_or(0, |stay| stay.visit.start.0);
    db.prepare_cached("UPDATE runs SET stop = ?2, last_start = ?3, merged = ?4 WHERE run = ?1")?
        .execute(params![number, stop.map(|stop| stop.0), last_start, merged])?;
    let mut insert = db.prepare_cached(
        "INSERT INTO visits (run, device, start, told, stop, spelling, user, uid, clock_us, monitor)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?;
    for stay in &run.stays {
        let (visit, stop) = (&stay.visit, stay.stop.map(|stop| stop.0));
        let told = visit.told.map(|told| told.0);
        let Said { spelling, user, uid } = &visit.said;
        let (device, start) = (visit.device.as_str(), visit.start.0);
        let (clock_us, monitor) = (visit.clock_us, &visit.monitor);
        insert.execute(params![
            number, device, start, told, stop, spelling, user, uid, clock_us, monitor
        ])?;
    }
    Ok(number)
}

pub(crate) fn insert_run(
    db: &Connection,
    key: &JobKey,
    (start, clock_us): (i64, i64),
    who: &Who,
) -> rusqlite::Result<i64> {
    db.prepare_cached(
        "INSERT INTO runs (cluster, id, start, last_start, spelling, user, uid, node_user, node_uid,
             clock_us)
         VALUES (?1, ?2, ?3, ?3, ?4, ?5, ?6, ?5, ?6, ?7)",
    )?
    .insert(params![
        key.cluster.as_str(),
        key.id.get(),
        start,
        who.spelling,
        who.user,
        who.uid,
        clock_us
    ])
}

/// Writes which run has which record, and a run for each record that no node saw. A record's number is not put beside
/// the name of another whom the node names. A record's name takes its number from a scheduler or the name service, never
/// from a node: it would say whose the job is on other nodes. `told_start` and `told_stop` reach from the first to the last
/// of what the record and the visits say, also of a run that is shown as shorter: indexes find its visits by them.
fn link(
    db: &Connection,
    key: &JobKey,
    recorded: &[Recorded],
    picks: &[(i64, Option<usize>)],
) -> Result<(), RegistryError> {
    db.prepare_cached("DELETE FROM runs WHERE cluster = ?1 AND id = ?2 AND visits = 0")?
        .execute(params![key.cluster.as_str(), key.id.get()])?;
    let mut update = db.prepare_cached(
        "UPDATE runs SET record = o.record, told = o.state, spelling = coalesce(o.spelling, runs.spelling),
             user = CASE WHEN o.user IS NULL AND o.uid <> node_uid THEN NULL
                 ELSE coalesce(o.user, node_user) END,
             uid = CASE WHEN o.user IS NOT NULL THEN o.uid ELSE coalesce(o.uid, node_uid) END,
             record_uid = o.uid,
             account = o.account, project = o.project, name = o.name, queue = o.queue,
             exit_code = o.exit_code,
             told_start = CASE merged WHEN 0 THEN o.start
                 ELSE min(o.start, (SELECT min(v.start) FROM visits v WHERE v.run = ?1)) END,
             told_stop = CASE merged WHEN 0 THEN o.stop
                 ELSE (SELECT CASE WHEN count(*) = count(v.stop) THEN max(o.stop, max(v.stop)) END
                     FROM visits v WHERE v.run = ?1) END
         FROM (SELECT 1) LEFT JOIN records o ON o.record = ?2 WHERE runs.run = ?1",
    )?;
    for (run, place) in picks {
        let record = place.and_then(|place| recorded.get(place)).map(|one| one.record);
        update.execute(params![run, record])?;
    }
    let mut unseen = db.prepare_cached(
        "INSERT INTO runs (cluster, id, start, last_start, stop, started, spelling, user, uid, record_uid,
             account, project, name, queue, exit_code, told, told_start, told_stop, record)
         SELECT cluster, id, ?2, ?2, stop,
             start IS NOT NULL, spelling, user, uid, uid, account, project, name, queue, exit_code, state,
             start, stop, record
         FROM records WHERE record = ?1",
    )?;
    let mut starts = starts(db, key)?;
    for (place, one) in recorded.iter().enumerate() {
        if !picks.iter().any(|(_, other)| *other == Some(place)) {
            let mut start = one.span.map_or(one.submit, |span| span.start.0);
            while !starts.insert(start) {
                start = start.saturating_add(1);
            }
            unseen.execute([one.record, start])?;
        }
    }
    Ok(())
}

/// When the runs of a number start.
fn starts(db: &Connection, key: &JobKey) -> rusqlite::Result<BTreeSet<i64>> {
    let mut find = db.prepare_cached("SELECT start FROM runs WHERE cluster = ?1 AND id = ?2")?;
    let starts = find.query_map(params![key.cluster.as_str(), key.id.get()], |row| row.get(0))?;
    starts.collect()
}
