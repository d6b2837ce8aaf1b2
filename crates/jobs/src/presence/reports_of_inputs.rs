//! Visits that another monitoring system reports, through an input of the server.
//!
//! Whoever reaches an input may state any job on any of its hosts. So such a visit gives nobody access to samples of the
//! node. Where the scheduler's record gives the device to the job, the record does, for its times.

use crate::presence::allocations::STOP;
use crate::presence::verified_presence::within;
use crate::{Interval, RegistryError};
use model::{JobEvent, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};

/// The table of these visits. An agent's report of the same visit replaces an input's.
pub(crate) const TABLES: &str = "
CREATE TABLE IF NOT EXISTS visits_of_inputs (
    cluster TEXT NOT NULL,
    id INTEGER NOT NULL,
    device TEXT NOT NULL,
    start INTEGER NOT NULL,
    PRIMARY KEY (cluster, id, device, start)
) STRICT, WITHOUT ROWID;
";

/// Finds a visit of an input.
const IS_OF_INPUT: &str =
    "SELECT 1 FROM visits_of_inputs WHERE cluster = ?1 AND id = ?2 AND device = ?3 AND start = ?4";

const DELETE: &str =
    "DELETE FROM visits_of_inputs WHERE cluster = ?1 AND id = ?2 AND device = ?3 AND start = ?4";

/// Who reports where jobs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reporter {
    /// The agent of the node, which reads the job's cgroup.
    Agent,
    /// An input that receives the messages of another monitoring system.
    Input,
}

/// Notes who reports a visit, before it is stored. Returns whether the report counts: of a visit that an agent has
/// reported, an input changes nothing.
pub(crate) fn note(
    db: &Connection,
    event: &JobEvent,
    reporter: Reporter,
) -> rusqlite::Result<bool> {
    let JobEvent { key, device, start, .. } = event;
    let visit = params![key.cluster.as_str(), key.id.get(), device.as_str(), start.0];
    if reporter == Reporter::Agent {
        forget(db, event)?;
        return Ok(true);
    }
    if is_of_input(db, event)? {
        return Ok(true);
    }
    let mut find = db.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM runs r JOIN visits v ON v.run = r.run
                 WHERE r.cluster = ?1 AND r.id = ?2 AND v.device = ?3 AND v.start = ?4)
             OR EXISTS (SELECT 1 FROM strays
                 WHERE cluster = ?1 AND id = ?2 AND device = ?3 AND start = ?4)",
    )?;
    if find.query_row(visit, |row| row.get(0))? {
        return Ok(false);
    }
    db.prepare_cached(
        "INSERT INTO visits_of_inputs (cluster, id, device, start) VALUES (?1, ?2, ?3, ?4)",
    )?
    .execute(visit)?;
    Ok(true)
}

/// Forgets a visit of an input that was rejected.
pub(crate) fn forget(db: &Connection, event: &JobEvent) -> rusqlite::Result<()> {
    let JobEvent { key, device, start, .. } = event;
    db.prepare_cached(DELETE)?.execute(params![
        key.cluster.as_str(),
        key.id.get(),
        device.as_str(),
        start.0
    ])?;
    Ok(())
}

fn is_of_input(db: &Connection, event: &JobEvent) -> rusqlite::Result<bool> {
    let JobEvent { key, device, start, .. } = event;
    let mut find = db.prepare_cached(IS_OF_INPUT)?;
    find.exists(params![key.cluster.as_str(), key.id.get(), device.as_str(), start.0])
}

/// Returns the verified part of an allocation: what an agent or a record states of it.
pub(super) fn verify(
    db: &Connection,
    allocation: Interval,
) -> Result<Option<Interval>, RegistryError> {
    let Interval { key, device, start, run_start, .. } = &allocation;
    let (cluster, id) = (key.cluster.as_str(), key.id.get());
    let mut find = db.prepare_cached(IS_OF_INPUT)?;
    if !find.exists(params![cluster, id, device.as_str(), start.0])? {
        return Ok(Some(allocation));
    }
    let mut find = db.prepare_cached(&format!(
        "SELECT t.start, {STOP} FROM runs r JOIN shares t ON t.record = r.record
         WHERE r.cluster = ?1 AND r.id = ?2 AND r.start = ?3 AND t.device = ?4 AND t.start IS NOT NULL"
    ))?;
    let share: Option<(i64, Option<i64>)> = find
        .query_row(params![cluster, id, run_start.0, device.as_str()], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .optional()?;
    Ok(share.and_then(|(from, to)| within(allocation, Timestamp(from), to.map(Timestamp))))
}
