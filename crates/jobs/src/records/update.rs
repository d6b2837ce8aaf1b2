//! What somebody in a scheduler's place says piece by piece: a job is submitted, starts, ends, is corrected.

use crate::common::registry::lock;
use crate::matching::visits::TOGETHER;
use crate::people::names::NameSource;
use crate::records::ingest_records::Fate;
use crate::records::store_records::{records, shares, steps};
use crate::{IngestStats, NodeShare, Record, Registry, RegistryError, Step};
use model::{JobKey, JobState, Resources, Timestamp};
use rusqlite::{Connection, TransactionBehavior, params};

/// Some of what a [`Record`] says; what is `None` stays as it was said before.
///
/// Without `submit` the newest submission of the job is meant; one that is over and ended before `start` is
/// another's, and so is one of another user that started before `start`, whose end nobody told: it ended then
/// at the latest. A new submission is made: at `start`, or at `stop`, or now. When it was submitted can be said
/// later.
///
/// Without `state` the job is over when `stop` is told or was, failed where its exit code is not 0; it runs when
/// `start` is; else it is what it was, at first waiting.
///
/// A `user` other than before has a number of his own: the one that is told with him, else the one he is known
/// by; a `uid` other than before, a name of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Amendment {
    /// Whose number, and which.
    pub key: JobKey,
    /// Which submission.
    pub submit: Option<Timestamp>,
    /// See [`Record::spelling`].
    pub spelling: Option<Box<str>>,
    /// See [`Record::part_of`].
    pub part_of: Option<i64>,
    /// See [`Record::array_index`].
    pub array_index: Option<i64>,
    /// Login name.
    pub user: Option<Box<str>>,
    /// The user's number.
    pub uid: Option<u32>,
    /// Who pays.
    pub account: Option<Box<str>>,
    /// The project.
    pub project: Option<Box<str>>,
    /// What the user called it.
    pub name: Option<Box<str>>,
    /// The queue or partition.
    pub queue: Option<Box<str>>,
    /// What it is doing.
    pub state: Option<JobState>,
    /// The scheduler's own word for that.
    pub state_word: Option<Box<str>>,
    /// When it started.
    pub start: Option<Timestamp>,
    /// When it ended.
    pub stop: Option<Timestamp>,
    /// What it ended with.
    pub exit_code: Option<i32>,
    /// Words that it was submitted with.
    pub types: Option<Vec<Box<str>>>,
    /// What was asked for.
    pub requested: Resources,
    /// What was used.
    pub used: Resources,
    /// Where: all of its devices.
    pub nodes: Option<Vec<NodeShare>>,
    /// All of its steps.
    pub steps: Option<Vec<Step>>,
    /// An end and no correction: a job that is over stays as it is.
    pub is_end: bool,
}

impl Amendment {
    /// One that says nothing yet.
    pub fn new(key: JobKey) -> Self {
        Self {
            key,
            submit: None,
            spelling: None,
            part_of: None,
            array_index: None,
            user: None,
            uid: None,
            account: None,
            project: None,
            name: None,
            queue: None,
            state: None,
            state_word: None,
            start: None,
            stop: None,
            exit_code: None,
            types: None,
            requested: Resources::default(),
            used: Resources::default(),
            nodes: None,
            steps: None,
            is_end: false,
        }
    }

    /// One that ends a job, unless it is over: how and when it ended stays as it was said first.
    pub fn end(key: JobKey, stop: Timestamp, exit_code: Option<i32>) -> Self {
        Self { stop: Some(stop), exit_code, is_end: true, ..Self::new(key) }
    }

