//! Which devices of a run a user reads by whose word.
//!
//! A scheduler's record that names the owner's number grants the whole run. Without it, a node's report grants its
//! own device alone: a stolen token of one node would otherwise open another node's samples of any job ID. A
//! registered local job has one device.

use crate::common::registry::lock;
use crate::people::names::name_of;
use crate::{Reader, Registry, RegistryError, Span};
use model::{DeviceId, Job};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::BTreeSet;

/// Of a run `r`: whether it is the owner's by a record or a registration, or is read for another reason (an account)
/// than that it is `?`'s.
const OF_RUN: &str = "r.uid IS NOT ? OR r.registered = 1
    OR EXISTS (SELECT 1 FROM records o WHERE o.record = r.record AND o.uid IS NOT NULL)";
/// Of a visit `t`: whether its own node names the owner, by number (`?`) or by login name: `?` of every cluster, or
/// one that the cluster gives the number `?`; in this or in another visit of the same run there.
const OF_VISIT: &str = "EXISTS (SELECT 1 FROM visits v WHERE v.run = r.run AND v.device = t.device
    AND (v.uid = ? OR (v.uid IS NULL AND (v.user = ? OR EXISTS (SELECT 1 FROM names m
        WHERE m.cluster = r.cluster AND m.name = v.user AND m.uid = ?)))))";

/// The devices of a run on which a reader reads what was counted for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Granted {
    /// All of them, those of which no visit is known included.
    Everywhere,
    /// These.
    On(BTreeSet<DeviceId>),
}

impl Granted {
    /// Whether a device is one of them.
    pub fn has(&self, device: &DeviceId) -> bool {
        match self {
            Self::Everywhere => true,
            Self::On(devices) => devices.contains(device),
        }
    }
}

/// When and where somebody reads a job of an ID that may have been used several times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunsSeen {
    /// From when until when (`None` while it lasts), and where, of each run that the reader sees all of. A run that
    /// has not started has no time.
    pub runs: Vec<(Option<Span>, Granted)>,
    /// Whether there is no other run.
    pub every: bool,
}

impl RunsSeen {
    /// When the job is read on a device, and whether each of its runs is read there.
    pub fn on(&self, device: &DeviceId) -> (Vec<Span>, bool) {
        self.filtered(|granted| granted.has(device))
    }

    /// The same on a device that no limited grant names.
    pub fn elsewhere(&self) -> (Vec<Span>, bool) {
        self.filtered(|granted| *granted == Granted::Everywhere)
    }

    /// The devices that limited grants name.
    pub fn devices(&self) -> BTreeSet<&DeviceId> {
        let limited = self.runs.iter().filter_map(|(_, granted)| match granted {
            Granted::Everywhere => None,
            Granted::On(devices) => Some(devices),
        });
        limited.flatten().collect()
    }

    fn filtered(&self, has: impl Fn(&Granted) -> bool) -> (Vec<Span>, bool) {
        let here: Vec<_> = self.runs.iter().filter(|(_, granted)| has(granted)).collect();
        let every = self.every && here.len() == self.runs.len();
        (here.into_iter().filter_map(|(span, _)| *span).collect(), every)
    }
}

/// The owner of the jobs that a question is about, as visits name them.
pub(crate) struct Owner {
    uid: Value,
    name: Value,
}

impl Owner {
    pub(crate) fn new(registry: &Registry, db: &Connection, uid: u32) -> rusqlite::Result<Self> {
        let name = name_of(db, &registry.users, (None, uid))?.map_or(Value::Null, Value::Text);
        Ok(Self { uid: Value::Integer(uid.into()), name })
    }

    /// Narrows stays `t` of runs `r` to those that the owner is granted.
    pub(crate) fn narrow(&self, is_visit: bool) -> (String, Vec<Value>) {
        if is_visit {
            let values = {
                let [one, two, three] = std::array::from_fn(|_| self.uid.clone());
                vec![one, two, self.name.clone(), three]
            };
            return (format!("({OF_RUN} OR {OF_VISIT})"), values);
        }
        (format!("({OF_RUN})"), vec![self.uid.clone()])
    }
}

impl Registry {
    /// The devices of a run on which a reader, who sees all of it, reads what was counted for it.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn granted(&self, reader_of: Reader, job: &Job) -> Result<Granted, RegistryError> {
        if reader_of.sees_every_job() {
            return Ok(Granted::Everywhere);
        }
        // A run that is not found, as it was made again meanwhile, grants nothing.
        let nothing = || Ok(Granted::On(BTreeSet::new()));
        let db = lock(&self.reader);
        let run = "SELECT run FROM runs WHERE cluster = ?1 AND id = ?2 AND start = ?3";
        let Some(start) = job.start.or(job.submit) else { return nothing() };
        let mut find = db.prepare_cached(run)?;
        let mut rows = find.query(params![job.key.cluster.as_str(), job.key.id.get(), start.0])?;
        let Some(row) = rows.next()? else { return nothing() };
        Grants::new(self, &db, reader_of).of(row.get(0)?)
    }
}

/// What a reader is granted, run by run.
pub(crate) struct Grants<'a> {
    registry: &'a Registry,
    db: &'a Connection,
    reader: Reader,
    /// The reader's names, once they are needed: to find them may take a read of the machine's users.
    owner: Option<Owner>,
}

impl<'a> Grants<'a> {
    pub(crate) const fn new(registry: &'a Registry, db: &'a Connection, reader: Reader) -> Self {
        Self { registry, db, reader, owner: None }
    }

    /// The devices of a run on which the reader, who sees all of it, reads what was counted for it.
    pub(crate) fn of(&mut self, run: i64) -> Result<Granted, RegistryError> {
        if self.reader.sees_every_job() {
            return Ok(Granted::Everywhere);
        }
        let Some(uid) = self.reader.uid() else { return Ok(Granted::On(BTreeSet::new())) };
        let sql = format!("SELECT r.registered FROM runs r WHERE r.run = ? AND ({OF_RUN})");
        let mut find = self.db.prepare_cached(&sql)?;
        let is_local: Option<bool> = find.query_row((run, uid), |row| row.get(0)).optional()?;
        let (clause, values) = match is_local {
            Some(false) => return Ok(Granted::Everywhere),
            Some(true) => ("TRUE".to_owned(), Vec::new()),
            None => self.owner(uid)?.narrow(true),
        };
        let sql = format!(
            "SELECT DISTINCT t.device FROM runs r JOIN visits t ON t.run = r.run WHERE r.run = ? AND {clause}"
        );
        let mut find = self.db.prepare_cached(&sql)?;
        let values = std::iter::once(Value::Integer(run)).chain(values);
        let mut rows = find.query(rusqlite::params_from_iter(values))?;
        let mut devices = BTreeSet::new();
        while let Some(row) = rows.next()? {
            devices.insert(crate::common::sql_parts::device(row.get(0)?)?);
        }
        Ok(Granted::On(devices))
    }

    fn owner(&mut self, uid: u32) -> rusqlite::Result<&Owner> {
        let owner = match self.owner.take() {
            Some(owner) => owner,
            None => Owner::new(self.registry, self.db, uid)?,
        };
        Ok(self.owner.insert(owner))
    }
}
