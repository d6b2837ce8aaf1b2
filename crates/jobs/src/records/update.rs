//! Partial records from scripts that replace a scheduler: a job is submitted, starts, ends, or is
//! corrected.

use crate::common::registry::count;
use crate::common::write_budget;
use crate::matching::visits::TOGETHER;
use crate::people::names::NameSource;
use crate::records::ingest_records::RecordOutcome;
use crate::records::store_records::{records, shares, steps};
use crate::{IngestStats, JobRecord, Limits, NodeShare, Registry, RegistryError, Step};
use model::{ClusterId, JobFacts, JobKey, JobState, Timestamp};
use rusqlite::{Connection, TransactionBehavior, params};

/// A partial update of a [`JobRecord`]. A `None` field keeps the earlier value.
///
/// Without `submit`, the update applies to the latest submission of the job, with two exceptions:
/// - That submission is over and ended before `start`.
/// - That submission belongs to another user, started before `start`, and has no reported end. It then
///   ended at `start` at the latest.
///
/// In these cases, and if the job has no submission yet, the update creates one at `start`, else at `stop`,
/// else now. A later update can report the time of submission.
///
/// Without `state`, the job is over if this update or an earlier one reports a `stop`. It failed if its
/// exit code is nonzero. With `start` alone it runs. Otherwise it keeps its state, initially waiting.
///
/// A new `user` brings their own user ID: the `uid` of this update, else the known one. A new `uid`
/// brings its own login name.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordUpdate {
    /// The cluster and the job ID.
    pub key: JobKey,
    /// Time of submission.
    pub submit: Option<Timestamp>,
    /// See [`JobRecord::display_id`].
    pub display_id: Option<Box<str>>,
    /// The state.
    pub state: Option<JobState>,
    /// Time of the start.
    pub start: Option<Timestamp>,
    /// Time of the end.
    pub stop: Option<Timestamp>,
    /// The other facts. Without words, `types` removes the earlier ones.
    pub facts: JobFacts,
    /// All devices of the job.
    pub nodes: Option<Vec<NodeShare>>,
    /// All steps of the job.
    pub steps: Option<Vec<Step>>,
    /// The update reports an end and is not a correction: a job that is over stays unchanged.
    pub is_end: bool,
}

impl RecordUpdate {
    /// Creates an empty update.
    pub fn new(key: JobKey) -> Self {
        Self {
            key,
            submit: None,
            display_id: None,
            state: None,
            start: None,
            stop: None,
            facts: JobFacts::default(),
            nodes: None,
            steps: None,
            is_end: false,
        }
    }

    /// Creates an update that ends a job. It does not change how and when an ended job ended.
    pub fn end(key: JobKey, stop: Timestamp, exit_code: Option<i32>) -> Self {
        let facts = JobFacts { exit_code, ..JobFacts::default() };
        Self { stop: Some(stop), facts, is_end: true, ..Self::new(key) }
    }

    /// Applies the update to a record.
    fn onto(self, before: Option<JobRecord>, received: Timestamp) -> JobRecord {
        let submit = self.submit.or(self.start).or(self.stop).unwrap_or(received);
        let before =
            before.unwrap_or_else(|| JobRecord::new(self.key.clone(), submit, JobState::Waiting));
        let state = self.state.unwrap_or_else(|| self.becomes(&before));
        let (user, uid) = match (self.facts.user.clone(), self.facts.uid) {
            (None, None) => (before.facts.user.clone(), before.facts.uid),
            (Some(user), None) if before.facts.user.as_ref() == Some(&user) => {
                (Some(user), before.facts.uid)
            }
            // The same user ID; or one for a job that had only a user name.
            (None, Some(uid)) if before.facts.uid.is_none_or(|before| before == uid) => {
                (before.facts.user.clone(), Some(uid))
            }
            other => other,
        };
        JobRecord {
            key: before.key,
            submit: before.submit,
            display_id: self.display_id.unwrap_or(before.display_id),
            state,
            start: self.start.or(before.start),
            stop: self.stop.or(before.stop),
            facts: JobFacts { user, uid, ..self.facts.or(before.facts) },
            nodes: self.nodes.unwrap_or(before.nodes),
            steps: self.steps.unwrap_or(before.steps),
        }
    }

