//! The table of runs: computed from visits and joined with records.
//!
//! A run without visits stands for a record that no node observed. The result depends only on the
//! visits and records of a job ID, not on the order of their arrival.

use crate::RegistryError;
use crate::common::registry::LoadUsers;
use crate::common::sql_parts::device;
use crate::matching::join::{RecordSpan, Span, join, pick, shown};
use crate::matching::visits::ReportedIdentity;
use crate::runs::store_visits::RunIdentity;
use crate::runs::strays;
use crate::runs::write_runs::{WrittenRun, stored, write};
use model::{DeviceId, JobKey, Timestamp};
use rusqlite::{Connection, params};
use std::collections::BTreeSet;

/// A record with its row ID.
pub(crate) struct Recorded {
    pub(crate) record: i64,
    /// Time range of the job; `None`: the job never started.
    pub(crate) span: Option<Span>,
    /// The record's user.
    pub(crate) who: ReportedIdentity,
    submit: i64,
}

/// Joins the runs of a job ID with its records after a change of either.
pub(crate) fn relate(
    db: &Connection,
    key: &JobKey,
    users: &LoadUsers,
) -> Result<(), RegistryError> {
    let recorded = recorded(db, key)?;
    if recorded.is_empty() {
        return Ok(());
    }
    let spans: Vec<Option<Span>> = recorded.iter().map(|recorded| recorded.span).collect();
    if spans.iter().flatten().count() > 1 || strays::any(db, key)? {
        return work_out(db, key, users);
    }
    let mut picks = Vec::new();
    for VisitedRun { run, span, clock_us, merged } in seen(db, key)? {
        let place = pick(span.by_the_server(clock_us), &spans);
        let shared =
            place.is_some() && picks.iter().any(|(_, other, _): &WrittenRun| *other == place);
        let record = place.and_then(|place| recorded.get(place)).map(|recorded| recorded.record);
        let strays = record.is_some_and(|record| strays::in_run(db, run, record).unwrap_or(true));
        let record = place.and_then(|place| spans.get(place).copied().flatten());
        let is_cut = record.is_some_and(|record| shown(span, record, clock_us) != span);
        if merged || shared || strays || is_cut {
            return work_out(db, key, users);
        }
        picks.push((run, place, None));
    }
    link(db, key, &recorded, &picks)
}

/// Recomputes the runs of a job ID from all its visits and records, and writes them.
pub(crate) fn work_out(
    db: &Connection,
    key: &JobKey,
    users: &LoadUsers,
) -> Result<(), RegistryError> {
    let recorded = recorded(db, key)?;
    let mut spans = Vec::with_capacity(recorded.len());
    for one in &recorded {
        // A record that never started excludes no device.
        let devices = if one.span.is_some() { devices(db, one.record)? } else { BTreeSet::new() };
        spans.push(RecordSpan { span: one.span, devices, who: one.who.clone() });
    }
    let (before, strays_before) = (stored(db, key)?, strays::all(db, key)?);
    let visits = before.iter().map(|stored| &stored.visit);
    let strays = strays_before.iter().map(|(visit, _)| visit);
    let joined = join(visits.chain(strays).cloned().collect(), &spans);
    let records: Vec<i64> = recorded.iter().map(|recorded| recorded.record).collect();
    let picks = write(db, (key, users), (&before, strays_before), &joined, &records)?;
    link(db, key, &recorded, &picks)
}

/// Returns the records of a job ID by time of submission.
pub(crate) fn recorded(db: &Connection, key: &JobKey) -> rusqlite::Result<Vec<Recorded>> {
    let mut find = db.prepare_cached(
        "SELECT record, start, stop, submit, user, uid FROM records
         WHERE cluster = ?1 AND id = ?2 ORDER BY submit",
    )?;
    let recorded = find.query_map(params![key.cluster.as_str(), key.id.get()], |row| {
        let (start, stop): (Option<i64>, Option<i64>) = (row.get(1)?, row.get(2)?);
        let span = start.map(|start| Span { start: Timestamp(start), stop: stop.map(Timestamp) });
        let who = ReportedIdentity { display_id: None, user: row.get(4)?, uid: row.get(5)? };
        Ok(Recorded { record: row.get(0)?, span, who, submit: row.get(3)? })
    })?;
    recorded.collect()
}

/// Returns the devices that a record names.
fn devices(db: &Connection, record: i64) -> Result<BTreeSet<DeviceId>, RegistryError> {
    let mut find = db.prepare_cached("SELECT device FROM shares WHERE record = ?1")?;
    let mut rows = find.query([record])?;
    let mut devices = BTreeSet::new();
    while let Some(row) = rows.next()? {
        devices.insert(device(row.get(0)?)?);
    }
    Ok(devices)
}

/// A run with visits.
struct VisitedRun {
    run: i64,
    /// Times by the nodes' clock.
    span: Span,
    clock_us: i64,
    /// Whether records joined several runs into this one, or cut its times.
    merged: bool,
}

