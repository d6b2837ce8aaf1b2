//! Ingests scheduler records.

use crate::common::registry::count;
use crate::people::names::{NameSource, learn, uid_of};
use crate::records::store_records::{digest, known, write};
use crate::runs::store_runs::relate;
use crate::{JobRecord, Limits, Registry, RegistryError};
use model::{JobState, Resources, Timestamp};
use rusqlite::{Connection, TransactionBehavior};

/// Maximum length of a text in a record, in bytes. Longer texts are cut.
const TEXT_BYTES_MAX: usize = 1024;
/// Maximum length of a login name and of a job ID as text, in bytes.
const NAME_BYTES_MAX: usize = 64;
/// Maximum length of a list of cores or accelerators, in bytes. A longer list is dropped, as a part of
/// it would be wrong.
const LIST_BYTES_MAX: usize = 8192;
/// Maximum number of types of a job.
const TYPES_MAX: usize = 64;
/// Maximum number of steps of a record.
const STEPS_MAX: usize = 4096;

/// Counts of ingested records by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IngestStats {
    /// New submissions.
    pub new: u64,
    /// Records that replaced an earlier record.
    pub changed: u64,
    /// Duplicates.
    pub known: u64,
    /// Rejected records. Their time or amount is impossible, their job is local, or the registry is full.
    /// Or their end precedes their start.
    pub rejected: u64,
    /// The part of `rejected` with an end before the start.
    pub backwards: u64,
    /// The part of `rejected` that exceeds a sender's limit of running allocations or of records.
    pub limited: u64,
    /// Records stored in part. A text, or a list of types, nodes or steps, exceeded its limit.
    pub cut: u64,
}

/// The outcome for one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordOutcome {
    New,
    Changed,
    Known,
    Rejected,
    Backwards,
    Limited,
}

impl Registry {
    /// Stores records of a scheduler or a replacement in one transaction. They are on disk when this
    /// returns. `received` is the time of reception. A record replaces the earlier record of the same key
    /// and submission. A duplicate changes nothing. Rejected records are counted; the others are stored.
    ///
    /// A job that is over without a reported end ended when the first such record was received. A waiting
    /// job has no start, and a job that is not over has no end, whatever its record states. A missing user
    /// ID comes from the first of these sources:
    /// 1. The earlier record, if it has the same login name.
    /// 2. The machine's users.
    /// 3. The name service.
    /// 4. The latest report of this login name in the cluster.
    ///
    /// # Errors
    /// SQLite fails. Nothing is stored then, and the caller can retry.
    pub fn ingest(
        &self,
        records: &[JobRecord],
        received: Timestamp,
    ) -> Result<IngestStats, RegistryError> {
        let mut stats = IngestStats::default();
        if records.is_empty() {
            return Ok(stats);
        }
        let mut writer = self.writer.lock();
        let change = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for record in records {
            stats.add(self.take(&change, (record.clone(), NameSource::Polled), received)?);
        }
        change.commit()?;
        Ok(stats)
    }

    /// Ingests one record. The `bool` of the result tells whether it was cut.
    pub(crate) fn take(
        &self,
        db: &Connection,
        (mut record, source): (JobRecord, NameSource),
        received: Timestamp,
    ) -> Result<(RecordOutcome, bool), RegistryError> {
        let before = known(db, &record.key, record.submit)?;
        let full = || Ok::<_, RegistryError>(count(db, "records")? >= self.limits.records_max);
        settle(&mut record, before.as_ref().and_then(|before| before.stop), received);
        if !possible(&record, received) || before.is_none() && full()? {
            return Ok((RecordOutcome::Rejected, false));
        }
        let cut = bound(&mut record, &self.limits);
        let pair = record.facts.user.clone().zip(record.facts.uid);
        if record.facts.uid.is_none()
            && let Some(user) = &record.facts.user
        {
            let same_user = before.as_ref().filter(|before| before.user.as_ref() == Some(user));
            record.facts.uid = match same_user.and_then(|before| before.uid) {
                Some(uid) => Some(uid),
                None => uid_of(db, &self.users, (&record.key.cluster, user))?,
            };
        }
        let digest = digest(&record);
        let outcome = match &before {
            Some(before) if before.digest == digest => return Ok((RecordOutcome::Known, cut)),
            Some(_) => RecordOutcome::Changed,
            None => RecordOutcome::New,
        };
        if let Some((user, uid)) = pair {
            let source = (source, &record.key.cluster);
            learn(db, &self.users, source, (&user, uid), received)?;
        }
        write(db, &record, before.map(|before| before.record), digest, received)?;
        relate(db, &record.key, &self.users)?;
        Ok((outcome, cut))
    }
}