    /// Derives a state that the update does not report.
    fn becomes(&self, before: &JobRecord) -> JobState {
        if self.stop.is_none() && !before.state.is_over() {
            return if self.start.is_some() { JobState::Running } else { before.state };
        }
        // The job was reported as failed for another reason than its exit code.
        let stated_so =
            before.state == JobState::Failed && before.facts.exit_code.unwrap_or(0) == 0;
        match self.facts.exit_code.or(before.facts.exit_code) {
            None | Some(0) if stated_so => JobState::Failed,
            None | Some(0) => JobState::Ended,
            // The exit code was known when the state was reported, so the reported state stays.
            Some(_) if self.stop.is_none() && self.facts.exit_code.is_none() => before.state,
            Some(_) => JobState::Failed,
        }
    }

    /// Tests whether the update names a different user than a record.
    fn is_anothers(&self, record: &JobRecord) -> bool {
        let (other, this) = (&record.facts, &self.facts);
        match (this.uid.zip(other.uid), this.user.as_ref().zip(other.user.as_ref())) {
            (_, Some((one, other))) => one != other,
            (Some((one, other)), None) => one != other,
            (None, None) => false,
        }
    }
}

/// The read position in a growing file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadPosition {
    /// Device ID of the file system.
    pub disk: u64,
    /// Inode of the file.
    pub inode: u64,
    /// Digest of the file's beginning. It detects a new file that reuses the inode of a deleted one.
    pub head: u64,
    /// Number of bytes read.
    pub bytes: u64,
    /// Number of lines read.
    pub lines: u64,
}

impl Registry {
    /// Applies partial updates in the given order in one transaction. They are on disk when this returns.
    /// The other rules are those of [`Registry::ingest`]. However, a known user ID of a login name remains.
    ///
    /// # Errors
    /// SQLite fails. Nothing is stored then, and the caller can retry.
    pub fn ingest_updates(
        &self,
        amendments: Vec<RecordUpdate>,
        received: Timestamp,
    ) -> Result<IngestStats, RegistryError> {
        let source = (NameSource::Pushed, ReportLimit::None);
        self.ingest_updates_and((amendments, source), received, |_| Ok(()))
    }

    /// Applies one partial update of a sender that may report the jobs of one cluster, or of all. It is rejected if it
    /// would bring these clusters above [`Limits::reported_open_max`] running allocations, or exceeds the sender's
    /// budget of writes ([`Limits::reported_writes_max`]): see [`IngestStats::limited`].
    ///
    /// # Errors
    /// As [`Self::ingest_updates`].
    pub fn ingest_limited(
        &self,
        update: RecordUpdate,
        cluster: Option<&ClusterId>,
        received: Timestamp,
    ) -> Result<IngestStats, RegistryError> {
        let source = (NameSource::Pushed, ReportLimit::Clusters(cluster));
        self.ingest_updates_and((vec![update], source), received, |_| Ok(()))
    }

    /// Applies partial updates from a file and stores the new read position in the same transaction. Each
    /// line thus takes effect once, even after a crash.
    ///
    /// # Errors
    /// SQLite fails. Nothing is stored then, and the caller can read the file again.
    pub fn follow(
        &self,
        path: &str,
        amendments: Vec<RecordUpdate>,
        read: ReadPosition,
        received: Timestamp,
    ) -> Result<IngestStats, RegistryError> {
        let source = (NameSource::Polled, ReportLimit::None);
        self.ingest_updates_and((amendments, source), received, |change| {
            let ReadPosition { disk, inode, head, bytes, lines } = read;
            let numbers = [disk, inode, head, bytes, lines].map(u64::cast_signed);
            let [disk, inode, head, bytes, lines] = numbers;
            change.execute(
                "INSERT OR REPLACE INTO followed (path, disk, inode, head, bytes, lines)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![path, disk, inode, head, bytes, lines],
            )?;
            Ok(())
        })
    }