fn seen(db: &Connection, key: &JobKey) -> rusqlite::Result<Vec<VisitedRun>> {
    let mut find = db.prepare_cached(
        "SELECT run, start, stop, merged, clock_us FROM runs
         WHERE cluster = ?1 AND id = ?2 AND visits > 0 ORDER BY start, run",
    )?;
    let seen = find.query_map(params![key.cluster.as_str(), key.id.get()], |row| {
        let stop: Option<i64> = row.get(2)?;
        let span = Span { start: Timestamp(row.get(1)?), stop: stop.map(Timestamp) };
        Ok(VisitedRun { run: row.get(0)?, span, clock_us: row.get(4)?, merged: row.get(3)? })
    })?;
    seen.collect()
}

pub(crate) fn insert_run(
    db: &Connection,
    key: &JobKey,
    (start, clock_us): (i64, i64),
    who: &RunIdentity,
) -> rusqlite::Result<i64> {
    db.prepare_cached(
        "INSERT INTO runs (cluster, id, start, last_start, display_id, user, uid, node_user, node_uid,
             clock_us)
         VALUES (?1, ?2, ?3, ?3, ?4, ?5, ?6, ?5, ?6, ?7)",
    )?
    .insert(params![
        key.cluster.as_str(),
        key.id.get(),
        start,
        who.display_id,
        who.user,
        who.uid,
        clock_us
    ])
}

/// Copies a record's facts to the run `?1`, if they differ. `?3` is the nodes' notation for the job ID.
const LINK: &str = "
UPDATE runs SET record = n.record, record_state = n.record_state, display_id = n.display_id, user = n.user, uid = n.uid,
    record_uid = n.record_uid, account = n.account, project = n.project, name = n.name, queue = n.queue,
    exit_code = n.exit_code, record_start = n.record_start, record_stop = n.record_stop
FROM (
    SELECT o.record AS record, o.state AS record_state, coalesce(o.display_id, ?3, r.display_id) AS display_id,
        CASE WHEN o.user IS NULL AND o.uid <> r.node_uid THEN NULL
            ELSE coalesce(o.user, r.node_user) END AS user,
        CASE WHEN o.user IS NOT NULL THEN o.uid ELSE coalesce(o.uid, r.node_uid) END AS uid,
        o.uid AS record_uid, o.account AS account, o.project AS project, o.name AS name, o.queue AS queue,
        o.exit_code AS exit_code,
        CASE r.merged WHEN 0 THEN o.start
            ELSE min(o.start, (SELECT min(v.start) FROM visits v WHERE v.run = ?1)) END AS record_start,
        CASE r.merged WHEN 0 THEN o.stop
            ELSE (SELECT CASE WHEN count(*) = count(v.stop) THEN max(o.stop, max(v.stop)) END
                FROM visits v WHERE v.run = ?1) END AS record_stop
    FROM runs r LEFT JOIN records o ON o.record = ?2 WHERE r.run = ?1) n
WHERE runs.run = ?1 AND (runs.record, runs.record_state, runs.display_id, runs.user, runs.uid, runs.record_uid, runs.account,
    runs.project, runs.name, runs.queue, runs.exit_code, runs.record_start, runs.record_stop)
    IS NOT (n.record, n.record_state, n.display_id, n.user, n.uid, n.record_uid, n.account,
    n.project, n.name, n.queue, n.exit_code, n.record_start, n.record_stop)";

/// Links each run to its record, and writes a run for each record without visits.
///
/// - A record's user ID is not combined with a different user's name from the node.
/// - A record's login name gets its user ID from a scheduler or the name service, never from a node. A
///   node would otherwise decide the job's owner on other nodes.
/// - `record_start` and `record_stop` span the times of the record and of the visits, even if the displayed
///   run is shorter. Indexes find the run's visits by them.
fn link(
    db: &Connection,
    key: &JobKey,
    recorded: &[Recorded],
    picks: &[WrittenRun],
) -> Result<(), RegistryError> {
    db.prepare_cached("DELETE FROM runs WHERE cluster = ?1 AND id = ?2 AND visits = 0")?
        .execute(params![key.cluster.as_str(), key.id.get()])?;
    let mut update = db.prepare_cached(LINK)?;
    for (run, place, display_id) in picks {
        let record = place.and_then(|place| recorded.get(place)).map(|one| one.record);
        update.execute(params![run, record, display_id])?;
    }
    let mut unseen = db.prepare_cached(
        "INSERT INTO runs (cluster, id, start, last_start, stop, started, display_id, user, uid, record_uid,
             account, project, name, queue, exit_code, record_state, record_start, record_stop, record)
         SELECT cluster, id, ?2, ?2, stop,
             start IS NOT NULL, display_id, user, uid, uid, account, project, name, queue, exit_code, state,
             start, stop, record
         FROM records WHERE record = ?1",
    )?;
    let mut starts = starts(db, key)?;
    for (place, one) in recorded.iter().enumerate() {
        if !picks.iter().any(|(_, other, _)| *other == Some(place)) {
            let mut start = one.span.map_or(one.submit, |span| span.start.0);
            while !starts.insert(start) {
                start = start.saturating_add(1);
            }
            unseen.execute([one.record, start])?;
        }
    }
    Ok(())
}

/// Returns the starts of the runs of a job ID.
fn starts(db: &Connection, key: &JobKey) -> rusqlite::Result<BTreeSet<i64>> {
    let mut find = db.prepare_cached("SELECT start FROM runs WHERE cluster = ?1 AND id = ?2")?;
    let starts = find.query_map(params![key.cluster.as_str(), key.id.get()], |row| row.get(0))?;
    starts.collect()
}
