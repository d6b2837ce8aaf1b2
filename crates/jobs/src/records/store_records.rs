//! The tables of records: writes and reads.

use crate::common::stable_hash::StableHash;
use crate::{JobRecord, NodeShare, RegistryError, Step};
use model::{DeviceId, FactValue, JobFacts, JobKey, JobState, Timestamp};
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};

/// A stored record: row ID, digest, end and owner.
pub(crate) struct StoredRecord {
    pub(crate) record: i64,
    pub(crate) digest: i64,
    pub(crate) stop: Option<Timestamp>,
    pub(crate) user: Option<Box<str>>,
    pub(crate) uid: Option<u32>,
}

/// Returns the stored record of a key and submission.
pub(crate) fn known(
    db: &Connection,
    key: &JobKey,
    submit: Timestamp,
) -> rusqlite::Result<Option<StoredRecord>> {
    let mut find = db.prepare_cached(
        "SELECT record, digest, stop, user, uid FROM records
         WHERE cluster = ?1 AND id = ?2 AND submit = ?3",
    )?;
    find.query_row(params![key.cluster.as_str(), key.id.get(), submit.0], |row| {
        let stop = row.get::<_, Option<i64>>(2)?.map(Timestamp);
        let (record, digest) = (row.get(0)?, row.get(1)?);
        Ok(StoredRecord { record, digest, stop, user: row.get(3)?, uid: row.get(4)? })
    })
    .optional()
}

/// Computes a digest of a record. A record with the stored digest need not be written again. The digest
/// is stored, so it depends only on written values and is the same on every machine.
pub(crate) fn digest(record: &JobRecord) -> i64 {
    let mut hash = StableHash::default();
    let shares = record.nodes.iter().flat_map(|share| share_values(record, share));
    let steps = (0_i64..).zip(&record.steps).flat_map(|(place, step)| step_values(place, step));
    hash.number(record.nodes.len() as u64);
    for value in values(record).into_iter().chain(shares).chain(steps) {
        match value {
            Value::Null => hash.number(0),
            Value::Integer(integer) => hash.number(1).number(integer.cast_unsigned()),
            Value::Real(real) => hash.number(2).number(real.to_bits()),
            Value::Text(text) => hash.number(3).bytes(text.as_bytes()),
            Value::Blob(bytes) => hash.number(4).bytes(&bytes),
        };
    }
    hash.finish().cast_signed()
}

/// Writes a new record, or replaces the record with the row ID `place`.
pub(crate) fn write(
    db: &Connection,
    record: &JobRecord,
    place: Option<i64>,
    digest: i64,
    received: Timestamp,
) -> rusqlite::Result<()> {
    let mut columns = vec!["record", "cluster", "id", "submit", "digest", "received"];
    columns.extend(OWN);
    columns.extend(JobFacts::columns().iter().map(|fact| &*fact.name));
    let key = &record.key;
    let mut row: Vec<Value> = vec![
        place.into(),
        key.cluster.to_string().into(),
        key.id.get().into(),
        record.submit.0.into(),
        digest.into(),
        received.0.into(),
    ];
    row.extend(values(record));
    let marks = vec!["?"; columns.len()].join(", ");
    let updates: Vec<String> =
        columns.iter().skip(4).map(|name| format!("{name} = excluded.{name}")).collect();
    let sql = format!(
        "INSERT INTO records ({}) VALUES ({marks}) ON CONFLICT (record) DO UPDATE SET {}
         RETURNING record",
        columns.join(", "),
        updates.join(", ")
    );
    let number: i64 =
        db.prepare_cached(&sql)?.query_row(params_from_iter(row), |row| row.get(0))?;
    if place.is_some() {
        db.prepare_cached("DELETE FROM shares WHERE record = ?1")?.execute([number])?;
        db.prepare_cached("DELETE FROM steps WHERE record = ?1")?.execute([number])?;
    }
    write_shares(db, record, number)?;
    write_steps(db, record, number)
}

fn write_shares(db: &Connection, record: &JobRecord, number: i64) -> rusqlite::Result<()> {
    // The last of two shares of one device counts.
    let mut insert = db.prepare_cached(
        "INSERT OR REPLACE INTO shares
         (record, device, start, stop, cpus, cpu_list, gpus, gpu_list, memory_bytes)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?;
    for share in &record.nodes {
        let values = share_values(record, share);
        insert.execute(params_from_iter([number.into()].into_iter().chain(values)))?;
    }
    Ok(())
}

/// Builds a row of `shares` without the record's row ID.
fn share_values(record: &JobRecord, share: &NodeShare) -> [Value; 8] {
    [
        share.device.to_string().into(),
        record.start.map(|at| at.0).into(),
        record.stop.map(|at| at.0).into(),
        share.cpus.into(),
        share.cpu_list.to_string().into(),
        share.gpus.into(),
        share.gpu_list.to_string().into(),
        bytes(share.memory_bytes).into(),
    ]
}

fn write_steps(db: &Connection, record: &JobRecord, number: i64) -> rusqlite::Result<()> {
    let mut insert = db.prepare_cached(
        "INSERT INTO steps (record, place, step, name, state_word, start, stop, exit_code)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?;
    for (place, step) in (0_i64..).zip(&record.steps) {
        let values = step_values(place, step);
        insert.execute(params_from_iter([number.into()].into_iter().chain(values)))?;
    }
    Ok(())
}

/// Builds a row of `steps` without the record's row ID.
fn step_values(place: i64, step: &Step) -> [Value; 7] {
    [
        place.into(),
        step.id.to_string().into(),
        step.name.to_string().into(),
        step.state_word.to_string().into(),
        step.start.map(|at| at.0).into(),
        step.stop.map(|at| at.0).into(),
        step.exit_code.into(),
    ]
}

/// The columns of a record that a digest covers, except shares and steps: see [`values`].
const OWN: [&str; 4] = ["display_id", "state", "start", "stop"];

/// Builds a row of `records`: the columns [`OWN`] and those of the facts.
fn values(record: &JobRecord) -> Vec<Value> {
    let mut values: Vec<Value> = vec![
        record.display_id.to_string().into(),
        record.state.word().to_owned().into(),
        record.start.map(|at| at.0).into(),
        record.stop.map(|at| at.0).into(),
    ];
    values.extend(record.facts.values().into_iter().map(|value| match value {
        FactValue::None => Value::Null,
        FactValue::Text(text) => text.into_owned().into(),
        FactValue::Integer(number) => number.into(),
        FactValue::Real(number) => number.into(),
    }));
    values
}

/// Converts bytes for SQLite. Values above 8 EiB saturate.
fn bytes(bytes: Option<u64>) -> Option<i64> {
    bytes.map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX))
}