    /// Returns the read position in a file; `None`: never read.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn followed(&self, path: &str) -> Result<Option<ReadPosition>, RegistryError> {
        let reader = self.reader.lock();
        let mut find = reader.prepare_cached(
            "SELECT disk, inode, head, bytes, lines FROM followed WHERE path = ?1",
        )?;
        let mut rows = find.query([path])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let number = |at| Ok::<_, rusqlite::Error>(row.get::<_, i64>(at)?.cast_unsigned());
        let (disk, inode, head) = (number(0)?, number(1)?, number(2)?);
        Ok(Some(ReadPosition { disk, inode, head, bytes: number(3)?, lines: number(4)? }))
    }

    fn ingest_updates_and(
        &self,
        (amendments, source): (Vec<RecordUpdate>, (NameSource, ReportLimit<'_>)),
        received: Timestamp,
        and: impl FnOnce(&Connection) -> Result<(), RegistryError>,
    ) -> Result<IngestStats, RegistryError> {
        let mut stats = IngestStats::default();
        let mut writer = self.writer.lock();
        let change = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for amendment in amendments {
            stats.add(self.ingest_update(&change, (amendment, source), received)?);
        }
        and(&change)?;
        change.commit()?;
        Ok(stats)
    }

    fn ingest_update(
        &self,
        db: &Connection,
        (amendment, (source, limit)): (RecordUpdate, (NameSource, ReportLimit<'_>)),
        received: Timestamp,
    ) -> Result<(RecordOutcome, bool), RegistryError> {
        let TargetSubmission { before, ended } = target(db, &amendment)?;
        if amendment.is_end && before.as_ref().is_some_and(|record| record.state.is_over()) {
            return Ok((RecordOutcome::Known, false));
        }
        let new_rows = amendment.nodes.as_ref().map_or(0, Vec::len);
        let new_rows = new_rows.saturating_add(amendment.steps.as_ref().map_or(0, Vec::len));
        let (guessed, is_new) = (amendment.submit.is_none(), before.is_none());
        let (start, stop) = (amendment.start, amendment.stop);
        let open_before = before.as_ref().map_or(0, running_allocations);
        let record = amendment.onto(before, received);
        // Start and end may come from two clocks. The tolerance is 1 min.
        let backwards = record.start.zip(record.stop).is_some_and(|(a, b)| b.plus(TOGETHER) < a);
        if backwards && start.or(stop).is_some() {
            return Ok((RecordOutcome::Backwards, false));
        }
        let grows = running_allocations(&record).saturating_sub(open_before);
        let rows = record.nodes.len().saturating_add(record.steps.len());
        let (cost, sender) =
            (write_budget::cost(new_rows, rows.saturating_sub(new_rows)), limit.sender());
        let exceeds =
            |sender| self.write_budgets.is_exceeded_by(cost, sender, &self.limits, received);
        if sender.is_some_and(exceeds)
            || grows > 0 && limit.is_exceeded_by(db, grows, &self.limits)?
            || is_new && limit.fills(db, &record.key.cluster, &self.limits)?
        {
            return Ok((RecordOutcome::Limited, false));
        }
        let (key, submit) = (record.key.clone(), record.submit);
        let taken = self.take(db, (record, source), received)?;
        if let (Some(sender), RecordOutcome::New | RecordOutcome::Changed) = (sender, taken.0) {
            self.write_budgets.spend(cost, sender, &self.limits, received);
        }
        if let Some(ended) = ended.filter(|_| taken.0 != RecordOutcome::Rejected) {
            self.take(db, (ended, source), received)?;
        }
        if guessed && is_new && taken.0 == RecordOutcome::New {
            db.prepare_cached(
                "UPDATE records SET guessed = 1 WHERE cluster = ?1 AND id = ?2 AND submit = ?3",
            )?
            .execute(params![key.cluster.as_str(), key.id.get(), submit.0])?;
        }
        Ok(taken)
    }
}

/// Share of one cluster in the upper half of the records: 1/16.
const RECORD_SHARES: u64 = 16;

/// The limits of a sender's records.
#[derive(Clone, Copy)]
enum ReportLimit<'a> {
    /// The sender is trusted.
    None,
    /// The sender reports the jobs of this cluster, or of every cluster.
    Clusters(Option<&'a ClusterId>),
}

impl<'a> ReportLimit<'a> {
    /// The clusters of a limited sender.
    const fn sender(self) -> Option<Option<&'a ClusterId>> {
        match self {
            Self::None => None,
            Self::Clusters(cluster) => Some(cluster),
        }
    }

    /// Whether so many more running allocations would exceed the limit. Counts at most up to the limit.
    fn is_exceeded_by(self, db: &Connection, more: u64, limits: &Limits) -> rusqlite::Result<bool> {
        let Self::Clusters(cluster) = self else { return Ok(false) };
        let Some(most) = limits.reported_open_max.checked_sub(more) else { return Ok(true) };
        let of_one = if cluster.is_some() { "o.cluster = ?1" } else { "?1 IS NULL" };
        let mut find = db.prepare_cached(&format!(
            "SELECT count(*) FROM (SELECT 1 FROM records o INDEXED BY records_running
                 LEFT JOIN shares s ON s.record = o.record
                 WHERE o.state = 'running' AND {of_one} LIMIT ?2)"
        ))?;
        let (cluster, enough) = (cluster.map(ClusterId::as_str), most.saturating_add(1));
        let open: i64 = find.query_row(params![cluster, enough.cast_signed()], |row| row.get(0))?;
        Ok(open.unsigned_abs() > most)
    }

    /// Whether a new record would take capacity that is reserved for others: in the upper half of the registry, the
    /// clusters of a sender have a sixteenth, and a sender for every cluster has nothing.
    fn fills(
        self,
        db: &Connection,
        cluster: &ClusterId,
        limits: &Limits,
    ) -> rusqlite::Result<bool> {
        let Self::Clusters(own) = self else { return Ok(false) };
        if count(db, "records")? < limits.records_max / 2 {
            return Ok(false);
        }
        let share = limits.records_max / RECORD_SHARES;
        let mut find = db.prepare_cached(
            "SELECT count(*) FROM (SELECT 1 FROM records INDEXED BY records_key
                 WHERE cluster = ?1 LIMIT ?2)",
        )?;
        let used: i64 =
            find.query_row(params![cluster.as_str(), share.cast_signed()], |row| row.get(0))?;
        Ok(own.is_none() || used.unsigned_abs() >= share)
    }
}

