//! Disagreements between schedulers and nodes about current jobs.

use crate::common::sql_parts::{device, key};
use crate::{Registry, RegistryError};
use model::{ClusterId, DeviceId, JobKey, JobState, Timestamp};
use rusqlite::{Connection, Row, params};
use std::collections::HashMap;

/// How long a scheduler and a node may disagree before it counts: 60 s. The server polls the scheduler
/// at intervals. The scheduler creates and removes cgroups with a delay.
pub const PATIENCE: i64 = 60 * Timestamp::SECOND;

/// The kind of a disagreement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Difference {
    /// The scheduler reports the job as running there. The node reports, but has no cgroup of the job.
    NotSeen,
    /// The scheduler reports the job as running there. No agent of the node is known.
    NoAgent,
    /// The node has a cgroup of the job. The scheduler reports other jobs, but does not know this one.
    NotKnown,
    /// The node has a cgroup of the job. The scheduler reports that the job is over or has not started.
    NotRunning,
    /// The node has a cgroup of the job. The scheduler assigned other nodes.
    OtherNode,
    /// The cgroup and the job belong to different users.
    OtherUser,
}

impl Difference {
    /// Returns the displayed name.
    pub const fn word(self) -> &'static str {
        match self {
            Self::NotSeen => "not_seen",
            Self::NoAgent => "no_agent",
            Self::NotKnown => "not_known",
            Self::NotRunning => "not_running",
            Self::OtherNode => "other_node",
            Self::OtherUser => "other_user",
        }
    }
}

/// Whether an agent on a device reports cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentPresence {
    /// It reports now.
    Reporting,
    /// Nothing of the device has been received.
    Never,
    /// It is silent, or other agents read the device: a missing cgroup proves nothing.
    Unknown,
}

/// A job about which a scheduler and a node disagree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disagreement {
    /// The job.
    pub key: JobKey,
    /// The device.
    pub device: DeviceId,
    /// The kind.
    pub difference: Difference,
    /// Start of the disagreement: the time of the cgroup or of the record, whichever is later.
    pub since: Timestamp,
    /// The scheduler's report.
    pub scheduler: String,
    /// The node's report.
    pub node: String,
}

/// An existing cgroup.
struct ExistingCgroup {
    key: JobKey,
    device: DeviceId,
    start: i64,
    record: Option<i64>,
    node_user: Option<String>,
    node_uid: Option<u32>,
}

/// The facts of its record.
struct RecordedState {
    state: Option<JobState>,
    state_word: String,
    user: Option<String>,
    uid: Option<u32>,
    stop: Option<i64>,
    shares: u64,
    has_device: bool,
}

impl Registry {
    /// Returns disagreements between schedulers and nodes about current jobs that last longer than
    /// [`PATIENCE`]. They are sorted by job and device, and limited to the registry's row limit. `presence`
    /// returns whether an agent on a device reports cgroups.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn disagreements(
        &self,
        now: Timestamp,
        presence: impl Fn(&DeviceId) -> AgentPresence,
    ) -> Result<Vec<Disagreement>, RegistryError> {
        let reader = self.reader.lock();
        let before = now.plus(-PATIENCE).0;
        let mut found = Vec::new();
        let mut with_records = HashMap::new();
        for seen in seen(&reader, before)? {
            let has_records = match with_records.get(&seen.key.cluster) {
                Some(has_records) => *has_records,
                None => cluster_has_records(&reader, &seen.key.cluster, &mut with_records)?,
            };
            if has_records {
                judge(&reader, &seen, before, &mut found)?;
            }
        }
        not_seen(&reader, before, presence, &mut found)?;
        found.sort_by(|a, b| {
            (&a.key, &a.device, a.difference).cmp(&(&b.key, &b.device, b.difference))
        });
        found.truncate(self.limits.rows_max);
        Ok(found)
    }
}

/// Tests whether this cluster has any record.
fn cluster_has_records(
    db: &Connection,
    cluster: &ClusterId,
    with_records: &mut HashMap<ClusterId, bool>,
) -> rusqlite::Result<bool> {
    let mut find = db.prepare_cached("SELECT EXISTS (SELECT 1 FROM records WHERE cluster = ?1)")?;
    let has_records = find.query_row([cluster.as_str()], |row| row.get(0))?;
    with_records.insert(cluster.clone(), has_records);
    Ok(has_records)
}

/// Returns existing cgroups created before an instant.
fn seen(db: &Connection, before: i64) -> Result<Vec<ExistingCgroup>, RegistryError> {
    let mut find = db.prepare_cached(
        "SELECT r.cluster, r.id, v.device, v.start, r.record, r.node_user, r.node_uid
         FROM visits v JOIN runs r ON r.run = v.run
         WHERE v.stop IS NULL AND r.registered = 0 AND v.start <= ?1
         UNION ALL
         SELECT cluster, id, device, start, record, user, uid FROM strays
         WHERE reported_stop IS NULL AND start <= ?1",
    )?;
    let mut rows = find.query([before])?;
    let mut seen = Vec::new();
    while let Some(row) = rows.next()? {
        seen.push(ExistingCgroup {
            key: key(row.get(0)?, row.get(1)?)?,
            device: device(row.get(2)?)?,
            start: row.get(3)?,
            record: row.get(4)?,
            node_user: row.get(5)?,
            node_uid: row.get(6)?,
        });
    }
    Ok(seen)
}