/// Reads facts from adjacent columns, the first at `at`.
pub(crate) fn facts(row: &Row<'_>, at: usize) -> Result<JobFacts, RegistryError> {
    let mut values = Vec::with_capacity(JobFacts::columns().len());
    for place in at..at + JobFacts::columns().len() {
        values.push(match row.get_ref(place)? {
            ValueRef::Null => FactValue::None,
            ValueRef::Integer(number) => FactValue::Integer(number),
            ValueRef::Real(number) => FactValue::Real(number),
            text => FactValue::Text(text.as_str().map_err(rusqlite::Error::from)?.into()),
        });
    }
    let facts = JobFacts::from_values(values.iter().cloned());
    facts.ok_or_else(|| RegistryError::Damaged(format!("{values:?}")))
}

/// The columns of facts, with the table or value of each, separated by commas.
pub(crate) fn fact_columns(column: impl Fn(&str) -> String) -> String {
    let columns: Vec<_> = JobFacts::columns().iter().map(|fact| column(&fact.name)).collect();
    columns.join(", ")
}

/// Parses a state column.
pub(crate) fn state(word: &str) -> Result<JobState, RegistryError> {
    JobState::from_word(word).ok_or_else(|| RegistryError::Damaged(word.to_owned()))
}

/// Returns the records of a job by submission, earliest first, without nodes and steps.
pub(crate) fn records(
    db: &Connection,
    key: &JobKey,
) -> Result<Vec<(i64, JobRecord)>, RegistryError> {
    let sql = format!(
        "SELECT record, submit, display_id, state, start, stop, {} FROM records
         WHERE cluster = ?1 AND id = ?2 ORDER BY submit",
        fact_columns(str::to_owned)
    );
    let mut find = db.prepare_cached(&sql)?;
    let mut rows = find.query(params![key.cluster.as_str(), key.id.get()])?;
    let mut records = Vec::new();
    while let Some(row) = rows.next()? {
        records.push((row.get(0)?, record(key, row)?));
    }
    Ok(records)
}

fn record(key: &JobKey, row: &Row<'_>) -> Result<JobRecord, RegistryError> {
    let time = |at: usize| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(at)?.map(Timestamp));
    Ok(JobRecord {
        key: key.clone(),
        submit: Timestamp(row.get(1)?),
        display_id: row.get(2)?,
        state: state(row.get_ref(3)?.as_str().map_err(rusqlite::Error::from)?)?,
        start: time(4)?,
        stop: time(5)?,
        facts: facts(row, 6)?,
        nodes: Vec::new(),
        steps: Vec::new(),
    })
}

/// Returns the shares of a record, sorted by device.
pub(crate) fn shares(db: &Connection, record: i64) -> Result<Vec<NodeShare>, RegistryError> {
    let mut find = db.prepare_cached(
        "SELECT device, cpus, cpu_list, gpus, gpu_list, memory_bytes FROM shares
         WHERE record = ?1 ORDER BY device",
    )?;
    let mut rows = find.query([record])?;
    let mut shares = Vec::new();
    while let Some(row) = rows.next()? {
        let device: String = row.get(0)?;
        let bytes: Option<i64> = row.get(5)?;
        shares.push(NodeShare {
            device: DeviceId::new(&device).map_err(|_| RegistryError::Damaged(device))?,
            cpus: row.get(1)?,
            cpu_list: row.get(2)?,
            gpus: row.get(3)?,
            gpu_list: row.get(4)?,
            memory_bytes: bytes.map(i64::unsigned_abs),
        });
    }
    Ok(shares)
}

/// Returns the steps of a record in the reported order.
pub(crate) fn steps(db: &Connection, record: i64) -> rusqlite::Result<Vec<Step>> {
    let mut find = db.prepare_cached(
        "SELECT step, name, state_word, start, stop, exit_code FROM steps
         WHERE record = ?1 ORDER BY place",
    )?;
    let steps = find.query_map([record], |row| {
        Ok(Step {
            id: row.get(0)?,
            name: row.get(1)?,
            state_word: row.get(2)?,
            start: row.get::<_, Option<i64>>(3)?.map(Timestamp),
            stop: row.get::<_, Option<i64>>(4)?.map(Timestamp),
            exit_code: row.get(5)?,
        })
    })?;
    steps.collect()
}