    /// The record as this amends it.
    fn onto(self, before: Option<Record>, received: Timestamp) -> Record {
        let submit = self.submit.or(self.start).or(self.stop).unwrap_or(received);
        let before =
            before.unwrap_or_else(|| Record::new(self.key.clone(), submit, JobState::Waiting));
        let state = self.state.unwrap_or_else(|| self.becomes(&before));
        let exit_code = self.exit_code.or(before.exit_code);
        let (user, uid) = match (self.user, self.uid) {
            (None, None) => (before.user, before.uid),
            (Some(user), None) if before.user.as_ref() == Some(&user) => (Some(user), before.uid),
            (None, Some(uid)) if before.uid == Some(uid) => (before.user, Some(uid)),
            // A job whose user's number was not known is still his.
            (None, Some(uid)) if before.uid.is_none() => (before.user, Some(uid)),
            other => other,
        };
        Record {
            key: before.key,
            submit: before.submit,
            spelling: self.spelling.unwrap_or(before.spelling),
            part_of: self.part_of.or(before.part_of),
            array_index: self.array_index.or(before.array_index),
            user,
            uid,
            account: self.account.or(before.account),
            project: self.project.or(before.project),
            name: self.name.or(before.name),
            queue: self.queue.or(before.queue),
            state,
            state_word: self.state_word.unwrap_or(before.state_word),
            start: self.start.or(before.start),
            stop: self.stop.or(before.stop),
            exit_code,
            types: self.types.unwrap_or(before.types),
            requested: over(self.requested, before.requested),
            used: over(self.used, before.used),
            nodes: self.nodes.unwrap_or(before.nodes),
            steps: self.steps.unwrap_or(before.steps),
        }
    }

    /// The state, where it is not said.
    fn becomes(&self, before: &Record) -> JobState {
        if self.stop.is_none() && !before.state.is_over() {
            return if self.start.is_some() { JobState::Running } else { before.state };
        }
        // Somebody's word that it failed, for which no exit code was the reason.
        let said_so = before.state == JobState::Failed && before.exit_code.unwrap_or(0) == 0;
        match self.exit_code.or(before.exit_code) {
            None | Some(0) if said_so => JobState::Failed,
            None | Some(0) => JobState::Ended,
            // As a word that it ended, against the code that was known when it was said.
            Some(_) if self.stop.is_none() && self.exit_code.is_none() => before.state,
            Some(_) => JobState::Failed,
        }
    }

    /// Whether it tells of another user than a record does.
    fn is_anothers(&self, record: &Record) -> bool {
        match (self.uid.zip(record.uid), self.user.as_ref().zip(record.user.as_ref())) {
            (_, Some((one, other))) => one != other,
            (Some((one, other)), None) => one != other,
            (None, None) => false,
        }
    }
}

fn over(said: Resources, before: Resources) -> Resources {
    Resources {
        nodes: said.nodes.or(before.nodes),
        cpus: said.cpus.or(before.cpus),
        gpus: said.gpus.or(before.gpus),
        memory_bytes: said.memory_bytes.or(before.memory_bytes),
        wall_seconds: said.wall_seconds.or(before.wall_seconds),
        cpu_seconds: said.cpu_seconds.or(before.cpu_seconds),
    }
}

/// How far a file that grows was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Followed {
    /// The file system's number.
    pub disk: u64,
    /// The file's number in it.
    pub inode: u64,
    /// What tells a file that was given the number of one that went: a digest of its beginning.
    pub head: u64,
    /// So many bytes were read.
    pub bytes: u64,
    /// In so many lines.
    pub lines: u64,
}

impl Registry {
    /// Takes in what was said piece by piece, in that order and in one transaction: on disk when this
    /// returns. Otherwise as [`Registry::tell`]; but a user's number that is known for a name stays.
    ///
    /// # Errors
    /// SQLite fails: then nothing of it is kept, and it can be said again.
    pub fn amend(
        &self,
        amendments: Vec<Amendment>,
        received: Timestamp,
    ) -> Result<IngestStats, RegistryError> {
        self.amend_and((amendments, NameSource::Pushed), received, |_| Ok(()))
    }

