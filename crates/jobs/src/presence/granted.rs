//! Devices of a run that a user may read, by source of the grant.
//!
//! A scheduler record with the owner's user ID grants the whole run. Without it, a node's report grants
//! only that node's device. Otherwise a stolen token of one node would open another node's samples of
//! any job ID. A registered local job has one device.

use crate::people::names::name_of;
use crate::{Reader, Registry, RegistryError, Span};
use model::{DeviceId, Job};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::BTreeSet;

/// Condition on a run `r`: a record or a registration makes it the owner's, or the access has another
/// reason than the owner `?`, such as an account.
const OF_RUN: &str = "r.uid IS NOT ? OR r.registered = 1
    OR EXISTS (SELECT 1 FROM records o WHERE o.record = r.record AND o.uid IS NOT NULL)";
/// Condition on a visit `t`: its own node names the owner. The node names the user ID (`?`), the login
/// name `?` of every cluster, or a name with the user ID `?` in the cluster. Another visit of the same
/// run on the same device counts too.
const OF_VISIT: &str = "EXISTS (SELECT 1 FROM visits v WHERE v.run = r.run AND v.device = t.device
    AND (v.uid = ? OR (v.uid IS NULL AND (v.user = ? OR EXISTS (SELECT 1 FROM names m
        WHERE m.cluster = r.cluster AND m.name = v.user AND m.uid = ?)))))";

/// The devices of a run on which a reader may read the run's samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Granted {
    /// All devices, also those without a known visit.
    Everywhere,
    /// These devices.
    On(BTreeSet<DeviceId>),
}

impl Granted {
    /// Tests whether a device is included.
    pub fn has(&self, device: &DeviceId) -> bool {
        match self {
            Self::Everywhere => true,
            Self::On(devices) => devices.contains(device),
        }
    }
}

/// Times and devices at which a reader may read a job ID. The ID may have several runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunsSeen {
    /// The time range (end `None` while it lasts) and devices of each run with full access. A run that has
    /// not started has no time range.
    pub runs: Vec<(Option<Span>, Granted)>,
    /// Whether the reader has full access to every run of the ID.
    pub every: bool,
}

impl RunsSeen {
    /// Returns the readable time ranges on a device, and whether they cover each run of the ID there.
    pub fn on(&self, device: &DeviceId) -> (Vec<Span>, bool) {
        self.filtered(|granted| granted.has(device))
    }

    /// Returns the same for a device that no limited grant names.
    pub fn elsewhere(&self) -> (Vec<Span>, bool) {
        self.filtered(|granted| *granted == Granted::Everywhere)
    }

    /// Returns the devices that limited grants name.
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

/// The owner of the jobs in a query, as visits name them.
pub(crate) struct Owner {
    uid: Value,
    name: Value,
}

impl Owner {
    pub(crate) fn new(registry: &Registry, db: &Connection, uid: u32) -> rusqlite::Result<Self> {
        let name = name_of(db, &registry.users, (None, uid))?.map_or(Value::Null, Value::Text);
        Ok(Self { uid: Value::Integer(uid.into()), name })
    }

    /// Builds a condition that limits allocations `t` of runs `r` to those granted to the owner.
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
    /// Returns the devices of a run on which a reader may read its samples. The reader must have full
    /// access to the run.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn granted(&self, reader_of: Reader, job: &Job) -> Result<Granted, RegistryError> {
        if reader_of.sees_every_job() {
            return Ok(Granted::Everywhere);
        }
        // A missing run grants nothing: the registry may have rebuilt it meanwhile.
        let nothing = || Ok(Granted::On(BTreeSet::new()));
        let db = self.reader.lock();
        let run = "SELECT run FROM runs WHERE cluster = ?1 AND id = ?2 AND start = ?3";
        let Some(start) = job.start.or(job.submit) else { return nothing() };
        let mut find = db.prepare_cached(run)?;
        let mut rows = find.query(params![job.key.cluster.as_str(), job.key.id.get(), start.0])?;
        let Some(row) = rows.next()? else { return nothing() };
        Grants::new(self, &db, reader_of).of(row.get(0)?)
    }
}

/// Computes a reader's grants run by run.
pub(crate) struct Grants<'a> {
    registry: &'a Registry,
    db: &'a Connection,
    reader: Reader,
    /// The reader's names, read on first use: this may read the machine's users.
    owner: Option<Owner>,
}

impl<'a> Grants<'a> {
    pub(crate) const fn new(registry: &'a Registry, db: &'a Connection, reader: Reader) -> Self {
        Self { registry, db, reader, owner: None }
    }

    /// Returns the devices of a run on which the reader may read its samples. The reader must have full
    /// access to the run.
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