/// Allocations of a running record; a record without nodes counts as one.
fn running_allocations(record: &JobRecord) -> u64 {
    let nodes = u64::try_from(record.nodes.len()).unwrap_or(u64::MAX);
    if record.state == JobState::Running { nodes.max(1) } else { 0 }
}

/// The submission that an update applies to.
struct TargetSubmission {
    /// The submission to update; `None`: a new one.
    before: Option<JobRecord>,
    /// The submission before a new one that had no reported end, with its end set.
    ended: Option<JobRecord>,
}

fn target(db: &Connection, amendment: &RecordUpdate) -> Result<TargetSubmission, RegistryError> {
    let mut known = records(db, &amendment.key)?;
    let found = match amendment.submit {
        Some(submit) => {
            let exact = known.iter().position(|(_, record)| record.submit == submit);
            match exact {
                Some(place) => Some(known.swap_remove(place)),
                None => submitted_then(db, known, amendment, submit)?,
            }
        }
        None => known.pop(),
    };
    let Some((number, mut record)) = found else {
        return Ok(TargetSubmission { before: None, ended: None });
    };
    (record.nodes, record.steps) = (shares(db, number)?, steps(db, number)?);
    let Some(start) = amendment.start.filter(|_| amendment.submit.is_none()) else {
        return Ok(TargetSubmission { before: Some(record), ended: None });
    };
    if record.state.is_over() {
        let after = record.stop.is_some_and(|stop| start > stop);
        return Ok(TargetSubmission { before: (!after).then_some(record), ended: None });
    }
    if amendment.is_anothers(&record) && record.start.is_some_and(|before| start > before) {
        let ended = JobRecord { state: JobState::Ended, stop: Some(start), ..record };
        return Ok(TargetSubmission { before: None, ended: Some(ended) });
    }
    Ok(TargetSubmission { before: Some(record), ended: None })
}

/// Finds the stored submission whose guessed time of submission this update corrects. Candidate is the
/// next submission after `submit`. It does not match if the update names another user, or a job that
/// was over before the candidate started.
fn submitted_then(
    db: &Connection,
    known: Vec<(i64, JobRecord)>,
    amendment: &RecordUpdate,
    submit: Timestamp,
) -> Result<Option<(i64, JobRecord)>, RegistryError> {
    let next = known.into_iter().find(|(_, record)| record.submit > submit);
    let Some((number, mut record)) = next else { return Ok(None) };
    let over = amendment.stop.zip(record.start).is_some_and(|(stop, start)| stop < start);
    if over || amendment.is_anothers(&record) {
        return Ok(None);
    }
    let moved = db
        .prepare_cached(
            "UPDATE records SET submit = ?2, guessed = 0 WHERE record = ?1 AND guessed = 1",
        )?
        .execute(params![number, submit.0])?;
    record.submit = submit;
    Ok((moved == 1).then_some((number, record)))
}