fn recorded_state(row: &Row<'_>) -> rusqlite::Result<RecordedState> {
    let word: String = row.get(0)?;
    let shares: i64 = row.get(5)?;
    Ok(RecordedState {
        state: JobState::from_word(&word),
        state_word: row.get(1)?,
        user: row.get(2)?,
        uid: row.get(3)?,
        stop: row.get(4)?,
        shares: shares.unsigned_abs(),
        has_device: row.get(6)?,
    })
}

/// Compares an existing cgroup with its record.
fn judge(
    db: &Connection,
    seen: &ExistingCgroup,
    before: i64,
    found: &mut Vec<Disagreement>,
) -> Result<(), RegistryError> {
    let mut add = |difference, since: i64, scheduler: String, node: String| {
        let (key, device) = (seen.key.clone(), seen.device.clone());
        let since = Timestamp(since);
        found.push(Disagreement { key, device, difference, since, scheduler, node });
    };
    let cgroup = || "has its cgroup".to_owned();
    let Some(record) = seen.record else {
        let unknown = "does not know the job at this time".to_owned();
        add(Difference::NotKnown, seen.start, unknown, cgroup());
        return Ok(());
    };
    let mut find = db.prepare_cached(
        "SELECT o.state, o.state_word, o.user, o.uid, o.stop,
             (SELECT count(*) FROM shares WHERE record = o.record),
             EXISTS (SELECT 1 FROM shares WHERE record = o.record AND device = ?2)
         FROM records o WHERE o.record = ?1",
    )?;
    let recorded_state = find.query_row(params![record, seen.device.as_str()], recorded_state)?;
    if recorded_state.state != Some(JobState::Running) {
        let since = recorded_state.stop.unwrap_or(seen.start).max(seen.start);
        if since <= before {
            let word = recorded_state.state.map_or("", JobState::word);
            add(
                Difference::NotRunning,
                since,
                disagreement(word, &recorded_state.state_word),
                cgroup(),
            );
        }
    } else if recorded_state.shares > 0 && !recorded_state.has_device {
        let others = "allocated other nodes".to_owned();
        add(Difference::OtherNode, seen.start, others, cgroup());
    }
    let other = match (recorded_state.uid, seen.node_uid, &recorded_state.user, &seen.node_user) {
        (Some(recorded_state), Some(node), ..) => recorded_state != node,
        (_, _, Some(recorded_state), Some(node)) => recorded_state != node,
        _ => false,
    };
    if other {
        let name = |user: &Option<String>, uid: Option<u32>| {
            let uid = uid.map(|uid| format!("number {uid}"));
            let user = [user.clone(), uid].into_iter().flatten().collect::<Vec<_>>().join(", ");
            format!("user {user}")
        };
        let (scheduler, node) =
            (name(&recorded_state.user, recorded_state.uid), name(&seen.node_user, seen.node_uid));
        add(Difference::OtherUser, seen.start, scheduler, node);
    }
    Ok(())
}

/// Finds nodes of running jobs that report no cgroup of the job, or have never reported.
fn not_seen(
    db: &Connection,
    before: i64,
    presence: impl Fn(&DeviceId) -> AgentPresence,
    found: &mut Vec<Disagreement>,
) -> Result<(), RegistryError> {
    // The end of the latest visit of the device is when the cgroup disappeared.
    let mut find = db.prepare_cached(
        "SELECT r.cluster, r.id, s.device, s.start, o.state_word,
             (SELECT max(v.stop) FROM visits v WHERE v.run = r.run AND v.device = s.device)
         FROM records o JOIN runs r ON r.record = o.record JOIN shares s ON s.record = o.record
         WHERE o.state = 'running' AND o.stop IS NULL AND s.start <= ?1
             AND NOT EXISTS (SELECT 1 FROM visits v
                 WHERE v.run = r.run AND v.device = s.device AND v.stop IS NULL)
             AND NOT EXISTS (SELECT 1 FROM strays t WHERE t.cluster = r.cluster AND t.id = r.id
                 AND t.device = s.device AND t.reported_stop IS NULL)",
    )?;
    let mut rows = find.query([before])?;
    while let Some(row) = rows.next()? {
        let device = device(row.get(2)?)?;
        let (start, gone): (i64, Option<i64>) = (row.get(3)?, row.get(5)?);
        let since = gone.unwrap_or(start).max(start);
        if since > before {
            continue;
        }
        let word: String = row.get(4)?;
        let (difference, node) = match (presence(&device), gone) {
            (AgentPresence::Unknown, _) => continue,
            (AgentPresence::Never, _) => (Difference::NoAgent, "no agent of this node is known"),
            (_, Some(_)) => (Difference::NotSeen, "its cgroup has disappeared"),
            (_, None) => (Difference::NotSeen, "sends reports, but never had its cgroup"),
        };
        found.push(Disagreement {
            key: key(row.get(0)?, row.get(1)?)?,
            device,
            difference,
            since: Timestamp(since),
            scheduler: disagreement("running", &word),
            node: node.to_owned(),
        });
    }
    Ok(())
}

/// Formats a state with the scheduler's own name for it.
fn disagreement(state: &str, word: &str) -> String {
    if word.is_empty() { state.to_owned() } else { format!("{state} ({word})") }
}