impl IngestStats {
    pub(crate) const fn add(&mut self, (outcome, cut): (RecordOutcome, bool)) {
        match outcome {
            RecordOutcome::New => self.new += 1,
            RecordOutcome::Changed => self.changed += 1,
            RecordOutcome::Known => self.known += 1,
            RecordOutcome::Rejected => self.rejected += 1,
            RecordOutcome::Backwards => {
                (self.rejected, self.backwards) = (self.rejected + 1, self.backwards + 1);
            }
            RecordOutcome::Limited => {
                (self.rejected, self.limited) = (self.rejected + 1, self.limited + 1);
            }
        }
        if cut {
            self.cut += 1;
        }
    }
}

/// Makes the times consistent with the state.
fn settle(record: &mut JobRecord, stopped: Option<Timestamp>, received: Timestamp) {
    match record.state {
        JobState::Waiting => (record.start, record.stop) = (None, None),
        JobState::Running => {
            record.start = record.start.or(Some(record.submit));
            record.stop = None;
        }
        JobState::Ended | JobState::Failed => {
            let from = record.start.unwrap_or(record.submit);
            record.stop = record.stop.or(stopped).or(Some(received)).map(|stop| stop.max(from));
        }
    }
}

/// Tests whether times and amounts are plausible. Times must lie between the year 2000 and 24 h after
/// reception. Only the registry itself stores local jobs.
fn possible(record: &JobRecord, received: Timestamp) -> bool {
    let latest = received.plus(24 * 3600 * Timestamp::SECOND);
    let range = Timestamp::YEAR_2000..=latest;
    let steps = record.steps.iter().flat_map(|step| [step.start, step.stop]);
    let mut times =
        [Some(record.submit), record.start, record.stop].into_iter().chain(steps).flatten();
    let amounts = |of: &Resources| {
        let real = |seconds: Option<f64>| seconds.is_none_or(|s| s.is_finite() && s >= 0.0);
        real(of.wall_seconds) && real(of.cpu_seconds)
    };
    !record.key.cluster.reads_as_local()
        && times.all(|at| range.contains(&at))
        && amounts(&record.facts.requested)
        && amounts(&record.facts.used)
}

/// Cuts parts that exceed their limits and returns whether it cut any.
fn bound(record: &mut JobRecord, limits: &Limits) -> bool {
    let most = usize::try_from(limits.visits_per_job_max).unwrap_or(usize::MAX);
    let facts = &mut record.facts;
    facts.types.take_if(|types| types.is_empty());
    let mut none = Vec::new();
    let types = facts.types.as_mut().unwrap_or(&mut none);
    let state_word = facts.state_word.get_or_insert_default();
    let lists = (types.len(), record.nodes.len(), record.steps.len());
    types.truncate(TYPES_MAX);
    record.nodes.truncate(most);
    record.steps.truncate(STEPS_MAX);
    let mut cut = lists != (types.len(), record.nodes.len(), record.steps.len());
    for name in [Some(&mut record.display_id), facts.user.as_mut()].into_iter().flatten() {
        cut |= clean(name, NAME_BYTES_MAX);
    }
    let texts = [&mut facts.account, &mut facts.project, &mut facts.name, &mut facts.queue];
    let texts = texts.into_iter().filter_map(Option::as_mut).chain([state_word]).chain(types);
    let nodes = record.nodes.iter_mut();
    let shares = nodes.flat_map(|share| [&mut share.cpu_list, &mut share.gpu_list]);
    let steps = record
        .steps
        .iter_mut()
        .flat_map(|step| [&mut step.id, &mut step.name, &mut step.state_word]);
    for list in shares {
        if list.len() > LIST_BYTES_MAX {
            (*list, cut) = (Box::default(), true);
        }
        clean(list, LIST_BYTES_MAX);
    }
    for text in texts.chain(steps) {
        cut |= clean(text, TEXT_BYTES_MAX);
    }
    if record.display_id.is_empty() {
        record.display_id = record.key.id.to_string().into();
    }
    cut
}

/// Cuts a text and replaces each unprintable character by a space. Terminals display these texts, and
/// the tables store lists line by line.
fn clean(text: &mut Box<str>, bytes_max: usize) -> bool {
    let long = text.len() > bytes_max;
    if long || text.contains(model::is_unprintable) {
        let end = text.floor_char_boundary(bytes_max);
        *text = model::printable(text.get(..end).unwrap_or_default()).into();
    }
    long
}
