//! Writes recomputed runs: only the changed rows.
//!
//! A frame of one agent may recompute the runs of a job ID, and an ID may have many visits. Deleting
//! and inserting all of them for each frame would write thousands of rows for one change.

use crate::RegistryError;
use crate::common::registry::LoadUsers;
use crate::matching::join::{Joined, JoinedRun};
use crate::matching::visits::{ReportedIdentity, Visit};
use crate::runs::store_runs::insert_run;
use crate::runs::store_visits::{RunIdentity, who};
use crate::runs::strays;
use model::{DeviceId, JobKey, Timestamp};
use rusqlite::{Connection, params};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A stored visit.
pub(crate) struct StoredVisit {
    run: i64,
    stop: Option<Timestamp>,
    pub(crate) visit: Visit,
}

/// Returns the stored visits of a job ID.
pub(crate) fn stored(db: &Connection, key: &JobKey) -> Result<Vec<StoredVisit>, RegistryError> {
    let mut find = db.prepare_cached(
        "SELECT v.device, v.start, v.reported_stop, v.display_id, v.user, v.uid, v.clock_us, v.monitor, v.run, v.stop
         FROM runs r JOIN visits v ON v.run = r.run
         WHERE r.cluster = ?1 AND r.id = ?2",
    )?;
    let mut rows = find.query(params![key.cluster.as_str(), key.id.get()])?;
    let mut visits = Vec::new();
    while let Some(row) = rows.next()? {
        let device: String = row.get(0)?;
        let device = DeviceId::new(&device).map_err(|_| RegistryError::Damaged(device))?;
        let (reported_end, stop): (Option<i64>, Option<i64>) = (row.get(2)?, row.get(9)?);
        let visit = Visit {
            device,
            start: Timestamp(row.get(1)?),
            reported_end: reported_end.map(Timestamp),
            identity: ReportedIdentity {
                display_id: row.get(3)?,
                user: row.get(4)?,
                uid: row.get(5)?,
            },
            clock_us: row.get(6)?,
            monitor: row.get(7)?,
        };
        visits.push(StoredVisit { run: row.get(8)?, stop: stop.map(Timestamp), visit });
    }
    Ok(visits)
}

/// A written run: row ID, index of its record, and the nodes' notation for its job ID.
pub(crate) type WrittenRun = (i64, Option<usize>, Option<String>);

/// The stored visit at each device and start.
type VisitsBefore<'a> = HashMap<(&'a DeviceId, Timestamp), &'a StoredVisit>;

/// Writes the changed runs and strays of a job ID. The caller must delete runs that lost all their
/// visits. `strays_before` names a stray's record by its row ID, `joined` by its index in `records`.
pub(crate) fn write(
    db: &Connection,
    (key, users): (&JobKey, &LoadUsers),
    (before, strays_before): (&[StoredVisit], Vec<(Visit, i64)>),
    joined: &Joined,
    records: &[i64],
) -> Result<Vec<WrittenRun>, RegistryError> {
    let place: VisitsBefore<'_> =
        before.iter().map(|one| ((&one.visit.device, one.visit.start), one)).collect();
    let mut written = Vec::with_capacity(joined.runs.len());
    let mut taken = BTreeSet::new();
    for one in &joined.runs {
        let who = who(db, users, key, one.run.identity())?;
        let number = match kept(one, &place, &taken) {
            Some(number) => number,
            None => insert_run(db, key, (one.start.0, one.run.clock_us()), &who)?,
        };
        taken.insert(number);
        update_run(db, number, one, &who)?;
        for visit_found in &one.run.visits_found {
            let old = place.get(&(&visit_found.visit.device, visit_found.visit.start)).copied();
            write_visit(db, number, (&visit_found.visit, visit_found.stop), old)?;
        }
        written.push((number, one.place, Some(who.display_id)));
    }
    let mut old: BTreeMap<_, _> = strays_before
        .iter()
        .map(|(visit, record)| ((&visit.device, visit.start), record))
        .collect();
    for (visit, stray) in &joined.strays {
        let Some(record) = records.get(*stray) else { continue };
        if let Some(one) = place.get(&(&visit.device, visit.start)) {
            delete_visit(db, one)?;
        }
        if old.remove(&(&visit.device, visit.start)) != Some(record) {
            strays::insert(db, key, visit, *record)?;
        }
    }
    for (device, start) in old.into_keys() {
        strays::delete(db, key, (device, start))?;
    }
    Ok(written)
}

/// Returns the row ID of the stored run that shares most visits with this one, among the runs that
/// no other run has taken.
fn kept(one: &JoinedRun, place: &VisitsBefore<'_>, taken: &BTreeSet<i64>) -> Option<i64> {
    let mut count = BTreeMap::<i64, usize>::new();
    let visits_found = one.run.visits_found.iter();
    for old in visits_found
        .filter_map(|visit_found| place.get(&(&visit_found.visit.device, visit_found.visit.start)))
    {
        *count.entry(old.run).or_default() += 1;
    }
    let free = count.into_iter().filter(|(run, _)| !taken.contains(run));
    free.max_by_key(|(run, visits)| (*visits, Reverse(*run))).map(|(run, _)| run)
}

fn update_run(
    db: &Connection,
    number: i64,
    JoinedRun { run, start, stop, merged, .. }: &JoinedRun,
    who: &RunIdentity,
) -> rusqlite::Result<()> {
    let last_start = run.visits_found.last().map_or(0, |visit_found| visit_found.visit.start.0);
    db.prepare_cached(
        "UPDATE runs SET start = ?2, stop = ?3, last_start = ?4, merged = ?5, clock_us = ?6,
             node_user = ?7, node_uid = ?8
         WHERE run = ?1 AND (start, stop, last_start, merged, clock_us, node_user, node_uid)
             IS NOT (?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?
    .execute(params![
        number,
        start.0,
        stop.map(|stop| stop.0),
        last_start,
        merged,
        run.clock_us(),
        who.user,
        who.uid
    ])?;
    Ok(())
}

fn write_visit(
    db: &Connection,
    number: i64,
    (visit, stop): (&Visit, Option<Timestamp>),
    old: Option<&StoredVisit>,
) -> rusqlite::Result<()> {
    let (device, start, stop_us) = (visit.device.as_str(), visit.start.0, stop.map(|stop| stop.0));
    match old {
        Some(old) if old.run == number && old.stop == stop => return Ok(()),
        Some(old) if old.run == number => {
            db.prepare_cached(
                "UPDATE visits SET stop = ?4 WHERE run = ?1 AND device = ?2 AND start = ?3",
            )?
            .execute(params![number, device, start, stop_us])?;
            return Ok(());
        }
        Some(old) => delete_visit(db, old)?,
        None => {}
    }
    let reported_end = visit.reported_end.map(|reported_end| reported_end.0);
    let ReportedIdentity { display_id, user, uid } = &visit.identity;
    let (clock_us, monitor) = (visit.clock_us, &visit.monitor);
    db.prepare_cached(
        "INSERT INTO visits (run, device, start, reported_stop, stop, display_id, user, uid, clock_us, monitor)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?
    .execute(params![
        number, device, start, reported_end, stop_us, display_id, user, uid, clock_us, monitor
    ])?;
    Ok(())
}

fn delete_visit(
    db: &Connection,
    StoredVisit { run, visit, .. }: &StoredVisit,
) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM visits WHERE run = ?1 AND device = ?2 AND start = ?3")?
        .execute(params![run, visit.device.as_str(), visit.start.0])?;
    Ok(())
}