    /// The same for what a file said, together with how far it was read now: what it says is taken once,
    /// also over a crash.
    ///
    /// # Errors
    /// SQLite fails: then nothing of it is kept, and it can be read again.
    pub fn follow(
        &self,
        path: &str,
        amendments: Vec<Amendment>,
        read: Followed,
        received: Timestamp,
    ) -> Result<IngestStats, RegistryError> {
        self.amend_and((amendments, NameSource::Polled), received, |change| {
            let Followed { disk, inode, head, bytes, lines } = read;
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

    /// How far a file was read; `None`: never.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn followed(&self, path: &str) -> Result<Option<Followed>, RegistryError> {
        let reader = lock(&self.reader);
        let mut find = reader.prepare_cached(
            "SELECT disk, inode, head, bytes, lines FROM followed WHERE path = ?1",
        )?;
        let mut rows = find.query([path])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let number = |at| Ok::<_, rusqlite::Error>(row.get::<_, i64>(at)?.cast_unsigned());
        let (disk, inode, head) = (number(0)?, number(1)?, number(2)?);
        Ok(Some(Followed { disk, inode, head, bytes: number(3)?, lines: number(4)? }))
    }

    fn amend_and(
        &self,
        (amendments, source): (Vec<Amendment>, NameSource),
        received: Timestamp,
        and: impl FnOnce(&Connection) -> Result<(), RegistryError>,
    ) -> Result<IngestStats, RegistryError> {
        let mut heard = IngestStats::default();
        let mut writer = lock(&self.writer);
        let change = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for amendment in amendments {
            heard.add(self.amend_one(&change, (amendment, source), received)?);
        }
        and(&change)?;
        change.commit()?;
        Ok(heard)
    }

    fn amend_one(
        &self,
        db: &Connection,
        (amendment, source): (Amendment, NameSource),
        received: Timestamp,
    ) -> Result<(Fate, bool), RegistryError> {
        let Meant { before, ended } = meant(db, &amendment)?;
        if amendment.is_end && before.as_ref().is_some_and(|record| record.state.is_over()) {
            return Ok((Fate::Known, false));
        }
        let (guessed, is_new) = (amendment.submit.is_none(), before.is_none());
        let (start, stop) = (amendment.start, amendment.stop);
        let record = amendment.onto(before, received);
        // The clocks of two machines may have told them; a minute is more than that.
        let backwards = record.start.zip(record.stop).is_some_and(|(a, b)| b.plus(TOGETHER) < a);
        if backwards && start.or(stop).is_some() {
            return Ok((Fate::Backwards, false));
        }
        let (key, submit) = (record.key.clone(), record.submit);
        let taken = self.take(db, (record, source), received)?;
        if let Some(ended) = ended.filter(|_| taken.0 != Fate::Refused) {
            self.take(db, (ended, source), received)?;
        }
        if guessed && is_new && taken.0 == Fate::New {
            db.prepare_cached(
                "UPDATE records SET guessed = 1 WHERE cluster = ?1 AND id = ?2 AND submit = ?3",
            )?
            .execute(params![key.cluster.as_str(), key.id.get(), submit.0])?;
        }
        Ok(taken)
    }
}

/// What an amendment is about.
struct Meant {
    /// The submission that is amended; `None`: it is a new one.
    before: Option<Record>,
    /// The one before a new one, whose end nobody told, as it ended.
    ended: Option<Record>,
}

fn meant(db: &Connection, amendment: &Amendment) -> Result<Meant, RegistryError> {
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
    let Some((number, mut record)) = found else { return Ok(Meant { before: None, ended: None }) };
    (record.nodes, record.steps) = (shares(db, number)?, steps(db, number)?);
    let Some(start) = amendment.start.filter(|_| amendment.submit.is_none()) else {
        return Ok(Meant { before: Some(record), ended: None });
    };
    if record.state.is_over() {
        let after = record.stop.is_some_and(|stop| start > stop);
        return Ok(Meant { before: (!after).then_some(record), ended: None });
    }
    if amendment.is_anothers(&record) && record.start.is_some_and(|before| start > before) {
        let ended = Record { state: JobState::Ended, stop: Some(start), ..record };
        return Ok(Meant { before: None, ended: Some(ended) });
    }
    Ok(Meant { before: Some(record), ended: None })
}

/// The record of a submission that was then, of which nobody had told when it was: the next after it, unless
/// what is said is of another user, or of a job that was over before that one started.
fn submitted_then(
    db: &Connection,
    known: Vec<(i64, Record)>,
    amendment: &Amendment,
    submit: Timestamp,
) -> Result<Option<(i64, Record)>, RegistryError> {
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
