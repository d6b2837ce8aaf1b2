//! Shares of the registry's visits: one node or user cannot fill it and leave no room for others.
//!
//! A visit counts for the node that reports it, and a registered local job for its user. A node or user with
//! more than its share gets no room in the upper half, which is reserved for the others.

use crate::common::registry::count;
use crate::{Limits, RegistryError};
use model::JobEvent;
use rusqlite::{Connection, OptionalExtension, params};

/// Share of one node or user in the reserved half: 1/16.
const SHARES: u64 = 16;

/// The counts of each node and user.
pub(crate) const TABLES: &str = "
CREATE TABLE visit_shares (
    holder TEXT PRIMARY KEY,
    visits INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TRIGGER visit_held AFTER INSERT ON visits BEGIN
    INSERT INTO visit_shares
        SELECT CASE registered WHEN 0 THEN 'node ' || NEW.device ELSE 'user ' || uid END, 1
        FROM runs WHERE run = NEW.run
        ON CONFLICT (holder) DO UPDATE SET visits = visits + 1;
END;
CREATE TRIGGER visit_freed AFTER DELETE ON visits BEGIN
    UPDATE visit_shares SET visits = visits - 1 WHERE holder =
        (SELECT CASE registered WHEN 0 THEN 'node ' || OLD.device ELSE 'user ' || uid END
         FROM runs WHERE run = OLD.run);
END;
CREATE TRIGGER stray_held AFTER INSERT ON strays BEGIN
    INSERT INTO visit_shares VALUES ('node ' || NEW.device, 1)
        ON CONFLICT (holder) DO UPDATE SET visits = visits + 1;
END;
CREATE TRIGGER stray_freed AFTER DELETE ON strays BEGIN
    UPDATE visit_shares SET visits = visits - 1 WHERE holder = 'node ' || OLD.device;
END;
";

/// Tests whether the registry has room for a visit that a node reports. A node that the job's record names needs
/// no share.
pub(crate) fn has_space(
    db: &Connection,
    limits: &Limits,
    event: &JobEvent,
) -> rusqlite::Result<bool> {
    let all = count(db, "visits")?;
    if all >= limits.visits_max {
        return Ok(false);
    }
    let holder = || format!("node {}", event.device);
    let has_share = all < limits.visits_max / 2 || used(db, &holder())? < share(limits);
    let may_open = event.stop.is_some() || open_on(db, event)? < limits.open_visits_max;
    Ok(has_share && may_open || is_recorded(db, event)?)
}

/// Returns the number of visits of the event's device without a reported end.
fn open_on(db: &Connection, event: &JobEvent) -> rusqlite::Result<u64> {
    let mut find = db.prepare_cached(
        "SELECT count(*) FROM visits INDEXED BY visits_open WHERE device = ?1 AND stop IS NULL",
    )?;
    let open: i64 = find.query_row([event.device.as_str()], |row| row.get(0))?;
    Ok(open.unsigned_abs())
}

/// Checks that the registry has room for another local job of a user.
pub(crate) fn check_user(db: &Connection, limits: &Limits, uid: u32) -> Result<(), RegistryError> {
    let (all, share) = (count(db, "visits")?, share(limits));
    if all >= limits.visits_max {
        return Err(RegistryError::Full(limits.visits_max));
    }
    if all >= limits.visits_max / 2 && used(db, &format!("user {uid}"))? >= share {
        return Err(RegistryError::FullForUser { uid, max: share });
    }
    Ok(())
}

fn share(limits: &Limits) -> u64 {
    (limits.visits_max / SHARES).max(1)
}

fn used(db: &Connection, holder: &str) -> rusqlite::Result<u64> {
    let mut find = db.prepare_cached("SELECT visits FROM visit_shares WHERE holder = ?1")?;
    let used: Option<i64> = find.query_row([holder], |row| row.get(0)).optional()?;
    Ok(used.unwrap_or(0).unsigned_abs())
}

fn is_recorded(db: &Connection, event: &JobEvent) -> rusqlite::Result<bool> {
    let mut find = db.prepare_cached(
        "SELECT 1 FROM records o JOIN shares s ON s.record = o.record
         WHERE o.cluster = ?1 AND o.id = ?2 AND s.device = ?3",
    )?;
    let key = &event.key;
    find.exists(params![key.cluster.as_str(), key.id.get(), event.device.as_str()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Registration, Registry, Users};
    use model::{ClusterId, DeviceId, JobId, JobKey, Timestamp};

    #[test]
    fn the_visits_of_each_node_and_user_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("registry.sqlite");
        let counts = |registry: &Registry| {
            let db = registry.writer.lock();
            let mut find = db.prepare("SELECT holder, visits FROM visit_shares").unwrap();
            let rows = find.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
            rows.map(Result::unwrap).collect::<Vec<(String, i64)>>()
        };
        let registry = Registry::open(&path, Limits::default(), Users::default).unwrap();
        let start = Timestamp::from_seconds(1_700_000_000);
        let device = DeviceId::new("n1").unwrap();
        for id in [7, 8] {
            let event = JobEvent {
                key: JobKey {
                    cluster: ClusterId::new("slurm").unwrap(),
                    id: JobId::new(id).unwrap(),
                },
                display_id: Box::default(),
                device: device.clone(),
                user: None,
                uid: Some(1000),
                start,
                stop: None,
                monitor: None,
                oom_kills: Vec::new(),
            };
            registry.apply(&[event], start).unwrap();
        }
        let local =
            Registration { uid: 1000, user: None, name: None, device, start, is_verified: false };
        registry.register_local(&local).unwrap();
        assert_eq!(counts(&registry), [("node n1".to_owned(), 2), ("user 1000".to_owned(), 1)]);
    }
}
